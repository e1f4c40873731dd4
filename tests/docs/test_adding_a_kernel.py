"""The kernel of docs/adding-a-kernel.md, added to a copy of the package as the page says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.slow import sift, slow

PAGE = ROOT / "docs" / "adding-a-kernel.md"


def insert(file: Path, text: str, after: str, before: str) -> None:
    """Puts text before the first line that starts with `before` below the one with `after`."""
    source = file.read_text(encoding="utf-8")
    at = source.index(f"\n{before}", source.index(f"\n{after}")) + 1
    file.write_text(source[:at] + text + source[at:], encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the page's kernel."""
    folder = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "golden")
    for name in ("gen", "templates", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests" / "golden").mkdir()

    text = PAGE.read_text(encoding="utf-8")
    (template,) = (content for language, content, _ in blocks(text) if language == "jinja")
    function, row, small, emitted = (c for language, c, _ in blocks(text) if language == "py")
    place = re.search(r"`(templates/\S+)`", text)
    assert place
    (folder / place[1]).write_text(template, encoding="utf-8")
    room = folder / "gen" / "kernels" / "cuda_cores"
    insert(room / "geometry.py", f"{function}\n\n", "def naive", "def ")
    insert(room / "rows.py", row, "SCALAR_VARIANTS = ", ")")
    insert(folder / "tests" / "support" / "small.py", small, "SMALL: ", "}")
    insert(folder / "tests" / "source" / "test_goldens.py", emitted, "EMITTED: ", ")")
    return folder


def run(copy: Path, *command: str) -> None:
    """Runs a module of the copy."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@slow
@pytest.mark.parametrize(
    "command",
    [
        "verify --device cpu --variant strip --strip 3 --threads 32 --layout rcr --dtype f32",
        "check --variant strip --threads 32 --shape 17x99x5",
    ],
)
def test_the_pages_kernel_works(copy: Path, command: str) -> None:
    run(copy, "gen", *command.split())


@pytest.mark.parametrize(
    ("file", "names"),
    sift(
        [
            ("source/test_goldens", "test_goldens or every_branch"),
            ("prove/test_verify", "every_kernel_has_a_row or quick_cases"),
            ("docs/test_lists", "summary"),
        ],
        [("docs/test_lists", "summary")],
    ),
)
def test_the_pages_rows_are_all_that_tests_want(copy: Path, file: str, names: str) -> None:
    options = ("-q", "-p", "no:cacheprovider", "--update-goldens", "-k", names)
    run(copy, "pytest", *options, f"tests/{file}.py")
