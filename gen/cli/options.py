"""The options that several commands share, and the specifications that they select."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from gen.errors import GenError, SpecError, UsageError
from gen.kernels.epilogues import EPILOGUE, Expression
from gen.kernels.registry import VARIANTS, get_variant, make_spec
from gen.kernels.tunables import Flag, Tunable, Value, Word
from gen.kernels.variant import Variant
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTYPES, parse_dtype
from gen.spec.epilogue import with_operands
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALL_LAYOUTS, GemmShape, parse_layout

if TYPE_CHECKING:
    from gen.source.render import Source

ALL = "all"

FILES = typer.Argument(metavar="[FILE.cu]...", help="Emitted files, as they are now.")

Command = TypeVar("Command", bound=Callable[..., None])

# Each is used as in `dtype: Annotated[str, DTYPE] = "f32"`.
VARIANT = typer.Option(
    "--variant",
    metavar="NAME",
    help="A kernel of gen list, or all; repeatable.",
    autocompletion=lambda incomplete: [n for n in (*VARIANTS, ALL) if n.startswith(incomplete)],
)
DTYPE = typer.Option(
    "--dtype",
    metavar="TYPE",
    help=f"Element types: {', '.join(DTYPES)}; default: the kernel's first.",
)
LAYOUT = typer.Option(
    "--layout",
    metavar="ABC",
    help="For each of A, B, and C with D: r (row-major) or c (column-major).",
)
ARCH = typer.Option(
    "--arch",
    metavar="SM",
    help="Architecture; default: sm_80, or sm_90a for mma_tma and wgmma.",
)
OPERAND = typer.Option(
    "--operand",
    metavar="NAME=TYPE[INDEX]",
    help="An operand of --epilogue that has not D's type: up=f32[row, col] or slope=scalar; "
    "repeatable.",
)
OUTPUT = typer.Option("-o", "--output", metavar="PATH", help="A file, a folder (ends in /), or -.")
JSON = typer.Option("--json", help="Print JSON, for scripts.")
TUNED = typer.Option(
    "--tuned",
    metavar="PATH",
    help="Take measured times from this file or folder of gen tune, and from no other; "
    "shipped: those that come with gen; none: from none.",
)
SHAPE = typer.Option(
    "--shape", metavar="MxNxK", help="Problem size, or one number for a cube; repeatable."
)
RESULTS = typer.Option(
    "--json", metavar="FILE", help="Keep the results here while they are measured."
)
LIMIT = typer.Option(
    "--limit", metavar="SECONDS", min=0.01, help="Time a kernel on a shape for at most so long."
)
RESUME = typer.Option("--resume", help="Measure only what the file of --json lacks.")


def of_types(usual: str = "") -> Any:
    """`--dtype`, of a command that takes several. usual: what it takes where none is named."""
    default = f"; default: {usual}" if usual else ""
    return typer.Option(
        "--dtype",
        metavar="TYPE",
        help=f"Element types: {', '.join(DTYPES)}{default}; repeatable.",
    )


def _parser(tunable: Tunable) -> Callable[[str], Value]:
    def parse(text: str) -> Value:
        try:
            return tunable.parse(text)
        except UsageError as error:
            # typer names the option itself.
            raise typer.BadParameter(str(error).removeprefix(f"{tunable.name}: ")) from None

    return parse


def tunables() -> Mapping[str, Tunable]:
    """Those of all kernels, by name: of words, with all that some kernel knows."""
    found: dict[str, Tunable] = {}
    for tunable in (t for variant in VARIANTS.values() for t in variant.tunables):
        known = found.setdefault(tunable.name, tunable)
        if isinstance(known, Word) and isinstance(tunable, Word):
            words = dict.fromkeys((*known.words, *tunable.words))
            found[tunable.name] = replace(known, words=tuple(words))
    return found


def tunable_options(command: Command) -> Command:
    """Replaces the parameter `**tunables` by one option for each tunable in the registry.

    A kernel with a new tunable thereby gets its option without a change here.
    """
    first = tunables()
    owners: dict[str, list[str]] = {}
    for variant in VARIANTS.values():
        for tunable in variant.tunables:
            owners.setdefault(tunable.name, []).append(variant.name)

    def option(name: str) -> inspect.Parameter:
        everywhere = len(owners[name]) == len(VARIANTS)
        where = "every kernel" if everywhere else ", ".join(owners[name])
        tunable = first[name]
        facts = [f"{tunable.help[0].upper()}{tunable.help[1:]}"]
        values: dict[str, list[str]] = {}
        for variant in VARIANTS.values():
            for t in variant.tunables:
                if t.name == name and t.metavar != t.values:
                    values.setdefault(t.values, []).append(variant.name)
        if len(values) > 1:
            facts += [f"{some} ({', '.join(whose)})" for some, whose in values.items()]
            where = ""
        else:
            facts += values
        defaults = {t.default for v in VARIANTS.values() for t in v.tunables if t.name == name}
        if len(defaults) == 1 and not callable(tunable.default) and tunable.default is not False:
            facts.append(f"default {tunable.show(tunable.default)}")
        text = f"{'; '.join(facts)} ({where})." if where else f"{'; '.join(facts)}."
        if isinstance(tunable, Expression):
            text = f"{text[:-1]}; see --operand."
        flag, metavar = f"--{name.replace('_', '-')}", tunable.metavar
        keyword = inspect.Parameter.KEYWORD_ONLY
        annotation: Any
        if isinstance(tunable, Flag):
            annotation = Annotated[bool | None, typer.Option(flag, help=text)]
        else:
            # An expression is read with what the other option says of its operands.
            parser = str if isinstance(tunable, Expression) else _parser(tunable)
            info = typer.Option(flag, metavar=metavar, help=text, parser=parser)
            annotation = Annotated[str | None, info]
        return inspect.Parameter(name, keyword, default=None, annotation=annotation)

    signature = inspect.signature(command, eval_str=True)
    written = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    operand = inspect.Parameter(
        "operand",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[str] | None, OPERAND],
    )
    parameters = [*written, *map(option, owners), operand]

    @functools.wraps(command)
    def with_epilogue(operand: list[str] | None = None, **options: Any) -> None:
        options["epilogue"] = _epilogue(options.get("epilogue"), operand or [])
        command(**options)

    whole = signature.replace(parameters=parameters)
    with_epilogue.__signature__ = whole  # type: ignore[attr-defined]
    return cast(Command, with_epilogue)


def _epilogue(text: str | None, operands: Sequence[str]) -> Value | None:
    """The value of --epilogue with each --operand. Raises UsageError."""
    if text is None:
        if operands:
            raise UsageError(f"--operand {operands[0]} is for an expression; use --epilogue, too")
        return None
    try:
        return EPILOGUE.parse(with_operands(text, operands))
    except UsageError as error:
        reason = str(error).removeprefix("epilogue: ")
        raise typer.BadParameter(reason, param_hint="'--epilogue'") from None


def select(
    variants: Sequence[str],
    dtypes: Sequence[str] | None,
    layouts: Sequence[str],
    arch: str | None,
    tunables: Mapping[str, Value | None],
    name: str | None = None,
) -> list[KernelSpec]:
    """Every combination, checked. No dtypes means all that a variant has, None its first.

    Without an architecture, each variant has its own. With several variants, a tunable goes to
    those that have it: to one at least. Of `all`, what does not exist is left out, with a note;
    what was named is never left out.
    """
    rows = _rows(variants)
    given = {key: value for key, value in tunables.items() if value is not None}
    layouts = ALL_LAYOUTS if ALL in layouts else list(dict.fromkeys(layouts))
    if dtypes:
        dtypes = () if ALL in dtypes else list(dict.fromkeys(dtypes))
    for dtype in dtypes or ():
        parse_dtype(dtype)
    if arch:
        compute_capability(arch)
    for layout in layouts:
        parse_layout(layout)
    if len(rows) > 1:
        _require_owner(rows, given)
    specs: list[KernelSpec] = []
    left: dict[tuple[Variant, str], GenError] = {}
    for row in rows:
        own = _own(rows, row, given)
        for dtype in row.dtypes[:1] if dtypes is None else dtypes or row.dtypes:
            try:
                specs += [
                    make_spec(row.name, dtype=dtype, layout=layout, arch=arch, name=name, **own)
                    for layout in layouts
                ]
            except (SpecError, UsageError) as error:  # the latter for a word that others have
                if row.name in variants and dtype in (dtypes or ()):
                    raise
                left[row, dtype] = error
    _leave_out(left, specs, {*variants, *(dtypes or ()), *given})
    if name and len(specs) > 1:
        raise UsageError(f"--name {name} cannot be the name of {len(specs)} kernels; choose one")
    return specs


def measurable(shapes: Sequence[GemmShape]) -> Sequence[GemmShape]:
    """The same. Raises UsageError where one is empty."""
    if empty := next((s for s in shapes if 0 in (s.m, s.n, s.k)), None):
        raise UsageError(f"shape {empty} has nothing to measure; use sizes of 1 or more")
    return shapes


def sources(
    files: Sequence[Path] | None,
    variants: Sequence[str] | None,
    dtypes: Sequence[str] | None,
    layouts: Sequence[str] | None,
    arch: str | None,
    tunables: Mapping[str, Value | None],
) -> list[Source]:
    """The files as they are, or else the kernels that options choose."""
    from gen.source.render import read_source, render

    if not files:
        specs = select(variants or [], dtypes, layouts or ["rrr"], arch, tunables)
        return [render(spec) for spec in specs]
    if variants or dtypes or layouts or any(value is not None for value in tunables.values()):
        raise UsageError(f"{files[0]} says what it is; leave out the options that choose a kernel")
    return [read_source(file) for file in files]


def _leave_out(
    left: Mapping[tuple[Variant, str], GenError], specs: Sequence[KernelSpec], named: set[str]
) -> None:
    """Notes on combinations that do not exist. Raises the error where nothing else has a name."""
    have = {name for spec in specs for name in (spec.variant, spec.dtypes.name, *spec.tunables)}
    for (row, dtype), error in left.items():
        if not specs or named & {row.name, dtype, *row.tunable_names} - have:
            raise error
    if left:
        names = ", ".join(f"{row.name} {dtype}" for row, dtype in left)
        reason = str(next(iter(left.values()))).partition("; use ")[0]
        print(f"note: left out, because there is none: {names} ({reason})", file=sys.stderr)


def _rows(names: Sequence[str]) -> list[Variant]:
    if not names:
        raise UsageError(f"no kernel is named; use --variant with {', '.join(VARIANTS)} or {ALL}")
    chosen = [row for name in names for row in _named(name)]
    return list(dict.fromkeys(chosen))


def _named(name: str) -> list[Variant]:
    return list(VARIANTS.values()) if name == ALL else [get_variant(name)]


def _require_owner(rows: Sequence[Variant], given: Mapping[str, Value]) -> None:
    owned = {tunable.name for row in rows for tunable in row.tunables}
    for key in given:
        if key not in owned:
            known = ", ".join(sorted(owned))
            raise SpecError(f"none of these kernels has the tunable '{key}'; they have {known}")


def _own(rows: Sequence[Variant], row: Variant, given: Mapping[str, Value]) -> dict[str, Any]:
    # A variant chosen alone gets all that was given, and refuses what it does not have.
    names = given if len(rows) == 1 else {tunable.name for tunable in row.tunables}
    return {key: value for key, value in given.items() if key in names}
