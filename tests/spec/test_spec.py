"""Specifications: validation, names, the JSON line, derived numbers."""

import copy
import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from gen.errors import GenError, SpecError, UsageError
from gen.kernels.launches import Launch
from gen.kernels.registry import VARIANTS, build, make_spec, retarget, spec_from_json
from gen.kernels.tunables import Flag, Integer, Size, Tunable, Word
from gen.spec.arch import MAX_GRID_YZ, SHARED_KIB, compute_capability
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.names import MAX_SYMBOL, portable_symbol
from gen.spec.problem import ALL_LAYOUTS, GemmProblem, GemmShape, parse_layout, parse_shape
from tests.support.slow import slow
from tests.support.small import takes


def values(tunable: Tunable, dtypes: DTypes) -> st.SearchStrategy[Any]:
    """Values of a tunable, most of which fit together."""
    if tunable.name == "promote":  # whole steps along K
        return st.sampled_from([0, 128, 256, None] if dtypes.input.is_fp8 else [0, None])
    if isinstance(tunable, Flag):
        return st.booleans()
    if isinstance(tunable, Integer):
        most = 4 if tunable.name in ("stages", "split_k") else 4096
        return st.integers(tunable.low, min(tunable.high, most)) | st.none()
    if isinstance(tunable, Word):
        return st.sampled_from(tunable.words) | st.none()
    assert isinstance(tunable, Size)
    if tunable.name == "thread_tile":
        return st.sampled_from(["8x8", "8x4", "4x4", "4x1", "16x1", None])
    if tunable.form == "MxN":
        return st.sampled_from(["64x32", "32x32", "32x64", "16x64", "64x64", None])
    lengths = st.sampled_from([64 // dtypes.input.size, 128 // dtypes.input.size])
    side = st.sampled_from([64, 128, 192, 256, 320])  # 256 is the most that TMA takes at once
    return st.tuples(side, side, lengths).map(lambda sizes: "x".join(map(str, sizes)))


@st.composite
def specs(draw: st.DrawFn, variants: tuple[str, ...] = tuple(VARIANTS)) -> KernelSpec:
    """Any specification that can be built."""
    variant = VARIANTS[draw(st.sampled_from(variants))]
    dtype = draw(st.sampled_from(variant.dtypes))
    drawn = {t.name: draw(values(t, DTYPES[dtype])) for t in variant.tunables}
    if "tile" in drawn:  # the threads of a block share out the rows of a tile
        tile = drawn["tile"] or 32
        rows = st.sampled_from([r for r in range(1, 33) if tile % r == 0])
        drawn["threads"] = draw(rows.map(lambda r: tile * r) | st.none())
    layout = draw(st.sampled_from(ALL_LAYOUTS))
    archs = [a for a in ("sm_75", "sm_80", "sm_90", "sm_90a") if variant.runs_on(int(a[3:5]))]
    arch, name = draw(st.sampled_from(archs)), draw(st.none() | st.just("my_gemm"))
    given = {key: value for key, value in drawn.items() if value is not None}
    try:
        asked = {"dtype": dtype, "arch": arch, **given}
        return build(variant, parse_layout(layout), asked, name)
    except SpecError:
        layout = layout if takes(variant.name, layout) else "rrr"
        return make_spec(variant.name, dtype=dtype, layout=layout)


@given(specs())
def test_json_line_gives_the_same_specification(spec: KernelSpec) -> None:
    assert spec_from_json(spec.to_json()) == spec


@given(specs())
def test_equal_specifications_are_one_key(spec: KernelSpec) -> None:
    again = (spec_from_json(spec.to_json()), pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec))
    assert {spec, *again} == {spec}
    assert all(other.row is spec.row for other in again)


@slow
@given(specs(), specs())
def test_different_specifications_have_different_names(a: KernelSpec, b: KernelSpec) -> None:
    def choice(spec: KernelSpec, *without: str) -> dict[str, object]:
        fields = json.loads(spec.to_json()).items()
        return {k: v for k, v in fields if k not in ("name", *without)}

    assert (a.full_name == b.full_name) == (choice(a) == choice(b))
    assert (portable_symbol(a) == portable_symbol(b)) == (choice(a, "arch") == choice(b, "arch"))
    assert (a == b) == (hash(a) == hash(b))


def from_name(name: str) -> KernelSpec:
    """The specification that has this name by default."""

    def pattern(tunable: Tunable) -> str:
        if isinstance(tunable, Flag):
            return tunable.name
        if isinstance(tunable, Word):
            return f"{tunable.tag}(?:{'|'.join(tunable.words)})"
        return rf"{tunable.tag or tunable.name}(?:[0-9x]+|auto)"

    for row in VARIANTS.values():
        tags = "".join(rf"(?:_(?P<{t.name}>{pattern(t)}))?" for t in row.tunables)
        own = rf"gemm_{row.name}_(?P<dtype>{'|'.join(row.dtypes)})_(?P<layout>[rc]{{3}})"
        if found := re.fullmatch(rf"{own}{tags}(?:_(?P<arch>sm\d+a?))?", name):
            fields = {k: v for k, v in found.groupdict().items() if v}
            for t in row.tunables:
                if t.name in fields and isinstance(t, Flag):
                    fields[t.name] = "true"
                elif t.name in fields:
                    tag = t.tag if isinstance(t, Word) else t.tag or t.name
                    fields[t.name] = fields[t.name].removeprefix(tag)
            if "arch" in fields:
                fields["arch"] = fields["arch"].replace("sm", "sm_")
            return make_spec(row.name, **fields)
    raise AssertionError(name)


@given(specs())
def test_a_name_says_everything(spec: KernelSpec) -> None:
    assert from_name(spec.full_name) == replace(spec, symbol=None)
    assert re.fullmatch("[a-z][a-z0-9_]*", spec.full_name)


SCALAR = tuple(name for name, row in VARIANTS.items() if not row.planner)


def launch(spec: KernelSpec, m: int, n: int, k: int) -> Launch:
    """The launch of the kernel itself on packed operands."""
    return spec.plan(GemmProblem.packed(GemmShape(m, n, k), spec.layouts)).launch(spec.name)


@given(specs(SCALAR), st.integers(1, 10**7), st.integers(1, 10**7))
def test_the_grid_covers_d_and_fits_the_gpu(spec: KernelSpec, m: int, n: int) -> None:
    if not spec.geometry.strides:  # a block for each tile: more than 2^31 of them are refused
        m, n = min(m, 10**6), min(n, 10**6)
    (x, y, z), tile = launch(spec, m, n, 1).grid, spec.threadblock
    if not spec.geometry.strides:
        rows, columns = (n, m) if spec.swapped else (m, n)
        assert x == -(-rows // tile.m) * -(-columns // tile.n)
    assert 1 <= x < 2**31
    assert 1 <= y <= MAX_GRID_YZ
    assert z == 1
    if spec.variant in ("naive", "tiles", "rec_tiles"):  # a grid of tiles
        assert x * tile.n >= n > (x - 1) * tile.n
        assert y == min(-(-m // tile.m), MAX_GRID_YZ)


def test_an_odd_number_of_column_tiles_is_covered() -> None:
    """The source's host code halves the number of tiles, which loses the last of an odd number."""
    spec = make_spec("rec_tiles", tile=16, coarsen=2)
    assert launch(spec, 16, 3 * 16, 16).grid == (2, 1, 1)


@pytest.mark.parametrize("variant", SCALAR)
def test_sizes_that_divide_evenly_get_no_block_too_many(variant: str) -> None:
    """The source's `k / blocksize + 1` launches a row and a column of blocks with nothing to do."""
    spec = make_spec(variant)
    tile = spec.threadblock
    x, y, _ = launch(spec, 3 * tile.m, 3 * tile.n, tile.k).grid
    assert x * y in (9, 3)  # tiles of D, or rows of D


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "rec_tile"}, "unknown variant 'rec_tile'; did you mean rec_tiles?"),
        ({"variant": "naive", "dtype": "fp32"}, "unknown dtype 'fp32'; did you mean f32?"),
        ({"variant": "naive", "layout": "rr"}, "layout 'rr' is not three letters"),
        ({"variant": "naive", "arch": "sm_70"}, "unknown architecture 'sm_70'; use one of sm_75"),
        ({"variant": "naive", "arch": "sm_80a"}, "unknown architecture 'sm_80a'; use one of sm_75"),
        (
            {"variant": "tiles", "tile": 0},
            "tile=0 is out of range 1 to 32 (width of the square tiles); use tile=1",
        ),
        (
            {"variant": "tiles", "tile": 33},
            "tile=33 is out of range 1 to 32 (width of the square tiles); use tile=32",
        ),
        (
            {"variant": "naive", "threads": 1025},
            "threads=1025 is out of range 1 to 1024 (threads per block); use threads=1024",
        ),
        ({"variant": "naive", "tile": 8}, "naive has no tunable 'tile'; it has threads"),
        ({"variant": "tiles", "tile": 32, "threads": 100}, "threads=100 is not tile=32 times a"),
        (
            {"variant": "rec_tiles", "coarsen": 9},
            "coarsen=9 is out of range 1 to 8 (neighbouring tiles of B); use coarsen=8",
        ),
        (
            {"variant": "shared_row", "dtype": "f64", "chunk": 6145},
            "shared_row wants 49160 bytes of shared memory, more than the 49152",
        ),
        (
            {"variant": "rec_tiles", "dtype": "f64", "coarsen": 8, "arch": "sm_75"},
            "rec_tiles wants 73728 bytes of shared memory, more than the 65536 that a block may",
        ),
        ({"variant": "mma", "dtype": "f32"}, "mma has no dtype f32, but f16, f16_f16, f16_f32,"),
        ({"variant": "mma_tma", "arch": "sm_80"}, "mma_tma needs sm_90a, not sm_80: its instruct"),
        ({"variant": "mma_tma", "arch": "sm_100"}, "mma_tma needs sm_90a, not sm_100"),
        (
            {"variant": "wgmma", "arch": "sm_80"},
            "wgmma needs sm_90a, not sm_80: its instructions are those of compute capability 9.0 "
            "alone; use arch=sm_90a",
        ),
        ({"variant": "wgmma", "dtype": "f32"}, "wgmma has no dtype f32, but f16, f16_f16, f16_f32"),
        (
            {"variant": "wgmma", "threadblock": "100x64x64"},
            "threadblock.m=100 is not a multiple of 64; use threadblock=128x64x64",
        ),
        (
            {"variant": "wgmma", "threadblock": "64x300x64"},
            "threadblock.n=300 is not a multiple of 16; use threadblock=64x256x64",
        ),
        (
            {"variant": "wgmma", "threadblock": "64x80x64"},  # B: not along K
            "threadblock.n=80 is not a multiple of 64; use threadblock=64x64x64",
        ),
        (
            {"variant": "wgmma", "dtype": "f16_f16", "threadblock": "64x320x64"},
            "threadblock.n=320 is more than the 256 columns of a wgmma; use threadblock=64x256x64",
        ),
        (
            {"variant": "wgmma", "threadblock": "320x64x64"},
            "threadblock.m=320 is more than the 256 rows that a work tile may have; "
            "use threadblock=256x64x64",
        ),
        (
            {"variant": "wgmma", "threadblock": "256x208x64", "layout": "rcr"},
            "threadblock=256x208x64 wants 208 registers of each thread for sums, more than the 192 "
            "that there are; use threadblock=256x192x64",
        ),
        (
            {"variant": "wgmma", "threadblock": "192x208x64", "layout": "rcr"},
            "threadblock=192x208x64 wants 104 registers of each thread for sums, more than the 102 "
            "that there are; use threadblock=192x192x64",
        ),
        (
            {"variant": "wgmma", "cluster": "2x1", "split_k": 2},
            "cluster=2x1 goes with split_k=1, since where work tiles are few, none are left to "
            "share operands; use cluster=1x1 or split_k=1",
        ),
        (
            {"variant": "wgmma", "cluster": "1x1x2", "split_k": 2},
            "cluster=1x1x2 goes with split_k=1: its blocks share the few work tiles that there are "
            "along K; use cluster=1x1 or split_k=1",
        ),
        (
            {"variant": "wgmma", "cluster": "1x1x2", "schedule": "pingpong"},
            "cluster=1x1x2 goes with schedule=cooperative: its blocks share the few work tiles "
            "that there are along K; use cluster=1x1 or schedule=cooperative",
        ),
        (
            {"variant": "wgmma", "cluster": "1x1x2", "dtype": "f16_f16"},
            "cluster=1x1x2 is for one sum of 32 bits an element of D, which those of f16_f16 have "
            "not; use cluster=1x1 or dtype=f16",
        ),
        (
            {"variant": "wgmma", "cluster": "1x1x4", "threadblock": "64x32x64", "layout": "rcr"},
            "threadblock.n=32 is less than 64, of which 4 blocks of a cluster could finish 16 "
            "columns each; use threadblock=64x64x64 or cluster=1x1x2",
        ),
        (
            {"variant": "wgmma", "cluster": "8x1", "threadblock": "128x128x32"},
            "threadblock.k=32 is no multiple of 64, so that 8 blocks of a cluster could copy "
            "equal parts; use threadblock=128x128x64 or cluster=2x4",
        ),
        (
            {"variant": "wgmma", "threadblock": "64x64x16"},
            "threadblock.k=16 is 32 bytes of f16, not 64 or 128; use threadblock=64x64x32",
        ),
        (
            {"variant": "wgmma", "threadblock": "192x256x64"},
            "threadblock=192x256x64 wants 128 registers of each thread for sums, more than the 112 "
            "that there are; use threadblock=192x192x64",
        ),
        (
            {"variant": "wgmma", "schedule": "pingpong", "threadblock": "128x256x64"},
            "threadblock=128x256x64 wants 256 registers of each thread for sums, more than the 192 "
            "that there are; use threadblock=128x192x64 or schedule=cooperative",
        ),
        (
            {"variant": "wgmma", "stream_k": 1, "split_k": 3},
            "split_k=3 goes with stream_k=0, since with stream-K single blocks share the sums of a "
            "whole tile; use split_k=1 or stream_k=0",
        ),
        (
            {"variant": "wgmma", "stream_k": 1, "cluster": "2x1"},
            "cluster=2x1 goes with stream_k=0, since with stream-K single blocks share the sums of "
            "a whole tile; use cluster=1x1 or stream_k=0",
        ),
        (
            {"variant": "wgmma", "dtype": "e4m3", "stream_k": 1, "promote": 256},
            "promote=256 goes with stream_k=0, or as threadblock.k=128 with stream_k=1: steps of a "
            "block begin anywhere, so that each of them is promoted; use promote=128 or stream_k=0",
        ),
        (
            {"variant": "wgmma", "stages": 4, "burst": 4, "threadblock": "64x64x64"},
            "stages=4 are not two bursts of 4 or more; use burst=2 or stages=8",
        ),
        (
            {"variant": "simt", "stream_k": 1, "split_k": 0},
            "split_k=0 goes with stream_k=0, since with stream-K single blocks share the sums of a "
            "whole tile; use split_k=1 or stream_k=0",
        ),
        (
            {"variant": "wgmma", "stages": 9},
            "stages=9 of threadblock=128x256x64 want 447632 bytes of shared memory, more than the "
            "232448 that a block may have on sm_90a; use stages=4 or threadblock=128x256x32",
        ),
        (
            {"variant": "mma", "dtype": "i8", "arch": "sm_75"},
            "tensor cores of sm_75 have no i8; use dtype=f16_f32 or arch=sm_80",
        ),
        (
            {"variant": "mma", "arch": "sm_75", "stages": 3},
            "stages=3 needs cp.async, which sm_75 lacks; use stages=2 or arch=sm_80",
        ),
        (
            {"variant": "mma", "pack": 0, "stages": 3},
            "stages=3 goes with pack=1: chunks that are not aligned pass registers, into 1 or 2 "
            "stages; use stages=2 or pack=1",
        ),
        (
            {"variant": "mma", "pack": 0, "dtype": "tf32"},
            "pack=0 is not for tf32 in layout rrr: what does not run along K has to be transposed "
            "first, as elements of 2 bytes alone have not; use pack=1",
        ),
        (
            {"variant": "mma", "pack": 1, "dtype": "f64", "arch": "sm_90"},
            "pack=1 is not for f64: its elements are copied where they lie; use pack=0",
        ),
        (
            {"variant": "mma", "pack": 0, "threadblock": "128x256x32", "warp": "64x64"},
            "warp=64x64 wants 192 registers of each thread for sums and fragments, more than the "
            "177 that there are; use the default warp and threadblock",
        ),
        (
            {"variant": "mma", "arch": "sm_75", "instruction": "m16n8k16"},
            "instruction=m16n8k16 does not exist for f16 on sm_75; "
            "use instruction=m16n8k8 or arch=sm_80",
        ),
        (
            {"variant": "mma", "dtype": "i8", "instruction": "m16n8k16"},
            "instruction=m16n8k16 does not exist for i8 on sm_80; use instruction=m16n8k32",
        ),
        ({"variant": "mma", "instruction": "m8n8k5"}, "unknown instruction 'm8n8k5'; did you mean"),
        (
            {"variant": "mma", "dtype": "f64", "instruction": "m16n8k4"},
            "instruction=m16n8k4 does not exist for f64 on sm_80; "
            "use instruction=m8n8k4 or arch=sm_90",
        ),
        (
            {"variant": "mma", "dtype": "f64", "arch": "sm_90", "instruction": "m16n8k16"},
            "threadblock.k=16 is not a multiple of 32, two K blocks of m16n8k16; "
            "use instruction=m16n8k4",
        ),
        (
            {"variant": "mma", "dtype": "f64", "arch": "sm_90", "instruction": "m16n8k8"},
            "warp=64x32 wants 224 registers of each thread for sums and fragments, more than the "
            "223 that there are; use instruction=m16n8k4",
        ),
        (
            {"variant": "mma_tma", "dtype": "f64", "threadblock": "128x128x32"},
            "threadblock.k=32 is 256 bytes of f64, not 128; use threadblock=128x128x16",
        ),
        ({"variant": "mma", "threadblock": "128x256"}, "threadblock: '128x256' is not MxNxK, such"),
        ({"variant": "mma", "warp": "64x64x32"}, "warp: '64x64x32' is not MxN, such as 128x64"),
        ({"variant": "mma", "stages": "four"}, "stages: 'four' is not an integer"),
        ({"variant": "mma", "split_k": "some"}, "split_k: 'some' is not an integer or auto"),
        ({"variant": "mma", "epilogue": "lrelu"}, "unknown epilogue 'lrelu'; "),
        ({"variant": "mma", "warp": "24x64"}, "warp.m=24 is not a multiple of 16; use warp=64x64"),
        ({"variant": "mma", "warp": "64x8"}, "warp.n=8 is not a multiple of 16; use warp=64x64"),
        (
            {"variant": "mma", "threadblock": "96x128x32"},
            "threadblock.m=96 is not a multiple of warp.m=64; "
            "use threadblock=128x128x32 or warp=48x64",
        ),
        (
            {"variant": "mma", "threadblock": "64x96x32", "warp": "32x32"},  # B: not along K
            "threadblock.n=96 is not a multiple of 64; use threadblock=64x128x32",
        ),
        (
            {"variant": "mma", "threadblock": "128x128x16"},
            "threadblock.k=16 is 32 bytes of f16, not 64 or 128; use threadblock=128x128x32",
        ),
        (
            {"variant": "mma", "threadblock": "128x128x32", "warp": "16x16"},
            "threadblock=128x128x32 has 64 warps of 16x16, not at most 16; "
            "use warp=32x32 or threadblock=64x64x64",
        ),
        (
            {"variant": "mma_tma", "threadblock": "64x128x64"},
            "threadblock=64x128x64 has 2 warps of 64x64, not 4, 8, 12; "
            "use warp=32x64 or threadblock=128x128x64",
        ),
        (
            {"variant": "mma", "threadblock": "128x256x32", "warp": "128x64"},
            "warp=128x64 keeps 256 registers of sums in each thread, more than 128; use warp=64x64",
        ),
        (  # 16 warps
            {"variant": "mma", "threadblock": "256x256x32"},
            "warp=64x64 wants 192 registers of each thread for sums and fragments, more than the "
            "104 that there are; use threadblock=128x256x32",
        ),
        (
            {"variant": "mma_tma", "threadblock": "256x256x64", "warp": "128x128"},
            "warp=128x128 keeps 512 registers of sums in each thread, more than 128; use the "
            "defaults",
        ),
        (  # 12 consumers, which have 160 registers each
            {"variant": "mma_tma", "threadblock": "192x256x64"},
            "warp=64x64 wants 192 registers of each thread for sums and fragments, more than the "
            "144 that there are; use threadblock=128x256x64",
        ),
        (
            {"variant": "mma", "stages": 7},
            "stages=7 of threadblock=128x256x32 want 172032 bytes of shared memory, more than the "
            "166912 that a block may have on sm_80; use stages=6",
        ),
        (
            {
                "variant": "mma_tma",
                "threadblock": "256x512x64",
                "warp": "128x64",
                "dtype": "f16_f16",
                "stages": 2,
            },
            "threadblock=256x512x64 has 16 warps of 128x64, not 4, 8, 12; "
            "use threadblock=256x256x64",
        ),
        (
            {
                "variant": "mma_tma",
                "threadblock": "64x64x64",
                "warp": "32x32",
                "sliced_k": 2,
                "stages": 2,
            },
            "sliced_k=2 needs a stage more than teams, and 16384 bytes for sums where the stages=2 "
            "have 32768; use stages=3 or sliced_k=1",
        ),
        (
            {"variant": "mma_tma", "sliced_k": 2},
            "threadblock=128x256x64 has 8 warps of 64x64, not 2, 4, 6; use threadblock=128x128x64",
        ),
        (
            {"variant": "mma", "threadblock": "192x64x32", "warp": "96x32", "layout": "crr"},
            "128 threads cannot share out evenly the 768 16-byte chunks of a tile with",
        ),
        (
            {"variant": "mma", "dtype": "i8", "epilogue": "linear_bias_gelu"},
            "epilogue=linear_bias_gelu needs sums in floating point, not i8; "
            "use epilogue=linear_bias_relu",
        ),
        ({"variant": "naive", "name": "2fast"}, "name '2fast' is not a C identifier"),
        (
            {"variant": "naive", "name": "gemm_best12"},
            "name 'gemm_best12' ends as those of kernels inside of a file of gen emit --best do; "
            "use another, such as gemm_best",
        ),
        ({"variant": "naive", "name": "x" * 77}, "name has 77 characters, more than 76"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(GenError) as caught:
        make_spec(**arguments)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("symbol", "reason"),
    [
        ("int", "a keyword of C++"),
        ("co_await", "a keyword of C++"),
        ("std", "reserved by C++"),
        ("typeof", "a keyword of C++"),
        ("main", "reserved by C++"),
        ("__a", "reserved, as all names that begin with _ are"),
        ("_gemm", "reserved, as all names that begin with _ are"),
        ("cudaMalloc", "reserved for CUDA"),
        ("cuLaunchKernel", "reserved for CUDA"),
        ("threadIdx", "reserved for CUDA"),
        ("float4", "reserved for CUDA"),
        ("atomicAdd", "reserved for CUDA"),
        ("printf", "a function of the C library"),
        ("memcpy", "a function of the C library"),
        ("read", "a function of the C library"),
        ("strtok_r", "a function of the C library"),
        ("expf", "a mathematical function of C or CUDA"),
        ("rsqrt", "a mathematical function of C or CUDA"),
        ("sinf64x", "a mathematical function of C or CUDA"),
        ("size_t", "a type of the C library"),
        ("assert", "a macro of the C library"),
        ("M_PI", "a macro of the C library"),
    ],
)
def test_names_that_others_have_are_refused(symbol: str, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        make_spec("naive", name=symbol)
    message = str(caught.value)
    assert message.startswith(f"name '{symbol}' is {reason}; use another, such as gemm_")
    make_spec("naive", name=message.split()[-1])


@pytest.mark.parametrize("symbol", ["q", "cuda_gemm", "custom", "gemmf", "forward", "reader", "A1"])
def test_names_that_only_look_taken_are_free(symbol: str) -> None:
    assert make_spec("naive", name=symbol).name == symbol


# --- the way out


@st.composite
def refused(draw: st.DrawFn, variants: tuple[str, ...]) -> dict[str, Any]:
    """What `make_spec` gets, most of which does not fit together."""
    row = VARIANTS[draw(st.sampled_from(variants))]
    archs = st.sampled_from([*(f"sm_{cc}" for cc in SHARED_KIB), "sm_90a"])
    asked: dict[str, Any] = {
        "variant": row.name,
        "dtype": draw(st.sampled_from([*row.dtypes, None])),
        "layout": draw(st.sampled_from(ALL_LAYOUTS)),
        "arch": draw(st.none() | archs),
    }
    for tunable in draw(st.lists(st.sampled_from(row.tunables), unique=True)):
        asked[tunable.name] = draw(any_value(tunable))
    return asked


def any_value(tunable: Tunable) -> st.SearchStrategy[Any]:
    if isinstance(tunable, Flag):
        return st.booleans()
    if isinstance(tunable, Integer):
        return st.integers(1, 40) | st.integers(tunable.low - 2, tunable.high + 2)
    if isinstance(tunable, Word):
        return st.sampled_from(tunable.words)
    assert isinstance(tunable, Size)
    if tunable.name == "thread_tile":
        return st.sampled_from(["8x8", "8x4", "4x4", "4x1", "16x1", None])
    side = st.sampled_from([16, 32, 48, 64, 96, 128, 192, 256]) | st.integers(0, 600)
    steps = [st.sampled_from([16, 32, 64, 128])] * (tunable.form.count("x") - 1)
    return st.tuples(side, side, *steps).map(lambda sizes: "x".join(map(str, sizes)))


def follow(asked: dict[str, Any], message: str) -> dict[str, Any]:
    """What was asked for, changed as the first hint of a message says."""
    _, _, hint = message.rpartition("; use ")
    tunables = set(VARIANTS[asked["variant"]].tunable_names)
    if "the default" in hint:
        names = re.search("the default ([a-z_ ]+)", hint)
        dropped = set(names[1].split(" and ")) if names else tunables
        asked = {name: value for name, value in asked.items() if name not in dropped}
    if "defaults with" in hint:
        return {**asked, **dict(re.findall(r"(\w+)=(\w+)", hint))}
    if found := re.match(r"(\w+)=(\w+)", hint):
        asked = {**asked, found[1]: found[2]}
    return asked


@pytest.mark.parametrize(
    "variants",
    [
        pytest.param(("mma",), marks=slow),
        ("mma_tma",),
        pytest.param(("wgmma",), marks=slow),
        SCALAR,
    ],
    ids=" ".join,
)
@settings(max_examples=30)
@given(data=st.data())
def test_the_way_out_is_one(variants: tuple[str, ...], data: st.DataObject) -> None:
    asked = data.draw(refused(variants))
    try:
        make_spec(**asked)
    except SpecError as error:
        note(str(error))
        changed = follow(asked, str(error))
        assert changed != asked
        make_spec(**changed)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "mma --dtype bf16_f32 --layout crr --epilogue linear_bias_gelu --warp 32x64 "
            "--split-k 2",
            "warp=64x64 or threadblock=128x128x32",
        ),
        ("mma_tma --warp 32x64 --stages 5", "threadblock=128x192x64"),
        ("mma_tma --layout crr --threadblock 128x256x32 --sliced-k 2", "threadblock=128x128x64"),
        ("mma_tma --threadblock 64x64x64", "warp=32x32 or threadblock=128x128x64"),
        ("mma --layout crr --threadblock 192x64x32 --warp 96x32", "the default warp and threadb"),
        ("mma_tma --threadblock 512x64x64 --warp 0x64", "the defaults"),
        ("mma --arch sm_75 --dtype i8 --threadblock 128x128x128", "arch=sm_80"),
        ("mma --arch sm_75 --dtype i8 --threadblock 1x1x1", "dtype=f16_f32 or arch=sm_80 and the "),
        ("mma_tma --arch sm_80 --dtype f32", "the defaults with dtype=f16 and arch=sm_90a"),
        ("mma_tma --arch sm_90", "arch=sm_90a"),
        ("wgmma --layout ccc --threadblock 128x512x32", "threadblock=128x256x32"),
        ("wgmma --threadblock 256x192x64 --stages 4", "stages=3 or threadblock=192x192x64"),
        ("tiles --tile 33 --threads 64", "tile=32"),
        ("tiles --threads 100", "threads=128 or tile=20"),
        ("shared_row --dtype f64 --chunk 8000", "chunk=6144"),
        ("naive --dtype i8 --epilogue linear_bias_gelu", "epilogue=linear_bias_relu"),
        ("mma --split-k -1", "split_k=auto"),
    ],
)
def test_the_way_out_is_the_nearest(line: str, hint: str) -> None:
    variant, *words = line.split()
    keys = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    asked = {"variant": variant, **dict(zip(keys, words[1::2], strict=True))}
    with pytest.raises(SpecError) as caught:
        make_spec(**asked)
    message = str(caught.value)
    assert message.rpartition("; use ")[2].startswith(hint)
    make_spec(**follow(asked, message))


