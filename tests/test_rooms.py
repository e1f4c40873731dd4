"""The rooms of the package: which may import which, and no circles.

A room is a folder of `gen/`, or a module beside these. What an import that runs against the order
would tie together is better moved than excused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

PACKAGE = ROOT / "gen"

# From the ground up: a room imports from its own and from those before it. A folder that is not
# named here belongs to the room that it lies in.
ORDER = (
    "_version",
    "errors",
    "files",
    "requirements",
    "tables",
    "spec",
    "compile",
    "kernels",
    "source",
    "emulator.ptx",
    "emulator.isa",
    "emulator.warp",
    "emulator.memory",
    "emulator.translate",
    "emulator.watch",
    "emulator.run",
    "emulator",
    "device",
    "dispatch",
    "spread",
    "source.cpp",
    "prove",
    "profile",
    "foreign",
    "bench",
    "tune",
    "report",
    "api",
    "torch",
    "jax",
    "doctor",
    "cli",
    "__main__",
    "gen",  # the package's face
)


def module_of(path: Path) -> str:
    """`gen/spec/kernel.py` -> gen.spec.kernel; `gen/spec/__init__.py` -> gen.spec."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def room_of(module: str) -> str:
    """The most specific room that a module lies in."""
    inner = module.removeprefix("gen").removeprefix(".")
    while inner and inner not in ORDER:
        inner = inner.rpartition(".")[0]
    return inner or "gen"


# Imports against the order, for types alone: a specification holds its row of the registry, and is
# what names are made from.
TYPES_ALONE = {
    ("gen.spec.kernel", "gen.kernels.launches"),
    ("gen.spec.kernel", "gen.kernels.variant"),
    ("gen.spec.names", "gen.spec.kernel"),
}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside of one, or of a module; expressions, which are many more, have none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements(inner)


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """The modules of the package that a file imports, if only for types, and the lines."""
    return list(_imports_of(path))


def _imports_of(path: Path) -> Iterator[tuple[str, int]]:
    nodes = list(statements(ast.parse(path.read_text(encoding="utf-8"))))
    for_types = {
        inner
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in statements(node)
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in inner]
        else:
            continue
        for name in names:
            excused = node in for_types and (module_of(path), name) in TYPES_ALONE
            if name in MODULES and not excused:
                yield name, node.lineno


def against(order: tuple[str, ...], module: str, path: Path) -> list[str]:
    """The imports of a file that run against the order."""
    own = order.index(room_of(module))
    return [
        f"{path.relative_to(ROOT)}:{line}: {room_of(module)} imports {name}, which is above it"
        for name, line in imports_of(path)
        if order.index(room_of(name)) > own
    ]


def test_imports_run_one_way() -> None:
    wrong = [text for name, path in MODULES.items() for text in against(ORDER, name, path)]
    assert not wrong, "\n".join(wrong)


def test_an_import_against_the_order_is_found() -> None:
    turned = (*ORDER[:3], "kernels", *(room for room in ORDER[3:] if room != "kernels"))
    wrong = [text for name, path in MODULES.items() for text in against(turned, name, path)]
    assert any("gen/kernels/registry.py" in text and "spec" in text for text in wrong)


def test_folders_say_what_they_are_for() -> None:
    """Each of the package, and those of tests/ that mirror none of them."""
    folders = [path.parent for path in PACKAGE.rglob("__init__.py")]
    for path in (ROOT / "tests").glob("*/__init__.py"):
        if not (PACKAGE / path.parent.name).is_dir():
            folders.append(path.parent)
    for folder in folders:
        text = (folder / "__init__.py").read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), folder


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {name: {other for other, _ in imports_of(path)} for name, path in MODULES.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys() - {name}]:
        for name in free:
            del left[name]
    assert not left, f"in a circle, or above one: {', '.join(sorted(left))}"


@pytest.mark.parametrize("room", sorted({path.parent for path in PACKAGE.rglob("*.py")}))
def test_every_room_says_what_it_is_for(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert text, f"{room.relative_to(ROOT)}/__init__.py has no docstring"


def test_the_emulator_has_one_door() -> None:
    outside = [name for name in MODULES if not name.startswith("gen.emulator")]
    wrong = [
        f"{name}:{line}: {found}"
        for name in outside
        for found, line in imports_of(MODULES[name])
        if found.startswith("gen.emulator.")
    ]
    assert not wrong, "\n".join(wrong)
