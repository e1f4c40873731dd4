"""`gen profile` of any kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.cli import tables
from gen.cli.annotations import Annotations
from gen.cli.foreign.options import checks_of, read
from gen.foreign.launch import LaunchText

if TYPE_CHECKING:
    from gen.profile.count import LaunchProfile


def profile(
    file: Path, launch: LaunchText, own: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """`gen profile FILE --kernel ...`: what its launches do, in a table each."""
    from gen.cli.profile import launch_fields
    from gen.device.gpus import find_gpu
    from gen.foreign import count

    text, launches = read(file, launch)
    gpu = find_gpu(options["gpu"])
    with Annotations(options["annotations"], options["json"]).of_compiler():
        found = count.profile(text, str(file), launches, gpu, checks_of(own, options))
    if options["json"]:
        tables.as_json({"gpu": gpu.name, "kernels": [launch_fields(one) for one in found]})
        return
    print(f"{file} on {gpu.name} ({gpu.title}); shared loads: {found[0].widths}\n")
    _print_profiles(found)


_OF_GEMMS = ("bytes of A, B and D", "operations a byte of sectors")


def _print_profiles(found: Sequence[LaunchProfile]) -> None:
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
