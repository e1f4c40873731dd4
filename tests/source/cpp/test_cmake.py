"""What CMake asks and builds: never stale, never ambiguous. Mostly embedded: without nvcc."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gen.dispatch import folders
from gen.dispatch.ranking import Product
from gen.errors import GenError, UsageError
from gen.source.cpp.cmake import Answer, Call, answer
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout
from tests import ROOT
from tests.conftest import Gen
from tests.support import tuned
from tests.support.programs import need, run
from tests.support.slow import each, slow


def ask(line: str, architectures: str = "80", function: str = "gen_add_kernel") -> Answer:
    """What a call of a function, with these words, makes of a target `app`."""
    return answer(Call.read("\t".join([architectures, function, "app", *line.split()])))


# --- words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no kernel is named; use VARIANT with naive, "),
        ("VARIANT", "VARIANT has no value; use VARIANT and a value, or leave it out"),
        ("VARIANT tiles NAME", "NAME has no value"),
        ("VARIANT all", "unknown variant 'all'"),
        ("VARIANT tiles VARIANT naive", "VARIANT is there twice"),
        ("VARIANT tiles naive", "there is no word 'naive'; use AHEAD, ARCH, "),
        ("VARIANT tiles OUTPUT x.cu", "there is no word 'OUTPUT'"),
        ("VARIANT tiles DEPFILE x", "there is no word 'DEPFILE'"),
        ("VARIANT tiles Tile 8", "there is no word 'Tile'"),
        ("VARIANT tiles TILE 8,16", "tile"),
        ("VARIANT tiles STAGES 2", "tiles has no tunable 'stages'"),
        ("VARIANT tiles LAYOUT all", "layout"),
        ("VARIANT tiles DTYPE all", "dtype"),
        ("VARIANT tiles NAME int", "name 'int' is a keyword of C++"),
        ("VARIANT tiles NAME epilogue", "name 'epilogue' is something else"),
    ],
)
def test_wrong_words_are_refused_in_one_line(words: str, message: str) -> None:
    for function in ("gen_add_kernel", "gen_add_embedded_kernel"):
        with pytest.raises(GenError, match=re.escape(message)) as raised:
            ask(words, function=function)
        text = str(raised.value)
        assert text.startswith(f"{function}({' '.join(['app', *words.split()])}): ")
        assert "\n" not in text


def test_the_format_of_embedded_code_is_a_word_of_one_function() -> None:
    words = "VARIANT tiles ARCH sm_80 EMBED cubin,ptx"
    assert ask(words, function="gen_add_embedded_kernel").options[:2] == ("--embed", "ptx,cubin")
    with pytest.raises(GenError, match="there is no word 'EMBED'"):
        ask(words, function="gen_add_kernel")
    with pytest.raises(GenError, match="unknown format 'sass'"):
        ask("VARIANT tiles EMBED sass", function="gen_add_embedded_kernel")


def test_wrong_words_of_a_bundle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("--variant tiles")
    for words, message in (
        ("", "a bundle is listed or chosen; use FILE with a list of kernels, or AUTO with"),
        (f"FILE {tmp_path}/none", "No such file"),
        (f"FILE {tmp_path}/list FILE {tmp_path}/list", "FILE is there twice"),
        (f"FILE {tmp_path}/list VARIANT tiles", "there is no word 'VARIANT'; use ARCH, FILE, NAME"),
    ):
        with pytest.raises(GenError, match=re.escape(message)):
            ask(words, function="gen_add_bundle")


# --- architectures


def bundle(words: str, architectures: str = "80,90a") -> Answer:
    return ask(words, architectures, "gen_add_bundle")


def test_a_bundle_is_chosen_by_the_projects_table_and_not_by_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "AUTO SHAPES 1024x2048x512 GPUS h200 DTYPE f16 LAYOUT rcr NAME gemm"
    product = Product.packed(GemmShape(1024, 2048, 512), parse_dtype("f16"), parse_layout("rcr"))
    table = tuned.table([product], "h200", seed=5)
    folders.keep(table, tmp_path)
    folders.keep(table, tmp_path / "table.json")
    monkeypatch.setenv("GEN_TUNED_DIR", str(tmp_path))
    modelled = bundle(words, "90a")
    found = bundle(f"{words} TUNED {tmp_path / 'table.json'}", "90a")
    assert found.stamp != modelled.stamp
    at = found.options.index("--tuned")
    assert found.options[at + 1] == str(tmp_path / "table.json")
    with pytest.raises(UsageError, match=r"there is no table no.json; use a file or a folder"):
        bundle(f"{words} TUNED no.json", "90a")


def test_a_bundle_may_be_chosen() -> None:
    words = "AUTO SHAPES 4096 1-16x4096x4096 GPUS a100 h100 DTYPE f16 NAME gemm"
    found = bundle(words)
    assert (found.name, found.source) == ("gemm", "gemm.cu")
    assert " ".join(found.options) == (
        "--best --dtype f16 --layout rrr --gpu a100,h100 --shape 4096 --shape 1-16x4096x4096"
        " --tuned shipped --name gemm --header"
    )
    assert bundle(words.replace("4096 1-16", "4096,1-16")) == found
    assert bundle(words, "80,90a,120") == found
    assert bundle(words, "") == found
    assert bundle(f"{words} EPILOGUE linear_bias").stamp != found.stamp
    placed = bundle(f"{words} LDA 8192 11008 LDB 4097 UNALIGNED")
    assert " --lda 8192,11008 --ldb 4097 --unaligned --tuned" in " ".join(placed.options)
    assert placed.stamp != found.stamp
    batched = bundle(f"{words} BATCH 1-64")
    assert "--batch 1-64 " in " ".join(batched.options)
    assert batched.stamp != found.stamp
    embedded = bundle(f"{words} EMBED cubin,ptx", "")
    assert embedded.source == "gemm.cpp"
    assert embedded.options[-2:] == ("--embed", "cubin,ptx")
    assert "--header" not in embedded.options
    assert bundle(f"{words} EMBED cubin,ptx", "52") == embedded
    assert bundle(f"{words} EMBED ptx").stamp != embedded.stamp != found.stamp
    more = bundle(f"{words} EPILOGUE 'x * s[row]'".replace("'x * s[row]'", "relu(x+s[row])"))
    assert "--epilogue relu(x+s[row]) " in " ".join(more.options)


def test_what_a_bundle_is_called_does_not_depend_on_what_is_chosen() -> None:
    """Nor do its functions: see test_best."""
    one = bundle("AUTO SHAPES 512 GPUS t4 DTYPE f16", "75")
    several = bundle("AUTO SHAPES 512 1-16x4096x4096 GPUS t4 DTYPE f16", "75")
    assert one.name == several.name == "gemm_f16_rrr_best"
    assert one.source == several.source == "gemm_f16_rrr_best.cu"
    assert one.options[-2:] == several.options[-2:] == (one.name, "--header")
    batched = bundle("AUTO SHAPES 512 GPUS t4 DTYPE f16 BATCH 8", "75")
    assert batched.name == "gemm_f16_rrr_batched_best"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "use FILE with a list of kernels, or AUTO with SHAPES and GPUS"),
        ("AUTO FILE x SHAPES 9 GPUS t4", "use FILE with a list of kernels, or AUTO with"),
        ("AUTO SHAPES 9", "AUTO chooses for shapes and GPUs; use GPUS, too"),
        ("AUTO GPUS t4", "AUTO chooses for shapes and GPUs; use SHAPES, too"),
        ("AUTO SHAPES 9 GPUS t4 ARCH sm_75", "the architectures are those of GPUS; leave out ARCH"),
        ("AUTO SHAPES 9 GPUS", "GPUS has no value"),
        ("AUTO SHAPES GPUS t4", "SHAPES has no value"),
        ("AUTO SHAPES 9 GPUS DTYPE f16", "GPUS has no value"),
        ("AUTO SHAPES 9 GPUS t5", "unknown GPU 't5'"),
        ("AUTO SHAPES 9x9 GPUS t4", "shape '9x9' is not MxNxK"),
        ("AUTO SHAPES 9 GPUS a100 BATCHED", "word 'BATCHED'; use BATCH with the number of produc"),
        ("AUTO SHAPES 9 GPUS a100 GROUPED", "no word 'GROUPED'; use BATCH for products of one sha"),
        ("AUTO SHAPES 9 GPUS a100 GROUPED_K", "BATCH for products of one shape, or gen_add_kerne"),
        ("AUTO SHAPES 4096 GPUS a100 h100 l4 DTYPE f16", "use CUDA_ARCHITECTURES 80;89;90a"),
        ("AUTO SHAPES 64 GPUS b200", "with CUDA_ARCHITECTURES 80;90a, the target is not compiled"),
        ("AUTO SHAPES 9 GPUS t4 EMBED sass", "unknown format 'sass'"),
        ("AUTO SHAPES 9 GPU t4", "there is no word 'GPU'; use AHEAD, AUTO, BATCH, "),
        ("AUTO SHAPES 64 GPUS t4 LDA 63", "lda=63 is less than a line of 64x64x64 rrr; use 64"),
        ("FILE x EMBED cubin", "EMBED goes with AUTO: nvcc compiles what a list has"),
        ("FILE x SHAPES 9", "SHAPES goes with AUTO; FILE's list says it"),
    ],
)
def test_wrong_words_of_a_chosen_bundle_are_refused(words: str, message: str) -> None:
    with pytest.raises(GenError, match=re.escape(message)):
        bundle(words)


def test_a_target_may_be_compiled_for_what_no_kernel_knows() -> None:
    """As `all-major` is, of an older toolkit than gen's."""
    with pytest.raises(UsageError, match="CUDA_ARCHITECTURES 50;80;90a, the target is not compi"):
        bundle("AUTO SHAPES 64 GPUS a100 h100 DTYPE f16", "50,80,90a")
    with pytest.raises(UsageError, match="compiled for sm_50, too, and this kernel is for sm_80"):
        ask("VARIANT mma ARCH sm_80", "50,80")
    assert bundle("AUTO SHAPES 64 GPUS a100 h100 DTYPE f16", "80,90a,130").stamp


