"""KernelSpec -> Source: the only user of Jinja.

Templates use delimiters that CUDA does not (`{{0}}` and inline PTX are plain CUDA):
`/*% block %*/`, `/*# comment #*/`, `${ value }`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gen import __version__
from gen.errors import MissingError, SpecError, UsageError
from gen.registry import geometry, get_variant, spec_from_json
from gen.spec import KernelSpec, compute_capability

if TYPE_CHECKING:
    from jinja2 import Environment

_SPEC_LINE = re.compile(r"^// gen-spec: (\{.*\})\s*$", re.MULTILINE)

# C++ keywords that the emitted files do not happen to contain.
_KEYWORDS = (
    "alignas alignof and asm break case catch class concept continue decltype default delete do "
    "double enum explicit export final float friend goto int long main mutable new noexcept not "
    "operator or override private protected public requires short signed struct switch this throw "
    "try typedef typeid typename union unsigned virtual volatile wchar_t while xor"
)


@dataclass(frozen=True)
class Source:
    """CUDA source text and where it came from; `spec` is None for what no specification made."""

    name: str
    text: str
    spec: KernelSpec | None = None

    @property
    def filename(self) -> str:
        """The file it is written to: the kernel's symbol and `.cu`."""
        return f"{self.name}.cu"


def template_dir() -> Path:
    """The templates: a checkout's own before the copy inside the installed package."""
    package = Path(__file__).parent
    for folder in (package.parent / "templates", package / "templates"):
        if (folder / "_base.cu.j2").is_file():
            return folder
    raise MissingError("the templates are missing; install gemmgen again: pip install gemmgen")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
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


def render_template(template: str, **values: object) -> str:
    """The text that a template of `templates/` gives with these values."""
    return _environment().get_template(template).render(**values)


def template_files(*names: str) -> list[Path]:
    """The files of these templates and of those that they extend or import, each once."""
    from jinja2 import meta

    environment, folder = _environment(), template_dir()
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = None
        tree = environment.parse((folder / name).read_text(encoding="utf-8"))
        waiting += [other for other in meta.find_referenced_templates(tree) if other]
    return [folder / name for name in found]


def _check_symbol(spec: KernelSpec) -> None:
    """Refuses a symbol that the file itself uses for something else, or that C++ reserves."""
    code = re.sub(r'//.*|"[^"\n]*"', "", _render(replace(spec, symbol=None)))
    if spec.symbol in _KEYWORDS.split() or re.search(rf"\b{spec.symbol}\b", code):
        raise SpecError(f"name '{spec.symbol}' means something else in the file; use another")


def render(spec: KernelSpec) -> Source:
    """The emitted file: deterministic to the byte, self-contained, formatted.

    Raises SpecError where the symbol that the user chose is taken.
    """
    if spec.symbol:
        _check_symbol(spec)
    return Source(spec.name, _render(spec), spec)


def _render(spec: KernelSpec) -> str:
    return render_template(get_variant(spec.variant).template, **_values(spec))


def render_block(spec: KernelSpec, block: str, *, driver: bool = False) -> str:
    """One block of a kernel's template, or of those that it extends.

    As the emitted file has it, or, with `driver`, as a program on the driver API needs it.
    """
    template = _environment().get_template(get_variant(spec.variant).template)
    context = template.new_context({**_values(spec), "driver": driver})
    for _ in template.root_render_func(context):  # finds the blocks and sets the templates' names
        pass
    return "".join(context.blocks[block][0](context))


def _values(spec: KernelSpec) -> dict[str, object]:
    variant, g = get_variant(spec.variant), geometry(spec)
    return {
        "spec": spec,
        "version": __version__,
        "name": spec.name,
        "dtypes": spec.dtypes,
        "layouts": spec.layouts,
        "threads_x": spec.threads[0],
        "threads_y": spec.threads[1],
        "min_arch": variant.min_arch,
        "cc": compute_capability(spec.arch),
        "has_bias": spec.has_bias,
        "driver": False,
        **spec.tunables,
        **g.values,
    }


def read_source(path: Path) -> Source:
    """An emitted file, perhaps edited by hand; `spec` comes from its `gen-spec` line, if any.

    Raises UsageError where the file cannot be read or its `gen-spec` line is broken.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    match = _SPEC_LINE.search(text)
    spec = spec_from_json(match[1]) if match else None
    return Source(spec.name if spec else path.stem, text, spec)
