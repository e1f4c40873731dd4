"""Templates -> text: with `template_cache`, the only user of Jinja.

Templates use delimiters that CUDA does not (`{{0}}` and inline PTX are plain CUDA):
`/*% block %*/`, `/*# comment #*/`, `${ value }`.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gen.errors import CheckError, GenError, MissingError, counted
from gen.kernels.formulas import declarations
from gen.kernels.signature import Parameter, fill

if TYPE_CHECKING:
    from jinja2 import Environment


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

    from gen.source.template_cache import template_cache

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
        bytecode_cache=template_cache(),
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
