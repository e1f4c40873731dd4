"""What `gen check` prints of emitted kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gen.cli import tables
from gen.spec.problem import GemmShape

if TYPE_CHECKING:
    from gen.prove.check import CheckReport, Occurrence

MOST_MISMATCHES = 3  # shapes of which one is printed
_MOST_LINES = 8  # that no launch has run


def fields(report: CheckReport) -> dict[str, object]:
    """A kernel's report, as `--json` has it."""
    return {
        "kernel": report.spec.name,
        "ok": report.ok,
        "launches": report.trials,
        "launches_left": report.left,
        "shapes": [str(shape) for shape in report.shapes],
        "findings": [
            {**one.finding.as_dict(), "shape": str(one.shape), "launches": one.launches}
            for one in report.findings
        ],
        "suppressed": report.suppressed,
        "notes": [note._asdict() for note in report.notes],
        "mismatches": [
            {"shape": str(shape), "message": message} for shape, message in report.mismatches
        ],
        "error": report.error or None,
        "skipped": report.skipped or None,
        "lines_not_run": report.not_run,
        "lines_not_probed": report.unprobed,
        "unreached": [
            {
                "line": one.line,
                "side": "launcher" if one.host else "kernel",
                "message": one.message,
                "allowed": report.allow_unreached,
            }
            for one in report.unreached
        ],
        "launcher": _launcher_fields(report),
        "seconds": report.seconds,
    }


def _launcher_fields(report: CheckReport) -> dict[str, object] | None:
    found = report.launcher
    if found is None:
        return None
    return {
        "as_emitted": found.as_emitted,
        "calls": found.calls,
        "wrong": found.wrong,
        "not_checked": found.skipped or None,
    }


def show(report: CheckReport) -> None:
    """Prints what the checks of a kernel came to."""
    if report.ok:
        print(f"{report.spec.name}: nothing found in {_tried(report)}", flush=True)
        _print_unreached(report)
    else:
        _print_one(report)


def show_end(reports: Sequence[CheckReport], left: int) -> None:
    """Prints what is said below all reports; `left` kernels were not checked."""
    if len(reports) + left > 1:
        good = sum(report.ok for report in reports)
        end = f"; stopped before the end of {left} more" if left else ""
        print(f"{good} of {len(reports)} kernels are clean{end}")
    for note in (note for report in reports for note in report.notes):
        print(f"note: {note.message}")


def _tried(report: CheckReport) -> str:
    """What was checked, and what was not."""
    missing = [report.skipped] if report.skipped else []
    if report.left:
        why = ", as these are enough (--all goes on)" if report.enough else ""
        missing.append(f"{report.left} more launches{why}")
    if not report.launcher:
        missing.append("the launcher")
    if report.not_run:
        lines = ", ".join(map(str, report.not_run[:_MOST_LINES]))
        more = ", ..." if len(report.not_run) > _MOST_LINES else ""
        missing.append(f"lines that no launch has run: {lines}{more}")
    if report.unprobed:
        lines = ", ".join(map(str, report.unprobed))
        missing.append(f"conditions that take no probe, of lines {lines}")
    shapes = "1 shape" if len(report.shapes) == 1 else f"{len(report.shapes)} shapes"
    tried = [f"{_launches(report.trials)} on {shapes}"]
    if report.launcher:
        tried.append(f"  launcher: {report.launcher}")
    if missing:
        tried.append(f"  not checked: {'; '.join(missing)}")
    return "\n".join(tried)


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count} launches"


def _print_one(report: CheckReport) -> None:
    from gen.prove.check import lines_of

    print(f"{report.spec.name}:")
    if report.findings:
        rows = [_row(one) for one in report.findings]
        tables.table(("check", "line", "message", "where"), rows, ("line",))
    for line, text in lines_of(report.findings):
        print(f"{line:6} | {text.rstrip()}")
    messages: dict[GemmShape, list[str]] = {}
    for shape, message in report.mismatches:
        messages.setdefault(shape, []).append(message)
    for shape, some in list(messages.items())[:MOST_MISMATCHES]:
        more = f"; and in {_launches(len(some) - 1)} more" if len(some) > 1 else ""
        print(f"mismatch on {shape}: {some[0]}{more}")
    if len(messages) > MOST_MISMATCHES:
        print(f"mismatches on {len(messages) - MOST_MISMATCHES} more shapes (--json has all)")
    if report.error:
        print(f"stopped {report.error}")
    _print_unreached(report)
    found, wrong = len(report.findings), len(report.mismatches)
    counts = [f"{found} finding{'s' * (found != 1)}", f"{wrong} mismatch{'es' * (wrong != 1)}"]
    if report.unreached:
        counts.append(f"{len(report.unreached)} unreached")
    if report.suppressed:
        counts.append(f"{report.suppressed} repeats or beyond --max-findings")
    print(f"{', '.join(counts)} in {_tried(report)}")


def _row(one: Occurrence) -> tuple[str, str, str, str]:
    finding = one.finding
    block = ",".join(map(str, finding.block))
    threads = " ".join(f"({','.join(map(str, thread))})" for thread in finding.threads)
    who = f"block ({block}), threads {threads}, " if threads else ""
    where = f"{who}shape {one.shape}"
    return finding.check, str(finding.file_line or "?"), finding.message, where


def _print_unreached(report: CheckReport) -> None:
    """What is edited and was not checked, and the ways out."""
    for one in report.unreached:
        print(f"unreached: line {one.line}: {one.message}")
    if report.unreached and not report.allow_unreached:
        print(
            "What these lines do then was not checked. Name a problem that reaches it (--also "
            "5x7x5000,alpha=0.3,lda=8192), or accept that (--allow-unreached)"
        )