def test_each_architecture_gets_its_own_kernel(gen: Gen) -> None:
    """In CMake as with gen emit: the options that CMake is told give what it expects."""
    found = ask("VARIANT mma NAME f", "75;80-real;90-virtual".replace(";", ","))
    assert found.options[-2:] == ("--arch", "sm_75,sm_80,sm_90")
    out = gen("emit", *found.options, "-o", "o/")
    assert out.out == "o/f.cu\no/f.h\n"
    text = Path("o/f.cu").read_text()
    assert re.findall(r"\{(\d+), f_(sm\d+)_ns::", text) == [
        *(("90", "sm90"), ("80", "sm80"), ("75", "sm75")),
    ]
    assert found.stamp in text
    assert found.stamp in Path("o/f.h").read_text()


def test_what_is_the_same_on_all_architectures_is_there_once(gen: Gen) -> None:
    assert gen("emit", "--variant", "tiles", "--arch", "sm_75,sm_90", "-o", "o/").code == 0
    assert Path("o/gemm_tiles_f32_rrr.cu").read_text().count("__global__") == 1
    assert gen("emit", "--variant", "mma", "--arch", "sm_80,sm_86,sm_89", "-o", "o/").code == 0
    text = Path("o/gemm_mma_f16_rrr.cu").read_text()
    assert "gen-spec" in text
    assert "__trap" not in text


