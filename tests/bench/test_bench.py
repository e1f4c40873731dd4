"""Measuring without a GPU: a pretended one in host memory, contenders that compute with numpy."""

import ctypes
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gen.bench import admission, check, contenders, nvbench, run, sizes, suites, timing
from gen.bench.contenders import Prepared, Recipe, Unsupported
from gen.bench.device import ClockWatch, GpuLost, MeasuredGpu
from gen.bench.peers import table
from gen.bench.peers.cublas import sides
from gen.bench.peers.table import parse_peers
from gen.bench.problem import Problem
from gen.bench.results import OURS, PEER, Header, Results, load, save
from gen.bench.run import Options
from gen.bench.sizes import Batched, parse_size
from gen.bench.timing import EVENTS, GRAPH, Sampler, plan, summarize, turns
from gen.bench.work import Outline, Work, random_elements, sets_needed
from gen.device.driver import OutOfMemory, why_no_gpu
from gen.errors import CheckError, CompileError, MissingError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove import oracle
from gen.spec import numerics
from gen.spec.dtypes import DTYPES, parse_dtype
from gen.spec.problem import GemmShape, group_rows, parse_layout
from tests.conftest import Gen
from tests.support.slow import slow

no_gpu = pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU")

# --- a GPU of numpy arrays ---------------------------------------------------------------------


class _Memory:
    def __init__(self, size: int) -> None:
        self.array = np.zeros(size, np.uint8)
        self.handle = self.array.ctypes.data


class FakeGpu:
    """As much of MeasuredGpu as measuring uses; a launch takes what its kernel says."""

    multiprocessors = 0  # so that no problem fits on them at once
    arch, stream, l2_bytes, name = "sm_90a", SimpleNamespace(handle=0), 4096, "pretended"

    def __init__(self, memory: int = 2**30) -> None:
        self.free_bytes = memory
        self.now = 0.0
        self.launches: list[str] = []

    def room(self, *_: object) -> int:
        return self.multiprocessors

    def allocate(self, size: int) -> _Memory:
        if size > self.free_bytes:
            raise OutOfMemory("the GPU has no memory left; use a smaller shape")
        self.free_bytes -= size
        return _Memory(size)

    def free(self, memory: _Memory) -> None:
        self.free_bytes += memory.array.size

    def write(self, address: int, array: np.ndarray) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: np.ndarray) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        ctypes.memmove(address, pattern * count, len(pattern) * count)

    def sync(self) -> None:
        pass

    def elapsed(self, queue: Callable[[], None], before: Callable[[], None] | None = None) -> float:
        if before:
            before()
        start = self.now
        queue()
        return self.now - start

    def graph(self, queue: Callable[[], None]) -> Any:
        class Graph:
            def launch(self, _: object) -> None:
                queue()

        return Graph()

    def clocks(self) -> dict[str, int]:
        return {"sm": 1900, "sm_max": 1980}


@dataclass
class Fake:
    """A contender that computes with numpy and pretends to take `ms`."""

    name: str = "fake"
    kind: str = PEER
    ms: float = 1.0
    spoil: Callable[[np.ndarray], None] = lambda d: None
    refuse: Exception | None = None
    closed: int = 0
    seen: list[int] = field(default_factory=list)
    spec: Any = None
    only_groups: bool = False

    def ceiling(self, *_: Any) -> str:
        return "fma_f32"

    def recipes(self, _: Outline) -> tuple[Recipe, ...]:
        return ()

    def prepare(self, work: Work) -> Prepared:
        if self.refuse:
            raise self.refuse
        gpu: Any = work.gpu

        def queue(_: object, a: int, b: int, d: int) -> None:
            gpu.now += self.ms * work.shape.k / 64
            gpu.launches.append(self.name)
            self.seen.append(d)
            at = d
            for i in range(work.products):
                result = product(work, i)
                self.spoil(result)
                storage = numerics.pack(
                    result, work.layouts.c, work.problem.ldd, work.dtypes.output.name
                )
                gpu.write(at, storage)
                at += storage.nbytes

        def close() -> None:
            self.closed += 1

        return Prepared(queue, workspace=7, close=close, note="as told")


def product(work: Work, index: int = 0) -> np.ndarray:
    """The right D."""
    a, b = work.matrices(index)
    zero = np.zeros((len(a), work.shape.n), numerics.storage_dtype(work.dtypes.output.name))
    exact = oracle.oracle(a, b, zero, 1, 0, work.dtypes.name)
    if work.dtypes.output.is_float:
        return numerics.from_float64(exact, work.dtypes.output.name)
    return exact


def a_problem(*found: Any, dtype: str = "f32", layout: str = "rrr", shape: str = "64") -> Problem:
    return Problem(parse_dtype(dtype), parse_layout(layout), parse_size(shape), found)


def rows(gpu: FakeGpu, problem: Problem, limit_s: float = 10.0) -> list[Any]:
    options = Options((), (), rounds=3, limit_s=limit_s, nvbench=False)
    real: Any = gpu
    return list(run.measure(real, problem, options, ClockWatch()))


