"""What machine code a kernel became: the widths of its shared loads, from NVIDIA's disassembler.

The disassembler is optional: `nvdisasm` of a CUDA toolkit, or what gemmgen[profile] brings.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path

from gen.requirements import get_extra

HOW_TO_GET = f"{get_extra('profile')}, or put a CUDA toolkit's nvdisasm on the PATH"

# CUDA line -> bytes per lane -> how many such shared loads the machine code has there
Widths = dict[int, Counter[int]]

_LINE = re.compile(r'//## File "([^"]*)", line (\d+)')
_SECTION = re.compile(r"//-+ \.text\.(\S+)\s+-")
_SHARED_LOAD = re.compile(r"\bLDS((?:\.\w+)*)\s")
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@cache
def find_disassembler() -> str | None:
    """The path of nvdisasm, or None where there is none."""
    found = shutil.which("nvdisasm")
    if found:
        return found
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        return None
    path: str | None = find_nvidia_binary_utility("nvdisasm")
    return path


@lru_cache(maxsize=4)
def disassemble(cubin: bytes) -> str | None:
    """The machine code of a cubin as text with the CUDA lines; None without a disassembler."""
    program = find_disassembler()
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [program, "--print-code", "--print-line-info", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def shared_load_widths(text: str, kernel: str, file: str) -> Widths:
    """The shared loads of `kernel` by line of `file`, from what `disassemble` returned."""
    widths: Widths = {}
    line, inside = 0, False
    for row in text.splitlines():
        if match := _SECTION.search(row):
            inside = match[1] == kernel
        elif match := _LINE.search(row):
            line = int(match[2]) if Path(match[1]).name == Path(file).name else 0
        elif inside and (match := _SHARED_LOAD.search(row)):
            size = next((_BYTES[w] for w in match[1].split(".") if w in _BYTES), 4)
            widths.setdefault(line, Counter())[size] += 1
    return widths
