"""Tables of measured times: their format, where they lie, and writers that end or meet."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.device.gpus import GPUS
from gen.dispatch import folders, table
from gen.dispatch.folders import OWN_WAY_OUT, Places
from gen.dispatch.ranking import Product, model_of
from gen.dispatch.table import Table
from gen.errors import UsageError
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout
from tests import ROOT
from tests.support import tuned
from tests.support.slow import slow

F16 = parse_dtype("f16")
SQUARES = [(64, 64, 64), (128, 128, 128)]  # of `small`


def product(m: int, n: int, k: int, dtype: str = "f16") -> Product:
    return Product.packed(GemmShape(m, n, k), parse_dtype(dtype), parse_layout("rcr"))


def small(seed: int = 0, gpu: str = "h200", *sides: int) -> Table:
    return tuned.table([product(n, n, n) for n in sides or (64, 128)], gpu, 3, seed)


# --- the format


def test_a_table_is_what_it_was_read_from() -> None:
    found = small()
    again = table.parse(found.to_json(), "it")
    assert (again.entries, again.runs) == (found.entries, found.runs)
    assert again.to_json() == found.to_json()
    assert len(found.to_json().splitlines()) == 8 + len(found.entries) + len(found.runs)
    assert Table().to_json() == table.parse(Table().to_json(), "it").to_json()


def test_a_reader_ignores_what_it_does_not_know() -> None:
    content = json.loads(small().to_json())
    content["entries"][0]["watts"] = 700
    content["more"] = content["runs"][tuned.RUN.name]["more"] = 1
    assert table.parse(json.dumps(content), "it").to_json() == small().to_json()


def later(found: Table, us: float) -> Table:
    """The same measured a day later."""
    run = tuned.RUN._replace(date="2096-01-03T00:00:00+00:00")
    entries = tuple(entry._replace(us=us, run=run.name) for entry in found.entries)
    return Table(entries, {run.name: run})


@settings(max_examples=20)
@given(st.permutations(["first", "second", "other"]))
def test_a_merge_has_the_later_of_each_whatever_comes_first(order: list[str]) -> None:
    tables = {"first": small(), "second": later(small(0, "h200", 64), 7.0), "other": small(3, "l4")}
    found = Table()
    for name in order:
        found = found.merged(tables[name])
    again = [entry for entry in found.entries if entry.us == 7.0]
    assert (len(again), len(found.entries)) == (3, 6 + 6)
    assert [entry.key for entry in found.entries] == sorted(entry.key for entry in found.entries)
    assert len(found.runs) == 2
    everything = later(small(), 1.0).merged(small())
    assert list(everything.runs) == ["2096-01-03T00:00:00+00:00 a test's GPU"]  # the other is gone


def edit(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


FIRST = ("entries", 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("version", value=2), "it has version 2 of the format, and this gen reads version 1"),
        (edit("format", value="x"), '"format" is not "gemmgen-tuned"'),
        (edit(*FIRST, "us", value=0), "0 us is no time"),
        (edit(*FIRST, "us", value=1e300), "1e+300 us is no time"),
        (edit(*FIRST, "us", value=10**400), "a field has another type"),
        (edit(*FIRST, "us", value="7"), "a field has another type"),
        (edit(*FIRST, "rounds", value=True), "a field has another type"),
        (edit(*FIRST, "noise", value=float("nan")), "a field has another type"),
        (edit(*FIRST, "shape", value="8x8"), "shape '8x8' is not MxNxK"),
        (edit(*FIRST, "shape", value="0x8x8"), "shape 0x8x8 has nothing to measure"),
        (edit(*FIRST, "run", value="x"), "the run 'x' is not among its runs"),
        (edit(*FIRST, "spec", value={}), "it lacks 'variant'"),
        (edit(*FIRST, "spec", value=3), "it is not a complete table: spec is no object: 3; move"),
        (edit(*FIRST, "spec", value=None), "spec is no object: null"),
        (edit(*FIRST, value=None), "an entry is no object: null"),
        (edit("entries", value=3), 'it is not a complete table: "entries" is no list'),
        (edit("entries", value={}), '"entries" is no list'),
        (edit("runs", value=[]), "it is not a complete table: runs is no object: []"),
        (edit("runs", tuned.RUN.name, value=None), "a test's GPU\" is no object: null"),
        (edit("runs", tuned.RUN.name, "clocks", value=[]), "clocks of the run"),
        (edit("version", value="1"), 'it is not a complete table: "version" is "1", not 1; move'),
        (edit("version", value=True), '"version" is true, not 1'),
        (edit("runs", tuned.RUN.name, "date", value="now"), "the run"),
        (edit("runs", tuned.RUN.name, "multiprocessors", value="x"), "a field of another type"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    content = json.loads(small().to_json())
    change(content)
    with pytest.raises(UsageError) as error:
        table.parse(json.dumps(content), "it")
    assert message in str(error.value)
    assert "; " in str(error.value)


@pytest.mark.parametrize("keys", [(*FIRST, "gpu"), (*FIRST, "spec", "dtype")])
@pytest.mark.parametrize(
    "name", ["../../evil", "/evil", "a/b", "..", ".hidden", "", "a\0b", "\ud800", "a\n", "ä"]
)
def test_names_that_lead_out_of_a_folder_are_refused(keys: Sequence[Any], name: str) -> None:
    content = json.loads(small().to_json())
    edit(*keys, value=name)(content)
    said = f"{json.dumps(name)} can be no part of a file's name; GPUs and element types are called"
    with pytest.raises(UsageError, match=f"is not a complete table: {re.escape(said)}"):
        table.parse(json.dumps(content), "it")


# --- places


def test_a_broken_table_is_a_warning_and_one_that_was_named_an_error(tmp_path: Path) -> None:
    places = tuned.places(tmp_path, small())
    file = tmp_path / "h200" / "f16.json"
    assert places.files(GPUS["h200"], F16) == [file]
    assert places.files(GPUS["h100"], F16) == []
    file.write_text(file.read_text()[:-9])
    with pytest.raises(UsageError, match=r"f16.json is not JSON: .*; move it away"):
        places.lines(GPUS["h200"], F16)
    folders.keep(small(4), tmp_path / "other")
    both = Places((tmp_path, tmp_path / "other"))
    with pytest.warns(RuntimeWarning, match="measured times are left out: .*f16.json is not JSON"):
        (left,) = both.lines(GPUS["h200"], F16)
    assert left.sizes("h200", "rcr") == SQUARES


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it a folder that may not be entered, also for root."""
    real = Path.stat

    def stat(path: Path, **options: Any) -> os.stat_result:
        if folder in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)


