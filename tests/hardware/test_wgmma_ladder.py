"""The ladder of `wgmma`: its page has its rungs and counters; the table of times, made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gen.bench.results import OURS, PEER, Header, Results, Row, save
from gen.kernels.registry import make_spec
from gen.report import markdown
from tests import ROOT
from tests.hardware import wgmma_ladder
from tests.hardware.wgmma_ladder import RUNGS
from tests.support.slow import slow

PAGE = (ROOT / "docs" / "wgmma-ladder.md").read_text(encoding="utf-8")


def test_the_page_has_every_rung_in_its_order() -> None:
    beginnings = []
    for i, rung in enumerate(RUNGS, 1):
        options = f"`{rung.options}`. " if rung.tunables != RUNGS[7].tunables else "no options. "
        beginnings.append(PAGE.index(f"\n**{i}. "))
        assert options in PAGE[beginnings[-1] :].partition("\n\n")[0].replace("\n", " ")
    assert beginnings == sorted(beginnings)
    assert RUNGS[7].spec == make_spec("wgmma", dtype="f16", layout="rcr")


@slow
def test_the_page_has_the_counters() -> None:
    assert markdown.table(wgmma_ladder.counters()) in PAGE


def test_times_are_those_of_the_rungs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def row(kind: str, name: str, shape: str, ms: float, **more: object) -> Row:
        return Row(name, kind, "f16", "rcr", shape, ms_median=ms, **more)  # type: ignore[arg-type]

    spec = json.loads(RUNGS[1].spec.to_json())
    rows = (
        row(OURS, "wgmma", "64x64x64", 2.0, spec=spec, tflops=300.0),
        row(PEER, "cublas", "64x64x64", 1.0),
        row(PEER, "cublas best", "64x64x64", 1.5),
    )
    header = Header("H200", "sm_90a", "580", "today", "gen bench")
    save(Results(header, rows), tmp_path / "r.json")
    assert wgmma_ladder.main([str(tmp_path / "r.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "|  | rung | TFLOP/s, 64x64x64 | of cuBLAS |" in lines
    assert "| 1 | one narrow wgmma | - | - |" in lines
    assert "| 2 | a wider one | 300 | 0.500x |" in lines


def test_what_cannot_be_read_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert wgmma_ladder.main(["none.json"]) == 2
    assert capsys.readouterr().err == "error: cannot read none.json: No such file or directory\n"
    assert wgmma_ladder.main(["--measure"]) == 2