def test_one_warp_is_no_warps() -> None:
    with pytest.raises(SpecError, match="has 1 warp of 64x64, not"):
        make_spec("mma_tma", threadblock="64x64x64")


@pytest.mark.parametrize("text", ["", "x", "4x", "4x4", "4x4x4x4", "-1x2x3", "a", "1.5"])
def test_malformed_shapes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not MxNxK"):
        parse_shape(text)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_shapes_are_read_as_they_are_written(m: int, n: int, k: int) -> None:
    assert parse_shape(str(GemmShape(m, n, k))) == GemmShape(m, n, k)
    assert parse_shape(str(m)) == GemmShape(m, m, m)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"variant": 3}', '{"variant": "naive", "x": 1}'])
def test_a_broken_json_line_is_refused(text: str) -> None:
    with pytest.raises((UsageError, SpecError)):
        spec_from_json(text)


@pytest.mark.parametrize(
    ("variant", "dtype", "arch", "chosen"),
    [
        ("mma", "f16", "sm_80", "1 128x256x32 64x64 m16n8k16 4"),
        ("mma", "f16_f16", "sm_90a", "1 128x256x32 64x64 m16n8k16 4"),
        ("mma", "f16", "sm_75", "1 128x128x32 64x64 m16n8k8 2"),
        ("mma", "tf32", "sm_80", "1 128x256x16 64x64 m16n8k8 4"),
        ("mma", "i8", "sm_86", "1 128x256x64 64x64 m16n8k32 4"),
        ("mma_tma", "bf16", "sm_90a", "128x256x64 64x64 m16n8k16 3"),
        ("mma_tma", "f16_f16", "sm_90a", "256x256x64 128x64 m16n8k16 3"),
        ("mma_tma", "i8", "sm_90a", "128x256x128 64x64 m16n8k32 3"),
        ("mma_tma", "f64", "sm_90a", "128x128x16 32x64 m16n8k4 3"),
        ("mma", "e4m3", "sm_89", "1 128x256x64 64x64 m16n8k32 4"),
        ("mma", "e5m2_f32", "sm_90", "1 128x128x64 64x32 m16n8k32 4"),
        ("mma_tma", "e5m2", "sm_90a", "96x128x128 48x32 m16n8k32 3"),
        ("wgmma", "bf16", "sm_90a", "cooperative 128x256x64 3 1x1 0 0"),
        ("wgmma", "tf32", "sm_90a", "cooperative 128x256x32 3 1x1 0 0"),
        ("wgmma", "i8", "sm_90a", "cooperative 128x256x128 3 1x1 0 0"),
        ("wgmma", "e4m3_f32", "sm_90a", "cooperative 128x128x128 4 1x1 128 0"),
    ],
)
def test_defaults_on_tensor_cores(variant: str, dtype: str, arch: str, chosen: str) -> None:
    spec = make_spec(variant, dtype=dtype, arch=arch)
    assert " ".join(map(str, spec.tunables.values())).startswith(f"{chosen} 1 ")
    assert spec.warp
    assert spec.warp.k == spec.threadblock.k
    assert (spec.split_k, spec.epilogue, spec.has_bias) == (1, "linear", False)