# What is wrong with a folder, and what is said of it.
WRONG = {
    "closed/tuned": "cannot read .*closed/tuned: Permission denied; ",
    "file": r"the table .*file does not end in .json; ",
    "loop": "cannot read .*loop: Too many levels of symbolic links; ",
    "n" * 300: "cannot read .*nnn: File name too long; ",
    "flat": r"flat has project.json, and no table where one is looked for, such as h200/f16.json; "
    "name that file, or put it in its place: gen tune --merge .*flat --into FOLDER",
}


@pytest.fixture(params=WRONG, ids=lambda name: name[:9])
def wrong(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """A place where no table can be found, and what is said of it."""
    folders.keep(small(), tmp_path / "closed" / "tuned")
    close(tmp_path / "closed", monkeypatch)
    folders.keep(small(), tmp_path / "flat" / "project.json")
    (tmp_path / "file").write_bytes((tmp_path / "flat" / "project.json").read_bytes())
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path / request.param, WRONG[request.param]


def test_a_users_folder_that_cannot_be_used_is_a_warning_once(
    wrong: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_TUNED_DIR", str(wrong[0]))
    way_out = f"{OWN_WAY_OUT}$" if wrong[1].endswith("; ") else ""
    with pytest.warns(RuntimeWarning, match=f"times are left out: .*{wrong[1]}{way_out}"):
        found = folders.default().lines(GPUS["h200"], F16)
    assert len(found) == 1  # what is shipped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert folders.default().lines(GPUS["h200"], F16) == found
        assert len(folders.default().lines(GPUS["h200"], parse_dtype("f32"))) == 1


def test_a_named_folder_that_cannot_be_used_is_an_error(wrong: tuple[Path, str]) -> None:
    with pytest.raises(UsageError, match=wrong[1]):
        folders.places(str(wrong[0]))


def test_a_file_that_cannot_be_seen_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.keep(small(), tmp_path)
    close(tmp_path / "h200", monkeypatch)
    (tmp_path / "h200" / "f16.json").unlink()
    with pytest.warns(RuntimeWarning, match=r"left out: cannot read .*h200/f16.json: "):
        assert Places((tmp_path,)).lines(GPUS["h200"], F16) == ()


def test_a_named_folder_has_a_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the folder .* has no table; use one of gen tune, or no"):
        folders.places(str(tmp_path))
    folders.keep(small(), tmp_path / "project.json")
    folders.keep(small(0, "l4"), tmp_path)  # which is enough
    assert folders.places(str(tmp_path)).files(GPUS["h200"], F16) == []


def test_what_another_program_adds_is_seen(tmp_path: Path) -> None:
    places = tuned.places(tmp_path, small())
    assert [x.sizes("h200", "rcr") for x in places.lines(GPUS["h200"], F16)] == [SQUARES]
    folders.keep(small(0, "h200", 256), tmp_path)
    assert [len(x.sizes("h200", "rcr")) for x in places.lines(GPUS["h200"], F16)] == [3]


def test_gpus_have_times_of_their_own() -> None:
    names = {model_of("sm_90a", 132, "NVIDIA H200").key: "h200",
             model_of("sm_90a", 66, "NVIDIA H200 MIG 3g.71gb").key: "h200-66sm",
             model_of("sm_80", 108, "NVIDIA A800-SXM4-80GB").key: "nvidia-a800-sxm4-80gb-108sm",
             model_of("sm_80", 108).key: "a100"}  # fmt: skip
    assert all(key == wanted for key, wanted in names.items())


def test_words_in_place_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_TUNED_DIR", str(tmp_path))
    assert folders.places(None).paths == (folders.SHIPPED, tmp_path)
    assert folders.places("none").paths == ()
    assert folders.places("shipped").paths == (folders.SHIPPED,)
    monkeypatch.setenv("GEN_TUNED_DIR", "")
    assert folders.default().paths == (folders.SHIPPED,)
    with pytest.raises(UsageError, match="GEN_TUNED_DIR is empty: there is no place for times"):
        folders.target(None)
    monkeypatch.delenv("GEN_TUNED_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert folders.user_folder() == tmp_path / "gemmgen" / "tuned"
    with pytest.raises(UsageError, match=r"there is no table no.json; use a file or a folder"):
        folders.places("no.json")


def test_shipped_tables_can_be_read() -> None:
    for file in folders.SHIPPED.rglob("*.json"):
        found = table.load(file)
        assert found.to_json() == file.read_text()
        assert list(found.parts()) == [(file.parent.name, file.stem)]


# --- writers

WRITER = """
import sys
from pathlib import Path
from gen.dispatch import folders
from tests.dispatch.test_tables import small
first, last, target = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
for side in range(first, last):
    folders.keep(small(0, "h200", 16 * side), target)
    print(side, flush=True)
"""


def writer(first: int, last: int, target: Path) -> subprocess.Popen[str]:
    """A process that adds three times for each of some shapes."""
    command = [sys.executable, "-c", WRITER, str(first), str(last), str(target)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def shapes(path: Path) -> set[int]:
    return {entry.size.m // 16 for entry in table.load(path).entries}


@slow
def test_two_writers_and_one_that_is_killed(tmp_path: Path) -> None:
    target = tmp_path / "h200.json"
    victim, other = writer(1, 1000, target), writer(2000, 2012, target)
    assert victim.stdout
    for line in victim.stdout:
        said = int(line)
        if said == 10:
            break
    os.kill(victim.pid, signal.SIGKILL)
    said += sum(1 for _ in victim.stdout)
    victim.wait()
    assert other.wait() == 0
    found = shapes(target)
    assert found >= {*range(1, said + 1), *range(2000, 2012)}
    assert found <= {*range(1, said + 2), *range(2000, 2012)}
    folders.keep(small(0, "h200", 16), target)  # clears what the victim may have left
    assert {path.name for path in tmp_path.iterdir()} == {"h200.json", ".h200.json.lock"}


FULL = """
import resource, sys
from pathlib import Path
from gen.dispatch import folders
from gen.errors import UsageError
from tests.dispatch.test_tables import small
target = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (target.stat().st_size, target.stat().st_size))
try:
    folders.keep(small(0, "h200", 256, 512), target)
except UsageError as error:
    print(error)
"""


def test_a_disk_that_takes_no_more_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "h200.json"
    folders.keep(small(), target)
    before = target.read_bytes()
    signal_ = signal.SIGXFSZ  # which Python ignores: writing fails
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", FULL, str(target)], capture_output=True,
                          text=True, env=environment, cwd=ROOT, check=False)  # fmt: skip
    assert done.returncode not in (-signal_, 1), done.stderr
    assert "cannot write" in done.stdout
    assert "File too large; choose another place" in done.stdout
    assert target.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"h200.json", ".h200.json.lock"}


def test_a_writer_waits_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    target = tmp_path / "h200.json"
    monkeypatch.setattr(folders, "PATIENCE", 0.05)
    said = r"another program has held .*lock for 0 s; wait"
    with FileLock(tmp_path / ".h200.json.lock"), pytest.raises(UsageError, match=said):
        folders.keep(small(), target)
    assert not target.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot keep times in .*; use --into PATH"):
        folders.keep(small(), tmp_path / "file" / "h200.json")


def test_a_table_is_read_once_as_long_as_nothing_has_changed(tmp_path: Path) -> None:
    places = tuned.places(tmp_path, small())
    (first,) = places.lines(GPUS["h200"], F16)
    assert places.lines(GPUS["h200"], F16)[0] is first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Places((tmp_path / "nothing",)).lines(GPUS["h200"], F16) == ()
