"""Does `gen check` notice? Makes mutants of every kernel, checks each, prints those that survive.

    python -m tests.mutation.run [VARIANT ...] [--only REGEX] [--once] [--jobs N | --on ADDRESS]

`--on` is the address of a scheduler of Dask, whose workers share the mutants (docs/machines.md).
`--once` leaves out what an earlier kernel has as well, on the same line. A kernel of SPECS has its
name there, such as "mma split-k". REGEX is searched for in `Mutant.key`, which is "operator: line
-> mutated line". Mutants that compile to the same code are counted apart.
Exits with 1 if one survives that `equivalent` does not explain, or if a kernel is wrong as it is.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
from collections.abc import Iterable, Sequence

from gen.compile.nvrtc import compile_cuda
from gen.errors import CompileError, GenError
from gen.kernels.registry import make_spec
from gen.prove import check
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spread.cluster import Cluster
from gen.spread.job import Job, Workers
from gen.spread.processes import Processes
from tests.mutation.equivalent import reason
from tests.mutation.mutants import Mutant, mutants, unused
from tests.prove.test_verify import SCALAR, SMALL

# What an expression of the user's own can take.
OWN = "silu(x) * up[row, col] + shift_by[col] + one_row[row] * slope where slope=scalar"

# Several rows and columns per thread; more columns than threads, fewer than a chunk. A variant, and
# what else distinguishes it.
SPECS: dict[str, dict[str, object]] = {v: SMALL[v] for v in SCALAR} | {
    "tiles": {"tile": 6, "threads": 12},
    "tiles relu": {"tile": 6, "threads": 12, "epilogue": "linear_bias_relu"},
    "thread_1d own": {**SMALL["thread_1d"], "dtype": "f16", "epilogue": OWN},
    "tiles batched": {"tile": 8, "batched": True},
    "rec_tiles": {"tile": 4, "coarsen": 3, "threads": 8},
    "shared_row": {"threads": 8, "chunk": 20, "grid": 3},
    "simt": {"threadblock": "32x32x8", "warp": "32x16", "stages": 4},
    "simt sliced-k": {
        "threadblock": "32x32x32", "warp": "32x16", "stages": 3, "sliced_k": 2, "split_k": 0,
        "layout": "rcr",
    },
    "mma": {"threadblock": "64x64x32", "warp": "32x32", "stages": 3},
    "mma i8": {"dtype": "i8", "layout": "crr", "threadblock": "64x64x64", "warp": "32x32"},
    # Elements copied one by one, loaded without ldmatrix; lines along K, and panels of 16 columns.
    "mma f64": {
        "dtype": "f64", "arch": "sm_90", "threadblock": "64x64x16", "warp": "32x32", "stages": 3,
    },
    "mma split-k": {"threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 9},
    "mma own": {"threadblock": "64x64x32", "warp": "32x32", "stages": 3, "epilogue": OWN},
    "mma batched": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 0, "batched": True,
    },
    "mma grouped": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "grouped": True,
    },
    "mma grouped-k": {
        "layout": "crr", "threadblock": "64x64x32", "warp": "32x32", "stages": 3,
        "grouped_k": True,
    },
    "mma_tma": {"threadblock": "64x64x32", "warp": "32x32", "stages": 2},
    "mma_tma batched": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 2, "batched": True,
    },
    # Elements of 4 bytes, which stmatrix cannot move; three pieces of a row and three slots; four
    # steps in a tile of K.
    "mma_tma f32": {
        "dtype": "f16_f32", "layout": "rcc", "threadblock": "96x96x64", "warp": "48x48",
        "stages": 2, "epilogue": "linear_bias",
    },
    # Sums that are D as they are; three slots of one block of 16 rows; two panels of B.
    "mma_tma f16": {
        "dtype": "f16_f16", "threadblock": "96x128x32", "warp": "48x64", "stages": 2,
    },
    # The teams finish two blocks of 16 rows and one; an epilogue that is called.
    "mma_tma sliced-k": {
        "threadblock": "96x64x32", "warp": "48x32", "stages": 3, "sliced_k": 2,
        "epilogue": "linear_bias_gelu",
    },
    "mma_tma split-k": {
        "threadblock": "64x64x32", "warp": "32x32", "stages": 3, "split_k": 0,
        "epilogue": "linear_bias_relu",
    },
    # Lines of both operands along M or N.
    "wgmma": {"layout": "crr", "threadblock": "128x64x64", "stages": 2},
    # Two panels of B, lines of two lengths.
    # Blocks that share tiles; the same by two warpgroups, each with tiles of its own.
    "wgmma stream-k": {"threadblock": "64x64x32", "stages": 2, "stream_k": 1},
    "wgmma ping-pong": {
        "schedule": "pingpong", "threadblock": "64x64x32", "stages": 3, "stream_k": 1,
    },
    "wgmma split-k": {"threadblock": "128x128x32", "stages": 2, "split_k": 3},
    "wgmma grouped": {"layout": "rcr", "threadblock": "64x64x64", "stages": 2, "grouped": True},
    "wgmma grouped-k": {
        "layout": "crr", "threadblock": "64x64x64", "stages": 2, "grouped_k": True,
    },
    # Elements in three parts: of A, lines along K, of B, panels of 64 columns.
    "wgmma parts": {
        "dtype": "f32_6xbf16", "threadblock": "64x128x32", "stages": 2, "split_k": 1,
    },
    # Blocks below each other copy one of two panels of B each, for both.
    "wgmma cluster": {"threadblock": "64x128x64", "stages": 2, "cluster": "2x1"},
}  # fmt: skip


def sources(names: Iterable[str] = SPECS) -> list[Source]:
    """The emitted files that the suite mutates."""
    return [render(make_spec(name.split()[0], **SPECS[name])) for name in names]


def complaint(source: Source) -> str:
    """What `gen check` says of a kernel as it is: its mutants would all be found by the same."""
    try:
        report = check.check(source)
    except GenError as error:
        return str(error)
    found = [str(one.finding) for one in report.findings]
    return " ".join([*found, *(text for _, text in report.mismatches), report.error]).strip()


class Complaints(Job[Source, str]):
    """Of kernels as they are; workers need gen alone."""

    def __call__(self, item: Source) -> str:
        """See Job."""
        return complaint(item)


class Verdicts(Job[Source, str]):
    """Of mutants."""

    def needs(self, item: Source) -> list[KernelSpec]:
        """See Job."""
        assert item.spec is not None
        return [item.spec]

    def compile(self, need: KernelSpec) -> None:
        """See Job."""
        _code(render(need), need.arch)

    def __call__(self, item: Source) -> str:
        """See Job."""
        return verdict(item)


def verdict(mutant: Source) -> str:
    """How the mutant was found: by which check, or by the compiler; `same code`; `survived`."""
    spec = mutant.spec
    assert spec is not None
    try:
        if _code(mutant, spec.arch) == _code(render(spec), spec.arch):
            return "same code"
    except CompileError:
        return "compiler"
    try:
        report = check.check(mutant, first=True)
    except GenError:
        return "refused"
    if report.findings:
        return report.findings[0].finding.check
    if report.mismatches:
        return "result"
    return "budget" if report.error else "survived"


def _code(source: Source, arch: str) -> str:
    """The compiled kernel, without what names the source's lines and variables."""
    module = compile_cuda(source.text, name="mutant.cu", arch=arch, line_info=False)
    text = module.code.decode()
    return re.sub(r"//.*", "", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suite; prints a table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", nargs="*", default=list(SPECS))
    parser.add_argument("--only", type=re.compile, default="", metavar="REGEX")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--on", metavar="ADDRESS")
    parser.add_argument("--once", action="store_true", help="a mistake in the first kernel with it")
    options = parser.parse_args(arguments)
    if options.on is None:
        return _run(options, Processes(options.jobs))
    try:
        with Cluster(options.on, "cpu", lambda text: print(f"note: {text}", file=sys.stderr)) as on:
            return _run(options, on)
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace, workers: Workers) -> int:
    start = time.perf_counter()
    if stale := unused(sources()):
        print("no kernel has anything that these patterns match:", *stale, sep="\n  ")
        return 1
    kernels = list(zip(options.variants, sources(options.variants), strict=True))
    for index, wrong in workers.map(Complaints(), [source for _, source in kernels]):
        if wrong:
            print(f"{kernels[index][0]} is wrong before anything is changed: {wrong}")
            return 1
    found = [
        (name, mutant)
        for name, source in kernels
        for mutant in mutants(source)
        if re.search(options.only, mutant.key)
    ]
    if options.once:
        first = {mutant.key: (name, mutant) for name, mutant in reversed(found)}
        found = [pair for pair in found if first[pair[1].key] == pair]
    verdicts: dict[int, str] = {}
    try:
        for index, how in workers.map(Verdicts(), [mutant.source for _, mutant in found]):
            name, mutant = found[index]
            verdicts[index] = how
            if how == "survived" and not reason(name, mutant.key):
                print(f"SURVIVED: {name} line {mutant.line}, {mutant.key}", flush=True)
            print(f"\r{len(verdicts)} of {len(found)} mutants", end="", file=sys.stderr)
    finally:  # also what was found before an interruption
        print(file=sys.stderr)
        tried = [found[index] for index in sorted(verdicts)]
        ordered = [verdicts[index] for index in sorted(verdicts)]
        code = _report(tried, ordered, time.perf_counter() - start)
    return code


def _report(found: Sequence[tuple[str, Mutant]], verdicts: Sequence[str], seconds: float) -> int:
    wrong = 0
    by_name: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (name, mutant), how in zip(found, verdicts, strict=True):
        if how == "survived":
            why = reason(name, mutant.key)
            by_name[name]["equivalent" if why else "SURVIVED"] += 1
            wrong += not why
            if why:
                print(f"{why}: {name} line {mutant.line}, {mutant.key}")
        else:
            by_name[name][how] += 1
    for name, counts in by_name.items():
        text = ", ".join(f"{count} {how}" for how, count in counts.most_common())
        print(f"{name}: {sum(counts.values())} mutants: {text}")
    print(f"{len(found)} mutants, {wrong} unexplained survivors, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
