"""KernelSpec -> Source: the only user of Jinja.

Templates use delimiters that CUDA does not (`{{0}}` and inline PTX are plain CUDA):
`/*% block %*/`, `/*# comment #*/`, `${ value }`.
"""

from __future__ import annotations

import hashlib
import json
import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen._version import __version__
from gen.errors import CheckError, GenError, MissingError, SpecError, UsageError, counted
from gen.kernels import signature
from gen.kernels.formulas import declarations
from gen.kernels.registry import spec_from_json
from gen.kernels.signature import Parameter, fill
from gen.source.fused import Fused
from gen.spec.arch import compute_capability, only_capability
from gen.spec.epilogue import Operand
from gen.spec.kernel import KernelSpec

if TYPE_CHECKING:
    from jinja2 import Environment

FRAME = "frame/file.cu.j2"
HOST = ("launch", "workspace")  # signatures of the host's functions
_NO_TMA = "the driver does not know the TMA: it is older than CUDA 12"

_SPEC_LINE = re.compile(r"^// gen-spec:(.*)$", re.MULTILINE)

_NOT_CODE = re.compile(r'//.*|"[^"\n]*"|^#.*', re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z_]\w*|[(){};]")


@dataclass(frozen=True)
class Api:
    """The words of an interface to CUDA that launchers are written for."""

    driver: bool
    error_t: str
    success: str
    invalid_value: str
    invalid_configuration: str


RUNTIME = Api(
    False,
    "cudaError_t",
    "cudaSuccess",
    "cudaErrorInvalidValue",
    "cudaErrorInvalidConfiguration",
)
DRIVER = Api(
    True,
    "CUresult",
    "CUDA_SUCCESS",
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_INVALID_VALUE",
)


@dataclass(frozen=True)
class Source:
    """CUDA source text and where it came from; `spec` is None for what no specification made.

    `path` is the file that it was read from, if it was.
    """

    name: str
    text: str
    spec: KernelSpec | None = None
    path: Path | None = field(default=None, compare=False)

    @property
    def filename(self) -> str:
        """The file it is written to: the kernel's symbol and `.cu`."""
        return f"{self.name}.cu"

    @property
    def place(self) -> str:
        """What messages call it: the file that it was read from, else the one it is written to."""
        return str(self.path or self.filename)


def template_dir() -> Path:
    """The templates: a checkout's own before the copy inside the installed package."""
    package = Path(__file__).parent.parent
    for folder in (package.parent / "templates", package / "templates"):
        if (folder / "frame" / "file.cu.j2").is_file():
            return folder
    raise MissingError(
        "the templates are missing; install gemmgen again, from its checkout or wheel"
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template_dir()),
        block_start_string="/*%",
        block_end_string="%*/",
        comment_start_string="/*#",
        comment_end_string="#*/",
        variable_start_string="${",
        variable_end_string="}",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "parameters": _parameters,
        "called": _called,
        "fill": fill,
        "chomp": _chomp,
        "broken": _broken,
        "counted": counted,
        "declarations": declarations,
    }
    return environment


def _chomp(text: str) -> str:
    """A macro's lines without the end of the last one, which the template has."""
    return text.removesuffix("\n")


def _broken(text: str) -> str:
    """A line `if (...) return ...;` or `... = ...;`, in two where it is too long for one."""
    indent = " " * (len(text) - len(text.lstrip()))
    if len(text.rstrip()) <= 100:
        return text
    before, found, rest = text.rpartition(" return ")
    if found:
        return f"{before}\n{indent}  return {rest}"
    before, _, rest = text.partition(" = ")
    return f"{before} =\n{indent}    {rest}"


def _parameters(items: Iterable[object], indent: int = 4) -> str:
    """An argument list behind an opening parenthesis, as clang-format breaks it."""
    return fill(items, indent, after=") {").removesuffix(") {")


