"""CUDA source -> Module: compiles with NVRTC, which needs neither a GPU nor a driver.

CUDA is imported inside the functions that use it, so that the rest of the package works, and says
what is missing, where it is not installed.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache as memoize
from pathlib import Path
from types import ModuleType
from typing import Any

from gen.compile import cache as disk
from gen.compile.cache import cache_dir
from gen.compile.keys import key_of
from gen.compile.log import Resources, compile_error, parse_resources
from gen.errors import MissingError, UsageError, unknown
from gen.requirements import COMPILING, get, lacking, named

__all__ = [
    "Module",
    "Resources",
    "cache_dir",
    "compile_cuda",
    "cutlass_include",
    "include_paths",
    "nvrtc_version",
    "resources",
    "supported_archs",
]

FORMATS = ("ptx", "cubin")

# What headers are parsed to stays in memory, for the process's next kernels; the code is the same.
# Where it does not fit, because of other options or headers, they are parsed anew without a word.
_PARSE_ONCE = ["--pch", "--pch-messages=false", "-diag-suppress=629,630"]
_FOR_THE_HOST = re.compile(r"^#ifndef __CUDACC_RTC__.*?^#endif", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"#[ \t]*include\b[ \t]*(.*)")
_STAYS = re.compile(r'<cuda_(fp16|bf16|fp8)\.h>|"cutlass/[\w/]+\.h"')

_GET_TOOLKIT = get(*map(named, ("cuda-toolkit", "nvidia-cuda-cccl")))
_GET_CUTLASS = f"{get(named('nvidia-cutlass'))}, or set CUTLASS_PATH to a checkout of CUTLASS"


@dataclass(frozen=True)
class Module:
    """Compiled source. `code` is PTX text in ASCII or a cubin, as `format` says.

    `seconds` is what the compiler took, 0 for what came from the cache; `resources` has one entry
    per kernel of a cubin, and none for PTX, which has no registers allocated yet. `symbols` has the
    symbol of each C++ name that was asked for.
    """

    name: str
    text: str = field(repr=False)
    arch: str
    format: str
    code: bytes = field(repr=False)
    log: str = field(repr=False)
    resources: dict[str, Resources] = field(hash=False)
    seconds: float
    cached: bool
    symbols: dict[str, str] = field(default_factory=dict, hash=False)


def compile_cuda(
    text: str,
    *,
    name: str = "kernel.cu",
    arch: str = "sm_80",
    format: str = "ptx",
    options: Sequence[str] = (),
    line_info: bool = True,
    cache: bool = True,
    headers: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    standard: str = "c++17",
) -> Module:
    """Compiles CUDA source for the GPU architecture `arch`, to PTX or to a cubin.

    `name` stands for the file in messages and in line information, and its folder is where quoted
    includes are searched first. `options` are NVRTC's, added to the language and the include paths
    that are always set; `line_info` makes the code name the source's lines. With `cache`, code
    compiled before from the same source and headers is reused. `headers` are texts by the names
    that are included; `names` are C++ names of kernels, such as `ns::scale<float>`.

    Raises CompileError with the compiler's message and the lines that it is about; UsageError for
    an architecture, format or option that is unknown; MissingError where NVRTC or headers are
    missing.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    _check_arch(arch)
    folders = include_paths() if "#include" in text or headers else []
    headers = headers or {}
    flags = [*_flags(arch, format, line_info, standard), *options]
    flags += [f"-I{folder}" for folder in folders]
    key = key_of(text, name, nvrtc_version(), flags, headers, names) if cache else None
    entry = disk.load(key) if key else None
    if entry:
        known = entry[0].get("symbols", {})
        return _module(text, name, arch, format, entry[1], entry[0]["log"], 0.0, True, known)
    if not headers and not any(re.match("--?(pre-)?include", option) for option in options):
        flags += _parsed_once(text)
    start = time.perf_counter()
    code, log, symbols = _compile(text, name, arch, format, flags, headers, names)
    seconds = time.perf_counter() - start
    if key:
        disk.save(key, {"log": log, "symbols": symbols}, code)
    return _module(text, name, arch, format, code, log, seconds, False, symbols)


def _parsed_once(text: str) -> list[str]:
    """The options for a source whose headers stay as they are: NVRTC does not see that one changes.

    Those are installed ones, not files of the user's.
    """
    included = _INCLUDE.findall(_FOR_THE_HOST.sub("", text))
    return _PARSE_ONCE if included and all(map(_STAYS.match, included)) else []


def _module(
    text: str, name: str, arch: str, format: str, code: bytes, log: str, secs: float, cached: bool,
    symbols: dict[str, str],
) -> Module:  # fmt: skip
    found = parse_resources(log) if format == "cubin" else {}
    return Module(name, text, arch, format, code, log, found, secs, cached, symbols)


def resources(text: str, name: str = "kernel.cu", arch: str = "sm_80") -> dict[str, Resources]:
    """Registers, spills and shared memory of each kernel, from ptxas. Raises as compile_cuda."""
    return compile_cuda(text, name=name, arch=arch, format="cubin").resources


# Messages about the command line, not about the source, which may contain the same words.
_BAD_ARCH = re.compile(r"(nvrtc: error|Command-line error): .*(--gpu-architecture|--nv_arch)")


@memoize
def nvrtc_version() -> tuple[int, int]:
    """NVRTC's version, such as (13, 0). Raises MissingError."""
    status, major, minor = _bindings().nvrtcVersion()
    _check(status)
    return int(major), int(minor)


