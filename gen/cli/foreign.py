"""`gen run`, and the options of `gen check` and `gen profile` that launch any kernel."""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli.annotations import Annotations
from gen.cli.options import Command
from gen.errors import UsageError
from gen.files import write
from gen.foreign.launch import LaunchText
from gen.kernels.registry import VARIANTS
from gen.kernels.tunables import Value
from gen.spec.problem import parse_shape

if TYPE_CHECKING:
    from gen.emulator import Finding
    from gen.foreign.check import Report
    from gen.foreign.emulate import Checks, Outcome
    from gen.foreign.gemm import GemmReport
    from gen.profile.count import LaunchProfile

KERNEL = typer.Option("--kernel", metavar="NAME", help="The kernel, such as 'scale<float>'.")
GRID = typer.Option("--grid", metavar="X,Y,Z", help="Blocks; also as '(n+255)/256'.")
BLOCK = typer.Option("--block", metavar="X,Y,Z", help="Threads of a block.")
CLUSTER = typer.Option(
    "--cluster", metavar="X,Y,Z", help="Blocks of a cluster; default: what the kernel declares."
)
ARG = typer.Option(
    "--arg", metavar="NAME=VALUE", help="An argument, such as A=f32[64,64]:random; repeatable."
)
DYNAMIC = typer.Option(
    "--dynamic-shared", metavar="BYTES", help="Dynamic shared memory of a block; default: 0."
)
EXPECT = typer.Option(
    "--expect", metavar="NAME=FILE", help="What a buffer should hold afterwards; repeatable."
)
REFERENCE = typer.Option(
    "--reference", metavar="MODULE:FUNCTION", help="A Python function that computes the same."
)
TOLERANCE = typer.Option(
    "--tolerance", metavar="X", help="Allowed error, relative to the largest expected value."
)
GEMM = typer.Option(
    "--gemm", metavar="ROLES", help="The kernel is a GEMM: A=a,B=b,C=c,M=m,N=n,K=k and so on."
)
GEMM_DTYPE = typer.Option(
    "--gemm-dtype", metavar="TYPE", help="Element types of a GEMM; default: the parameters'."
)
TOOL = typer.Option(
    "--tool",
    metavar="NAMES",
    help="Checks of a launch: memcheck,racecheck,initcheck,synccheck; default: all.",
)
SEED = typer.Option("--seed", metavar="N", help="Seed of random contents; default: 0.")
INCLUDE = typer.Option("-I", "--include", metavar="DIR", help="A folder of headers; repeatable.")
DEFINE = typer.Option("-D", "--define", metavar="NAME=VALUE", help="A macro; repeatable.")
STD = typer.Option("--std", metavar="STD", help="The C++ standard; default: c++17.")
ARCH = typer.Option("--arch", metavar="SM", help="Architecture; default: sm_80.")
BUDGET = typer.Option(
    "--budget", metavar="N", min=1, help="Instructions, over all threads, that a launch may run."
)

_TEXT, _TEXTS = str | None, list[str] | None
# Name, type and option: of every launch, and of those whose results are checked.
_LAUNCH: tuple[tuple[str, Any, Any], ...] = (
    ("kernel", _TEXT, KERNEL), ("grid", _TEXT, GRID), ("block", _TEXT, BLOCK),
    ("cluster", _TEXT, CLUSTER),
    ("arg", _TEXTS, ARG), ("dynamic_shared", _TEXT, DYNAMIC), ("seed", _TEXT, SEED),
    ("include", _TEXTS, INCLUDE), ("define", _TEXTS, DEFINE), ("std", _TEXT, STD),
)  # fmt: skip
_CHECKED: tuple[tuple[str, Any, Any], ...] = (
    ("expect", _TEXTS, EXPECT), ("reference", _TEXT, REFERENCE), ("tolerance", _TEXT, TOLERANCE),
    ("gemm", _TEXT, GEMM), ("gemm_dtype", _TEXT, GEMM_DTYPE), ("tool", _TEXT, TOOL),
)  # fmt: skip
_SPEC_LINE = re.compile(r"^\s*//\s*gen-spec:", re.MULTILINE)
_MADE_BY = re.compile(
    r"^// Made by gemmgen \S+(?: with NVRTC [\d.]+)?([:;])(.*(?:\n//     .*)*)", re.MULTILINE
)
_NOT_OF_KERNELS = re.compile(r" --(embed|name) \S+")
# What a command that chooses kernels may take, but a launch has no use for.
_CHOICES = ("variant", "dtype", "layout", "also", "allow_unreached")
_TUNABLES = {tunable.name: tunable for row in VARIANTS.values() for tunable in row.tunables}


