"""Every peer once, on small problems of every element type: does it run, is it right?

    python -m tests.hardware.try_peers [DTYPE...] [--peers NAMES]

It needs a GPU. A line for each contender; exits with 1 where one is wrong or failed, or refuses
what it should do. Of CUTLASS 3.x it builds three configurations for each type, a minute each on one
core.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from gen.bench import run
from gen.bench.device import GpuLost, MeasuredGpu
from gen.bench.peers import cutlass3
from gen.bench.peers.table import parse_peers
from gen.bench.results import ABSENT, OK, SKIPPED, Results, Row
from gen.kernels.registry import VARIANTS, make_spec
from gen.spec.dtypes import DTYPES
from gen.spec.problem import GemmShape

# One that all can do, with a sum that stream-K divides; one that TMA cannot copy.
EVEN, ODD = GemmShape(256, 512, 4096), GemmShape(63, 65, 67)

# Of the first, libraries may say this alone: PyTorch's D has the type of its A.
_LACKING = ("has no product of", "PyTorch refuses")


def contenders(gpu: MeasuredGpu, dtype: str, peers: Sequence[str]) -> Sequence[Row]:
    """The rows of one element type."""
    having = [name for name, row in VARIANTS.items() if dtype in row.dtypes]
    options = run.Options(
        specs=[make_spec(having[-1], dtype=dtype, layout="rcr")],
        shapes=[EVEN, ODD],
        peers=peers,
        rounds=3,
        limit_s=2,
        nvbench=False,
    )

    def say(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    return run.bench(gpu, options, Results(run.header(gpu, "try_peers", {})), say=say).rows


def is_bad(row: Row) -> bool:
    """Whether a row is not as it should be."""
    if row.check in (OK, ABSENT):
        return False
    expected = row.shape == str(ODD) or any(words in row.note for words in _LACKING)
    return row.check != SKIPPED or not expected


def main(args: Sequence[str]) -> int:
    """Tries them; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dtypes", nargs="*", default=list(DTYPES), metavar="DTYPE")
    parser.add_argument("--peers", default="all", type=parse_peers)
    chosen = parser.parse_args(args)
    # Ping-pong, cooperative with a cluster, stream-K.
    cutlass3.CONFIGS = tuple(cutlass3.CONFIGS[i] for i in (2, 13, 19))
    gpu, bad = MeasuredGpu(), 0
    for dtype in chosen.dtypes:
        try:
            rows = contenders(gpu, dtype, chosen.peers)
        except GpuLost as error:
            print(f"{dtype}: {error}")
            return 1
        except Exception:  # a fault of one peer does not hide those of the others
            traceback.print_exc(file=sys.stdout)
            bad += 1
            continue
        for row in rows:
            bad += is_bad(row)
            time = f"{row.ms_median * 1e3:9.2f} us" if row.ms_median else " " * 12
            mark = "BAD" if is_bad(row) else "   "
            print(
                f"{mark} {dtype:9} {row.shape:12} {time}  {row.contender}: {row.check}; {row.note}"
            )
        sys.stdout.flush()
    print(f"{bad} bad" if bad else "all are as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
