"""`gen tune` on a pretended GPU: what it measures, what it keeps, and what becomes of mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.bench import device
from gen.bench.contenders import Prepared
from gen.bench.device import GpuLost
from gen.bench.work import Work
from gen.device.driver import OutOfMemory
from gen.device.gpus import GPUS
from gen.dispatch import choice, folders, table
from gen.dispatch.ranking import INTERPOLATED, MEASURED, OUTDATED, Product, rank
from gen.errors import CheckError
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_layout
from gen.tune import search
from tests.bench.test_bench import FakeGpu
from tests.conftest import Gen

Times = Callable[[KernelSpec, float], float]


class Gpu(FakeGpu):
    """An H200, whose kernels take what `times` makes of the model's microseconds."""

    multiprocessors, name, uuid = 132, "NVIDIA H200", "GPU-0"
    times: Times
    spoil: Callable[[KernelSpec, np.ndarray], None]
    launched: Callable[[str], None]

    def driver_version(self) -> str:
        return "580.95.05"


class Timed:
    """A kernel that computes with numpy, where its result is looked at."""

    kind = "ours"

    def __init__(self, spec: KernelSpec) -> None:
        self.spec, self.name = spec, spec.name
        model = {each.spec: each.time for each in rank(product(), GPUS["h200"], "sm_90a")}
        self.ms = gpu().times(spec, model.get(spec, 9e6) / 1e6) / 1e3

    def ceiling(self, *_: object) -> str:
        return ""

    def recipes(self, _: object) -> tuple[()]:
        return ()

    def prepare(self, work: Work) -> Prepared:
        gpu().launched(self.name)
        left = 2  # launches of the check

        def queue(_: object, a: int, b: int, d: int) -> None:
            nonlocal left
            gpu().now += self.ms
            gpu().launches.append(self.name)
            if left:
                left -= 1
                for i in range(work.products):
                    result = right(work, i)
                    gpu().spoil(self.spec, result)
                    at = d + i * result.nbytes
                    gpu().write(at, np.ascontiguousarray(result))

        return Prepared(queue)


def right(work: Work, product: int) -> np.ndarray:
    """The right D of one of the products, row-major."""
    a, b = work.matrices(product)
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


_GPUS: list[Gpu] = []


def gpu() -> Gpu:
    return _GPUS[-1]


def product() -> Product:
    return Product.packed(GemmShape(16, 16, 16), parse_dtype("f32"), parse_layout("rrr"))


def as_modelled(_: KernelSpec, us: float) -> float:
    return us


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    """The GPU that `gen` finds; times that a user keeps lie in a folder of the test."""
    found = Gpu()
    found.times, found.spoil, found.launched = as_modelled, lambda *_: None, lambda _: None
    _GPUS[:] = [found]
    monkeypatch.setattr(device, "MeasuredGpu", lambda: found)
    monkeypatch.setattr(search, "Ours", Timed)
    monkeypatch.setattr(search, "cpu_count", lambda: 16)
    monkeypatch.setenv("GEN_TUNED_DIR", str(tmp_path / "tuned"))
    return found


def file() -> Path:
    return folders.target(None) / "h200" / "f32.json"


def tuned(gen: Gen, *options: str, code: int = 0) -> Any:
    out = gen("tune", "--shape", "16", "--candidates", "4", "--json", *options)
    assert out.code == code, out.err
    return json.loads(out.out)


def ranked() -> list[Any]:
    return choice.rank(product(), GPUS["h200"], "sm_90a", None, folders.default())


# --- measuring


def test_the_fastest_is_what_is_chosen_from_then_on(gen: Gen, pretended: Gpu) -> None:
    modelled = rank(product(), GPUS["h200"], "sm_90a")
    third = modelled[2].spec
    pretended.times = lambda spec, us: us / 2 if spec == third else us
    (found,) = tuned(gen)["problems"]
    assert (found["measured"], found["known"], found["failed"]) == (4, 0, [])
    assert found["times"][0]["spec"] == json.loads(third.to_json())
    assert found["gain"] == pytest.approx(2 * modelled[0].time / modelled[2].time, rel=1e-3)
    first, *others = ranked()
    assert (first.spec, first.basis) == (third, MEASURED)
    assert first.time == pytest.approx(modelled[2].time / 2, rel=1e-3)
    assert {each.basis for each in others} == {MEASURED, INTERPOLATED}


def test_nothing_is_measured_twice(gen: Gen, pretended: Gpu) -> None:
    tuned(gen)
    before, pretended.launches = file().read_bytes(), []
    (found,) = tuned(gen)["problems"]
    assert (found["measured"], found["known"], pretended.launches) == (0, 4, [])
    assert file().read_bytes() == before
    (again,) = tuned(gen, "--again")["problems"]
    assert again["measured"] == 4


def test_an_entry_says_what_was_measured_where(gen: Gen) -> None:
    tuned(gen)
    found = table.load(file())
    (run,) = found.runs.values()
    assert (run.device, run.driver, run.arch) == ("NVIDIA H200", "580.95.05", "sm_90a")
    assert run.clocks == {"sm": [1900, 1900], "sm_max": 1980}
    for entry in found.entries:
        assert (entry.gpu, entry.shape, entry.rounds, entry.run) == (
            "h200",
            "16x16x16",
            11,
            run.name,
        )
    lines = file().read_text().splitlines()
    assert sum('"spec"' in line for line in lines) == len(found.entries) == 4


def test_what_cannot_win_is_left_out(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "cpu_count", lambda: 1)
    monkeypatch.setattr(search, "_CAN_WIN", 1.0)
    (found,) = tuned(gen)["problems"]
    assert found["left_out"] == 3
    assert found["measured"] == 1


