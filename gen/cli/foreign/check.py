"""`gen check` of any kernel: what it finds, as a table, as JSON, and as annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gen.cli import tables
from gen.cli.annotations import Annotations
from gen.cli.foreign.options import checks_of, print_lines, print_notes, read
from gen.cli.progress import progress
from gen.errors import UsageError
from gen.foreign.launch import LaunchText
from gen.spec.problem import parse_shape

if TYPE_CHECKING:
    from gen.emulator import Finding
    from gen.foreign.check import Report
    from gen.foreign.gemm import GemmReport
    from gen.foreign.running import Checks, Outcome


def check(
    file: Path, launch: LaunchText, own: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """`gen check FILE --kernel ...`: runs it with all checks; exit code 1 where it is wrong."""
    from gen.foreign import check as any_kernel

    notes = Annotations(options["annotations"], options["json"])
    text, launches = read(file, launch)
    checks = checks_of(own, options)
    if any(one.gemm for one in launches):
        if len(launches) > 1:
            raise UsageError(f"{file}: --gemm goes with one launch, not with {len(launches)}")
        with notes.of_compiler():
            gemm = _check_gemm(text, str(file), launches[0], checks, options)
        ok = gemm.ok
        found = [one for one, _ in gemm.findings]
        wrong = [f"mismatch on {shape}: {message}" for shape, message in gemm.mismatches]
    else:
        if options.get("shape"):
            raise UsageError("--shape is for --gemm; the arguments say how large a launch is")
        if own.get("gemm_dtype"):
            raise UsageError("--gemm-dtype is for --gemm, which names the matrices; give both")
        with notes.of_compiler():
            report = any_kernel.check(text, str(file), launches, checks, options["time"])
        ok, found, wrong = report.ok, report.outcome.findings, report.mismatches
        _print_json(report) if options["json"] else _print(report, str(file))
        if report.refused and not report.wrong:
            raise report.refused
    for one in found:
        notes.error(str(file), one.file_line, f"{one.check}: {one.message}")
    for message in wrong:
        notes.error(str(file), 0, message)
    if not ok:
        raise typer.Exit(1)


def _check_gemm(
    text: str, name: str, launch: LaunchText, checks: Checks, options: Mapping[str, Any]
) -> GemmReport:
    from gen.foreign.gemm import check_gemm
    from gen.foreign.roles import default_shapes, understand

    gemm = understand(text, name, launch)
    shapes = [parse_shape(one) for one in options.get("shape") or ()] or default_shapes(gemm)
    with progress("checking", len(shapes)) as step:
        report = check_gemm(gemm, checks.within(options["time"]), shapes, step)
    if options["json"]:
        tables.as_json(_gemm_fields(report))
    else:
        _print_gemm(report)
    return report


def _where(finding: Finding) -> str:
    block = ",".join(map(str, finding.block))
    threads = " and ".join(f"({','.join(map(str, thread))})" for thread in finding.threads[:2])
    many = "threads" if len(finding.threads[:2]) > 1 else "thread"
    return f"{many} {threads} in block ({block})" if threads else f"block ({block})"


def _print_findings(
    rows: Sequence[tuple[Finding, str]], titles: Mapping[str, str], mark: str = ""
) -> None:
    """A table of findings, and under it the lines that they are about."""
    from gen.foreign.words import sentence

    table = [
        (mark or one.check, titles.get(one.kernel, one.kernel), str(one.file_line or "?"),
         sentence(one), _where(one) + more)
        for one, more in rows
    ]  # fmt: skip
    several = len(titles) > 1
    headers: tuple[str, ...] = ("check", "kernel", "line", "message", "where")
    if not several:
        headers, table = (headers[0], *headers[2:]), [(row[0], *row[2:]) for row in table]  # type: ignore[misc]
    tables.table(headers, table, ("line",))
    lines = {}
    for one, _ in rows:
        lines[one.file_line], lines[one.other_line] = one.source, one.other_source
    for number, text in sorted(lines.items()):
        if number and text:  # PTX names lines of a file that is not here
            print(f"{number:6} | {text.rstrip()}")


def _titles(outcome: Outcome) -> dict[str, str]:
    return {one.built.symbol: one.built.title for one in outcome.launched}


def _print(report: Report, file: str) -> None:
    outcome = report.outcome
    print_notes(outcome.left_out)
    print_lines(outcome)
    titles = _titles(outcome)
    if outcome.findings:
        _print_findings([(finding, "") for finding in outcome.findings], titles)
    if outcome.notes:
        _print_findings([(note, "; both write the same value") for note in outcome.notes], titles,
                        "note")  # fmt: skip
    if outcome.leaks:
        count = _count(outcome.leaks, "allocation")
        print(f"note: {count} of the device's heap not freed, such as {outcome.leaks[0]}")
    for message in report.mismatches:
        print(f"mismatch: {message}")
    if outcome.stopped:
        print(f"stopped: {outcome.stopped}")
    if report.refused and report.wrong:
        print(f"not compared, because {report.refused}")
    names = ", ".join(dict.fromkeys(titles.values())) or file
    if not report.wrong:
        agree = f"; as expected: {', '.join(report.compared)}" if report.compared else ""
        agree = "; not compared" if report.refused else agree
        print(f"{names}: nothing found in {outcome.instructions:,} thread-instructions{agree}")
        return
    counts = [_count(outcome.findings, "finding"), _count(report.mismatches, "mismatch", "es")]
    if outcome.suppressed:
        counts.append(f"{outcome.suppressed} repeats or beyond --max-findings")
    print(f"{names}: {', '.join(counts)}")


def _count(items: Sequence[object], name: str, plural: str = "s") -> str:
    return f"{len(items)} {name}{plural if len(items) != 1 else ''}"


def _finding_fields(finding: Finding) -> dict[str, object]:
    from gen.foreign.words import sentence

    return {**finding.as_dict(), "sentence": sentence(finding)}


def _print_json(report: Report) -> None:

    outcome = report.outcome
    tables.as_json(
        {
            "ok": report.ok,
            "kernels": list(dict.fromkeys(_titles(outcome).values())),
            "findings": [_finding_fields(finding) for finding in outcome.findings],
            "notes": [_finding_fields(finding) for finding in outcome.notes],
            "leaks": outcome.leaks,
            "suppressed": outcome.suppressed,
            "mismatches": report.mismatches,
            "compared": report.compared,
            "not_compared": str(report.refused) if report.refused else None,
            "printed": [asdict(one) for one in outcome.printed],
            "error": outcome.stopped or None,
            "left_out": outcome.left_out,
            "instructions": outcome.instructions,
            "seconds": outcome.seconds,
        }
    )


def _print_gemm(report: GemmReport) -> None:
    print_notes(report.left_out)
    titles = {"": report.title}
    if report.findings:
        rows = [(finding, f", shape {shape}") for finding, shape in report.findings]
        _print_findings(rows, titles)
    if report.notes:
        rows = [(one, f", shape {shape}; the same value") for one, shape in report.notes]
        _print_findings(rows, titles, "note")
    for shape, message in report.mismatches:
        print(f"mismatch on {shape}: {message}")
    if report.stopped:
        print(f"stopped {report.stopped}")
    if report.ok:
        tried = f"{_count(report.shapes, 'shape')} ({report.dtype})"
        print(f"{report.title}: right on {tried}, error/bound {report.worst:.2g}; nothing found")
        return
    right = f": {', '.join(map(str, report.right))}" if report.right else ""
    tried = f"{len(report.right)} of {_count(report.shapes, 'shape')} ({report.dtype})"
    print(f"{report.title}: right on {tried}{right}")
    print(f"{_count(report.findings, 'finding')}, {_count(report.mismatches, 'mismatch', 'es')}")


def _gemm_fields(report: GemmReport) -> dict[str, object]:
    return {
        "ok": report.ok,
        "kernel": report.title,
        "dtype": report.dtype,
        "shapes": [str(shape) for shape in report.shapes],
        "right": [str(shape) for shape in report.right],
        "findings": [{**_finding_fields(f), "shape": str(s)} for f, s in report.findings],
        "notes": [{**_finding_fields(f), "shape": str(s)} for f, s in report.notes],
        "mismatches": [{"shape": str(s), "message": text} for s, text in report.mismatches],
        "worst": report.worst if report.worst < float("inf") else None,
        "error": report.stopped or None,
        "suppressed": report.suppressed,
        "seconds": report.seconds,
    }
