"""Other programs that tests run: compilers, nvcc and clang-format."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gen.compile.nvrtc import include_paths
from tests import ROOT

STYLE = ROOT / ".clang-format"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*command: object, cwd: Path, **env: str) -> str:
    """Runs a command with this checkout on Python's path; returns what it prints."""
    full = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, env=full, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_no_warnings(path: Path, arch: str, *more: str) -> None:
    """nvcc compiles a file and has nothing to say."""
    conversions = "-Wshadow", "-Wconversion", "-Wsign-conversion"
    warnings = ",".join(("-Xcompiler=-Wall", "-Wextra", *conversions, *more))
    command = ("nvcc", "-std=c++17", f"-arch={arch}", warnings, "-c", path)
    assert run(*command, "-o", "/dev/null", cwd=path.parent) == ""


def need(*tools: str) -> None:
    """Skips the test where a tool is missing."""
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not on the PATH")


def assert_formatted(folder: Path) -> None:
    need("clang-format")
    files = [path for path in folder.iterdir() if path.suffix in (".h", ".cu", ".cpp")]
    run("clang-format", f"--style=file:{STYLE}", "--dry-run", "-Werror", *files, cwd=folder)


def cuda_includes() -> list[str]:
    """As system headers: what they do is not ours."""
    return [word for folder in include_paths() for word in ("-isystem", folder)]


def check_c_and_cpp(header: Path, *options: str) -> None:
    """A header by itself is C11 and C++17 without warnings."""
    for compiler, standard in (("gcc", "-std=c11"), ("g++", "-std=c++17")):
        need(compiler)
        source = header.with_suffix(".c" if compiler == "gcc" else ".cc")
        source.write_text(f'#include "{header.name}"\n#include "{header.name}"\n')
        run(compiler, standard, *STRICT, *options, "-fsyntax-only", source, cwd=header.parent)
