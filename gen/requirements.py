"""The packages that gen uses: which work needs which, and how to get what is missing."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

from gen.errors import MissingError

# pyproject.toml's dependencies, each for the first work that needs it; a test compares the two.
EMITTING = (
    "jinja2>=3.1",
    "typer>=0.28",
    "rich>=13.8",
    "platformdirs>=4",
    "filelock>=3.12",
)
COMPILING = (
    "cuda-python>=12.9,<14",
    "cuda-core>=1.2",
    "cuda-toolkit[nvrtc,cudart,crt]>=13.0,<13.3",
    "nvidia-cuda-cccl>=13.0,<13.2",
)
RUNNING = (*COMPILING, "numpy>=1.26")
PROVING = (*RUNNING, "nvidia-cutlass==4.2.*")
ALL = (*EMITTING, *PROVING)

# What gen can do without, by the extra that brings it.
EXTRAS = {
    "bench": ("cuda-bench[cu13]>=0.3", "cuda-toolkit[cublas]>=13.0,<13.3", "nvmath-python>=0.9"),
    "profile": ("nvidia-cuda-nvdisasm>=13.2",),
    "report": ("matplotlib>=3.9",),
    "cluster": ("distributed>=2024.8",),
    "torch": ("torch>=2.10",),
    "jax": ("jax>=0.6",),
    "heuristics": ("nvidia-matmul-heuristics>=0.1,<0.2",),
}

# Modules that are not called as the package that they come in.
_PACKAGES = {
    "cuda": "cuda-python",
    "cuda.core": "cuda-core",
    "cutlass_library": "nvidia-cutlass",
    "nvmath": "nvmath-python",
    "nvMatmulHeuristics": "nvidia-matmul-heuristics",
}


class MissingPackages(MissingError, ModuleNotFoundError):
    """Packages are not installed; the message says which and how to get them (exit code 3)."""


_importing = threading.Lock()


@cache
def cuda_core() -> Any:
    """cuda.core with its `utils`, imported when it is first used. Raises ImportError.

    While it is imported, other threads that import it would find a part of it: they wait here.
    """
    with _importing:
        import cuda.core
        import cuda.core.utils
    return cuda.core


def distribution(requirement: str) -> str:
    """`cuda-toolkit[nvrtc]>=13.0` -> cuda-toolkit."""
    return re.split(r"[\[<>=]", requirement, maxsplit=1)[0]


def named(name: str) -> str:
    """The requirement for a package; the name itself where gen has none."""
    known = (*ALL, *(r for extra in EXTRAS.values() for r in extra))
    return next((r for r in known if distribution(r) == name), name)


def requirement_for(module: str) -> str:
    """What to give to `pip install` for a module that could not be imported."""
    while module not in _PACKAGES and "." in module:
        module = module.rpartition(".")[0]
    return named(_PACKAGES.get(module, module))


def get(*requirements: str) -> str:
    """The command that installs these."""
    return " ".join(["pip install", *(f"'{requirement}'" for requirement in requirements)])


def get_extra(extra: str) -> str:
    """The command that installs what an extra brings."""
    return get(*EXTRAS[extra])


def version_of(requirement: str) -> str | None:
    """The installed version of a requirement's package; None where it is not installed."""
    from importlib import metadata  # 30 ms

    try:
        return metadata.version(distribution(requirement))
    except metadata.PackageNotFoundError:
        return None


def lacking(what: str, needs: Iterable[str], error: ImportError) -> MissingPackages:
    """The error for an import that failed: names all that `what` needs and that is not installed.

    `name` is the module that was not found, as in ImportError. Where all is installed and still
    cannot be imported, the message is Python's.
    """
    missing = [requirement for requirement in needs if version_of(requirement) is None]
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = list(dict.fromkeys([*missing, requirement_for(error.name)]))
    if not missing:
        return MissingPackages(f"{what} cannot import what it needs: {error}", name=error.name)
    names = [distribution(requirement) for requirement in missing]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    be, them = ("are", "them") if names[1:] else ("is", "it")
    return MissingPackages(
        f"{what} needs {listed}, which {be} not installed; get {them} with: {get(*missing)}",
        name=error.name,
    )
