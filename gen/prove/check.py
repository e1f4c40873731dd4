"""`gen check`: everything that the emulator can find wrong with a kernel, on shapes that matter.

The kernel is taken as its file has it now, edited or not; how to launch it comes from the file's
`gen-spec` line. On every shape it runs under all checks and, where they find nothing, its results
are compared with CUTLASS's and with the oracle's. Last come two problems too large to store (see
`far_indices`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gen.compile import nvrtc
from gen.device.choose import FEW
from gen.device.emulated import EmulatorRunner
from gen.errors import BudgetError, CheckError, UsageError
from gen.kernels.formulas import ceil_div
from gen.kernels.launches import MAP_BYTES, Argument, Launch, Pointer, TensorMap
from gen.kernels.registry import VARIANTS
from gen.kernels.tensor_cores.plan import STEPS_A_SLICE
from gen.prove.far_indices import far_results, why_not
from gen.prove.verify import ShapeResult, verify_shape
from gen.source.render import Source
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

if TYPE_CHECKING:
    from gen.emulator import Finding, PtxKernel


MAX_FINDINGS = 20
MAX_ELEMENTS = 2 * 10**7  # of A, B and D together: some gigabytes with all copies and records
MAX_PRODUCTS = 10**11  # some hours


@dataclass
class Occurrence:
    """A finding, the first shape that had it, and how many launches did."""

    finding: Finding
    shape: GemmShape
    launches: int = 1


@dataclass
class CheckReport:
    """What the checks of one kernel came to."""

    spec: KernelSpec
    shapes: list[GemmShape] = field(default_factory=list)  # those that were run
    findings: list[Occurrence] = field(default_factory=list)
    mismatches: list[tuple[GemmShape, str]] = field(default_factory=list)
    suppressed: int = 0  # findings that were like others, or beyond the limit
    error: str = ""  # what ended the check early
    skipped: str = ""  # what was not tried, and why
    seconds: float = 0.0  # in the kernel

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        return not (self.findings or self.mismatches or self.error)


def default_shapes(spec: KernelSpec) -> list[GemmShape]:
    """Few and small shapes that reach every corner of a kernel, derived from its tile.

    First, middle and last blocks both ways, full and ragged; one step along K, as many as there are
    stages, and more; the last step full and ragged; one element; empty sums and an empty D. Where K
    is summed in slices, some have more steps than there are stages, too, some are longer than
    others, a full tile has two, and many tiles have a single one. On tensor cores, rows that are
    ragged but aligned, more tiles along M than are computed together, in full columns, and a long
    line to pack; M and N change places where C is column-major. Where teams take turns along K,
    many tiles have an odd number of steps, so that turns change.
    """
    m, n, k = spec.threadblock
    uneven = (2 * spec.stages * max(spec.split_k, 4) + 1) * k
    two = (2 if spec.split_k else 2 * STEPS_A_SLICE + 1) * k
    slices = [(3, n + 2, uneven), (m, n, two), (2 * m + 1, 2 * n + 8, k)]
    # A persistent block computes tile after tile, which takes long here.
    groups = (spec.tunables.get("swizzle", 1) * m + 1, 1 if spec.row.persistent else 2 * n, 1)
    sizes = [
        (1, 1, 1),
        (m, n, k),
        (m + 1, n + 1, k + 1),
        (2 * m + 1, 2 * n + 1, max(2 * spec.stages - 1, 2) * k + 1),
        (2 * m, max(n - 1, 1), 2 * k),
        (max(m - 1, 1), 2 * n, max(k - 1, 1)),
        (1, 2, 3 * k + 1),
        *(slices if spec.split_k != 1 else ()),
        *([(m + 1, n + 8, k), groups, (1, 2, 1031)] if spec.row.depends_on_alignment else ()),
        *([(2 * m + 1, 2 * n + 1, 3 * k)] if spec.sliced_k > 1 else ()),
        (m, n + 1, 0),
        (0, n, k),
    ]
    shapes = [GemmShape(*size) for size in dict.fromkeys(sizes)]
    if spec.row.transposes and not spec.layouts.c:
        return [GemmShape(shape.n, shape.m, shape.k) for shape in shapes]
    return shapes


def default_budget(spec: KernelSpec, shape: GemmShape) -> int:
    """Thread-instructions that no launch of this kind should need: some thirty times too many."""
    steps = spec.plan(GemmProblem.packed(shape, spec.layouts), _UNALIGNED)
    threads = max((math.prod(s.grid) * math.prod(s.block) for s in steps.launches), default=0)
    sizes = zip((shape.m, shape.n, shape.k), spec.threadblock, strict=True)
    work = math.prod(max(ceil_div(size, step), 1) * step for size, step in sizes)
    return 1000 * work + 50_000 * threads


def check(
    source: Source,
    shapes: Sequence[GemmShape] | None = None,
    *,
    strict: bool = False,
    max_findings: int = MAX_FINDINGS,
    budget: int | None = None,
    step: Callable[[], object] = lambda: None,
) -> CheckReport:
    """Checks a kernel on shapes (see `default_shapes`).

    strict: report loads of memory that was never written, even if their values are not used.
    budget: thread-instructions that a launch may run (see `default_budget`). step: called after
    each shape. Raises UsageError for a file that is no emitted kernel or whose `gen-spec` line does
    not describe it, CompileError where it does not compile.
    """
    if source.spec is None:
        raise UsageError(_NO_SPEC.format(name=source.filename, variants=", ".join(VARIANTS)))
    spec = source.spec
    module = nvrtc.compile_cuda(source.text, name=f"{spec.name}.cu", arch=spec.arch)
    _check_kernel(spec, module)
    checks = ("race", "init") if strict else ("race",)
    runner = EmulatorRunner(checks, max_findings, multiprocessors=FEW)
    plain = EmulatorRunner()
    report = CheckReport(spec)
    for shape in default_shapes(spec) if shapes is None else shapes:
        _check_size(shape)
        report.shapes.append(shape)
        runner.budget = default_budget(spec, shape) if budget is None else budget
        try:
            result = verify_shape(spec, runner, module, shape, plain)
        except BudgetError as error:
            advice = str(error).replace("raise instruction_budget", "use a larger --budget")
            report.error = f"on {shape}: {advice}"
            break
        except UsageError as error:  # what a GPU would refuse to launch
            report.error = f"on {shape}: {error}"
            break
        _add(report, result, max_findings)
        step()
    if shapes is None and not report.error:
        if reason := why_not(spec):
            report.skipped = f"not tried in matrices of more than 2^32 elements: {reason}"
        else:
            _check_far(report, spec, module, max_findings)
    report.suppressed += runner.suppressed
    return report


def _check_far(report: CheckReport, spec: KernelSpec, module: nvrtc.Module, limit: int) -> None:
    try:
        for result in far_results(spec, module):
            for finding in result.findings:
                _add_finding(report, finding, result.shape, limit)
            if result.message and not result.findings:
                far = f"in matrices of more than 2^32 elements: {result.message}"
                report.mismatches.append((result.shape, far))
    except CheckError as error:
        report.error = f"in matrices of more than 2^32 elements: {error}"


_NO_SPEC = (
    "{name} has no gen-spec line, which says how to launch the kernel; edit a file that gen emit "
    'has written, or add a comment line such as // gen-spec: {{"variant": "tiles", "dtype": "f32", '
    '"name": "my_kernel"}} (variants: {variants})'
)


def _add(report: CheckReport, result: ShapeResult, limit: int) -> None:
    report.seconds += result.seconds
    for case in result.cases:
        for finding in case.findings:
            _add_finding(report, finding, result.shape, limit)
        if case.message and not case.findings:
            report.mismatches.append((result.shape, case.message))


def _add_finding(report: CheckReport, finding: Finding, shape: GemmShape, limit: int) -> None:
    same = next((o for o in report.findings if _alike(o.finding, finding)), None)
    if same:
        same.launches += 1
    elif len(report.findings) < limit:
        report.findings.append(Occurrence(finding, shape))
    else:
        report.suppressed += 1


def _alike(one: Finding, other: Finding) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("check", "kind", "file_line", "other_line")
    ) and (one.kind != "" or _buffer(one) == _buffer(other))


def _buffer(finding: Finding) -> str:
    return re.split(r"[+-]", finding.address)[0]


def _check_size(shape: GemmShape) -> None:
    """Refuses what would fill this machine's memory, or run for days."""
    m, n, k = shape.m, shape.n, shape.k
    elements = m * k + k * n + m * n
    if elements > MAX_ELEMENTS or m * n * k > MAX_PRODUCTS:
        raise UsageError(
            f"{shape} has {elements:.3g} elements and {m * n * k:.3g} products, more than the "
            f"{MAX_ELEMENTS:.3g} and {MAX_PRODUCTS:.3g} that can be checked; use a smaller shape"
        )


