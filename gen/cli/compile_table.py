"""What `gen compile` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.cli.tables import Row, as_json, seconds, table

if TYPE_CHECKING:
    from gen.compile.nvrtc import Module
    from gen.source.render import Source


def resources(compiled: Sequence[tuple[Source, Module]], paths: Sequence[Path], json: bool) -> None:
    """What `gen compile` prints: each kernel's resources, then the files written."""
    kernels = [
        {
            "kernel": kernel,
            "arch": cubin.arch,
            **asdict(used),
            "dynamic_shared_bytes": _dynamic_shared(source, kernel),
            "seconds": cubin.seconds,
            "cached": cubin.cached,
        }
        for source, cubin in compiled
        for kernel, used in cubin.resources.items()
    ]
    if json:
        as_json({"kernels": kernels, "files": [str(path) for path in paths]})
        return
    headers = ("kernel", "arch", "registers", "spills", "shared", "stack", "time")
    table(headers, [_resource_row(fields) for fields in kernels], right=headers[2:])
    for path in paths:
        print(path)


def _dynamic_shared(source: Source, kernel: str) -> int | None:
    """The launch decides on it; the compiler does not see it. None where nothing is known."""
    if source.spec is None:
        return None
    return source.spec.geometry.dynamic_shared if kernel == source.spec.name else 0


def _resource_row(fields: dict[str, Any]) -> Row:
    return (
        fields["kernel"],
        fields["arch"],
        str(fields["registers"]),
        f"{fields['spill_stores'] + fields['spill_loads']} B",
        f"{fields['shared_bytes'] + (fields['dynamic_shared_bytes'] or 0)} B",
        f"{fields['stack_bytes']} B",
        "cached" if fields["cached"] else seconds(fields["seconds"]),
    )
