"""What C and C++ projects get: headers, bundles, CMake, the examples."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gen._version import __version__
from gen.errors import GenError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.source.cpp.bundle import read_bundle
from gen.source.cpp.bundle_files import render_bundle
from gen.source.cpp.depfile import rule
from gen.source.cpp.header import render_header
from gen.source.render import read_source, render
from gen.source.templates import template_dir
from gen.source.versions import template_files
from gen.spec.names import MAX_SYMBOL
from tests import ROOT
from tests.conftest import Gen
from tests.support.programs import (
    assert_formatted,
    check_c_and_cpp,
    cuda_includes,
    need,
    run,
)
from tests.support.slow import each, sift, slow
from tests.test_packaging import build, install
from tests.test_packaging import run as run_alone

EXAMPLES = ROOT / "examples"


# --- headers


def headers() -> list[tuple[str, str, str]]:
    return [
        (variant, dtype, layout)
        for variant in ("tiles", "mma")
        for dtype in VARIANTS[variant].dtypes
        for layout in ("rrr", "ccc")
    ]


@slow
def test_headers_are_c_and_cpp_and_formatted(tmp_path: Path) -> None:
    for i, (variant, dtype, layout) in enumerate(headers()):
        epilogue = {"epilogue": "linear_bias"} if variant == "mma" and i % 2 else {}
        name = (None, "f", "n" * MAX_SYMBOL)[i % 3]
        spec = make_spec(variant, dtype=dtype, layout=layout, name=name, **epilogue)
        header = tmp_path / f"header_{i}.h"
        header.write_text(render_header(spec))
        check_c_and_cpp(header, *cuda_includes())
    assert_formatted(tmp_path)


def test_a_header_says_what_the_launcher_takes() -> None:
    plain = render_header(make_spec("tiles", dtype="f16", name="half"))
    assert "const gemmgen_f16* A" in plain
    assert "workspace" not in plain
    assert "bias" not in plain
    spec = make_spec("mma", dtype="f16_f32", epilogue="linear_bias", layout="crc")
    full = render_header(spec)
    assert f"{spec.name}_workspace(" in full
    assert "const float* bias," in full
    assert "A, long long lda,  // in device memory, column-major; leading dimension >= M" in full


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("variant", "dtype"), sift([("tiles", "bf16"), ("mma", "f16"), ("mma", "i8")], [("mma", "f16")])
)
@pytest.mark.slow
def test_a_header_declares_what_the_source_defines(
    variant: str, dtype: str, tmp_path: Path
) -> None:
    """Both in one file: the compiler refuses a declaration that is another function's."""
    spec = make_spec(variant, dtype=dtype, name="kernel_a")
    (tmp_path / "kernel_a.h").write_text(render_header(spec))
    both = '#ifndef __CUDACC_RTC__\n#include "kernel_a.h"\n#endif\n' + render(spec).text
    (tmp_path / "both.cu").write_text(both)
    run("nvcc", "-std=c++17", "-arch=sm_80", "-Xcompiler=-Wall", "-c", "both.cu", cwd=tmp_path)


def test_emit_writes_a_header_and_a_rule(gen: Gen, tmp_path: Path) -> None:
    out = gen("emit", "--variant", "tiles", "--name", "f", "--header", "-o", "o/", "--dry-run")
    assert (out.code, out.out) == (0, "o/f.cu\no/f.h\n")
    assert not Path("o").exists()
    command = ("emit", "--variant", "tiles", "--name", "f", "--header", "--depfile", "f.d")
    assert gen(*command, "-o", "o/g.cu").out == "o/g.cu\no/g.h\n"
    target, *files = Path("f.d").read_text().replace("\\\n", "").split()
    assert target == f"{Path.cwd()}/o/g.cu:"
    names = {Path(file).name for file in files}
    assert {"tiles.cu.j2", "file.cu.j2", "header.h.j2", "render.py", "registry.py"} <= names
    assert all(Path(file).is_file() for file in files)


