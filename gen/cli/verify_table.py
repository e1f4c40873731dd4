"""What `gen verify` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gen.cli.tables import Growing, Row, as_json, seconds

if TYPE_CHECKING:
    from gen.prove.verify import CaseResult, ShapeResult
    from gen.spec.kernel import KernelSpec


RESULT = ("variant", "dtype", "layout", "shape", "error/bound", "time", "device", "result")


def growing_results(specs: Sequence[KernelSpec], shapes: Sequence[str], device: str) -> Growing:
    """The table of `gen verify`, of these kernels and what stands for their shapes."""
    columns = ([s.variant for s in specs], [s.dtypes.name for s in specs], ["rrr"], shapes)
    widths = [max(map(len, column), default=0) for column in columns]
    return Growing(RESULT, [*widths, 0, 7, len(device), 6], ("error/bound", "time"))


def result_row(group: Sequence[ShapeResult], device: str) -> Row:
    """A row of `gen verify`: a kernel on a shape or on several."""
    spec = group[0].spec
    bad = [result for result in group if not result.ok]
    # NaN must not hide behind a finite number, and max() would let it.
    worst = max((math.inf if math.isnan(r.worst) else r.worst) for r in group)
    return (
        spec.variant,
        spec.dtypes.name,
        str(spec.layouts),
        str(group[0].shape) if len(group) == 1 else shapes_of(len(group)),
        f"{worst:.2g}",
        seconds(sum(result.seconds for result in group)),
        device,
        "FAILED" if bad else "ok",
    )


def shapes_of(count: int) -> str:
    """What stands for several shapes in the table of `gen verify`."""
    return f"{count} shapes"


def failures(found: Sequence[Sequence[ShapeResult]], each: bool, left: int) -> None:
    """What `gen verify` says below its table; `left` kernels were not run to the end."""
    groups = [[result] for group in found for result in group] if each else found
    wrong = [bad for group in groups if (bad := [r for r in group if not r.ok])]
    for first, *others in wrong:
        more = f" (and {len(others)} more shapes; --each shows them)" if others else ""
        print(f"{first.spec.name} on {first.shape}: {first.message}{more}")
    failed = sum(any(not result.ok for result in group) for group in found)
    end = f"; stopped before the end of {left} more" if left else ""
    print(f"{len(found) - failed} of {len(found)} kernels are right{end}")


def results_as_json(found: Sequence[ShapeResult], device: str, complete: bool) -> None:
    """What `gen verify --json` prints; what is not complete is not right."""
    fields = [result_fields(result) for result in found]
    ok = complete and all(result.ok for result in found)
    as_json({"device": device, "ok": ok, "results": fields})


def result_fields(result: ShapeResult) -> dict[str, object]:
    """A kernel on a shape, as `gen verify --json` has it. An infinite or NaN `worst` is null."""
    spec = result.spec
    return {
        "name": spec.name,
        "variant": spec.variant,
        "dtype": spec.dtypes.name,
        "layout": str(spec.layouts),
        "tunables": dict(spec.tunables),
        "shape": str(result.shape),
        "ok": result.ok,
        "worst": _finite(result.worst),
        "seconds": result.seconds,
        "message": result.message,
        "cases": [_case_fields(case) for case in result.cases],
    }


def _case_fields(case: CaseResult) -> dict[str, object]:
    p = case.problem
    return {
        "kind": case.kind,
        "alpha": p.alpha,
        "beta": p.beta,
        "lda": p.lda,
        "ldb": p.ldb,
        "ldc": p.ldc,
        "ldd": p.ldd,
        "ok": case.ok,
        "worst": _finite(case.worst),
        "seconds": case.seconds,
        "message": case.message,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