def _called(function: str, parameters: Iterable[Parameter]) -> str:
    """The end of a line `  return f(...);` that passes parameters on, or several lines of it."""
    names, room = [p.name for p in parameters], 100 - len("  return ")
    line = f"{function}({', '.join(names)});"
    if len(line) <= room:
        return line
    if len(function) + 1 > room:
        space, _, own = function.rpartition("::")
        return f"{space}::\n      {own}(\n{fill(names, 10, after=');')}"
    return f"{function}(\n{fill(names, 6, after=');')}"


def render_template(template: str, **values: object) -> str:
    """The text that a template of `templates/` gives with these values.

    Raises MissingError for a template that is not there and CheckError for one that is broken,
    with file and line.
    """
    from jinja2 import TemplateError, TemplateNotFound

    try:
        return _environment().get_template(template).render(**values)
    except TemplateNotFound as error:
        raise MissingError(
            f"{_place(error, template)}: there is no template '{error.name}'; write it, or install "
            "gemmgen again, from its checkout or wheel"
        ) from error
    except (GenError, OSError):
        raise
    except Exception as error:
        reason = (
            f"{error}" if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
        )
        raise CheckError(
            f"{_place(error, template)}: {reason}; mend the template, or install gemmgen again"
        ) from error


def _place(error: Exception, template: str) -> str:
    """The template's file and line that an error comes from."""
    from jinja2 import TemplateSyntaxError

    if isinstance(error, TemplateSyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    folder, place = str(template_dir()), str(template_dir() / template)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(folder):
            place = f"{frame.f_code.co_filename}:{line}"
    return place


def _check_symbol(spec: KernelSpec) -> None:
    """Refuses a symbol that is something else where the file declares the kernel or names it."""
    own = spec.full_name
    for name, where in _taken(render_framed(replace(spec, symbol=None)), own).items():
        if name == spec.symbol:
            raise SpecError(
                f"name '{name}' is something else in {where} of the file; use another, such as "
                f"gemm_{name}"
            )


def check_operands(operands: Iterable[Operand], symbol: str = "") -> None:
    """Refuses an operand of an epilogue that is called as something in any kernel's file is.

    It could be another thing in some kernels alone, and which one runs is often chosen later.
    symbol: the kernel's name. Raises SpecError.
    """
    for operand in operands:
        if operand.symbol in {symbol, *_words_of_templates()}:
            raise SpecError(
                f"operand '{operand.name}' is something else in emitted files; use another name, "
                f"such as my_{operand.name}"
            )


# Of other epilogues: no expression is beside it.
_FREE = {"bias"}
_TEMPLATE_WORDS = ("frame", "parts", "kernels", "cpp")


@cache
def _words_of_templates() -> frozenset[str]:
    """All names in the code of kernels and launchers."""
    found: set[str] = set()
    for folder in _TEMPLATE_WORDS:
        for path in (template_dir() / folder).glob("*.j2"):
            text = re.sub(
                r"/\*[#%].*?[#%]\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL
            )
            text = re.sub(r"//.*|%[sd]", "", text)  # comments, and where names are put together
            found.update(re.findall(r"[A-Za-z_]\w*", text))
    return frozenset(found - _FREE)


def _taken(text: str, kernel: str) -> Mapping[str, str]:
    """The names that would hide a kernel, or be hidden by it, and where they are.

    These are all names of the namespace, with those that functions declare `extern`, and those in a
    function that names the kernel: its launcher. What else functions and types have is no matter.
    """
    found: dict[str, str] = {}
    depth, inner, statement = 0, [""], [""]
    for token in _TOKEN.findall(_NOT_CODE.sub("", text)):
        depth -= token in ")}"
        if token in "(){};":
            if "extern" in statement:
                found |= dict.fromkeys(statement, "the namespace")
            if depth == 1 and token in "};":  # the end of a declaration
                if kernel in inner:
                    found = {**dict.fromkeys(inner, "the launcher"), **found}
                inner = []
            statement = statement if token in "()" else []
        elif depth > 1:
            inner.append(token)
            statement.append(token)
        else:
            found[token] = "the namespace"
        depth += token in "({"
    found.pop(kernel, None)
    return found


def render(spec: KernelSpec, header: str | None = None) -> Source:
    """The emitted file: deterministic to the byte, self-contained, formatted.

    `header`: the name of the kernel's header, if it has one. The file includes that, and does not
    compile with the header of another kernel. Raises SpecError where the symbol that the user
    chose is taken.
    """
    if spec.symbol:
        _check_symbol(spec)
    return Source(spec.name, render_framed(spec, header=header), spec)


def stamp(*made_of: object) -> str:
    """What tells headers of one name apart: a C integer, from what the files are made of.

    A source and its header have the same one, so that a header of another version or another
    specification, whose functions may have the same arguments, does not compile with the source.
    """
    parts = [part.to_json() if isinstance(part, KernelSpec) else str(part) for part in made_of]
    return f"0x{hashlib.sha256(json.dumps([__version__, *parts]).encode()).hexdigest()[:8]}"


def render_framed(
    spec: KernelSpec,
    frame: str = FRAME,
    api: Api = RUNTIME,
    aliases: Mapping[str, str] | None = None,
    **values: object,
) -> str:
    """A kernel's template in a frame, for an interface to CUDA, with further values.

    `alone`: whether the text is a file of its own. `aliases`: types to be written in signatures.
    """
    known = _values(spec)
    if aliases:
        known["signature"] = {
            name: signature.with_types(parameters, aliases) if name in HOST else parameters
            for name, parameters in known["signature"].items()
        }
    return render_template(spec.row.template, **{**known, "frame": frame, "api": api, **values})


def unsupported(spec: KernelSpec) -> str:
    """When a launcher returns cudaErrorNotSupported; nothing where it never does."""
    return _NO_TMA if spec.row.printed(spec).get("has_maps", False) else ""


def _values(spec: KernelSpec) -> dict[str, Any]:
    check_operands(spec.operands, spec.name)
    fused = Fused(spec) if spec.fused else None
    return {
        "spec": spec,
        "version": __version__,
        "name": spec.name,
        "dtypes": spec.dtypes,
        "layouts": spec.layouts,
        "threads_x": spec.threads[0],
        "threads_y": spec.threads[1],
        "cc": compute_capability(spec.arch),
        "only": only_capability(spec.arch),
        "has_bias": spec.has_bias,
        "fused": fused,
        "type_headers": _type_headers(spec),
        "extra": ", bias" if spec.has_bias else ", aux" if fused and fused.members else "",
        "row": spec.row,
        "unsupported": unsupported(spec),
        "includes_cuda": False,
        "alone": True,
        "guarded": True,
        "header": None,
        "stamp": stamp(spec),
        "has_maps": False,
        "multiprocessors": False,
        **spec.tunables,
        **spec.geometry.values,
        **spec.row.printed(spec),
    }


def _type_headers(spec: KernelSpec) -> list[str]:
    """The headers of CUDA that declare the types of elements."""
    types = [spec.dtypes.input, spec.dtypes.factor, spec.dtypes.output]
    types += [operand.element(spec.dtypes) for operand in spec.operands]
    return sorted({type_.header for type_ in types if type_.header})


def read_source(path: Path) -> Source:
    """An emitted file, perhaps edited by hand; `spec` comes from its `gen-spec` line, if any.

    Raises UsageError where the file cannot be read or its `gen-spec` line is broken.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    match, spec = _SPEC_LINE.search(text), None
    if match:
        try:
            spec = spec_from_json(match[1].strip())
        except GenError as error:
            line = text.count("\n", 0, match.start()) + 1
            raise type(error)(f"{path}:{line}: {error}") from None
    return Source(spec.name if spec else path.stem, text, spec, path)
