"""The packages that gen uses, and what it says where they are not installed."""

from __future__ import annotations

import ast
import re
import sys

import pytest

import gen
from gen import doctor, requirements
from gen.requirements import (
    ALL,
    COMPILING,
    EXTRAS,
    RUNNING,
    MissingPackages,
    distribution,
    lacking,
    requirement_for,
)
from tests import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def listed(name: str) -> list[str]:
    """A list of requirements in pyproject.toml."""
    block = re.search(rf"^{name} = \[(.*?)\]$", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert block
    return re.findall(r'^ *"([^"]+)",?', block[1].replace(", ", ",\n"), re.MULTILINE)


def test_they_are_the_projects() -> None:
    assert listed("dependencies") == list(ALL)
    assert {extra: listed(extra) for extra in EXTRAS} == {k: list(v) for k, v in EXTRAS.items()}
    python = ".".join(map(str, doctor.PYTHON))
    assert f'requires-python = ">={python}"' in PYPROJECT


def test_modules_are_found_in_their_packages() -> None:
    assert requirement_for("cuda.bindings").startswith("cuda-python>=")
    assert requirement_for("cuda.core.utils").startswith("cuda-core>=")
    assert requirement_for("numpy").startswith("numpy>=")
    assert requirement_for("matplotlib.figure").startswith("matplotlib>=")
    assert requirement_for("other") == "other"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that seem to be installed: none, until a test adds some."""
    names: set[str] = set()
    monkeypatch.setattr(
        requirements, "version_of", lambda r: "1" if distribution(r) in names else None
    )
    return names


def test_all_that_is_missing_is_named_at_once(installed: set[str]) -> None:
    installed |= {"cuda-core", "nvidia-cuda-cccl"}
    error = lacking("gen run", RUNNING, ModuleNotFoundError("no", name="numpy"))
    assert isinstance(error, ImportError)
    assert error.exit_code == 3
    assert str(error) == (
        "gen run needs cuda-python, cuda-toolkit and numpy, which are not installed; get them "
        "with: pip install 'cuda-python>=12.9,<14' 'cuda-toolkit[nvrtc,cudart,crt]>=13.0,<13.3' "
        "'numpy>=1.26'"
    )
    installed |= {"cuda-python", "cuda-toolkit"}
    assert "needs numpy, which is not installed; get it with: pip install 'numpy>=" in str(
        lacking("gen run", RUNNING, ModuleNotFoundError("no", name="numpy"))
    )


def test_what_is_installed_and_does_not_load_is_not_missing(installed: set[str]) -> None:
    installed |= {distribution(requirement) for requirement in ALL}
    error = lacking("compiling", COMPILING, ImportError("libc is too old", name="cuda.bindings"))
    assert str(error) == "compiling cannot import what it needs: libc is too old"


@pytest.mark.parametrize("name", ["matmul", "Kernel", "emulate"])
def test_python_names_what_is_missing(
    name: str, installed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module}", name="numpy")

    monkeypatch.delitem(vars(gen), name, raising=False)
    monkeypatch.setattr(gen, "import_module", missing)
    with pytest.raises(MissingPackages, match=rf"^gen\.{name} needs cuda-python, .* and numpy,"):
        getattr(gen, name)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_what_is_for_a_framework_says_what_it_needs(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(vars(gen), framework, raising=False)
    for name in [name for name in sys.modules if name.startswith(f"gen.{framework}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)  # as if it were not installed
    with pytest.raises(
        ImportError, match=rf"gen\.{framework} needs {framework}, .* pip install '{framework}>="
    ):
        getattr(gen, framework)


def test_threads_import_cuda_core_one_after_another() -> None:
    """Where one begins with `cuda.core` and another with its `utils`, both get a part of it."""
    found = []
    for path in sorted((ROOT / "gen").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for_types = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if id(node) not in for_types and any(n.startswith("cuda.core") for n in names):
                found.append(str(path.relative_to(ROOT)))
    assert set(found) == {"gen/requirements.py"}, "use cuda_core()"
