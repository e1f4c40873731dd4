"""Processes of this machine that share a job."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

import pytest

from gen.errors import CheckError
from gen.spread import processes
from gen.spread.job import Cost
from gen.spread.processes import Processes, free_memory
from tests import ROOT
from tests.conftest import Gen
from tests.spread.jobs import Done, Fails, Kills, Square
from tests.support.cluster import wait_until
from tests.support.slow import slow


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process does nothing alone."""
    monkeypatch.setattr(processes, "_ALONE", -1.0)


def begun(log: Path) -> list[tuple[int, int]]:
    """The items that were begun, and by which process."""
    words = [line.split() for line in log.read_text().splitlines()]
    return [(int(item), int(process)) for did, item, process in words if did == "begun"]


class Grouped(Square):
    """Ten items each need the same."""

    def needs(self, item: int) -> list[Hashable]:
        return [item // 10]


class Long(Square):
    """Items from 2 on take long, and are large."""

    def cost(self, item: int) -> Cost:
        return Cost(60.0 * (item >= 2), 10**9)


class Differ(Square):
    """Every item but the first cannot be done; the later, the sooner that is known."""

    def act(self, item: int) -> None:
        time.sleep(0.3 / item if item else 0)
        if item:
            raise MemoryError if item > 1 else CheckError("item 1 cannot be done")


class Warns(Square):
    """Each process has the same to say."""

    def act(self, item: int) -> None:
        warnings.warn("the disk is full", RuntimeWarning, stacklevel=1)


@pytest.mark.usefixtures("at_once")
@pytest.mark.slow
def test_every_item_is_done_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = list(Processes(3).map(Square(log, 0.02), range(40)))
    assert sorted((i, done.item) for i, done in found) == [(i, i * i) for i in range(40)]
    assert sorted(item for item, _ in begun(log)) == list(range(40))
    workers = {done.process for _, done in found}
    assert len(workers) > 1
    assert os.getpid() not in workers


@pytest.mark.usefixtures("at_once")
@pytest.mark.slow
def test_items_that_need_the_same_go_to_one_process(tmp_path: Path) -> None:
    """Until nothing else is left to do."""
    log = tmp_path / "log"
    list(Processes(2).map(Grouped(log, 0.01), range(60)))
    by = [process for _, process in sorted(begun(log))]
    groups = [set(by[i : i + 10]) for i in range(0, 60, 10)]
    assert sum(len(group) == 1 for group in groups) >= 4
    assert len(set(by)) == 2


class Knows(Square):
    """An item's square is right where a module is known."""

    def act(self, item: int) -> None:
        if "this" not in sys.modules:
            raise CheckError("nobody has imported it")


PREPARED = """
from pathlib import Path
from gen.spread import processes
from tests.spread.test_processes import Knows
processes.prepare("this", "tests.spread.test_processes")
found = list(processes.Processes(2).map(Knows(Path(r"{log}"), 0.0), range(4)))
assert sorted((i, done.item) for i, done in found) == [(i, i * i) for i in range(4)], found
"""


def test_processes_are_made_ready_ahead(tmp_path: Path) -> None:
    """With what they are going to import, which this process has not."""
    code = PREPARED.format(log=tmp_path / "log")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_what_is_quick_is_done_here(tmp_path: Path) -> None:
    found = Processes(8).map(Square(tmp_path / "log"), range(20))
    assert [(i, done.process) for i, done in found] == [(i, os.getpid()) for i in range(20)]


def test_what_takes_long_is_not_begun_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in more processes than there is memory for."""
    here = os.getpid()
    for gigabytes, others in ((9, True), (1, False)):
        monkeypatch.setattr(processes, "free_memory", lambda g=gigabytes: g * 2**30)
        found = dict(Processes(2).map(Long(tmp_path / "log"), range(4)))
        assert [found[i].process == here for i in range(4)] == [True, True, *[not others] * 2]
    assert free_memory() > 10**7


@pytest.mark.usefixtures("at_once")
@pytest.mark.slow
def test_the_error_is_that_of_the_first_item(tmp_path: Path) -> None:
    found: list[tuple[int, Done]] = []
    with pytest.raises(CheckError, match="item 1 cannot be done"):
        found.extend(Processes(3).map(Differ(tmp_path / "log"), range(40)))
    assert [i for i, _ in found] == [0]
    with pytest.raises(CheckError, match="item 3 cannot be done"):
        list(Processes(2).map(Fails(tmp_path / "fails", 0.01), range(1000)))
    assert len(begun(tmp_path / "fails")) < 50


@pytest.mark.usefixtures("at_once")
def test_who_ends_a_process_is_told(tmp_path: Path) -> None:
    ended = r"3 has ended its process \(by SIGKILL\); where memory is scarce, use --jobs 1"
    with pytest.raises(CheckError, match=ended):
        list(Processes(2).map(Kills(tmp_path / "log"), range(10)))


@pytest.mark.usefixtures("at_once")
def test_a_warning_of_several_processes_is_shown_once(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        found = list(Processes(2).map(Warns(tmp_path / "log", 0.05), range(8)))
    assert len({done.process for _, done in found}) == 2
    assert [str(warning.message) for warning in shown] == ["the disk is full"]


@pytest.mark.usefixtures("at_once")
def test_processes_end_with_the_iterator(tmp_path: Path) -> None:
    results = Processes(2).map(Square(tmp_path / "log", 0.05), range(1000))
    next(results)
    at_work = {process for _, process in begun(tmp_path / "log")}
    results.close()
    for process in at_work:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@slow
@pytest.mark.usefixtures("at_once")
def test_verify_gives_what_one_process_gives(gen: Gen) -> None:
    chosen = (
        "verify", "--device", "cpu", "--variant", "naive", "--dtype", "f32", "--dtype", "i32",
        "--shape", "5x6x7", "--shape", "9",
    )  # fmt: skip
    for json_ in ((), ("--json",)):
        outputs = [gen(*chosen, *json_, "--jobs", jobs) for jobs in ("1", "2")]
        texts = [re.sub(r" +\S+ [mu]?s +|\"seconds\": .*", "", out) for _, out, _ in outputs]
        assert texts[0] == texts[1]
        assert [(code, err) for code, _, err in outputs] == [(0, "device: emulator\n")] * 2
    code, out, err = gen(*chosen, "--jobs", "2", "--on", "tcp://here:8786")
    assert (code, out) == (2, "")
    assert err == "error: --on tcp://here:8786 has its own workers; leave out --jobs 2\n"


def group_of(process: Path) -> int | None:
    """The process group of a process, if it is one."""
    with suppress(ValueError, ProcessLookupError):
        return os.getpgid(int(process.name))
    return None


@slow
def test_ctrl_c_prints_what_was_done(tmp_path: Path) -> None:
    """It reaches all processes of a terminal, and none of them has a word to say but the first."""
    command = [sys.executable, "-m", "gen", "verify", "--device", "cpu", "--json", "--jobs", "2"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        running = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=err, start_new_session=True
        )

        def shared() -> bool:
            """The command, the server of its processes, and two of these."""
            return sum(group_of(process) == running.pid for process in Path("/proc").iterdir()) >= 4

        wait_until(shared)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 130
    assert (tmp_path / "err").read_text().startswith("device: emulator\n")
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert json.loads((tmp_path / "out").read_text())["ok"] is False