def test_a_rule_escapes_what_make_would_read_otherwise() -> None:
    assert rule(Path("/a b/$x"), [Path("/#1")]) == "/a\\ b/$$x: \\\n  /\\#1\n"


def test_a_template_depends_on_those_it_extends_and_imports() -> None:
    folder = template_dir()
    names = {path.relative_to(folder).as_posix() for path in template_files("kernels/tiles.cu.j2")}
    frames = {f"frame/{name}.cu.j2" for name in ("cuda_core", "file", "launcher", "words")}
    others = {"kernels/tiles.cu.j2", "parts/epilogue.cu.j2", "cpp/_header.j2"}
    assert names == frames | others
    more = {path.name for path in template_files("kernels/mma.cu.j2")}
    assert {"fragments.cu.j2", "packing.cu.j2", "ptx.cu.j2", "file.cu.j2"} <= more
    assert "tma.cu.j2" not in more


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--header -o x.h", "would be the kernel and its header"),
        ("--header -o -", "standard output takes one file, not 2"),
        ("--depfile x.d -o -", "a --depfile is about files"),
        ("--embed sass", "unknown format 'sass'; use one of ptx, cubin"),
        ("--embed cubin,", "unknown format ''; use one of ptx, cubin"),
        ("--embed=", "unknown format ''; use one of ptx, cubin"),
        ("--embed ptx,ptx", "--embed ptx,ptx names a format twice; name each once"),
        ("--embed cubin --bundle x", "--bundle and --embed do not go together"),
        ("--bundle x", "leave out the options that choose one"),
    ],
)
def test_emit_refuses(options: str, message: str, gen: Gen) -> None:
    code, out, err = gen("emit", "--variant", "naive", *options.split())
    assert (code, out) == (2, "")
    assert message in err


# --- bundles

LIST = """
--variant mma --dtype f16,bf16 --layout rrr,rcr --from 512x512x64 --aligned  # large
--variant mma --dtype f16 --epilogue linear_bias
--variant rec_tiles --dtype i8 --epilogue linear_bias
--variant naive --dtype f64
"""


def bundle_files(folder: Path, text: str = LIST, name: str = "gemm") -> tuple[Path, Path]:
    """The header and the source of a bundle."""
    listing = folder / "kernels.txt"
    listing.write_text(text)
    header, source = render_bundle(read_bundle(listing, name))
    paths = folder / f"{name}.h", folder / f"{name}.cu"
    for path, content in zip(paths, (header, source), strict=True):
        path.write_text(content)
    return paths


@pytest.mark.parametrize("name", ["gemm", "abcdefghijklmnopqrstuvwx", "f"])
def test_a_bundle_is_c_and_cpp_and_formatted(name: str, tmp_path: Path) -> None:
    header, _ = bundle_files(tmp_path, name=name)
    check_c_and_cpp(header, *cuda_includes())
    assert_formatted(tmp_path)