def test_a_family_says_how_it_is_made_again(gen: Gen) -> None:
    command = ("emit", "--variant", "mma", "--split-k", "auto", "--arch", "sm_75,sm_80", "--header")
    assert gen(*command, "-o", "o/").code == 0
    (path,) = Path("o").glob("*.cu")
    made_by = re.findall(r"Made by .*:  gen (.*)", path.read_text())[0].split()
    assert gen(*made_by, "-o", "again/").code == 0
    assert Path("again", path.name).read_text() == path.read_text()


@pytest.mark.parametrize(
    ("words", "architectures", "message"),
    [
        ("VARIANT mma_tma", "80", "with CUDA_ARCHITECTURES 80, mma_tma needs sm_90a, not sm_80"),
        ("VARIANT mma_tma", "90", "with CUDA_ARCHITECTURES 90, mma_tma needs sm_90a, not sm_90"),
        ("VARIANT mma_tma", "80,90a", "with CUDA_ARCHITECTURES 80;90a, mma_tma needs sm_90a"),
        ("VARIANT mma_tma ARCH sm_90a", "90", "is compiled for sm_90, too, and this kernel is for"),
        ("VARIANT mma_tma ARCH sm_90a", "80,90a", "compiled for sm_80, too, and this kernel is fo"),
        (
            "VARIANT mma ARCH sm_80",
            "75,80",
            "compiled for sm_75, too, and this kernel is for sm_80",
        ),
        ("VARIANT mma ARCH sm_80,sm_90", "80", "the target is not compiled for sm_90"),
        ("VARIANT mma STAGES 4", "75;80", "stages=4 needs cp.async, which sm_75 lacks"),
        ("VARIANT mma DTYPE i8", "75,80", "tensor cores of sm_75 have no i8"),
        ("VARIANT tiles", "61", "unknown architecture 'sm_61'"),
    ],
)
def test_architectures_that_do_not_go_together(
    words: str, architectures: str, message: str
) -> None:
    with pytest.raises(GenError, match=re.escape(message)) as raised:
        ask(words, architectures.replace(";", ","))
    assert "\n" not in str(raised.value)


