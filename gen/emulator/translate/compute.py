"""Instructions that compute: those of the table, mov and cvta."""

from __future__ import annotations

import re
from functools import cache

from gen.emulator.isa import instructions
from gen.emulator.isa.table import Row
from gen.emulator.isa.tiles import Rule
from gen.emulator.ptx.module import TYPE_BYTES, Instruction
from gen.emulator.ptx.operands import Imm, Pair, Reg, Vector
from gen.emulator.ptx.values import DTYPES
from gen.emulator.translate.lines import Lines, Translator

_MODES = re.compile(r"(r[nzmp]i?|idx|up|down|bfly|all|any|uni)$")
_KINDS = {  # that are refused as a whole
    "this texture or surface": (
        "tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep",
    ),
    "this video": (
        *("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset"),
        *(f"v{word}{n}" for word in ("add", "sub", "avrg", "absdiff", "min", "max", "set")
          for n in (2, 4)),
    ),
}  # fmt: skip
_WORD = re.compile(
    r"\bwidened\([a-e]\)|\bshift\(b, [TU]\)|\b(?:NAME|MODE|ITEM|BYTE_A|BYTE_B|[a-eTUDS])\b"
)


def translator(item: Instruction) -> Translator:
    """What translates an instruction, whichever it is."""
    return {"mov": move, "cvta": convert_address, "probe": probe}.get(item.opcode, compute)


def compute(code: Lines, item: Instruction) -> None:
    """An instruction of the table."""
    row = instructions.TABLE.get(item.name)
    if row is None:
        what = next((w for w, names in _KINDS.items() if item.opcode in names), "this PTX")
        way_out = " (read a buffer by its index)" if "texture" in what else ""
        raise item.error(f"{what} instruction is not supported by the emulator{way_out}")
    target, sources = item.operands[0], item.operands[1:]
    if len(sources) < len(row.types) - 1:
        raise item.error(f"expected {len(row.types) - 1} sources, found {len(sources)}")
    narrowing = item.opcode == "cvt"
    words = _words(item.name, row).copy()
    words["ITEM"] = code.constant(item) if "ITEM" in row.code else ""
    for letter, kind, operand in zip("abcde", row.types[1:], sources, strict=False):
        words[letter] = code.read(operand, kind, narrowing)
        if (wide := f"widened({letter})") in row.code:
            words[wide] = code.widened(operand, words[letter])
    if "shift(b, " in row.code:
        words |= {f"shift(b, {t})": code.shift(words["b"], words[t]) for t in "TU"}
    text = _WORD.sub(lambda m: words.get(m[0], m[0]), row.code)
    several = row.pair
    if isinstance(target, Vector):
        code.lines.append(f"several = {text}")
        for at, part in enumerate(target.items):
            code.write(part, f"several[{at}]", row.types[0])
    elif not isinstance(target, Pair):
        code.write(target, f"{text}[0]" if several else text, row.types[0])
    elif several:
        code.lines.append(f"pair = {text}")
        code.write(target.first, "pair[0]", row.types[0])
        code.write(target.second, "pair[1]", "pred")
    elif len(sources) == 2:  # setp p|q: q is the opposite
        code.lines.append(f"pair = {text}")
        code.write(target.first, "pair", "pred")
        code.write(target.second, "~pair", "pred")
    else:
        raise item.error("two results together with a combining predicate are not supported")


def rule(code: Lines, item: Instruction) -> str:
    """The name of a multiply-add of the table as a `Rule`: its operands have the table's types."""
    name = re.sub(r"\W", "_", f"rule_{item.name}")
    if name not in code.namespace:
        row = instructions.TABLE[item.name]
        factors = {"widened(a)": "a", "widened(b)": "b"}
        words = _words(item.name, row) | factors
        text = _WORD.sub(lambda m: words.get(m[0], m[0]), row.code)
        function = eval(f"lambda a, b, c: {text}", code.namespace)
        code.namespace[name] = Rule(function, all(factor in row.code for factor in factors))
    return name


@cache
def _words(name: str, row: Row) -> dict[str, str]:
    """What the words in a row's expression stand for, but for the operands."""
    modifiers = name.split(".")[1:]
    return {
        "NAME": repr(name),
        "MODE": repr(next((m for m in modifiers if _MODES.match(m)), "rn")),
        "T": f"np.{DTYPES.get(modifiers[-1])}",
        "D": f"np.{DTYPES[row.types[0]]}",
        "S": f"np.{DTYPES[row.types[:2][-1]]}",
        "U": f"np.uint{TYPE_BYTES.get(modifiers[-1], 0) * 8}",
        **dict(zip(("BYTE_A", "BYTE_B"), (f"np.{'u' * (m[0] == 'u')}int8"
                   for m in modifiers[-2:]), strict=False)),
    }  # fmt: skip


def move(code: Lines, item: Instruction) -> None:
    """mov, which also packs, unpacks and takes addresses."""
    target, source = item.operands
    kind = item.modifiers[-1]
    if kind[0] in "su":  # bits are bits; b32 is the type that registers have
        kind = f"b{kind[1:]}"
    if isinstance(source, Vector):
        half = f"b{TYPE_BYTES[kind] * 8 // len(source.items)}"
        parts = [code.read(part, half) for part in source.items]
        while len(parts) > 1:
            parts = [f"pack({a}, {b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
        code.write(target, parts[0], kind)
    elif isinstance(target, Vector):
        width = TYPE_BYTES[kind] * 8 // len(target.items)
        code.lines.append(f"whole = {code.read(source, kind)}")
        if kind == "b128":
            code.lines.append("whole = unpack128(whole)")
            for at, part in enumerate(target.items):
                code.write(part, f"whole[{at}]", "b64")
            return
        for at, part in enumerate(target.items):
            move = f" >> np.int{TYPE_BYTES[kind] * 8}({width * at})" if at else ""
            code.write(part if isinstance(part, Reg) else None,
                       f"(whole{move}).astype(np.int{width})", f"b{width}")  # fmt: skip
    elif kind == "b32" and isinstance(source, Reg) and source.name in code.computed:
        code.write(target, f"one_nan({code.read(source, 'f32')}).view(np.int32)", kind)
    else:
        code.write(target, code.read(source, kind), kind)


def probe(code: Lines, item: Instruction) -> None:
    """probe.u32: no instruction of PTX, but what an instrumented kernel tells observers by."""
    number, value = item.operands
    if item.name != "probe.u32" or not isinstance(number, Imm):
        raise item.error("this PTX instruction is not supported by the emulator")
    mask = code.mask()
    code.call(f"E.probe({int(number.value)}, {code.read(value, 'u32')}, {mask})", mask)


def convert_address(code: Lines, item: Instruction) -> None:
    """cvta[.to].space: generic addresses are the space's own, moved into a window."""
    target, source = item.operands
    space = next(m for m in item.modifiers if m not in ("to",)).partition("::")[0]
    sign = "-" if "to" in item.modifiers else "+"
    window = f"E.window({space!r})"
    text = code.read(source, "s64")
    moved = text if space in ("global", "const", "param") else f"({text} {sign} {window})"
    code.write(target, moved, "s64")
