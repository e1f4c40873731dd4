"""Files that gen emitted: how they are known, and what is said where options do not fit them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gen.errors import UsageError

_SPEC_LINE = re.compile(r"^\s*//\s*gen-spec:", re.MULTILINE)
_MADE_BY = re.compile(
    r"^// Made by gemmgen \S+(?: with NVRTC [\d.]+)?([:;])(.*(?:\n//     .*)*)", re.MULTILINE
)
_BUNDLES = {"--bundle": "its list", "--best": "the table in its head"}  # where options are
_NOT_OF_KERNELS = re.compile(r" --(embed|name) \S+")


def is_foreign(file: Path) -> bool:
    """Whether a file has no `gen-spec` line, which says how gen's own kernels are launched."""
    from gen.foreign.prepare import read_text

    return not _SPEC_LINE.search(read_text(file))


def refuse_emitted(file: Path) -> None:
    """Raises UsageError for what gen emits besides kernels, and says what to give in its place."""
    from gen.foreign.prepare import read_text

    made = _MADE_BY.search(read_text(file))
    if made is None:
        return
    command = " ".join(made[2].replace("//", "").split())
    if made[1] == ";" or file.suffix == ".h":
        raise UsageError(
            f"{file} is a header of gen emit, without a kernel; use the file beside it"
        )
    if bundle := next((words for option, words in _BUNDLES.items() if option in command), None):
        raise UsageError(
            f"{file} is a bundle, whose kernels gen takes one at a time, and whose choice among "
            f"them it does not look at; give the options of a line of {bundle} in place of the "
            "file, such as --variant mma --dtype f16, or say how to launch one of its kernels: "
            "--kernel, --grid, --block, --arg"
        )
    options = _NOT_OF_KERNELS.sub("", command).removeprefix("gen emit").strip()
    what = "kernels for several architectures" if file.suffix == ".cu" else "compiled code"
    raise UsageError(
        f"{file} has {what}, which gen does not look at, nor at the launcher; in place of the "
        f"file, give the kernel that it was made from, with one --arch: {options}"
    )


def refuse_launch(own: Mapping[str, Any], file: Path | None) -> None:
    given = [name for name, value in own.items() if value]
    if not given:
        return
    options = ", ".join("--" + name.replace("_", "-") for name in given)
    if file is None:
        raise UsageError(f"{options}: launch options go with exactly one file; name it")
    raise UsageError(
        f"{file} is an emitted file, whose gen-spec line says how it is launched; "
        f"leave out {options}"
    )
