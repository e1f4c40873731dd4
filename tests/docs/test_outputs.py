"""What pages show of commands is what these print. `--update-goldens` writes the outputs anew."""

import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from gen.compile.nvrtc import include_paths
from tests.docs.pages import PAGES, ROOT, Session, blocks, normal, parts
from tests.support.slow import sift, slow


def name(page: Path) -> str:
    """A page's name in the tests' names."""
    return page.relative_to(ROOT).as_posix()


WITH_COMMANDS = [page for page in PAGES if parts(page.read_text(encoding="utf-8"))]


# These take long, and show commands that other pages show, too.
LONG = (
    "docs/checks.md",
    "docs/cuda-cores.md",
    "docs/tiling.md",
    "docs/report.md",
    "docs/any-kernel.md",
    "docs/profile.md",
    "docs/launchers.md",
    "docs/cpp.md",
    "docs/tensor-cores.md",
)


# Of the other pages: on all shapes, which tests of the commands have on smaller tiles.
DEAR = ("gen check gemm/gemm_f32.cu", "gen verify --variant tiles --dtype f32 --dtype i8")


def runs() -> list[Any]:
    """Each page with the commands that are left out of it."""
    found = []
    for page in WITH_COMMANDS:
        dear = any(part.command in DEAR for part in parts(page.read_text(encoding="utf-8")))
        marks = slow if dear or name(page) in LONG else ()
        found.append(pytest.param(page, (), id=name(page), marks=marks))
        if dear:
            found.append(pytest.param(page, DEAR, id=f"{name(page)}, most"))
    return found


@pytest.mark.parametrize(("page", "without"), runs())
def test_outputs(
    page: Path, without: Collection[str], tmp_path: Path, update_goldens: bool
) -> None:
    if page.name == "launchers.md" and not shutil.which("g++"):
        pytest.skip("g++ is not on the PATH")
    text = page.read_text(encoding="utf-8")
    session, new, done = Session(tmp_path), "", 0
    for part in parts(text):
        if part.command in without:
            continue
        shown, printed = text[part.start : part.end], session.run(part.command)
        assert not re.search("^Traceback|^bash: ", printed, re.MULTILINE), printed
        assert printed or not shown, f"`{part.command}` prints nothing any more"
        if normal(shown) == normal(printed):
            printed = shown
        elif not update_goldens:
            assert normal(printed) == normal(shown), (
                f"`{part.command}` prints something else; see the difference, then: "
                "pytest tests/docs --update-goldens"
            )
        new += text[done : part.start] + printed
        done = part.end
    if update_goldens:
        page.write_text(new + text[done:], encoding="utf-8")


def test_a_page_that_has_grown_stale_is_found(tmp_path: Path) -> None:
    text = "```console\n$ echo 3 sectors, 12.5 ms\n4 sectors, 9 us\n```\n"
    (part,) = parts(text)
    printed = Session(tmp_path).run(part.command)
    assert normal(printed) == "3 sectors, <time>\n"
    assert normal(text[part.start : part.end]) == "4 sectors, <time>\n"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_only_blocks_that_are_run_show_a_prompt(page: Path) -> None:
    for language, content, _ in blocks(page.read_text(encoding="utf-8")):
        if language != "console":
            assert not re.search(r"^\$ ", content, re.MULTILINE), content


def _python(page: Path) -> list[str]:
    """The blocks of Python that need neither a GPU nor a framework."""
    found = [content for language, content, _ in blocks(page.read_text()) if language == "python"]
    return [block for block in found if not re.search("torch|cupy|jax", block)]


WITH_PYTHON = [page for page in PAGES if _python(page)]
SHORT = [page for page in WITH_PYTHON if page.name != "python.md"]  # which multiplies most


@pytest.mark.parametrize("page", sift(WITH_PYTHON, SHORT), ids=name)
def test_python_blocks_run_as_one_program(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    names: dict[str, Any] = {}
    for block in _python(page):
        exec(compile(block, name(page), "exec"), names)


def test_the_readmes_program_compiles(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("g++ is not on the PATH")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = (content for language, content, _ in blocks(text) if language == "cpp")
    session = Session(tmp_path)
    (emit,) = (part.command for part in parts(text) if "--header" in part.command)
    session.run(emit)
    (session.cwd / "main.cpp").write_text(program)
    includes = ["-Igemm", *(f"-I{folder}" for folder in include_paths())]
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *includes]
    done = subprocess.run(
        [*command, "main.cpp"], cwd=session.cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@slow
def test_the_program_with_machine_code_is_built_without_cuda(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("g++ is not on the PATH")
    text = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
    (emit,) = (part.command for part in parts(text) if "--embed" in part.command)
    (build,) = (content for _, content, _ in blocks(text) if content.startswith("g++"))
    session = Session(tmp_path)
    session.run(emit)
    assert session.run(build) == ""
    assert session.run("./example") == "skipped: there is no GPU\n"
