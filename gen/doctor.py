"""What `gen doctor` finds: what `gen` uses, what of it is here, and how to get the rest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gen.errors import GenError
from gen.requirements import ALL, EXTRAS, MissingPackages, distribution, get, version_of

PYTHON = (3, 10)


@dataclass(frozen=True)
class Check:
    """One line of the report; `status` is ok, note (`gen` can do without) or MISSING."""

    name: str
    status: str
    found: str
    fix: str = ""


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version is in a requirement's range, made of `>=`, `<` and `==x.y.*`."""
    have = _numbers(version)
    for operator, bound in re.findall(r"(>=|<|==)([\d.]+)", requirement):
        want = _numbers(bound)
        good = {">=": have >= want, "<": have < want, "==": have[: len(want)] == want}
        if not good[operator]:
            return False
    return True


def _numbers(version: str) -> list[int]:
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in match[0].split(".")] if match else []


def examine() -> list[Check]:
    """All checks, in the order in which one depends on another."""
    checks = [_python(), *map(_package, ALL)]
    for name, find in (
        ("NVRTC", _nvrtc),
        ("CUDA headers", _cuda_headers),
        ("CUTLASS headers", _cutlass),
    ):
        checks.append(_required(name, find))
    extras = [_extra(requirement, extra) for extra in EXTRAS for requirement in EXTRAS[extra]]
    return [*checks, _cache(), _tuned(), _gpu(), *extras, *map(_tool, ("nvcc", "clang-format"))]


def _python() -> Check:
    wanted = ".".join(map(str, PYTHON))
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= PYTHON:
        return Check("Python", "ok", found)
    return Check("Python", "MISSING", found, f"install Python {wanted} or newer")


def _package(requirement: str) -> Check:
    name, version = distribution(requirement), version_of(requirement)
    if version is None:
        return Check(name, "MISSING", "not installed", get(requirement))
    if satisfies(version, requirement):
        return Check(name, "ok", version)
    return Check(name, "MISSING", f"{version}, not {requirement}", get(requirement))


def _extra(requirement: str, extra: str) -> Check:
    found = _package(requirement)
    if found.status == "ok":
        return found
    users = {"torch": "gen.torch", "jax": "gen.jax", "cluster": "--on"}
    user = users.get(extra, f"gen {extra}")
    return Check(found.name, "note", f"{found.found}; only {user} uses it", found.fix)


def _required(name: str, find: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", find())
    except GenError as error:  # "what is missing; how to get it"
        problem, _, fix = str(error).partition("; ")
    return Check(name, "MISSING", problem, fix)


def _nvrtc() -> str:
    from gen.compile.nvrtc import nvrtc_version, supported_archs

    version = ".".join(map(str, nvrtc_version()))
    return f"{version}, compiles for {' '.join(supported_archs())}"


def _cuda_headers() -> str:
    from gen.compile.nvrtc import include_paths

    return os.pathsep.join(include_paths())


def _cutlass() -> str:
    from gen.compile.nvrtc import cutlass_include

    folder = Path(cutlass_include())
    header = folder / "cutlass" / "version.h"
    text = header.read_text(errors="replace") if header.is_file() else ""
    numbers = re.findall(r"^#define CUTLASS_(?:MAJOR|MINOR|PATCH)\s+(\d+)", text, re.MULTILINE)
    origin = " (CUTLASS_PATH)" if os.environ.get("CUTLASS_PATH") else ""
    return f"{'.'.join(numbers) or 'unknown version'} at {folder}{origin}"


def _cache() -> Check:
    from gen.compile.cache import cache_dir

    fix = "set GEN_CACHE_DIR to a folder that can be written; until then nothing is cached"
    try:
        folder = cache_dir()
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    except RuntimeError as error:
        return Check("cache", "note", str(error), fix)
    except OSError as error:
        return Check("cache", "note", f"{folder} cannot be used: {error.strerror}", fix)
    return Check("cache", "ok", f"{folder}, {len(sizes)} files, {sum(sizes) / 2**20:.1f} MiB")


def _tuned() -> Check:
    from gen.dispatch import folders, table
    from gen.errors import counted

    folder = folders.user_folder()
    if folder is None:
        return Check("measured times", "note", "none of yours: GEN_TUNED_DIR is empty")
    try:
        folders.check(folder, own=True)
        there = folders.is_there(folder)
        known = table.load(folder, folders.OWN_WAY_OUT).entries if there else ()
    except GenError as error:
        reason, _, fix = str(error).partition("; ")
        return Check("measured times", "note", reason, fix)
    gpus = sorted({entry.gpu for entry in known})
    found = f"{counted(len(known), 'time')} in {folder}{' of ' if gpus else ''}{', '.join(gpus)}"
    return Check("measured times", "ok", found)


def _gpu() -> Check:
    from gen.device import driver

    try:
        reason = driver.why_no_gpu()
    except MissingPackages as error:
        return Check("GPU", "note", f"unknown: {str(error).partition('; ')[0]}")
    if reason:
        return Check("GPU", "note", f"none: {reason}; kernels run on the emulator")
    found = f"{', '.join(driver.gpus_here())}, driver for CUDA {driver.cuda_version()}"
    return Check("GPU", "ok", found)


def _tool(name: str) -> Check:
    path = shutil.which(name)
    uses = {
        "nvcc": "compiles emitted files in C++ projects and CUTLASS 3.x for gen bench",
        "clang-format": "checks templates",
    }
    return Check(name, "ok" if path else "note", path or f"none: {uses[name]}, gen needs none")