def test_a_bundle_lists_its_kernels_in_order(tmp_path: Path) -> None:
    header, source = bundle_files(tmp_path)
    table = re.findall(r"gemm_\w+_\w+_\d$", header.read_text(), re.MULTILINE)
    assert table == [
        *("gemm_mma_f16_rrr_1", "gemm_mma_f16_rcr_2", "gemm_mma_bf16_rrr_3"),
        *("gemm_mma_bf16_rcr_4", "gemm_mma_f16_rrr_5", "gemm_rec_tiles_i8_rrr_6"),
        "gemm_naive_f64_rrr_7",
    ]
    rows = re.findall(r"^    \{(GEMM_.*)\},$", source.read_text(), re.MULTILINE)
    assert re.match(r"GEMM_F16, +GEMM_RRR, GEMM_LINEAR, +512, 512, 64, 8, ", rows[0])
    assert [row.split('"')[1] for row in rows] == table
    assert read_source(source).spec is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no kernel"),
        ("--variant tile", "kernels.txt:1: unknown variant 'tile'"),
        ("# a\n--variant tiles --tile 33", "kernels.txt:2: tile=33 is out of range"),
        ("--dtype f32", "no kernel is named; use --variant"),
        ("--variant tiles --arch sm_90", "--arch is the whole bundle's"),
        (
            "--variant tiles --from 1x2",
            "kernels.txt:1: --from: shape '1x2' is not MxNxK; use sizes such as 128x64x32",
        ),
        ("--variant tiles f32", "'f32' is not an option"),
        ("--variant tiles --dtype", "--dtype has no value; use --dtype VALUE"),
        ("--variant mma_tma", "mma_tma needs sm_90a, not sm_80"),
        (
            "\n--variant 'tiles",
            "kernels.txt:2: no closing quotation in '--variant 'tiles'; quote nothing but an",
        ),
        ("--variant tiles\\", "kernels.txt:1: no escaped character in '--variant tiles"),
        (
            "--variant mma\n\n--variant mma",
            "kernels.txt:3: this kernel for f16 rrr linear is never taken: the one of line 1 takes",
        ),
        ("--variant naive --dtype f32,f32", "kernels.txt:1: this kernel for f32 rrr linear is nev"),
        (
            "--variant mma --from 64\n--variant naive --dtype f16 --from 64x65x64 --aligned",
            "kernels.txt:2: this kernel for f16 rrr linear is never taken: the one of line 1",
        ),
        (
            "--variant tiles --layout all --aligned\n--variant naive --layout rcr --aligned",
            "kernels.txt:2: this kernel for f32 rcr linear is never taken: the one of line 1",
        ),
    ],
)
def test_a_bad_list_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(GenError, match=re.escape(message)):
        bundle_files(tmp_path, text)


def test_kernels_that_share_some_of_their_problems_are_a_list(tmp_path: Path) -> None:
    lines = (
        "--variant mma --from 64x64x128 --aligned",  # K is larger than in the next line
        "--variant mma --from 64 --aligned",
        "--variant mma --from 64",  # not aligned
        "--variant mma --stages 2",
        "--variant mma --layout rcr",
        "--variant mma --epilogue linear_bias",
        "--variant mma --dtype f16_f32",
    )
    listing = tmp_path / "gemm"
    listing.write_text("\n".join(lines))
    assert len(read_bundle(listing).entries) == len(lines)


def test_a_bundles_name_is_a_short_identifier(tmp_path: Path) -> None:
    for name, reason in (
        ("1st", "name '1st' is not a C identifier"),
        ("a-b", "name 'a-b' is not a C identifier"),
        ("int", "name 'int' is a keyword of C++; use another, such as gemm_int with --name"),
        ("std", "name 'std' is reserved by C++"),
        ("__a", "name '__a' is reserved, as all names that begin with _ are"),
        ("a" * 25, "has at most 24 characters, not the 25 of 'aaa"),
        ("a" * 300, "name has 300 characters, more than 76; use a shorter one with --name"),
    ):
        with pytest.raises(UsageError, match=re.escape(reason)):
            bundle_files(tmp_path, name=name)


CHOICES = """
#include "gemm.h"
#include <stdio.h>

static const char* chosen(gemm_type type, long long M, long long K, const void* A, long long lda) {
  gemm_problem p = {0};
  p.type = type;
  p.layout = GEMM_RRR;
  p.M = p.N = M;
  p.K = K;
  p.A = A;
  p.lda = lda;
  p.ldb = M;
  const char* name = gemm_kernel(&p);
  return name ? name : "none";
}

int main(void) {
  size_t bytes = 1;
  gemm_problem bad = {0};
  bad.M = -1;
  printf("%s\\n", chosen(GEMM_F16, 512, 64, 0, 64));
  printf("%s\\n", chosen(GEMM_F16, 511, 64, 0, 64));
  printf("%s\\n", chosen(GEMM_F16, 512, 64, (const void*)8, 64));
  printf("%s\\n", chosen(GEMM_F16, 512, 64, 0, 65));
  printf("%s\\n", chosen(GEMM_F64, 1, 1, 0, 1));
  printf("%s\\n", chosen((gemm_type)99, 1, 1, 0, 1));
  printf("%d %d %d\\n", gemm_launch(NULL, NULL, 0, NULL), gemm_workspace(&bad, &bytes),
         gemm_workspace(&bad, NULL));
  bad.M = 0;
  bad.type = (gemm_type)99;
  printf("%d %d\\n", gemm_launch(&bad, NULL, 0, NULL), (int)bytes);
  return 0;
}
"""


