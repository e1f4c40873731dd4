"""Argument lists, each stated once: of kernels, for templates and plans; of launchers, for emitted
files, headers, bundles and embedded kernels.

Types are those of C++, with the aliases of an emitted file: index_t, input_t, output_t, scalar_t.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gen.spec.epilogue import MATRIX
from gen.spec.problem import BATCH, SINGLE, Several

if TYPE_CHECKING:
    from gen.spec.kernel import KernelSpec


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
OFFSETS = _parameters("const int* offsets")
FIRST = _parameters("index_t first")
WORKSPACE = _parameters("void* workspace", "size_t workspace_bytes")
PARTIALS = _parameters("index_t slices", "scalar_t* partials")
STREAM = _parameters("void* partials", "int* flags")


def of_epilogue(spec: KernelSpec) -> tuple[Parameter, ...]:
    """What an epilogue takes: the bias, or the user's own operands with leading dimensions."""
    if spec.has_bias:
        return BIAS
    found: list[Parameter] = []
    for operand in spec.operands:
        if not operand.index:
            found.append(Parameter(operand.symbol, "scalar_t"))
            continue
        found.append(Parameter(operand.symbol, f"const {operand.element(spec.dtypes).cuda}*"))
        if operand.index == MATRIX:
            found.append(Parameter(operand.ld, "index_t"))
    return tuple(found)


def matrices(epilogue: Sequence[Parameter] = (), strided: bool = False) -> tuple[Parameter, ...]:
    """Of a kernel or launcher that computes a whole GEMM: M, N, K, alpha, A, lda, ..., D, ldd.

    epilogue: what comes behind these, see `of_epilogue`. strided: with the elements from each
    matrix of a batch to the next, stride_a behind lda.
    """
    found = (*SIZES, *ALPHA, *OPERANDS, *RESULT)
    return (*(with_strides(found) if strided else found), *epilogue)


def whole(spec: KernelSpec) -> tuple[Parameter, ...]:
    """Of a kernel that does everything; of a batch, from product `first` on."""
    found = restricted(matrices(of_epilogue(spec), spec.batched))
    return (*found, *(FIRST if spec.batched else ()))


def with_strides(parameters: Iterable[Parameter], matrices: str = "abcd") -> tuple[Parameter, ...]:
    """The same with a stride behind each leading dimension of these matrices."""
    found: list[Parameter] = []
    for p in parameters:
        found.append(p)
        if p.name.startswith("ld") and p.name[2:] in matrices:
            found.append(Parameter(f"stride_{p.name[2:]}", p.type))
    return tuple(found)


def counts(several: Several) -> tuple[Parameter, ...]:
    """The number of products, where there may be several."""
    return _parameters(f"index_t {several.number}") if several else ()


def _of_several(parameters: Iterable[Parameter], several: Several) -> tuple[Parameter, ...]:
    """The same with the number of products behind the sizes, and where groups end behind B."""
    found: list[Parameter] = []
    for p in parameters:
        found += with_strides([p], several.strided)
        if p.name == "K":
            found += counts(several)
        elif p.name == "ldb" and several.number == "groups":
            found += OFFSETS
    return tuple(found)


# What a kernel that computes the transpose of D, B' * A', takes in place of these.
_OF_TRANSPOSE = {
    "M": "N", "N": "M", "A": "B", "lda": "ldb", "stride_a": "stride_b",
    "B": "A", "ldb": "lda", "stride_b": "stride_a",
}  # fmt: skip


def given_as(name: str, swapped: bool) -> str:
    """What the caller calls a kernel's parameter; `swapped`: of one for the transpose of D."""
    return _OF_TRANSPOSE.get(name, name) if swapped else name


