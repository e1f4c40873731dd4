"""How good the model's first choice is, over problems that nobody chose, on a GPU.

    python -m tests.hardware.choice --measure FOLDER [--problems 300] [--seed 0] [--seconds 540]
    python -m tests.hardware.choice FOLDER

The first draws problems: all types and layouts, sides from 1 to 16384, half of them multiples of
8. For each it measures what `gen choose` has for it, beside `torch.mm`, as `gen bench` does: all
kernels that the model puts within three times of its first, at most 100, and of the others one in
twenty, drawn. It writes a file of `gen bench` for each problem, and goes on where it ended. The
second prints how the first of the ranking compares with the fastest, the best of the first 16 with
the fastest, and the first with PyTorch.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gen.bench import run
from gen.bench.device import MeasuredGpu
from gen.bench.results import OURS, Results, Row, fastest, find, load, save
from gen.bench.sizes import operand_bytes
from gen.device.gpus import GpuModel
from gen.dispatch.ranking import Product, Ranked, model_of, rank
from gen.errors import GenError, UsageError
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.problem import ALL_LAYOUTS, GemmShape, Layouts, parse_layout
from gen.tables import geometric_mean

LARGEST = 16384  # of a side
MOST = 100  # kernels of a problem
WITHIN = 3.0  # times the first's predicted time
OUTSIDE = 20  # one in so many of the others
TUNED = 16  # of the ranking, what `gen tune` would measure
_MEMORY = 6 * 2**30  # bytes of operands, which are there more than once


class Drawn(NamedTuple):
    """A problem: its number gives its file its name."""

    number: int
    dtypes: DTypes
    layouts: Layouts
    shape: GemmShape

    @property
    def file(self) -> str:
        """What its results are called."""
        return f"{self.number:04d}_{self.dtypes.name}_{self.layouts}_{self.shape}.json"


def drawn(count: int, seed: int) -> list[Drawn]:
    """The problems of a seed; the first of many are those of few."""
    numbers = random.Random(seed)
    found: list[Drawn] = []
    while len(found) < count:
        dtypes = DTYPES[numbers.choice(list(DTYPES))]
        layouts = parse_layout(numbers.choice(ALL_LAYOUTS))
        even = numbers.random() < 0.5
        shape = GemmShape(*(_side(numbers, even) for _ in "MNK"))
        if sum(operand_bytes(shape, dtypes)) <= _MEMORY:
            found.append(Drawn(len(found), dtypes, layouts, shape))
    return found


def _side(numbers: random.Random, even: bool) -> int:
    """As many below 128 as above."""
    side = round(LARGEST ** numbers.random())
    return -(-side // 8) * 8 if even else side


def candidates(problem: Drawn, gpu: GpuModel, arch: str, seed: int) -> list[Ranked]:
    """What is measured, in the order of the ranking, which is what `gen choose` has."""
    product = Product.packed(problem.shape, problem.dtypes, problem.layouts)
    ranking = rank(product, gpu, arch)
    near = [one for one in ranking if one.time <= WITHIN * ranking[0].time]
    far = ranking[len(near) :]
    some = random.Random(seed * LARGEST + problem.number).sample(far, -(-len(far) // OUTSIDE))
    kept = {id(one) for one in (*near[: MOST - len(some)], *some)}
    return [one for one in ranking if id(one) in kept]


def measure(
    gpu: MeasuredGpu,
    problems: Iterable[Drawn],
    folder: Path,
    seed: int,
    seconds: float,
    say: Callable[[str], object],
) -> int:
    """Measures problems that have no file yet, until time is up; how many."""
    began, done = time.monotonic(), 0
    model = model_of(gpu.arch, gpu.multiprocessors, gpu.name)
    command = " ".join(sys.argv)
    for problem in problems:
        path = folder / problem.file
        if path.exists():
            continue
        if time.monotonic() - began > seconds:
            break
        specs = [one.spec for one in candidates(problem, model, gpu.arch, seed)]
        options = run.Options(
            specs, [problem.shape], ["torch"], rounds=5, limit_s=1.0, nvbench=False
        )
        empty = Results(run.header(gpu, command, {}))
        found = run.bench(gpu, options, empty)
        # Rows come as they end; the file has them as the model ranks them.
        order = {spec.name: i for i, spec in enumerate(specs)}
        rows = sorted(found.rows, key=lambda row: order.get(row.contender, len(order)))
        save(Results(found.header, tuple(rows)), path)
        done += 1
        say(_line(Outcome.of(problem.file, rows)))
    return done


class Outcome(NamedTuple):
    """Of one problem, shares of the speed of the fastest kernel: 1 is as fast."""

    name: str
    dtype: str
    first: float
    tuned: float
    torch: float | None  # PyTorch's time over the first's
    chosen: str
    best: str
    wrong: int

    @staticmethod
    def of(name: str, rows: Sequence[Row]) -> Outcome:
        """From a file's rows, which are in the order of the ranking."""
        ours = [row for row in rows if row.kind == OURS]
        best, first = fastest(ours), ours[0]
        tuned, peer = fastest(ours[:TUNED]), fastest(find(rows, contender="torch"))
        wrong = sum(row.check in ("wrong", "failed") for row in ours)
        if best is None or tuned is None or not first.ms_median:
            return Outcome(name, first.dtype, 0, 0, None, first.contender, "", wrong)
        least = best.ms_median or 0
        against = (peer.ms_median or 0) / first.ms_median if peer else None
        shares = least / first.ms_median, least / (tuned.ms_median or 1)
        return Outcome(name, first.dtype, *shares, against, first.contender, best.contender, wrong)


