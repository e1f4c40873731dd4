"""The command `gemmgen`, also `python -m gemmgen`: it is `gen`, for where another has that name."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> int:
    """Runs the command and returns its exit code: 3 where the package `gen` is not ours."""
    try:
        cli = import_module("gemmgen.cli")
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return int(cli.main())


if __name__ == "__main__":
    sys.exit(main())
