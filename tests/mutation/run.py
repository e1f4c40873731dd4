"""Does `gen check` notice? Makes mutants of every kernel, checks each, prints those that survive.

    python -m tests.mutation.run [VARIANT ...] [--only REGEX] [--once] [--results FILE]
                                 [--jobs N | --on ADDRESS]

`--on` is the address of a scheduler of Dask, whose workers share the mutants (docs/machines.md).
`--once` leaves out what an earlier kernel has as well, on the same line. A kernel of SPECS has its
name there, such as "mma split-k". REGEX is searched for in `Mutant.key`, which is "operator: line
-> mutated line". `--results` writes what becomes of each mutant to a file at once, and goes on with
what is there. Mutants that compile to the same code are counted apart, and so are those in which
`gen check` finds a condition that no trial reached ("unreached"), with which it fails.
Exits with 1 if one survives that `equivalent` does not explain, or if a kernel is wrong as it is.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gen.compile.nvrtc import compile_cuda
from gen.errors import CompileError, GenError
from gen.kernels.registry import make_spec
from gen.prove import check
from gen.prove.launchers.check import check_launcher, host_side
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spread.cluster import Cluster
from gen.spread.job import Cost, Job, Workers
from gen.spread.processes import Processes
from tests.mutation.equivalent import reason
from tests.mutation.kernels import SPECS
from tests.mutation.mutants import Mutant, mutants, unused
from tests.mutation.results import Name, Results, Verdict


def sources(names: Iterable[str] = SPECS) -> list[Source]:
    """The emitted files that the suite mutates."""
    return [render(make_spec(name.split()[0], **SPECS[name])) for name in names]


class Tried(NamedTuple):
    """A file to be checked: its name in the results, and the mutant, None for a kernel as it is."""

    name: Name
    source: Source
    mutant: Mutant | None = None


class Verdicts(Job[tuple[Source, bool], tuple[str, float]]):
    """Of mutants, and of kernels as they are (True): `verdict`, `complaint`, and CPU seconds.

    Workers need gen alone.
    """

    def needs(self, item: tuple[Source, bool]) -> list[KernelSpec]:
        """See Job."""
        assert item[0].spec is not None
        return [item[0].spec]

    def compile(self, need: KernelSpec) -> None:
        """See Job."""
        _code(render(need), need.arch)

    def cost(self, item: tuple[Source, bool]) -> Cost:
        """See Job."""
        return Cost(seconds=10 if item[1] else 0)

    def __call__(self, item: tuple[Source, bool]) -> tuple[str, float]:
        """See Job."""
        source, as_it_is = item
        start = time.process_time()
        how = complaint(source) if as_it_is else verdict(source)
        return how, time.process_time() - start


def complaint(source: Source) -> str:
    """What `gen check` says of a kernel as it is: its mutants would all be found by the same."""
    try:
        report = check.check(source, thorough=True)
    except GenError as error:
        return str(error)
    found = [str(one.finding) for one in report.findings]
    launcher = check_launcher(source, always=True)
    wrong = [*(text for _, text in report.mismatches), report.error, *launcher.wrong]
    return " ".join(filter(None, [*found, *wrong, launcher.skipped]))


def verdict(mutant: Source) -> str:
    """How the mutant was found: by which check, or by the compiler; `same code`; `survived`."""
    spec = mutant.spec
    assert spec is not None
    if host_side(mutant.text) != host_side(render(spec).text):
        launcher = check_launcher(mutant)
        if launcher.skipped:
            return "not checked"
        if launcher.wrong:
            return "launcher" if launcher.calls else "compiler"
        return "unreached" if launcher.unreached else "survived"
    try:
        if _code(mutant, spec.arch) == _code(render(spec), spec.arch):
            # Constants that nothing but the launcher uses.
            return "launcher" if check_launcher(mutant).wrong else "same code"
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
    if report.error:
        return "budget"
    if report.launcher and report.launcher.wrong:  # constants that it uses
        return "launcher"
    return "unreached" if report.unreached else "survived"


def _code(source: Source, arch: str) -> str:
    """The compiled kernel, without what names the source's lines, and constants it does not use."""
    module = compile_cuda(source.text, name="mutant.cu", arch=arch, line_info=False)
    text = re.sub(r"//.*", "", module.code.decode())
    used = collections.Counter(re.findall(r"\w+", text))
    constant = re.compile(r"^\.global .* (\w+) = \w+;$", re.MULTILINE)
    return constant.sub(lambda match: match[0] if used[match[1]] > 1 else "", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suite; prints a table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", nargs="*", default=list(SPECS))
    parser.add_argument("--only", type=re.compile, default="", metavar="REGEX")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--on", metavar="ADDRESS")
    parser.add_argument("--once", action="store_true", help="a mistake in the first kernel with it")
    parser.add_argument("--results", type=Path, metavar="FILE")
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
    kernels = dict(zip(options.variants, sources(options.variants), strict=True))
    tried = list(_tried(kernels, options.only, options.once))
    whole = [Tried(Name(kernel, "", 0), source) for kernel, source in kernels.items()]
    with Results(options.results) as results:
        # Kernels as they are come first: where one is wrong, its mutants say nothing.
        left = [item for item in (*whole, *tried) if item.name not in results.known]
        done = len(whole) + len(tried) - len(left)
        try:
            for index, answer in workers.map(
                Verdicts(), [(item.source, item.mutant is None) for item in left]
            ):
                results.add(left[index].name, Verdict(*answer))
                done += 1
                _tell(left[index], answer[0])
                print(f"\r{done} of {len(whole) + len(tried)}", end="", file=sys.stderr)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
        print(file=sys.stderr)
        return _report(tried, results.known, time.perf_counter() - start)


def _tried(kernels: dict[str, Source], only: str, once: bool) -> Iterable[Tried]:
    """The mutants that are asked for."""
    before: set[str] = set()
    for kernel, source in kernels.items():
        counts: collections.Counter[str] = collections.Counter()
        for mutant in mutants(source):
            counts[mutant.key] += 1
            if re.search(only, mutant.key) and not (once and mutant.key in before):
                yield Tried(Name(kernel, mutant.key, counts[mutant.key]), mutant.source, mutant)
        before |= counts.keys()


def _tell(item: Tried, how: str) -> None:
    """A survivor, as soon as it is known; what a kernel's own check says."""
    mutant, kernel = item.mutant, item.name.kernel
    if mutant is None and how:
        print(f"WRONG as it is: {kernel}: {how}", flush=True)
    elif mutant and how == "survived" and not reason(*item.name):
        print(f"SURVIVED: {kernel} line {mutant.line}, {mutant.key}", flush=True)


def _report(tried: Sequence[Tried], known: dict[Name, Verdict], seconds: float) -> int:
    wrong, cpu = 0, 0.0
    broken = {name.kernel for name, verdict in known.items() if not name.key and verdict.how}
    by_name: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for item in tried:
        kernel, mutant = item.name.kernel, item.mutant
        if item.name not in known or mutant is None or kernel in broken:
            by_name[kernel]["of a wrong kernel" if kernel in broken else "not tried"] += 1
            continue
        how = known[item.name].how
        cpu += known[item.name].seconds
        if how == "survived":
            why = reason(*item.name)
            wrong += not why
            how = "equivalent" if why else "SURVIVED"
        if how in ("equivalent", "SURVIVED", "unreached", "not checked"):
            about = why if how == "equivalent" else how
            print(f"{about}: {kernel} line {mutant.line}, {mutant.key}")
        by_name[kernel][how] += 1
    total = sum(by_name.values(), collections.Counter())
    for name, counts in {**by_name, "all": total}.items():
        text = ", ".join(f"{count} {how}" for how, count in counts.most_common())
        print(f"{name}: {sum(counts.values())} mutants: {text}")
    print(f"{wrong} unexplained survivors, {cpu:.0f} CPU seconds, {seconds:.0f} s")
    return 1 if wrong or broken else 0


if __name__ == "__main__":
    sys.exit(main())
