"""The statements of one kernel or function in PTX, as instructions and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gen.emulator.ptx.inline import Routine
from gen.emulator.ptx.lower import indexed_branch, with_condition
from gen.emulator.ptx.module import TYPE_BYTES, Instruction, Label, Param, Variable
from gen.emulator.ptx.operands import (
    Reg,
    Symbol,
    Vector,
    parse_operand,
    split_operands,
    typed_bytes,
)
from gen.emulator.ptx.scanner import Scanner
from gen.errors import PtxError

LINE_DIRECTIVE = re.compile(r"\.(?:version|target|address_size|file|loc)\b[^\n]*")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_LABEL = re.compile(r"([\w$.]+)\s*:(?!:)")
PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\b(?:\s+\.[a-z]\w*(?:\s+\d+)?)*\s+)?"
    r"([\w$.]+)\s*(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.(?:visible|weak|extern|common)\s+)*)\.(?P<space>global|const|shared|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<lanes>[24])\s+)?"
    r"\.(?P<type>\w+)\s+(?P<name>[\w$.%]+)\s*(?P<dims>(?:\[\d*\]\s*)*)(?:=\s*(?P<init>.*))?",
    re.S,
)
_REG = re.compile(r"\.reg\s*(?:\.v[24]\s+)?\.(\w+)\s+(.*)", re.S)
_REG_NAME = re.compile(r"([\w$%]+?)(?:<(\d+)>)?$")
_TARGETS = re.compile(r"\s*\.branchtargets\s+([^;]*);")
_PREDICATE = re.compile(r"@(!?)\s*([\w$%]+)\s+")


@dataclass
class _Lines:
    """Follows `.loc` to the line of the kernel's own file, through the inlined calls."""

    main: int = 0
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)

    def resolve(self, directive: str) -> int:
        match = _LOC.match(directive)
        if not match:
            raise PtxError(f"malformed .loc line in the PTX: '{directive.strip()}'")
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


