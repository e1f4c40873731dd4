"""Are kernels right that nobody has chosen? Draws specifications and problems, and checks each.

    python -m tests.mutation.at_random [--count N] [--seed N] [--jobs N]

A specification has any tunables that go together, a problem any sizes of a few tiles, scalars,
inputs, addresses and leading dimensions, with C in the place of D or not, on GPUs of several sizes.
The seed that is printed draws the same again. Exits with 1 if a kernel is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from gen.compile import nvrtc
from gen.device.choose import FEW
from gen.device.emulated import EmulatorRunner, default_budget
from gen.errors import GenError, SpecError
from gen.kernels.registry import VARIANTS, make_spec
from gen.kernels.tunables import Flag, Integer, Tunable, Word
from gen.prove.drawn import draw_trial
from gen.prove.stand import furnish
from gen.prove.verify import run_trial
from gen.source.render import render
from gen.spec.dtypes import DTYPES, DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALL_LAYOUTS


def _tunable(draw: random.Random, tunable: Tunable, dtypes: DTypes) -> Any:
    if draw.random() < 0.4:
        return None
    if isinstance(tunable, Flag):
        return draw.random() < 0.3
    if isinstance(tunable, Integer):
        most = {"stages": 5, "split_k": 9, "sliced_k": 2}.get(tunable.name, 64)
        if tunable.name == "promote":
            return draw.choice((0, 128, 256)) if dtypes.input.is_fp8 else 0
        if tunable.name == "threads":
            return draw.choice((8, 32, 33, 64, 100, 128, 256))
        return draw.randint(tunable.low, min(tunable.high, most))
    if isinstance(tunable, Word):
        return draw.choice(tunable.words)
    if tunable.form == "MxN":
        return f"{16 * draw.randint(1, 4)}x{16 * draw.randint(1, 4)}"
    line = draw.choice((64, 128)) // dtypes.input.size
    return f"{16 * draw.randint(1, 12)}x{16 * draw.randint(1, 12)}x{line}"


def draw_spec(draw: random.Random) -> KernelSpec:
    """Any specification that can be built."""
    while True:
        row = draw.choice(list(VARIANTS.values()))
        dtype = draw.choice(row.dtypes)
        chosen = {t.name: _tunable(draw, t, DTYPES[dtype]) for t in row.tunables}
        if "tile" in chosen and chosen.get("threads"):
            tile = chosen["tile"] or 32
            chosen["threads"] = tile * draw.choice([r for r in range(1, tile + 1) if tile % r == 0])
        try:
            return make_spec(row.name, dtype=dtype, layout=draw.choice(ALL_LAYOUTS), **chosen)
        except SpecError:
            continue


def complaint(seed: int) -> str:
    """What is wrong with the kernel and the problem that a seed draws, if anything."""
    draw = random.Random(seed)
    spec = draw_spec(draw)
    trial = draw_trial(draw, spec)
    runner = EmulatorRunner(("race",), multiprocessors=trial.multiprocessors or FEW)
    runner.watched, runner.budget = trial.watched, default_budget(spec, trial.problem)
    furnish(runner, trial)
    try:
        module = nvrtc.compile_cuda(render(spec).text, name=f"{spec.name}.cu", arch=spec.arch)
        message = run_trial(spec, runner, module, trial).message
    except GenError as error:
        message = str(error)
    return f"{spec.command}\n  {trial.problem}: {message}" if message else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws, checks, prints what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}")
    start, wrong = time.perf_counter(), 0
    seeds = [options.seed * 10**6 + i for i in range(options.count)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for at, message in enumerate(pool.imap(complaint, seeds, chunksize=4), 1):
            print(f"\r{at} of {options.count}", end="", file=sys.stderr)
            if message:
                wrong += 1
                print(f"\nseed {seeds[at - 1]}: {message}")
    seconds = time.perf_counter() - start
    print(f"\n{options.count} kernels and problems, {wrong} wrong, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