# --- no time without a right result ------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["rrr", "ccc", "rcr"])
def test_a_right_kernel_is_measured(dtype: str, layout: str) -> None:
    fake = Fake()
    (row,) = rows(FakeGpu(), a_problem(fake, dtype=dtype, layout=layout, shape="31x17x64"))
    assert (row.check, row.note, row.workspace, fake.closed) == ("ok", "as told", 7, 1)
    assert row.ms_median == pytest.approx(1)
    assert row.tflops == pytest.approx(2 * 31 * 17 * 64 / 1e-3 / 1e12)
    types = parse_dtype(dtype)
    size = (31 * 64 + 64 * 17) * types.input.size + 31 * 17 * types.output.size
    assert row.gbps == pytest.approx(size / 1e-3 / 1e9)


def _wrong_corner(d: np.ndarray) -> None:
    d[-1, -1] += 1


def _swapped(d: np.ndarray) -> None:
    d[[0, 1]] = d[[1, 0]]


@pytest.mark.parametrize("spoil", [_wrong_corner, _swapped])
@pytest.mark.parametrize("shape", ["64", "5x3x64", "600x500x256"])
def test_a_wrong_kernel_gets_no_time(spoil: Any, shape: str) -> None:
    fake, right = Fake("wrong", spoil=spoil), Fake("right")
    by_name = {r.contender: r for r in rows(FakeGpu(), a_problem(fake, right, shape=shape))}
    wrong = by_name["wrong"]
    assert (wrong.check, wrong.ms_median, wrong.tflops, fake.closed) == ("wrong", None, None, 1)
    assert "are wrong" in wrong.note
    assert by_name["right"].ms_median


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "f16", "i8"])
def test_what_was_not_written_is_noticed(dtype: str) -> None:
    work = Work(FakeGpu(), parse_dtype(dtype), parse_layout("rrr"), GemmShape(8, 8, 4))  # type: ignore[arg-type]
    work.poison(0)
    wanted = check.all_expected(work)
    assert check.check(work, Prepared(lambda *_: None), wanted) == (
        "64 of 64 elements of D were not written"
    )


@pytest.mark.parametrize(("dtype", "layout"), [("f32", "rcr"), ("i8", "ccc"), ("bf16", "crc")])
def test_all_products_of_a_batch_are_checked(dtype: str, layout: str) -> None:
    calls = []

    def spoil(d: np.ndarray) -> None:
        calls.append(1)
        if len(calls) == 10:  # the last of five, the second time
            d[-1, 0] += 3

    right, wrong = Fake("right"), Fake("wrong", spoil=spoil)
    problem = a_problem(right, wrong, dtype=dtype, layout=layout, shape="5x31x17x8")
    by_name = {row.contender: row for row in rows(FakeGpu(), problem)}
    assert by_name["right"].shape == "5x31x17x8"
    assert by_name["right"].tflops == pytest.approx(5 * 2 * 31 * 17 * 8 / (8 / 64) / 1e9)
    assert by_name["wrong"].check == "wrong"
    assert by_name["wrong"].note.startswith("product 4: D[30, 0] is ")


def test_a_product_that_was_not_written_is_noticed() -> None:
    work = Work(FakeGpu(), parse_dtype("f16"), parse_layout("rrr"), Batched(8, 8, 4, 3))  # type: ignore[arg-type]
    work.gpu.write(work.pointers(0)[2], np.zeros(64, np.float16))

    def first_alone(_: object, a: int, b: int, d: int) -> None:
        work.gpu.write(d, np.zeros(64, np.float16))

    assert check.check(work, Prepared(first_alone), []) == (
        "product 1: 64 of 64 elements of D were not written"
    )


@slow
def test_of_a_large_batch_some_products_are_compared() -> None:
    work = Work(FakeGpu(), parse_dtype("f16"), parse_layout("rrr"), Batched(512, 512, 2, 1000))  # type: ignore[arg-type]
    compared = [one.product for one in check.all_expected(work)]
    assert compared[0] == 0
    assert compared[-1] == 999
    assert len(compared) == 2**26 // 2**19


def test_products_of_a_batch_are_groups_of_rows() -> None:
    batch = sizes.problem(Batched(3, 5, 7, products=4), parse_layout("rcr"))
    groups = sizes.as_groups(batch)
    a = np.arange(4 * 3 * 7, dtype=np.float32).reshape(4, 3, 7)
    rows = numerics.pack(a.reshape(12, 7), True, groups.lda, "f32")
    np.testing.assert_array_equal(rows, numerics.pack(a, True, batch.lda, "f32", 3 * 7))
    assert (groups.shape, groups.batch.products) == (GemmShape(12, 5, 7), 4)
    assert groups.batch.stride_b == batch.batch.stride_b
    assert group_rows(groups.ends or (), 12) == [(0, 3), (3, 6), (6, 9), (9, 12)]


def test_products_of_a_batch_are_groups_along_k() -> None:
    batch = sizes.problem(Batched(3, 5, 7, products=4), parse_layout("crc"))
    groups = sizes.as_groups(batch, along_k=True)
    a = np.arange(4 * 3 * 7, dtype=np.float32).reshape(4, 3, 7)
    columns = numerics.pack(a.transpose(1, 0, 2).reshape(3, 28), False, groups.lda, "f32")
    np.testing.assert_array_equal(columns, numerics.pack(a, False, batch.lda, "f32", 3 * 7))
    assert (groups.shape, groups.batch.products) == (GemmShape(3, 5, 28), 4)
    assert groups.batch.matrices("A") == groups.batch.matrices("B") == 1
    assert groups.batch.stride_d == batch.batch.stride_d
    assert group_rows(groups.ends_k or (), 28) == [(0, 7), (7, 14), (14, 21), (21, 28)]