def _line(one: Outcome) -> str:
    torch = "-" if one.torch is None else f"{one.torch:.3f}"
    cells = one.name.removesuffix(".json"), f"{one.first:.3f}", f"{one.tuned:.3f}", torch
    return f"| {' | '.join(cells)} | `{one.chosen}` | `{one.best}` |"


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for all, and one for each type."""
    lines = [
        "| types | problems | first, mean | least | best of 16, mean | least | to torch | of |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    groups = {"all": list(outcomes)}
    for one in outcomes:
        groups.setdefault(one.dtype, []).append(one)
    for name, group in groups.items():
        cells: list[str] = []
        for shares in ([one.first for one in group], [one.tuned for one in group]):
            mean = geometric_mean(shares) if all(shares) else 0.0
            cells += [f"{mean or 0:.3f}", f"{min(shares):.3f}"]
        peers = [one.torch for one in group if one.torch]
        against = f"{geometric_mean(peers) or 0:.3f}" if peers else "-"
        lines.append(f"| {name} | {len(group)} | {' | '.join(cells)} | {against} | {len(peers)} |")
    return lines


def report(folder: Path) -> list[str]:
    """The summary, and the problems whose first choice was worst."""
    files = sorted(folder.glob("*.json"))
    outcomes = [Outcome.of(path.name, load(path).rows) for path in files]
    if not outcomes:
        raise UsageError(f"{folder} has no results; measure some with --measure {folder}")
    header = json.loads(files[0].read_text(encoding="utf-8"))["header"]
    wrong = sum(one.wrong for one in outcomes)
    return [
        f"{header['gpu']}, driver {header['driver']}, {header['date']}; {wrong} results were wrong",
        "",
        *summary(outcomes),
        "",
        *worst(outcomes),
    ]


def worst(outcomes: Sequence[Outcome]) -> list[str]:
    """The problems whose first choice was worst."""
    return [
        "| problem | first | best of 16 | against torch | the model's first | the fastest |",
        "|---|--:|--:|--:|---|---|",
        *map(_line, sorted(outcomes, key=lambda one: one.first)[:20]),
    ]


def main(args: Sequence[str]) -> int:
    """Measures, or prints what was measured; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.choice")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=540, help="how long at most")
    given = parser.parse_args(args)
    try:
        if given.measure:
            given.folder.mkdir(parents=True, exist_ok=True)
            problems = drawn(given.problems, given.seed)
            limit = given.seconds
            measure(MeasuredGpu(), problems, given.folder, given.seed, limit, print)
        print("\n".join(report(given.folder)))
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