def test_architectures_that_go_together() -> None:
    for words, architectures, arch in (
        ("VARIANT mma_tma", "90a-real", "sm_90a"),
        ("VARIANT mma_tma ARCH sm_90a", "90a", "sm_90a"),
        ("VARIANT mma ARCH sm_80", "80,86-real,90", "sm_80"),
        ("VARIANT mma ARCH sm_80,sm_90", "86,120", "sm_80,sm_90"),
        ("VARIANT tiles", "86,75", "sm_86,sm_75"),
    ):
        options = ask(words, architectures).options
        assert options[options.index("--arch") + 1] == arch
    for unknown in ("", "OFF", "native"):
        assert "--arch" not in ask("VARIANT tiles", unknown).options


# --- a stamp tells one header from another


def stamps(words: str, **more: str) -> str:
    return ask(f"NAME f {words}", **more).stamp


def test_a_stamp_is_of_the_specification() -> None:
    embedded = {"function": "gen_add_embedded_kernel"}
    found = [
        stamps("VARIANT tiles"),
        stamps("VARIANT tiles LAYOUT ccc"),  # with the same signature
        stamps("VARIANT tiles TILE 8"),
        stamps("VARIANT tiles", architectures="90"),
        stamps("VARIANT tiles", **embedded),
        stamps("VARIANT tiles ARCH sm_80,sm_90", **embedded),
    ]
    assert len(set(found)) == len(found)
    assert stamps("VARIANT tiles DTYPE f32 LAYOUT rrr") == found[0]


