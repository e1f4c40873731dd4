"""Where probes go, and what they say."""

import pytest

from gen.prove.edits import Edited
from gen.prove.probe_writer import FALSE, RANGE, STATEMENT, TRUE, Probe
from gen.prove.probes import Instrumented, complaint, instrument, is_constant

HEAD = "template <class T> struct some { T x; };\nvoid f(int a, int b, some<int> s) {\n"


def probed(statement: str) -> Instrumented:
    text = f"{HEAD}  {statement}\n}}\n"
    return instrument(Edited.between(text, f"{HEAD}}}\n"), len(text), on_host=False)


@pytest.mark.parametrize(
    ("statement", "conditions"),
    [
        ("if (a == 37) b = 0;", ["a == 37"]),
        ("if(a<b)b=0;", ["a<b"]),
        ("b += a < 5 ? a : b;", ["a < 5"]),
        ("if (a == 1 && (b > 2 || !(a != b))) b = 0;", ["a == 1", "b > 2", "a != b"]),
        ("b *= (a != 37);", ["a != 37"]),
        ("b *= !(a - 37);", ["!(a - 37)"]),
        ("if (a) b = 0;", ["a"]),
        ("if (!a || b) b = 0;", ["a", "b"]),
        ("b = a ? 1 : b ? 2 : 3;", ["a", "b"]),
        ("while (b--) a += b;", ["b--"]),
        ("for (int i = 0; i < a; ++i) b += i;", ["i < a"]),
        ("for (int i = a; i; --i) b += i;", ["i"]),
        ("switch (a) { case 37: b = 0; default: b = 1; }", ["case 37", "default"]),
        ("b = min(a, 33000);", ["min(a, 33000)"]),
        ("b = std::max(a, b);", ["std::max(a, b)"]),
        ("b = a / 3000 + b % 7;", ["a / 3000", "b % 7"]),
        ("b = (a & 63) == 37;", ["a & 63", "(a & 63) == 37"]),
        ("const bool x = a > b;", ["a > b"]),
        ("return a == b;", ["a == b"]),
    ],
)
def test_every_condition_has_a_probe(statement: str, conditions: list[str]) -> None:
    some = [
        probe.text for probe in probed(statement).probes if probe.kind not in (RANGE, STATEMENT)
    ]
    assert sorted(some) == sorted(conditions)


@pytest.mark.parametrize(
    ("emitted", "edited", "ranges"),
    [
        ("index_t c = a;", "int c = a;", ["c"]),
        ("index_t c = a, d = b;", "unsigned int c = a;", ["c"]),
        ("c = index_t(a) * b;", "c = int(a) * b;", ["int(a)", "int(a) * b"]),
        ("c = index_t(a) * b + 1;", "c = a * b + 1;", ["a * b", "a * b + 1"]),
        ("c = index_t(a) << b;", "c = a << b;", ["a << b"]),
        ("c = d(a);", "c = (int)d(a) - b;", ["(int)d(a)"]),
        ("c = d(a);", "c = static_cast<short>(d(a));", ["static_cast<short>(d(a))"]),
        ("template <int N> f(index_t a) {", "template <int N> f(int a) {", ["a"]),
        ("struct s { index_t c; };", "struct s { int c; };", ["c"]),
        ("c = f(a);", "c = f(a) < 8 ? int(f(a)) : 8;", []),
        ("c = f(a);", "c = 8 < a - b ? 8 : static_cast<int>(a - b);", []),
        ("c = f(a);", "c = (int)min(a, b);", []),
        ("index_t c = gridDim.y * kTile;", "int c = gridDim.y * kTile;", []),
        ("c += index_t(blockIdx.y) * kTile;", "c += int(blockIdx.y) * kTile;", []),
        (
            "c += index_t(blockIdx.x) * kTile;",
            "c += int(blockIdx.x) * kTile;",
            ["int(blockIdx.x)", "int(blockIdx.x) * kTile"],
        ),
        ("int c = a;", "int c = b;", []),
        ("int c = a;", "unsigned c = a;", []),
        ("index_t c = a;", "index_t c = a * b;", []),
        ("c = sizeof(index_t);", "c = sizeof(int);", []),
        ("__global__ void f(index_t a) {", "__global__ void f(int a) {", []),
    ],
)
def test_integers_that_have_become_shorter(emitted: str, edited: str, ranges: list[str]) -> None:
    of_it = Edited.between(f"{HEAD}  {edited}\n}}\n", f"{HEAD}  {emitted}\n}}\n")
    some = instrument(of_it, len(of_it.text), on_host=False)
    assert sorted(one.text for one in some.probes if one.kind == RANGE) == sorted(ranges)
    assert not [
        one for one in instrument(of_it, 0, on_host=True).probes if one.kind == RANGE
    ]  # a launcher is called with long ones