def restricted(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The same where nobody else writes what A and B point to while the kernel runs."""
    return tuple(
        p._replace(type=f"{p.type} __restrict__") if p.name in "AB" else p for p in parameters
    )


def launch(spec: KernelSpec, may_choose: bool = False) -> tuple[Parameter, ...]:
    """Of the launcher `..._launch`. may_choose: it takes a workspace for any kernel."""
    space = WORKSPACE if may_choose or spec.row.takes_workspace else ()
    given = (*_of_several(matrices(), spec.several), *of_epilogue(spec))
    return (*given, *space, *_parameters("cudaStream_t stream"))


def workspace(several: Several = SINGLE) -> tuple[Parameter, ...]:
    """Of `..._workspace`, which tells how large the workspace of a launch is: offsets do not."""
    given = _of_several((*SIZES, *OPERANDS), several)
    return (*(p for p in given if p not in OFFSETS), *_parameters("size_t* bytes"))


MAPS = _parameters(
    "const __grid_constant__ tensor_map_t a_map",
    "const __grid_constant__ tensor_map_t b_map",
    "const __grid_constant__ tensor_map_t d_map",
)
EDGES = _parameters(
    "const __grid_constant__ tensor_map_t a_edge", "const __grid_constant__ tensor_map_t b_edge"
)
EARLY = _parameters("bool early")

COUNTS = _parameters("index_t a_count", "index_t b_count")


def pack(several: Several) -> tuple[Parameter, ...]:
    """Of the kernel that packs operands: each is so many lines, of so many matrices of a batch."""
    found: list[Parameter] = []
    for count, a, (matrix, ld) in zip(COUNTS, "ab", (OPERANDS[:2], OPERANDS[2:]), strict=True):
        given = (count, *with_strides((matrix, ld))) if a in several.strided else (matrix, ld)
        found += _parameters(f"index_t {a}_lines", f"index_t {a}_length")
        found += [*given, *_parameters(f"input_t* {a}_packed", f"index_t {a}_packed_ld")]
    return tuple(found)


CLEAR = _parameters("index_t count", "int* flags")


def reduce(epilogue: Sequence[Parameter], batched: bool) -> tuple[Parameter, ...]:
    """Of the kernel that adds up partial sums."""
    partials = _parameters("index_t slices", "const scalar_t* partials")
    sizes, result = (
        ((*SIZES[:2], *counts(BATCH)), with_strides(RESULT)) if batched else (SIZES[:2], RESULT)
    )
    return (*sizes, *ALPHA, *result, *epilogue, *partials)


def mma(
    writes_d: bool,
    epilogue: Sequence[Parameter],
    has_slices: bool,
    several: Several,
    has_stream: bool,
) -> tuple[Parameter, ...]:
    """Of `mma` and `simt`. One that leaves D to the reduction takes nothing of D."""
    if several.number == "groups" or has_stream:  # blocks have to know how many products there are
        stream = STREAM if has_stream else ()
        return (*restricted(_of_several(matrices(epilogue), several)), *stream)
    operands, batched = (*SIZES, *OPERANDS), bool(several)
    of_ab = with_strides(operands) if batched else operands
    of_d = matrices(epilogue, batched) if writes_d else of_ab
    return (*restricted(of_d), *(PARTIALS if has_slices else ()))


def mma_tma(
    writes_d: bool,
    epilogue: Sequence[Parameter],
    has_slices: bool,
    several: Several,
    has_stream: bool,
    may_be_early: bool,
    edges: Sequence[str],
) -> tuple[Parameter, ...]:
    """Of the kernels `mma_tma` and `wgmma`, whose operands are tensor maps.

    edges: letters of the operands whose last boxes have maps of their own.
    """
    of_edges = tuple(p for p in EDGES if p.name[0] in edges)
    partials = PARTIALS if has_slices else STREAM if has_stream else ()
    early = EARLY if may_be_early else ()
    if several.number == "groups":
        each = (one for one, letter in zip(COUNTS, "ab", strict=True) if letter in several.strided)
        sizes, result = (*SIZES, *counts(several), *each), with_strides(RESULT, several.strided)
        return (*sizes, *ALPHA, *MAPS, *OFFSETS, *result, *early, *epilogue)
    sizes, result = (
        ((*SIZES, *counts(several), *COUNTS), with_strides(RESULT)) if several else (SIZES, RESULT)
    )
    if not writes_d:
        return (*sizes, *MAPS[:2], *of_edges, *early, *partials)
    maps = (*MAPS[:2], *of_edges, MAPS[2])
    return (*sizes, *ALPHA, *maps, *result, *early, *epilogue, *partials)


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
