"""`gen report`: what it concludes from results, and the page in a real browser."""

import contextlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gen.bench.results import OURS, PEER, WRONG, Header, Results, Row
from gen.bench.sizes import parse_size
from gen.cli import main
from gen.device.gpus import GPUS
from gen.dispatch import folders
from gen.dispatch.ranking import Product, choose
from gen.dispatch.table import Table
from gen.dispatch.table import load as load_table
from gen.errors import UsageError
from gen.kernels.registry import make_spec
from gen.report import (
    bench_pictures,
    markdown,
    model,
    pictures,
    plots,
    roofline,
    sections,
    sources,
    sweep_pictures,
)
from gen.report.conclusions import conclusions
from gen.report.picture import Picture
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout, parse_shape
from gen.tables import count, geometric_mean, number
from tests import ROOT
from tests.conftest import Gen
from tests.support import browser, tuned
from tests.support.slow import slow

SEEDS = ROOT / "docs" / "lab" / "seeds"
HEADER = Header(
    "a test's GPU", "sm_90a", "580", "2026-01-01", "gen bench --suite squares",
    clocks={"sm": [1700, 1980], "sm_max": 1980},
    ceilings={"fma_f32": 60.0, "mma_m16n8k8_f16_f32": 480.0, "copy": 4000.0},
)  # fmt: skip


def row(
    name: str, ms: float | None, shape: str = "64x64x64", kind: str = PEER, **more: object
) -> Row:
    spread = ms * 0.01 if ms else None
    flops = 2 * 64**3
    fields = {"ms_median": ms, "ms_spread": spread, "noise": 0.01 if ms else None}
    fields["tflops"] = flops / ms / 1e9 if ms else None
    return Row(name, kind, "f32", "rrr", shape, **{**fields, **more})  # type: ignore[arg-type]


def ours(variant: str, ms: float | None, shape: str = "64x64x64", **more: object) -> Row:
    spec = make_spec(variant)
    fields = json.loads(spec.to_json())
    return row(spec.name, ms, shape, OURS, **{"variant": variant, "spec": fields, **more})


ROWS = (
    ours("naive", 4.0),
    ours("tiles", 2.0),
    row("cublas", 1.0),
    row("cutlass simt 128x128x8 w32x64 s2", 3.0),
    row("cutlass simt 64x64x8 w32x32 s2", 2.5),
    ours("naive", 9.0, "128x128x128"),
    ours("tiles", 8.0, "128x128x128"),
    row("cublas", 16.0, "128x128x128"),
    ours("naive", 0.5, "1x64x64"),
    ours("rec_tiles", None, check=WRONG, note="D[0, 0] is <b>3</b> & not 4"),
)


def written(name: str, *rows: Row, header: Header = HEADER) -> Path:
    path = Path(name)
    path.write_text(Results(header, rows).to_json())
    return path


# --- what follows from results


def test_standings_are_geometric_means_of_the_best() -> None:
    found = {s.peer: s for s in model.standings(ROWS)}
    assert found["cublas"].ratios == [0.5, 2.0]
    assert found["cublas"].mean == pytest.approx(1.0)
    assert found["cublas"].wins == 1
    # Tile sizes of one library are one peer, at its best.
    assert found["cutlass simt"].ratios == [1.25]
    assert geometric_mean([]) is None


def test_a_wrong_kernel_wins_nothing() -> None:
    fast = replace(ours("tiles", None), check=WRONG, note="wrong")
    (standing,) = model.standings([ours("naive", 4.0), fast, row("cublas", 1.0)])
    assert standing.ratios == [0.25]


def test_differences_within_the_noise() -> None:
    def pair(before: float, after: float) -> model.Pair:
        return model.Pair(row("x", before), row("x", after))

    assert pair(1.0, 1.0).in_noise
    assert pair(1.0, 1.015).in_noise
    assert not pair(1.0, 1.03).in_noise
    assert not pair(1.0, 0.9).in_noise
    assert pair(2.0, 1.0).ratio == 2


