"""Installs both wheels in fresh environments of every Python here, and tries what they promise.

    python -m tests.installs [PYTHON...]

gemmgen emits and verifies. gemmgen-emit emits the same bytes, CMake builds with it, and another
command names what it lacks. Before and after another package called gen, the command gemmgen works
or says what is wrong. Downloads 200 MB for each Python unless pip has them cached.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT

PYTHONS = [f"python3.{minor}" for minor in range(10, 20)]
EVERYTHING = ("emit", "--variant", "all", "--dtype", "all", "--header", "-o")
OTHER = "gen==0.5.1"  # a version control system, with a module and a command of this name


class Failure(Exception):
    """What an installation should do and does not."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", nargs="*", help="default: every python3.N on the PATH")
    chosen = parser.parse_args().python or [name for name in PYTHONS if _runs(name)]
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, small = _wheel(ROOT, folder), _wheel(ROOT / "build" / "emit", folder)
        for python in chosen:
            place = folder / Path(python).name
            for what, trial, wheel in (
                ("gemmgen", _gemmgen, whole),
                ("gemmgen-emit", _emit, small),
                (f"beside {OTHER}", _beside, small),
            ):
                try:
                    said = trial(python, place, wheel)
                except Failure as failure:
                    failures += 1
                    said = f"FAILED: {failure}"
                print(f"{python:12}  {what:16}  {said}", flush=True)
            shutil.rmtree(place)
    return min(failures, 1)


def _runs(python: str) -> bool:
    """Whether it is there; what pyenv offers may be of another version."""
    found = shutil.which(python)
    return bool(found) and not subprocess.run([python, "-c", ""], capture_output=True).returncode


def _wheel(project: Path, folder: Path) -> Path:
    into = folder / project.name
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", into, cwd=project)
    (wheel,) = into.glob("*.whl")
    return wheel


def _gemmgen(python: str, place: Path, wheel: Path) -> str:
    bin_ = _environment(python, place / "whole")
    _pip(bin_, wheel)
    _run(bin_ / "pip", "check")
    _run(bin_ / "gen", "doctor")
    _run(bin_ / "gen", *EVERYTHING, f"{place}/emitted/")
    _expect(
        "1 of 1 kernels are right",
        _run(bin_ / "gen", "verify", "--variant", "naive", "--dtype", "f32"),
    )
    code = "import gemmgen, numpy; print(gemmgen.matmul(*numpy.ones((2, 4, 4), 'f4'))[0, 0])"
    _expect("4.0", _run(bin_ / "python", "-c", code))
    return f"emits, verifies, multiplies; {_size(place / 'whole')}"


def _emit(python: str, place: Path, wheel: Path) -> str:
    bin_ = _environment(python, place / "small")
    _pip(bin_, wheel)
    _run(bin_ / "pip", "check")
    _run(bin_ / "gen", *EVERYTHING, f"{place}/again/")
    names = sorted(path.name for path in (place / "again").iterdir())
    same, _, _ = filecmp.cmpfiles(place / "emitted", place / "again", names, shallow=False)
    if same != names or len(names) != len(list((place / "emitted").iterdir())):
        raise Failure("it does not emit what gemmgen emits")
    _expect("gen verify needs ", _run(bin_ / "gen", "verify", code=3))
    built = ""
    if shutil.which("cmake") and shutil.which("nvcc"):
        folder = _run(bin_ / "gemmgen", "--cmake-dir").strip()
        project = ROOT / "examples" / "cmake_project"
        _run("cmake", "-S", project, "-B", place / "build", f"-Dgemmgen_DIR={folder}")
        _expect(f"{bin_}/gemmgen", (place / "build" / "CMakeCache.txt").read_text())
        _run("cmake", "--build", place / "build")
        built = ", CMake builds"
    return f"emits the same {len(names)} files{built}; {_size(place / 'small')}"


def _beside(python: str, place: Path, wheel: Path) -> str:
    """The package that comes last has the command gen; `gemmgen` works or says what is wrong."""
    for first, last in ((OTHER, wheel), (wheel, OTHER)):
        bin_ = _environment(python, place / "beside")
        try:
            _pip(bin_, first)
            _pip(bin_, last)
        except Failure:
            return "skipped: it cannot be installed here"
        if last == wheel:
            _run(bin_ / "gemmgen", "list")
            _run(bin_ / "pip", "uninstall", "-y", "gen")  # takes a file of ours along
        said = _run(bin_ / "gemmgen", "list", code=3)
        _expect("is not gemmgen's", said)
        if said.count("\n") != 1:
            raise Failure(f"more than a line: {said}")
        shutil.rmtree(place / "beside")
    return "ours works until the other has replaced or removed a file; that is said"


def _environment(python: str, place: Path) -> Path:
    _run(python, "-m", "venv", place)
    return place / "bin"


def _pip(bin_: Path, what: object) -> None:
    _run(bin_ / "pip", "install", "--quiet", "--disable-pip-version-check", what)


def _run(*command: object, cwd: Path | None = None, code: int = 0) -> str:
    """What a command prints. Raises Failure for another exit code than `code`."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = list(map(str, command))
    done = subprocess.run(
        words, cwd=cwd or tempfile.gettempdir(), env=env, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    if done.returncode != code:
        raise Failure(f"{' '.join(words)} gives {done.returncode}: {said}")
    return said


def _expect(text: str, said: str) -> None:
    if text not in said:
        raise Failure(f"'{text}' is not in: {said}")


def _size(folder: Path) -> str:
    return f"{sum(path.lstat().st_size for path in folder.rglob('*')) / 1e6:.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