@pytest.mark.slow
def test_a_source_does_not_compile_with_the_header_of_another(gen: Gen) -> None:
    need("g++")
    for layout in ("rrr", "ccc"):
        words = ("--variant", "naive", "--layout", layout, "--name", "f", "--embed", "cubin")
        assert gen("emit", *words, "-o", f"{layout}/").code == 0
    Path("rrr/f.h").write_text(Path("ccc/f.h").read_text())
    for layout, good in (("ccc", True), ("rrr", False)):
        command = ["g++", "-std=c++17", "-c", f"{layout}/f.cpp", "-o", "f.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == good
        assert good or "the header is another kernel's; emit both files together" in done.stderr


@slow
@pytest.mark.nvcc
def test_an_emitted_file_does_not_compile_with_the_header_of_another(gen: Gen) -> None:
    for layout in ("rrr", "ccc"):
        words = ("--variant", "naive", "--layout", layout, "--name", "f", "--header")
        assert gen("emit", *words, "-o", f"{layout}/").code == 0
    header = Path("rrr/f.h")
    compile_ = ["nvcc", "-std=c++17", "-arch=sm_80", "-c", "rrr/f.cu", "-o", "f.o"]
    for text, good in (
        (header.read_text(), True),
        (Path("ccc/f.h").read_text(), False),
        (re.sub("#define F_SPEC.*", "", header.read_text()), False),  # of an older version
    ):
        header.write_text(text)
        done = subprocess.run(compile_, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == good, done.stderr


def test_a_bundles_rule_has_its_list(gen: Gen) -> None:
    Path("my list").write_text("--variant naive")
    command = ("emit", "--bundle", "my list", "--name", "f", "-o", "o/", "--depfile", "o/f.d")
    assert gen(*command).code == 0
    assert f"{Path.cwd()}/my\\ list \\\n".replace("//", "/") in Path("o/f.d").read_text()


# --- projects

Configure = Callable[..., subprocess.CompletedProcess[str]]

HEAD = """
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES {languages})
find_package(gemmgen REQUIRED)
"""


class Project:
    """A project in a folder; `gen` runs there from a package of its own if there is one."""

    def __init__(self, folder: Path) -> None:
        need("cmake", "ninja")
        self.folder = folder
        self.package = ROOT
        self.log = folder / "log"
        self.program = folder / "gen"
        self.program.write_text(
            f'#!/bin/sh\necho "$1" >>"{self.log}"\nexec "{sys.executable}" -m gen "$@"\n'
        )
        self.program.chmod(0o755)

    def write(self, text: str, languages: str = "CXX") -> None:
        path = self.folder / "source" / "CMakeLists.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD.format(languages=languages) + text)

    def cmake(self, *words: object) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(self.package)}
        command = ["cmake", *map(str, words)]
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )

    def configure(self, *options: str) -> subprocess.CompletedProcess[str]:
        found = f"-Dgemmgen_DIR={self.package / 'build'}", f"-DGEMMGEN_EXECUTABLE={self.program}"
        return self.cmake("-S", "source", "-B", "build", "-GNinja", *found, *options)

    def build(self) -> str:
        done = self.cmake("--build", "build")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def calls(self) -> list[str]:
        """The commands of gen since the last time."""
        lines = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def good(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@slow
def test_gen_is_asked_once_for_all_kernels_and_not_again(project: Project) -> None:
    call = "gen_add_embedded_kernel(user VARIANT tiles NAME k{} ARCH sm_80)\n"
    text = "add_library(user STATIC)\n" + "".join(map(call.format, range(30)))
    project.write(text)
    good(project.configure())
    assert project.calls() == ["cmake", "cmake"]  # where it is, and all kernels
    good(project.configure())
    assert project.calls() == ["cmake"]  # where it is
    project.write(text + call.format("_more"))
    good(project.configure())
    assert project.calls() == ["cmake", "cmake"]


@slow
def test_an_upgrade_emits_again_whatever_the_files_times_are(project: Project) -> None:
    project.package = project.folder / "package"
    for folder in ("gen", "templates", "build"):
        shutil.copytree(ROOT / folder, project.package / folder)
    project.write(
        "add_library(user STATIC)\ngen_add_embedded_kernel(user VARIANT naive NAME f ARCH sm_80)\n"
    )
    good(project.configure())
    assert "Emitting f" in project.build()
    assert project.build() == "ninja: no work to do.\n"
    template = project.package / "templates" / "cpp" / "embed.h.j2"
    times = template.stat()
    new = template.with_suffix(".new")
    new.write_text(template.read_text().replace("// For C and C++.", "// For C and for C++."))
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(template)
    assert "Emitting f" in project.build()
    emitted = project.folder / "build" / "gemmgen" / "user" / "f.h"
    assert "// For C and for C++." in emitted.read_text()
    assert project.build() == "ninja: no work to do.\n"
    project.calls()
    with (project.package / "gen" / "dispatch" / "cost.py").open("a") as file:
        file.write("# Another model.\n")
    assert "Emitting f" in project.build()
    assert project.calls() == ["cmake", "cmake", "emit"]  # the calls may come to others
    assert project.build() == "ninja: no work to do.\n"


@slow
def test_another_gemmgen_behind_the_same_command_emits_again(project: Project) -> None:
    """As pip installs it: the command has the same bytes, and only its time is new."""
    where, texts = project.folder / "where", ("// For C and C++.", "// For C and for C++.", "// C.")
    packages = [project.folder / f"package{i}" for i in range(len(texts))]
    for package, text in zip(packages, texts, strict=True):
        for folder in ("gen", "templates"):
            shutil.copytree(ROOT / folder, package / folder)
        template = package / "templates" / "cpp" / "embed.h.j2"
        template.write_text(template.read_text().replace(texts[0], text))
    program = project.program.read_text()
    project.program.write_text(program.replace("exec ", f'PYTHONPATH="$(cat "{where}")" exec '))
    project.write(
        "add_library(user STATIC)\ngen_add_embedded_kernel(user VARIANT naive NAME f ARCH sm_80)\n"
    )
    where.write_text(str(packages[0]))
    good(project.configure())
    for package, text in zip(packages, texts, strict=True):
        where.write_text(str(package))
        if package is packages[1]:
            good(project.cmake("build"))
        else:
            project.program.touch()
        assert "Emitting f" in project.build()
        emitted = project.folder / "build" / "gemmgen" / "user" / "f.h"
        assert f"{text} f.cpp " in emitted.read_text()
        assert project.build() == "ninja: no work to do.\n"


@slow
def test_another_nvrtc_emits_machine_code_again(project: Project) -> None:
    """A library that is replaced; and files that somebody has removed are made again, too."""
    library = project.folder / "libnvrtc.so.13"
    library.write_text("one")
    program = project.program.read_text()
    told = (
        f'[ $# = 1 ] && {{ "{sys.executable}" -m gen cmake | head -2; echo "{library}"; exit; }}\n'
    )
    project.program.write_text(program.replace("exec ", told + "exec "))
    call = "gen_add_embedded_kernel(user VARIANT naive NAME f EMBED ptx ARCH sm_80)"
    project.write(f"add_library(user STATIC)\n{call}\n")
    good(project.configure())
    project.build()
    assert project.build() == "ninja: no work to do.\n"
    library.unlink()
    library.write_text("another")
    assert "Emitting f" in project.build()
    assert project.build() == "ninja: no work to do.\n"
    shutil.rmtree(project.folder / "build" / "gemmgen")
    assert "Emitting f" in project.build()
    assert project.build() == "ninja: no work to do.\n"


@slow
def test_a_projects_linter_leaves_emitted_files_alone(project: Project) -> None:
    version = re.search(r"version (\d+)\.(\d+)", project.cmake("--version").stdout)
    if not version or (int(version[1]), int(version[2])) < (3, 27):
        pytest.skip("SKIP_LINTING is of CMake 3.27")
    project.write(
        "add_library(user STATIC)\n"
        "gen_add_embedded_kernel(user VARIANT naive NAME f EMBED ptx ARCH sm_80)\n"
    )
    good(project.configure("-DCMAKE_CXX_CLANG_TIDY=/bin/false"))
    project.build()


TUNED = """
add_library(user STATIC)
gen_add_bundle(user AUTO SHAPES 64 GPUS a10 DTYPE f16 NAME f EMBED ptx TUNED {})
"""


@slow
def test_tables_are_files_or_folders_or_words(project: Project) -> None:
    folder = project.folder / "source" / "my tables"
    project.write(TUNED.format('"my tables"'))
    refused = re.sub(r"\s+", " ", project.configure().stderr)
    assert f"there is no table {folder}; use a file or" in refused
    folder.mkdir()
    refused = re.sub(r"\s+", " ", project.configure().stderr)
    assert f"the folder {folder} has no table; use one" in refused
    for word in ("none", "shipped"):
        (project.folder / "source" / word).mkdir()  # which the word is not
        project.write(TUNED.format(word))
        good(project.configure())
    project.write(TUNED.format('"my tables"'))
    project.calls()
    product = Product.packed(GemmShape(64, 64, 64), parse_dtype("f16"), parse_layout("rrr"))
    for seed in (1, 2):  # a table that was not there, and another one
        shutil.rmtree(folder)
        folders.keep(tuned.table([product], "a10", seed=seed), folder)
        good(project.configure())
        assert project.calls() == ["cmake", "cmake"]
    project.write(TUNED.format('"my tables/a10/f16.json"'))
    good(project.configure())
    assert "Emitting f" in project.build()
    folders.keep(tuned.table([product], "a10", seed=3), project.folder / "other.json")
    os.utime(project.folder / "other.json", (0, 0))
    (project.folder / "other.json").replace(folder / "a10" / "f16.json")
    good(project.configure())  # which notices an older file, too
    assert "Emitting f" in project.build()


SAME_NAME = """
add_library(a STATIC)
add_library(b STATIC)
gen_add_embedded_kernel(a VARIANT naive NAME f ARCH sm_80)
gen_add_embedded_kernel(b VARIANT naive NAME f ARCH sm_80 {more})
file(WRITE ${{CMAKE_CURRENT_BINARY_DIR}}/main.cpp "#include \\"f.h\\"\\nint main() {{ f_load(); }}")
add_executable(user ${{CMAKE_CURRENT_BINARY_DIR}}/main.cpp)
target_link_libraries(user a b)
"""


@slow
def test_one_name_is_one_kernel(project: Project) -> None:
    project.write(SAME_NAME.format(more="LAYOUT ccc"))
    done = project.configure()
    assert done.returncode != 0
    said = re.sub(r"\s+", " ", done.stderr)
    assert (
        "the kernel f of the target 'b' is another one than f of 'a'; give one of them an" in said
    )
    project.write(SAME_NAME.format(more="LAYOUT rrr"))  # the default
    good(project.configure())
    project.build()


@pytest.mark.parametrize(
    ("call", "message"),
    each(
        5,
        [
            ("gen_add_embedded_kernel(user VARIANT tiles OUTPUT x)", "there is no word 'OUTPUT'"),
            (
                "gen_add_embedded_kernel(alias VARIANT tiles)",
                "'alias' is another name of 'user'; use",
            ),
            ("gen_add_embedded_kernel(none VARIANT tiles)", "'none' compiles nothing"),
            ("gen_add_embedded_kernel(imported VARIANT tiles)", "'imported' compiles nothing"),
            (
                "gen_add_embedded_kernel(user VARIANT tiles)\n" * 2,
                "has two kernels of the name gemm_ti",
            ),
        ],
    ),
)
@pytest.mark.slow
def test_cmake_refuses(call: str, message: str, project: Project) -> None:
    targets = "add_library(user STATIC)\nadd_library(alias ALIAS user)\nadd_custom_target(none)\n"
    project.write(f"{targets}add_library(imported STATIC IMPORTED)\n{call}")
    done = project.configure("-DCMAKE_CXX_COMPILER_WORKS=ON")
    assert done.returncode != 0
    assert message in re.sub(r"\s+", " ", done.stderr)


@slow
def test_a_header_of_a_call_that_has_gone_is_removed(project: Project) -> None:
    call = "add_library(user STATIC)\ngen_add_embedded_kernel(user VARIANT naive NAME {})\n"
    folder = project.folder / "build" / "gemmgen" / "user"
    for name in ("older", "newer"):
        project.write(call.format(name))
        good(project.configure())
        assert [path.name for path in folder.iterdir()] == [f"{name}.options"]
        (folder / f"{name}.h").write_text("")


LIBRARY = """
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
add_library(gemm {kind})
set_target_properties(gemm PROPERTIES UNITY_BUILD ON)
gen_add_embedded_kernel(gemm VARIANT tiles NAME gemm_f32 ARCH sm_80)
gen_add_embedded_kernel(gemm VARIANT mma THREADBLOCK 64x64x32 WARP 32x32 NAME gemm_f16)
install(TARGETS gemm EXPORT gemm)
install(EXPORT gemm NAMESPACE my:: DESTINATION lib/cmake/gemm FILE gemm-config.cmake)
"""

USER = """
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES CXX)
find_package(gemm REQUIRED)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/main.cpp
     "#include \\"gemm_f16.h\\"\\n#include \\"gemm_f32.h\\"\\n"
     "int main() { return (gemm_f16_load() + gemm_f32_load()) * 0; }\\n")
add_executable(user ${CMAKE_CURRENT_BINARY_DIR}/main.cpp)
target_link_libraries(user PRIVATE my::gemm)
"""


@slow
@pytest.mark.parametrize("kind", ["STATIC", "SHARED"])
def test_a_library_is_installed_with_its_headers(kind: str, project: Project) -> None:
    """In one translation unit, with hidden symbols, in a folder whose name has a space."""
    project.write(LIBRARY.format(kind=kind))
    good(project.configure())
    project.build()
    prefix = project.folder / "an installation"
    good(project.cmake("--install", "build", "--prefix", prefix))
    assert (prefix / "include" / "gemm_f16.h").is_file()
    user = project.folder / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(USER)
    good(project.cmake("-S", user, "-B", "b", "-GNinja", f"-DCMAKE_PREFIX_PATH={prefix}"))
    good(project.cmake("--build", "b"))
    run(project.folder / "b" / "user", cwd=project.folder)


FIND = """
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES NONE)
find_package(gemmgen QUIET)
message(STATUS "found: ${gemmgen_FOUND} because: ${gemmgen_NOT_FOUND_MESSAGE}.")
"""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "there is no program "),
        ("#!/bin/sh\necho gen 1.0", "is not gemmgen's, is older than these CMake files, or does"),
        ("#!/bin/sh\necho broken >&2\nexit 3", "set GEMMGEN_EXECUTABLE. broken"),
        ("#!/no/such/interpreter\n", "is not gemmgen's"),
    ],
)
def test_a_package_without_a_program_is_not_found(
    script: str | None, message: str, project: Project
) -> None:
    project.write("")
    (project.folder / "source" / "CMakeLists.txt").write_text(FIND)
    project.program.unlink()
    if script:
        project.program.write_text(script)
        project.program.chmod(0o755)
    done = project.configure()
    good(done)
    assert "found: 0 because: " in done.stdout + done.stderr
    assert message in done.stdout + done.stderr


