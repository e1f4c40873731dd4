"""Scripts that time gemmgen itself: its start, a call from Python, the emulator, compilations."""