@slow
@pytest.mark.nvcc
def test_a_bundle_takes_the_first_kernel_that_fits(tmp_path: Path) -> None:
    """From C, without a GPU: the choice needs none."""
    text = (
        "--variant mma --dtype f16 --from 512 --aligned\n--variant mma --dtype f16\n"
        "--variant rec_tiles --dtype f32\n--variant naive --dtype f64\n"
        "--variant tiles --epilogue linear_bias_relu\n"
    )
    bundle_files(tmp_path, text)
    (tmp_path / "main.c").write_text(CHOICES)
    warn = "-Xcompiler=-Wall,-Wextra"
    out = run("nvcc", "-std=c++17", "-arch=sm_80", warn, "-c", "gemm.cu", cwd=tmp_path)
    assert out == ""
    run("nvcc", "-c", "main.c", cwd=tmp_path)
    run("nvcc", "main.o", "gemm.o", "-o", "main", cwd=tmp_path)
    assert run("./main", cwd=tmp_path).splitlines() == [
        "gemm_mma_f16_rrr_2",  # K is too small
        *["gemm_mma_f16_rrr_2"] * 3,
        "gemm_naive_f64_rrr_4",
        "none",
        "1 1 1",  # cudaErrorInvalidValue
        "801 0",  # cudaErrorNotSupported; the size is 0
    ]


# --- CMake


