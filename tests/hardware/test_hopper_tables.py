"""The tables of the page about Hopper, from results that are made up."""

from pathlib import Path

import pytest

from gen.bench.results import OURS, PEER, WRONG, Header, Results, Row, save
from tests.hardware import hopper_tables


def row(kind: str, name: str, shape: str, ms: float | None, check: str = "ok") -> Row:
    return Row(name, kind, "f16", "rcr", shape, ms_median=ms, check=check, note="D[0, 0] is 1")


def test_tokens_are_rows_and_projections_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = Header("H200", "sm_90a", "580", "today", "gen bench --suite llama")
    rows = [
        *(row(OURS, "wgmma", "8x4096x64", 1.0), row(PEER, "cublas best", "8x4096x64", 1.5)),
        *(row(OURS, "wgmma", "16x4096x64", 2.0), row(PEER, "triton tma", "16x4096x64", 1.0)),
        *(row(OURS, "wgmma", "8x512x128", 1.0), row(PEER, "cublas best", "8x512x128", 1.0)),
        row(PEER, "cutlass3", "8x512x128", None, WRONG),
    ]
    path = tmp_path / "r.json"
    save(Results(header, tuple(rows)), path)
    assert hopper_tables.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("`r.json`: GPU: H200 (sm_90a); driver: 580; date: today")
    for wanted in (
        "| f16 | rcr | 1 to 8 | 2 | 1.22x faster | as fast | 8x512x128 |",
        "| tokens | 512 x 128 | 4096 x 64 |",
        "| 8 | 1.00x | 1.50x |",
        "| 16 | - | 0.500x |",
        "The best peers: cublas best 2, triton tma 1.",
        "| cutlass3 | f16 | rcr | 8x512x128 | wrong | D[0, 0] is 1 |",
    ):
        assert wanted in lines


def test_batches_are_projections_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        *(row(OURS, "wgmma", "64x256x128x32", 1.0), row(PEER, "torch", "64x256x128x32", 1.5)),
        *(row(OURS, "wgmma", "256x128x32", 1.0), row(PEER, "torch", "256x128x32", 0.5)),
    ]
    path = tmp_path / "r.json"
    save(Results(Header("H200", "sm_90a", "580", "today", "gen bench"), tuple(rows)), path)
    assert hopper_tables.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| tokens | 128 x 32 | 64 x 128 x 32 |" in lines
    assert "| 256 | 0.500x | 1.50x |" in lines


def test_what_cannot_be_read_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert hopper_tables.main(["none.json"]) == 2
    assert capsys.readouterr().err == "error: cannot read none.json: No such file or directory\n"
    assert hopper_tables.main([]) == 2
