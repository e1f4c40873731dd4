"""`gen profile`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import tables
from gen.cli.annotations import OPTION as ANNOTATIONS
from gen.cli.annotations import Annotations
from gen.cli.options import DTYPE, FILES, JSON, LAYOUT, VARIANT, sources
from gen.cli.progress import progress
from gen.device.gpus import GPUS, GpuModel, find_gpu
from gen.kernels.registry import VARIANTS
from gen.kernels.tunables import Value
from gen.source.render import Source
from gen.spec.problem import GemmShape, parse_shape

if TYPE_CHECKING:
    from gen.profile.count import LaunchProfile, LineAccess, Profile


def profile(
    files: Annotated[list[Path] | None, FILES] = None,
    variant: Annotated[list[str] | None, VARIANT] = None,
    dtype: Annotated[list[str] | None, DTYPE] = None,
    layout: Annotated[list[str] | None, LAYOUT] = None,
    shape: Annotated[
        str,
        typer.Option("--shape", metavar="MxNxK", help="Problem size, or one number for a cube."),
    ] = "256",
    gpu: Annotated[
        str, typer.Option("--gpu", metavar="NAME", help=f"The GPU to count for: {', '.join(GPUS)}.")
    ] = "h200",
    json: Annotated[bool, JSON] = False,
    annotations: Annotated[str | None, ANNOTATIONS] = None,
    **tunables: Value | None,
) -> None:
    target = find_gpu(gpu)
    notes = Annotations(annotations, json)
    # Some kernels need what only the GPU's own generation has.
    own = any(VARIANTS[name].max_arch for name in variant or () if name in VARIANTS)
    arch = target.own_arch if own else target.arch
    found = sources(files, variant, dtype, layout, arch, tunables)
    with notes.of_compiler():
        _profile(found, parse_shape(shape), target, json)


def _profile(sources: Sequence[Source], shape: GemmShape, gpu: GpuModel, json: bool) -> None:
    from gen.profile.count import profile as count

    profiles: list[Profile] = []
    try:
        with progress("profiling", len(sources)) as step:
            for source in sources:
                step.now(f"profiling {source.name}")
                profiles.append(count(source, shape, gpu))
                step()
    except KeyboardInterrupt:
        if profiles:
            _print(profiles, shape, gpu, json)
        raise
    _print(profiles, shape, gpu, json)


def _print(profiles: Sequence[Profile], shape: GemmShape, gpu: GpuModel, json: bool) -> None:
    from gen.profile.compare import comparison

    compared = comparison(dict(zip(_columns(profiles), profiles, strict=True)))
    if json:
        fields = [_fields(found) for found in profiles]
        tables.as_json({"gpu": gpu.name, "kernels": fields, "comparison": compared})
        return
    print(f"{shape} on {gpu.name} ({gpu.title}); shared loads: {profiles[0].widths}\n")
    _print_summary(profiles)
    for found in profiles:
        _print_lines(found)
    if compared:
        print(f"\ncompared with {_columns(profiles)[0]}:")
    for sentence in compared:
        print(f"- {sentence}")


def _columns(profiles: Sequence[Profile]) -> list[str]:
    """The variants' names, or whole names where those are not all different."""
    names = [found.spec.variant for found in profiles]
    return names if len(set(names)) == len(names) else [found.spec.name for found in profiles]


def _waves(found: Any) -> str:
    slots = found.occupancy.blocks * found.gpu.sms
    return f"{found.totals.blocks / slots:.2f}" if slots else "cannot be launched"