def test_a_kernel_of_one_product_takes_no_batch() -> None:
    ours = contenders.Ours(make_spec("naive", dtype="f32"))
    ours.recipes = lambda _: (lambda: None,)  # type: ignore[method-assign,assignment,return-value]
    (row,) = rows(FakeGpu(), a_problem(ours, shape="2x8x8x8"))
    assert (row.check, "use one that is batched" in row.note) == ("skipped", True)


@pytest.mark.parametrize("text", ["0x8x8x8", "x8x8x8", "-1x8x8x8", "2x8x8x", "2x2x8x8x8"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no size|is not MxNxK"):
        parse_size(text)


def test_a_kernel_that_is_right_only_once_is_wrong() -> None:
    calls = []

    def spoil(d: np.ndarray) -> None:
        calls.append(1)
        d += len(calls) - 1  # as with a counter that is not set back

    (row,) = rows(FakeGpu(), a_problem(Fake(spoil=spoil)))
    assert row.check == "wrong"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unsupported("no such layout"), "skipped"),
        (OutOfMemory("no workspace"), "out of memory"),
        (CheckError("a kernel failed"), "failed"),
    ],
)
def test_who_cannot_take_part_does_not_stop_the_others(error: Exception, status: str) -> None:
    found = rows(FakeGpu(), a_problem(Fake("first", refuse=error), Fake("second")))
    by_name = {row.contender: row for row in found}
    assert (by_name["first"].check, by_name["first"].note) == (status, str(error))
    assert by_name["second"].check == "ok"


def test_a_shape_without_memory_is_a_row_that_says_so() -> None:
    gpu = FakeGpu(memory=1000)
    found = rows(gpu, a_problem(Fake("a"), Fake("b")))
    assert [row.check for row in found] == ["out of memory", "out of memory"]
    assert gpu.free_bytes == 1000


def test_all_memory_comes_back() -> None:
    gpu = FakeGpu()
    before = gpu.free_bytes
    rows(gpu, a_problem(Fake(), Fake("wrong", spoil=_swapped)))
    assert gpu.free_bytes == before


def test_a_slow_kernel_is_measured_less_often_and_says_so() -> None:
    (row,) = rows(FakeGpu(), a_problem(Fake(ms=600)), limit_s=1)
    assert (row.rounds, row.launches, row.method) == (1, 1, "events")
    assert "slow: measured once, not 3" in row.note
    assert (row.ms_spread, row.noise) == (None, None)  # not known, not zero


def test_a_slow_kernel_is_launched_no_more_than_needed() -> None:
    gpu = FakeGpu()
    (row,) = rows(gpu, a_problem(Fake(ms=300)), limit_s=1)
    assert (row.rounds, row.noise) == (3, 0)
    assert len(gpu.launches) == 2 + 1 + 3  # the check, the estimate, the rounds


def test_sums_in_f16_are_checked_where_they_are_exact() -> None:
    seen = []

    class Seeing(Fake):
        def prepare(self, work: Work) -> Prepared:
            seen.append(work.matrices()[0])
            return super().prepare(work)

    def off_by_one(d: np.ndarray) -> None:
        d[3, 5] += 1

    fakes = Seeing("right"), Fake("wrong", spoil=off_by_one)
    gpu = FakeGpu()
    found = {
        r.contender: r for r in rows(gpu, a_problem(*fakes, dtype="f16_f16", shape="64x64x4096"))
    }
    assert (found["right"].check, found["wrong"].check) == ("ok", "wrong")
    assert set(np.unique(seen[0])) == {-1, 0, 1}


def test_what_was_drawn_comes_back_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.bench.work.exact_in_check", lambda _: True)
    gpu = FakeGpu()
    work = Work(gpu, parse_dtype("f16"), parse_layout("rrr"), GemmShape(8, 8, 8))  # type: ignore[arg-type]
    drawn = work.matrices()[0].copy()

    def stored(index: int) -> np.ndarray:
        found = np.empty_like(drawn)
        gpu.read(work.pointers(index)[0], found)
        return found

    with work.provable():
        np.testing.assert_array_equal(stored(0), work.matrices()[0])
        assert (stored(0) != drawn).any()
        np.testing.assert_array_equal(stored(1), drawn)
    np.testing.assert_array_equal(stored(0), drawn)