@pytest.mark.parametrize("threadblock", ["64x64x64", "128x256x64", "256x64x64", "256x128x64"])
def test_a_warp_of_wgmma_stages_16_rows(threadblock: str) -> None:
    values = make_spec("wgmma", dtype="f16", threadblock=threadblock).geometry.values
    assert (values["staged_rows"], values["staged_columns"]) == (16, 64)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("tiles_f32_rrr", {}),
        ("tiles_f32_rrr", {"tile": 32, "threads": 1024}),
        ("tiles_f32_rrr_t256", {"threads": 256}),
        ("tiles_f64_rcr_tile16", {"tile": 16, "dtype": "f64", "layout": "rcr"}),
        ("tiles_f32_rrr_tile16", {"tile": 16, "threads": 256}),
        ("tiles_f32_rrr_tile16_t64_sm90", {"tile": 16, "threads": 64, "arch": "sm_90"}),
        ("rec_tiles_f32_rrr_coarsen4", {"coarsen": 4}),
        ("shared_row_f32_rrr_t64_chunk512_grid9", {"threads": 64, "chunk": 512, "grid": 9}),
        ("mma_f16_rrr", {"arch": "sm_80"}),
        ("mma_f16_rrr_sm75", {"arch": "sm_75"}),
        ("mma_f16_rrr_m16n8k8", {"instruction": "m16n8k8"}),
        ("mma_f16_f16_rrr_sm90a", {"dtype": "f16_f16", "arch": "sm_90a"}),
        ("mma_tma_f16_rrr", {}),
        ("mma_tma_f16_rrr_sk4", {"split_k": 4}),
        ("mma_tma_f16_rrr_linear_bias_relu", {"epilogue": "linear_bias_relu"}),
        (
            "mma_tma_f16_rcr_tb64x64x64_w32x32_s8",
            {"layout": "rcr", "threadblock": "64x64x64", "warp": "32x32", "stages": 8},
        ),
        ("wgmma_f16_rrr", {}),
        ("wgmma_f16_rrr_stream1", {"stream_k": 1}),
        ("simt_f32_rrr_stream1", {"stream_k": 1}),
        (
            "simt_i32_rrr_tb128x64x16_tk2_stream1",
            {"dtype": "i32", "threadblock": "128x64x16", "sliced_k": 2, "stream_k": 1},
        ),
        ("wgmma_f16_rrr_pingpong", {"schedule": "pingpong", "threadblock": "128x192x64"}),
        ("wgmma_f16_rcr_tb64x80x64_s5", {"layout": "rcr", "threadblock": "64x80x64", "stages": 5}),
        (
            "mma_tma_f16_rrr_tb128x128x64_s4_tk2",
            {"sliced_k": 2, "threadblock": "128x128x64", "stages": 4},
        ),
    ],
)
def test_names_say_what_is_not_as_usual(name: str, arguments: dict[str, Any]) -> None:
    variant = max((v for v in VARIANTS if name.startswith(f"{v}_")), key=len)
    assert make_spec(variant, **arguments).full_name == f"gemm_{name}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_names_of_defaults_are_short(variant: str) -> None:
    for dtype in VARIANTS[variant].dtypes:
        for layout in ALL_LAYOUTS:
            if not takes(variant, layout):
                continue
            spec = make_spec(variant, dtype=dtype, layout=layout)
            assert spec.full_name == f"gemm_{variant}_{dtype}_{layout}"
            assert len(spec.full_name) <= 40 < MAX_SYMBOL