SUMMARY: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("blocks", lambda p: f"{p.totals.blocks:,}"),
    ("threads a block", lambda p: f"{p.threads:,}"),
    ("registers a thread", lambda p: str(p.resources.registers)),
    ("shared memory a block", lambda p: f"{p.shared_bytes:,} B"),
    ("blocks an SM", lambda p: f"{p.occupancy.blocks} ({', '.join(p.occupancy.limited_by)})"),
    ("warps an SM", lambda p: f"{p.occupancy.warps} of {p.occupancy.max_warps}"),
    ("waves of blocks", _waves),
    ("global load requests", lambda p: f"{p.totals.global_load.requests:,}"),
    ("global load sectors", lambda p: f"{p.totals.global_load.parts:,}"),
    ("global store requests", lambda p: f"{p.totals.global_store.requests:,}"),
    ("global store sectors", lambda p: f"{p.totals.global_store.parts:,}"),
    ("shared load requests", lambda p: f"{p.totals.shared_load.requests:,}"),
    ("shared load wavefronts", lambda p: f"{p.totals.shared_load.parts:,}"),
    ("shared load conflicts", lambda p: f"{p.totals.shared_load.excess:,}"),
    ("shared store wavefronts", lambda p: f"{p.totals.shared_store.parts:,}"),
    ("shared store conflicts", lambda p: f"{p.totals.shared_store.excess:,}"),
    ("async copy wavefronts", lambda p: f"{p.totals.copy_shared.parts:,}"),
    ("atomic requests", lambda p: f"{_atomics(p):,}"),
    ("FMAs of warps", lambda p: f"{p.totals.fma:,}"),
    ("mma instructions", lambda p: f"{p.totals.mma:,}"),
    ("flops", lambda p: f"{p.totals.flops:,}"),
    ("loaded bytes asked for", lambda p: f"{p.totals.global_load.bytes:,}"),
    ("bytes of sectors", lambda p: f"{p.sector_bytes:,}"),
    ("bytes of A, B and D", lambda p: f"{p.matrix_bytes:,}"),
    ("operations a byte of sectors", lambda p: f"{p.intensity:.3g}"),
)
SELDOM = {"async copy wavefronts", "atomic requests", "mma instructions", "FMAs of warps",
           "shared load requests", "shared load wavefronts", "shared load conflicts",
           "shared store wavefronts", "shared store conflicts", "flops"}  # fmt: skip


def _atomics(found: Any) -> int:
    return int(found.totals.global_atomic.requests + found.totals.shared_atomic.requests)


def _print_summary(profiles: Sequence[Profile]) -> None:

    headers = ("", *_columns(profiles))
    rows = [(name, *(value(found) for found in profiles)) for name, value in SUMMARY]
    rows = [row for row in rows if row[0] not in SELDOM or any(cell != "0" for cell in row[1:])]
    classes = [name for found in profiles for name in found.totals.by_class]
    rows.append(("PTX instructions of warps", *(f"{p.totals.instructions:,}" for p in profiles)))
    rows += [
        (f"  {name}", *(f"{p.totals.by_class.get(name, 0):,}" for p in profiles))
        for name in dict.fromkeys(classes)
    ]
    tables.table(headers, rows, headers[1:])


def _print_lines(found: Profile) -> None:
    from gen.profile.explain import verdict

    print(f"\n{found.spec.name}:")
    headers = ("line", "access", "requests", "parts", "a request", "ideal", "text")
    tables.table(headers, [line_row(line) for line in found.lines], (headers[0], *headers[2:6]))
    for sentence in verdict(found):
        print(f"- {sentence}")


def line_row(line: LineAccess) -> tuple[str, ...]:
    return (
        str(line.place.line),
        f"{line.place.space} {line.place.kind}",
        f"{line.access.requests:,}",
        f"{line.access.parts:,} {line.parts}",
        f"{line.each:.3g}",
        f"{line.ideal:.3g}",
        line.text[:60],
    )


def _fields(found: Profile) -> dict[str, object]:
    from gen.profile.explain import verdict

    return {
        **launch_fields(found),
        "spec": json.loads(found.spec.to_json()),
        "variant": found.spec.variant,
        "tunables": dict(found.spec.tunables),
        "shape": str(found.shape),
        "matrix_bytes": found.matrix_bytes,
        "operations": found.work,
        "intensity": found.intensity,
        "ridge": found.ridge,
        "verdict": verdict(found),
    }


def launch_fields(found: LaunchProfile) -> dict[str, object]:
    """What was counted of a launch, as JSON."""
    from gen.profile.explain import verdict_of_launch

    return {
        "kernel": found.kernel,
        "grid": list(found.grid),
        "block": list(found.block),
        "shared_bytes": found.shared_bytes,
        "resources": asdict(found.resources),
        "occupancy": {**asdict(found.occupancy), "limited_by": found.occupancy.limited_by},
        "counters": asdict(found.totals),
        "sector_bytes": found.sector_bytes,
        "shared_load_widths": found.widths,
        "lines": [
            {**line.place._asdict(), **asdict(line.access), "text": line.text}
            for line in found.lines
        ],
        "verdict": verdict_of_launch(found),
        "seconds": found.seconds,
    }
