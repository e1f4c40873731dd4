"""Where the files of this installation are that CMake reads, or that decide on what is emitted."""

from __future__ import annotations

from pathlib import Path

from gen.errors import MissingError
from gen.source.templates import template_dir


def cmake_dir() -> Path:
    """The CMake files: a checkout's own before the copy inside the installed package."""
    package = Path(__file__).parents[2]
    for folder in (package.parent / "build", package / "cmake"):
        if (folder / "gemmgenConfig.cmake").is_file():
            return folder
    raise MissingError(
        "the CMake files are missing; install gemmgen again, from its checkout or wheel"
    )


def decisive_folders() -> tuple[Path, Path]:
    """The folders of the generator and of its templates, on which all that is emitted depends."""
    return Path(__file__).parents[2], template_dir()


def nvrtc_library() -> Path | None:
    """The file of the NVRTC that a new process compiles with; None where there is none."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, RuntimeError):  # the latter: the base of DynamicLibNotFoundError
        return None
    return Path(found) if found else None
