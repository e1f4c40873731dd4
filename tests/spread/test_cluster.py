"""A real cluster of several processes, of which some are lost."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gen.errors import CheckError, MissingError
from tests import ROOT
from tests.spread.jobs import Compiles, Dies, Fails, Kills, Spoils, Square
from tests.support.cluster import Machines, machines, wait_until
from tests.support.slow import slow

pytest.importorskip("distributed")

from gen.spread.cluster import Cluster


def joined(cluster: Cluster, count: int) -> None:
    """Waits for workers."""

    def there() -> bool:
        cluster._members.look()
        return len(cluster._members) >= count

    wait_until(there)


def awake(cluster: Cluster, log: Path) -> None:
    """Waits until two workers do something: one that has just started imports for some time."""
    joined(cluster, 2)

    def both() -> bool:
        found = cluster.map(Square(log, 0.05), range(8))
        return len({done.process for _, done in found}) == 2

    wait_until(both)


def lines(log: Path, word: str, *but_of: int) -> Counter[str]:
    """How often each item was begun, or ended; not by these processes."""
    found = (line.split() for line in log.read_text().splitlines())
    return Counter(what for did, what, who in found if did == word and int(who) not in but_of)


@pytest.fixture
def cluster(two: Machines) -> Iterator[Cluster]:
    """Two workers, or more if one is just started again."""
    with Cluster(two.address, "cpu") as cluster:
        joined(cluster, 2)
        yield cluster


def test_a_worker_is_killed_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """Its work is done again, and nothing else is; all results come, each once."""
    log = tmp_path / "log"
    found = list(cluster.map(Dies(log, 0.02), range(40)))
    assert sorted((i, done.item) for i, done in found) == [(i, i * i) for i in range(40)]
    (killed,) = re.findall(r"^killed 5 (\d+)$", log.read_text(), re.MULTILINE)
    # What it did last may have been handed over or not.
    others = lines(log, "ended", int(killed))
    taken = {str(i) for i, done in found if done.process == int(killed)}
    assert taken | others.keys() == {str(i) for i in range(40)}
    assert set(others.values()) == {1}
    assert len({done.process for _, done in found}) >= 2


@slow
def test_code_is_compiled_once_and_sent_to_others(tmp_path: Path) -> None:
    """Though each worker has a cache of its own."""
    log = tmp_path / "log"
    with machines(tmp_path, 2, "--no-nanny") as found, Cluster(found.address, "cpu") as cluster:
        awake(cluster, tmp_path / "awake")
        done = dict(cluster.map(Compiles(log, 0.1), range(20)))
    assert set(lines(log, "compiled").values()) == {1}
    assert all(each.cached for each in done.values())
    assert len({each.process for each in done.values()}) == 2


@slow
def test_an_error_ends_the_job_and_keeps_what_was_found(cluster: Cluster, tmp_path: Path) -> None:
    found = []
    with pytest.raises(CheckError, match="item 3 cannot be done"):
        found.extend(cluster.map(Fails(tmp_path / "log", 0.05), range(1000)))
    assert len(lines(tmp_path / "log", "begun")) < 50
    assert [i for i, _ in cluster.map(Square(tmp_path / "log"), [7])] == [0]


@slow
def test_what_ends_one_worker_after_another_is_told(cluster: Cluster, tmp_path: Path) -> None:
    found = {}
    with pytest.raises(CheckError, match="3 has ended one worker after another"):
        found.update(cluster.map(Kills(tmp_path / "log"), range(10)))


@slow
def test_a_worker_whose_gpu_is_lost_is_started_again(cluster: Cluster, tmp_path: Path) -> None:
    joined(cluster, 2)
    found = dict(cluster.map(Spoils(tmp_path / "log", 0.05), range(30)))
    assert sorted(found) == list(range(30))
    spoilt = found[2].process
    after = [done.process for i, done in found.items() if i > 2]
    text = (tmp_path / "log").read_text()
    assert not re.search(rf"begun .* {spoilt}\n", text[text.index(f"ended 2 {spoilt}") :])
    assert len(set(after)) >= 2


@slow
def test_another_version_of_gen_is_told(tmp_path: Path) -> None:
    """At once, or, of a worker that comes later, while others work."""
    other = tmp_path / "other"
    for folder in ("gen", "templates"):
        shutil.copytree(ROOT / folder, other / folder)
    (other / "gen" / "doctor.py").write_text("another one")
    environment = {"PYTHONPATH": str(other)}
    wrong = (
        r"worker tcp://\S+ has gemmgen \S+ \(\w{8}\), and here is \S+ \(\w{8}\); install the same"
    )
    with machines(tmp_path, 0) as found:
        found.start("--no-nanny", env=environment)
        with pytest.raises(MissingError, match=wrong):
            Cluster(found.address, "cpu")
    said: list[str] = []
    with (
        machines(tmp_path, 1, "--no-nanny") as found,
        Cluster(found.address, "cpu", said.append) as cluster,
    ):
        results = cluster.map(Square(tmp_path / "log", 0.02), range(10**5))
        by = {next(results)[1].process}
        found.start("--no-nanny", env=environment)
        while len(said) < 2 and len(by) < 2:
            by.add(next(results)[1].process)
        results.close()
        assert len(by) == 1
        assert said[0].startswith("waiting for a worker at tcp:")
        assert re.fullmatch(rf"{wrong}; it is left out", said[1])
