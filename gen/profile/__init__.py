"""What a kernel does to a GPU's memory units: `count` counts it, `explain` says what it means."""
