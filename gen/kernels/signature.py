"""Argument lists, each stated once: of kernels, for templates and plans; of launchers, for emitted
files, headers, bundles and embedded kernels.

Types are those of C++, with the aliases of an emitted file: index_t, input_t, output_t, scalar_t.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Parameter(NamedTuple):
    """A parameter of a function: its name, its type."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def _parameters(*words: str) -> tuple[Parameter, ...]:
    """From "type name" each."""
    return tuple(Parameter(name, type_) for type_, _, name in (w.rpartition(" ") for w in words))


SIZES = _parameters("index_t M", "index_t N", "index_t K")
OPERANDS = _parameters("const input_t* A", "index_t lda", "const input_t* B", "index_t ldb")
RESULT = _parameters(
    "scalar_t beta", "const output_t* C", "index_t ldc", "output_t* D", "index_t ldd"
)
BIAS = _parameters("const output_t* bias")
ALPHA = _parameters("scalar_t alpha")
WORKSPACE = _parameters("void* workspace", "size_t workspace_bytes")
PARTIALS = _parameters("index_t slices", "scalar_t* partials")
STREAM = _parameters("void* partials", "int* flags")


def matrices(has_bias: bool) -> tuple[Parameter, ...]:
    """Of a kernel or launcher that computes a whole GEMM: M, N, K, alpha, A, lda, ..., bias."""
    return (*SIZES, *ALPHA, *OPERANDS, *RESULT, *(BIAS if has_bias else ()))


def restricted(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The same where nobody else writes what A and B point to while the kernel runs."""
    return tuple(
        p._replace(type=f"{p.type} __restrict__") if p.name in "AB" else p for p in parameters
    )


def launch(has_bias: bool, has_workspace: bool) -> tuple[Parameter, ...]:
    """Of the launcher `..._launch`."""
    space = WORKSPACE if has_workspace else ()
    return (*matrices(has_bias), *space, *_parameters("cudaStream_t stream"))


def workspace() -> tuple[Parameter, ...]:
    """Of `..._workspace`, which tells how large the workspace of a launch is."""
    return (*SIZES, *OPERANDS, *_parameters("size_t* bytes"))


MAPS = _parameters(
    "const __grid_constant__ tensor_map_t a_map",
    "const __grid_constant__ tensor_map_t b_map",
    "const __grid_constant__ tensor_map_t d_map",
)
EARLY = _parameters("bool early")

PACK = _parameters(
    "index_t a_lines", "index_t a_length", "const input_t* A", "index_t lda",
    "input_t* a_packed", "index_t a_packed_ld",
    "index_t b_lines", "index_t b_length", "const input_t* B", "index_t ldb",
    "input_t* b_packed", "index_t b_packed_ld",
)  # fmt: skip


CLEAR = _parameters("index_t count", "int* flags")


def reduce(has_bias: bool) -> tuple[Parameter, ...]:
    """Of the kernel that adds up partial sums."""
    partials = _parameters("index_t slices", "const scalar_t* partials")
    return (*SIZES[:2], *ALPHA, *RESULT, *(BIAS if has_bias else ()), *partials)


def mma(writes_d: bool, has_bias: bool, has_partials: bool) -> tuple[Parameter, ...]:
    """Of the kernel `mma`. One that leaves D to the reduction takes nothing of D."""
    of_d = matrices(has_bias) if writes_d else (*SIZES, *OPERANDS)
    return (*restricted(of_d), *(PARTIALS if has_partials else ()))


def mma_tma(
    writes_d: bool, has_bias: bool, has_slices: bool, has_stream: bool, may_be_early: bool
) -> tuple[Parameter, ...]:
    """Of the kernels `mma_tma` and `wgmma`, whose operands are tensor maps."""
    partials = PARTIALS if has_slices else STREAM if has_stream else ()
    early = EARLY if may_be_early else ()
    if not writes_d:
        return (*SIZES, *MAPS[:2], *early, *partials)
    bias = BIAS if has_bias else ()
    return (*SIZES, *ALPHA, *MAPS, *RESULT, *early, *bias, *partials)


def with_types(parameters: Iterable[Parameter], types: Mapping[str, str]) -> tuple[Parameter, ...]:
    """The same with other types in place of those named."""

    def written(type_: str) -> str:
        return re.sub(r"\w+", lambda word: types.get(word[0], word[0]), type_)

    return tuple(p._replace(type=written(p.type)) for p in parameters)


def fill(words: Iterable[object], indent: int, width: int = 100, after: str = "") -> str:
    """Words separated by commas, in lines as full as they can be: as clang-format packs arguments.

    `after` follows the last one on its line.
    """
    lines: list[str] = []
    line = " " * indent
    items = [str(word) for word in words]
    for i, item in enumerate(items):
        text = item + (after if i + 1 == len(items) else ",")
        if line.strip() and len(line) + 1 + len(text) > width:
            lines.append(line)
            line = " " * indent
        line += f" {text}" if line.strip() else text
    return "\n".join([*lines, line])