def launch_options(command: Command, checked: bool = True) -> Command:
    """A command for emitted kernels that takes any other file, too, with how to launch it.

    `--grid` and `--cluster` are options of both: of an emitted kernel they are tunables.
    """
    signature = inspect.signature(command, eval_str=True)
    added = [*_LAUNCH, *(_CHECKED if checked else ())]
    names = [name for name, _, _ in added]
    kept = [p for p in signature.parameters.values() if p.name not in names]
    shared = [name for name in names if name in signature.parameters and name in _TUNABLES]
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind, option])
        for name, kind, option in added
    ]

    def run(**options: Any) -> None:
        own = {name: options.pop(name) for name in names}
        files: Sequence[Path] = options.get("files") or ()
        foreign = [file for file in files if _is_foreign(file)]
        if foreign and len(files) > 1:
            raise UsageError(f"{foreign[0]} is no emitted file; such files go one at a time")
        file = files[0] if files else None
        if file is None or not foreign:
            _refuse_launch({name: own[name] for name in own if name not in shared}, file)
            command(**options, **{name: _tunable(name, own[name]) for name in shared})
            return
        given = {name for name, value in options.items() if value is not None}
        given -= {name for name in given if options[name] is False}
        chosen = [name for name in (*_CHOICES, *_TUNABLES.keys() - set(shared)) if name in given]
        if own["gemm"] if checked else False:
            chosen = [name for name in chosen if name != "layout"]
        if chosen:
            raise UsageError(
                f"{file} is no emitted file; leave out the options that choose one: "
                f"{', '.join('--' + name.replace('_', '-') for name in chosen)}"
            )
        launch = _launch_text(own, options)
        if not launch.kernel:
            _refuse_emitted(file)
        (_check if checked else _profile)(file, launch, own, options)

    run.__doc__ = command.__doc__
    run.__signature__ = signature.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _is_foreign(file: Path) -> bool:
    """Whether a file has no `gen-spec` line, which says how gen's own kernels are launched."""
    from gen.foreign.prepare import read_text

    return not _SPEC_LINE.search(read_text(file))


def _refuse_emitted(file: Path) -> None:
    """Raises UsageError for what gen emits besides kernels, and says what to give in its place."""
    from gen.foreign.prepare import read_text

    made = _MADE_BY.search(read_text(file))
    if made is None:
        return
    command = " ".join(made[2].replace("//", "").split())
    if made[1] == ";" or file.suffix == ".h":
        raise UsageError(
            f"{file} is a header of gen emit, without a kernel; use the file beside it"
        )
    if "--bundle" in command:
        raise UsageError(
            f"{file} is a bundle, whose kernels gen takes one at a time, and whose choice among "
            "them it does not look at; give the options of a line of its list in place of the "
            "file, such as --variant mma --dtype f16, or say how to launch one of its kernels: "
            "--kernel, --grid, --block, --arg"
        )
    options = _NOT_OF_KERNELS.sub("", command).removeprefix("gen emit").strip()
    what = "kernels for several architectures" if file.suffix == ".cu" else "compiled code"
    raise UsageError(
        f"{file} has {what}, which gen does not look at, nor at the launcher; in place of the "
        f"file, give the kernel that it was made from, with one --arch: {options}"
    )


def _refuse_launch(own: Mapping[str, Any], file: Path | None) -> None:
    given = [name for name, value in own.items() if value]
    if not given:
        return
    options = ", ".join("--" + name.replace("_", "-") for name in given)
    if file is None:
        raise UsageError(f"{options}: launch options go with exactly one file; name it")
    raise UsageError(
        f"{file} is an emitted file, whose gen-spec line says how it is launched; "
        f"leave out {options}"
    )


def _tunable(name: str, text: str | None) -> Value | None:
    """`--grid N` or `--cluster MxN` of an emitted kernel."""
    return None if text is None else _TUNABLES[name].parse(text)


def _launch_text(own: Mapping[str, Any], options: Mapping[str, Any]) -> LaunchText:
    known = {field.name for field in fields(LaunchText)}
    found = {name: value for name, value in own.items() if name in known and value is not None}
    found = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
    if layout := options.get("layout"):
        found["layout"] = layout[0]
    if arch := options.get("arch"):
        found["arch"] = arch
    return LaunchText(**found)


def _checks(own: Mapping[str, Any], options: Mapping[str, Any]) -> Checks:
    from gen.foreign.emulate import MAX_FINDINGS, TOOLS, Checks

    tools = tuple(own["tool"].split(",")) if own.get("tool") else TOOLS
    most = options.get("max_findings") or MAX_FINDINGS
    return Checks(tools, most, options.get("budget"), _seed(own.get("seed")))


def _seed(text: str | None) -> int:
    if text is not None and not text.isdecimal():
        raise UsageError(f"--seed {text} is not a number from 0")
    return int(text or 0)


