"""Embedded kernels of several launches: they ask the driver for what the plan says.

A driver that runs nothing writes down what it is asked; see fake_driver.c.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pytest
from cuda.bindings.driver import CUtensorMapDataType, CUtensorMapSwizzle
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.device.tensor_map import _ELEMENTS
from gen.kernels.launches import Argument, Launch, Pointer, TensorMap
from gen.kernels.registry import make_spec
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape
from tests.prove.test_verify import TENSOR, small
from tests.source.cpp.test_embed import EMBEDDED, TURNS, build, lines_of
from tests.spec.test_spec import specs
from tests.support.slow import sift

NVRTC = "gen.compile.nvrtc.compile_cuda"
FAKE_CODE = b"\x7fELF" + bytes(60)  # of no architecture; the fake driver does not run it

CALLS = """
#include <stdio.h>
#include <stdlib.h>
#include "gemm.h"
int main(int count, char** words) {
  long long x[16];
  size_t bytes = 0;
  for (int i = 1; i < count; ++i) x[i] = strtoll(words[i], NULL, 0);
  printf("%d", gemm_workspace(x[1], x[2], x[3], (void*)x[4], x[5], (void*)x[6], x[7], &bytes));
  printf(" %zu\\n", bytes);
  printf("%d\\n", gemm_launch(
      x[1], x[2], x[3], 3, (void*)x[4], x[5], (void*)x[6], x[7], 2, (void*)x[8], x[9],
      (void*)x[10], x[11], BIAS (void*)x[13], x[14], NULL));
  return 0;
}
"""


class Call(NamedTuple):
    """The arguments of a launch, as the program above takes them."""

    m: int
    n: int
    k: int
    a: int
    lda: int
    b: int
    ldb: int
    c: int
    ldc: int
    d: int
    ldd: int
    bias: int = 0x5000_0000
    workspace: int = 0x6000_0000
    workspace_bytes: int = 2**40

    @classmethod
    def of(cls, problem: GemmProblem, offset: int = 0) -> "Call":
        """A and D start so many bytes behind a multiple of 16."""
        p, s = problem, problem.shape
        a, b, c, d = 0x1000_0000 + offset, 0x2000_0000, 0x3000_0000, 0x4000_0000 + offset
        return cls(s.m, s.n, s.k, a, p.lda, b, p.ldb, c, p.ldc, d, p.ldd)

    @property
    def addresses(self) -> dict[str, int]:
        names = {"A": self.a, "B": self.b, "C": self.c, "D": self.d}
        return {**names, "bias": self.bias, "workspace": self.workspace}


def calls(folder: Path, spec: KernelSpec) -> Path:
    bias = "(void*)x[12]," if spec.has_bias else ""
    return build(folder, spec, CALLS.replace("BIAS", bias))


def letter(argument: Argument) -> str:
    """An argument's type, as the fake driver wants to be told."""
    if isinstance(argument, TensorMap):
        return "m"
    return {1: "c", 4: "f"}.get(getattr(argument, "nbytes", 8), "l")


def words(argument: Argument, call: Call) -> str:
    """An argument as the fake driver prints it."""
    if isinstance(argument, Pointer):
        return f"{call.addresses[argument.buffer] + argument.offset:x}"
    if isinstance(argument, TensorMap):
        return ",".join(f"{word:x}" for word in encoded(argument, call))
    bits = argument.view(f"u{argument.nbytes}")
    return f"{int(bits):x}"