def test_the_name_for_several_architectures_has_none() -> None:
    old, new = make_spec("mma", arch="sm_75"), make_spec("mma", arch="sm_90")
    assert portable_symbol(new) == portable_symbol(make_spec("mma")) == "gemm_mma_f16_rrr"
    assert portable_symbol(old) == "gemm_mma_f16_rrr_tb128x128x32_m16n8k8_s2"
    assert portable_symbol(retarget(old, "sm_80")) == portable_symbol(old)


def test_values_are_kept_as_they_are_compared() -> None:
    spec = make_spec("mma", split_k="auto", epilogue="linear_bias_relu", swizzle=4, layout="rcr",
                     threadblock="128x256x32", warp="64x64", instruction="m16n8k8")  # fmt: skip
    assert spec.full_name == "gemm_mma_f16_rcr_m16n8k8_skauto_linear_bias_relu_g4"
    assert (spec.split_k, spec.has_bias, spec.instruction) == (0, True, (16, 8, 8))
    assert "--split-k auto --epilogue linear_bias_relu --swizzle 4" in spec.command
    assert make_spec("mma", split_k="3") == make_spec("mma", split_k=3)
    assert make_spec("mma", threadblock=" 0128x256X32 ") == make_spec("mma")


def test_leading_dimensions_follow_the_layout() -> None:
    problem = GemmProblem.packed(GemmShape(2, 3, 5), parse_layout("rcc"), padding=10)
    assert (problem.lda, problem.ldb, problem.ldc, problem.ldd) == (15, 17, 12, 14)
    units = GemmProblem.packed(GemmShape(2, 3, 5), parse_layout("rcc"), padding=10, multiple=16)
    assert (units.lda, units.ldb, units.ldc, units.ldd) == (16, 32, 16, 16)


