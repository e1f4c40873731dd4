"""`gen emit`: kernels as CUDA source, for C and C++ projects with a header and a rule for make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli import output
from gen.cli.options import ARCH, DTYPE, LAYOUT, OUTPUT, TUNED, VARIANT, select
from gen.cli.progress import progress
from gen.device.gpus import GPUS, find_gpu
from gen.errors import UsageError
from gen.files import write
from gen.kernels.tunables import Value
from gen.source.architectures import TEMPLATE as ARCHITECTURES
from gen.source.architectures import Family, make_family, render_family
from gen.spec.arch import compute_capability
from gen.spec.kernel import KernelSpec

if TYPE_CHECKING:
    from gen.device.gpus import GpuModel
    from gen.source.cpp.asked import Asked
    from gen.source.cpp.best import Best

NAME = typer.Option("--name", metavar="SYMBOL", help="C symbol of the kernel, or of the bundle.")
HEADER = typer.Option("--header", help="Write a header for C and C++ beside each kernel, too.")
BUNDLE = typer.Option(
    "--bundle", metavar="FILE", help="Write one .cu and one header with all kernels of a list."
)
EMBED = typer.Option(
    "--embed",
    metavar="FORMATS",
    help="cubin, ptx or cubin,ptx: write C++ that contains machine code, or PTX that the driver "
    "compiles, for --arch (several with commas), or with --best for --gpu.",
)
BEST = typer.Option(
    "--best",
    help="Emit what gen choose ranks first for --shape on --gpu; for several of these one file "
    "with a launcher that chooses.",
)
SHAPES = typer.Option(
    "--shape",
    metavar="MxNxK",
    help="With --best: a problem size, with ranges such as 1-64x4096x4096; repeatable.",
)
BATCH = typer.Option(
    "--batch",
    metavar="COUNT",
    help="With --best: so many products of each shape, or a range such as 1-64, in one launch.",
)
GPU_NAMES = typer.Option(
    "--gpu",
    metavar="NAMES",
    help=f"With --best: GPUs, with commas: {', '.join(GPUS)}; default: the one that is present.",
)
LDA, LDB = (
    typer.Option(
        f"--ld{name}",
        metavar="N",
        help=f"With --best: leading dimensions of {name.upper()}, with commas; default: the "
        "shapes'.",
    )
    for name in "ab"
)
UNALIGNED = typer.Option(
    "--unaligned",
    help="With --best: A and B may start elsewhere than at multiples of 16 bytes, too.",
)
DEPFILE = typer.Option(
    "--depfile",
    metavar="FILE",
    help="Write a rule for make that says what the first file depends on.",
)
DRY_RUN = typer.Option("--dry-run", help="Check everything, print the paths, write nothing.")


@dataclass(frozen=True)
class Emitted:
    """Files by name, in order, and the templates and the lists that they are made from."""

    files: Sequence[tuple[str, str]]
    templates: Sequence[str]
    lists: Sequence[Path] = ()


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
    best: Annotated[bool, BEST] = False,
    shape: Annotated[list[str] | None, SHAPES] = None,
    batch: Annotated[str | None, BATCH] = None,
    gpu: Annotated[str | None, GPU_NAMES] = None,
    lda: Annotated[str | None, LDA] = None,
    ldb: Annotated[str | None, LDB] = None,
    unaligned: Annotated[bool, UNALIGNED] = False,
    tuned: Annotated[str | None, TUNED] = None,
    depfile: Annotated[str | None, DEPFILE] = None,  # a Path would need pydantic
    dry_run: Annotated[bool, DRY_RUN] = False,
    **tunables: Value | None,
) -> None:
    if bundle and embed is not None:
        raise UsageError("--bundle and --embed do not go together; use one of them")
    if best:
        if variant or arch or bundle:
            raise UsageError("--best chooses kernels for --shape on --gpu; leave out other choices")
        if not shape:
            raise UsageError("no shape is named; use --shape, such as 4096 or 1-64x4096x4096")
        from gen.dispatch.products import operands
        from gen.source.cpp.asked import Asked

        given = {key: value for key, value in tunables.items() if value is not None}
        gpus, dtype = _gpus(gpu), dtype or "f32"
        lie = operands(lda, ldb, unaligned)
        asked = Asked(shape, gpus, dtype, layout, batch, lie, tuned, name, embed, given)
        named = _named(output_) if header and embed is None else None
        emitted = _best(asked, header, named, dry_run)
        _write(emitted, f"{named.parent}/" if named else output_, depfile, dry_run)
        return
    if shape or gpu or batch or lda or ldb or unaligned or tuned:
        raise UsageError(
            "--shape, --batch, --gpu, --lda, --ldb, --unaligned and --tuned go with --best; use "
            "gen emit --best"
        )
    dtypes = [dtype] if dtype else None
    for one in arch.split(",") if arch else ():
        compute_capability(one)
    archs: list[str | None] = [*arch.split(",")] if arch else [None]
    if bundle:
        if variant or dtype or any(value is not None for value in tunables.values()):
            raise UsageError(f"{bundle} lists the kernels; leave out the options that choose one")
        emitted = _bundle(bundle, name, arch)
    elif embed is not None:
        specs = select(variant or [], dtypes, [layout], archs[0], tunables, name)
        emitted = _embedded(specs, embed, [a for a in archs if a], dry_run)
    else:
        families = _families(
            [select(variant or [], dtypes, [layout], one, tunables, name) for one in archs]
        )
        named = _named(output_) if header and len(families) == 1 else None
        emitted = _kernels(families, header, named)
        output_ = f"{named.parent}/" if named else output_
    _write(emitted, output_, depfile, dry_run)


def _gpus(names: str | None) -> list[GpuModel]:
    """Those that are named, or the one that is here. Raises UsageError."""
    from gen.cli.choose import present

    return [find_gpu(name) for name in names.split(",")] if names else [present()]


def _best(asked: Asked, header: bool, named: Path | None, dry_run: bool) -> Emitted:
    from gen.source.cpp.best_file import TEMPLATES, render_best, render_best_header
    from gen.source.cpp.header import TEMPLATE

    found, read = asked.best(), asked.read()
    if asked.embed is not None:
        return replace(_embedded_best(found, asked.embed, dry_run), lists=read)
    if found.alone:
        return replace(_kernels([make_family([found.alone])], header, named), lists=read)
    name = named.stem if named else found.name
    text = render_best(found, f"{name}.h" if header else None)
    files = [(named.name if named else f"{name}.cu", text)]
    if header:
        files.append((f"{name}.h", render_best_header(found)))
    kernels = [spec.row.template for spec in found.kernels]
    return Emitted(files, [*TEMPLATES, *kernels, *([TEMPLATE] if header else [])], read)


def _embedded_best(found: Best, embed_: str, dry_run: bool) -> Emitted:
    from gen.source.cpp import embed, embed_best

    formats = embed.formats(embed_)
    if found.alone:
        return _embedded([found.alone], embed_, [found.alone.arch], dry_run)
    texts = ("", "")
    if not dry_run:
        with progress("compiling", len(found.kernels)) as step:
            texts = embed_best.render_embedded_best(found, formats, step)
    files = list(zip((f"{found.name}.cpp", f"{found.name}.h"), texts, strict=True))
    kernels = [spec.row.template for spec in found.kernels]
    return Emitted(files, [*embed_best.TEMPLATES, *kernels])


def _families(of_archs: Sequence[Sequence[KernelSpec]]) -> list[Family]:
    """What was selected for each architecture, kernel by kernel."""
    found: dict[tuple[str, str, str], list[KernelSpec]] = {}
    for specs in of_archs:
        for spec in specs:
            key = spec.variant, spec.dtypes.name, str(spec.layouts)
            found.setdefault(key, []).append(spec)
    return [make_family(specs) for specs in found.values()]


def _kernels(families: Sequence[Family], header: bool, named: Path | None) -> Emitted:
    files: list[tuple[str, str]] = []
    templates = [spec.row.template for family in families for spec in family.specs]
    templates += [ARCHITECTURES] if any(len(family.specs) > 1 for family in families) else []
    for family in families:
        name = named.stem if named else family.name
        source = render_family(family, f"{name}.h" if header else None)
        files.append((named.name if named else source.filename, source.text))
        if header:
            from gen.source.cpp.header import TEMPLATE, render_header

            files.append((f"{name}.h", render_header(*family.specs, name=family.name)))
            templates.append(TEMPLATE)
    return Emitted(files, templates)


def _bundle(file: Path, name: str | None, arch: str | None) -> Emitted:
    from gen.source.cpp.bundle import read_bundle
    from gen.source.cpp.bundle_files import render_bundle, templates

    bundle = read_bundle(file, name, arch)
    header, source = render_bundle(bundle)
    files = [(f"{bundle.name}.cu", source), (f"{bundle.name}.h", header)]
    return Emitted(files, templates(bundle), [file])


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


def _named(target: str) -> Path | None:
    """The .cu that `target` names, if it is no folder: the header is beside it."""
    path = Path(target)
    if target == output.STDOUT or target.endswith("/") or path.is_dir():
        return None
    if path.suffix == ".h":
        raise UsageError(f"{target} would be the kernel and its header; name the .cu with -o")
    return path


def _write(emitted: Emitted, target: str, depfile: str | None, dry_run: bool) -> None:
    if depfile is not None and target == output.STDOUT:
        raise UsageError("a --depfile is about files; use -o with a file or a folder")
    names = [name for name, _ in emitted.files]
    if dry_run:
        paths = [] if target == output.STDOUT else output.destinations(names, target)
    else:
        files = [(name, text.encode()) for name, text in emitted.files]
        paths = output.write_all(files, target)
    if depfile is not None and not dry_run:
        from gen.source.cpp.depfile import inputs, rule

        write(rule(paths[0], inputs(emitted.templates, emitted.lists)).encode(), Path(depfile))
    for path in paths:
        print(path)