def test_files_are_joined_and_what_is_in_two_is_compared(gen: Gen) -> None:
    first = written("1.json", ours("naive", 4.0), row("cublas", 1.0))
    second = written("2.json", ours("naive", 2.0), row("cublas", 1.0, "8x8x8"))
    report = model.load([first, second])
    assert len(report.rows) == 3
    assert [(p.before.ms_median, p.after.ms_median) for p in report.pairs] == [(4.0, 2.0)]
    table = sections.comparison(report.pairs)
    assert table is not None
    assert [cell.text for cell in table.rows[0][-2:]] == ["2.00x", "faster"]


def test_results_of_another_gpu_are_compared_never_mixed(gen: Gen) -> None:
    other = written(
        "1.json", ours("naive", 4.0), row("torch", 9.0), header=replace(HEADER, gpu="B")
    )
    report = model.load([other, written("2.json", ours("naive", 2.0))])
    assert [r.ms_median for r in report.rows] == [2.0]
    assert [p.ratio for p in report.pairs] == [2.0]
    assert report.header.gpu == HEADER.gpu


def test_intensity_counts_each_matrix_once() -> None:
    assert model.intensity(row("x", 1.0, "64x32x16")) == pytest.approx(
        2 * 64 * 32 * 16 / 4 / (64 * 16 + 16 * 32 + 64 * 32)
    )


def test_numbers_as_people_read_them() -> None:
    assert [number(x).text for x in (0.023872, 2549.44, 9.999, 0, None)] == [
        "0.0239", "2,550", "10.00", "0", "-",
    ]  # fmt: skip
    assert [count(x).text for x in (9999, 12_345, 5.24e6, 49.5e9)] == [
        "9,999", "12.3 k", "5.24 M", "49.5 G",
    ]  # fmt: skip


def test_highlighting_loses_nothing() -> None:
    from html import unescape

    text = '#include <a>\nconst int x = 16;  // "a" < b & c\nasm("{%0}");\n'
    marked = sources.highlight(text)
    assert unescape(re.sub(r"</?i[^>]*>", "", marked)) == text
    assert '<i class="k">const</i>' in marked
    assert "<a>" not in marked


# --- the conclusions


def said(*rows: Row) -> list[str]:
    return conclusions(model.combine([model.File("x.json", Results(HEADER, rows), None)]))


def test_a_benchmark_in_words() -> None:
    assert said(*ROWS) == [
        "gemm_rec_tiles_f32_rrr is wrong at 64 a side: D[0, 0] is <b>3</b> & not 4",
        "tiles is 2.0 times as fast as cublas at 128 a side in f32 rrr",
        "of 3 problems in f32 rrr, naive is fastest on 1, cublas on 1, tiles on 1",
        "our best kernel is as fast as cublas on average over 2 problems in f32",
    ]


def test_without_peers_our_kernels_are_compared() -> None:
    assert said(ours("naive", 4.0), ours("tiles", 2.5)) == [
        "tiles is 1.6 times as fast as naive at 64 a side in f32 rrr"
    ]
    assert said(ours("naive", 4.0)) == ["naive takes 4.00 ms at 64 a side in f32 rrr"]
    assert said() == []


def swept(*words: str, gen: Gen) -> list[str]:
    gen("sweep", "--device", "cpu", "--dtype", "f32", *words, "--json", "s.json")
    return conclusions(model.load([Path("s.json")]))


@pytest.mark.slow
def test_a_sweep_in_words(gen: Gen) -> None:
    words = [
        "--variant",
        "naive",
        "--variant",
        "tiles",
        "--axis",
        "side=8,32",
        "--shape",
        "32",
        "--shape",
        "64",
    ]
    assert swept(*words, gen=gen) == [
        "tiles moves the fewest sectors of global memory at all 2 sizes",
        "tiles moves 16 times fewer sectors of global memory than naive at 64 a side, "
        "in blocks of 32 a side",
        "tiles has 12.8 k wavefronts of shared memory at 64 a side, in blocks of 32 a side, "
        "naive has none",
        "tiles executes 1.1 times fewer instructions of warps than naive at 64 a side, "
        "in blocks of 32 a side",
    ]


