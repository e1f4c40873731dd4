"""Where CMake finds `gemmgenConfig.cmake` and the function `gen_add_kernel`."""

from __future__ import annotations

from pathlib import Path

from gen.errors import MissingError


def cmake_dir() -> Path:
    """The CMake files: a checkout's own before the copy inside the installed package."""
    package = Path(__file__).parents[2]
    for folder in (package.parent / "build", package / "cmake"):
        if (folder / "gemmgenConfig.cmake").is_file():
            return folder
    raise MissingError(
        "the CMake files are missing; install gemmgen again, from its checkout or wheel"
    )