@pytest.mark.parametrize("k", [128, 4096, 16384])
def test_a_sample_meets_every_tile(k: int) -> None:
    found = check._sample(16384, k, parse_dtype("f32"))
    assert set(found // 64) == set(range(256))
    assert (found[0], found[-1]) == (0, 16383)


def test_a_sample_has_a_price() -> None:
    for dtype, k, wanted in (("f64", 16384, 128), ("f32", 2**18, 64), ("f32", 1, 256)):
        assert len(check._sample(2**20, k, parse_dtype(dtype))) == wanted
    assert len(check._sample(50, 2**18, parse_dtype("f32"))) == 50


def test_a_kernel_far_beyond_the_limit_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_PROBE_ABOVE", 0)
    monkeypatch.setattr(admission, "_PROBE_K", 4)
    gpu = FakeGpu()
    (row,) = rows(gpu, a_problem(Fake("endless", kind=OURS, ms=60_000)))
    assert (row.check, row.ms_median) == ("skipped", None)
    assert row.note == "would take about 60 s, more than the limit of 10 s"
    assert gpu.launches == ["endless"] * 2  # the short tries


def test_a_first_launch_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_PROBE_ABOVE", 0)
    monkeypatch.setattr(admission, "_PROBE_K", 4)
    gpu = FakeGpu()
    slow_at_first = Fake("slow at first", kind=OURS, ms=60_000)
    launched = gpu.elapsed

    def elapsed(*given: Any, **more: Any) -> float:
        ms = launched(*given, **more)
        slow_at_first.ms = 1
        return ms

    monkeypatch.setattr(gpu, "elapsed", elapsed)
    (row,) = rows(gpu, a_problem(slow_at_first))
    assert row.check == "ok"


# --- operands ----------------------------------------------------------------------------------


def test_buffers_rotate_through_more_than_the_cache() -> None:
    assert sets_needed(1, 50_000_000) == 1024  # at most
    assert sets_needed(10_000_000, 50_000_000) == 10
    assert sets_needed(500_000_000, 50_000_000) == 1
    fake = Fake(ms=0.01)
    gpu = FakeGpu()
    rows(gpu, a_problem(fake, shape="8x8x64"))
    work = Work(gpu, parse_dtype("f32"), parse_layout("rrr"), GemmShape(8, 8, 64))  # type: ignore[arg-type]
    assert work.sets == 2
    counts = Counter(fake.seen[10:])
    assert len(counts) == 2
    assert max(counts.values()) - min(counts.values()) <= 0.1 * sum(counts.values())


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "i32"])
def test_data_is_random_and_never_zeros(dtype: str) -> None:
    values = numerics.to_float64(random_elements(np.random.default_rng(0), 5000, dtype), dtype)
    assert np.count_nonzero(values) > 4900
    assert abs(np.mean(values)) < 0.05 * np.max(np.abs(values))
    if numerics.is_float(dtype):
        assert 0.49 < np.max(np.abs(values)) <= 0.5


# --- the timer ---------------------------------------------------------------------------------


def test_contenders_take_turns_and_start_in_turn() -> None:
    order = list(turns("abc", {"a": 3, "b": 1, "c": 2}))
    assert order == [(0, "a"), (0, "b"), (0, "c"), (1, "c"), (1, "a"), (2, "a")]
    assert list(turns([], {})) == []


def test_interleaving_keeps_each_ones_samples() -> None:
    log: list[str] = []

    def sampler(name: str, ms: float) -> Sampler:
        def sample() -> float:
            log.append(name)
            return ms

        return Sampler(sample, 3)

    found = timing.interleave({"a": sampler("a", 1), "b": sampler("b", 2)}, lambda: log.append("|"))
    assert found == {"a": [1, 1, 1], "b": [2, 2, 2]}
    assert "".join(log) == "ab|ba|ab|"


def test_the_gpu_rests_before_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[object] = []
    monkeypatch.setattr(timing.time, "sleep", log.append)
    samplers = {name: Sampler(lambda n=name: log.append(n) or 1.0, 2) for name in "ab"}  # type: ignore[misc]
    timing.interleave(samplers, rest_s=0.05)
    assert log == [0.05, "a", 0.05, "b", 0.05, "b", 0.05, "a"]


def test_a_contender_does_its_own_work_before_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(len(log)))  # a second for each
    samplers = {
        name: Sampler(lambda n=name: log.append(n) or float(len(log)), 2)  # type: ignore[misc]
        for name in "ab"
    }
    found = timing.interleave(samplers, settle_s=3)
    assert "".join(log) == "aaaabbbbbbbbaaaa"
    assert found == {"a": [4, 16], "b": [8, 12]}  # the last ones count


