"""Every peer once, on a small problem of every element type: does it run, is it right?

    python -m tests.hardware.try_peers [DTYPE...] [--peers NAMES]

It needs a GPU. A line for each contender; exits with 1 where one is wrong or failed, or refuses
what it should do. Of CUTLASS 3.x it builds three configurations for each type, a minute each on one
core, before anything runs.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from gen.bench import run
from gen.bench.admission import compile_ahead
from gen.bench.device import GpuLost, MeasuredGpu
from gen.bench.peers import cutlass3
from gen.bench.peers.table import parse_peers
from gen.bench.results import ABSENT, OK, SKIPPED, Results, Row
from gen.errors import MissingError
from gen.kernels.registry import VARIANTS, make_spec
from gen.spec.dtypes import DTYPES
from gen.spec.problem import GemmShape

SHAPE = GemmShape(256, 512, 4096)  # whose sums stream-K divides

# What may be skipped: PyTorch's D has the type of its A.
_LACKING = ("has no product of", "PyTorch refuses")


def options(dtype: str, peers: Sequence[str]) -> run.Options:
    """The last kernel of ours that has the type, beside all peers, weights along K."""
    having = [name for name, row in VARIANTS.items() if dtype in row.dtypes]
    spec = make_spec(having[-1], dtype=dtype, layout="rcr")
    return run.Options([spec], [SHAPE], peers, rounds=3, limit_s=2, nvbench=False)


def is_bad(row: Row) -> bool:
    """Whether a row is not as it should be."""
    lacking = row.check == SKIPPED and any(words in row.note for words in _LACKING)
    return row.check not in (OK, ABSENT) and not lacking


def say(text: str) -> None:
    """What happens now."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main(args: Sequence[str]) -> int:
    """Tries them; the exit code."""
    parser = argparse.ArgumentParser(description="Every peer once, on a small problem.")
    parser.add_argument("dtypes", nargs="*", metavar="DTYPE")
    parser.add_argument("--peers", default="all", type=parse_peers)
    chosen = parser.parse_args(args)
    # Ping-pong; cooperative in a cluster; stream-K.
    cutlass3.CONFIGS = tuple(cutlass3.CONFIGS[i] for i in (2, 13, 19))
    try:
        gpu, bad = MeasuredGpu(), 0
    except MissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    tries = {dtype: options(dtype, chosen.peers) for dtype in chosen.dtypes or DTYPES}
    compile_ahead(gpu.arch, [p for each in tries.values() for p in run.problems(each)], say)
    for dtype, each in tries.items():
        try:
            rows = run.bench(gpu, each, Results(run.header(gpu, "try_peers", {})), say=say).rows
        except GpuLost as error:
            print(f"{dtype}: {error}")
            return 1
        except Exception:  # a fault of one peer does not hide those of other types
            traceback.print_exc(file=sys.stdout)
            bad += 1
            continue
        for row in rows:
            bad += is_bad(row)
            time = f"{row.ms_median * 1e3:9.2f} us" if row.ms_median else " " * 12
            mark = "BAD" if is_bad(row) else "   "
            print(f"{mark} {dtype:9} {time}  {row.contender}: {row.check}; {row.note}")
        sys.stdout.flush()
    print(f"{bad} bad" if bad else "all are as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
