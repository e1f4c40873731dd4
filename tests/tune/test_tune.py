"""`gen tune` on a pretended GPU: what it measures, what it keeps, and what becomes of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from gen.bench import device
from gen.bench.device import GpuLost
from gen.device.driver import OutOfMemory
from gen.device.gpus import GPUS
from gen.dispatch import choice, folders, table
from gen.dispatch.ranking import INTERPOLATED, MEASURED, OUTDATED, Product, rank
from gen.errors import CheckError
from gen.spec.dtypes import DTYPES
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_layout
from gen.tune import search
from gen.tune.outcomes import candidates
from tests import ROOT
from tests.conftest import Gen
from tests.support.pretended import Gpu, Timed, pretend, product
from tests.support.slow import slow


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    """The GPU that `gen` finds; times that a user keeps lie in a folder of the test."""
    found = pretend()
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


def firsts(count: int) -> list[KernelSpec]:
    """Of so many variants each the first: what is measured says nothing of the next one."""
    ranking = rank(product(), GPUS["h200"], "sm_90a")
    variants: dict[str, KernelSpec] = {}
    for each in ranking:
        variants.setdefault(each.spec.variant, each.spec)
    return list(variants.values())[:count]


def test_the_fastest_is_what_is_chosen_from_then_on(gen: Gen, pretended: Gpu) -> None:
    first, _, third = firsts(3)
    modelled = {each.spec: each.time for each in rank(product(), GPUS["h200"], "sm_90a")}
    pretended.times = lambda spec, us: us / 2 if spec == third else us
    (found,) = tuned(gen)["problems"]
    assert (found["measured"], found["known"], found["failed"]) == (4, 0, [])
    assert found["times"][0]["spec"] == json.loads(third.to_json())
    assert found["gain"] == pytest.approx(2 * modelled[first] / modelled[third], rel=1e-3)
    fastest, *others = ranked()
    assert (fastest.spec, fastest.basis) == (third, MEASURED)
    assert fastest.time == pytest.approx(modelled[third] / 2, rel=1e-3)
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
    out = gen("tune", "--shape", "16", "--candidates", "24", "--json")
    (found,) = json.loads(out.out)["problems"]
    # The first of each variant takes as long as the model says, and no other of a variant less.
    variants = [one["spec"]["variant"] for one in found["times"]]
    assert len(variants) == len(set(variants)) == found["measured"]
    assert found["left_out"] == 24 - found["measured"] > 0


def test_the_first_of_each_variant_is_a_candidate() -> None:
    rows = Product.packed(GemmShape(1, 28672, 8192), DTYPES["f16"], parse_layout("rcr"))
    ranking = choice.rank(rows, GPUS["h200"], "sm_90a")
    few = candidates(ranking, 16)
    firsts = {each.spec.variant: each for each in reversed(ranking)}.values()
    near = {each.spec.variant for each in firsts if each.time <= 1.6 * ranking[0].time}
    assert len(near) > 3
    assert near <= {each.spec.variant for each in few}
    assert near > {each.spec.variant for each in ranking[:16]}
    assert [len(candidates(ranking, n)) for n in (1, 2, 16)] == [1, 2, 16]
    assert candidates(ranking, 1) == ranking[:1]
    assert few == [each for each in ranking if each in few]


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


def interrupt(gpu: Gpu, after: int) -> None:
    """Interrupts what measures on a GPU after so many rounds; never after 0."""
    clocks, seen = gpu.clocks, 0

    def read() -> dict[str, int]:
        nonlocal seen
        seen += 1
        if seen == after:
            raise KeyboardInterrupt
        return clocks()

    gpu.clocks = read  # type: ignore[method-assign]


def test_rounds_that_were_measured_count_after_an_interruption(gen: Gen, pretended: Gpu) -> None:
    interrupt(pretended, 5)
    assert gen("tune", "--shape", "16", "--candidates", "3").code == 130
    assert [entry.rounds for entry in table.load(file()).entries] == [5, 5, 5]


@pytest.mark.parametrize(
    ("second", "interrupted", "rounds"),
    [
        (10.2, 0, [33, 33, 11]),
        (10.4, 0, [11, 11, 11]),
        (10.2, 16, [16, 16, 11]),  # after so many rounds of both together
    ],
)
def test_a_close_race_has_more_rounds(
    gen: Gen, pretended: Gpu, second: float, interrupted: int, rounds: list[int]
) -> None:
    specs = firsts(3)
    times = dict(zip(specs, (10, second, 20), strict=True))
    pretended.times = lambda spec, us: times.get(spec, us)
    interrupt(pretended, interrupted)
    code = gen("tune", "--shape", "16", "--candidates", "3").code
    assert code == (130 if interrupted else 0)
    found = {json.dumps(e.spec): e.rounds for e in table.load(file()).entries}
    assert [found[json.dumps(json.loads(spec.to_json()))] for spec in specs] == rounds


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


def test_a_merge_writes_nothing_outside_of_its_folder(gen: Gen, tmp_path: Path) -> None:
    tuned(gen)
    text = file().read_text()
    for name in ("../../evil", str(tmp_path / "evil"), r"a\u0000b", r"\ud800"):
        for field in ("gpu", "dtype"):
            first, _, rest = text.partition(f'"{field}": "')
            Path("theirs.json").write_text(
                f'{first}"{field}": "{name}{rest[rest.index(chr(34)) :]}'
            )
            out = gen("tune", "--merge", "theirs.json", "--into", "a/b/safe")
            assert (out.code, out.out) == (2, "")
            assert "can be no part of a file's name" in out.err
    assert not Path("a").exists()
    assert not list(tmp_path.rglob("evil*"))


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


# --- on a cluster


@slow
def test_workers_share_the_problems_and_one_is_killed(gen: Gen, tmp_path: Path) -> None:
    """The table has what one process would measure, each once."""
    pytest.importorskip("distributed")
    from tests.support.cluster import machines, wait_until

    shapes = [word for side in range(16, 112, 4) for word in ("--shape", str(side))]
    options = ("--candidates", "3", *shapes)
    assert gen("tune", *options, "--into", "here.json").code == 0
    preload = str(ROOT / "tests" / "support" / "pretended_worker.py")
    with machines(tmp_path, 2, "--no-nanny", "--preload", preload) as found:

        def kill() -> None:
            wait_until(Path("there.json").exists)
            found.workers[0].kill()

        killer = Thread(target=kill, daemon=True)
        killer.start()
        out = gen("tune", *options, "--into", "there.json", "--on", found.address)
        killer.join()
    assert out.code == 0, out.err
    here, there = (table.load(Path(f"{name}.json")) for name in ("here", "there"))
    assert [entry.key for entry in there.entries] == [entry.key for entry in here.entries]
    times = [[entry.us for entry in each.entries] for each in (there, here)]
    assert times[0] == pytest.approx(times[1])
    assert len(there.runs) == 1
