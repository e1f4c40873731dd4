"""A user's own epilogue as CUDA: the operands' struct, the functions, and `finish_element`.

That makes an element of D from x = alpha * A * B + beta * C. All kernels have the same one, but
for the place of an element in a matrix, and for row and column where they compute the transpose.
"""

from __future__ import annotations

from gen.kernels.signature import fill
from gen.spec import expressions as e
from gen.spec.epilogue import COLUMNS, GROUP_COLUMNS, GROUPS, MATRIX, ROWS, Operand
from gen.spec.kernel import KernelSpec
from gen.spec.typed import DEFINITIONS, INDEX, SCALAR, Typed, defined

WIDTH = 100
_TRANSPOSED = {"row": "col", "col": "row", "M": "N", "N": "M"}
_C_TYPES = {SCALAR: "scalar_t", INDEX: "index_t"}
# What CUDA calls the functions that it has: of float, of double, of int.
_CUDA = {
    "abs": ("fabsf", "fabs", "abs"),
    "min": ("fminf", "fmin", "min"),
    "max": ("fmaxf", "fmax", "max"),
    **{name: (f"{name}f", name, "") for name in ("exp", "log", "sqrt", "tanh", "erf")},
}
_COLUMN = {"f32": 0, "f64": 1, "i32": 2}


class Fused:
    """The pieces of an epilogue, for templates: lines of CUDA.

    by_row, by_col: whether an element depends on its row and column in the kernel's product.
    swapped: whether rows of the kernel's product are columns of D.
    """

    def __init__(self, spec: KernelSpec) -> None:
        assert spec.fused
        self._epilogue, self._dtypes, self._swapped = spec.fused, spec.dtypes, spec.swapped
        self._typed = spec.fused.typed(spec.dtypes.scalar.is_float)
        self.text = spec.fused.text
        places = {self._kernels(name) for name in spec.fused.places}
        self.by_row, self.by_col = "row" in places, "col" in places
        self._places = [name for name in ("row", "col") if name in places]
        self._sizes = [name for name in ("M", "N", "group") if name in spec.fused.names]
        self.members = bool(spec.operands or self._sizes)

    @property
    def about(self) -> list[str]:
        """What the head of the file says of the operands."""
        return [
            f"{o.symbol}  {what}" + (f"; {o.name} above" if o.symbol != o.name else "")
            for o in self._epilogue.operands
            for what in [
                f"{_shape(o)}, {o.element(self._dtypes).cuda}"
                if o.index
                else "a number of alpha's type"
            ]
        ]

    @property
    def functions(self) -> list[str]:
        """The functions that CUDA lacks."""
        found: list[str] = []
        for name in self._typed.called():
            if name in DEFINITIONS:
                it = DEFINITIONS[name]
                value = defined(name, self._dtypes.scalar.is_float)
                parameters = ", ".join(f"scalar_t {parameter}" for parameter in it.parameters)
                found += [
                    f"// {it.comment}",
                    f"__device__ inline scalar_t {name}({parameters}) {{",
                    f"  return {self._written(value, {})};",
                    "}",
                    "",
                ]
        return found

    @property
    def struct(self) -> list[str]:
        """What it takes besides x and the place."""
        lines = ["struct Aux {  // what the epilogue takes besides A, B and C"]
        for o in self._epilogue.operands:
            if o.index == GROUPS:
                lines.append(f"  scalar_t {o.name};  // of the group")
            elif o.index:
                each = {"row": "row", "col": "column"}.get(self._kernels(self._inside(o)))
                what = f"one for each {each}" if each else "M x N, in D's order"
                what += ", of the group" if o.index == GROUP_COLUMNS else ""
                type_ = o.element(self._dtypes).cuda
                lines.append(f"  const {type_}* {o.name};  // {what}")
            else:
                lines.append(f"  scalar_t {o.name};")
            if o.index == MATRIX:
                lines.append(f"  index_t {o.ld};")
        if self._sizes:
            lines.append(f"  index_t {', '.join(map(self._kernels, self._sizes))};")
        return [*lines, "};", ""]

    def make(self, indent: int) -> str:
        """The lines of a kernel that fill the struct from its parameters, if there is one."""
        if not self.members:
            return ""
        members: dict[str, str] = {}  # and what they are set to
        for o in self._epilogue.operands:
            members |= {o.name: self._given(o)} | ({o.ld: o.ld} if o.index == MATRIX else {})
        members |= {size: size for size in map(self._kernels, self._sizes)}
        members |= {"group": "place.group"} if "group" in members else {}
        line = f"const Aux aux{{{', '.join(members.values())}}};"
        lines = [line]
        if indent + len(line) > WIDTH:
            lines = ["Aux aux;"]
            lines += [f"aux.{member} = {value};" for member, value in members.items()]
        return "".join(f"{' ' * indent}{line}\n" for line in lines)

    def _given(self, operand: Operand) -> str:
        """What the struct gets of a kernel's parameter: of groups, what a work tile's has."""
        if operand.index == GROUP_COLUMNS:
            return f"{operand.symbol} + place.group * {self._kernels('N')}"
        if operand.index != GROUPS:
            return operand.symbol
        return self._converted(operand, f"{operand.symbol}[place.group]")

    def _converted(self, operand: Operand, value: str) -> str:
        """An element in the type of scalars."""
        own = operand.element(self._dtypes) == self._dtypes.scalar
        return value if own else f"scalar_t({value})"

    def _inside(self, operand: Operand) -> str:
        """The index inside of a group."""
        return COLUMNS if operand.index == GROUP_COLUMNS else operand.index

    def call(self, x: str, row: str, col: str, aux: str = "aux") -> str:
        """The element of D that x becomes at a place of the kernel's product."""
        places = {"row": row, "col": col}
        arguments = [x, *(places[name] for name in self._places)]
        return f"finish_element({', '.join(arguments + [aux] * self.members)})"

    def finish(self, at: str) -> list[str]:
        """The function. at: the place in a matrix as the kernel writes it, of row, col and `{}`."""
        parameters = ["scalar_t x", *(f"index_t {name}" for name in self._places)]
        parameters += ["const Aux& aux"] * self.members
        head = f"__device__ inline output_t finish_element({', '.join(parameters)}) {{"
        if len(head) > WIDTH:
            head = f"__device__ inline output_t finish_element(\n{fill(parameters, 4, after=') {')}"
        lines = ["// An element of D from x = alpha * A * B + beta * C.", head]
        known: dict[str, str] = {"x": "x"}
        for name in ("row", "col"):
            known[name] = self._kernels(name)
        known |= {name: f"aux.{self._kernels(name)}" for name in self._sizes}
        for o in self._epilogue.operands:
            if not o.index or o.index == GROUPS:
                known[o.name] = f"aux.{o.name}"
                continue
            index = self._kernels(self._inside(o))
            place = at.format(f"aux.{o.ld}") if o.index == MATRIX else index
            value = self._converted(o, f"aux.{o.name}[{place}]")
            lines.append(_broken(f"  const scalar_t {o.name} =", value))
            known[o.name] = o.name
        return [*lines, *self._result(known), "}"]

    def _result(self, known: dict[str, str]) -> list[str]:
        """The last lines: parts of what is too long for a line have one of their own."""
        lines: list[str] = []
        names: dict[Typed, str] = {}

        def text(part: Typed) -> str:
            return self._written(part, known, names)

        def shorten(part: Typed, room: int) -> None:
            while len(text(part)) > room:
                inner = max(part.parts, key=lambda each: len(text(each)))
                if len(text(inner)) <= len("part99"):
                    return
                shorten(inner, WIDTH - len("  const index_t part99 = ;"))
                name = f"part{len(names)}"
                kind = _C_TYPES.get(inner.type, "bool")
                lines.append(f"  const {kind} {name} = {text(inner)};")
                names[inner] = name

        shorten(self._typed, WIDTH - len("  return output_t();"))
        return [*lines, f"  return output_t({text(self._typed)});"]

    def _kernels(self, place: str) -> str:
        """A row, column or size of D as the kernel calls it."""
        return _TRANSPOSED.get(place, place) if self._swapped else place

    def _written(
        self, part: Typed, known: dict[str, str], names: dict[Typed, str] | None = None
    ) -> str:
        """CUDA's text of a part. known: what names are called. names: parts that have one."""
        column = _COLUMN[self._dtypes.scalar.name]
        return e.written(_tree(part, known, names or {}, column))