def test_the_page_has_the_version_of_cmake_that_the_files_ask_for() -> None:
    page = (ROOT / "docs" / "cpp.md").read_text()
    (minimum,) = re.findall(r"^\| CMake \| ([\d.]+) \|", page, re.MULTILINE)
    files = (ROOT / "build" / "GenKernels.cmake", ROOT / "build" / "gemmgenConfig.cmake")
    asked = [re.findall(r"VERSION(?:_LESS)? ([\d.]+)\)", path.read_text()) for path in files]
    assert asked == [[minimum], [minimum]]
    for example in (ROOT / "examples").glob("*/CMakeLists.txt"):
        assert f"cmake_minimum_required(VERSION {minimum})" in example.read_text()


# --- projects with CUDA

CUDA = """
file(WRITE ${CMAKE_CURRENT_SOURCE_DIR}/gemm.kernels "--variant naive\\n")
foreach(name IN ITEMS a b)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu
       "#include \\"same.h\\"\\n"
       "extern \\"C\\" void* use_${name}() { return (void*)&same_launch; }\\n")
  add_library(${name} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu)
  set_target_properties(${name} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
  gen_add_kernel(${name} VARIANT naive NAME same)
endforeach()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/main.cu
     "#include \\"gemm.h\\"\\nextern \\"C\\" void* use_a();\\nextern \\"C\\" void* use_b();\\n"
     "int main() { return use_a() != use_b() || !gemm_kernel; }\\n")
add_library(shared SHARED)
set_target_properties(shared PROPERTIES CUDA_VISIBILITY_PRESET hidden UNITY_BUILD ON)
gen_add_kernel(shared VARIANT tiles)
gen_add_bundle(shared FILE gemm.kernels)
add_executable(user ${CMAKE_CURRENT_BINARY_DIR}/main.cu)
set_target_properties(user PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
target_link_libraries(user a b shared)
"""


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_project_with_cuda(project: Project) -> None:
    """The same kernel in two libraries with -rdc, a shared library, a bundle whose list changes."""
    project.write(CUDA.replace("file(WRITE ${CMAKE_CURRENT_SOURCE_DIR}", "#", 1), "CXX CUDA")
    listing = project.folder / "source" / "gemm.kernels"
    listing.write_text("--variant naive\n")
    good(project.configure("-DCMAKE_CUDA_ARCHITECTURES=75;80"))
    project.build()
    run(project.folder / "build" / "user", cwd=project.folder)
    assert project.build() == "ninja: no work to do.\n"
    listing.write_text("--variant naive\n--variant naive --dtype f64\n")
    emitted = re.findall("Emitting (.*)", project.build())
    assert emitted == ["gemm"]
    assert project.build() == "ninja: no work to do.\n"


