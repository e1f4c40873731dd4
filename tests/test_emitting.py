"""gemmgen-emit: kernels without numpy and CUDA, and what the other commands say there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gen.cli.commands import app
from gen.kernels.registry import VARIANTS, make_spec
from gen.requirements import COMPILING, PROVING, RUNNING, get
from gen.source.architectures import make_family, render_family
from gen.source.cpp.bundle import read_bundle
from gen.source.cpp.bundle_files import render_bundle
from gen.source.cpp.header import render_header
from tests import ROOT
from tests.support.emitting import PYTHON, Emitting, emitting_alone
from tests.support.programs import need
from tests.support.slow import slow

PROJECT = ROOT / "examples" / "cmake_project"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Emitting:
    return emitting_alone(tmp_path_factory.mktemp("alone") / "packages")


def test_nothing_else_is_there(alone: Emitting, tmp_path: Path) -> None:
    for module in ("numpy", "cuda", "cutlass_library", "nvidia", "matplotlib"):
        done = alone.python("-c", f"import {module}", cwd=tmp_path)
        assert f"No module named '{module}'" in done.stderr


@slow
def test_it_emits_what_gemmgen_emits(alone: Emitting, tmp_path: Path) -> None:
    kernels = PROJECT / "gemm.kernels"
    bundle = read_bundle(kernels, None, None)
    emit, every = ("emit", "-o", "out/"), ("--variant", "all", "--dtype", "all")
    commands = [
        (*emit, *every, "--header"),
        (*emit, "--bundle", str(kernels), "--depfile", "out/rule.d"),
        (*emit, *every[:2], "--embed", "cubin", "--dry-run"),
        ("choose", "--shape", "64", "--gpu", "h200"),
        (*emit, "--best", "--shape", "64-512", "--gpu", "h200", "--dry-run"),
        ("list", "mma", "--json"),
        ("--cmake-dir",),
        ("report", "--help"),
    ]
    assert [done.code for done in alone.gen(*commands, cwd=tmp_path)] == [0] * len(commands)
    header, source = render_bundle(bundle)
    wanted = {f"{bundle.name}.h": header, f"{bundle.name}.cu": source}
    for variant, row in VARIANTS.items():
        for dtype in row.dtypes:
            spec = make_spec(variant, dtype=dtype)
            family = make_family([spec])
            wanted[f"{spec.name}.cu"] = render_family(family, f"{spec.name}.h").text
            wanted[f"{spec.name}.h"] = render_header(spec)
    assert "frame/file.cu.j2" in (tmp_path / "out" / "rule.d").read_text()
    (tmp_path / "out" / "rule.d").unlink()
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == wanted


LAUNCH = "k.cu --grid 1 --block 32 --arg x=f32[32]"

# Every command in the ways that differ, and what it lacks.
LACKING = [
    ("emit --variant naive --embed cubin", COMPILING),
    ("compile --variant naive", COMPILING),
    ("compile k.cu --format cubin -o out/ --json", COMPILING),
    ("compile k.cu --annotations github", COMPILING),
    ("verify", PROVING),
    ("verify --variant naive --shape 8 --json", PROVING),
    ("verify --variant naive --device gpu", PROVING),
    ("check k.cu", PROVING),
    ("check k.cu --annotations github", PROVING),
    (f"check {LAUNCH}", PROVING),
    ("check --variant naive --first", PROVING),
    (f"run {LAUNCH}", RUNNING),
    ("profile --variant naive --shape 64", RUNNING),
    (f"profile {LAUNCH} --json", RUNNING),
    ("bench", PROVING),
    ("bench --variant mma --shape 4096 --peers cublas --json out.json", PROVING),
    ("ceiling", RUNNING),
    ("ceiling --json", RUNNING),
    ("tune --shape 64 --into times.json", PROVING),
    ("sweep --variant tiles --axis tile=8,16 --shape 64", RUNNING),
    ("sweep --variant tiles --axis tile=8,16 --shape 64 --device gpu --json o.json", RUNNING),
]


@slow
def test_the_other_commands_name_all_that_they_lack(alone: Emitting, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float* x) { x[threadIdx.x] = 1; }\n")
    found = alone.gen(*(shlex.split(command) for command, _ in LACKING), cwd=tmp_path)
    for (command, needs), done in zip(LACKING, found, strict=True):
        word = command.split()[0]
        assert done.code == 3, command
        pattern = rf"error: gen {word} needs .* not installed; get them with: (.*)\n"
        assert re.fullmatch(pattern, done.err), (command, done.err)
        assert done.err.endswith(f" {get(*needs)}\n")
        assert done.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["k.cu"]
    assert found[1].err in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_no_command_is_left_out() -> None:
    others = {"choose", "cmake", "list", "report", "doctor"}
    known = {command.split()[0] for command, _ in LACKING} | others
    assert known == {
        command.name or command.callback.__name__ for command in app.registered_commands
    }


def test_reports_and_the_doctor(alone: Emitting, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("[]")
    report, doctor, json = alone.gen(
        ["report", "r.json"], ["doctor"], ["doctor", "--json"], cwd=tmp_path
    )
    assert (report.code, report.out) == (3, "")
    assert report.err == (
        "error: plots need the package matplotlib; get it with: pip install 'matplotlib>=3.9'\n"
    )
    assert (doctor.code, doctor.err, json.code) == (3, "", 3)
    for requirement in PROVING:
        assert f": {get(requirement)}\n" in doctor.out
    assert re.search(r"^typer +ok ", doctor.out, re.MULTILINE)


@pytest.mark.parametrize("name", ["matmul", "Kernel", "emulate"])
def test_python_names_all_that_it_lacks(name: str, alone: Emitting, tmp_path: Path) -> None:
    done = alone.python("-c", f"import gemmgen; gemmgen.{name}", cwd=tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"gen.requirements.MissingPackages: gen.{name} needs cuda-python, ")
    assert last.endswith(get(*RUNNING))
    assert "During handling" not in done.stderr


@pytest.mark.slow
@pytest.mark.nvcc
def test_cmake_builds_with_it(alone: Emitting, tmp_path: Path) -> None:
    need("cmake")
    program = tmp_path / "gemmgen"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PYTHON)} -m gemmgen "$@"\n')
    program.chmod(0o755)
    options = [f"-Dgemmgen_DIR={ROOT / 'build'}", f"-DGEMMGEN_EXECUTABLE={program}"]
    for command in (["-S", PROJECT, "-B", "build", *options], ["--build", "build"]):
        subprocess.run(["cmake", *map(str, command)], cwd=tmp_path, env=alone.env, check=True)
    assert (tmp_path / "build" / "from_cpp").is_file()
