"""Variables without a value, where the compiler has unrolled the loop that uses them."""

from __future__ import annotations

import pytest

import gen
from gen.foreign import running
from gen.foreign.launch import LaunchText
from gen.foreign.looser import with_loops
from gen.foreign.steps import prepare

SOURCE = """
struct Sum { float value; int count; };
__device__ void add(Sum& sum, float x) { sum.value += x; ++sum.count; }
__global__ void k(const float* x, float* y) {
  DECLARED
  for (int i = 0; i < 4; ++i) USED;
  y[threadIdx.x] = RESULT;
}
"""
LAUNCH = LaunchText(kernel="k")
ARGS = {"x": "f32[32]:ones", "y": "f32[32]"}


def source(declared: str, used: str, result: str) -> str:
    return SOURCE.replace("DECLARED", declared).replace("USED", used).replace("RESULT", result)


@pytest.mark.parametrize(
    ("declared", "used", "result", "line"),
    [
        ("float sum;", "sum += x[i]", "sum", 6),
        ("int sum;", "if (x[i] > 0) sum += 2", "sum", 6),
        ("Sum sum; sum.count = 0;", "add(sum, x[i])", "sum.value / sum.count", 3),
    ],
)
def test_a_sum_that_starts_with_nothing(declared: str, used: str, result: str, line: int) -> None:
    text = source(declared, used, result)
    outcome = gen.emulate(text, block=32, args=ARGS)
    found = {(one.check, one.file_line, one.other_line) for one in outcome.findings}
    assert found == {("initcheck", line, 7)}
    assert gen.emulate(text, block=32, args=ARGS, tools=("memcheck", "racecheck")).ok


def test_a_race_of_equal_values_hides_nothing() -> None:
    text = source("float sum; y[32] = 1;", "sum += x[i]", "sum")
    outcome = gen.emulate(text, block=32, args={**ARGS, "y": "f32[33]"})
    assert [one.check for one in outcome.findings] == ["initcheck"]
    assert len(outcome.notes) == 1


@pytest.mark.parametrize(
    ("declared", "used", "result"),
    [
        ("float sum = 0;", "sum += x[i]", "sum"),
        ("Sum sum = {};", "add(sum, x[i])", "sum.value / sum.count"),
        ("Sum sum, other; sum.count = 0;", "other = sum, sum.count = other.count + 1", "sum.count"),
        ("float sums[2] = {};", "sums[i % 2] += x[i]", "sums[0] + sums[1]"),
        ("float last, sum = 0;", "{ if (i > 0) sum += last; last = x[i]; }", "sum"),
        ("float last[4], sum = 0;", "{ last[i] = x[i]; sum += last[i / 2]; }", "sum"),
    ],
)
def test_what_has_a_value_is_right(declared: str, used: str, result: str) -> None:
    outcome = gen.emulate(source(declared, used, result), block=32, args=ARGS)
    assert (outcome.findings, outcome.stopped, outcome.left_out) == ([], "", [])


def test_only_what_may_lack_a_value_runs_again() -> None:
    for start, again in ((" = 0", False), ("", True)):
        (step,) = prepare(source(f"float sum{start};", "sum += x[i]", "sum"), "k.cu", [LAUNCH])
        assert bool(with_loops([step])) == again
        assert not with_loops(prepare(step.built.ptx, "k.ptx", [LAUNCH]))


def test_a_repetition_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SECONDS_LESS_OPTIMIZED", 0.0)
    outcome = gen.emulate(source("float sum;", "sum += x[i]", "sum"), block=32, args=ARGS)
    assert outcome.ok
    (note,) = outcome.left_out
    assert note.startswith("a run of less optimized code, for variables without a value: ")
