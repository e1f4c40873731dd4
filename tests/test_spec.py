"""Specifications: validation, names, the JSON line, derived numbers."""

import json
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gen.errors import GenError, SpecError, UsageError
from gen.registry import (
    MAX_GRID_YZ,
    VARIANTS,
    geometry,
    launch_config,
    make_spec,
    spec_from_json,
)
from gen.spec import (
    ALL_LAYOUTS,
    DTYPES,
    GemmProblem,
    GemmShape,
    KernelSpec,
    compute_capability,
    parse_layout,
    parse_shape,
)


@st.composite
def specs(draw: st.DrawFn, variants: tuple[str, ...] = tuple(VARIANTS)) -> KernelSpec:
    """Any specification that can be built."""
    variant = VARIANTS[draw(st.sampled_from(variants))]
    tunables = {t.name: draw(st.integers(t.low, min(t.high, 4096))) for t in variant.tunables}
    if "tile" in tunables:  # the threads of a block share out the rows of a tile
        tile = tunables["tile"]
        tunables["threads"] = tile * draw(
            st.sampled_from([r for r in range(1, 33) if tile % r == 0])
        )
    try:
        return make_spec(
            variant.name,
            dtype=draw(st.sampled_from(variant.dtypes)),
            layout=draw(st.sampled_from(ALL_LAYOUTS)),
            arch=draw(st.sampled_from(["sm_75", "sm_80", "sm_90", "sm_90a"])),
            name=draw(st.none() | st.just("my_gemm")),
            **tunables,
        )
    except SpecError:
        assume(False)
        raise


@given(specs())
def test_json_line_gives_the_same_specification(spec: KernelSpec) -> None:
    assert spec_from_json(spec.to_json()) == spec


@given(specs(), specs())
def test_different_specifications_have_different_names(a: KernelSpec, b: KernelSpec) -> None:
    def choice(spec: KernelSpec) -> dict[str, object]:
        return {k: v for k, v in json.loads(spec.to_json()).items() if k != "name"}

    assert (a.full_name == b.full_name) == (choice(a) == choice(b))


@given(specs(), st.integers(1, 10**7), st.integers(1, 10**7))
def test_the_grid_covers_d_and_fits_the_gpu(spec: KernelSpec, m: int, n: int) -> None:
    config = launch_config(spec, GemmShape(m, n, 1))
    assert config is not None
    (x, y, z), tile = config.grid, geometry(spec).threadblock
    assert 1 <= x < 2**31
    assert 1 <= y <= MAX_GRID_YZ
    assert z == 1
    if spec.variant in ("naive", "tiles", "rec_tiles"):  # a grid of tiles
        assert x * tile.n >= n > (x - 1) * tile.n
        assert y == min(-(-m // tile.m), MAX_GRID_YZ)


def test_an_odd_number_of_column_tiles_is_covered() -> None:
    """The source's host code halves the number of tiles, which loses the last of an odd number."""
    spec = make_spec("rec_tiles", tile=16, coarsen=2)
    config = launch_config(spec, GemmShape(16, 3 * 16, 16))
    assert config is not None
    assert config.grid == (2, 1, 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sizes_that_divide_evenly_get_no_block_too_many(variant: str) -> None:
    """The source's `k / blocksize + 1` launches a row and a column of blocks with nothing to do."""
    spec = make_spec(variant)
    tile = spec.threadblock
    config = launch_config(spec, GemmShape(3 * tile.m, 3 * tile.n, tile.k))
    assert config is not None
    assert config.grid[0] * config.grid[1] in (9, 3)  # tiles of D, or rows of D


def test_nothing_is_launched_for_an_empty_result() -> None:
    spec = make_spec("naive")
    assert launch_config(spec, GemmShape(0, 5, 5)) is None
    assert launch_config(spec, GemmShape(5, 0, 5)) is None
    assert launch_config(spec, GemmShape(5, 5, 0)) is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "rec_tile"}, "unknown variant 'rec_tile'; did you mean rec_tiles?"),
        ({"variant": "naive", "dtype": "fp32"}, "unknown dtype 'fp32'; did you mean f32?"),
        ({"variant": "naive", "layout": "rr"}, "layout 'rr' is not three letters"),
        ({"variant": "naive", "arch": "sm_70"}, "unknown architecture 'sm_70'; use one of sm_75"),
        ({"variant": "naive", "arch": "sm_80a"}, "unknown architecture 'sm_80a'; use one of sm_75"),
        ({"variant": "tiles", "tile": 0}, "tile=0 is out of range; use 1 to 32"),
        ({"variant": "tiles", "tile": 33}, "tile=33 is out of range; use 1 to 32"),
        ({"variant": "naive", "threads": 1025}, "threads=1025 is out of range; use 1 to 1024"),
        ({"variant": "naive", "tile": 8}, "naive has no tunable 'tile'; it has threads"),
        ({"variant": "tiles", "tile": 32, "threads": 100}, "threads=100 is not tile=32 times a"),
        ({"variant": "rec_tiles", "coarsen": 9}, "coarsen=9 is out of range; use 1 to 8"),
        (
            {"variant": "shared_row", "dtype": "f64", "chunk": 6145},
            "shared_row wants 49160 bytes of shared memory, more than the 49152",
        ),
        (
            {"variant": "rec_tiles", "dtype": "f64", "coarsen": 8, "arch": "sm_75"},
            "rec_tiles wants 73728 bytes of shared memory, more than the 65536 that a block may",
        ),
        ({"variant": "naive", "name": "2fast"}, "name '2fast' is not a C identifier"),
        ({"variant": "naive", "name": "x" * 77}, "name has 77 characters, more than 76"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(GenError) as caught:
        make_spec(**arguments)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2


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


def test_leading_dimensions_follow_the_layout() -> None:
    problem = GemmProblem.packed(GemmShape(2, 3, 5), parse_layout("rcc"), padding=10)
    assert (problem.lda, problem.ldb, problem.ldc, problem.ldd) == (15, 15, 12, 14)


def test_architectures() -> None:
    assert compute_capability("sm_90a") == 90
    assert compute_capability("sm_120") == 120


def test_dtypes_accumulate_as_documented() -> None:
    accumulators = {name: d.accumulator.name for name, d in DTYPES.items()}
    assert accumulators == {
        "f32": "f32", "f64": "f64", "i32": "i32", "f16": "f32", "bf16": "f32", "i8": "i32",
    }  # fmt: skip


def test_specification_and_rendering_need_neither_numpy_nor_cuda() -> None:
    code = (
        "import sys, gen.render, gen.registry as r; gen.render.render(r.make_spec('tiles'));"
        "sys.exit(sorted({'numpy', 'cuda'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
