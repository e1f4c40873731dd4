"""The script that measures the model's choice: what it draws, and what it says of results."""

from pathlib import Path
from typing import cast

import pytest

from gen.bench import run
from gen.bench.device import MeasuredGpu
from gen.bench.results import OURS, PEER, Header, Results, Row, save
from gen.bench.sizes import operand_bytes
from gen.device.gpus import find_gpu
from gen.dispatch.ranking import Product, choose
from tests.hardware import choice


def test_problems_are_those_of_the_seed() -> None:
    problems = choice.drawn(60, 3)
    assert problems[:20] == choice.drawn(20, 3)
    assert problems != choice.drawn(60, 4)
    assert len({p.file for p in problems}) == 60
    for p in problems:
        assert all(1 <= side <= choice.LARGEST for side in (p.shape.m, p.shape.n, p.shape.k))
        assert sum(operand_bytes(p.shape, p.dtypes)) <= 6 * 2**30


def test_candidates_are_near_the_first_or_drawn() -> None:
    gpu = find_gpu("h200")
    for problem in choice.drawn(12, 0):
        found = choice.candidates(problem, gpu, "sm_90a", 0)
        product = Product.packed(problem.shape, problem.dtypes, problem.layouts)
        assert found[0].spec == choose(product, gpu, "sm_90a")
        assert len(found) <= choice.MOST
        times = [one.time for one in found]
        assert times == sorted(times)


def row(kind: str, name: str, ms: float | None, check: str = "ok") -> Row:
    return Row(name, kind, "f16", "rcr", "64x64x64", ms_median=ms, check=check)


def test_the_first_beside_the_fastest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = Header("H200", "sm_90a", "580", "today", "choice")
    others = [row(OURS, f"k{i}", 3.0) for i in range(1, 16)]
    rows = (row(OURS, "k0", 2.0), *others, row(OURS, "k16", 1.0), row(PEER, "torch", 3.0))
    save(Results(header, rows), tmp_path / "0000_f16.json")
    right = (row(OURS, "k0", 1.0), row(OURS, "k1", None, "wrong"))
    save(Results(header, right), tmp_path / "0001_f16.json")
    assert choice.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "H200, driver 580, today; 1 results were wrong"
    assert "| f16 | 2 | 0.707 | 0.500 | 0.707 | 0.500 | 1.500 | 1 |" in lines
    assert "| 0000_f16 | 0.500 | 0.500 | 1.500 | `k0` | `k16` |" in lines


def test_a_first_that_is_wrong_counts_as_nothing(tmp_path: Path) -> None:
    rows = (row(OURS, "k0", None, "wrong"), row(OURS, "k1", 1.0))
    save(Results(Header("H200", "sm_90a", "580", "today", "choice"), rows), tmp_path / "0.json")
    assert "| all | 1 | 0.000 | 0.000 | 0.000 | 0.000 | - | 0 |" in choice.report(tmp_path)


def test_what_is_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gpu:
        arch, multiprocessors, name = "sm_90a", 132, "NVIDIA H200"

    def bench(gpu: object, options: run.Options, empty: Results) -> Results:
        rows = [row(OURS, spec.name, 1.0 + i) for i, spec in enumerate(options.specs)]
        return Results(empty.header, tuple(reversed(rows)))  # as they may come

    header = Header("H200", "sm_90a", "580", "today", "choice")
    monkeypatch.setattr(run, "header", lambda *_: header)
    monkeypatch.setattr(run, "bench", bench)
    gpu, problems, said = cast("MeasuredGpu", Gpu()), choice.drawn(5, 0), list[str]()

    def measure(count: int, seconds: float = 60.0) -> int:
        return choice.measure(gpu, problems[:count], tmp_path, 0, seconds, said.append)

    assert [measure(3), measure(5), measure(5), measure(5, -1)] == [3, 2, 0, 0]
    assert len(said) == len(list(tmp_path.iterdir())) == 5
    assert "| all | 5 | 1.000 | 1.000 | 1.000 | 1.000 | - | 0 |" in choice.report(tmp_path)


def test_nothing_measured_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choice.main([str(tmp_path)]) == 2
    assert "has no results; measure some with --measure" in capsys.readouterr().err
