"""Register tiles: many multiply-adds at once give what each of them gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.emulator import Emulator, parse_ptx
from gen.emulator.isa import tiles as computed
from gen.emulator.isa.ops import Value
from gen.emulator.ptx.module import Instruction, PtxKernel
from gen.emulator.translate.blocks import build_blocks
from gen.emulator.translate.tiles import Tile, gathered

SOURCE = """
template <class T> __device__ void run(const T* x, T* y, int n, int uniform) {{
  T sums[4][4] = {{}}, left[4], right[4];
  int row = threadIdx.x / 8 * 4, column = uniform ? 0 : threadIdx.x % 8 * 4;
  for (int k = 0; k < n; k++) {{
    for (int i = 0; i < 4; i++) left[i] = x[(row + i) % 32 + 32 * k];
    for (int j = 0; j < 4; j++) right[j] = x[(column + j) % 32 + 32 * k];
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) sums[i][j] += left[i] * right[j];
  }}
  for (int i = 0; i < 16; i++)
    y[(blockIdx.x * blockDim.x + threadIdx.x) * 16 + i] = sums[i / 4][i % 4];
}}
extern "C" __global__ void tile(const {type}* x, {type}* y, int n, int uniform) {{
  run(x, y, n, uniform);
}}
"""
TYPES = {"float": np.float32, "double": np.float64, "int": np.int32}


def compiled(kind: str) -> bytes:
    return compile_cuda(SOURCE.format(type=kind), name="t.cu", arch="sm_80", format="ptx").code


def kernel(kind: str) -> PtxKernel:
    return parse_ptx(compiled(kind).decode()).kernels["tile"]


def steps_of(lines: str) -> list[Instruction | Tile]:
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
  .reg .f32 %f<99>;
  .reg .b64 %rd<9>;
  {lines}
  ret;
}}"""
    (one,) = parse_ptx(text).kernels.values()
    (block,) = build_blocks(one)
    return gathered(block.body, one.registers, block.live_out, {"%f98"})


def adds(results: int, sums: int, but: str = "", order: int = 1) -> str:
    """Multiply-adds of %f1 to %f4 and %f5 to %f8; every other row in another order."""
    lines = []
    for i, j in itertools.product(range(4), range(4)):
        at = j if i % 2 == 0 else j * order % 4
        number = 4 * i + at
        lines.append(f"fma.rn.f32 %f{results + number}, %f{1 + i}, %f{5 + at}, %f{sums + number};")
    return "\n".join([*lines[:7], but, *lines[7:]])


@pytest.mark.parametrize("kind", TYPES)
def test_inner_loops_are_tiles(kind: str) -> None:
    one = kernel(kind)
    steps = [
        step
        for block in build_blocks(one)
        for step in gathered(block.body, one.registers, block.live_out, ())
        if isinstance(step, Tile)
    ]
    assert steps
    assert {(len(step.column), len(step.row)) for step in steps} == {(4, 4)}


@pytest.mark.parametrize("kind", [*TYPES, "float, ftz"])
@pytest.mark.parametrize(("threads", "blocks"), [(64, 3), (32, 1), (1024, 4), (8, 2)])
@pytest.mark.parametrize("uniform", [0, 1])
def test_all_bits_are_those_of_single_multiply_adds(
    kind: str, threads: int, blocks: int, uniform: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(threads)
    x = draw.standard_normal((5, 32)) * 2.0 ** draw.integers(-70, 60, (5, 32))
    if kind == "int":
        x = draw.integers(-(2**31), 2**31, (5, 32))
    elif uniform:
        x[3, :3], x[2, 1] = (np.inf, -np.inf, np.nan), -0.0

    kind, _, flush = kind.partition(", ")
    ptx = compiled(kind).decode()
    ptx = ptx.replace("fma.rn.f32", f"fma.rn.{flush}.f32") if flush else ptx

    def run() -> bytes:
        emulator = Emulator()
        given = emulator.alloc(x.astype(TYPES[kind]), "x")
        got = emulator.alloc(np.zeros(blocks * threads * 16, TYPES[kind]), "y")
        args = [given, got, np.int32(5), np.int32(uniform)]
        assert not emulator.launch(ptx, "tile", (blocks, 1, 1), (threads, 1, 1), args).findings
        return emulator.read(got).tobytes()

    together = run()
    monkeypatch.setattr(computed, "_FEW", 0)
    assert run() == together


def test_a_row_may_run_backwards() -> None:
    (tile,) = steps_of(adds(20, 40, order=3))
    assert isinstance(tile, Tile)
    assert tile.targets == [f"%f{20 + i}" for i in range(16)]


def test_tiles_that_follow_each_other_hand_on_their_sums() -> None:
    first, second = steps_of(adds(20, 40) + adds(60, 20))
    assert isinstance(first, Tile)
    assert isinstance(second, Tile)
    assert (first.continues, first.continued) == (False, True)
    assert (second.continues, second.continued) == (True, False)


@pytest.mark.parametrize("use", ["mov.f32 %f90, %f25;", "mov.f32 %f25, %f90;"])
def test_sums_that_others_touch_are_not_handed_on(use: str) -> None:
    steps = steps_of(adds(20, 40) + use + adds(60, 20))
    assert [step.continued for step in steps if isinstance(step, Tile)] == [False, False]


def test_tiles_stand_behind_loads_in_between() -> None:
    load, tile = steps_of(adds(20, 40, "ld.shared.f32 %f90, [%rd1];"))
    assert isinstance(load, Instruction)
    assert isinstance(tile, Tile)


@pytest.mark.parametrize(
    "between",
    ["mov.f32 %f90, %f20;", "mov.f32 %f1, %f90;", "mov.f32 %f40, %f90;", "mov.f32 %f20, %f90;"],
)
def test_nothing_moves_past_what_it_depends_on(between: str) -> None:
    steps = steps_of(adds(20, 40, between))
    assert not any(isinstance(step, Tile) for step in steps)
    assert [step.name for step in steps if isinstance(step, Instruction)].index("mov.f32") == 7


def test_registers_whose_accesses_count_are_in_no_tile() -> None:
    *alone, tile = steps_of(adds(20, 40).replace("%f3,", "%f98,"))
    assert len(alone) == 4
    assert isinstance(tile, Tile)
    assert tile.column == ["%f1", "%f2", "%f4"]


@pytest.mark.parametrize("threads", [32, 4096])
@pytest.mark.parametrize("factor", [4096, -3, -0.0, 4097, 0.5, np.inf, np.nan])
def test_bits_do_not_depend_on_whether_factors_are_small_integers(
    threads: int, factor: float
) -> None:
    draw = np.random.default_rng(0)
    column, row = (
        [x.astype(np.float32) for x in draw.integers(-4096, 4097, (4, 1, threads))] for _ in "ab"
    )
    column[2][0, 5] = factor
    scale = 2.0 ** draw.integers(-30, 30, (16, 1, threads))  # most sums are rounded
    sums = list((draw.standard_normal((16, 1, threads)) * scale).astype(np.float32))
    sums[3][0, :4] = -0.0, np.inf, np.nan, 1e-45

    def single(a: Value, b: Value, c: Value) -> Value:
        return (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)

    pairs = itertools.product(column, row)
    with np.errstate(invalid="ignore"):
        want = [single(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]
        got = computed.products(computed.Rule(single, True), column, row, sums)
    for one, other in zip(got, want, strict=True):
        assert one.tobytes() == other.tobytes()
