"""`gen sweep`: which kernels it runs, what it keeps, what it answers."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gen.bench.results import FAILED, OK, SKIPPED, WRONG, Header, load
from gen.emulator import Counters
from gen.errors import MissingError, SpecError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.spec.problem import GemmShape, parse_shape
from gen.tune import axes, meters, results, tables
from gen.tune.axes import DEFAULT_AXES, DEFAULT_SIZES, DEFAULT_VARIANTS, Cell, SweepPlan
from gen.tune.results import Entry, Sweep, row_of
from tests import ROOT
from tests.conftest import Gen

HEADER = Header("a test's GPU", "sm_90a", "1", "2026-01-01", "gen sweep")
SIDES = (1, 2, 4, 8, 16, 32)
DOCUMENT = ROOT / "docs" / "lab" / "seeds" / "document.json"

# What the lab report printed: milliseconds by size, over threads along a side.
REPORT = {
    "naive": {
        256: (0.56473, 0.13613, 0.054879, 0.031744, 0.026688, 0.023872),
        512: (4.4398, 1.1367, 0.44064, 0.23501, 0.15773, 0.17721),
        1024: (35.417, 9.0106, 3.4307, 1.7674, 1.2336, 1.1299),
        4096: (2549.44, 653.77, 214.05, 148.98, 79.828, 72.097),
    },
    "tiles": {
        256: (2.7026, 0.42278, 0.08176, 0.024095, 0.018592, 0.01696),
        512: (21.337, 3.2758, 0.57011, 0.15664, 0.099935, 0.10003),
        1024: (170.39, 26.046, 4.4598, 1.1589, 0.73126, 0.64396),
        4096: (11434.7, 1634.59, 309.47, 78.99, 44.777, 40.793),
    },
}


class FakeMeter:
    """Times that follow from the cell alone; `trouble` replaces them for one cell."""

    def __init__(self, trouble: Callable[[Cell], str] = lambda _: "") -> None:
        self.header = HEADER
        self.seen: list[Cell] = []
        self.trouble = trouble

    def measure(self, cells: Sequence[Cell]) -> list[Entry]:
        self.seen += cells
        return [self._entry(cell) for cell in cells]

    def _entry(self, cell: Cell) -> Entry:
        check = self.trouble(cell)
        if check:
            return Entry(row_of(cell, check=check, note="made up"), cell.values)
        factor = {"naive": 2.0, "tiles": 1.0}.get(cell.variant, 3.0)
        ms = factor * cell.shape.m / (1 + sum(cell.values.values()))
        return Entry(row_of(cell, ms_median=ms, tflops=1.0), cell.values)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> FakeMeter:
    fake = FakeMeter()
    monkeypatch.setattr(meters, "meter", lambda *_: fake)
    return fake


# --- the plan


def default_plan(*sizes: int) -> SweepPlan:
    return SweepPlan(DEFAULT_VARIANTS, [GemmShape(n, n, n) for n in sizes], DEFAULT_AXES)


def test_the_default_is_the_lab_exercise() -> None:
    cells = default_plan(*DEFAULT_SIZES["gpu"]).cells()
    assert len(cells) == 2 * len(SIDES) * 4
    found = {(c.variant, c.shape.m, c.values["side"]): c.spec for c in cells}
    assert set(found) == {(v, n, s) for v in REPORT for n in REPORT[v] for s in SIDES}
    for (_, _, side), spec in found.items():
        assert spec is not None
        assert spec.dtypes.name == "i32"
        assert spec.threads == (side, side)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_tunable_can_be_an_axis(variant: str) -> None:
    row = VARIANTS[variant]
    kept = {"dtype": row.dtypes[0], "arch": row.default_arch}
    for tunable in row.tunables:
        value = make_spec(variant, **kept).tunables[tunable.name]
        shapes, axes = [GemmShape(8, 8, 8)], {tunable.name: [value]}
        (cell,) = SweepPlan([variant], shapes, axes, [kept["dtype"]], arch=kept["arch"]).cells()
        assert cell.spec is not None
        assert cell.spec.tunables[tunable.name] == value


def test_a_kernel_without_an_axis_runs_once() -> None:
    cells = SweepPlan(["naive", "rec_tiles"], [GemmShape(8, 8, 8)], {"coarsen": [1, 2]}).cells()
    assert [(c.variant, dict(c.values)) for c in cells] == [
        ("naive", {}), ("rec_tiles", {"coarsen": 1}), ("rec_tiles", {"coarsen": 2}),
    ]  # fmt: skip


def test_what_cannot_be_built_is_left_out_with_the_reason(gen: Gen, meter: FakeMeter) -> None:
    args = ("--variant", "rec_tiles", "--axis", "tile=32", "--axis", "coarsen=2,8")
    code, out, _ = gen("sweep", *args, "--dtype", "f64", "--shape", "64", "--arch", "sm_75")
    assert code == 0
    assert [cell.values["coarsen"] for cell in meter.seen] == [2]
    assert "rec_tiles tile 32, coarsen 8 at 64: skipped: " in out
    assert "shared memory" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--axis", "tile"), "axis 'tile' is not NAME=VALUE,VALUE,..., such as tile=8,16,32"),
        (("--axis", "tile=a"), "axis 'tile=a' is not NAME=VALUE,VALUE,..., such as tile=8,16,32"),
        (("--axis", "tiel=8"), "unknown axis 'tiel'; did you mean tile?"),
        (("--axis", "tile=8", "--axis", "tile=16"), "axis 'tile' is given twice"),
        (
            ("--variant", "naive", "--axis", "tile=8"),
            "naive cannot vary 'tile'; use batched, epilogue, side, threads",
        ),
        (("--variant", "naive", "--tile", "8"), "naive cannot vary 'tile'"),
        (("--axis", "side=99"), "none of the sweep's kernels can be built: threads=9801 is out"),
        (("--resume",), "--resume needs --json FILE"),
        (("--dtype", "f31"), "unknown dtype 'f31'; did you mean f32?"),
        (("--format", "pdf"), "unknown format 'pdf'; use one of svg, png"),
        (("--device", "tpu"), "unknown device 'tpu'"),
    ],
)
def test_bad_usage_is_refused_before_anything_runs(
    gen: Gen, args: tuple[str, ...], message: str
) -> None:
    device = () if "--device" in args else ("--device", "cpu")
    code, out, err = gen("sweep", *device, *args)
    assert (code, out) == (2, "")
    assert message in err


# --- running, keeping, resuming


def test_kernels_of_one_place_are_measured_in_turns() -> None:
    empty = Sweep(HEADER, results.merge_axes([DEFAULT_AXES]))
    _, left = results.batches(default_plan(64, 128), empty)
    assert [[c.variant for c in batch] for batch in left] == [["naive", "tiles"]] * 12
    assert all(len({(c.shape, c.values["side"]) for c in batch}) == 1 for batch in left)


def test_a_file_is_also_a_benchmarks(gen: Gen, meter: FakeMeter) -> None:
    assert gen("sweep", "--json", "s.json", "--shape", "64").code == 0
    assert len(load(Path("s.json")).rows) == 12
    assert json.loads(Path("s.json").read_text())["sweep"]["axes"] == {"side": list(SIDES)}
    read = results.load(Path("s.json"))
    assert results.parse(read.to_json()) == read


def test_interrupted_then_resumed(
    gen: Gen, meter: FakeMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(cells: Sequence[Cell]) -> list[Entry]:
        if len(meter.seen) == 6:
            raise KeyboardInterrupt
        return FakeMeter.measure(meter, cells)

    monkeypatch.setattr(meter, "measure", interrupt)
    code, out, _ = gen("sweep", "--json", "s.json", "--shape", "64", "--shape", "32")
    assert code == 130
    assert "naive (i32 rrr): time in ms" in out
    kept = results.load(Path("s.json"))
    assert len(kept.entries) == 6

    again = FakeMeter()
    monkeypatch.setattr(meters, "meter", lambda *_: again)
    shapes = ("--shape", "64", "--shape", "32")
    assert gen("sweep", "--json", "s.json", "--resume", *shapes).code == 0
    assert len(again.seen) == 24 - 6
    assert not {c.spec for c in again.seen if c.shape.m == 32} & {
        make_spec(**e.row.spec) for e in kept.entries if e.row.spec
    }
    whole = results.load(Path("s.json"))
    assert [e.row.key for e in whole.entries] == [
        row_of(cell).key for cell in default_plan(32, 64).cells()
    ]


def test_what_was_wrong_is_measured_again(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = FakeMeter(lambda c: WRONG if c.variant == "tiles" and c.values["side"] == 4 else "")
    monkeypatch.setattr(meters, "meter", lambda *_: bad)
    code, out, _ = gen("sweep", "--json", "s.json", "--shape", "64")
    assert code == 1
    assert "tiles 4 at 64: wrong: made up" in out
    good = FakeMeter()
    monkeypatch.setattr(meters, "meter", lambda *_: good)
    assert gen("sweep", "--json", "s.json", "--resume", "--shape", "64").code == 0
    assert [(c.variant, c.values["side"]) for c in good.seen] == [("tiles", 4)]


def test_another_gpus_file_is_not_gone_on_with(
    gen: Gen, meter: FakeMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    gen("sweep", "--json", "s.json", "--shape", "64")
    monkeypatch.setattr(meter, "header", replace(HEADER, gpu="another"))
    code, _, err = gen("sweep", "--json", "s.json", "--resume", "--shape", "64")
    assert code == 2
    assert "s.json was measured on a test's GPU, not another; use another file" in err


def test_other_axes_are_not_gone_on_with(gen: Gen, meter: FakeMeter) -> None:
    gen("sweep", "--json", "s.json", "--shape", "64")
    args = ("--resume", "--shape", "64", "--variant", "tiles", "--axis", "tile=8")
    code, _, err = gen("sweep", "--json", "s.json", *args)
    assert code == 2
    assert "over the axes side, not tile" in err


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["sweep"].pop("axes"),
        lambda c: c["sweep"]["cells"].pop(),
        lambda c: c["sweep"].update(axes={"side": ["x"]}),
        lambda c: c.update(sweep=7),
        lambda c: c["sweep"]["cells"][0].update(values={}),
        lambda c: c["sweep"]["cells"][0].update(counters={"instructions": -1}),
    ],
)
def test_a_broken_file_is_one_line(
    gen: Gen, meter: FakeMeter, change: Callable[[dict[str, object]], object]
) -> None:
    gen("sweep", "--json", "s.json", "--shape", "64")
    content = json.loads(Path("s.json").read_text())
    change(content)
    Path("s.json").write_text(json.dumps(content))
    code, _, err = gen("report", "s.json", "--format", "md")
    assert code == 2
    assert "s.json is not a complete sweep" in err


def test_without_a_gpu_the_way_out_is_named(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, out, err = gen("sweep", "--device", "gpu")
    assert (code, out) == (3, "")
    assert "no GPU to run on: CUDA_VISIBLE_DEVICES is empty; use --device cpu for" in err


# --- on the emulator


def emulated(variant: str, side: int, size: int, dtype: str = "i32") -> Entry:
    chosen = SweepPlan([variant], [GemmShape(size, size, size)], {"side": [side]}, [dtype])
    (entry,) = meters.EmulatorMeter().measure(chosen.cells())
    return entry


def test_counters_are_those_that_can_be_derived() -> None:
    n, side = 32, 8
    naive, tiles = (emulated(variant, side, n) for variant in ("naive", "tiles"))
    assert (naive.row.check, tiles.row.check) == (OK, OK)
    warps, lines = n * n // 32, side * side // 32  # a warp has 4 rows of 8 threads
    assert lines == 2
    # For each k a warp reads 4 elements of A, in 4 rows, and 8 of B, which are one sector; it
    # stores 4 rows of 8.
    assert naive.counters["sectors"] == warps * (n * (4 + 1) + 4)
    assert naive.counters["wavefronts"] == 0
    # For each tile a thread reads one element of A and of B: 4 rows of 8 each.
    assert tiles.counters["sectors"] == warps * (n // side * (4 + 4) + 4)
    assert tiles.counters["wavefronts"] > 0


def test_a_wrong_kernel_has_no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.source import render as module
    from gen.source.render import Source, render

    def broken(spec: object) -> Source:
        source = render(spec)  # type: ignore[arg-type]
        return replace(source, text=source.text.replace("sum += a * b", "sum -= a * b"))

    monkeypatch.setattr(module, "render", broken)
    entry = emulated("naive", 8, 16)
    assert entry.row.check == WRONG
    assert "the oracle has" in entry.row.note
    assert not entry.counters


def test_a_fault_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.source import render as module
    from gen.source.render import Source, render

    def broken(spec: object) -> Source:
        source = render(spec)  # type: ignore[arg-type]
        return replace(source, text=source.text.replace("if (col >= N) return;", ""))

    monkeypatch.setattr(module, "render", broken)
    entry = emulated("naive", 8, 13)
    assert entry.row.check == FAILED
    assert "naive" in entry.row.note


def test_the_lesson_without_a_gpu(gen: Gen) -> None:
    args = ("--device", "cpu", "--shape", "32", "--axis", "side=4,16", "--json", "s.json")
    code, out, err = gen("sweep", *args)
    assert code == 0
    assert "device: emulator, counters in place of times" in err
    assert "tiles against naive (i32 rrr): sectors of global memory" in out
    # A ratio below 1 is one above 1 the other way round.
    assert "1.81x more" in out
    assert not re.search(r"\b0\.\d+x", out)
    assert "time in ms" not in out
    # naive has no shared memory: neither a table of zeros nor a ratio to them.
    assert "naive (i32 rrr): wavefronts" not in out
    assert "against naive (i32 rrr): wavefronts" not in out
    assert {e.row.ms_median for e in results.load(Path("s.json")).entries} == {None}


# --- the answers


def document() -> tables.Group:
    (group,) = tables.groups(results.load(DOCUMENT))
    return group


def test_what_packs_operands_is_counted_with_the_kernel_that_needs_it() -> None:
    """Launches of several kernels: each has basic blocks of its own."""
    counters = Counters()
    spec = make_spec("mma", dtype="f16")
    assert not meters._run(spec, GemmShape(9, 7, 5), counters)
    alone = Counters()
    assert not meters._run(spec, GemmShape(8, 8, 8), alone)
    found = counters.totals()
    assert found.instructions == sum(found.by_class.values()) > alone.totals().instructions
    assert found.mma == alone.totals().mma > 0


def test_the_documents_figures() -> None:
    for variant, by_size in REPORT.items():
        matrix = tables.pivot(document(), variant, tables.TIME)
        assert matrix.rows == [str(side) for side in SIDES]
        assert matrix.columns == [str(size) for size in by_size]
        for i, line in enumerate(matrix.values):
            assert line == pytest.approx([times[i] for times in by_size.values()])


def test_speed_up_and_best() -> None:
    matrix = tables.speedup(document(), "tiles", tables.TIME)
    assert matrix.values[matrix.rows.index("32")] == pytest.approx(
        [1.408, 1.772, 1.755, 1.767], 1e-3
    )
    assert matrix.values[matrix.rows.index("1")][0] == pytest.approx(0.209, abs=1e-3)
    assert matrix.rows[-1] == "best"
    assert matrix.values[-1][1] == pytest.approx(0.15773 / 0.099935)
    found = tables.best(document(), tables.TIME)
    assert [row[1].text for row in found.rows] == ["32", "16", "32", "32"]
    assert [row[3].text for row in found.rows] == ["32", "16", "32", "32"]


def test_two_axes_on_one_shape_are_a_matrix(gen: Gen, meter: FakeMeter) -> None:
    args = ("--variant", "rec_tiles", "--axis", "coarsen=1,2", "--axis", "tile=8,16")
    out = gen("sweep", *args, "--shape", "64x32x16", "--dtype", "f32").out.splitlines()
    at = out.index("rec_tiles (f32 rrr, 64x32x16): time in ms")
    assert out[at + 1].split() == ["coarsen", "\\", "tile", "8", "16"]
    assert [line.split()[0] for line in out[at + 2 : at + 4]] == ["1", "2"]


def test_axes_and_shapes_are_parsed() -> None:
    assert axes.parse_axis("tile=8,16", ["tile"]) == ("tile", (8, 16))
    two = axes.parse_axis("epilogue=x + b2[row, col],linear", ["epilogue"])
    assert two == ("epilogue", ("x + b2[row, col]", "linear"))
    with pytest.raises(UsageError):
        axes.parse_axis("=8", ["tile"])
    assert tables.short("8x8x8") == "8"
    assert tables.short("8x8x9") == str(parse_shape("8x8x9"))


def test_no_kernel_at_all() -> None:
    with pytest.raises(SpecError, match="none of the sweep's kernels can be built"):
        SweepPlan(["tiles"], [GemmShape(8, 8, 8)], {"tile": [33, 34]}).cells()


def test_skipped_cells_are_kept_as_such(gen: Gen, meter: FakeMeter) -> None:
    gen("sweep", "--json", "s.json", "--shape", "64", "--axis", "side=8,64")
    rows = {(e.row.variant, e.values["side"]): e.row for e in results.load(Path("s.json")).entries}
    assert rows["naive", 64].check == SKIPPED
    assert rows["naive", 64].spec is None
    assert rows["naive", 8].check == OK


def test_plots_need_matplotlib_before_measuring(
    gen: Gen, meter: FakeMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gen import report

    def missing() -> None:
        raise MissingError("plots need the package matplotlib")

    monkeypatch.setattr(report, "require_matplotlib", missing)
    assert gen("sweep", "-o", "plots").code == 3
    assert not meter.seen