def configure(source: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Configures a project with this checkout's generator."""
    need("cmake")
    program = folder.parent / "gen"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gen "$@"\n')
    program.chmod(0o755)
    command = ["cmake", "-S", str(source), "-B", str(folder), f"-Dgemmgen_DIR={ROOT / 'build'}"]
    command += [f"-DGEMMGEN_EXECUTABLE={program}", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


WARN = "-DCMAKE_CUDA_FLAGS=-Xcompiler=-Wall,-Wextra"


@slow
@pytest.mark.parametrize(
    "example",
    [
        pytest.param("cmake_project", marks=[pytest.mark.nvcc, pytest.mark.slow]),
        pytest.param("vendored", marks=[pytest.mark.nvcc, pytest.mark.slow]),
        "driver_api",
    ],
)
def test_an_example_builds_without_a_warning_and_runs(example: str, tmp_path: Path) -> None:
    done = configure(EXAMPLES / example, tmp_path / "build", WARN)
    assert done.returncode == 0, done.stdout + done.stderr
    out = run("cmake", "--build", tmp_path / "build", cwd=tmp_path)
    assert "warning" not in out.lower()
    out = run("ctest", "--test-dir", tmp_path / "build", cwd=tmp_path)  # skipped without a GPU
    assert "100% tests passed" in out


@pytest.mark.parametrize("example", ["cmake_project", "vendored", "driver_api"])
def test_examples_are_formatted(example: str) -> None:
    assert_formatted(EXAMPLES / example)


PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES CXX)
find_package(gemmgen {version} REQUIRED)
add_library(user STATIC)
{call}
"""


@pytest.mark.parametrize(
    ("call", "version", "message"),
    each(
        6,
        [
            ("gen_add_embedded_kernel(user VARIANT tiles TILE 33)", "", "tile=33 is out of range"),
            (
                "gen_add_embedded_kernel(user VARIANT mma_tma ARCH sm_80)",
                "",
                "mma_tma needs sm_90a",
            ),
            (
                "gen_add_embedded_kernel(user VARIANT)",
                "",
                "VARIANT has no value; use VARIANT and a",
            ),
            ("gen_add_embedded_kernel(other VARIANT tiles)", "", "there is no target 'other'"),
            ("gen_add_kernel(user VARIANT tiles)", "", "needs the language CUDA"),
            ("", "99.0", 'compatible with requested version "99.0"'),
        ],
    ),
)
def test_cmake_says_what_is_wrong(call: str, version: str, message: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT.format(call=call, version=version))
    done = configure(project, tmp_path / "build")
    assert done.returncode != 0
    assert message in re.sub(r"\s+", " ", done.stderr)


@slow
@pytest.mark.parametrize("generator", ["Unix Makefiles", "Ninja"])
def test_cmake_emits_again_when_something_changes(generator: str, tmp_path: Path) -> None:
    need("make" if generator == "Unix Makefiles" else "ninja")
    project = tmp_path / "project"
    project.mkdir()
    listing = project / "CMakeLists.txt"
    call = "gen_add_embedded_kernel(user VARIANT tiles TILE {} NAME f ARCH sm_80)"
    listing.write_text(PROJECT.format(version="", call=call.format(8)))
    done = configure(project, tmp_path / "build", "-G", generator)
    assert done.returncode == 0, done.stderr

    def emits() -> bool:
        return "Emitting f" in run("cmake", "--build", tmp_path / "build", cwd=tmp_path)

    assert emits()
    assert not emits()
    listing.write_text(PROJECT.format(version="", call=call.format(16)))
    assert emits()
    assert "kTile = 16;" in (tmp_path / "build/gemmgen/user/f.cpp").read_text()
    assert not emits()
    listing.write_text(PROJECT.format(version="", call=call.format("16 EMBED cubin,ptx")))
    assert emits()
    assert "machine code and PTX for sm_80" in (tmp_path / "build/gemmgen/user/f.h").read_text()


@slow
def test_an_installed_wheel_has_what_cmake_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another program is called gen."""
    need("cmake")
    other = tmp_path / "other" / "gen"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho gen 0.5.1\n")
    other.chmod(0o755)
    cmake = shutil.which("cmake")
    folders = [x for x in os.environ["PATH"].split(":") if not Path(x, "gemmgen").exists()]
    monkeypatch.setenv("PATH", ":".join([str(other.parent), *folders]))
    site = tmp_path / "site"
    install(build("wheel", ROOT, tmp_path / "dist"), site)
    folder = run_alone(site / "bin" / "gen", "--cmake-dir", cwd=tmp_path, path=site).strip()
    assert folder == str(site / "gen" / "cmake")
    project = tmp_path / "project"
    project.mkdir()
    call = "gen_add_embedded_kernel(user VARIANT naive NAME f ARCH sm_80)"
    series = __version__.rpartition(".")[0]  # such as 0.2, as in docs/stability.md
    (project / "CMakeLists.txt").write_text(PROJECT.format(version=series, call=call))
    command = (cmake, "-S", project, "-B", tmp_path / "build")
    run_alone(*command, f"-DCMAKE_PREFIX_PATH={folder}", cwd=tmp_path, path=site)
    assert f"{site}/bin/gemmgen\n" in (tmp_path / "build" / "CMakeCache.txt").read_text()
    # An installation that has lost the command gemmgen: the other program is refused.
    for name in ("gemmgen", "gen"):
        (site / "bin" / name).unlink()
    refused = subprocess.run(
        [cmake, "-S", project, "-B", tmp_path / "again", f"-DCMAKE_PREFIX_PATH={folder}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert f"{other} is not gemmgen's" in re.sub(r"\s+", " ", refused.stderr)


@pytest.mark.parametrize("variant", ["rec_tiles", "mma", "mma_tma", "wgmma"])
def test_headers_and_pages_name_every_error(variant: str) -> None:
    spec = make_spec(variant)
    _, _, host = render(spec).text.partition("#ifndef __CUDACC_RTC__  // the host")
    code = re.sub(r"//.*", "", host)
    returned = {f"cudaError{x}" for x in re.findall(r"return cudaError(\w+)", code)}
    assert {"cudaErrorInvalidValue", "cudaErrorInvalidConfiguration"} <= returned
    page = (ROOT / "docs" / "launchers.md").read_text()
    for text in (render_header(spec), page, "".join(re.findall(r"//.*", host))):
        assert returned <= set(re.findall(r"cudaError\w+", text))