def _tree(part: Typed, known: dict[str, str], names: dict[Typed, str], column: int) -> e.Node:
    """The part as an expression of CUDA."""

    def inner(each: Typed) -> e.Node:
        return _tree(each, known, names, column)

    if part in names:
        return e.Name(0, names[part])
    if part.operator == "literal":
        return e.Number(0, _literal(part.text, column if part.type == SCALAR else 2))
    if part.operator == "variable":
        return e.Name(0, known.get(part.text, part.text))
    if part.operator == "scalar":
        return e.Call(0, "scalar_t", (inner(part.parts[0]),))
    if part.operator == "?:":
        return e.Choice(0, *map(inner, part.parts))
    if part.operator in e.PRECEDENCE and len(part.parts) == 2:
        left, right = part.parts
        return e.Binary(0, part.operator, inner(left), inner(right))
    if part.operator in ("-", "!"):
        return e.Unary(0, part.operator, inner(part.parts[0]))
    name = _CUDA[part.operator][column] if part.operator in _CUDA else part.operator
    return e.Call(0, name, tuple(map(inner, part.parts)))


def _literal(text: str, column: int) -> str:
    if column == _COLUMN["i32"]:
        return text
    real = text if not text.isdigit() else f"{text}.0"
    return f"{real}f" if column == _COLUMN["f32"] else real


def _shape(operand: Operand) -> str:
    what = {MATRIX: "M x N, in D's order", ROWS: "M elements: one for each row of D"}
    what |= {GROUPS: "groups elements: one for each"}
    what |= {GROUP_COLUMNS: "groups x N elements, one row behind another"}
    return {**what, COLUMNS: "N elements: one for each column of D"}[operand.index]


def _broken(left: str, right: str) -> str:
    line = f"{left} {right};"
    return line if len(line) <= WIDTH else f"{left}\n      {right};"
