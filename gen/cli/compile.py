"""`gen compile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gen.cli import compile_table, output
from gen.cli.annotations import OPTION as ANNOTATIONS
from gen.cli.annotations import Annotations
from gen.cli.options import ARCH, DTYPE, JSON, LAYOUT, OUTPUT, VARIANT, sources
from gen.cli.progress import progress
from gen.errors import UsageError, unknown
from gen.kernels.tunables import Value
from gen.source.render import Source

FORMATS = ("ptx", "cubin")


def compile(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.cu]...", help="Files to compile as they are."),
    ] = None,
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[str | None, DTYPE] = None,
    layout: Annotated[str | None, LAYOUT] = None,
    arch: Annotated[str | None, ARCH] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="What -o gets: ptx or cubin.")
    ] = "ptx",
    output_: Annotated[str | None, OUTPUT] = None,
    json: Annotated[bool, JSON] = False,
    annotations: Annotated[str | None, ANNOTATIONS] = None,
    **tunables: Value | None,
) -> None:
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    notes = Annotations(annotations, json)
    dtypes, layouts = [dtype] if dtype else None, [layout] if layout else None
    found = sources(files, variant, dtypes, layouts, arch, tunables)
    with notes.of_compiler():
        _compile(found, arch, format_, output_, json)


def _compile(
    sources: Sequence[Source], arch: str | None, format: str, target: str | None, json: bool
) -> None:
    from gen.compile.log import refuse_serialized
    from gen.compile.nvrtc import compile_cuda

    compiled, files = [], []
    with progress("compiling", len(sources)) as step:
        for source in sources:
            step.now(f"compiling {source.name}")
            chosen = arch or (source.spec.arch if source.spec else "sm_80")
            # Registers are allocated in a cubin; PTX has none.
            cubin = compile_cuda(source.text, name=source.place, arch=chosen, format="cubin")
            refuse_serialized(source.place, cubin.log)
            if not cubin.resources:
                raise UsageError(
                    f"{source.place} has no kernel: nothing in it is __global__, or it is a "
                    "template that nothing instantiates; name a file that has one"
                )
            compiled.append((source, cubin))
            if target is not None:
                code = cubin
                if format != "cubin":
                    code = compile_cuda(source.text, name=source.place, arch=chosen, format=format)
                files.append((f"{source.name}.{format}", code.code))
            step()
    paths = output.write_all(files, target) if target is not None else []
    if target != output.STDOUT:
        compile_table.resources(compiled, paths, json)
