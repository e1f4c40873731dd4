"""What a kernel does to a GPU's memory units.

`count` counts it, `explain` says what it means, `compare` what tells one kernel from another.
"""
