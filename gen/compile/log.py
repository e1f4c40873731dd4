"""What the compilers say: resources that ptxas reports, errors with the lines they are about."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gen.errors import CompileError


@dataclass(frozen=True)
class Resources:
    """What one kernel needs of a GPU: registers per thread, bytes, named barriers per block.

    Spills and stack are bytes per thread, shared memory is bytes per block without dynamic shared
    memory, constant memory is bytes with the kernel's parameters (0 where ptxas does not tell).
    """

    registers: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int
    stack_bytes: int
    constant_bytes: int
    barriers: int


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def parse_resources(log: str) -> dict[str, Resources]:
    """The report of `ptxas -v`, per kernel.

    Stack and spills of functions that were not inlined stand under their own names in the report;
    only kernels are returned.
    """
    frames: dict[str, tuple[int, int, int]] = {}
    used: dict[str, str] = {}
    kernel = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            kernel = match[1]
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _STACK.search(line):
            frames[function] = (int(match[1]), int(match[2]), int(match[3]))
        elif " Used " in line:
            used[kernel] = line
    return {name: _resources(line, frames.get(name, (0, 0, 0))) for name, line in used.items()}


def _resources(line: str, frame: tuple[int, int, int]) -> Resources:
    def total(pattern: str) -> int:
        return sum(int(number) for number in re.findall(pattern, line))

    stack, spill_stores, spill_loads = frame
    return Resources(
        registers=total(r"(\d+) registers"),
        spill_stores=spill_stores,
        spill_loads=spill_loads,
        shared_bytes=total(r"(\d+) bytes smem"),
        # With calls, ptxas adds up the frames of the deepest chain.
        stack_bytes=max(stack, total(r"(\d+) bytes cumulative stack size")),
        constant_bytes=total(r"(\d+) bytes cmem"),
        barriers=total(r"(\d+) barriers"),
    )


# ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are
# serialized due to ... in the function 'gemm'
_SERIALIZED = re.compile(
    r"wgmma\.mma_async instructions are serialized (due to .+?)(?: in (?:the )?function '(\S+)')?$",
    re.MULTILINE,
)


def refuse_serialized(name: str, log: str) -> None:
    """Raises CompileError where ptxas says that each wgmma of a kernel waits for the one before."""
    if match := _SERIALIZED.search(log):
        kernel = f" of {match[2]}" if match[2] else ""
        raise CompileError(
            f"{name}: ptxas serializes the wgmmas{kernel}, {match[1]}; between wgmma.fence and "
            "wgmma.wait_group, let nothing but wgmma use their registers",
            log,
        )


# NVRTC:  kernel.cu(3): error: identifier "x" is undefined
#           int y = x;
#                   ^
_FRONT_END = re.compile(r"^(.+)\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.+)$")
# ptxas:  ptxas application ptx input, line 25; error   : Unknown modifier '.bar'
_BACK_END = re.compile(r"^\s*(ptxas .*?)\s*(?:error|fatal)\s*: (.+)$")
_CONTEXT = 2


def compile_error(name: str, text: str, log: str) -> CompileError:
    """The error for source `text` called `name`: headline, the lines around it, how many more."""
    lines = log.splitlines()
    found = [(i, m) for i, line in enumerate(lines) if (m := _FRONT_END.match(line))]
    if found:
        index, match = found[0]
        file, number, message = match[1], int(match[2]), match[3]
        parts = [f"{file}:{number}: {message}"]
        caret = _caret(lines, index)
        if file == name:
            parts += _excerpt(text, number, caret)
        elif caret:
            parts += [f"  | {lines[index + 1][2:]}", f"  | {caret}"]
        if len(found) > 1:
            parts.append(f"and {len(found) - 1} more error{'s' if len(found) > 2 else ''}")
        return CompileError("\n".join(parts), log)
    assembler = [m for line in lines if (m := _BACK_END.match(line))]
    if assembler:
        where = assembler[0][1].replace("application ptx input", "on the PTX").rstrip(" ;,")
        return CompileError(f"{name}: {where}: {assembler[0][2].strip()}", log)
    first = next((line.strip() for line in lines if line.strip()), "the compiler gave no reason")
    return CompileError(f"{name}: {first}", log)


def _caret(lines: list[str], index: int) -> str:
    # Two lines on, if the message is one line long: the source's line and a caret, indented by 2.
    below = lines[index + 2] if index + 2 < len(lines) else ""
    return below[2:] if below.strip() == "^" else ""


def _excerpt(text: str, number: int, caret: str) -> list[str]:
    source = text.splitlines()
    first, last = max(1, number - _CONTEXT), min(len(source), number + _CONTEXT)
    width = len(str(last))
    parts = []
    for i in range(first, last + 1):
        parts.append(f"{i:>{width}} | {source[i - 1]}".rstrip())
        if i == number and caret:
            parts.append(f"{'':>{width}} | {caret}")
    return parts
