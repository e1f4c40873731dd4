"""`gen cmake`: what GenKernels.cmake asks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gen.source.cpp import cmake, installed


def answer(
    calls: Annotated[Path | None, typer.Argument(metavar="[CALLS]")] = None,
) -> None:
    if calls is None:
        for path in (*installed.decisive_folders(), installed.nvrtc_library() or "NOTFOUND"):
            print(path)
        return
    for line in calls.read_text(encoding="utf-8").splitlines():
        print(cmake.answer(cmake.Call.read(line)))
