"""The format of measurements, the suites of shapes, and what goes on where a run stopped."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from gen.bench import results
from gen.bench.results import Header, Results, Row
from gen.bench.suites import SUITES, of_tokens, suite
from gen.errors import UsageError

HEADER = Header(
    gpu="NVIDIA H200",
    arch="sm_90a",
    driver="580.95.05",
    date="2026-01-02T03:04:05+00:00",
    command="gen bench --suite seeds",
    uuid="GPU-1",
    versions={"python": "3.12.3", "torch": "2.11.0"},
    clocks={"sm": [1900, 1980], "sm_max": 1980, "memory": 3201},
    ceilings={"fma_f32": 61.5, "copy": 4300.0},
)
OURS = Row(
    "gemm_naive", "ours", "f32", "rrr", "256x256x256", variant="naive",
    spec={"variant": "naive", "threads": 256}, ms_median=0.01, ms_spread=0.0001, noise=0.01,
    rounds=11, launches=100, tflops=3.3, gbps=78.6, method="graph",
)  # fmt: skip
PEER = Row("cublas", "peer", "f32", "rrr", "256x256x256", ms_median=0.005, workspace=1024)
WRONG = Row("broken", "ours", "f32", "rrr", "1x1x1", check=results.WRONG, note="D[0, 0] is 1")
ALL = Results(HEADER, (OURS, PEER, WRONG))


def test_json_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    results.save(ALL, path)
    assert results.load(path) == ALL
    assert results.load(path).to_json() == ALL.to_json()
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]  # no temporary file


def test_json_says_what_it_is() -> None:
    content = json.loads(ALL.to_json())
    assert (content["format"], content["version"]) == ("gemmgen-bench", 1)
    assert content["header"]["command"] == HEADER.command
    assert content["rows"][2]["ms_median"] is None


def test_fields_of_a_newer_writer_are_ignored() -> None:
    content = json.loads(ALL.to_json())
    content["header"]["power"] = 700
    content["rows"][0]["joules"] = 1.5
    content["axes"] = ["threads"]
    assert results.parse(json.dumps(content)) == ALL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "else"}, 'has no benchmark results: "format" is not'),
        ({"version": 2}, "has version 2 of the format; this gen reads version 1"),
        ({"header": {}}, "the header lacks gpu, arch, driver, date, command; measure again"),
        ({"rows": [{}]}, "row 1 lacks contender, kind, dtype, layout, shape; measure again"),
        ({"rows": [None]}, "row 1 is no object: None"),
        ({"rows": 3}, "is not complete"),
    ],
)
def test_what_cannot_be_read(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        results.parse(json.dumps({**json.loads(ALL.to_json()), **change}))


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("header", "clocks", 5),
        ("header", "gpu", None),
        ("row 2", "shape", "x"),
        ("row 2", "ms_median", "fast"),
        ("row 2", "tflops", [1]),
        ("row 2", "variant", 3),
        ("row 2", "spec", "{"),
        ("row 2", "check", None),
        ("row 2", "rounds", 1.5),
    ],
)
def test_what_has_a_wrong_type_is_named(where: str, name: str, value: object) -> None:
    content = json.loads(ALL.to_json())
    (content["header"] if where == "header" else content["rows"][1])[name] = value
    with pytest.raises(UsageError, match=f"f.json: .*{where}: {name} .*; (measure again|use )"):
        results.parse(json.dumps(content), "f.json")


def test_other_files_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not JSON"):
        results.parse("{")
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        results.load(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot write"):
        results.save(ALL, tmp_path)


def test_nan_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Results(HEADER, (replace(OURS, tflops=math.nan),)).to_json()


def test_a_row_takes_the_place_of_an_earlier_one() -> None:
    again = replace(OURS, ms_median=0.02)
    assert ALL.with_row(again).rows == (again, PEER, WRONG)
    new = replace(OURS, shape="512x512x512")
    assert ALL.with_row(new).rows == (*ALL.rows, new)


def test_csv_has_every_row_with_the_headers_facts() -> None:
    lines = list(csv.DictReader(io.StringIO(ALL.to_csv())))
    assert [line["contender"] for line in lines] == ["gemm_naive", "cublas", "broken"]
    assert {line["gpu"] for line in lines} == {"NVIDIA H200"}
    assert json.loads(lines[0]["spec"]) == OURS.spec
    assert lines[1]["spec"] == ""
    assert lines[2]["ms_median"] == ""
    assert "torch=2.11.0" in lines[0]["versions"]


def test_queries() -> None:
    assert results.find(ALL.rows, kind=results.OURS, shape="256x256x256") == [OURS]
    assert results.fastest(ALL.rows) == PEER
    assert results.fastest([WRONG]) is None


def test_suites() -> None:
    assert [str(s) for s in suite("seeds")] == [f"{n}x{n}x{n}" for n in (256, 512, 1024, 4096)]
    for shapes in SUITES.values():
        assert len(set(shapes)) == len(shapes)
        assert all(min(s.m, s.n, s.k) > 0 for s in shapes)
    assert {1, 2, 3, 4, 7, 8, 16, 17, 32, 64, 8192} <= {s.m for s in suite("llama")}
    assert all(s.k >= 16384 and max(s.m, s.n) <= 256 for s in suite("splitk"))
    assert any(s.n == 10 for s in suite("mnist"))
    assert all(any(x % 8 for x in (s.m, s.n, s.k)) for s in suite("odd"))
    with pytest.raises(UsageError, match="unknown suite 'square'; did you mean squares"):
        suite("square")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8", {8}), ("1-4,17", {1, 2, 3, 4, 17}), ("64-300", {64, 128, 256}), ("0-1, 1", {1})],
)
def test_tokens_choose_parts_of_llama(text: str, tokens: set[int]) -> None:
    found = of_tokens(text)
    assert {s.m for s in found} == tokens
    assert len(found) == len(set(found)) == 7 * len(tokens)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "no shape of the suite llama has 5 tokens; it has 1, 2, 3, 4, 7"),
        ("8-4", "has 8-4 tokens"),
        ("a", "tokens 'a' are no number or range; use such as 8 or 64-512"),
        ("-4", "no number or range"),
        ("4-", "no number or range"),
        ("4,", "no number or range"),
    ],
)
def test_tokens_that_there_are_not(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        of_tokens(text)
