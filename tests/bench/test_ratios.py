"""Our best kernels against the best peers: problems, classes, the file."""

import json

import pytest

from gen.bench import ratios, results
from gen.bench.ratios import classes
from gen.bench.results import OURS, PEER, Header, Results, Row

HEADER = Header("pretended", "sm_90a", "580", "today", "gen bench")


def row(kind: str, name: str, shape: str, ms: float | None, dtype: str = "f16") -> Row:
    return Row(name, kind, dtype, "rcr", shape, ms_median=ms)


ROWS = (
    row(OURS, "ours", "1x64x64", 2.0),
    row(PEER, "cublas", "1x64x64", 1.0),
    row(OURS, "ours", "8x64x64", 1.0),
    row(OURS, "other", "8x64x64", 0.5),
    row(PEER, "cublas", "8x64x64", 2.0),
    row(PEER, "triton", "8x64x64", 1.0),
    row(PEER, "torch", "8x64x64", None),
    row(OURS, "ours", "512x64x64", 1.0),
    row(PEER, "cublas", "512x64x64", 3.0),
    row(OURS, "ours", "64x64x64", 1.0),  # no peer has a time
    row(PEER, "cublas", "64x64x64", None),
    row(OURS, "ours", "9x64x64", 1.0, "f32"),
    row(PEER, "cublas", "9x64x64", 1.0, "f32"),
)


def test_the_best_of_ours_meets_the_best_of_the_peers() -> None:
    found = ratios.ratios(ROWS)
    assert [(r.shape, r.ours.contender, r.peer.contender, r.value) for r in found] == [
        ("1x64x64", "ours", "cublas", 0.5),
        ("8x64x64", "other", "triton", 2.0),
        ("512x64x64", "ours", "cublas", 3.0),
        ("9x64x64", "ours", "cublas", 1.0),
    ]


def test_classes_go_by_the_rows_of_d() -> None:
    found = classes(ratios.ratios(ROWS))
    got = [(c.dtype, c.rows, len(c.ratios), c.least.value, c.least.shape) for c in found]
    assert got == [
        ("f16", "1 to 8", 2, 0.5, "1x64x64"),
        ("f16", "512 and more", 1, 3.0, "512x64x64"),
        ("f16", "all", 3, 0.5, "1x64x64"),
        ("f32", "9 to 63", 1, 1.0, "9x64x64"),
    ]
    assert [c.mean for c in found] == pytest.approx([1.0, 3.0, 3 ** (1 / 3), 1.0])
    assert classes([]) == []


def test_the_file_has_the_ratios_and_stays_readable() -> None:
    text = ratios.to_json(Results(HEADER, ROWS))
    assert results.parse(text) == Results(HEADER, ROWS)
    against = json.loads(text)["against_best_peer"]
    assert against["problems"][0] == {
        "dtype": "f16",
        "layout": "rcr",
        "shape": "1x64x64",
        "ours": "ours",
        "peer": "cublas",
        "ratio": 0.5,
    }
    assert [(c["rows"], c["problems"], c["least"]) for c in against["classes"]] == [
        *(("1 to 8", 2, 0.5), ("512 and more", 1, 3.0), ("all", 3, 0.5), ("9 to 63", 1, 1.0)),
    ]