@memoize
def supported_archs() -> list[str]:
    """The architectures that NVRTC compiles for: sm_75, sm_80, ... Raises MissingError.

    Their variants (`sm_90a`, `sm_100f`) are accepted by `compile_cuda` too, where NVRTC does.
    """
    status, numbers = _bindings().nvrtcGetSupportedArchs()
    _check(status)
    return [f"sm_{number}" for number in numbers]


@memoize
def include_paths() -> list[str]:
    """The folders of the CUDA runtime's and CCCL's headers. Raises MissingError."""
    cccl = _headers("cccl", _GET_TOOLKIT)
    # CUTLASS includes <cccl/cuda/std/...>: from beside the runtime's headers in a toolkit or the
    # wheels, but the two libraries may also come from different installations.
    folders = [_headers("cudart", _GET_TOOLKIT), cccl, str(Path(cccl).parent)]
    return list(dict.fromkeys(folders))


def cutlass_include() -> str:
    """The folder of CUTLASS's headers: `$CUTLASS_PATH/include` if set, else the installed ones.

    Raises MissingError.
    """
    override = os.environ.get("CUTLASS_PATH")
    if not override:
        return _headers("cutlass", _GET_CUTLASS)
    for folder in (Path(override) / "include", Path(override)):
        if (folder / "cutlass" / "cutlass.h").is_file():
            return str(folder.absolute())
    raise MissingError(
        f"CUTLASS_PATH={override} has no include/cutlass/cutlass.h; "
        "set it to a checkout of CUTLASS, or unset it to use the installed headers"
    )


def _headers(library: str, how_to_get: str) -> str:
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError as error:
        raise lacking("compiling", COMPILING, error) from None
    folder = find_nvidia_header_directory(library)
    if folder is None:
        raise MissingError(f"the headers of {library} are missing; {how_to_get}")
    return str(folder)


@memoize
def _bindings() -> ModuleType:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise lacking("compiling", COMPILING, error) from None
    _prefer_own_nvrtc()
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:  # the base of pathfinder's DynamicLibNotFoundError
        raise MissingError(f"the library libnvrtc is missing; {_GET_TOOLKIT}") from None
    return nvrtc  # type: ignore[no-any-return]


def _prefer_own_nvrtc() -> None:
    """Loads the NVRTC beside the headers where the process has NVRTC 12, such as PyTorch's.

    cuda.bindings takes what is loaded, the newest first; NVRTC 12 does not compile the headers of
    CUDA 13. PyTorch goes on with its own.
    """
    try:
        ctypes.CDLL("libnvrtc.so.12", mode=os.RTLD_NOLOAD)
        toolkit = Path(_headers("cudart", _GET_TOOLKIT)).parent
    except (OSError, MissingError):
        return
    # NVRTC opens its built-in functions by name.
    for name in ("libnvrtc-builtins.so.13*", "libnvrtc.so.13"):
        for library in sorted(toolkit.glob(f"lib*/{name}"))[:1]:
            ctypes.CDLL(str(library))


def _check_arch(arch: str) -> None:
    match = re.fullmatch(r"(sm_\d+)[af]?", arch)
    if not match or match[1] not in supported_archs():
        raise _unknown_arch(arch)


def _unknown_arch(arch: str) -> UsageError:
    version = ".".join(map(str, nvrtc_version()))
    known = ", ".join(supported_archs())
    return UsageError(f"{arch} is unknown to NVRTC {version}; use one of {known}")


def _flags(arch: str, format: str, line_info: bool, standard: str) -> list[str]:
    # A virtual architecture gives PTX, a real one a cubin: both through the same call, with the
    # same options. (cuda.core's Program makes cubins as well, but takes no option it does not
    # know, and refuses PTX where there is no driver.)
    target = arch.replace("sm_", "compute_") if format == "ptx" else arch
    flags = [f"--gpu-architecture={target}", f"-std={standard}"]
    flags += ["-lineinfo"] if line_info else []
    return [*flags, "--ptxas-options=-v"] if format == "cubin" else flags


def _compile(
    text: str, name: str, arch: str, format: str, flags: Sequence[str], headers: Mapping[str, str],
    names: Sequence[str],
) -> tuple[bytes, str, dict[str, str]]:  # fmt: skip
    nvrtc = _bindings()
    files = [[part.encode() for part in parts] for parts in (headers.values(), headers)]
    status, program = nvrtc.nvrtcCreateProgram(
        text.encode(), name.encode(), len(headers), *(files if headers else (None, None))
    )
    _check(status)
    try:
        for expression in names:
            (status,) = nvrtc.nvrtcAddNameExpression(program, expression.encode())
            _check(status)
        encoded = [flag.encode() for flag in flags]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        # ptxas leaves NUL bytes between the messages of its stages.
        log_text = log.decode(errors="replace").replace("\0", "").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if _BAD_ARCH.match(log_text):
                raise _unknown_arch(arch)
            if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
                raise UsageError(f"NVRTC refuses an option: {log_text}")
            raise compile_error(name, text, log_text)
        symbols = {name: _symbol(nvrtc, program, name) for name in names}
        if format == "ptx":
            code = _fetch(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
            return code.rstrip(b"\0"), log_text, symbols
        return _fetch(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log_text, symbols
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _symbol(nvrtc: Any, program: Any, name: str) -> str:
    status, symbol = nvrtc.nvrtcGetLoweredName(program, name.encode())
    _check(status)
    return bytes(symbol).decode()


def _fetch(size_of: Any, get: Any, program: Any) -> bytes:
    status, size = size_of(program)
    _check(status)
    # cuda.bindings writes into this bytes object; a literal would be shared, this one is not.
    buffer = bytes(bytearray(size))
    (status,) = get(program, buffer)
    _check(status)
    return buffer


def _check(status: Any) -> None:
    if int(status) != 0:
        raise RuntimeError(f"NVRTC failed: {status.name}")