def test_architectures() -> None:
    assert compute_capability("sm_90a") == 90
    assert compute_capability("sm_120") == 120


def test_dtypes_accumulate_as_documented() -> None:
    accumulators = {name: d.accumulator.name for name, d in DTYPES.items()}
    assert accumulators == {
        "f32": "f32", "f64": "f64", "i32": "i32", "f16": "f32", "f16_f16": "f16", "f16_f32": "f32",
        "bf16": "f32", "bf16_f32": "f32", "tf32": "f32", "i8": "i32",
        "e4m3": "f32", "e4m3_f16": "f32", "e4m3_f32": "f32",
        "e5m2": "f32", "e5m2_f16": "f32", "e5m2_f32": "f32", "f32_6xbf16": "f32",
    }  # fmt: skip
    assert [DTYPES[name].output.name for name in ("e4m3", "e5m2_f16")] == ["bf16", "f16"]
    assert {name for name, d in DTYPES.items() if d.scalar != d.accumulator} == {"f16_f16"}


def test_specification_and_rendering_need_neither_numpy_nor_cuda() -> None:
    code = (
        "import sys; from gen.kernels.registry import make_spec;"
        "from gen.source.render import render; render(make_spec('tiles'));"
        "sys.exit(sorted({'numpy', 'cuda'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