@pytest.mark.parametrize(
    "statement",
    [
        "some<int> t = static_cast<some<int>>(s);",
        "auto&& t = s;",
        "const some<int>& t = s;",
        "int* p = &a;",
        "static_assert(sizeof(int) == 4);",
        "if constexpr (sizeof(int) == 4) a = b;",
        "constexpr bool x = 3 < 4;",
        "a <<= 3;",
        "#if VERSION > 3\n#endif",
    ],
)
def test_what_is_no_condition_has_none(statement: str) -> None:
    assert not [probe for probe in probed(statement).probes if probe.kind != STATEMENT]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("a = b;", ["a = b;"]),
        ("a = b; return;", ["a = b;", "return;"]),
        ("a = b < 3;", []),  # what is in it tells
        ("if (a) b = 3; b = 4;", ["b = 4;"]),
        ("if (a) { b = 3; }", ["b = 3;"]),
        ("static_assert(sizeof(int) == 4);", []),
        ("constexpr int x = 4;", []),
    ],
)
def test_statements_without_a_condition_tell_that_they_run(statement: str, told: list[str]) -> None:
    some = probed(statement)
    found = [probe for probe in some.probes if probe.kind == STATEMENT]
    assert [probe.text for probe in found] == told
    for probe in found:
        assert f"gemmgen_note<{probe.number}>(true); {probe.text}" in some.text
        assert complaint(probe, 0) == f"`{probe.text}` was never reached"
        assert not complaint(probe, TRUE)
        assert not is_constant(probe)


def test_lines_stay_where_they_are() -> None:
    some = probed("if (a == 37 &&\n b) b = 0;")
    assert some.text.count("\n") == some.edited.text.count("\n")
    assert sorted(probe.line for probe in some.probes) == [3, 4]
    assert "if (a == gemmgen_at<" in some.text
    assert "gemmgen_truth<" in some.text
    assert some.without([4]).text == some.text.replace("gemmgen_truth<0>(b)", "b")


def test_what_a_condition_lacks() -> None:
    one = Probe(0, 3, "comparison", "a == 37")
    assert complaint(one, FALSE) == "`a == 37` was never true"
    assert complaint(one, TRUE) == "`a == 37` was never false"
    assert complaint(one, 0) == "`a == 37` was never reached"
    assert complaint(one, TRUE | FALSE) == ""
    assert complaint(Probe(0, 3, "label", "case 3", TRUE), 0) == "`case 3` was never taken"
    assert complaint(Probe(0, 3, "value", "a / 3", TRUE), FALSE) == "`a / 3` was always 0"
    rest = "`a % 999` was always 0, or as it would be without"
    assert complaint(Probe(0, 3, "value", "a % 999", TRUE), FALSE) == rest
    order = "the operands of `min(a, b)` were always in the same order"
    assert complaint(Probe(0, 3, "order", "min(a, b)"), FALSE) == order


def test_constants_of_a_launcher() -> None:
    assert is_constant(Probe(0, 1, "comparison", "kBytes > 48 * sizeof(index_t)"))
    assert not is_constant(Probe(0, 1, "comparison", "kBytes > K"))
