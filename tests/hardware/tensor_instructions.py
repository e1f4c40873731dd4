"""Single tensor-core instructions on drawn registers, for `compare_results`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gen.compile import nvrtc
from gen.device.runner import Runner
from gen.emulator.isa.instructions import TABLE
from gen.emulator.warp.mma import shape_of
from gen.emulator.warp.wmma import fragment, size_of

ARCH = "sm_90a"
# Bits of an element, and of its fraction.
FLOATS = {
    "f16": (16, 10), "bf16": (16, 7), "tf32": (32, 23), "f32": (32, 23), "e4m3": (8, 3),
    "e5m2": (8, 2),
}  # fmt: skip
# Registers in C++, and the letter that asm has for them.
HELD = {
    "b32": ("unsigned", "r"), "s32": ("int", "r"), "f32": ("float", "f"), "f64": ("double", "d"),
}  # fmt: skip
WARPS = 4  # of a block


@dataclass(frozen=True)
class Instruction:
    """A spelling of `mma.sync` or `wmma.mma`."""

    name: str

    @functools.cached_property
    def kinds(self) -> tuple[str, str, str, str]:
        """The types of the elements of D, A, B and C."""
        if self.is_wmma:
            after = self.name.partition(f"k{size_of(self.name)[2]}")[2]
            found = re.findall(r"\.([a-z]+\d+)(?=\.|$)", after)
            d, a, b, c = found if len(found) == 4 else (found[0], "f16", "f16", found[1])
            return d, a, b, c
        shape = shape_of(self.name)
        return shape.d, shape.a, shape.b, shape.d

    @property
    def is_wmma(self) -> bool:
        """Whether it is one of wmma's."""
        return self.name.startswith("wmma")

    @property
    def registers(self) -> list[int]:
        """Of D, A, B and C in each lane."""
        if self.is_wmma:
            size = size_of(self.name)
            kinds = zip("dabc", self.kinds, strict=True)
            return [len(fragment(which, *size, kind).starts) for which, kind in kinds]
        shape = shape_of(self.name)
        sums = shape.pieces * (1 if shape.d == "f16" else 2)
        return [sums, shape.registers(shape.a, shape.pieces), shape.registers(shape.b, 1), sums]

    @property
    def held(self) -> list[str]:
        """What the registers are, for PTX."""
        return list(TABLE[self.name].types)

    @property
    def is_exact(self) -> bool:
        """Whether the emulator says that it gives the same bits."""
        return "f64" not in self.kinds


def instructions() -> list[Instruction]:
    """All that the emulator knows, of each spelling and layout one."""
    others = re.compile(r"m8n8k4\.row\.col\.f\d+\.f16|satfinite\.s32|f(16|32)\.satfinite|\.rn$")
    found = [
        Instruction(name) for name in TABLE
        if re.match(r"w?mma\.", name) and ".row.col." in name and not others.search(name)
    ]  # fmt: skip
    # ptxas knows no wmma of an A and a B of different types.
    return [x for x in found if not x.is_wmma or x.kinds[1] == x.kinds[2]]


def source(chosen: list[Instruction]) -> str:
    """A kernel for each: a warp's registers come from memory, one behind the other."""
    return "\n".join(_kernel(i, x) for i, x in enumerate(chosen))


def _kernel(number: int, one: Instruction) -> str:
    types = [HELD[held] for held in one.held]
    sets = list(zip("dabc", one.registers, types, strict=True))
    lines = [
        f"  {kind} {x}_[{count}];" + (
            f" for (int i = 0; i < {count}; ++i) {x}_[i] = {x}[(warp * {count} + i) * 32 + lane];"
            if x != "d" else ""
        )
        for x, count, (kind, _) in sets
    ]  # fmt: skip
    operands, at = [], 0
    for _, count, _ in sets:
        operands.append("{" + ", ".join(f"%{at + i}" for i in range(count)) + "}")
        at += count
    (out, *given) = [
        ", ".join(f'"{"=" * (x == "d")}{letter}"({x}_[{i}])' for i in range(count))
        for x, count, (_, letter) in sets
    ]
    d, a, b, c = (kind for kind, _ in types)
    count = one.registers[0]
    return (
        f'extern "C" __global__ void k{number}'
        f"(const {a}* a, const {b}* b, const {c}* c, {d}* d) {{\n"
        f"  const int warp = blockIdx.x * {WARPS} + threadIdx.x / 32, lane = threadIdx.x % 32;\n"
        + "\n".join(lines)
        + f'\n  asm volatile("{one.name} {", ".join(operands)};"\n'
        f"      : {out}\n      : {', '.join(given)});\n"
        f"  for (int i = 0; i < {count}; ++i) d[(warp * {count} + i) * 32 + lane] = d_[i];\n}}\n"
    )