def encoded(described: TensorMap, call: Call) -> list[int]:
    """What the fake driver makes of a tensor map."""
    if 0 in described.dims:
        return [0] * 8
    element = f"CU_TENSOR_MAP_DATA_TYPE_{_ELEMENTS[described.element]}"
    type_ = getattr(CUtensorMapDataType, element)
    swizzle = getattr(CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{described.swizzle}B")
    address = call.addresses[described.source.buffer] + described.source.offset
    return [int(type_), address, *described.dims, described.pitch, *described.box, int(swizzle)]


def matches(line: str, launch: Launch, call: Call) -> bool:
    """Whether the fake driver was asked for this launch; what a kernel does not use may differ."""
    head = f"launch {launch.kernel} {launch.grid} {launch.block} {launch.shared_bytes}:"
    values = line.removeprefix(head).split()
    if not line.startswith(head) or len(values) != len(launch.args):
        return False
    # What a kernel without partial sums is given in their place, it does not read.
    unused = {"partials"} if launch.args.get("slices") == 1 else set()
    expected = {name: words(value, call) for name, value in launch.args.items()}
    pairs = zip(expected.items(), values, strict=True)
    return all(given == value for (name, value), given in pairs if name not in unused)


SHAPES = ((256, 128, 512), (129, 65, 515), (1, 1, 1), (64, 8, 5000), (31, 64, 0), (300, 2000, 70))


def carry_out(
    program: Path, spec: KernelSpec, problem: GemmProblem, offset: int, processors: int = 132
) -> int:
    """Asserts that the launcher does what the plan says; the number of launches."""
    call = Call.of(problem, offset)
    steps = spec.plan(problem, Alignment(a=offset % 16 == 0, d=offset % 16 == 0), processors)
    types = [
        f"{launch.kernel}={''.join(map(letter, launch.args.values()))}" for launch in steps.launches
    ]
    given = {"CC": spec.arch[3:5], "PROCESSORS": str(processors), "PARAMETERS": " ".join(types)}
    lines = lines_of(program, *call, **given)
    assert lines[0] == f"0 {steps.workspace_bytes}"
    assert lines[-1] == "0"
    launches = [line for line in lines if line.startswith("launch")]
    assert len(launches) == len(steps.launches)
    for line, launch in zip(launches, steps.launches, strict=True):
        assert matches(line, launch, call), (line, launch)
    return len(launches)


@pytest.mark.parametrize(("variant", "dtype", "more"), sift(EMBEDDED, TURNS))
def test_an_embedded_launcher_carries_out_the_plan(
    variant: str, dtype: str, more: dict[str, Any], tmp_path: Path
) -> None:
    spec = small(variant, dtype, **{**more, "name": "gemm"})
    program = calls(tmp_path, spec)
    launches = set()
    for i, shape in enumerate(SHAPES):
        padding = (0, 5, 16)[i % 3]
        problem = GemmProblem.packed(GemmShape(*shape), spec.layouts, 3, 2, padding)
        for offset in (0, spec.dtypes.output.size):
            launches.add(carry_out(program, spec, problem, offset))
    assert len(launches) > 1


def any_problem(draw: st.DrawFn, spec: KernelSpec) -> GemmProblem:
    """Sizes around those of the tiles, of one element, of thousands; K may be 0."""
    assert spec.threadblock
    tile = spec.threadblock
    sizes = [
        max(least, draw(st.integers(0, 3)) * side + draw(st.integers(0, 1) | st.integers(0, 5000)))
        for least, side in ((1, tile.m), (1, tile.n), (0, tile.k))
    ]
    shape, padding = GemmShape(*sizes), draw(st.sampled_from((0, 3, 16)))
    return GemmProblem.packed(shape, spec.layouts, 3, 2, padding)


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_launchers_and_plans_agree_on_any_kernel_and_problem(data: st.DataObject) -> None:
    """On GPUs with few and many multiprocessors; on sizes and pointers that want packing, too."""
    spec = replace(data.draw(specs(TENSOR)), symbol="gemm")
    code = SimpleNamespace(code=FAKE_CODE)
    with tempfile.TemporaryDirectory() as folder, mock.patch(NVRTC, return_value=code):
        program = calls(Path(folder), spec)
        for _ in range(20):
            problem = data.draw(st.composite(any_problem)(spec))
            offset = data.draw(st.sampled_from((0, spec.dtypes.output.size)))
            carry_out(program, spec, problem, offset, data.draw(st.sampled_from((132, 7, 300))))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a kernel of several launches."""
    spec = small("mma", "f16", split_k=4, epilogue="linear_bias", name="gemm")
    return calls(tmp_path_factory.mktemp("planned"), spec)


GOOD = Call.of(GemmProblem.packed(GemmShape(100, 70, 600), make_spec("mma").layouts))


@pytest.mark.parametrize(
    "change",
    [
        {"workspace_bytes": 100},
        {"workspace": 0},
        {"a": 0},
        {"b": 0},
        {"c": 0},
        {"d": 0},
        {"bias": 0},
        {"lda": 599},
        {"ldb": 69},
        {"ldd": 69},
        {"m": -1},
        {"k": -1},
        {"n": 2**31, "ldb": 2**31, "ldc": 2**31, "ldd": 2**31},
    ],
)
def test_an_embedded_launcher_refuses(change: dict[str, int], planned: Path) -> None:
    *_, launched = lines_of(planned, *GOOD._replace(**change))
    assert launched == "1"


def test_an_embedded_launcher_has_no_code_for_another_device(planned: Path) -> None:
    workspace, launched = lines_of(planned, *GOOD, CC="75")
    assert (workspace.split()[0], launched) == ("0", "209")  # its size depends on no device
    assert lines_of(planned, *GOOD._replace(m=0), CC="75") == ["0 0", "0"]
