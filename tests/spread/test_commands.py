"""`--on` of the commands: what a cluster gives is what one process gives."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import Gen
from tests.support.cluster import Machines, machines, wait_until
from tests.support.slow import slow

pytest.importorskip("distributed")

KERNELS = ("--variant", "tiles", "--variant", "naive", "--dtype", "f32", "--device", "cpu")
SWEEP = ("--device", "cpu", "--shape", "16", "--shape", "24", "--axis", "side=4,8")


def without(text: str, *names: str) -> str:
    """JSON without what may differ from run to run."""
    return re.sub(rf'"({"|".join(names)})": [^\n]*', "", text)


@slow
def test_results_are_those_of_one_process(two: Machines, gen: Gen) -> None:
    """Rows in the same order, and the same files but for date and command."""
    outputs = [gen("sweep", *SWEEP, "--json", "here.json")]
    outputs += [gen("sweep", *SWEEP, "--json", "there.json", "--on", two.address)]
    assert [output.code for output in outputs] == [0, 0]
    assert outputs[0].out == outputs[1].out
    assert re.search(r"^device: emulator, counters in place of times on \d work", outputs[1].err, 8)
    here, there = (Path(f"{name}.json").read_text() for name in ("here", "there"))
    assert without(here, "date", "command") == without(there, "date", "command")

    chosen = ("verify", *KERNELS, "--shape", "5x6x7", "--shape", "33", "--json")
    outputs = [gen(*chosen), gen(*chosen, "--on", two.address)]
    assert [output.code for output in outputs] == [0, 0]
    assert without(outputs[0].out, "seconds") == without(outputs[1].out, "seconds")


@slow
def test_what_is_in_the_file_is_not_measured_again(two: Machines, gen: Gen) -> None:
    assert gen("sweep", *SWEEP[:4], *SWEEP[6:], "--json", "s.json", "--on", two.address).code == 0
    before = json.loads(Path("s.json").read_text())
    marked = [{**row, "note": "kept"} for row in before["rows"]]
    Path("s.json").write_text(json.dumps({**before, "rows": marked}))
    assert gen("sweep", *SWEEP, "--json", "s.json", "--resume", "--on", two.address).code == 0
    rows = json.loads(Path("s.json").read_text())["rows"]
    assert [row["note"] for row in rows] == ["kept"] * 4 + [""] * 4
    assert [row["shape"] for row in rows] == ["16x16x16"] * 4 + ["24x24x24"] * 4


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "somewhere",
            "no scheduler of Dask answers at 'somewhere': it is neither HOST:PORT",
        ),
        ("http://here:80", "no scheduler of Dask answers at 'http://here:80': unknown address"),
        ("cwd.json", "'cwd.json': the file is not one that a scheduler has written"),
    ],
)
def test_no_scheduler(gen: Gen, address: str, reason: str) -> None:
    Path("cwd.json").write_text("{}")
    code, out, err = gen("verify", *KERNELS, "--on", address)
    assert (code, out) == (3, "")
    assert err.startswith("error: ")
    assert reason in err
    assert err.endswith(
        "start one with `dask scheduler`, and workers with `dask worker tcp://HOST:8786 "
        "--nthreads 1`\n"
    )


def test_without_dask_the_extra_is_named(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = gen("verify", *KERNELS, "--on", "tcp://here:8786")
    assert code == 3
    assert re.match(r"error: --on needs distributed, .*: pip install 'distributed>=", err)


@slow
def test_a_worker_with_several_threads_is_refused(tmp_path: Path, gen: Gen) -> None:
    with machines(tmp_path, 0) as found:
        found.start("--no-nanny", threads=2)
        code, _, err = gen("verify", *KERNELS, "--on", found.address)
    assert code == 3
    assert "has 2 threads, and does one thing at a time; start it with --nthreads 1" in err


@slow
@pytest.mark.parametrize("ends", ["client", "scheduler", "worker"])
def test_what_was_found_is_kept(ends: str, tmp_path: Path) -> None:
    """Where somebody presses Ctrl-C, or the scheduler ends, or the only worker for some time."""
    file = tmp_path / "s.json"
    with machines(tmp_path, 1, "--no-nanny") as found:
        sweep = (
            "sweep", "--device", "cpu", "--axis", "side=2,4,8,16", "--json", str(file),
            *(f"--shape={n}" for n in range(8, 40)),
        )  # fmt: skip
        command = Command(tmp_path, *sweep, on=found.address)
        wait_until(lambda: file.is_file() and len(rows(file)) >= 6)
        if ends == "client":
            command.process.send_signal(signal.SIGINT)
            assert command.process.wait(20) == 130
        elif ends == "scheduler":
            found.scheduler.kill()
            assert command.process.wait(60) == 3
            assert f"error: the scheduler at {found.address} has gone" in command.text
        else:
            found.workers[0].kill()
            wait_until(lambda: "no worker is left at" in command.text)
            found.start("--no-nanny")
            assert command.process.wait(120) == 0
            assert len(rows(file)) == 2 * 4 * 32
        assert "Traceback" not in command.text
        assert "time in ms" not in command.text
        assert "naive (i32 rrr): sectors of global memory" in command.text
    keys = [(row["contender"], row["shape"]) for row in rows(file)]
    assert len(keys) == len(set(keys)) >= 6


def rows(file: Path) -> list[dict[str, Any]]:
    """What a file has; it is whole at any time."""
    return list(json.loads(file.read_text())["rows"])


class Command:
    """`gen` in a process of its own."""

    def __init__(self, folder: Path, *args: str, on: str) -> None:
        self._log = folder / "gen.log"
        with self._log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gen", *args, "--on", on], cwd=ROOT, stdout=file, stderr=file
            )

    @property
    def text(self) -> str:
        """What it has printed."""
        return self._log.read_text()