def test_a_sweep_whose_kernels_share_no_place_compares_their_best(gen: Gen) -> None:
    words = "--variant tiles --variant rec_tiles --axis coarsen=2,4 --axis tile=8,16 --shape 32"
    found = swept(*words.split(), gen=gen)
    assert found[0] == "rec_tiles moves the fewest sectors of global memory at 32 a side"
    assert found[1] == (
        "rec_tiles with coarsen 2, tile 16 moves 1.2 times fewer sectors of global memory "
        "than tiles with tile 16 at 32 a side"
    )


def test_a_sweep_of_one_kernel_says_where_it_is_best_and_what_is_missing(gen: Gen) -> None:
    assert swept(*["--variant", "tiles", "--axis", "tile=8,16", "--shape", "32"], gen=gen) == [
        "tiles moves the fewest sectors of global memory at 32 a side with tile 16"
    ]
    words = "--variant thread_1d --variant block_1d --variant mma --axis side=8 --shape 32"
    *_, missing = swept(*words.split(), gen=gen)
    assert missing.startswith("mma was skipped at 32 a side: mma has no dtype f32")


def test_repeated_measurements_in_words() -> None:
    before = [ours("naive", 4.0), ours("tiles", 2.0), row("cublas", 1.0)]
    after = [ours("naive", 2.0), ours("tiles", 3.0), row("cublas", 1.0)]
    files = [
        model.File(n, Results(HEADER, tuple(r)), None) for n, r in (("a", before), ("b", after))
    ]
    assert conclusions(model.combine(files))[-1] == (
        "of 3 times that were measured twice, 1 have become shorter and 1 longer; "
        "1 differ by no more than the noise"
    )


def test_two_sweeps_in_words() -> None:
    found = conclusions(model.load([SEEDS / "document.json", SEEDS / "h200.json"]))
    assert found[1] == (
        "tiles on NVIDIA H200 is 2.1 times as fast as tiles on an unnamed GPU (document) "
        "at 4096 a side, both at their best"
    )


# --- Markdown


def test_two_sweeps_side_by_side(gen: Gen) -> None:
    files = (str(SEEDS / "document.json"), str(SEEDS / "h200.json"))
    code, out, err = gen("report", *files, "--format", "md", "-o", "-")
    assert (code, err) == (0, "")
    assert "an unnamed GPU (document) → NVIDIA H200" in out
    assert "| 32 | 0.0239 → " in out


def test_the_page_has_the_tables_of_its_files() -> None:
    page = (SEEDS.parent / "seeds.md").read_text()
    report = model.load([SEEDS / "document.json", SEEDS / "h200.json"])
    assert page.endswith("<!-- measured -->\n" + markdown.page(report))
    for picture in re.findall(r"\]\((seeds/[^)]+)\)", page):
        assert (SEEDS.parent / picture).is_file()


def test_markdown_cells_cannot_break_the_table(gen: Gen) -> None:
    path = written("1.json", ours("naive", None, check=WRONG, note="a|b\nc"))
    out = gen("report", str(path), "--format", "md", "-o", "-").out
    assert "| wrong | a\\|b c |" in out


def test_what_no_encoding_has_is_escaped(gen: Gen) -> None:
    path = written("1.json", ours("naive", None, check=WRONG, note="half \ud800 a pair"))
    assert gen("report", str(path), "--format", "md", "-o", "r.md").code == 0
    assert "half \\ud800 a pair" in Path("r.md").read_text()


# --- errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"kernels": [], "gpu": NaN}', "is not JSON: NaN is no finite number"),
        ('{"format": "gemmgen-bench", "version": 1e999}', "is not JSON: 1e999 is no finite number"),
        ("{}", "has no benchmark results"),
        ('{"kernels": [{}], "gpu": "h200"}', "is not what gen profile --json writes"),
        ('{"kernels": [], "gpu": "h200"}', "has no benchmark results"),
    ],
)
@pytest.mark.parametrize("format", ["html", "md"])
def test_what_is_no_result_is_one_line(gen: Gen, text: str, message: str, format: str) -> None:
    Path("x.json").write_text(text)
    code, out, err = gen("report", "x.json", "--format", format)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_missing_file_and_format(gen: Gen) -> None:
    assert "cannot read none.json" in gen("report", "none.json").err
    assert "unknown format 'pdf'" in gen("report", "none.json", "--format", "pdf").err