def compiled(runner: Runner, chosen: list[Instruction]) -> nvrtc.Module:
    """The kernels for a device."""
    return nvrtc.compile_cuda(source(chosen), arch=runner.target(ARCH), format=runner.format)


# How floats are drawn: with exponents near to each other or far apart; any bits; half of them zeros
# and C of a wide range; subnormal numbers in A; infinities, NaN, zeros and the largest numbers.
MODES = ("near", "far", "wide", "any", "zeros", "subnormal", "special")


def draws(one: Instruction, warps: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The registers of A, B and C of so many warps, in every mode."""
    floats = one.kinds[1] in FLOATS
    for mode in MODES if floats else ("any",):
        rng = np.random.default_rng([len(mode), *mode.encode(), *one.name.encode()])
        yield (
            mode,
            [
                _registers(rng, kind, held, (warps, count, 32), mode, which)
                for which, kind, held, count in zip(
                    "abc", one.kinds[1:], one.held[1:], one.registers[1:], strict=True
                )
            ],
        )


def _registers(
    rng: np.random.Generator, kind: str, held: str, shape: tuple[int, ...], mode: str, which: str
) -> np.ndarray:
    if kind == "f64":
        return rng.uniform(-1, 1, shape)
    if kind in FLOATS:
        each = 32 // FLOATS[kind][0]
        values = _floats(rng, kind, (*shape, each), mode, which)
        return values.view(np.float32 if held == "f32" else np.int32)[..., 0]
    if which != "c":
        return rng.integers(-(2**31), 2**31, shape, np.int32)
    ends = rng.choice(np.array([-(2**31), 2**31 - 1, 0], np.int64), shape)
    near = ends + rng.integers(-(2**20), 2**20, shape)
    return np.clip(near, -(2**31), 2**31 - 1).astype(np.int32)


def _floats(
    rng: np.random.Generator, kind: str, shape: tuple[int, ...], mode: str, which: str
) -> np.ndarray:
    """Bits of numbers: subnormal ones have the exponent field 0, infinities and NaN the last."""
    width, fraction = FLOATS[kind]
    last = (1 << width - 1 - fraction) - 1
    bias = last // 2
    top = last if kind == "e4m3" else last - 1
    spreads = {"near": 0, "far": 4, "wide": 12, "zeros": 4, "special": 3, "subnormal": 2}
    spread = spreads.get(mode, last)
    middle = 1 if mode == "subnormal" and which == "a" else bias
    if mode == "subnormal" and which == "c":
        middle = 1  # for f16; for float32 what products of f16 are, or nothing beside them
        if kind == "f32":
            middle = int(rng.choice([1, bias - 14]))
    if which == "c":
        spread += {"zeros": 20, "near": 3}.get(mode, 2)
    exponents = np.clip(middle + rng.integers(-spread, spread + 1, shape), 0, top)
    bits = exponents << fraction | rng.integers(0, 1 << fraction, shape)
    if mode == "zeros" and which != "c":
        bits *= rng.integers(0, 2, shape)
    if mode == "special":
        infinity, nan = last << fraction, (last << fraction) | 1 << (fraction - 1)
        if kind == "e4m3":  # which has no infinity, and one NaN
            infinity = nan = 0x7F
        largest = nan - 1 if kind == "e4m3" else infinity - 1
        chosen = rng.integers(0, 400, shape)
        for at, value in enumerate((0, 0, 0, largest, largest, infinity, nan)):
            bits = np.where(chosen == at, value, bits)
    elif kind == "e4m3":
        bits = np.where(bits == 0x7F, 0x7E, bits)
    if which == "c":
        bits[: len(bits) // 3] = 0
    signed = bits | rng.integers(0, 2, shape) << (width - 1)
    return signed.astype(f"u{width // 8}")


def results(
    runner: Runner, module: nvrtc.Module, number: int, one: Instruction, given: list[np.ndarray]
) -> np.ndarray:
    """The bits of D's elements."""
    dtypes = {"b32": "i4", "s32": "i4", "f32": "f4", "f64": "f8"}
    warps = len(given[0])
    out = np.zeros((warps, one.registers[0], 32), dtypes[one.held[0]])
    device = [runner.upload(x, name) for x, name in zip((*given, out), "ABCD", strict=True)]
    grid, block = (warps // WARPS, 1, 1), (32 * WARPS, 1, 1)
    findings = runner.launch(module, f"k{number}", grid, block, device)
    assert not findings, findings
    d = runner.download(device[3])
    for buffer in device:
        runner.free(buffer)
    return d.view("u2" if one.kinds[0] == "f16" else f"u{d.itemsize}").reshape(-1)