def _read(file: Path, launch: LaunchText) -> tuple[str, list[LaunchText]]:
    from gen.foreign.emulate import launches_of
    from gen.foreign.prepare import read_text

    text = read_text(file)
    return text, launches_of(text, str(file), launch)


# -- gen check -------------------------------------------------------------------------------------


def _check(
    file: Path, launch: LaunchText, own: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    from gen.foreign.check import check

    notes = Annotations(options["annotations"], options["json"])
    text, launches = _read(file, launch)
    checks = _checks(own, options)
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
            report = check(text, str(file), launches, checks)
        ok, found, wrong = report.ok, report.outcome.findings, report.mismatches
        _print_json(report) if options["json"] else _print(report, str(file), len(checks.tools))
    for one in found:
        notes.error(str(file), one.file_line, f"{one.check}: {one.message}")
    for message in wrong:
        notes.error(str(file), 0, message)
    if not ok:
        raise typer.Exit(1)


def _check_gemm(
    text: str, name: str, launch: LaunchText, checks: Checks, options: Mapping[str, Any]
) -> GemmReport:
    from gen.cli import tables
    from gen.foreign.gemm import check_gemm, default_shapes, understand

    gemm = understand(text, name, launch)
    shapes = [parse_shape(one) for one in options.get("shape") or ()] or default_shapes(gemm)
    with tables.progress("checking", len(shapes)) as step:
        report = check_gemm(gemm, checks, shapes, step)
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
    from gen.cli import tables
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
        if number:
            print(f"{number:6} | {text.rstrip()}")


def _titles(outcome: Outcome) -> dict[str, str]:
    return {one.built.symbol: one.built.title for one in outcome.launched}


def _print(report: Report, file: str, tools: int) -> None:
    outcome = report.outcome
    for note in outcome.left_out:
        print(f"note: {note}", file=sys.stderr)
    _print_lines(outcome)
    titles = _titles(outcome)
    if outcome.findings:
        _print_findings([(finding, "") for finding in outcome.findings], titles)
    if outcome.notes:
        _print_findings([(note, "; both write the same value") for note in outcome.notes], titles,
                        "note")  # fmt: skip
    for message in report.mismatches:
        print(f"mismatch: {message}")
    if outcome.stopped:
        print(f"stopped: {outcome.stopped}")
    names = ", ".join(dict.fromkeys(titles.values())) or file
    if report.ok:
        agree = f"; as expected: {', '.join(report.compared)}" if report.compared else ""
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
    from gen.cli import tables

    outcome = report.outcome
    tables.as_json(
        {
            "ok": report.ok,
            "kernels": list(dict.fromkeys(_titles(outcome).values())),
            "findings": [_finding_fields(finding) for finding in outcome.findings],
            "notes": [_finding_fields(finding) for finding in outcome.notes],
            "suppressed": outcome.suppressed,
            "mismatches": report.mismatches,
            "compared": report.compared,
            "printed": [asdict(one) for one in outcome.printed],
            "error": outcome.stopped or None,
            "left_out": outcome.left_out,
            "instructions": outcome.instructions,
            "seconds": outcome.seconds,
        }
    )


def _print_gemm(report: GemmReport) -> None:
    for note in report.left_out:
        print(f"note: {note}", file=sys.stderr)
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


# -- gen profile -----------------------------------------------------------------------------------


def _profile(
    file: Path, launch: LaunchText, own: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    from gen.cli import tables
    from gen.cli.profile import launch_fields
    from gen.device.gpus import find_gpu
    from gen.foreign.count import profile

    text, launches = _read(file, launch)
    gpu = find_gpu(options["gpu"])
    with Annotations(options["annotations"], options["json"]).of_compiler():
        found = profile(text, str(file), launches, gpu, _checks(own, options))
    if options["json"]:
        tables.as_json({"gpu": gpu.name, "kernels": [launch_fields(one) for one in found]})
        return
    print(f"{file} on {gpu.name} ({gpu.title}); shared loads: {found[0].widths}\n")
    _print_profiles(found)


_OF_GEMMS = ("bytes of A, B and D", "operations a byte of sectors")


def _print_profiles(found: Sequence[LaunchProfile]) -> None:
    from gen.cli import tables
    from gen.cli.profile import SELDOM, SUMMARY, line_row
    from gen.profile.explain import verdict_of_launch

    headers = ("", *(one.kernel for one in found))
    rows: list[Sequence[str]] = [
        (name, *(value(one) for one in found)) for name, value in SUMMARY if name not in _OF_GEMMS
    ]
    rows = [row for row in rows if row[0] not in SELDOM or any(cell != "0" for cell in row[1:])]
    rows.append(("PTX instructions of warps", *(f"{p.totals.instructions:,}" for p in found)))
    for name in dict.fromkeys(name for one in found for name in one.totals.by_class):
        rows.append((f"  {name}", *(f"{p.totals.by_class.get(name, 0):,}" for p in found)))
    tables.table(headers, rows, headers[1:])
    for one in found:
        print(f"\n{one.kernel}:")
        columns = ("line", "access", "requests", "parts", "a request", "ideal", "text")
        tables.table(columns, [line_row(line) for line in one.lines], (columns[0], *columns[2:6]))
        for sentence in verdict_of_launch(one):
            print(f"- {sentence}")


# -- gen run ---------------------------------------------------------------------------------------


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="CUDA source, or PTX.")],
    kernel: Annotated[str | None, KERNEL] = None,
    grid: Annotated[str | None, GRID] = None,
    block: Annotated[str | None, BLOCK] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    arg: Annotated[list[str] | None, ARG] = None,
    dynamic_shared: Annotated[str | None, DYNAMIC] = None,
    save: Annotated[
        list[str] | None,
        typer.Option("--save", metavar="NAME=FILE", help="Write a buffer to FILE.npy; repeatable."),
    ] = None,
    show: Annotated[
        list[str] | None,
        typer.Option("--print", metavar="NAME", help="Print a whole buffer; repeatable."),
    ] = None,
    seed: Annotated[str | None, SEED] = None,
    budget: Annotated[int | None, BUDGET] = None,
    arch: Annotated[str | None, ARCH] = None,
    include: Annotated[list[str] | None, INCLUDE] = None,
    define: Annotated[list[str] | None, DEFINE] = None,
    std: Annotated[str | None, STD] = None,
) -> None:
    """Run any kernel on the emulator; print or save what it computes."""
    from gen.foreign.emulate import prepare as compile_steps
    from gen.foreign.emulate import run_steps
    from gen.foreign.words import sentence

    own = {
        "kernel": kernel, "grid": grid, "block": block, "cluster": cluster, "arg": arg,
        "dynamic_shared": dynamic_shared, "include": include, "define": define, "std": std,
    }  # fmt: skip
    if not _is_foreign(file):
        raise UsageError(
            f"{file} is an emitted file; gen verify and gen check run it, and gen.Kernel in Python"
        )
    text, launches = _read(file, _launch_text(own, {"arch": arch}))
    if any(one.gemm for one in launches):
        raise UsageError("--gemm is for gen check; give an --arg for each parameter")
    checks = _checks({"seed": seed}, {"budget": budget})
    # What a GPU would stop at, or hang.
    checks = replace(checks, tools=("memcheck", "synccheck"))
    outcome = run_steps(compile_steps(text, str(file), launches), checks)
    _check_buffers(outcome, [*(text.partition("=")[0] for text in save or ()), *(show or ())])
    _print_lines(outcome)
    _print_buffers(outcome, show or ())
    _save_buffers(outcome, save or ())
    if outcome.stopped:
        print(f"stopped: {outcome.stopped}")
    if outcome.findings:
        print(f"wrong: {sentence(outcome.findings[0])}; gen check says more")
    if outcome.stopped or outcome.findings:
        raise typer.Exit(1)