# Where each of a file's kernels takes part: operands that need packing, a long sum in slices.
_UNALIGNED = Alignment(False, False, False)
_LONG = GemmShape(1, 1, 2**20)


def launches(spec: KernelSpec) -> tuple[Launch, ...]:
    """A launch of each kernel that the file of a specification has."""
    return spec.plan(GemmProblem.packed(_LONG, spec.layouts), _UNALIGNED).launches


def _check_kernel(spec: KernelSpec, module: nvrtc.Module) -> None:
    """Raises UsageError where the file's kernels are not what its `gen-spec` line says."""
    from gen.emulator import parse_ptx

    kernels = parse_ptx(module.code.decode()).kernels
    for launch in launches(spec):
        if launch.kernel not in kernels:
            found = ", ".join(kernels) or "none"
            raise UsageError(
                f"the file's gen-spec line names the kernel {launch.kernel}, but the file's "
                f'kernels are: {found}; rename the kernel, or set "name" in the gen-spec line'
            )
        kernel = kernels[launch.kernel]
        sizes = [_size(arg) for arg in launch.args.values()]
        if [parameter.nbytes for parameter in kernel.params] != sizes:
            raise UsageError(
                f"the parameters of {launch.kernel} are not those of an emitted kernel any more: "
                f"{len(kernel.params)} of {', '.join(str(p.nbytes) for p in kernel.params)} bytes, "
                f"not {len(sizes)} of {', '.join(map(str, sizes))} ({', '.join(launch.args)})"
            )
        _check_threads(launch, kernel)


def _size(argument: Argument) -> int:
    """Bytes of a kernel's parameter."""
    if isinstance(argument, TensorMap):
        return MAP_BYTES
    return 8 if isinstance(argument, Pointer) else argument.nbytes


def _check_threads(launch: Launch, kernel: PtxKernel) -> None:
    wanted = math.prod(launch.block)
    if kernel.max_threads and math.prod(kernel.max_threads) != wanted:
        raise UsageError(
            f"the file's block has {math.prod(kernel.max_threads)} threads (__launch_bounds__), "
            f"but its gen-spec line describes one of {wanted}; change that line to fit the file"
        )


def lines_of(findings: Sequence[Occurrence]) -> Iterator[tuple[int, str]]:
    """The source lines that findings are about, each once, in order."""
    found = {}
    for one in findings:
        found[one.finding.file_line] = one.finding.source
        found[one.finding.other_line] = one.finding.other_source
    return ((line, text) for line, text in sorted(found.items()) if line)
