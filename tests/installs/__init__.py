"""Installs the wheels as users do, from the index, and tries them: `python -m tests.installs`."""
