"""A script: how long it takes to choose a kernel, without a GPU.

    python -m tests.benchmarks.choice

For some element types and layouts, a process ranks the kernels of an H200 for its first problem, by
the model, then by the times that the table has near by as well; prepares that table for others,
which `gen.matmul` does then; ranks for 60 others, half of them as language models have them, and
for the last one again. Each line has milliseconds: of each step the least of several such
processes. Tables are those that are shipped.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from gen.device.gpus import GPUS
from gen.dispatch import choice, folders, ranking
from gen.dispatch.ranking import Product
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout

PROCESSES = 7
KINDS = ("f16 rcr", "f32 rrr", "bf16 rrr", "i8 rcr", "e4m3 rcr")
ROWS = (1, 8, 64, 100, 512, 1024, 2048, 4096, 6144, 8192, 14336)
LINES = ROWS[5:]  # N and K of a language model's layers


def shapes() -> list[GemmShape]:
    """The problems after the first, the same in each process."""
    draw = random.Random(3)
    drawn = [GemmShape(*(8 * draw.randint(16, 1024) for _ in "MNK")) for _ in range(30)]
    near = [
        GemmShape(draw.choice(ROWS), draw.choice(LINES) + 8 * draw.randint(0, 30), k)
        for k in draw.choices(LINES, k=30)
    ]
    return drawn + near


def chosen(kind: str) -> list[float]:
    """Milliseconds of each step in this process."""
    dtypes, layouts = parse_dtype(kind.split()[0]), parse_layout(kind.split()[1])
    gpu, others = GPUS["h200"], shapes()

    square = GemmShape(4096, 4096, 4096)

    def product(shape: GemmShape) -> Product:
        return Product.packed(shape, dtypes, layouts)

    def model() -> None:
        ranking.rank(product(square), gpu, gpu.own_arch, {})

    def rank(shape: GemmShape) -> None:
        choice.rank(product(shape), gpu, gpu.own_arch, {}, folders.default())

    def prepare() -> None:
        choice.learnt(gpu, dtypes, layouts, folders.default()).prepare()

    first = [_ms(model), _ms(lambda: rank(square)), _ms(prepare)]
    return first + [_ms(lambda shape=shape: rank(shape)) for shape in (*others, others[-1])]


def _ms(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    """Prints a line for each kind; with one as the argument, the times of this process."""
    if len(sys.argv) > 1:
        print(json.dumps(chosen(sys.argv[1])))
        return
    command = [sys.executable, "-m", "tests.benchmarks.choice"]
    environment = {**os.environ, "GEN_TUNED_DIR": ""}
    titles = ("model", "table", "prepare", "new", "9 of 10", "largest", "again")
    print(" " * 10 + "".join(f"{title:>9}" for title in titles))
    for kind in KINDS:
        runs = [
            json.loads(subprocess.check_output([*command, kind], env=environment))
            for _ in range(PROCESSES)
        ]
        model, table, prepare, *new, again = map(min, zip(*runs, strict=True))
        new.sort()
        shown = (statistics.median(new), new[len(new) * 9 // 10], new[-1])
        times = (model, table, prepare, *shown, again)
        print(f"{kind:<10}" + "".join(f"{each:9.2f}" for each in times))


if __name__ == "__main__":
    main()
