"""A CUDA file -> PTX of one of its kernels, with NVRTC.

What the compiler does not accept and the device does not need is left out, in rounds: see `mend`.
What is left is a mistake in what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gen.compile import nvrtc
from gen.errors import CompileError, UsageError
from gen.foreign.headers import PRELUDE, stubs
from gen.foreign.mend import explained, mend
from gen.foreign.prepare import File, Program, read_program
from gen.foreign.remembered import key_of, recall, remember
from gen.foreign.signature import Signature
from gen.foreign.variables import Declared, declared, reachable
from gen.foreign.warned import MISSING, warnings_of

if TYPE_CHECKING:
    from gen.emulator import PtxKernel, Variable

_ROUNDS = 40


@dataclass(frozen=True)
class Options:
    """How a file is compiled: folders of `-I`, macros of `-D`, the C++ standard."""

    arch: str = "sm_80"
    include: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()
    std: str = "c++17"

    @property
    def flags(self) -> list[str]:
        """NVRTC's options."""
        found = [f"--pre-include={PRELUDE}", *(f"-D{macro}" for macro in self.define)]
        return [*found, *(f"-I{folder}" for folder in self.include)]


Recompile = Callable[..., nvrtc.Module]  # by architecture, format and further options


@dataclass(frozen=True)
class Built:
    """A kernel that can be launched.

    `signature` is None where the source does not show it, as for PTX. `lines` is the source that
    findings quote. `notes` say what was left out.
    """

    file: str
    title: str  # how users call the kernel
    symbol: str
    ptx: str
    module: nvrtc.Module | None
    kernel: PtxKernel
    variables: Mapping[str, Variable]  # that a host can set and read, by their symbols
    signature: Signature | None
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what was left out of the source, and of what the compiler warns
    declared: tuple[Declared, ...] = ()  # variables of the source
    recompile: Recompile | None = None  # to other code of the same text; None for PTX


def build(text: str, name: str, kernel: str | None = None, options: Options | None = None) -> Built:
    """Compiles CUDA source called `name`, or takes PTX, and finds a kernel in it.

    kernel: its name as C++ writes it, such as `scale`, `ns::scale<float>`; may be left out where
    there is one. Raises UsageError where there is none of that name, CompileError where it does not
    compile.
    """
    if is_ptx(text):
        return _from_ptx(text, name, kernel)
    options = options or Options()
    for folder in options.include:
        if not Path(folder).is_dir():
            raise UsageError(f"--include {folder} is no folder")
    program = read_program(text, name, options.include)
    file, signature, expression = _choose(program, kernel)
    module, notes, recompile = _compile(program, expression, signature, options)
    found = _built(program, module, expression, file, signature, kernel)
    notes += warnings_of(program, module.log)
    named = [one for each in program.files.values() for one in declared(each.units)]
    return replace(
        found, notes=tuple(notes), recompile=recompile, declared=tuple(named)
    )  # fmt: skip


def is_ptx(text: str) -> bool:
    """Whether a text is PTX, by its first directive."""
    return re.search(r"^\s*\.version\s+\d", text, re.MULTILINE) is not None


def _from_ptx(text: str, name: str, kernel: str | None) -> Built:
    from gen.emulator import parse_ptx

    lines: tuple[str, ...] = ()
    if not re.search(r"^\s*\.loc\b", text, re.MULTILINE):
        text, lines = _with_lines(text), tuple(text.splitlines())
    # Other line numbers are those of a CUDA file, which is not here to be quoted.
    parsed = parse_ptx(text)
    kernels = parsed.kernels
    symbol = _by_symbol(list(kernels), kernel, name)
    return Built(name, kernel or plain(symbol), symbol, text, None, kernels[symbol],
                 reachable(parsed), None, lines)  # fmt: skip


def _with_lines(text: str) -> str:
    """PTX in which each instruction that begins a line has that line's number."""
    depth, data, begins, out = 0, False, False, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("//")[0].strip()
        if depth == 0:
            data = "=" in code  # the values of a variable follow
        if depth and not data and begins and re.match(r"@|[a-z]", code):
            out.append(f".loc 1 {number} 0")
        out.append(line)
        depth += code.count("{") - code.count("}")
        begins = code.endswith((";", "{", "}", ":")) or (begins and not code)
    return "\n".join(out) + "\n"


def _by_symbol(symbols: Sequence[str], wanted: str | None, name: str) -> str:
    """The symbol of a kernel in PTX, by that or by its plain name."""
    shown = [plain(symbol) for symbol in symbols]
    if wanted is None:
        found = list(symbols)
    else:
        found = [symbol for symbol in symbols if symbol == wanted]
        found = found or [s for s, p in zip(symbols, shown, strict=True) if _same(p, wanted)]
    if len(found) == 1:
        return found[0]
    if not symbols:
        raise UsageError(f"{name} has no kernel; a kernel is a function that says __global__")
    if not found:
        raise UsageError(f"{name} has no kernel '{wanted}'; it has {', '.join(shown)}")
    what = f"'{wanted}' is the name of" if wanted else f"{name} has"
    raise UsageError(f"{what} {len(found)} kernels; name one with --kernel: {', '.join(found)}")


_OF_THE_FILE = ("_GLOBAL__N_", "_INTERNAL_")  # what stands for namespaces without a name


