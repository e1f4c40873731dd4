"""PTX text -> `PtxModule`: kernels, variables and instructions as plain frozen data.

Only syntax lives here. What an instruction means is `isa.py`'s business; the parser accepts any
opcode and keeps its spelling, so that an unknown one is refused later with its CUDA line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gen.emulator.module import (
    TYPE_BYTES,
    Instruction,
    Kernel,
    Label,
    Param,
    PtxModule,
    Variable,
)
from gen.emulator.operands import Reg, parse_operand, split_operands, typed_bytes
from gen.errors import CheckError

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_LINE_DIRECTIVE = re.compile(r"\.(?:version|target|address_size|file|loc)\b[^\n]*")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_LABEL = re.compile(r"([\w$.]+)\s*:(?!:)")
_HEADER = re.compile(r"(?:\.(?:visible|weak|extern|common)\s+)*\.(?:entry|func)\b")
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*(?:\((.*?)\))?", re.S)
_LIMIT = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\b(?:\s+\.[a-z]\w*(?:\s+\d+)?)*\s+)?"
    r"([\w$.]+)\s*(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.(?:visible|weak|extern|common)\s+)*)\.(?P<space>global|const|shared|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<lanes>[24])\s+)?"
    r"\.(?P<type>\w+)\s+(?P<name>[\w$.%]+)\s*(?P<dims>(?:\[\d*\]\s*)*)(?:=\s*(?P<init>.*))?",
    re.S,
)
_REG = re.compile(r"\.reg\s+(?:\.v[24]\s+)?\.(\w+)\s+(.*)", re.S)
_REG_NAME = re.compile(r"([\w$%]+?)(?:<(\d+)>)?$")
_PREDICATE = re.compile(r"@(!?)\s*([\w$%]+)\s+")


def parse_ptx(text: str) -> PtxModule:
    """Parse a PTX module; CheckError where the text is not complete, well-formed PTX."""
    clean = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text)
    if ".version" not in clean:
        raise CheckError("this is not PTX: there is no .version line; pass the compiler's output")
    return _Scanner(clean.rstrip("\0 \n\t")).module()


@dataclass
class _Lines:
    """Follows `.loc` to the line of the kernel's own file, through the inlined calls."""

    main: int = 0
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)

    def resolve(self, directive: str) -> int:
        match = _LOC.match(directive)
        if not match:
            raise CheckError(f"malformed .loc line in the PTX: '{directive.strip()}'")
        numbers = [int(group or 0) for group in match.groups()]
        place, caller = (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
        self.main = self.main or place[0]
        if caller[0]:
            self.callers[place] = caller
        seen = set()
        while place[0] != self.main and place in self.callers and place not in seen:
            seen.add(place)
            place = self.callers[place]
        return place[1] if place[0] == self.main else 0


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.kernels: dict[str, Kernel] = {}
        self.variables: dict[str, Variable] = {}
        self.functions: set[str] = set()

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
            if self.take(_LINE_DIRECTIVE):
                continue
            if self.text.startswith(".section", self.at):
                self.until("{")
                self.braces()
            elif _HEADER.match(self.text, self.at):
                self.header()
            else:
                statement = self.until(";")
                if not statement.startswith((".alias", ".pragma")):
                    variable = _variable(statement)
                    self.variables[variable.name] = variable
        return PtxModule(self.kernels, self.variables, frozenset(self.functions))

    def header(self) -> None:
        start = self.at
        if not (stop := re.compile(r"[^{;]*").match(self.text, start)):
            raise CheckError("truncated PTX")
        header, entry = stop[0], _ENTRY.search(stop[0])
        opening = self.text[stop.end() : stop.end() + 1]
        self.at = stop.end() + 1
        if not opening:
            raise CheckError("truncated PTX: a kernel has no body; compile the kernel again")
        if entry is None:  # a device function: only a call would need it, and calls are refused
            self.functions.update(re.findall(r"([\w$.]+)\s*\(", header))
            if opening == "{":
                self.braces()
            return
        limit = _LIMIT.search(header)
        threads = (int(limit[1]), int(limit[2] or 1), int(limit[3] or 1)) if limit else None
        body = _Body(self)
        body.parse()
        self.kernels[entry[1]] = Kernel(
            entry[1], tuple(_params(entry[2] or "")), body.registers, body.variables,
            tuple(body.code), threads,
        )  # fmt: skip


class _Body:
    """The statements of one kernel, with `{ .reg ... }` scopes resolved by renaming."""

    def __init__(self, scanner: _Scanner) -> None:
        self.scanner = scanner
        self.scopes: list[dict[str, str]] = [{}]
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.code: list[Instruction | Label] = []
        self.lines, self.line = _Lines(), 0

    def parse(self) -> None:
        scanner = self.scanner
        while scanner.space():
            if directive := scanner.take(_LINE_DIRECTIVE):
                if directive[0].startswith(".loc"):
                    self.line = self.lines.resolve(directive[0])
            elif scanner.text[scanner.at] == "{":
                self.scopes.append({})
                scanner.at += 1
            elif scanner.text[scanner.at] == "}":
                self.scopes.pop()
                scanner.at += 1
                if not self.scopes:
                    return
            elif label := scanner.take(_LABEL):
                self.code.append(Label(label[1]))
            else:
                self.statement(" ".join(scanner.until(";").split()))
        raise CheckError("truncated PTX: a kernel's '}' is missing; compile the kernel again")

    def statement(self, text: str) -> None:
        if declaration := _REG.match(text):
            self.declare(declaration[1], declaration[2])
        elif _VARIABLE.match(text):
            variable = _variable(text)
            self.variables[variable.name] = variable
        elif text.startswith("."):
            # A .param here passes arguments to a call, which is refused where it stands.
            if not text.startswith((".pragma", ".param")):
                raise CheckError(f"PTX directive '{text}' is not supported")
        else:
            self.code.append(self.instruction(text))

    def declare(self, kind: str, names: str) -> None:
        if kind not in TYPE_BYTES:
            raise CheckError(f"register type '.{kind}' is not supported")
        for item in names.split(","):
            match = _REG_NAME.match(item.strip())
            if not match:
                raise CheckError(f"malformed register declaration '.reg .{kind} {names}'")
            count = match[2]
            for name in [f"{match[1]}{i}" for i in range(int(count))] if count else [match[1]]:
                alias, copy = name, 1
                while alias in self.registers:
                    copy += 1
                    alias = f"{name}#{copy}"
                self.registers[alias] = kind
                self.scopes[-1][name] = alias

    def register(self, name: str) -> Reg | None:
        """The register that `name` means in the innermost scope, or None."""
        for scope in reversed(self.scopes):
            if name in scope:
                return Reg(scope[name])
        return None

    def instruction(self, text: str) -> Instruction:
        predicate, negated = None, False
        if guard := _PREDICATE.match(text):
            predicate, negated = self.register(guard[2]), guard[1] == "!"
            if predicate is None:
                raise CheckError(f"undeclared predicate in '{text}'")
            text = text[guard.end() :]
        name, _, rest = text.partition(" ")
        operands = tuple(parse_operand(item, self.register) for item in split_operands(rest))
        return Instruction(name, operands, predicate, negated, self.line)


def _params(text: str) -> Iterator[Param]:
    offset = 0
    for match in _PARAM.finditer(text):
        kind, name, count = match.groups()
        if kind not in TYPE_BYTES:
            raise CheckError(f"parameter '{name}' has the unsupported type '.{kind}'")
        align = re.search(r"^\.param\s+\.align\s+(\d+)", match[0])
        size = TYPE_BYTES[kind] * int(count or 1)
        step = int(align[1]) if align else TYPE_BYTES[kind]
        offset = -(-offset // step) * step
        yield Param(name, kind, size, offset)
        offset += size


def _variable(text: str) -> Variable:
    match = _VARIABLE.match(text)
    if not match or match["type"] not in TYPE_BYTES:
        raise CheckError(f"PTX statement not understood: '{' '.join(text.split())[:120]}'")
    item, count = TYPE_BYTES[match["type"]], int(match["lanes"] or 1)
    for size in re.findall(r"\[(\d*)\]", match["dims"]):
        count *= int(size or 0)
    init = typed_bytes(match["init"], match["type"], item) if match["init"] else b""
    refused = "" if init is not None else f"initialiser '{match['init'].strip()[:60]}'"
    return Variable(
        match["name"],
        match["space"],
        item * count,
        int(match["align"] or item),
        init or b"",
        refused,
    )
