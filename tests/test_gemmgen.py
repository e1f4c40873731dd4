"""The package `gemmgen`: `gen` by another name, also where others are called `gen`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gen._version import __version__
from tests import ROOT
from tests.support.slow import each, slow


def python(*args: str, path: object = ROOT, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs Python with `path` before its own."""
    env = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


SAME = """
import gemmgen.spec.kernel as other
from gemmgen.errors import GenError
from gemmgen import Kernel, emulate, spec
import gemmgen, gen, gen.api, gen.errors, gen.spec.kernel as own
assert gemmgen.matmul is gen.matmul and Kernel is gen.Kernel and emulate is gen.emulate
assert gemmgen.__version__ == gen.__version__ and {"matmul", "Kernel"} <= {*dir(gemmgen)}
assert other is own and own.__name__ == own.__spec__.name == "gen.spec.kernel"
assert spec is gen.spec is gemmgen.spec and gemmgen.api is gen.api
assert GenError is gen.errors.GenError
"""


@pytest.mark.parametrize("first", each(3, ["", "import gen.spec.kernel", "import gemmgen"]))
def test_it_is_the_same_package(first: str) -> None:
    done = python("-c", f"{first}\n{SAME}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import gemmgen.none", "ModuleNotFoundError: No module named 'gemmgen.none'"),
        ("import gemmgen.spec.none", "ModuleNotFoundError: No module named 'gemmgen.spec.none'"),
        ("from gemmgen import none", "ImportError: cannot import name 'none' from 'gemmgen'"),
        ("import gemmgen; gemmgen.none", "AttributeError: module 'gen' has no attribute 'none'"),
    ],
)
def test_what_does_not_exist(code: str, error: str) -> None:
    assert python("-c", code).stderr.splitlines()[-1].startswith(error)


@slow
def test_the_command() -> None:
    assert python("-m", "gemmgen", "--version").stdout == f"gemmgen {__version__}\n"
    assert (
        python("-m", "gemmgen", "list", "none").stderr == python("-m", "gen", "list", "none").stderr
    )
    assert python("-m", "gemmgen", "list", "none").returncode == 2


@pytest.mark.slow
def test_a_gen_in_the_current_folder_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "gen.py").write_text("raise SystemExit('the wrong one')\n")
    done = python("-m", "gemmgen", "--version", cwd=tmp_path)
    assert done.stdout == f"gemmgen {__version__}\n", done.stderr


def test_another_gen_that_is_imported_already_is_named(tmp_path: Path) -> None:
    (tmp_path / "gen.py").touch()
    code = "import gen, gemmgen; gemmgen.matmul"
    error = python("-c", code, path=f"{tmp_path}:{ROOT}", cwd=tmp_path).stderr.splitlines()[-1]
    assert error.startswith(f"ImportError: another module is imported as gen already, {tmp_path}/")


@pytest.mark.parametrize("text", ["__version__ = '0.5.1'\n", "from .gen import Branch\n", None])
def test_a_gen_that_another_package_replaced_or_removed(tmp_path: Path, text: str | None) -> None:
    for package in ("gen", "gemmgen"):
        (tmp_path / package).mkdir()
        for file in (ROOT / package).iterdir():
            (tmp_path / package / file.name).symlink_to(file)
    # Not a link: the module finds its neighbour from where it is.
    for file in ("gemmgen/__init__.py", "gen/__init__.py"):
        (tmp_path / file).unlink()
    (tmp_path / "gemmgen/__init__.py").write_text((ROOT / "gemmgen/__init__.py").read_text())
    if text is not None:
        (tmp_path / "gen/__init__.py").write_text(text)
    wanted = f"{tmp_path}/gen/__init__.py is not gemmgen's: another package called gen has"
    done = python("-m", "gemmgen", "list", path=tmp_path, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {wanted}")
    assert done.stderr.count("\n") == 1
    for code in (
        "import gemmgen; gemmgen.matmul",
        "import gemmgen.spec",
        "from gemmgen import api",
    ):
        done = python("-c", code, path=tmp_path, cwd=tmp_path)
        assert done.stderr.splitlines()[-1].startswith(f"ImportError: {wanted}"), done.stderr
