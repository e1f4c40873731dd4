"""PTX text -> `PtxModule`: kernels, variables and instructions as plain frozen data.

Only syntax lives here. What an instruction means is `isa.py`'s business; the parser accepts any
opcode and keeps its spelling, so that an unknown one is refused later with its CUDA line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gen.emulator.inline import Routine, inline_calls
from gen.emulator.module import Kernel, Param, PtxModule, Variable
from gen.emulator.statements import LINE_DIRECTIVE, PARAM, Body, params_of, variable_of
from gen.errors import CheckError

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_HEADER = re.compile(r"(?:\.(?:visible|weak|extern|common)\s+)*\.(?:entry|func)\b")
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*(?:\((.*?)\))?", re.S)
_FUNCTION = re.compile(r"\.func\b[^(]*?(?:\((.*?)\))?\s*([\w$.]+)\s*\((.*?)\)", re.S)
_LIMIT = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")

_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+(?:\s*,\s*\d+)*)")


def parse_ptx(text: str) -> PtxModule:
    """Parse a PTX module; CheckError where the text is not complete, well-formed PTX."""
    clean = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text)
    if ".version" not in clean:
        raise CheckError("this is not PTX: there is no .version line; pass the compiler's output")
    return Scanner(clean.rstrip("\0 \n\t")).module()


class Scanner:
    """Reads a module from front to back; `at` is the place in its text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.kernels: dict[str, Kernel] = {}
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Routine] = {}
        self.entries: list[_Entry] = []

    def space(self) -> bool:
        """Skip white space and stray semicolons; True while text is left."""
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n;":
            self.at += 1
        return self.at < len(self.text)

    def until(self, end: str) -> str:
        """The text before the next `end`, which is consumed."""
        stop = self.text.find(end, self.at)
        if stop < 0:
            rest = " ".join(self.text[self.at : self.at + 60].split())
            raise CheckError(f"truncated PTX: no '{end}' after '{rest}'; compile the kernel again")
        piece, self.at = self.text[self.at : stop], stop + 1
        return piece

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def braces(self) -> None:
        """Skip to the end of a `{ ... }` whose opening brace was consumed."""
        depth = 1
        while depth:
            match = re.compile(r"[^{}]*([{}])").match(self.text, self.at)
            if not match:
                raise CheckError("truncated PTX: a '{' is never closed; compile the kernel again")
            depth += 1 if match[1] == "{" else -1
            self.at = match.end()

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
            self.kernels[entry.name] = Kernel(
                entry.name, entry.params, entry.body.registers, entry.body.variables, tuple(code),
                entry.threads,
            )  # fmt: skip
        return PtxModule(self.kernels, self.variables)

    def header(self) -> None:
        start = self.at
        if not (stop := re.compile(r"[^{;]*").match(self.text, start)):
            raise CheckError("truncated PTX")
        header, entry = stop[0], _ENTRY.search(stop[0])
        opening = self.text[stop.end() : stop.end() + 1]
        self.at = stop.end() + 1
        if not opening:
            raise CheckError("truncated PTX: a kernel has no body; compile the kernel again")
        if entry is None:
            if opening == "{":
                self.function(header)
            return
        cluster = _CLUSTER.search(header)
        if cluster and {*cluster[1].replace(" ", "").split(",")} != {"1"}:
            raise CheckError(
                f"kernel '{entry[1]}' wants clusters of more than one block, which the emulator "
                "does not support; compile it for clusters of one"
            )
        limit = _LIMIT.search(header)
        threads = (int(limit[1]), int(limit[2] or 1), int(limit[3] or 1)) if limit else None
        body = Body(self)
        body.parse()
        params = tuple(params_of(entry[2] or ""))
        self.entries.append(_Entry(entry[1], params, threads, body.routine()))

    def function(self, header: str) -> None:
        """A device function; one that is not understood is skipped, and calls to it refused."""
        start, match = self.at, _FUNCTION.search(header)
        try:
            body = Body(self)
            body.parse()
        except CheckError:
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
    body: Routine