class Body:
    """The statements of one kernel, with `{ .reg ... }` scopes resolved by renaming."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.scopes: list[dict[str, str]] = [{}]
        self.starts: list[int] = []  # of the inner scopes, in `code`
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.code: list[Instruction | Label] = []
        self.passed: dict[str, str] = {}  # variables of the latest call, by the names it uses
        self.tables: dict[str, Sequence[str]] = {}  # the targets of indexed branches
        self.lines, self.line = _Lines(), 0
        self.start: int | None = None  # behind a label or barrier, if no `.loc` has followed
        self.merged: list[int] = []  # loads whose line is not known

    def routine(self, results: Sequence[str] = (), params: Sequence[str] = ()) -> Routine:
        """What was parsed, with the names of a function's results and parameters."""
        return Routine(self.registers, self.variables, self.code, list(results), list(params))

    def parse(self) -> None:
        scanner = self.scanner
        while scanner.space():
            if directive := scanner.take(LINE_DIRECTIVE):
                if directive[0].startswith(".loc"):
                    self.line = self.lines.resolve(directive[0])
                    self.place_merged_loads()
            elif scanner.text[scanner.at] == "{":
                self.scopes.append({})
                self.starts.append(len(self.code))
                scanner.at += 1
            elif scanner.text[scanner.at] == "}":
                self.scopes.pop()
                scanner.at += 1
                if not self.scopes:
                    self.finish()
                    return
                self.rename_labels(self.starts.pop())
            elif label := scanner.take(_LABEL):
                if targets := scanner.take(_TARGETS):
                    self.tables[label[1]] = split_operands(targets[1])
                    continue
                self.code.append(Label(label[1]))
                self.start = len(self.code)
            else:
                self.statement(" ".join(scanner.until(";").split()))
        raise PtxError("truncated PTX: a kernel's '}' is missing; compile the kernel again")

    def rename_labels(self, start: int) -> None:
        """Give the labels of the scope that began at `start` names that no other scope has."""
        mine = {item.name for item in self.code[start:] if isinstance(item, Label)}
        names = {name: f"{name}#{start}" for name in mine if not {"#", "$"} & set(name)}
        for at in range(start, len(self.code)) if names else ():
            item = self.code[at]
            if isinstance(item, Label):
                self.code[at] = Label(names.get(item.name, item.name))
            elif item.opcode == "bra" and str(item.operands[0]) in names:
                self.code[at] = replace(item, operands=(Symbol(names[str(item.operands[0])]),))

    def statement(self, text: str) -> None:
        if declaration := _REG.match(text):
            self.declare(declaration[1], declaration[2])
        elif _VARIABLE.match(text):
            variable = variable_of(text)
            self.variables[variable.name] = variable
        elif text.startswith("."):
            if match := PARAM.match(text):  # passes something to or from a call
                name = f"{match[2]}$passed{len(self.variables)}"
                align = re.search(r"\.align\s+(\d+)", text)
                size = TYPE_BYTES[match[1]]
                self.passed[match[2]] = name
                self.variables[name] = Variable(
                    name, "local", size * int(match[3] or 1), int(align[1]) if align else size
                )
            elif not text.startswith((".pragma", ".callprototype")):
                raise PtxError(f"PTX directive '{text}' is not supported")
        else:
            item = self.instruction(text)
            branch = item.opcode == "brx"
            self.code += indexed_branch(item, self.tables, self.registers) if branch else [item]
            if self.code[-1].name.startswith(("bar.sync", "barrier.sync")):
                self.start = len(self.code)

    def place_merged_loads(self) -> None:
        """Give loads at the start of a block a likely line, if theirs is not known.

        The compiler drops the line of loads that it has merged into a vector, and of code that it
        has moved up to a barrier: these seem to belong to the line before. The former get the line
        that first uses them, the latter the line that follows.
        """
        if self.start is None or not self.line:
            return
        behind_barrier = isinstance(self.code[self.start - 1], Instruction)
        for at in range(self.start, len(self.code)):
            item = self.code[at]
            if isinstance(item, Instruction) and item.opcode == "ld":
                if {"v2", "v4"} & set(item.modifiers):
                    self.merged.append(at)
                elif behind_barrier:
                    self.code[at] = replace(item, line=self.line)
        self.start = None

    def finish(self) -> None:
        """What can be said only once all code is known."""
        for at in self.merged:
            load = self.code[at]
            assert isinstance(load, Instruction)
            results = load.operands[0].items if isinstance(load.operands[0], Vector) else ()
            for item in self.code[at + 1 :]:
                if isinstance(item, Instruction) and set(item.operands[1:]) & set(results):
                    self.code[at] = replace(load, line=item.line)
                    break

    def declare(self, kind: str, names: str) -> None:
        if kind not in TYPE_BYTES:
            raise PtxError(f"register type '.{kind}' is not supported")
        for item in names.split(","):
            match = _REG_NAME.match(item.strip())
            if not match:
                raise PtxError(f"malformed register declaration '.reg .{kind} {names}'")
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
                raise PtxError(f"undeclared predicate in '{text}'")
            text = text[guard.end() :]
        name, _, rest = text.partition(" ")
        if self.passed and name.startswith(("ld.param", "st.param", "call")):
            renamed = re.sub(r"[\w$]+", lambda m: self.passed.get(m[0], m[0]), rest)
            name = name if renamed == rest else name.replace(".param", ".local", 1)
            rest = renamed
        operands = tuple(parse_operand(item, self.register) for item in split_operands(rest))
        operands = with_condition(name, operands, self.registers)
        return Instruction(name, operands, predicate, negated, self.line)


def params_of(text: str) -> Iterator[Param]:
    """The parameters of a kernel, from the text between its parentheses."""
    offset = 0
    for match in PARAM.finditer(text):
        kind, name, count = match.groups()
        if kind not in TYPE_BYTES:
            raise PtxError(f"parameter '{name}' has the unsupported type '.{kind}'")
        align = re.search(r"^\.param\s+\.align\s+(\d+)", match[0])
        size = TYPE_BYTES[kind] * int(count or 1)
        step = int(align[1]) if align else TYPE_BYTES[kind]
        offset = -(-offset // step) * step
        yield Param(name, kind, size, offset)
        offset += size


def variable_of(text: str) -> Variable:
    """The variable that a declaration makes."""
    match = _VARIABLE.match(text)
    if not match or match["type"] not in TYPE_BYTES:
        raise PtxError(f"PTX statement not understood: '{' '.join(text.split())[:120]}'")
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
