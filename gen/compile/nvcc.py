"""Shared libraries built by nvcc, for peers with code of the host; kept on disk."""

from __future__ import annotations

import shutil
from functools import cache, partial
from pathlib import Path

from gen.compile import nvrtc
from gen.compile.keys import fingerprint
from gen.compile.libraries import kept, run, version
from gen.errors import MissingError

NAME = "nvcc"
GET = "install NVIDIA's CUDA toolkit 13.0 and put its nvcc on the PATH"

_OPTIMIZE = ("-O3", "-DNDEBUG")
_FLAGS = (*_OPTIMIZE, "-std=c++17", "--expt-relaxed-constexpr", "-shared", "-Xcompiler=-fPIC")


def find() -> str | None:
    """Where nvcc is, if it is on the PATH."""
    return shutil.which(NAME)


@cache
def library(text: str, arch: str) -> Path:
    """The shared library of a source that includes CUTLASS, built or found on disk.

    It is known by its source, the flags, nvcc's version and the headers. Raises MissingError
    without nvcc, CUTLASS or a folder for it, CompileError where nvcc refuses the source.
    """
    nvcc = find()
    if not nvcc:
        raise MissingError(f"nvcc is not on the PATH; {GET}")
    include = nvrtc.cutlass_include()
    parts = (text, arch, *_FLAGS, _version(nvcc), fingerprint(include))
    return kept(NAME, parts, partial(_build, nvcc, text, [f"-arch={arch}", f"-I{include}"]))


def _build(nvcc: str, text: str, flags: list[str], folder: Path) -> Path:
    (folder / "peer.cu").write_text(text)
    run([nvcc, *_FLAGS, *flags, "peer.cu", "-o", "peer.so"], folder)
    return folder / "peer.so"


_version = cache(version)
