"""`gen.matmul` beside `torch.matmul` on problems that nobody chose, as programs have them.

    python -m tests.hardware.untold [--seed 1] [--problems 300] [--jobs 14] [--json FILE]

Draws problems of f16, bf16, f32 and f64, all layouts of A and B, sides from 1 to 16384, half of
them multiples of 8, one in seven a batch. Both products are launched by Python, captured in CUDA
graphs of PyTorch, with as many sets of operands as keep them out of the caches, and replayed in
turns; results are compared. `--jobs` processes first make each call once, so that all kernels are
compiled. Printed are the geometric means of PyTorch's times over ours, and the problems in which
ours takes longest beside PyTorch. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gen.api.views import framework_dtype
from gen.spec.dtypes import DTYPES
from gen.tables import geometric_mean

LARGEST, LARGEST_OF_BATCH = 16384, 1024  # of a side
BATCHES = (2, 3, 8, 16, 48, 64)
MOST_BYTES = 3e9
# The most operations, so that a replay takes milliseconds; and how often a type is drawn.
TYPES = {"f16": (3e12, 5), "bf16": (3e12, 5), "f32": (4e11, 4), "f64": (3e11, 2)}
# Of the largest result, by which both may differ.
APART = {"f16": 2e-2, "bf16": 2e-2, "f32": 1e-4, "f64": 1e-10}

_CACHES = 120e6  # bytes that all sets of operands have together, at least, or there are _SETS
_SETS = 12
_REPLAY_MS, _MOST_LAUNCHES, _ROUNDS = 1.5, 120, 5


class Problem(NamedTuple):
    """Types, layouts of A and B ("rc"), products, and their sizes."""

    dtype: str
    layouts: str
    batch: int
    m: int
    n: int
    k: int

    @property
    def bytes(self) -> float:
        """Of A, B and D."""
        m, n, k = self.m, self.n, self.k
        return float(self.batch * (m * k + k * n + m * n) * DTYPES[self.dtype].input.size)

    @property
    def kind(self) -> str:
        """What it is counted among."""
        even = all(side % 8 == 0 for side in (self.m, self.n, self.k))
        least = "256 and more" if min(self.m, self.n, self.k) >= 256 else "a side below 256"
        return f"{self.dtype}, {'multiples of 8' if even else 'odd'}, {least}"

    def __str__(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{self.dtype} {self.layouts} {batch}{self.m}x{self.n}x{self.k}"


def drawn(count: int, seed: int) -> list[Problem]:
    """The problems of a seed; the first of many are those of few."""
    numbers, found = random.Random(seed), list[Problem]()
    while len(found) < count:
        dtype = numbers.choices(list(TYPES), [often for _, often in TYPES.values()])[0]
        layouts, even = numbers.choice(("rr", "rc", "cr", "cc")), numbers.random() < 0.5
        batch = numbers.choice(BATCHES) if numbers.random() < 0.15 else 1
        largest = LARGEST if batch == 1 else LARGEST_OF_BATCH
        sides = [round(largest ** numbers.random()) for _ in "MNK"]
        one = Problem(dtype, layouts, batch, *(-(-s // 8) * 8 if even else s for s in sides))
        operations = 2.0 * one.batch * one.m * one.n * one.k
        if one.bytes <= MOST_BYTES and operations <= TYPES[dtype][0]:
            found.append(one)
    return found


def operands(problem: Problem, sets: int) -> list[tuple[Any, Any, Any]]:
    """So many times A, B and room for D."""
    import torch

    kind = getattr(torch, framework_dtype(problem.dtype))
    batch = (problem.batch,) * (problem.batch > 1)

    def matrix(rows: int, cols: int, layout: str) -> Any:
        shape = (rows, cols) if layout == "r" else (cols, rows)
        drawn_as = torch.float64 if problem.dtype == "f64" else torch.float32
        found = torch.randn((*batch, *shape), device="cuda", dtype=drawn_as).to(kind)
        return found if layout == "r" else found.transpose(-1, -2)

    m, n, k = problem.m, problem.n, problem.k
    a, b = problem.layouts
    return [
        (
            matrix(m, k, a),
            matrix(k, n, b),
            torch.empty((*batch, m, n), device="cuda", dtype=kind),
        )
        for _ in range(sets)
    ]


def compile_all(problems: Sequence[Problem]) -> None:
    """Calls `gen.matmul` once for each."""
    import torch

    import gen

    for problem in problems:
        for a, b, d in operands(problem, 1):
            gen.matmul(a, b, out=d)
            torch.cuda.synchronize()


def times(problem: Problem) -> tuple[float, float]:
    """Microseconds of `gen.matmul` and of `torch.matmul`: the medians. Raises SystemExit."""
    import torch

    import gen

    count = max(2, min(_SETS, math.ceil(_CACHES / problem.bytes)))
    sets = operands(problem, count)
    calls: tuple[Callable[..., Any], ...] = (
        lambda a, b, d: gen.matmul(a, b, out=d),
        lambda a, b, d: torch.matmul(a, b, out=d),
    )
    results = []
    for call in calls:
        call(*sets[0])
        results.append(sets[0][2].double())
    apart = (results[0] - results[1]).abs().max() / results[1].abs().max().clamp(min=1e-30)
    if not apart.item() <= APART[problem.dtype]:
        raise SystemExit(f"{problem}: results are {apart.item():.1e} apart")
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)

    def elapsed(run: Callable[[], Any]) -> float:
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))

    replays = []
    for call in calls:
        each = elapsed(lambda call=call: [call(*one) for one in (sets * 2)[:3]]) / 3  # type: ignore[misc]
        launches = max(count, min(_MOST_LAUNCHES, math.ceil(_REPLAY_MS / each)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                call(*sets[i % count])
        graph.replay()
        replays.append((graph, launches))
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(_ROUNDS):
        for i in (0, 1) if turn % 2 else (1, 0):
            graph, launches = replays[i]
            found[i].append(1e3 * elapsed(graph.replay) / launches)
    return statistics.median(found[0]), statistics.median(found[1])


def tables(measured: Sequence[tuple[Problem, float, float]], worst: int) -> Iterator[str]:
    """The means of each kind, and the problems in which PyTorch is furthest ahead, in Markdown."""
    ratios = {problem: torch / ours for problem, ours, torch in measured}
    yield "| problems | number | geometric mean | least | below 0.95 |"
    yield "|---|--:|--:|--:|--:|"
    for kind in (*sorted({problem.kind for problem in ratios}), "all"):
        some = [ratio for problem, ratio in ratios.items() if kind in (problem.kind, "all")]
        below = sum(ratio < 0.95 for ratio in some)
        yield f"| {kind} | {len(some)} | {geometric_mean(some):.3f} | {min(some):.3f} | {below} |"
    yield ""
    yield "| problem | ratio | `gen.matmul`, us | `torch.matmul`, us |"
    yield "|---|--:|--:|--:|"
    for problem, ours, torch in sorted(measured, key=lambda one: one[2] / one[1])[:worst]:
        yield f"| {problem} | {torch / ours:.3f} | {ours:.1f} | {torch:.1f} |"


def main(args: Sequence[str]) -> None:
    """Compiles in processes, measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.untold")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--worst", type=int, default=40)
    parser.add_argument("--json", type=Path, help="keep the times here")
    parser.add_argument("--compile", type=int, help=argparse.SUPPRESS)  # this process's share
    given = parser.parse_args(args)
    problems = drawn(given.problems, given.seed)
    if given.compile is not None:
        compile_all(problems[given.compile :: given.jobs])
        return
    own = [f"--{name}={getattr(given, name)}" for name in ("seed", "problems", "jobs")]
    command = [sys.executable, "-m", "tests.hardware.untold", *own]
    shares = [subprocess.Popen([*command, f"--compile={i}"]) for i in range(given.jobs)]
    if any(code != 0 for code in [share.wait() for share in shares]):
        raise SystemExit("not all of them compile")
    measured = [(problem, *times(problem)) for problem in problems]
    if given.json:
        given.json.write_text(json.dumps(measured))
    print("\n".join(tables(measured, given.worst)))


if __name__ == "__main__":
    main(sys.argv[1:])
