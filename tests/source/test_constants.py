"""What comments behind constants of emitted files say of their values, against these values."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gen.spec.dtypes import ELEMENT_TYPES
from tests import ROOT

GOLDENS = ROOT / "tests" / "golden"
BYTES = {kind.cuda: kind.size for kind in ELEMENT_TYPES.values()}

_TYPE = re.compile(r"using (\w+) = ([\w ]+);")
_CONSTANTS = re.compile(r"constexpr int (k[^;]+);(?:\s*// (.*))?")
_NUMBERS = re.compile(r"(?:[\d /*()+-]+ = )?(\d+(?:, \d+)*)(?:[:;,] .*)?")  # perhaps how they come


def said(text: str) -> Iterator[tuple[str, list[int], list[int]]]:
    """Lines with constants and numbers behind them: the line, the values, and the numbers."""
    known: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        if kind := _TYPE.fullmatch(line.partition("  //")[0]):
            sizes[kind[1]] = BYTES.get(kind[2]) or sizes.get(kind[2], 0)
        found = _CONSTANTS.fullmatch(line)
        if not found:
            continue
        values = []
        for one in re.split(r", (?=k\w+ = )", found[1]):
            name, _, what = one.partition(" = ")
            what = re.sub(r"sizeof\((\w+)\)", lambda of: str(sizes.get(of[1], "none")), what)
            try:
                known[name] = eval(what.replace("/", "//"), {"__builtins__": {}}, known)
            except (NameError, SyntaxError):  # of a structure, or a condition
                known.pop(name, None)
            values.append(known.get(name))
        numbers = _NUMBERS.fullmatch(found[2] or "")
        if numbers and None not in values:
            told = [int(number) for number in numbers[1].split(", ")]
            yield line, [value for value in values if value is not None][: len(told)], told


def test_numbers_behind_constants_are_their_values() -> None:
    lines = [one for path in sorted(GOLDENS.rglob("*.cu")) for one in said(path.read_text())]
    assert len({line for line, _, _ in lines}) > 100
    for line, values, told in lines:
        assert values == told, line


@pytest.mark.parametrize("number", ["8", "2 * 4 = 8"])
def test_a_wrong_number_is_told(number: str) -> None:
    text = f"constexpr int kA = 2, kB = 3;\nconstexpr int kC = kA * kB;  // {number}\n"
    assert list(said(text)) == [(text.splitlines()[1], [6], [8])]
