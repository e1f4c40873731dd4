"""What the compiler does not accept and the device does not need, left out; and what it says else.

An error in a declaration on the host's side removes that declaration, a header that is missing
becomes empty, and an error in another kernel removes that kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gen.compile.log import compile_error
from gen.errors import CompileError, UsageError
from gen.foreign.prepare import File, Program
from gen.foreign.scan import Unit
from gen.foreign.signature import Signature

_ERROR = re.compile(
    r"^(.+)\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.+)$(?:\n  .*\n  ( *)\^ *$)?",
    re.MULTILINE,
)
_MISSING = re.compile(r'cannot open source file "([^"]+)"')


def mend(program: Program, log: str, wanted: Signature | None, notes: list[str]) -> bool:
    """Leaves out what the compiler complains about, if it is not what was asked for."""
    if missing := [name for name in _MISSING.findall(log) if name not in program.missing]:
        program.missing += missing
        return True
    errors = [_Error.of(program, match) for match in _errors(program, log)]
    # What is the host's by the compiler's own words goes first: other errors may follow from it.
    for error in errors:
        for file, unit in _host_unit(error):
            program.reasons.setdefault((file.name, unit.start), error.message)
    sure = [error for error in errors if _ON_HOST in error.message]
    if _leave_out([unit for error in sure for unit in _host_unit(error)]):
        return True
    # Nothing depends on functions, prototypes and calls of macros that the host alone uses.
    places = [place for error in errors for place in _host_unit(error)]
    if _leave_out([place for place in places if place[1].kind == "function" or _ends(place[1])]):
        return True
    if any(_leave_out([place]) for place in places):
        return True
    return _leave_out_kernels(errors, wanted, notes)


def _ends(unit: Unit) -> bool:
    return unit.head.endswith(")")


_ON_HOST = "not allowed in JIT mode"
_Place = tuple[File, Unit]


@dataclass(frozen=True)
class _Error:
    """A message of the compiler, and the place in the text; of the whole line without a column."""

    file: File
    line: int
    start: int
    end: int
    message: str

    @staticmethod
    def of(program: Program, match: re.Match[str]) -> _Error:
        file, line = program.files[match[1]], int(match[2])
        starts = [0, *(m.end() for m in re.finditer("\n", file.text)), len(file.text)]
        start, end = starts[line - 1], starts[min(line, len(starts) - 1)]
        if match[4] is not None and "constexpr" not in file.text[start:end]:
            start = min(start + len(match[4]), end)
            end = start + 1
        return _Error(file, line, start, end, match[3])

    def around(self) -> Iterator[Unit]:
        """The declarations that the place belongs to, the innermost first."""
        for unit in self.file.units:
            for inner in unit.within():
                if inner.start < self.end and self.start < inner.end:
                    yield inner


def _host_unit(error: _Error) -> list[_Place]:
    """The declaration on the host's side that an error is in, if it is in one."""
    for unit in error.around():
        explicit = unit.kind == "other" and re.match(r"template\b", unit.head)
        left_out = (unit.start, unit.end) in error.file.left_out
        if not left_out and (not unit.marked or explicit):
            return [(error.file, unit)]
    return []


def _leave_out(places: Sequence[_Place]) -> bool:
    """Whether that changes anything."""
    changed = False
    for file, unit in places:
        if (unit.start, unit.end) not in file.left_out:
            file.left_out.append((unit.start, unit.end))
            changed = True
    return changed


def _leave_out_kernels(
    errors: Sequence[_Error], wanted: Signature | None, notes: list[str]
) -> bool:
    """Leaves out other kernels than the one that is wanted, if nothing else is wrong."""
    found: dict[int, tuple[_Place, str]] = {}
    for error in errors:
        around = [unit for unit in error.around() if unit.kind == "function"]
        if not around or "__global__" not in around[-1].head or _is(around[-1], wanted):
            return False
        file, unit = error.file, around[-1]
        name = next((k.name for k in file.kernels if k.start == unit.start), "a kernel")
        note = f"{name} is left out: {file.name}:{error.line}: {error.message}"
        found.setdefault(unit.start, ((file, unit), note))
    notes += [note for _, note in found.values()]
    return _leave_out([place for place, _ in found.values()])


def _is(unit: Unit, wanted: Signature | None) -> bool:
    return wanted is None or (unit.start, unit.end) == (wanted.start, wanted.end)


def _errors(program: Program, log: str) -> Iterator[re.Match[str]]:
    return (match for match in _ERROR.finditer(log) if match[1] in program.files)


# What CUDA has no more or has for newer GPUs alone, or the emulator never has, by what the compiler
# says of it; the way out.
_REMOVED = {
    r"device-side kernel launch": (
        "kernels that launch kernels are not supported: give each a launch of its own (gen-launch)"
    ),
    r'"__(shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot)" is undefined': (
        "warp functions without a mask are gone since Volta: use those that end in _sync, with the "
        "mask of the lanes that take part"
    ),
    r'"cuda::device::experimental" has no member': (
        "copies with tensor maps and bulk copies need --arch sm_90 or newer"
    ),
    r"texture is not a template|\"texture\" is undefined": (
        "texture references are gone since CUDA 12: pass a pointer, and index it"
    ),
}


def explained(
    program: Program, error: CompileError, expression: str | None, signature: Signature | None,
    macros: Sequence[str] = (),
) -> CompileError | UsageError:  # fmt: skip
    """The error in the words of the user's own text. macros: those of `-D`."""
    main, log = program.main, error.log
    if "__nv_name_map" in log and not any(_errors(program, log)):
        reason = (_ERROR.search(log) or ["", "", "", "it is unknown"])[3]
        if signature and signature.template:
            return UsageError(
                f"'{expression}' is no kernel: {signature.name} is a template of "
                f"<{signature.template}>; give the values, as in --kernel '{signature.name}<...>'"
            )
        known = "; ".join(str(k) for _, k in program.kernels) or "none that it shows"
        return UsageError(
            f"'{expression}' names no kernel of {main.name} ({reason}); its kernels: {known}"
        )
    found = next(_errors(program, log), None)
    file = program.files[found[1]] if found else main
    better = compile_error(file.name, file.text, log)
    names = re.findall(r'identifier "(\w+)" is undefined', log)
    hint = next((about for name in names if (about := _about(program, name))), "")
    hint += "".join(f"\n{about}" for word, about in _REMOVED.items() if re.search(word, log))
    first = _ERROR.search(log)
    if macros and first and first[1] not in program.files:
        given = " ".join(f"-D {macro}" for macro in macros)
        hint += f"\nthis header is not yours, but perhaps {given} changes what it means"
    if program.missing:
        hint += f"\nnot found: {', '.join(program.missing)}; give their folders with -I"
    return CompileError(f"{better}{hint}", log)


def _about(program: Program, name: str) -> str:
    """Why a name is not known: its declaration was left out."""
    for file in program.files.values():
        for unit in file.all_units():
            if (unit.start, unit.end) in file.left_out and re.search(rf"\b{name}\b", unit.head):
                place = f"'{name}' ({file.name}:{file.line(unit.start)})"
                reason = program.reasons.get((file.name, unit.start), "")
                if unit.kind == "function" or _ON_HOST in reason or not reason:
                    return f"\n{place} is on the host's side; mark it __device__"
                return f"\n{place} does not compile: {reason}"
    return ""
