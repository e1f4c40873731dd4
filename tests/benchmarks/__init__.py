"""Scripts that time gemmgen itself: its start, a choice, a call, the emulator, compilations."""