def test_statistics() -> None:
    assert summarize([3.0]) == (3.0, None, None)
    found = summarize([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found == (3.0, 1.0, pytest.approx(1 / 3))  # an outlier moves neither


@pytest.mark.parametrize(
    ("ms", "wanted"),
    [
        (0.002, (GRAPH, 500, 9, True)),
        (0.0005, (GRAPH, 500, 9, True)),
        (0.06, (GRAPH, 83, 9, True)),
        (2.0, (EVENTS, 2, 9, True)),
        (50.0, (EVENTS, 1, 9, False)),
    ],
)
def test_how_a_kernel_is_measured_follows_from_its_time(ms: float, wanted: Any) -> None:
    p = plan(ms, sets=4, rounds=9, limit_s=10)
    assert (p.method, p.launches, p.rounds, p.ahead) == wanted
    assert p.note == ""


def test_a_graph_goes_through_every_set() -> None:
    assert plan(0.04, sets=300, rounds=9, limit_s=10).launches == 300


def test_a_limit_of_time_takes_rounds_away() -> None:
    assert plan(3000, 1, 9, 10).rounds == 3
    assert plan(3000, 1, 9, 10).note == "slow: measured 3 times, not 9"
    assert plan(30_000, 1, 9, 10).rounds == 1


def test_clocks_are_lowest_and_highest() -> None:
    watch = ClockWatch()
    assert watch.summary() == {}
    for sm in (1900, 1980, 1875):
        watch.saw({"sm": sm, "sm_max": 1980})
    assert watch.summary() == {"sm": [1875, 1980], "sm_max": 1980}


# --- whole runs --------------------------------------------------------------------------------


def _header(**changes: Any) -> Header:
    return replace(Header("pretended", "sm_90a", "580", "today", "gen bench"), **changes)


@pytest.fixture
def peers_are(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_peers(*found: Any) -> None:
        monkeypatch.setattr(table, "peers", lambda names, dtypes: list(found))
        monkeypatch.setattr(run, "Ours", lambda spec: Fake(spec.name, OURS, spec=spec))

    return set_peers


OPTIONS = Options(
    specs=(make_spec("naive"), make_spec("tiles")),
    shapes=(GemmShape(8, 8, 64), GemmShape(16, 8, 64)),
    rounds=3,
    nvbench=False,
)


def _bench(results: Results, keep: Any = lambda _: None) -> Results:
    gpu: Any = FakeGpu()
    return run.bench(gpu, OPTIONS, results, keep)


def test_a_run_measures_everyone_on_every_shape(peers_are: Any) -> None:
    peers_are(Fake("cublas", ms=0.5))
    written: list[Results] = []
    ceilings = {"copy": 100.0, "fma_f32": 1e-3}
    done = _bench(Results(_header(ceilings=ceilings)), written.append)
    assert Counter(row.shape for row in done.rows) == {"8x8x64": 3, "16x8x64": 3}
    assert len({row.key for row in done.rows}) == 6
    assert [len(r.rows) for r in written] == [3, 6]  # written as they come
    assert done.header.clocks == {"sm": [1900, 1900], "sm_max": 1980}
    row = done.rows[2]
    assert row.share_of_bandwidth == pytest.approx(row.gbps / 100)
    assert row.share_of_ceiling == pytest.approx(row.tflops / 1e-3)
    assert row.ceiling == "fma_f32"


def test_everything_is_compiled_once_and_before_anything_is_measured(peers_are: Any) -> None:
    log: list[str] = []

    def build(name: str) -> None:
        log.append(name)
        if name == "odd":
            raise CompileError("no good", "")

    class Compiling(Fake):
        def recipes(self, outline: Outline) -> tuple[Recipe, ...]:
            assert outline.problem.shape in OPTIONS.shapes
            if self.name == "refusing":
                raise Unsupported("no")
            return (Recipe(build, (self.name.split()[0],)),)

        def prepare(self, work: Work) -> Prepared:
            log.append("prepared")
            return super().prepare(work)

    said: list[str] = []
    peers_are(*(Compiling(name) for name in ("even", "even too", "odd", "refusing")))
    gpu: Any = FakeGpu()
    run.bench(gpu, OPTIONS, Results(_header()), say=said.append)
    assert sorted(log[:2]) == ["even", "odd"]
    assert log[2:] == ["prepared"] * 2 * 4
    assert said[:3] == [f"compiling, {done} of 2 ready" for done in range(3)]


def test_our_kernels_are_compiled_ahead() -> None:
    outline = Outline("sm_90a", parse_dtype("f32"), parse_layout("rrr"), GemmShape(8, 8, 8))
    (first,), (second,) = (contenders.Ours(make_spec("naive")).recipes(outline) for _ in range(2))
    assert first == second
    assert first() is second()
    with pytest.raises(Unsupported, match="computes linear_bias_gelu, which is not"):
        contenders.Ours(make_spec("mma", epilogue="linear_bias_gelu")).recipes(outline)


def test_a_run_that_was_killed_goes_on(peers_are: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    peers_are(Fake("cublas"))

    class Killed(Exception):
        pass

    def keep_then_die(results: Results) -> None:
        save(results, path)
        raise Killed

    with pytest.raises(Killed):
        _bench(Results(_header()), keep_then_die)
    first = load(path)
    assert {row.shape for row in first.rows} == {"8x8x64"}

    left = run.problems(OPTIONS, first.rows)
    assert [str(p.shape) for p in left] == ["16x8x64"]
    done = _bench(run.resumable(first, _header(date="tomorrow"), "it"))
    assert done.rows[:3] == first.rows
    assert {row.shape for row in done.rows[3:]} == {"16x8x64"}
    assert done.header.date == "today"
    assert run.problems(OPTIONS, done.rows) == []


def test_each_shape_has_what_is_chosen_for_it() -> None:
    named, other = make_spec("naive", dtype="f16"), make_spec("tiles", dtype="f16")
    pair = (named.dtypes, named.layouts)
    options = Options(
        [named], [GemmShape(8, 8, 8), GemmShape(9, 9, 9)], chosen_of=[pair],
        chosen=lambda *of: [named] if of == (*pair, GemmShape(8, 8, 8)) else [other, named],
    )  # fmt: skip
    found = run.problems(options)
    assert [[c.spec for c in p.contenders] for p in found] == [[named], [named, other]]


@no_gpu
def test_the_first_of_the_ranking_is_measured(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Options] = []
    monkeypatch.setattr("gen.cli.bench._compile", lambda options, arch: taken.append(options))
    many, one = ("--shape", "64x4096x4096x64"), ("--shape", "4096")
    assert gen("bench", "--compile-only", "--best", "2", "--dtype", "f16", *many, *one).code == 0
    batch, single = run.problems(taken[0])
    for each, batched in ((batch, True), (single, False)):
        ours = [c.spec for c in each.contenders if c.spec]
        assert len(ours) == 2
        assert {spec.batched for spec in ours} == {batched}
        assert {spec.arch for spec in ours} == {"sm_90a"}
    given = json.loads(gen("choose", "--gpu", "h200", "--dtype", "f16", "--json", *one).out)
    assert [json.loads(spec.to_json()) for spec in ours] == [
        row["spec"] for row in given["ranking"][:2]
    ]


def test_only_who_is_missing_is_measured_again(peers_are: Any) -> None:
    peers_are(Fake("cublas"))
    done = _bench(Results(_header()))
    fewer = replace(done, rows=tuple(r for r in done.rows if r.contender != "cublas"))
    left = run.problems(OPTIONS, fewer.rows)
    assert [[c.name for c in p.contenders] for p in left] == [["cublas"], ["cublas"]]


def test_a_kernel_that_breaks_the_gpu_ends_the_run_and_keeps_its_row(peers_are: Any) -> None:
    class Breaking(Fake):
        def prepare(self, work: Work) -> Prepared:
            def queue(*_: object) -> None:
                raise GpuLost("a kernel failed: illegal address")

            return Prepared(queue)

    peers_are(Breaking("broken"), Fake("later"))
    written: list[Results] = []
    with pytest.raises(GpuLost, match=r"broken on f32 rrr 8x8x64: .* with --resume measures"):
        _bench(Results(_header()), written.append)
    (row,) = written[-1].rows
    assert (row.contender, row.check) == ("broken", "failed")
    left = run.problems(OPTIONS, written[-1].rows)
    assert "later" in [c.name for c in left[0].contenders]
    assert "broken" not in [c.name for c in left[0].contenders]


def test_a_peer_that_is_not_installed_is_a_row_and_is_measured_once_it_is(
    peers_are: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers_are(contenders.Absent("cublas", "pip install it"))
    monkeypatch.setattr(table, "missing", lambda names: dict.fromkeys(names, "pip install it"))
    done = _bench(Results(_header()))
    absent = [row for row in done.rows if row.contender == "cublas"]
    assert [(row.check, row.note) for row in absent] == [
        ("not installed", "it is not installed; pip install it")
    ] * 2
    assert run.resumable(done, _header(), "it") == done
    assert run.problems(OPTIONS, done.rows) == []
    monkeypatch.setattr(table, "missing", lambda names: {})
    peers_are(Fake("cublas"))
    again = run.resumable(done, _header(), "it")
    assert [p.contenders[0].name for p in run.problems(OPTIONS, again.rows)] == ["cublas"] * 2


def test_peers_that_are_not_installed_stand_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "missing", lambda names: {"torch": "pip install torch"})
    found = table.peers(["torch", "cutlass"], parse_dtype("f32"))
    assert [c.name for c in found[:1]] == ["torch"]
    assert all(c.name.startswith("cutlass ") for c in found[1:])
    with pytest.raises(contenders.NotInstalled, match="it is not installed; pip install torch"):
        found[0].prepare(SimpleNamespace())  # type: ignore[arg-type]


def test_results_of_another_gpu_are_not_mixed() -> None:
    with pytest.raises(UsageError, match=r"it was measured with the driver 570, this is 580"):
        run.resumable(Results(_header(driver="570")), _header(), "it")
    with pytest.raises(UsageError, match="with the gpu other, this is pretended"):
        run.resumable(Results(_header(gpu="other")), _header(), "it")


# --- peers -------------------------------------------------------------------------------------


def test_peers_by_name() -> None:
    assert parse_peers("all") == list(table.PEERS)
    assert parse_peers("none") == []
    assert parse_peers("torch, cublas,torch") == ["torch", "cublas"]
    for text, message in (
        ("cublass", "unknown peer 'cublass'; did you mean cublas"),
        ("all,torch", "all stands alone"),
        (",", "--peers is empty"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_peers(text)


@pytest.mark.parametrize("layout", ["rrr", "ccc", "rcr", "crc", "rrc", "ccr"])
def test_cublas_gets_the_matrices_as_they_lie(layout: str) -> None:
    work: Any = Work(FakeGpu(), parse_dtype("f32"), parse_layout(layout), GemmShape(5, 7, 3))  # type: ignore[arg-type]
    left, right, result = sides(work)
    first, second = (work._b, work._a) if work.layouts.c else (work._a, work._b)

    def read(side: Any, storage: np.ndarray) -> np.ndarray:
        matrix = storage.reshape(side.columns, side.ld)[:, : side.rows].T  # column-major
        return matrix.T if side.transposed else matrix

    got = read(left, first) @ read(right, second)
    assert got.shape == (result.rows, result.columns)
    a, b = work.matrices()
    np.testing.assert_allclose(got.T if work.layouts.c else got, a @ b, rtol=1e-5)


# --- NVBench -----------------------------------------------------------------------------------


def test_nvbench_results_are_read(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bench", exc_type=ImportError)

    def summary(tag: str, value: str) -> dict[str, Any]:
        return {"tag": tag, "data": [{"name": "value", "type": "float64", "value": value}]}

    state = {
        "name": "Device=0 kernel=one",
        "device": 0,
        "type_config_index": 0,
        "axis_values": [{"name": "kernel", "type": "string", "value": "one"}],
        "summaries": [
            summary("nv/cold/time/gpu/mean", "2e-05"),
            summary("nv/cold/time/gpu/stdev/relative", "inf"),
            summary("nv/batch/time/gpu/mean", "1.5e-05"),
        ],
        "is_skipped": False,
    }
    axis = {"name": "kernel", "type": "string", "flags": "", "values": [{"input_string": "one"}]}
    content = {
        "devices": [],
        "benchmarks": [
            {"name": "gemm", "index": 0, "devices": [0], "axes": [axis], "states": [state]}
        ],
    }
    path = tmp_path / "nvbench.json"
    path.write_text(json.dumps(content))
    found = nvbench.parse(path)["one"]
    assert found.cold_ms == pytest.approx(0.02)
    assert found.cold_noise is None
    assert found.batch_ms == pytest.approx(0.015)


def test_nvbench_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    times, message = nvbench.measure([make_spec("naive")], GemmShape(8, 8, 8), 1)
    assert times == {}
    assert message.startswith("NVBench failed: ")
    assert "\n" not in message


# --- the commands ------------------------------------------------------------------------------


@no_gpu
@pytest.mark.parametrize("command", [("bench",), ("ceiling",), ("bench", "--peers", "all")])
def test_without_a_gpu_the_commands_say_so(gen: Gen, command: tuple[str, ...]) -> None:
    code, out, err = gen(*command)
    assert (code, out) == (3, "")
    assert err.startswith("error: no GPU to measure on: ")
    assert "gen profile counts what a kernel does without one" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--suite square", "unknown suite 'square'; did you mean squares?"),
        ("--shape 3x4", "shape '3x4' is not MxNxK"),
        ("--shape 0x4x4", "shape 0x4x4 has nothing to measure"),
        ("--suite seeds --largest 3", "no shape has sides of at most 3"),
        ("--tokens 8", "--tokens 8 is for the suite llama; add --suite llama"),
        ("--suite llama --tokens 5", "no shape of the suite llama has 5 tokens"),
        ("--peers blas", "unknown peer 'blas'"),
        ("--resume", "--resume needs --json FILE"),
        ("--dtype f8", "unknown dtype 'f8'"),
        ("--variant none", "unknown variant 'none'"),
        ("--tile 99", "tile=99 is out of range"),
    ],
)
def test_bad_usage_comes_before_the_gpu(gen: Gen, options: str, message: str) -> None:
    code, out, err = gen("bench", *options.split())
    assert (code, out) == (2, "")
    assert message in err


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, peers_are: Any) -> Any:
    """`gen bench` on the pretended GPU."""
    monkeypatch.setattr("gen.bench.device.MeasuredGpu", FakeGpu)
    monkeypatch.setattr(
        "gen.bench.ceiling.ceilings", lambda *_, **__: {"copy": 100.0, "fma_f32": 1e-3}
    )
    monkeypatch.setattr(run, "header", lambda gpu, command, c: _header(ceilings=c))
    monkeypatch.setattr(table, "missing", lambda names: {"torch": "pip install torch"})
    monkeypatch.setattr(nvbench, "installed", lambda: False)
    return peers_are


def test_bench_prints_a_table_and_writes_files(gen: Gen, pretend: Any) -> None:
    pretend(Fake("cublas", ms=0.5), Fake("out", refuse=Unsupported("not here")))
    code, out, err = gen("bench", "--shape", "8x8x64", "--json", "r.json", "--csv", "r.csv")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["shape", "dtype", "layout", "contender"]
    assert "cublas" in lines[1]  # the fastest first
    assert "out on 8x8x64: skipped: not here" in lines
    assert lines[-1] == "pretended, driver 580; clocks seen: sm 1900 to 1900 MHz, sm_max 1980 MHz"
    assert "note: torch is not installed and not measured; pip install torch" in err
    assert "note: NVBench is not installed: no cold and batched times; pip install" in err
    assert "dtype  layout  rows    problems  geometric mean   least  at" in lines
    assert any(line.startswith("f32    rrr     1 to 8         1          0.500x") for line in lines)
    ours = sum("f32" in row.dtypes for row in VARIANTS.values())
    assert len(load(Path("r.json")).rows) == ours + 2
    assert json.loads(Path("r.json").read_text())["against_best_peer"]["classes"]
    assert len(Path("r.csv").read_text().splitlines()) == ours + 3


def test_kernels_are_named_one_by_one(gen: Gen, pretend: Any) -> None:
    pretend()
    specs = [f'{{"variant": "tiles", "tile": {tile}}}' for tile in (8, 16)]
    options = [word for spec in specs for word in ("--spec", spec)]
    assert gen("bench", *options, "--shape", "8x8x64", "--json", "r.json").code == 0
    assert [row.spec["tile"] for row in load(Path("r.json")).rows if row.spec] == [8, 16]
    assert gen("bench", "--spec", "tiles").code == 2
    assert gen("bench", *options, "--variant", "naive", "--shape", "8x8x64", "--json", "s.json")
    assert [row.variant for row in load(Path("s.json")).rows] == ["tiles", "tiles", "naive"]


def test_what_is_said_of_many_shapes_is_said_once(gen: Gen, pretend: Any) -> None:
    pretend(Fake("out", refuse=Unsupported("not here")))
    _, out, _ = gen("bench", "--shape", "8x8x64", "--shape", "4x4x64", "--variant", "naive")
    assert out.splitlines()[-2] == "out on 2 shapes: skipped: not here"


def test_a_wrong_result_is_exit_code_1(gen: Gen, pretend: Any) -> None:
    pretend(Fake("broken", spoil=_swapped))
    code, out, _ = gen("bench", "--shape", "8x8x64", "--variant", "naive", "--quick")
    assert code == 1
    assert "broken on 8x8x64: wrong: D[" in out


def test_resume_measures_what_is_left(gen: Gen, pretend: Any) -> None:
    pretend()
    first = ("bench", "--variant", "naive", "--json", "r.json", "--resume")
    assert gen(*first, "--shape", "8x8x64").code == 0
    before = load(Path("r.json")).rows
    assert gen(*first, "--shape", "8x8x64", "--shape", "4x4x64").code == 0
    after = load(Path("r.json")).rows
    assert after[: len(before)] == before
    assert [row.shape for row in after] == ["8x8x64", "4x4x64"]


def test_what_is_not_installed_is_said_beside_the_table(gen: Gen, pretend: Any) -> None:
    pretend(contenders.Absent("torch", "pip install torch"))
    _, out, _ = gen("bench", "--shape", "8x8x64", "--shape", "4x4x64", "--variant", "naive")
    (line,) = [line for line in out.splitlines() if "torch" in line]
    said = "it is not installed; pip install torch"
    assert line == f"torch on 2 shapes: not installed: {said}"


def test_tokens_choose_shapes(gen: Gen, pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "SUITES", {"llama": (GemmShape(4, 8, 64), GemmShape(8, 8, 64))})
    pretend()
    first = ("bench", "--suite", "llama", "--variant", "naive", "--json", "r.json")
    assert gen(*first, "--tokens", "5-9").code == 0
    assert {row.shape for row in load(Path("r.json")).rows} == {"8x8x64"}


@no_gpu
def test_compiling_alone_takes_no_gpu(
    gen: Gen, peers_are: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    class Compiling(Fake):
        def recipes(self, outline: Outline) -> tuple[Recipe, ...]:
            return tuple(Recipe(build, (f"{self.name} {outline.arch}", i)) for i in range(2))

    def build(name: str, index: int) -> None:
        built.append(name)
        if name.startswith("bad"):
            raise Unsupported("it cannot be built")

    command = ("bench", "--variant", "naive", "--compile-only", "--shape", "8x8x64", "--shape", "9")
    peers_are(Compiling("good"))
    code, out, err = gen(*command)
    assert (code, out) == (0, "compiled 2 of 2 kernels for sm_90a\n")
    assert err.splitlines()[-1] == "compiling, 2 of 2 ready"
    assert built == ["good sm_90a"] * 2
    peers_are(Compiling("bad"))
    code, out, err = gen(*command, "--arch", "sm_80")
    assert (code, out) == (1, "compiled 0 of 2 kernels for sm_80\n")
    assert err.splitlines()[-1] == "2 of 2: it cannot be built"
    assert built[2:] == ["bad sm_80"] * 2


def test_a_place_that_cannot_be_written_shows_at_once(gen: Gen, pretend: Any) -> None:
    fake = Fake()
    pretend(fake)
    Path("folder").mkdir()
    code, _, err = gen("bench", "--shape", "8x8x64", "--json", "folder")
    assert code == 2
    assert "cannot write folder" in err
    assert fake.seen == []


# --- with a GPU --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu() -> MeasuredGpu:
    return MeasuredGpu()


@pytest.mark.gpu
def test_ceilings_are_measured_once(gpu: MeasuredGpu) -> None:
    from gen.bench.ceiling import ceilings

    found = ceilings(gpu, fresh=True)
    assert all(math.isfinite(value) and value > 0 for value in found.values())
    assert ceilings(gpu) == found  # from the cache


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_everyone_is_right_on_the_gpu(gpu: MeasuredGpu, dtype: str) -> None:
    names = [name for name in table.PEERS if name not in table.missing([name])]
    having = [v for v, row in VARIANTS.items() if dtype in row.dtypes]
    options = Options(
        specs=[make_spec(v, dtype=dtype) for v in dict.fromkeys((having[0], having[-1]))],
        # A sum so long that stream-K divides it.
        shapes=[GemmShape(128, 256, 4096), GemmShape(63, 65, 67)],
        peers=names,
        rounds=3,
        nvbench=False,
    )
    done = run.bench(gpu, options, Results(run.header(gpu, "test", {})))
    assert {row.check for row in done.rows} <= {"ok", "skipped"}, [
        (row.contender, row.note) for row in done.rows if row.check not in ("ok", "skipped")
    ]
    assert all(row.ms_median for row in done.rows if row.kind == OURS)


@pytest.mark.gpu
def test_everyone_is_right_on_batches(gpu: MeasuredGpu) -> None:
    names = [name for name in table.PEERS if name not in table.missing([name])]
    specs = [make_spec(v, dtype="f16", layout="rcr", batched=True) for v in ("mma", "gemv")]
    options = Options(specs, [Batched(96, 72, 40, 7)], names, rounds=3, nvbench=False)
    done = run.bench(gpu, options, Results(run.header(gpu, "test", {})))
    timed = {row.contender.split()[0] for row in done.rows if row.ms_median}
    assert {spec.name for spec in specs} | ({"torch", "cublas"} & set(names)) <= timed


@pytest.mark.gpu
def test_nvbench_measures(gpu: MeasuredGpu) -> None:
    if not nvbench.installed():
        pytest.skip("cuda-bench is not installed")
    options = Options([make_spec("tiles")], [GemmShape(1024, 1024, 1024)], rounds=5)
    (row,) = run.bench(gpu, options, Results(run.header(gpu, "test", {}))).rows
    assert all(math.isfinite(ms) and ms > 0 for ms in (row.batch_ms, row.cold_ms))


def test_gpu_asks_for_one() -> None:
    if why_no_gpu() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(MissingError, match="no GPU to measure on"):
        MeasuredGpu()