def test_a_wrong_kernel_has_no_time(gen: Gen, pretended: Gpu) -> None:
    wrong = rank(product(), GPUS["h200"], "sm_90a")[1].spec

    def spoil(spec: KernelSpec, d: np.ndarray) -> None:
        d += spec == wrong

    pretended.spoil = spoil
    (found,) = tuned(gen, code=1)["problems"]
    assert [row["kernel"] for row in found["failed"]] == [wrong.name]
    assert found["measured"] == 3
    assert all(entry.spec != json.loads(wrong.to_json()) for entry in table.load(file()).entries)


def test_a_shape_that_does_not_fit_is_said(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OutOfMemory("the GPU has no memory left; use a smaller shape")

    monkeypatch.setattr(search, "Work", full)
    out = gen("tune", "--shape", "16")
    assert out.code == 0
    assert "out of memory: the GPU has no memory left; use a smaller shape" in out.out


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GpuLost("it hung")])
def test_what_was_measured_is_kept_where_it_ends_early(
    gen: Gen, pretended: Gpu, error: BaseException
) -> None:
    count = 0

    def launched(_: str) -> None:
        nonlocal count
        count += 1
        if count == 6:  # the second kernel of the second shape
            raise error

    pretended.launched = launched
    out = gen("tune", "--shape", "16", "--shape", "24", "--candidates", "4")
    assert out.code == (1 if isinstance(error, CheckError) else 130)
    assert "f32 rrr 16x16x16" in out.out
    assert {entry.shape for entry in table.load(file()).entries} == {"16x16x16"}
    assert "the same command goes on" in out.err or not isinstance(error, CheckError)


def test_rounds_that_were_measured_count_after_an_interruption(gen: Gen, pretended: Gpu) -> None:
    clocks, seen = pretended.clocks, 0

    def read() -> dict[str, int]:
        nonlocal seen
        seen += 1
        if seen == 5:
            raise KeyboardInterrupt
        return clocks()

    pretended.clocks = read  # type: ignore[method-assign]
    assert gen("tune", "--shape", "16", "--candidates", "3").code == 130
    assert [entry.rounds for entry in table.load(file()).entries] == [5, 5, 5]


def test_batches(gen: Gen) -> None:
    (found,) = tuned(gen, "--batch", "3")["problems"]
    assert found["batch"] == 3
    assert all(entry.batch == 3 and entry.spec["batched"] for entry in table.load(file()).entries)


# --- places


def test_times_that_cannot_be_written_now_are_written_later(
    gen: Gen, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tried = folders.write, []

    def write(data: bytes, path: Path) -> None:
        tried.append(path)
        if len(tried) == 1:
            raise folders.UsageError("cannot write it: No space left on device")
        real(data, path)

    monkeypatch.setattr(folders, "write", write)
    out = gen("tune", "--shape", "16", "--shape", "24", "--candidates", "2")
    assert out.code == 0
    assert out.err.startswith("warning: cannot write it: No space left on device; it is tried")
    assert len(table.load(file()).entries) == 4


def test_tables_are_merged_from_files_and_folders(gen: Gen, tmp_path: Path) -> None:
    tuned(gen)
    own = file()
    assert gen("tune", "--merge", str(folders.target(None)), "--into", "all.json").code == 0
    assert Path("all.json").read_bytes() == own.read_bytes()
    monkey = tmp_path / "other"
    out = gen("tune", "--merge", "all.json", "--into", str(monkey), "--json")
    assert json.loads(out.out)["entries"] == 4
    assert (monkey / "h200" / "f32.json").read_bytes() == own.read_bytes()


def test_a_kernel_that_has_changed_is_told_and_measured_again(
    gen: Gen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_CAN_WIN", 0)
    tuned(gen)
    text = file().read_text()
    version = table.load(file()).entries[0].templates
    file().write_text(text.replace(version, "00000000"))
    stale = [each for each in ranked() if each.basis == OUTDATED]
    assert stale
    out = gen("choose", "--shape", "16", "--gpu", "h200")
    assert "outdated" in out.out
    (found,) = tuned(gen)["problems"]
    assert found["measured"] == len(stale)
    assert not [each for each in ranked() if each.basis == OUTDATED]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "no shape is named; use --shape, such as 4096 or 1-64x4096x4096"),
        ("--shape 8x8x0", "shape 8x8x0 has nothing to measure"),
        ("--suite square", "unknown suite 'square'; did you mean squares?"),
        ("--suite mnist --batch 4", "--batch goes with --shape"),
        ("--shape 8 --merge a.json", "--merge measures nothing; leave out --shape"),
        ("--merge a.json", "cannot read a.json: No such file or directory; use a table"),
        ("--shape 8 --dtype f31", "unknown dtype 'f31'"),
        ("--shape 8 --shape 2147483648 --dtype f32 --dtype tf32", "no kernel for sm_90a has tf32"),
        ("--shape 16 --into broken.json", "broken.json is not JSON"),
        ("--shape 16 --into future.json", "has version 2 of the format, and this gen reads"),
        ("--merge results.json", 'results.json has no measured times: "format" is not'),
    ],
)
def test_mistakes(gen: Gen, options: str, message: str) -> None:
    Path("broken.json").write_text("{")
    Path("future.json").write_text('{"format": "gemmgen-tuned", "version": 2}')
    Path("results.json").write_text('{"format": "gemmgen-bench", "version": 1}')
    out = gen("tune", *options.split())
    assert (out.code, out.out) == (2, "")
    assert message in out.err
    assert Path("broken.json").read_text() == "{"
