"""A table's lines: the same times, however it is laid out, and what is wrong is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gen.dispatch import folders, table
from gen.dispatch.lines import Lines, Sizes, Time
from gen.dispatch.table import Entry, Table
from gen.errors import UsageError
from gen.spec.problem import ALL_LAYOUTS
from tests.dispatch.test_tables import later, small
from tests.support import tuned
from tests.support.slow import sift

THERE = ("h200", (64, 64, 64), "f16", "rcr")
ELSEWHERE = ("h200", (128, 128, 128), "f16", "rcr")


def time_of(entry: Entry) -> Time:
    spec = entry.spec
    text, words = json.dumps(spec), (spec["dtype"], spec["layout"])
    return Time(entry.us, entry.templates, entry.run, entry.batch, text, *words)


def sizes_of(entry: Entry) -> Sizes:
    return entry.size.m, entry.size.n, entry.size.k


SHIPPED = sorted(folders.SHIPPED.rglob("*.json"))


@pytest.mark.parametrize(
    "file",
    sift(SHIPPED, [file for file in SHIPPED if file.stat().st_size < 300_000]),
    ids=lambda file: file.stem,
)
def test_lines_have_what_a_table_has(file: Any) -> None:
    text = file.read_text()
    found: dict[tuple[Any, ...], list[Time]] = {}
    for entry in table.parse(text, "it").entries:
        time = time_of(entry)
        place = entry.gpu, sizes_of(entry), time.dtype, time.layout
        found.setdefault(place, []).append(time)
    for again in (Lines(text, "it"), Lines(json.dumps(json.loads(text)), "it")):
        assert {place: again.times(*place) for place in found} == found
        for layout in ALL_LAYOUTS:
            having = {sizes for _, sizes, _, own in found if own == layout}
            assert having <= {*again.sizes(file.parent.name, layout)}
    gpu, sizes, dtype, layout = next(iter(found))
    known = Lines(text, "it")
    assert not known.times("l4", sizes, dtype, layout)
    assert not known.sizes("l4", layout)
    assert not known.sizes(gpu, "ccc")
    assert known.times(gpu, (3, 3, 3), dtype, layout) == []
    assert known.times(gpu, sizes, "f64_f64", layout) == []


def unusual(change: Callable[[str], str], strict: bool = True) -> Lines:
    """A table with a change in the line of its last entry of `THERE`."""
    lines = small().to_json().splitlines(keepends=True)
    at = max(i for i, line in enumerate(lines) if '"shape": "64x' in line)
    return Lines("".join([*lines[:at], change(lines[at]), *lines[at + 1 :]]), "it", strict)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace('"us": ', '"watts": 700, "us": '),
        lambda line: line.replace('"us": ', '"us":\t'),
        lambda line: line.replace('{"gpu": ', '{ "gpu": '),
        lambda line: line.replace('"h200"', r'"\u0068200"'),
        lambda line: line.replace('"rcr"', r'"rc\u0072"'),
        lambda line: f"\n{line}",
    ],
)
def test_lines_that_are_written_otherwise_are_read(change: Callable[[str], str]) -> None:
    usual, found = Lines(small().to_json(), "it"), unusual(change)
    assert found.times(*THERE) == usual.times(*THERE)
    assert found.times(*ELSEWHERE) == usual.times(*ELSEWHERE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line.replace('"us": ', '"us": -'), "-.* us is no time"),
        (lambda line: line.replace('"us": ', '"us": 1e99 '), "it is not JSON"),
        (lambda line: line.replace('"us": ', '"us": 1e99, "was": '), r"1e\+99 us is no time"),
        (lambda line: line.replace("a test's GPU", "another"), "is not among its runs"),
        (lambda line: line.replace('"rounds": 11', '"rounds": 0'), "a field has another type"),
        (lambda line: line.replace('"rcr"', "7"), "a field has another type"),
        (lambda line: f"{line[:90]}\n", "it is not JSON"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_where_it_is_asked_for(
    change: Callable[[str], str], message: str
) -> None:
    found = unusual(change)
    assert found.times(*ELSEWHERE) == Lines(small().to_json(), "it").times(*ELSEWHERE)
    with pytest.raises(UsageError, match=message):
        found.times(*THERE)
    left = unusual(change, strict=False)
    with pytest.warns(RuntimeWarning, match=f"measured times are left out: .*{message}"):
        assert left.times(*THERE) == []
    assert left.times(*THERE) == []  # said once


def test_a_merge_that_git_has_made_has_the_lines_of_both() -> None:
    """Problems stand in several places then, and the runs at the head of one."""
    first, second = small(), later(small(), 7.0)
    both = Table((*first.entries, *second.entries), {**first.runs, **second.runs})
    entries = [entry for entry in both.entries if sizes_of(entry) == THERE[1]]
    assert Lines(both.to_json(), "it").times(*THERE) == [time_of(entry) for entry in entries]
    assert tuned.RUN.name in both.runs
