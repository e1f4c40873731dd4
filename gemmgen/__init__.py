"""The package `gen` by its distribution's name: `gemmgen.matmul` is `gen.matmul`.

Modules are the same ones, too: `from gemmgen.spec import kernel` is `from gen.spec import kernel`.
The name `gen` is short enough for others to have it. So `gen` is taken from beside this folder,
whatever else the path has; ImportError says what is in its place where it is not ours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gen import *  # noqa: F403

_FOLDER = Path(__file__).parent.parent


def _gen() -> ModuleType:
    """Our `gen`, imported. Raises ImportError where that name is somebody else's."""
    module = sys.modules.get("gen") or _load()
    if getattr(module, "DISTRIBUTION", None) == __name__:
        return module
    place = Path(getattr(module, "__file__", None) or next(iter(module.__path__)))
    if place.is_relative_to(_FOLDER):
        raise _replaced(place)
    raise ImportError(
        f"another module is imported as gen already, {place}, and a program has only one; import "
        "gemmgen before it, or do without it",
        name="gen",
    )


def _load() -> ModuleType:
    place = _FOLDER / "gen" / "__init__.py"
    spec = PathFinder.find_spec("gen", [str(_FOLDER)])
    if spec is None or spec.loader is None:  # a folder without the file
        raise _replaced(place)
    module = sys.modules["gen"] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules["gen"]
        raise _replaced(place) from error
    return module


def _replaced(place: Path) -> ImportError:
    return ImportError(
        f"{place} is not gemmgen's: another package called gen has replaced or removed it; "
        "uninstall that one, then install gemmgen again, or give each an environment of its own",
        name="gen",
    )


class _Finder(MetaPathFinder):
    """Finds `gemmgen.x` where there is a `gen.x`; `gemmgen.__main__` is this folder's own."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}.") or name == f"{__name__}.__main__":
            return None
        own = find_spec(f"{_gen().__name__}{name.removeprefix(__name__)}")
        if own is None:
            return None
        spec = ModuleSpec(name, _Same(own.name))
        spec.submodule_search_locations = own.submodule_search_locations
        return spec


class _Same(Loader):
    """Loads a module as another one, which stays as it is."""

    def __init__(self, other: str) -> None:
        self.other = other

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.other)
        self.spec = module.__spec__  # the import system puts `spec` in its place
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


sys.meta_path.insert(0, _Finder())


def __getattr__(name: str) -> Any:
    return getattr(_gen(), name)


def __dir__() -> list[str]:
    return dir(_gen())
