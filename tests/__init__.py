"""The tests: the folders mirror the rooms of `gen/`."""

from pathlib import Path

ROOT = Path(__file__).parent.parent  # of the repository
