"""The wheel, the source distribution, editable installs; files that are kept true by hand."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from gen._version import __version__
from gen.kernels.registry import VARIANTS, make_spec
from gen.requirements import EMITTING, distribution
from gen.source.render import render
from tests import ROOT
from tests.support.slow import slow

TOPLEVEL = ("--no-config", "--toplevel", "gen,gemmgen")


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


@slow
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


@slow
def test_an_extra_is_added_to_what_is_installed(tmp_path: Path) -> None:
    """`pip install 'gemmgen[report]'`, as messages say, looks for no gemmgen elsewhere."""
    pytest.importorskip("matplotlib")
    install(build("wheel", ROOT, tmp_path / "dist"), tmp_path / "site")
    pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "gemmgen[report]")
    out = run(*pip, cwd=tmp_path, path=tmp_path / "site")
    assert "already satisfied: gemmgen[report] in ./site " in out


@slow
def test_the_source_distribution_builds_the_same_wheel(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()}
        archive.extractall(tmp_path)
    assert {"pyproject.toml", "templates/frame/file.cu.j2", "README.md", "LICENSE"} <= names
    (folder,) = tmp_path.glob("gemmgen-*")
    site = tmp_path / "site"
    install(build("wheel", folder, tmp_path / "wheel"), site)
    templates = {path.name for path in (ROOT / "templates").iterdir()}
    assert {path.name for path in (site / "gen" / "templates").iterdir()} == templates


def test_a_checkouts_templates_win_over_packaged_ones(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gen", tmp_path / "gen", ignore=ignore)
    shutil.copytree(ROOT / "templates", tmp_path / "gen" / "templates")
    where = "from gen.source.templates import template_dir; print(template_dir())"
    command = (sys.executable, "-c", where)
    assert run(*command, cwd=tmp_path, path=tmp_path) == f"{tmp_path}/gen/templates\n"
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    assert run(*command, cwd=tmp_path, path=tmp_path) == f"{tmp_path}/templates\n"


@slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_released_passes_the_checks_of_its_metadata(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("twine")
    pytest.importorskip("check_wheel_contents")
    built = build(kind, ROOT, tmp_path / "dist")
    assert __version__ in built.name
    run(sys.executable, "-m", "twine", "check", "--strict", built, cwd=tmp_path)
    if kind == "wheel":
        run(sys.executable, "-m", "check_wheel_contents", *TOPLEVEL, built, cwd=tmp_path)


def test_the_changelog_has_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    assert versions[0] == __version__


@slow
def test_gemmgen_emit_has_the_same_files(tmp_path: Path) -> None:
    """Its own are its metadata; what it needs is said once, in gen.requirements."""
    pytest.importorskip("twine")
    pytest.importorskip("check_wheel_contents")
    whole = build("wheel", ROOT, tmp_path / "whole")
    small = build("wheel", ROOT / "build" / "emit", tmp_path / "small")
    files = {wheel: contents(wheel) for wheel in (whole, small)}
    metadata = files[small].pop("METADATA").decode()
    assert files[small].pop("LICENSE") == files[whole].pop("LICENSE")
    files[whole].pop("METADATA")
    assert files[small] == files[whole]
    found = re.findall(r"^Requires-Dist: (\w+)", metadata, re.MULTILINE)
    assert sorted(found) == sorted(distribution(requirement) for requirement in EMITTING)
    assert f"\nName: gemmgen-emit\nVersion: {__version__}\n" in metadata
    run(sys.executable, "-m", "twine", "check", "--strict", small, cwd=tmp_path)
    run(sys.executable, "-m", "check_wheel_contents", *TOPLEVEL, small, cwd=tmp_path)


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, without the record of them; metadata by their last names."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return {
        name.rpartition("/")[2] if ".dist-info/" in name else name: text
        for name, text in files.items()
        if not name.endswith("/RECORD")
    }


# --- the description


def hook() -> ModuleType:
    """build/hatch_build.py."""
    pytest.importorskip("hatchling")
    spec = spec_from_file_location("hatch_build", ROOT / "build" / "hatch_build.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MARKDOWN = """\
[Kernels in
C++](docs/cpp.md#cmake), ![a picture](docs/a.png), [the web](https://a.b/c), [above](#set-up)
`a[i](x)` and [a](b.md) and [`code`](gen/a.py)
```sh
x[1](docs/cpp.md)
```
"""


def test_links_of_the_description() -> None:
    wanted = MARKDOWN
    for path in ("docs/cpp.md#cmake)", "docs/a.png", "b.md", "gen/a.py"):
        wanted = wanted.replace(f"]({path}", f"](https://host/me/blob/v1/{path}")
    assert hook().absolute(MARKDOWN, "https://host/me/blob/v1/") == wanted


def test_without_an_address_files_are_named() -> None:
    lines = hook().absolute(MARKDOWN, "").splitlines()
    assert lines[:3] == [
        "Kernels in",
        "C++ (`docs/cpp.md`), a picture (`docs/a.png`), [the web](https://a.b/c), [above](#set-up)",
        "`a[i](x)` and a (`b.md`) and `code` (`gen/a.py`)",
    ]
    assert lines[3:6] == MARKDOWN.splitlines()[3:]
    assert "source distribution" in lines[-1]


def test_urls_are_those_of_the_repository() -> None:
    assert hook().urls("", "") == {}
    found = hook().urls("https://host/me", "https://host/me/blob/v1/")
    assert found["Repository"] == "https://host/me"
    assert found["Changelog"] == "https://host/me/blob/v1/CHANGELOG.md"


def test_the_description_has_no_relative_link(tmp_path: Path) -> None:
    metadata = contents(build("wheel", ROOT, tmp_path / "dist"))["METADATA"].decode()
    assert (
        re.findall(r"\]\((?!https?:|#)", re.sub(r"```.*?```", "", metadata, flags=re.DOTALL)) == []
    )
    assert "# gemmgen\n" in metadata