def plain(symbol: str) -> str:
    """The C++ name of a function or variable from its symbol: `_ZN2ns5scaleEPf` is `ns::scale`."""
    match = re.match(r"_Z(N?)", symbol)
    if not match:
        return symbol
    parts, at = [], match.end()
    while length := re.compile(r"L?(\d+)").match(symbol, at):
        at = length.end() + int(length[1])
        parts.append(symbol[length.end() : at])
        if not match[1]:
            break
    return "::".join(part for part in parts if not part.startswith(_OF_THE_FILE)) or symbol


def _same(name: str, wanted: str) -> bool:
    wanted = wanted.partition("<")[0].strip().removeprefix("::")
    return name == wanted or name.endswith(f"::{wanted}")


def _choose(program: Program, kernel: str | None) -> tuple[File, Signature | None, str | None]:
    """The kernel that is meant: where it is, its declaration, the name expression for NVRTC."""
    found = program.kernels
    if kernel is not None:
        everywhere = [(file, k) for file in program.files.values() for k in file.kernels]
        named = [(file, k) for file, k in everywhere if _same(k.name, kernel)]
        if not named:
            # A macro may have made it; PTX will tell.
            return program.main, None, kernel if "<" in kernel else None
        found = named
    elif not found:
        return program.main, None, None
    if len(found) > 1 and not _overloads(found, kernel):
        listed = "; ".join(str(k) for _, k in found)
        what = f"'{kernel}' is the name of" if kernel else f"{program.main.name} has"
        raise UsageError(f"{what} {len(found)} kernels; name one with --kernel: {listed}")
    file, signature = found[0]
    arguments = kernel[kernel.index("<") :] if kernel and "<" in kernel else ""
    if signature.template and not arguments:
        arguments = "<>"  # all of its parameters may have defaults
    return file, signature.of(arguments), signature.name + arguments


def _overloads(found: Sequence[tuple[File, Signature]], kernel: str | None) -> bool:
    """Whether several kernels are one that is written twice, under #if and #else."""
    return kernel is not None and len({str(k) for _, k in found}) == 1


def _compile(
    program: Program, expression: str | None, signature: Signature | None, options: Options
) -> tuple[nvrtc.Module, list[str], Recompile]:
    first: CompileError | None = None
    flags = options.flags + _find_headers(program)
    key = key_of(program, str(expression), options.std, options.arch, *flags)
    notes = recall(program, key)
    for _ in range(_ROUNDS):
        texts = {name: file.device_side() for name, file in program.files.items()}
        uses_std = any(re.search(r"\bstd\s*::", text) for text in texts.values())
        main = program.main.name
        headers = {**stubs(uses_std), **dict.fromkeys(program.missing, MISSING)}
        headers |= {name: text for name, text in texts.items() if name != main}
        try:
            recompile = _compiler(texts[main], main, expression, options.std, flags, headers)
            module = recompile(options.arch, "ptx")
            if first is not None:
                remember(program, key, notes)
            return module, notes, recompile
        except CompileError as error:
            first = error
            if not mend(program, error.log, signature, notes):
                break
    assert first is not None
    raise explained(program, first, expression, signature, options.define)


def _compiler(
    text: str, name: str, expression: str | None, std: str, flags: Sequence[str],
    headers: Mapping[str, str],
) -> Recompile:  # fmt: skip
    def recompile(arch: str, format: str, *more: str) -> nvrtc.Module:
        names = [expression] if expression else []
        return nvrtc.compile_cuda(
            text, name=name, arch=arch, format=format, options=[*flags, *more], headers=headers,
            names=names, standard=std,
        )  # fmt: skip

    return recompile


def _find_headers(program: Program) -> list[str]:
    """Notes those headers that are nowhere: not the user's, not CUDA's, not written here.

    Returns the option for the folder of CUTLASS, where it is included.
    """
    known = stubs(False)
    folders = [Path(folder) for folder in nvrtc.include_paths()]
    for name in sorted(program.includes() - known.keys()):
        if name.startswith(("cute/", "cutlass/")):
            folders.append(Path(nvrtc.cutlass_include()))
        # Thrust is the host's; NVRTC does not compile it.
        if name.startswith("thrust/") or not any((f / name).is_file() for f in folders):
            program.missing.append(name)
    return [f"-I{folder}" for folder in folders[len(nvrtc.include_paths()) :][:1]]


def _built(
    program: Program, module: nvrtc.Module, expression: str | None, file: File,
    signature: Signature | None, kernel: str | None,
) -> Built:  # fmt: skip
    from gen.emulator import parse_ptx

    ptx = module.code.decode()
    parsed = parse_ptx(ptx)
    kernels = parsed.kernels
    if expression and expression in module.symbols:
        symbol = module.symbols[expression]
    else:
        symbol = _by_symbol(list(kernels), kernel, program.main.name)
    if symbol not in kernels:
        raise UsageError(f"'{kernel}' is no kernel: {symbol} is not __global__")
    title = kernel or (signature.name if signature else plain(symbol))
    lines = tuple(file.text.splitlines())
    found = kernels[symbol]
    if signature and len(signature.parameters) != len(found.params):
        signature = None
    return Built(
        file.name, title, symbol, ptx, module, found, reachable(parsed), signature, lines
    )  # fmt: skip
