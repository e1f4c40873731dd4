"""`gen emit`: kernels as CUDA source, for C and C++ projects with a header and a rule for make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gen.cli import output
from gen.cli.options import ARCH, DTYPE, LAYOUT, VARIANT, select
from gen.errors import UsageError
from gen.kernels.tunables import Value
from gen.source.render import render
from gen.spec.kernel import KernelSpec

OUTPUT = typer.Option("-o", "--output", metavar="PATH", help="A file, a folder (ends in /), or -.")
NAME = typer.Option("--name", metavar="SYMBOL", help="C symbol of the kernel, or of the bundle.")
HEADER = typer.Option("--header", help="Write a header for C and C++ beside each kernel, too.")
BUNDLE = typer.Option(
    "--bundle", metavar="FILE", help="Write one .cu and one header with all kernels of a list."
)
EMBED = typer.Option(
    "--embed",
    metavar="FORMATS",
    help="cubin, ptx or cubin,ptx: write C++ that contains machine code, or PTX that the driver "
    "compiles, for --arch (several with commas).",
)
DEPFILE = typer.Option(
    "--depfile",
    metavar="FILE",
    help="Write a rule for make that says what the first file depends on.",
)
DRY_RUN = typer.Option("--dry-run", help="Check everything, print the paths, write nothing.")


@dataclass(frozen=True)
class Emitted:
    """Files by name, in order, and the templates that they are made from."""

    files: Sequence[tuple[str, str]]
    templates: Sequence[str]


def emit(
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[str | None, DTYPE] = None,
    layout: Annotated[str, LAYOUT] = "rrr",
    arch: Annotated[str | None, ARCH] = None,
    name: Annotated[str | None, NAME] = None,
    output_: Annotated[str, OUTPUT] = output.DEFAULT_FOLDER,
    header: Annotated[bool, HEADER] = False,
    bundle: Annotated[Path | None, BUNDLE] = None,
    embed: Annotated[str | None, EMBED] = None,
    depfile: Annotated[Path | None, DEPFILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
    **tunables: Value | None,
) -> None:
    """Write kernels as CUDA source; print the paths."""
    if bundle and embed:
        raise UsageError("--bundle and --embed do not go together; use one of them")
    dtypes = [dtype] if dtype else None
    if bundle:
        if variant or dtype or any(value is not None for value in tunables.values()):
            raise UsageError(f"{bundle} lists the kernels; leave out the options that choose one")
        emitted = _bundle(bundle, name, arch)
    elif embed:
        archs = arch.split(",") if arch else [None]
        specs = select(variant or [], dtypes, [layout], archs[0], tunables, name)
        emitted = _embedded(specs, embed, [a for a in archs if a], dry_run)
    else:
        specs = select(variant or [], dtypes, [layout], arch, tunables, name)
        emitted = _kernels(specs, header)
        if header and len(specs) == 1:
            output_, emitted = _beside(output_, emitted)
    _write(emitted, output_, depfile, dry_run)


def _kernels(specs: Sequence[KernelSpec], header: bool) -> Emitted:
    files, templates = [], [spec.row.template for spec in specs]
    for spec in specs:
        source = render(spec)
        files.append((source.filename, source.text))
        if header:
            from gen.source.cpp.header import TEMPLATE, render_header

            files.append((f"{source.name}.h", render_header(spec)))
            templates.append(TEMPLATE)
    return Emitted(files, templates)


def _bundle(file: Path, name: str | None, arch: str | None) -> Emitted:
    from gen.source.cpp.bundle import read_bundle, render_bundle

    bundle = read_bundle(file, name, arch)
    header, source = render_bundle(bundle)
    files = [(f"{bundle.name}.cu", source), (f"{bundle.name}.h", header)]
    return Emitted(files, bundle.templates)


def _embedded(
    specs: Sequence[KernelSpec], format_: str, archs: Sequence[str], dry_run: bool
) -> Emitted:
    from gen.source.cpp import embed

    formats = embed.formats(format_)
    files: list[tuple[str, str]] = []
    templates = [*embed.TEMPLATES]
    for spec in specs:
        images = embed.embedded_specs(spec, archs or [spec.arch])
        # Compiling takes a while; only names are asked for in a dry run.
        texts = ("", "") if dry_run else embed.render_embedded(images, formats)
        names = (f"{images[0].name}.cpp", f"{images[0].name}.h")
        files += zip(names, texts, strict=True)
        templates.append(spec.row.template)
    return Emitted(files, templates)


def _beside(target: str, emitted: Emitted) -> tuple[str, Emitted]:
    """The folder and the files' names where `target` names a kernel's .cu: its .h is beside it."""
    path = Path(target)
    if target == output.STDOUT or target.endswith("/") or path.is_dir():
        return target, emitted
    if path.suffix == ".h":
        raise UsageError(f"{target} would be the kernel and its header; name the .cu with -o")
    files = [(path.with_suffix(Path(name).suffix).name, text) for name, text in emitted.files]
    files[0] = (path.name, files[0][1])
    return f"{path.parent}/", Emitted(files, emitted.templates)


def _write(emitted: Emitted, target: str, depfile: Path | None, dry_run: bool) -> None:
    names = [name for name, _ in emitted.files]
    if dry_run:
        paths = [] if target == output.STDOUT else output.destinations(names, target)
    else:
        files = [(name, text.encode()) for name, text in emitted.files]
        paths = output.write_all(files, target)
    if depfile and not dry_run:
        from gen.source.cpp.depfile import inputs, rule

        if not paths:
            raise UsageError("a --depfile is about files; use -o with a file or a folder")
        output.write(rule(paths[0], inputs(emitted.templates)).encode(), depfile)
    for path in paths:
        print(path)
