"""PTX text -> `PtxModule`: kernels, variables and instructions as plain frozen data.

Only syntax lives here. What an instruction means is said in `isa/`; the parser accepts any
opcode and keeps its spelling, so that an unknown one is refused later with its CUDA line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gen.emulator.ptx.inline import Routine, inline_calls
from gen.emulator.ptx.module import Param, PtxKernel, PtxModule, Variable
from gen.emulator.ptx.scanner import Scanner
from gen.emulator.ptx.statements import LINE_DIRECTIVE, PARAM, Body, params_of, variable_of
from gen.errors import PtxError

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_HEADER = re.compile(r"(?:\.(?:visible|weak|extern|common)\s+)*\.(?:entry|func)\b")
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*(?:\((.*?)\))?", re.S)
_FUNCTION = re.compile(r"\.func\b[^(]*?(?:\((.*?)\))?\s*([\w$.]+)\s*\((.*?)\)", re.S)
_LIMIT = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_MIN_BLOCKS = re.compile(r"\.minnctapersm\s+(\d+)")
_MAX_REGISTERS = re.compile(r"\.maxnreg\s+(\d+)")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_MAX_RANK = re.compile(r"\.maxclusterrank\s+(\d+)")


@lru_cache(maxsize=16)
def parse_ptx(text: str) -> PtxModule:
    """Parse a PTX module; PtxError where the text is not complete, well-formed PTX."""
    clean = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text)
    if ".version" not in clean:
        raise PtxError("this is not PTX: there is no .version line; pass the compiler's output")
    return _Reader(clean.rstrip("\0 \n\t")).module()


class _Reader(Scanner):
    """Reads a module from front to back."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.kernels: dict[str, PtxKernel] = {}
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Routine] = {}
        self.entries: list[_Entry] = []

    def module(self) -> PtxModule:
        while self.space():
            if self.take(LINE_DIRECTIVE):
                continue
            if self.text.startswith(".section", self.at):
                self.until("{")
                self.braces()
            elif _HEADER.match(self.text, self.at):
                self.header()
            else:
                statement = self.until(";")
                if not statement.startswith((".alias", ".pragma")):
                    variable = variable_of(statement)
                    self.variables[variable.name] = variable
        for entry in self.entries:
            code = inline_calls(entry.body, self.functions)
            self.kernels[entry.name] = PtxKernel(
                entry.name, entry.params, entry.body.registers, entry.body.variables, tuple(code),
                entry.threads, entry.blocks, entry.registers, entry.cluster,
                entry.explicit_cluster, entry.max_cluster_rank,
            )  # fmt: skip
        return PtxModule(self.kernels, self.variables)

    def header(self) -> None:
        start = self.at
        if not (stop := re.compile(r"[^{;]*").match(self.text, start)):
            raise PtxError("truncated PTX")
        header, entry = stop[0], _ENTRY.search(stop[0])
        opening = self.text[stop.end() : stop.end() + 1]
        self.at = stop.end() + 1
        if not opening:
            raise PtxError("truncated PTX: a kernel has no body; compile the kernel again")
        if entry is None:
            if opening == "{":
                self.function(header)
            return
        threads, cluster = (_sizes(pattern, header) for pattern in (_LIMIT, _CLUSTER))
        blocks, registers, ranks = (
            int(found[1]) if (found := pattern.search(header)) else 0
            for pattern in (_MIN_BLOCKS, _MAX_REGISTERS, _MAX_RANK)
        )
        body = Body(self)
        body.parse()
        params = tuple(params_of(entry[2] or ""))
        self.entries.append(
            _Entry(entry[1], params, threads, blocks, registers, cluster,
                   ".explicitcluster" in header, ranks, body.routine())
        )  # fmt: skip

    def function(self, header: str) -> None:
        """A device function; one that is not understood is skipped, and calls to it refused."""
        start, match = self.at, _FUNCTION.search(header)
        try:
            body = Body(self)
            body.parse()
        except PtxError:
            self.at = start
            self.braces()
            return
        if match:
            results, params = ([p[1] for p in PARAM.findall(match[i] or "")] for i in (1, 3))
            self.functions[match[2]] = body.routine(results, params)


@dataclass
class _Entry:
    """A kernel whose calls are not inlined yet."""

    name: str
    params: tuple[Param, ...]
    threads: tuple[int, int, int] | None
    blocks: int
    registers: int
    cluster: tuple[int, int, int] | None
    explicit_cluster: bool
    max_cluster_rank: int
    body: Routine


def _sizes(pattern: re.Pattern[str], header: str) -> tuple[int, int, int] | None:
    """The up to three sizes of a directive, if it is there."""
    found = pattern.search(header)
    return (int(found[1]), int(found[2] or 1), int(found[3] or 1)) if found else None