def _print_lines(outcome: Outcome) -> None:
    """What printf has printed, with who did."""
    for one in outcome.printed:
        block, thread = (",".join(map(str, at)) for at in (one.block, one.thread))
        print(f"block ({block}), thread ({thread}): {one.text}".rstrip("\n"))


def _check_buffers(outcome: Outcome, names: Sequence[str]) -> None:
    for name in names:
        if name not in outcome.arrays:
            known = ", ".join(outcome.arrays) or "none"
            raise UsageError(f"there is no buffer '{name}'; the buffers of the launch: {known}")


def _print_buffers(outcome: Outcome, whole: Sequence[str]) -> None:
    import numpy as np

    for name in dict.fromkeys([*outcome.changed, *whole]):
        array = outcome.arrays[name]
        shape = ",".join(map(str, array.shape))
        if name in whole:
            print(f"{name}: {outcome.types[name]}[{shape}]")
            print(np.array2string(array, threshold=sys.maxsize))
            continue
        some = " ".join(f"{value:.6g}" for value in array.reshape(-1)[:8])
        more = " ..." if array.size > 8 else ""
        print(f"{name}: {outcome.types[name]}[{shape}] = {some}{more}")
    if not outcome.changed and not whole:
        print("no buffer has changed")


def _save_buffers(outcome: Outcome, texts: Sequence[str]) -> None:
    import numpy as np

    for text in texts:
        name, _, path = text.partition("=")
        if not path.endswith((".npy", ".bin")):
            raise UsageError(f"--save {text} is not NAME=FILE.npy or NAME=FILE.bin")
        data = io.BytesIO(outcome.stored[name].tobytes())
        if path.endswith(".npy"):
            data = io.BytesIO()
            np.save(data, outcome.arrays[name], allow_pickle=False)
        write(data.getvalue(), Path(path))
        print(path)