@slow
def test_counters_alone_are_no_report(gen: Gen) -> None:
    gen("profile", "--variant", "naive", "--shape", "16")
    Path("p.json").write_text(gen("profile", "--variant", "naive", "--shape", "16", "--json").out)
    with pytest.raises(UsageError, match="has counters only"):
        model.load([Path("p.json")])


def test_without_matplotlib_markdown_still_works(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    path = str(written("1.json", *ROWS))
    code, _, err = gen("report", path)
    assert code == 3
    assert "pip install 'matplotlib>=" in err
    assert not Path("report.html").exists()
    assert gen("report", path, "--format", "md").code == 0


# --- HTML


class Strict(HTMLParser):
    """Every element closed in order; collects ids and what refers to something."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self._collect(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._collect(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _collect(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src", "xlink:href"):
                self.references.append(value or "")
            elif name == "aria-labelledby":
                self.references.append(f"#{value}")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of everything: a benchmark twice, sweeps, a profile."""
    pytest.importorskip("matplotlib")

    def gen(line: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert main(line.split()) == 0
        return printed.getvalue()

    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        written("before.json", *(replace(r, ms_median=(r.ms_median or 1) * 2) for r in ROWS))
        more = [row("cublas", 0.1 * n, f"{n}x8x8") for n in range(1, 9)]
        written("now.json", *ROWS, *more)
        Path("p.json").write_text(gen("profile --variant tiles --shape 32 --json"))
        gen("sweep --shape 16 --shape 32 --axis side=2,4 --dtype i32 --device cpu --json s.json")
        files = f"before.json now.json p.json s.json {SEEDS / 'h200.json'}"
        assert gen(f"report {files} -o r.html") == "r.html\n"
        assert {path.name for path in folder.iterdir()} >= {"before.json", "now.json", "r.html"}
    return folder / "r.html"


@slow
def test_the_file_is_whole_and_alone(page: Path) -> None:
    text = page.read_text()
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    for reference in parser.references:
        assert reference == "data:," or (reference[0] == "#" and reference[1:] in parser.ids)
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", text)
    assert "&lt;b&gt;3&lt;/b&gt; &amp; not 4" in text
    assert "Counters on 32x32x32" in text
    assert make_spec("tiles").command in text
    assert "var(--s0)" in text


@slow
def test_the_page_begins_with_words_and_has_few_plots_before_its_tables(page: Path) -> None:
    main = page.read_text().partition("<main")[2]
    assert main.index("<h2") == main.index('<h2 id="conclusions-title">Conclusions')
    assert "tiles is 2.0 times as fast as cublas at 128 a side in f32 rrr" in main
    for section in re.split(r'<section id="', main)[1:]:
        before, table, _ = section.partition("<table")
        folded = before.partition('<details class="more"')[0]
        assert folded.count("<svg") <= 2 or not table
    shown = re.sub(r"<details.*?</details>", "", main, flags=re.DOTALL)
    assert main.count("<svg") > 10 > shown.count("<svg") > 0
    # No title is there twice, neither above sections nor in pictures.
    for titles in (re.findall(r"<h2[^>]*>(.*?)</h2>", main), _titles(main)):
        assert len(titles) == len(set(titles)) > 0
    assert "times fewer" not in re.sub(r"<li>.*?</li>", "", main)
    assert not re.search(r"\b0\.\d+x (fewer|faster)", main)


def _titles(page: str) -> list[str]:
    """What stands above each picture."""
    pictures = [part.partition("</svg>")[0] for part in page.split("<svg ")[1:]]
    found = [re.findall(r"font-weight: 700; [^>]*>([^<]+)<", part) for part in pictures]
    assert all(len(titles) == 1 for titles in found)
    return [title for (title,) in found]


def test_the_same_results_give_the_same_page(gen: Gen) -> None:
    pytest.importorskip("matplotlib")
    path = str(written("1.json", *ROWS))
    texts = [gen("report", path, "-o", "-").out for _ in range(2)]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("format", ["svg", "png"])
def test_pictures_as_files(gen: Gen, format: str) -> None:
    pytest.importorskip("matplotlib")
    code, out, _ = gen("report", str(written("1.json", *ROWS)), "--format", format, "-o", "p/")
    assert code == 0
    files = [Path(line) for line in out.splitlines()]
    assert {f.name.partition(".")[0] for f in files} == {
        "roofline-f32", "squares-f32-rrr", "shapes-f32-rrr",
    }  # fmt: skip
    magic = {"svg": b"<?xml", "png": b"\x89PNG"}[format]
    assert all(f.read_bytes().startswith(magic) for f in files)


def test_a_curve_goes_through_the_rounder_of_nearly_equal_sizes() -> None:
    texts = ("127", "128", "4095", "4096", "4097", "1000", "64x64x65536")
    shapes = {text: parse_shape(text) for text in texts}
    assert bench_pictures._cubes(shapes) == {"128", "4096", "1000"}


LONG = "torch.compile (a long name, of no use to anyone)"
EVERYTHING = [
    # Benchmarks: many contenders with long names, few shapes, one shape.
    [
        *ROWS,
        *(row(f"{LONG} {i}", 1.0 + i / 9, s) for i in range(9) for s in ("64x64x64", "4x4096x9")),
    ],
    [row(LONG, 1.0, f"{n}x8x1048576") for n in range(1, 14)],
    [ours("naive", 4.0)],
]
SWEEPS = {
    "two kernels": "--variant naive --variant tiles --axis side=1,2,4,8 --shape 8 --shape 16x8x9",
    "one point": "--variant tiles --axis tile=8 --shape 16",
    "many sizes": "--variant tiles --axis tile=2,4" + "".join(f" --shape {n}" for n in range(2, 9)),
    "close values": "--variant naive --axis threads=32,64,96,128,160,192,224,256 --shape 8",
    "long places": "--variant mma --variant rec_tiles --axis threadblock=64x64x32,128x64x32 "
    "--axis stages=2,3 --warp 32x32 --shape 16 --shape 32 --dtype f16",
    "two axes": "--variant rec_tiles --variant tiles --axis coarsen=1,2 --axis tile=8,16 --shape 8",
    "words": "--variant mma --axis threadblock=64x64x64,128x128x32 --shape 32 --dtype f16",
}  # fmt: skip


def assert_readable(picture: Picture) -> None:
    """All text is inside of the figure, and no label lies on another."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    drawn: dict[int, Text] = {}
    draw = Text.draw

    def remember(text: Text, *args: Any) -> None:
        drawn[id(text)] = text
        draw(text, *args)

    figure, canvas = picture.figure, FigureCanvasAgg(picture.figure)
    with mock.patch.object(Text, "draw", remember):
        canvas.draw()
    texts = [text for text in drawn.values() if text.get_text().strip() and text.get_visible()]
    boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in texts]
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in boxes:
        assert -1 <= box.x0 <= box.x1 <= width + 1, (picture.name, text)
        assert -1 <= box.y0 <= box.y1 <= height + 1, (picture.name, text)
    for (one, a), (other, b) in combinations(boxes, 2):
        meet = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 3
        assert not meet, (picture.name, one, other)


@pytest.mark.parametrize("rows", EVERYTHING, ids=["many", "long", "one"])
@pytest.mark.slow
def test_pictures_of_benchmarks_are_readable(rows: list[Row]) -> None:
    pytest.importorskip("matplotlib")
    found = bench_pictures.of_benchmarks(
        model.combine([model.File("x", Results(HEADER, tuple(rows)), None)])
    )
    assert found
    for picture in found:
        assert_readable(picture)


@slow
@pytest.mark.parametrize(
    "words",
    [pytest.param(w, id=n, marks=() if n == "two kernels" else slow) for n, w in SWEEPS.items()],
)
def test_pictures_of_sweeps_are_readable(gen: Gen, words: str) -> None:
    pytest.importorskip("matplotlib")
    gen("sweep", "--device", "cpu", *words.split(), "--json", "s.json")
    (file,) = model.load([Path("s.json")]).sweeps
    assert file.sweep
    found = sweep_pictures.of_sweep(file.sweep)
    for picture in found:
        assert_readable(picture)
        # None is empty.
        assert all(axes.lines or axes.patches or axes.collections for axes in picture.figure.axes)
    titles = [picture.figure.get_suptitle() for picture in found]
    assert len(set(titles)) == len(titles)
    # A table says as much as a plot of one point.
    assert bool(found) == ("tile=8 " not in words)


@slow
def test_heat_maps_that_are_compared_have_one_scale(gen: Gen) -> None:
    """A value has one colour in all kernels and element types, and there is a bar to read it."""
    pytest.importorskip("matplotlib")
    words = "--variant naive --variant tiles --axis side=2,32 --shape 32 --shape 64"
    types = ("--dtype", "f32", "--dtype", "f16")
    gen("sweep", "--device", "cpu", *words.split(), *types, "--json", "s.json")
    (file,) = model.load([Path("s.json")]).sweeps
    assert file.sweep
    maps = [
        p.figure for p in sweep_pictures.of_sweep(file.sweep) if p.name.startswith("heat-sectors")
    ]
    assert len(maps) == 2
    cells = []
    for figure in maps:
        naive, tiles, bar = figure.axes
        assert bar.get_label() == "<colorbar>"
        assert bar.get_ylim() == maps[0].axes[2].get_ylim()
        for axes in (naive, tiles):
            for cell, text in zip(axes.patches, axes.texts, strict=True):
                number = float(text.get_text().replace(",", "").replace(" k", "e3"))
                cells.append((number, cell.get_facecolor()[1]))
    # Of these colours, more value has more green, in whichever map.
    greens = [green for _, green in sorted(cells)]
    assert greens == sorted(greens)
    assert len(set(greens)) > 4


def test_labels_of_close_ceilings_do_not_meet() -> None:
    pytest.importorskip("matplotlib")
    ceilings = [roofline.Ceiling(name, at) for name, at in (("a", 485), ("b", 642), ("c", 817))]
    ceilings.append(roofline.Ceiling("d", 65))
    figure = roofline.roofline(
        "t", [plots.Curve("x", [(1, 1), (1000, 500)], 0, False)], ceilings, 4.0
    )
    figure.canvas.draw()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


SORTED = "[...document.querySelectorAll('#all tbody')[0].rows].map(r => r.cells[{}].textContent)"


@pytest.mark.browser
def test_in_a_browser(page: Path) -> None:
    with browser.chromium(str(browser.find())) as tab:
        for width, dark in ((1280, False), (1280, True), (360, False)):
            tab.show(width, 800, dark)
            tab.open(page)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.querySelectorAll('svg').length") > 10
        _sort(tab)
        _filter(tab)
        assert tab.errors == []
        assert tab.requests == [page.as_uri()]


def _sort(tab: browser.Page) -> None:
    tab.show()
    header = "document.querySelectorAll('#all th')[4]"
    assert tab.evaluate(f"{header}.textContent.trim()") == "ms"
    before = [float(text) for text in tab.evaluate(SORTED.format(4))]
    assert before != sorted(before)
    tab.click("#all th:nth-child(5) button")
    assert [float(text) for text in tab.evaluate(SORTED.format(4))] == sorted(before)
    assert tab.evaluate(f"{header}.ariaSort") == "ascending"
    tab.press("Enter")
    assert [float(text) for text in tab.evaluate(SORTED.format(4))] == sorted(before)[::-1]
    assert tab.evaluate(f"{header}.ariaSort") == "descending"
    # From there by keyboard to the next column, whose missing values stay last.
    tab.press("Tab")
    tab.press(" ")
    assert tab.evaluate("document.querySelectorAll('#all th')[5].ariaSort") == "ascending"
    assert tab.evaluate(f"{header}.ariaSort") is None
    tab.evaluate("document.querySelectorAll('#all th button')[0].focus()")
    tab.press("Enter")
    names = tab.evaluate(SORTED.format(0))
    assert names[0] == "cublas"
    assert len(names) == len(before)


def _filter(tab: browser.Page) -> None:
    def type_(words: str) -> tuple[int, str]:
        """How many rows are left, and what is said of it."""
        tab.evaluate(
            f"(i => {{ i.value = {words!r}; i.dispatchEvent(new Event('input')) }})"
            "(document.querySelector('#all .filter input'))"
        )
        rows = "[...document.querySelectorAll('#all tbody')[0].rows].filter(r => !r.hidden)"
        said = tab.evaluate("document.querySelector('#all .filter output').textContent")
        return tab.evaluate(f"{rows}.length"), said

    assert type_("CUBLAS f32") == (10, "10 of 17")
    assert type_("cublas f16") == (0, "0 of 17")
    assert type_("") == (17, "")


@pytest.mark.browser
def test_the_browser_test_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><title>x</title><img src='none.png'><script>undefined_thing()</script>"
    )
    with browser.chromium(str(browser.find())) as tab:
        tab.open(bad)
        assert len(tab.requests) == 2
        assert tab.errors


# --- tuning


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Of three problems, on the first of which the model's first kernel has no time."""
    sides = (GemmShape(n, n, n) for n in (64, 256, 1024))
    problems = [Product.packed(s, parse_dtype("f16"), parse_layout("rcr")) for s in sides]
    problems[1] = replace(problems[1], batch=8)
    found = tuned.table(problems, "h200", 5, seed=3)
    gone = str(problems[0].shape), json.loads(choose(problems[0], GPUS["h200"], "sm_90a").to_json())
    kept = tuple(e for e in found.entries if (e.shape, e.spec) != gone)
    run = tuned.RUN._replace(device="NVIDIA H200")
    known = Table(tuple(e._replace(run=run.name) for e in kept), {run.name: run})
    path = tmp_path / "table.json"
    folders.keep(known, path)
    return path


def test_what_tuning_gained(table: Path) -> None:
    report = model.load([table])
    entries = load_table(table).entries
    ((key, gains),) = report.gains.items()
    assert key == ("f16", "rcr")
    assert [gain.best.shape for gain in gains] == ["8x256x256x256", "1024x1024x1024"]
    for gain, batch in zip(gains, (8, 1), strict=True):
        own = [e for e in entries if e.size.m == parse_size(gain.best.shape).m]
        assert {e.batch for e in own} == {batch}
        assert gain.best.ms_median == pytest.approx(min(e.us for e in own) / 1e3)
        assert gain.ratio >= 1
        assert gain.kernels == 5
    (of_64,) = (row for row in report.rows if row.shape == "64x64x64")
    assert of_64.ms_median == min(e.us for e in entries if e.shape == "64x64x64") / 1e3
    shown = sections.tuned(report)
    assert shown
    assert [line[-1].value for line in shown.rows] == [5, 5]
    text = markdown.page(report)
    assert "- tuning makes 2 problems in f16 rcr " in text
    assert "**What tuning gained**" in text
    (picture,) = pictures.of_gains(report)
    assert picture.name == "tuned-f16-rcr"
    assert picture.caption.endswith("beside the model's first, f16 rcr.")


def test_a_folder_of_tables_is_shown_beside_benchmarks(
    table: Path, tmp_path: Path, gen: Gen
) -> None:
    folder = tmp_path / "tuned"
    folders.keep(load_table(table), folder)
    written("b.json", *ROWS, header=replace(HEADER, gpu="NVIDIA H200"))
    out = gen("report", "b.json", str(folder), "--format", "md", "-o", "-")
    assert out.code == 0, out.err
    assert "**What tuning gained**" in out.out
    assert "`tuned`: GPU: NVIDIA H200" in out.out
    (tmp_path / "nothing").mkdir()
    out = gen("report", str(tmp_path / "nothing"))
    assert (out.code, out.out) == (2, "")
    assert "nothing has no times; use a table of gen tune" in out.err
    table.write_text(table.read_text().replace('"version": 1', '"version": 2'))
    out = gen("report", str(table), "--format", "md")
    assert out.code == 2
    assert "has version 2 of the format, and this gen reads version 1" in out.err
