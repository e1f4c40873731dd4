"""A command for emitted kernels that takes any other file, too."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from gen.cli.foreign.check import check
from gen.cli.foreign.emitted import is_foreign, refuse_emitted, refuse_launch
from gen.cli.foreign.options import CHECKED, LAUNCH, launch_text
from gen.cli.foreign.profile import profile
from gen.cli.options import Command, tunables
from gen.errors import UsageError
from gen.kernels.tunables import Value

# What a command that chooses kernels may take, but a launch has no use for.
_CHOICES = ("variant", "dtype", "layout", "also", "allow_unreached")
# What holds, in place of an option that is for emitted kernels alone.
_ALWAYS = {
    "thorough": "a launch is tried as it is given, and a GEMM on the shapes that --shape names",
    "strict": "initcheck reports every load of memory that nothing has written",
    "jobs": "launches run in one process, one after another",
    "all_": "all launches run",
}
_TUNABLES = tunables()


def launch_options(command: Command, checked: bool = True) -> Command:
    """A command for emitted kernels that takes any other file, too, with how to launch it.

    `--grid` and `--cluster` are options of both: of an emitted kernel they are tunables.
    """
    signature = inspect.signature(command, eval_str=True)
    added = [*LAUNCH, *(CHECKED if checked else ())]
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
        foreign = [file for file in files if is_foreign(file)]
        if foreign and len(files) > 1:
            raise UsageError(f"{foreign[0]} is no emitted file; such files go one at a time")
        file = files[0] if files else None
        if file is None or not foreign:
            refuse_launch({name: own[name] for name in own if name not in shared}, file)
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
        for name, instead in _ALWAYS.items():
            if name in given:
                option = f"--{name.removesuffix('_')}"
                raise UsageError(f"{file} is no emitted file; leave out {option}: here, {instead}")
        launch = launch_text(own, options)
        if not launch.kernel:
            refuse_emitted(file)
        (check if checked else profile)(file, launch, own, options)

    run.__signature__ = signature.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _tunable(name: str, text: str | None) -> Value | None:
    """`--grid N` or `--cluster MxN` of an emitted kernel."""
    return None if text is None else _TUNABLES[name].parse(text)
