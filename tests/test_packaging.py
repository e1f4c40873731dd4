"""The wheel, the source distribution, editable installs; files that are kept true by hand."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gen.registry import VARIANTS, make_spec
from gen.render import render

ROOT = Path(__file__).parent.parent


def run(*command: object, cwd: Path, path: Path | None = None) -> str:
    """Runs a command with nothing but `path` added to Python's path; returns what it prints."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, into: Path) -> Path:
    """Builds a wheel or an sdist, without network, with the hatchling of this environment."""
    pytest.importorskip("hatchling")
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into, cwd=source)
    (built,) = (path for path in into.iterdir() if path.suffix in (".whl", ".gz"))
    return built


def install(wheel: Path, into: Path) -> None:
    """Installs a wheel alone; its dependencies are this environment's."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--target", into, wheel, cwd=into.parent)


def test_an_installed_wheel_needs_no_checkout(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(build("wheel", ROOT, tmp_path / "dist"), site)
    where = "import gen; print(gen.__file__)"
    assert run(sys.executable, "-c", where, cwd=tmp_path, path=site).startswith(str(site))
    emitted = run(site / "bin" / "gen", "emit", "--variant", "all", cwd=tmp_path, path=site)
    assert len(emitted.splitlines()) == len(VARIANTS)
    source = render(make_spec("tiles"))
    assert (tmp_path / "build" / "out" / source.filename).read_text() == source.text
    assert (site / "gen" / "py.typed").is_file()
    assert not (site / "tests").exists()


def test_the_source_distribution_builds_the_same_wheel(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()}
        archive.extractall(tmp_path)
    assert {"pyproject.toml", "templates/_base.cu.j2", "README.md", "LICENSE"} <= names
    (folder,) = tmp_path.glob("gemmgen-*")
    site = tmp_path / "site"
    install(build("wheel", folder, tmp_path / "wheel"), site)
    templates = {path.name for path in (ROOT / "templates").iterdir()}
    assert {path.name for path in (site / "gen" / "templates").iterdir()} == templates


def test_a_checkouts_templates_win_over_packaged_ones(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gen", tmp_path / "gen", ignore=ignore)
    shutil.copytree(ROOT / "templates", tmp_path / "gen" / "templates")
    where = "from gen.render import template_dir; print(template_dir())"
    command = (sys.executable, "-c", where)
    assert run(*command, cwd=tmp_path, path=tmp_path) == f"{tmp_path}/gen/templates\n"
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    assert run(*command, cwd=tmp_path, path=tmp_path) == f"{tmp_path}/templates\n"


def test_the_readme_shows_a_kernel_as_it_is_emitted() -> None:
    blocks = re.findall(r"```cuda\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert block in render(make_spec("tiles")).text


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
