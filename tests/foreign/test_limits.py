"""When a check of any kernel ends, and how much of what it found it tells."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

import gen
from gen.emulator import SameValues
from gen.errors import BudgetError
from tests import ROOT
from tests.conftest import Gen

SGEMM = ROOT / "examples" / "kernels" / "sgemm.cu"
GEMM = ("--kernel", "sgemm<16>", "--grid", "(N+15)/16,(M+15)/16", "--block", "16,16",
        "--gemm", "A=A,B=B,C=C,M=M,N=N,K=K,alpha=alpha,beta=beta")  # fmt: skip
# Reads what has no value, and then writes where nothing is; it may go on for an hour.
LONG = """
__global__ void k(int* y, int n) {
  int s = y[0];
  y[n > 1 ? 8 : 1] = s;
  for (int i = 0; i < n; ++i) s = s * 1664525 + (s >> 3) + i;
  y[2] = s;
}
"""
LAUNCH = ("--grid", "1", "--block", "1", "--arg", "y=i32[8]:poison")


def write(text: str, name: str = "mine.cu") -> str:
    """A file in the current folder."""
    Path(name).write_text(text)
    return name


@pytest.mark.parametrize("seconds", ["0", "0.5"])
def test_the_time_of_a_check(gen: Gen, seconds: str) -> None:
    start = time.perf_counter()
    file = write(LONG.replace("y[n > 1 ? 8 : 1] = s", "y[1] = s"))
    code, out, _ = gen("check", file, *LAUNCH, "--arg", "n=1000000000",
                       "--budget", "1000000000000", "--time", seconds)  # fmt: skip
    assert time.perf_counter() - start < 30
    assert code == 1
    assert "when the time was up; use a larger --time" in out
    assert ("Uninitialized __global__ memory read" in out) == (seconds != "0")


def test_the_time_of_a_product(gen: Gen) -> None:
    code, out, _ = gen("check", str(SGEMM), *GEMM, "--time", "0")
    assert code == 1
    assert "stopped on 16x16x16: " in out
    assert "when the time was up; use a larger --time" in out


def test_races_are_no_note_where_the_time_is_up_before_their_values_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(*_: object) -> None:
        raise BudgetError("kernel k was still running when the time was up")

    source = "__global__ void k(int* flag) { flag[0] = 7; }"
    args = {"flag": "i32[1]:zeros"}
    assert gen.emulate(source, grid=2, block=32, args=args).ok
    monkeypatch.setattr(SameValues, "begin", late)
    assert [one.kind for one in gen.emulate(source, grid=2, block=32, args=args).findings] == [
        "WAW"
    ]


def test_the_first_launch_that_is_wrong_is_the_last(gen: Gen) -> None:
    file = write("""
// gen-launch: --kernel flag --grid 2 --block 8 --arg x=i32[8]:zeros
// gen-launch: --kernel shift --grid 1 --block 8 --arg x=x --arg y=i32[8]:poison --expect z=z.npy
// gen-launch: --kernel late --grid 1 --block 8 --arg z=i32[8]:poison
__global__ void flag(int* x) { x[0] = 1; }
__global__ void shift(int* x, const int* y) { x[threadIdx.x] = y[threadIdx.x]; }
__global__ void late(int* z) { z[threadIdx.x] *= 3; }
""")
    code, out, _ = gen("check", file, "--first")
    assert code == 1
    assert "flag, shift: 1 finding, 0 mismatches" in out
    np.save("z.npy", np.zeros(8, np.int32))
    assert "flag, shift, late: 2 findings, 1 mismatch" in gen("check", file).out


def test_the_first_shape_that_is_wrong_is_the_last(gen: Gen) -> None:
    options = ("--shape", "5x5x5", "--shape", "16x16x16")
    assert "right on 1 of 2 shapes" in gen("check", str(SGEMM), *GEMM, *options).out
    assert "right on 0 of 1 shape" in gen("check", str(SGEMM), *GEMM, *options, "--first").out


@pytest.mark.parametrize("option", [("--strict",), ("--thorough",), ("--jobs", "2")])
def test_options_without_effect_are_refused(gen: Gen, option: tuple[str, ...]) -> None:
    code, _, err = gen("check", write(LONG), *LAUNCH, "--arg", "n=1", *option)
    assert code == 2
    assert f"mine.cu is no emitted file; leave out {option[0]}: here, " in err


@pytest.mark.parametrize("most", [1, 2])
def test_the_gravest_findings_are_told(gen: Gen, most: int) -> None:
    launch = (*LAUNCH, "--arg", "n=2", "--max-findings", str(most))
    code, out, _ = gen("check", write(LONG), *launch)
    assert code == 1
    assert "Invalid __global__ write" in out
    assert ("Uninitialized" in out) == (most == 2)
    assert ("1 repeats or beyond --max-findings" in out) == (most == 1)
    assert "Uninitialized" in gen("check", "mine.cu", *launch, "--tool", "initcheck").out


def test_findings_of_a_product_are_as_many_as_are_asked_for(gen: Gen) -> None:
    for most in (1, 4):
        out = gen("check", str(SGEMM), *GEMM, "--max-findings", str(most)).out
        assert re.search(rf"^{most} findings?, 0 mismatches", out, re.MULTILINE)
