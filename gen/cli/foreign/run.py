"""`gen run`: executes any kernel on the emulator, and prints or saves what it computes."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli.foreign import options
from gen.cli.foreign.emitted import is_foreign
from gen.errors import UsageError
from gen.files import write

if TYPE_CHECKING:
    from gen.foreign.running import Outcome


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="CUDA source, or PTX.")],
    kernel: Annotated[str | None, options.KERNEL] = None,
    grid: Annotated[str | None, options.GRID] = None,
    block: Annotated[str | None, options.BLOCK] = None,
    cluster: Annotated[str | None, options.CLUSTER] = None,
    arg: Annotated[list[str] | None, options.ARG] = None,
    dynamic_shared: Annotated[str | None, options.DYNAMIC] = None,
    save: Annotated[
        list[str] | None,
        typer.Option("--save", metavar="NAME=FILE", help="Write a buffer to FILE.npy; repeatable."),
    ] = None,
    show: Annotated[
        list[str] | None,
        typer.Option("--print", metavar="NAME", help="Print a whole buffer; repeatable."),
    ] = None,
    seed: Annotated[str | None, options.SEED] = None,
    budget: Annotated[int | None, options.BUDGET] = None,
    time: Annotated[float | None, options.TIME] = None,
    arch: Annotated[str | None, options.ARCH] = None,
    include: Annotated[list[str] | None, options.INCLUDE] = None,
    define: Annotated[list[str] | None, options.DEFINE] = None,
    std: Annotated[str | None, options.STD] = None,
) -> None:
    from gen.foreign.running import run_steps
    from gen.foreign.steps import prepare as compile_steps
    from gen.foreign.words import sentence

    own = {
        "kernel": kernel, "grid": grid, "block": block, "cluster": cluster, "arg": arg,
        "dynamic_shared": dynamic_shared, "include": include, "define": define, "std": std,
    }  # fmt: skip
    if not is_foreign(file):
        raise UsageError(
            f"{file} is an emitted file; gen verify and gen check run it, and gen.Kernel in Python"
        )
    text, launches = options.read(file, options.launch_text(own, {"arch": arch}))
    if any(one.gemm for one in launches):
        raise UsageError("--gemm is for gen check; give an --arg for each parameter")
    checks = options.checks_of({"seed": seed}, {"budget": budget, "seconds": time})
    # What a GPU would stop at, or hang.
    checks = replace(checks, tools=("memcheck", "synccheck"))
    outcome = run_steps(compile_steps(text, str(file), launches), checks)
    _check_buffers(outcome, [*(text.partition("=")[0] for text in save or ()), *(show or ())])
    options.print_notes(outcome.left_out)
    options.print_lines(outcome)
    _print_buffers(outcome, show or ())
    _save_buffers(outcome, save or ())
    if outcome.stopped:
        print(f"stopped: {outcome.stopped}")
    if outcome.findings:
        print(f"wrong: {sentence(outcome.findings[0])}; gen check says more")
    if outcome.stopped or outcome.findings:
        raise typer.Exit(1)


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
