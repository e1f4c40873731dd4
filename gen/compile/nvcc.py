"""Shared libraries built by nvcc, for peers with code of the host; kept on disk."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from gen.compile import nvrtc
from gen.compile.cache import cache_dir
from gen.errors import CompileError, MissingError

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
    parts = (text, arch, *_FLAGS, _version(nvcc), nvrtc.fingerprint(include))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    try:
        target = cache_dir() / "nvcc" / f"{key}.so"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                built = _build(nvcc, text, Path(folder), [*_FLAGS, f"-arch={arch}", f"-I{include}"])
                built.replace(target)  # whole or not at all
    except (OSError, RuntimeError) as error:
        raise MissingError(
            f"there is no place for what nvcc builds: {error}; set GEN_CACHE_DIR to a folder"
        ) from None
    return target


def _build(nvcc: str, text: str, folder: Path, flags: list[str]) -> Path:
    source, target = folder / "peer.cu", folder / "peer.so"
    source.write_text(text)
    command = [nvcc, *flags, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        log = done.stderr + done.stdout
        wrong = [line for line in log.splitlines() if "error" in line] or log.splitlines()
        raise CompileError((wrong or ["no message"])[0].replace(f"{folder}/", ""), log)
    return target


@cache
def _version(nvcc: str) -> str:
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    return done.stdout