def of_readme() -> tuple[str, str]:
    """The calls of CMake on the front page, and the option that its command has for them."""
    text = (ROOT / "README.md").read_text()
    (calls,) = re.findall(r"```cmake\n(.*?)```", text, re.DOTALL)
    (option,) = re.findall(r"'(-DCMAKE_CUDA_ARCHITECTURES=.*)'", text)
    return calls, option


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_chosen_bundle_is_built_as_the_front_page_says(project: Project) -> None:
    calls, option = of_readme()
    project.write(f"add_executable(main main.cpp)\n{calls}", "CXX CUDA")
    (project.folder / "source" / "main.cpp").write_text(
        '#include "gemm_f16.h"\n'
        "int main() { return gemm_f16_workspace(0, 0, 0, 0, 1, 0, 1, 0) == 1 ? 0 : 1; }"
    )
    good(project.configure(option))
    assert re.findall("Emitting (.*)", project.build()) == ["gemm_f16"]
    run(project.folder / "build" / "main", cwd=project.folder)
    assert project.build() == "ninja: no work to do.\n"


EMBEDDED = """
add_executable(user main.c)
gen_add_bundle(user AUTO SHAPES 64 1x512x512 GPUS a10 h100 BATCH 1-8 EMBED cubin NAME gemm
               EPILOGUE "x * scale[row]")
"""


@slow
def test_a_chosen_bundle_is_embedded_without_cuda(project: Project) -> None:
    """Called from C, on a machine that may have no driver, and emitted again for other shapes."""
    project.write(EMBEDDED, "C CXX")
    (project.folder / "source" / "main.c").write_text(
        '#include "gemm.h"\n'
        "int main(void) {\n"
        "  int error = gemm_load();  // no driver, or nobody has made a context\n"
        "  return error == 303 || error == 201 || error == 3 ? 0 : 1;\n"
        "}\n"
    )
    good(project.configure())
    assert re.findall("Emitting (.*)", project.build()) == ["gemm"]
    assert run(project.folder / "build" / "user", cwd=project.folder) == ""
    assert project.build() == "ninja: no work to do.\n"
    project.write(EMBEDDED.replace("64 1x512", "96 1x512"), "C CXX")
    assert re.findall("Emitting (.*)", project.build()) == ["gemm"]
    project.write(EMBEDDED.replace("EMBED cubin", ""), "C CXX")
    done = project.configure()
    assert "gen_add_bundle needs the language CUDA" in done.stderr
