"""The commands: what they print and write, and what they say about bad input."""

import inspect
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from gen._version import __version__
from gen.cli import main, options, progress, tables
from gen.cli.commands import app
from gen.cli.options import tunables
from gen.cli.verify import _runnable
from gen.device.emulated import EmulatorRunner
from gen.errors import CheckError, SpecError
from gen.kernels.registry import VARIANTS, make_spec
from gen.kernels.tunables import Integer, Value
from gen.prove import check as checks
from gen.prove import verify
from gen.prove.check import CheckReport
from gen.prove.proofs import Proof, Proofs
from gen.prove.verify import CaseResult, ShapeResult
from gen.source.render import render
from gen.spec.problem import GemmProblem
from tests import ROOT
from tests.conftest import Gen
from tests.support.slow import each, sift, slow
from tests.support.small import takes


def python(
    *args: str, env: dict[str, str] | None = None, **keywords: object
) -> subprocess.CompletedProcess[str]:
    """Runs Python with this checkout on its path."""
    paths = os.pathsep.join(filter(None, [(env or {}).get("PYTHONPATH"), str(ROOT)]))
    full = {**os.environ, **(env or {}), "PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, *args], env=full, text=True, capture_output=True, **keywords
    )


def listing(folder: str = ".") -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


# --- list


def test_list_names_every_variant(gen: Gen) -> None:
    code, out, err = gen("list")
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", len(VARIANTS) + 1)
    for line, variant in zip(lines[1:], VARIANTS.values(), strict=True):
        assert line.startswith(variant.name)
        assert variant.summary in line
        assert all(f"{t.name} {t.values} [" in line for t in variant.tunables)


def test_list_as_json(gen: Gen) -> None:
    rows = json.loads(gen("list", "--json").out)
    assert [row["name"] for row in rows] == list(VARIANTS)
    tiles = next(row for row in rows if row["name"] == "tiles")
    assert {t["name"]: t["default"] for t in tiles["tunables"]} == {
        "tile": 32, "threads": 1024, "epilogue": "linear", "batched": False,
    }  # fmt: skip
    assert tiles["min_arch"] == "sm_75"


@pytest.mark.parametrize("variant", each(3, VARIANTS))
def test_list_says_all_about_one(gen: Gen, variant: str) -> None:
    row, defaults = VARIANTS[variant], make_spec(variant).tunables
    code, out, _ = gen("list", variant)
    assert code == 0
    assert row.summary in out
    assert " ".join(row.dtypes) in out
    for tunable in row.tunables:
        default = re.escape(tunable.show(defaults[tunable.name]))
        option, values = tunable.name.replace("_", "-"), re.escape(tunable.values)
        assert re.search(rf"^--{option} +{values} +{default} +{tunable.help}$", out, re.MULTILINE)
    example = out.splitlines()[-1].split()
    assert gen(*example[1:], "-o", "-").code == 0
    assert [field["name"] for field in json.loads(gen("list", variant, "--json").out)] == [variant]
    assert gen("list", "mna").err.startswith("error: unknown variant 'mna'; did you mean mma?")


# --- emit


def test_emit_writes_into_build_out_and_prints_the_path(gen: Gen) -> None:
    code, out, _ = gen("emit", "--variant", "rec_tiles")
    source = render(make_spec("rec_tiles"))
    assert (code, out) == (0, f"build/out/{source.filename}\n")
    assert Path(out.strip()).read_text() == source.text


def test_emit_passes_every_choice_on(gen: Gen) -> None:
    choice = "--dtype i8 --layout crc --arch sm_90a --tile 7 --threads 49 --coarsen 3 --name mine"
    code, out, _ = gen("emit", "--variant", "rec_tiles", *choice.split(), "-o", "-")
    spec = make_spec(
        "rec_tiles",
        dtype="i8",
        layout="crc",
        arch="sm_90a",
        name="mine",
        tile=7,
        threads=49,
        coarsen=3,
    )
    assert (code, out) == (0, render(spec).text)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_command_in_a_file_makes_the_same_file(gen: Gen, variant: str) -> None:
    layout = "rcr" if takes(variant, "rcr") else "crr"
    spec = make_spec(variant, dtype=VARIANTS[variant].dtypes[1], layout=layout)
    assert spec.command in render(spec).text
    assert gen(*shlex.split(spec.command)[1:], "-o", "-").out == render(spec).text


def test_a_word_that_some_kernels_know_is_theirs_alone(gen: Gen) -> None:
    code, out, _ = gen(
        "emit", "--variant", "narrow", "--arch", "sm_90", "--cluster", "1x1x8", "-o", "-"
    )
    assert code == 0
    assert "kClusterBlocks = 8" in out
    code, _, err = gen("emit", "--variant", "wgmma", "--cluster", "1x1x8", "-o", "-")
    assert code == 2
    assert "unknown cluster '1x1x8'; did you mean 1x1x4?" in err


def test_emit_all_gives_tunables_to_those_that_have_them(gen: Gen) -> None:
    code, out, _ = gen("emit", "--variant", "all", "--tile", "8", "-o", "new/folder/")
    names = [Path(line).name for line in out.splitlines()]
    assert code == 0
    assert names == [
        render(make_spec(v.name, **{"tile": 8} if "tile" in {t.name for t in v.tunables} else {}))
        .filename
        for v in VARIANTS.values()
    ]  # fmt: skip
    assert listing("new/folder") == sorted(names)


@pytest.mark.parametrize(
    ("output", "path"),
    [("x.cu", "x.cu"), ("a/b/x.cu", "a/b/x.cu"), ("a/", "a/mine.cu"), ("old", "old/mine.cu")],
)
def test_emit_to_a_file_or_a_folder(gen: Gen, output: str, path: str) -> None:
    Path("old").mkdir()
    assert gen("emit", "--variant", "naive", "--name", "mine", "-o", output).out == f"{path}\n"
    assert Path(path).is_file()


def test_emit_follows_links_and_leaves_devices_alone(gen: Gen) -> None:
    Path("real.cu").write_text("old")
    Path("link.cu").symlink_to("real.cu")
    assert gen("emit", "--variant", "naive", "-o", "link.cu").code == 0
    assert Path("link.cu").is_symlink()
    assert Path("real.cu").read_text() == render(make_spec("naive")).text
    assert gen("emit", "--variant", "naive", "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_results_go_to_a_pipe_and_leave_it_one(gen: Gen) -> None:
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        sweep = "sweep --device cpu --variant tiles --axis tile=8 --shape 8 --json pipe"
        assert gen(*sweep.split()).code == 0
        assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
        assert json.loads(reader.communicate(timeout=60)[0])["format"] == "gemmgen-bench"


@slow
def test_names_reach_a_terminal_that_knows_ascii_alone(tmp_path: Path) -> None:
    done = python(
        "-m", "gen", "emit", "--variant", "naive", "-o", "ü.cu",
        env={"PYTHONIOENCODING": "ascii"}, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\xfc.cu\n", "")


@slow
def test_a_flag_may_be_there_twice_and_a_type_counts_once(gen: Gen) -> None:
    assert gen("emit", "--variant", "naive", "--dry-run", "--dry-run").code == 0
    twice = "verify --variant naive --dtype f32 --dtype f32 --layout rrr --layout rrr --shape 4"
    assert "1 of 1 kernels are right" in gen(*twice.split()).out


def test_a_failed_write_leaves_what_was_there(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    Path("x.cu").write_text("old")
    monkeypatch.setattr(Path, "replace", full)
    code, out, err = gen("emit", "--variant", "naive", "-o", "x.cu")
    assert (code, out) == (2, "")
    assert err == "error: cannot write x.cu: No space left on device; choose another place\n"
    assert listing() == ["x.cu"]
    assert Path("x.cu").read_text() == "old"


def test_a_new_tunable_gets_its_option_from_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(VARIANTS["naive"], name="new", tunables=(Integer("warps", "warps", 1, 1, 8),))
    monkeypatch.setattr(options, "VARIANTS", {**VARIANTS, "new": row})

    @options.tunable_options
    def command(dtype: str = "f32", **tunables: Value | None) -> None: ...

    assert "warps" in inspect.signature(command).parameters


def test_what_a_gpu_cannot_run_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Ampere(EmulatorRunner):
        name = "A100"

        def target(self, arch: str) -> str:
            return "sm_80"

    specs = [make_spec("mma"), make_spec("mma_tma")]
    assert _runnable(specs, Ampere()) == specs[:1]
    assert "note: mma_tma f16 is left out on A100: mma_tma needs" in capsys.readouterr().err
    assert _runnable(specs, Ampere(), ["all", "f16"]) == specs[:1]
    for left, named in ((specs[1:], []), (specs, ["mma", "mma_tma"]), (specs, ["mma_tma", "f16"])):
        with pytest.raises(SpecError, match="mma_tma needs sm_90a"):
            _runnable(left, Ampere(), named)


def test_tunables_in_words_and_sizes(gen: Gen) -> None:
    command = "emit --variant mma --threadblock 64x64x32 --warp 32x32 --split-k auto -o -"
    spec = make_spec("mma", threadblock="64x64x32", warp="32x32", split_k=0)
    assert gen(*command.split()).out == render(spec).text
    code, _, err = gen("emit", "--variant", "mma", "--threadblock", "64")
    assert code == 2
    assert "invalid value for '--threadblock': '64' is not MxNxK, such as 128x64x32" in err


def test_an_architecture_goes_to_those_that_run_on_it(gen: Gen) -> None:
    code, out, err = gen("emit", "--variant", "all", "--arch", "sm_86", "-o", "x/")
    assert code == 0
    assert len(out.splitlines()) == len(VARIANTS) - 2
    assert "mma_tma" not in out
    assert "wgmma" not in out
    left = "mma_tma f16, wgmma f16 (mma_tma needs sm_90a"
    assert err.startswith(f"note: left out, because there is none: {left}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "left", "reason"),
    [
        (
            "--variant tiles --dtype all --epilogue linear_bias_gelu",
            "tiles i32, tiles i8",
            "epilogue=linear_bias_gelu needs sums in floating point, not i32",
        ),
        (
            "--variant all --dtype f64",
            "mma_m16n8k8 f64, wgmma f64",
            "mma_m16n8k8 has no dtype f64, but f16, f1",
        ),
        (
            "--variant all --dtype f16 --instruction m16n8k16",
            "mma_m16n8k8 f16",
            "multistage has no dtype f16, but f32, f64, i32",
        ),
        ("--variant mma --dtype all --arch sm_75", "mma bf16, mma bf16_f32, mma tf32, mma i8", "t"),
        ("--variant all --threadblock 64x64x64 --warp 64x64", "mma_tma f16", "warp=64x64 has 8x8"),
    ],
)
def test_of_all_what_does_not_exist_is_left_out(
    gen: Gen, line: str, left: str, reason: str
) -> None:
    code, out, err = gen("emit", *line.split())
    assert code == 0, err
    assert re.fullmatch(rf"note: left out, .*: .*{left}.* \({reason}.*\)\n", err), err
    assert "; use " not in err
    assert not any(f"gemm_{name.replace(' ', '_')}_r" in out for name in left.split(", "))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--variant naive --variant mma --dtype i32", "mma has no dtype i32, but f16, "),
        ("--variant all --variant mma --dtype i32", "mma has no dtype i32, but f16, "),
        ("--variant naive --variant mma_tma --arch sm_80", "mma_tma needs sm_90a, not sm_80"),
        ("--variant all --dtype i8 --epilogue linear_bias_gelu", "epilogue=linear_bias_gelu needs"),
        (
            "--variant all --dtype f32 --dtype i8 --epilogue linear_bias_gelu",
            "epilogue=linear_bias_gelu needs sums in floating point, not i8",
        ),
        ("--variant naive --dtype all --threads 1025", "threads=1025 is out of range 1 to 1024"),
        ("--variant all --tile 33", "tile=33 is out of range 1 to 32"),
        ("--variant all --arch sm_75 --stages 3", "multistage needs sm_80 or newer, not sm_75"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "check"])
def test_what_is_named_is_never_left_out(gen: Gen, command: str, line: str, message: str) -> None:
    code, out, err = gen(command, *line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


# --- bad input: one line that names the rule, the value and the way out; nothing written

BAD = [
    ("emit", 2, "no kernel is named; use --variant"),
    ("emit --variant tile", 2, "unknown variant 'tile'; did you mean tiles?"),
    ("emit --variant naive --dtype fp32", 2, "unknown dtype 'fp32'; did you mean f32?"),
    ("emit --variant all --dtype x", 2, "unknown dtype 'x'; use one of f32, "),
    ("emit --variant naive --layout row", 2, "layout 'row' is not three letters"),
    ("emit --variant tiles --tile 0", 2, "tile=0 is out of range 1 to 32 .*; use tile=1"),
    ("emit --variant rec_tiles --tile 33", 2, "tile=33 is out of range 1 to 32 .*; use tile=32"),
    ("emit --variant tiles --tile 4.5", 2, "invalid value for '--tile': '4.5' is not an integer"),
    (
        "emit --variant naive --threads 1025",
        2,
        "threads=1025 is out of range 1 to 1024 .*; use thr",
    ),
    ("emit --variant tiles --threads 100", 2, "threads=100 is not tile=32 times a divisor"),
    (
        "emit --variant shared_row --dtype f64 --chunk 8000",
        2,
        "shared_row wants 64000 bytes of shared memory, more than the 49152 .*; use chunk=6144",
    ),
    ("emit --variant naive --tile 8", 2, "naive has no tunable 'tile'; it has threads"),
    ("emit --variant naive --variant block_1d --tile 8", 2, "none of these kernels has .*'tile'"),
    ("emit --variant naive --arch sm_70", 2, "unknown architecture 'sm_70'; use one of sm_75"),
    (
        "emit --variant naive --name int",
        2,
        "name 'int' is a keyword of C\\+\\+; use another",
    ),
    ("emit --variant naive --name 4x", 2, "name '4x' is not a C identifier"),
    ("emit --variant all --name k", 2, f"--name k cannot be the name of {len(VARIANTS)} kernels"),
    (
        "emit --variant all -o x.cu",
        2,
        f"{len(VARIANTS)} files do not fit into one, x.cu; end it with /",
    ),
    (
        "emit --variant all -o -",
        2,
        f"standard output takes one file, not {len(VARIANTS)}; use -o FOLDER/",
    ),
    ("emit --variant naive -o /proc/x.cu", 2, "cannot write /proc/x.cu: .*; choose another place"),
    ("emit --variant naive -o /dev/null/x/", 2, "cannot write /dev/null/x/.*: Not a directory"),
    ("emit --tiel 4", 2, "no such option: --tiel"),
    ("emit --variant tiles --dtype f32 --dtype f16", 2, "--dtype is there twice, and takes one va"),
    ("sweep --device cpu --shape 4x4x0", 2, "shape 4x4x0 has nothing to measure; use sizes of 1"),
    ("bench --spec []", 2, "this is no kernel specification: '\\[\\]' \\(no JSON object\\)"),
    ("emti", 2, "no such command 'emti'. Did you mean 'emit'?"),
    ("list mma --jsn", 2, "no such option: --jsn"),
    ("choose --gpu h200", 2, "missing option '--shape'"),
    ("choose --shape 8 --gpu h200 --top 0", 2, "invalid value for '--top': "),
    ("choose --shape 8 --gpu h200 --top x", 2, "invalid value for '--top': "),
    ("compile", 2, "no kernel is named"),
    ("compile none.cu", 2, "cannot read none.cu: No such file"),
    ("compile none.cu --variant naive", 2, "none.cu says what it is; leave out the options"),
    ("compile --variant naive --format sass", 2, "unknown format 'sass'; use one of ptx, cubin"),
    ("compile --variant naive --arch sm_99", 2, "unknown architecture 'sm_99'; use one of"),
    ("compile /dev/null", 2, "/dev/null has no kernel: nothing in it is __global__"),
    ("sweep --axis tile=4 --tile 8", 2, "tiles: tile=8 is fixed, and the axis 'tile' varies it; l"),
    ("sweep --axis side=4 --threads 64", 2, "naive: threads=64 is fixed, and the axis 'side' var"),
    ("verify --shape 3x4", 2, "shape '3x4' is not MxNxK"),
    ("verify --shape 3x4x-1", 2, "shape '3x4x-1' is not MxNxK"),
    ("verify --variant nave", 2, "unknown variant 'nave'; did you mean naive?"),
    ("verify --device tpu", 2, "unknown device 'tpu'; did you mean gpu?"),
]


@pytest.mark.parametrize(("line", "code", "message"), BAD, ids=[line for line, _, _ in BAD])
def test_bad_input_gets_one_clear_line(gen: Gen, line: str, code: int, message: str) -> None:
    result = gen(*line.split())
    assert (result.code, result.out) == (code, "")
    assert re.fullmatch(rf"error: {message}.*\n", result.err), result.err
    assert listing() == []


def test_a_file_that_does_not_compile_keeps_no_other_from_its_check(gen: Gen) -> None:
    text = render(make_spec("naive", name="good")).text
    Path("good.cu").write_text(text, encoding="utf-8-sig")  # as editors of Windows may write it
    Path("bad.cu").write_text(text.replace("sum += ", "sun += "))
    code, out, err = gen("check", "bad.cu", "good.cu", "--shape", "4")
    assert code == 1
    assert re.match(r'error: bad.cu:\d+: identifier "sun" is undefined\n', err)
    assert out.startswith("good: nothing found in ")
    assert out.endswith("1 of 2 kernels are clean\n")
    out = gen("check", "bad.cu", "good.cu", "--shape", "4", "--json").out
    first, second = json.loads(out)["kernels"]
    assert first["error"].startswith("bad.cu:")
    assert second["ok"]


SCALE = (
    "// gen-launch: --grid 1 --block 4 --arg x=f32[4]:ones\n"
    "__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--expect x=x.npy --tolerance nan",
            "--tolerance nan is not a number from 0, such as 1e-5",
        ),
        ("--expect x=x.npy --tolerance -1", "--tolerance -1 is not a number from 0, such as 1e-5"),
        ("--gemm-dtype f32", "--gemm-dtype is for --gemm, which names the matrices; give both"),
        ("--seed \N{SUPERSCRIPT TWO}", "--seed \N{SUPERSCRIPT TWO} is not a number from 0"),
    ],
)
def test_options_that_would_check_nothing(gen: Gen, options: str, message: str) -> None:
    Path("scale.cu").write_text(SCALE)
    np.save("x.npy", np.full(4, 3, np.float32))
    assert gen("check", "scale.cu", *options.split()) == (2, "", f"error: {message}\n")


def test_two_files_of_one_name_do_not_become_one(gen: Gen) -> None:
    for folder in ("a", "b"):
        gen("emit", "--variant", "naive", "--name", "k", "-o", f"{folder}/")
    code, _, err = gen("compile", "a/k.cu", "b/k.cu", "-o", "out/")
    assert (code, err) == (
        2,
        "error: two files would be out/k.ptx; give one at a time, with -o FILE\n",
    )
    assert not Path("out").exists()


_ALL = typer.main.get_command(app).commands  # type: ignore[attr-defined]
COMMANDS = {name: command for name, command in _ALL.items() if not command.hidden}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(gen: Gen, command: str) -> None:
    code, out, _ = gen(command, "--help")
    assert code == 0
    assert re.search(rf"^  Example:  gen {command}\b", out, re.MULTILINE)


def test_help_has_ranges_and_defaults(gen: Gen) -> None:
    text = " ".join(gen("emit", "--help").out.split())
    assert "--tile N Width of the square tiles; 1..32; default 32 (tiles, rec_tiles)." in text
    assert "linear_bias_gelu | an expression; default linear (every kernel); see --operand." in text


@pytest.mark.parametrize(
    ("words", "at", "found"),
    each(
        2, [("gen ver", 1, ["verify"]), ("gen emit --variant mma_", 3, ["mma_m16n8k8", "mma_tma"])]
    ),
)
def test_completion(words: str, at: int, found: list[str]) -> None:
    env = {"_GEN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    assert python("-m", "gen", env=env).stdout.split() == found


def test_help_tells_the_exit_codes(gen: Gen) -> None:
    code, out, _ = gen("--help")
    assert code == 0
    for line in ("0  right", "1  the check failed", "2  bad usage", "3  the environment lacks"):
        assert line in out
    assert gen().code == 2
    assert gen("--version").out == f"gemmgen {__version__}\n"


# --- compile


def test_compile_reports_resources(gen: Gen) -> None:
    code, out, _ = gen("compile", "--variant", "tiles", "--variant", "rec_tiles")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [line[0] for line in lines[1:]] == [make_spec(v).name for v in ("tiles", "rec_tiles")]
    assert "8192 B" in out  # two tiles of 32 x 32 floats
    assert "12288 B" in out  # three, which the compiler cannot see: they are dynamic


def test_compile_writes_ptx_and_cubin(gen: Gen) -> None:
    code, out, _ = gen("compile", "--variant", "naive", "-o", "x.ptx", "--json")
    fields = json.loads(out)
    assert (code, fields["files"]) == (0, ["x.ptx"])
    assert fields["kernels"][0]["registers"] > 0
    assert ".visible .entry gemm_naive" in Path("x.ptx").read_text()
    assert gen("compile", "--variant", "naive", "-o", "-").out == Path("x.ptx").read_text()
    gen("compile", "--variant", "naive", "--format", "cubin", "--arch", "sm_90a", "-o", "out/")
    (cubin,) = Path("out").iterdir()
    assert cubin.read_bytes().startswith(b"\x7fELF")


def test_compile_takes_an_edited_file(gen: Gen) -> None:
    text = render(make_spec("naive", name="mine")).text
    Path("mine.cu").write_text(text.replace("sum += a * b;", "sum += a * c;"))
    code, out, err = gen("compile", "mine.cu", "-o", "mine.ptx")
    assert (code, out) == (1, "")
    assert err.startswith('error: mine.cu:71: identifier "c" is undefined\n')
    assert "sum += a * c;" in err  # the source's line
    assert listing() == ["mine.cu"]
    Path("mine.cu").write_text(text)
    assert gen("compile", "mine.cu").out.splitlines()[1].startswith("mine ")


@slow
def test_compile_refuses_wgmmas_that_wait_for_each_other(gen: Gen) -> None:
    spec = make_spec("wgmma", threadblock="64x64x64", stages=2, name="mine")
    text = render(spec).text
    commit = '    asm volatile("wgmma.commit_group.sync.aligned;"'
    between = f"    for (auto& column : acc[0]) column[0] += group;\n{commit}"
    Path("mine.cu").write_text(text.replace(commit, between))
    code, out, err = gen("compile", "mine.cu")
    assert (code, out) == (1, "")
    assert err.startswith("error: mine.cu: ptxas serializes the wgmmas of mine, due to ")
    assert err.endswith(
        "; between wgmma.fence and wgmma.wait_group, let nothing but wgmma use their registers\n"
    )
    Path("mine.cu").write_text(text)
    assert gen("compile", "mine.cu").code == 0


def test_a_cluster_is_a_tunable_of_emitted_kernels(gen: Gen) -> None:
    kernel = ("--variant", "wgmma", "--threadblock", "64x128x32", "--stages", "2")
    code, out, err = gen("profile", *kernel, "--cluster", "2x1", "--shape", "128x128x32", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["kernels"][0]["spec"]["cluster"] == "2x1"
    assert tunables()["cluster"].parse("1x1x8") == "1x1x8"  # which only others have
    assert "unknown cluster '2x3'" in gen("check", *kernel, "--cluster", "2x3").err


# --- several files, annotations


def write_kernels() -> None:
    """A right file, one that reads C at beta 0, one with wrong rows, one that does not compile."""
    text = render(make_spec("naive", name="mine")).text
    for name, old, new in (
        ("right", "", ""),
        ("reads_c", "if (beta != 0) x += beta", "x += beta"),
        ("wrong", "scalar_t x = alpha * sum", "scalar_t x = alpha * sum + (row % 3 == 1)"),
        ("broken", "sum += a * b", "sum += a * q"),
    ):
        assert old in text
        Path(f"{name}.cu").write_text(text.replace(old, new, 1))


@slow
def test_a_profile_has_what_only_the_gpu_s_generation_has(gen: Gen) -> None:
    words = "--variant wgmma --threadblock 64x64x64 --shape 64 --json"
    code, out, _ = gen("profile", *words.split())
    assert (code, "wgmma" in out) == (0, True)


@pytest.mark.parametrize(
    "command",
    sift(["check --shape 8", "compile", "profile --shape 8"], ["check --shape 8", "compile"]),
)
def test_several_files(gen: Gen, command: str) -> None:
    write_kernels()
    code, out, err = gen(*command.split(), "right.cu", "right.cu", "--json")
    assert (code, err, len(json.loads(out)["kernels"])) == (0, "", 2)
    code, out, err = gen(*command.split(), "right.cu", "broken.cu", "--annotations", "github")
    first, *others = out.splitlines()
    assert (code, first) == (1, '::error file=broken.cu,line=71::identifier "q" is undefined')
    assert bool(others) == command.startswith("check")  # which goes on with the other
    assert err.startswith('error: broken.cu:71: identifier "q" is undefined\n')
    Path("other.cu").write_text("__global__ void k() {}\n")
    if command != "compile":
        code, _, err = gen(*command.split(), "right.cu", "other.cu")
        assert (code, err) == (
            2, "error: other.cu is no emitted file; such files go one at a time\n"
        )  # fmt: skip


def test_what_gen_emits_besides_kernels_is_refused(gen: Gen) -> None:
    """With what to give in its place."""
    Path("two.kernels").write_text("--variant tiles\n--variant naive --dtype f64\n")
    gen("emit", "--bundle", "two.kernels", "-o", "./")
    gen("emit", "--variant", "tiles", "--name", "f", "--header", "-o", "./")
    gen("emit", "--variant", "naive", "--name", "g", "--embed", "cubin,ptx", "-o", "./")
    gen("emit", "--variant", "mma", "--name", "a", "--arch", "sm_75,sm_80", "-o", "./")
    shapes = ("--shape", "1x64x64", "--shape", "512", "--gpu", "a100")
    gen("emit", "--best", *shapes, "--name", "b", "-o", "./")
    kernel = "--variant naive --dtype f32 --layout rrr --arch sm_80 --threads 256 --epilogue linear"
    for file, message in (
        ("two.cu", "two.cu is a bundle, whose kernels gen takes one at a time"),
        ("b.cu", "give the options of a line of the table in its head in place of the file"),
        ("two.h", "two.h is a header of gen emit, without a kernel; use the file beside it"),
        ("f.h", "f.h is a header of gen emit, without a kernel; use the file beside it"),
        ("g.cpp", f"it was made from, with one --arch: {kernel}\n"),
        ("a.cu", "a.cu has kernels for several architectures, which gen does not look at"),
        ("g.h", "g.h is a header of gen emit, without a kernel; use the file beside it"),
    ):
        for command in ("check", "profile"):
            code, out, err = gen(command, file)
            assert (code, out) == (2, "")
            assert message in err
    assert gen("check", *kernel.split(), "--shape", "5").code == 0
    launch = "--kernel gemm... --grid 1 --block 256"  # as any file of CUDA
    code, _, err = gen("check", "two.cu", *launch.split())
    assert code == 2
    assert "bundle" not in err


def test_annotations_of_a_check(gen: Gen) -> None:
    write_kernels()
    check = ("check", "reads_c.cu", "wrong.cu", "--shape", "9", "--annotations", "github")
    code, out, _ = gen(*check)
    assert code == 1
    lines = [line for line in out.splitlines() if line.startswith("::error ")]
    assert re.match(r"::error file=reads_c.cu,line=51::memcheck: C is read where beta", lines[0])
    assert re.match(r"::error file=wrong.cu,line=55::mismatch on 9x9x9: .*: every 3rd ro", lines[1])
    code, out, err = gen(*check, "--json")
    assert not json.loads(out)["ok"]
    assert err.splitlines() == lines
    assert gen("check", "right.cu", "--annotations", "gitlab").code == 2


def test_annotations_of_a_kernel_that_gen_did_not_emit(gen: Gen) -> None:
    Path("a,b.cu").write_text("__global__ void k(int* x) {\n  x[threadIdx.x] = 1;\n}\n")
    launch = ("--grid", "1", "--block", "8", "--arg", "x=i32[4]", "--annotations", "github")
    code, out, _ = gen("check", "a,b.cu", *launch)
    assert code == 1
    assert "\n::error file=a%2Cb.cu,line=2::memcheck: global store of 4 bytes at x+16 of 16" in out


# --- verify


def fake_proofs(ok: bool, worst: float) -> Callable[[Proofs, Proof], ShapeResult]:
    """Stands for a call of Proofs."""

    def prove(_: Proofs, item: Proof) -> ShapeResult:
        problem = GemmProblem.packed(item.shape, item.spec.layouts)
        message = "" if ok else "D[0, 0] is 1, the oracle has 2"
        case = CaseResult("random", problem, ok, worst, 0.002, message)
        return ShapeResult(item.spec, item.shape, (case,))

    return prove


@pytest.mark.slow
def test_verify_proves_a_kernel_on_the_emulator(gen: Gen) -> None:
    code, out, err = gen("verify", "--variant", "naive", "--dtype", "i32", "--shape", "5x6x7")
    assert code == 0, out + err
    assert err.startswith("device: ")
    assert re.fullmatch(r"naive +i32 +rrr +5x6x7 +0 +.*s  .*  ok", out.splitlines()[1])


def test_verify_covers_every_variant_and_dtype(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Proofs, "__call__", fake_proofs(True, 0.5))
    code, out, err = gen("verify", "--device", "cpu", "--jobs", "1")
    rows = {tuple(line.split()[:3]) for line in out.splitlines()[1:-1]}
    assert (code, err) == (0, "device: emulator\n")
    assert rows == {(v.name, dtype, "rrr") for v in VARIANTS.values() for dtype in v.dtypes}
    code, out, _ = gen(
        "verify", "--variant", "tiles", "--dtype", "f32", "--layout", "all", "--each", "--jobs", "1"
    )
    assert len(out.splitlines()) == 2 + 8 * len(verify.default_shapes(make_spec("tiles")))
    assert out.splitlines()[-1] == "8 of 8 kernels are right"


@pytest.mark.parametrize("worst", [2.5, float("inf"), float("nan")])
def test_a_failure_is_told_and_exits_with_1(
    gen: Gen, monkeypatch: pytest.MonkeyPatch, worst: float
) -> None:
    monkeypatch.setattr(Proofs, "__call__", fake_proofs(False, worst))
    choice = (
        "verify",
        "--device",
        "cpu",
        "--variant",
        "tiles",
        "--dtype",
        "f32",
        "--shape",
        "2x3x4",
    )
    code, out, _ = gen(*choice)
    assert code == 1
    assert "FAILED" in out
    assert f"{make_spec('tiles').name} on 2x3x4: D[0, 0] is 1, the oracle has 2\n" in out
    assert out.endswith("0 of 1 kernels are right\n")
    code, out, _ = gen(*choice, "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["device"]) == (1, False, "emulator")
    assert report["results"][0]["worst"] == (worst if worst == 2.5 else None)
    assert report["results"][0]["cases"][0]["kind"] == "random"


@pytest.mark.parametrize(
    ("error", "code"),
    [(CheckError("it is wrong"), 1), (KeyboardInterrupt(), 130), (MemoryError(), 3)],
)
def test_what_ends_a_command_gives_its_exit_code(
    gen: Gen, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Proofs, "__call__", fail)
    result = gen("verify", "--device", "cpu")
    assert result.code == code
    assert result.err.count("\n") == (1 if code == 130 else 2)  # the device, then the error


# --- the process: start-up, pipes, terminals, a broken environment


# What takes long to import, and what all of gen's own commands import together.
HEAVY = ("numpy", "cuda", "rich", "pydantic", "asyncio", "multiprocessing")
OWN = ("bench", "check", "choose", "emit", "foreign", "list", "profile", "tune", "verify")


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("--help", []),
        ("--version", []),
        ("emti", []),
        ("list", ["list"]),
        ("list mma", ["list"]),
        ("emit --variant tiles --variant mma --stages 3 -o x/ --depfile x.d", ["emit"]),
        ("choose --shape 512 --dtype f16 --gpu h200", ["choose"]),
    ],
)
def test_a_command_imports_what_it_needs_alone(tmp_path: Path, line: str, own: list[str]) -> None:
    code = (
        f"import sys; from gen.cli import main; main({line.split()});"
        f"print([m for m in {HEAVY} if m in sys.modules]);"
        f"print([m for m in {OWN} if f'gen.cli.{{m}}' in sys.modules])"
    )
    out = python("-c", code, cwd=tmp_path).stdout
    assert out.splitlines()[-2:] == ["[]", str(own)]


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "gen", "list"]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "command", each(3, ["list", "emit --variant naive -o -", "--version", "--help"])
)
def test_a_full_device_is_one_line(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "gen", *command.split()]
        done = subprocess.run(words, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    reason = "cannot use standard output: No space left on device; choose another place"
    assert (done.returncode, done.stderr) == (2, f"error: {reason}\n")


@pytest.mark.parametrize(
    ("closing", "code", "out", "err"),
    [
        (">&-", 2, "", "error: standard output is closed; use >/dev/null to see nothing\n"),
        ("2>&-", 0, f"gemmgen {__version__}\n", ""),
        ("2>/dev/full", 0, f"gemmgen {__version__}\n", ""),
    ],
)
def test_closed_streams(closing: str, code: int, out: str, err: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m gen --version {closing}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


@pytest.mark.parametrize("closing", each(2, ["2>&-", "2>/dev/full"]))
def test_an_error_without_a_place_keeps_its_code(closing: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m gen emit --variant nave {closing}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


LONG = "x" * 300


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"emit --variant naive --name {LONG}", "name has 300 characters, more than 76; use a sho"),
        (f"emit --variant {LONG}", f"unknown variant '{LONG}'"),
        (f"emit --variant naive -o {LONG}", f"cannot use {LONG}: File name too long"),
        (f"emit --variant naive -o {LONG}/", f"cannot write {LONG}/.*: File name too long"),
        (f"emit --variant naive -o out --depfile {LONG}", f"cannot .* {LONG}: File name too long"),
        (f"emit --bundle {LONG}", f"cannot read {LONG}: File name too long"),
        (f"check {LONG}", f"cannot read {LONG}: File name too long"),
        (f"verify --shape {'9' * 5000}", "shape '999"),
        (f"emit --variant tiles --tile {'9' * 5000}", "invalid value for '--tile': '999"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_too_long_is_one_line(gen: Gen, line: str, message: str) -> None:
    result = gen(*line.split())
    assert result.code == 2
    assert re.fullmatch(rf"error: {message}.*\n", result.err), result.err


@pytest.mark.parametrize("place", ["file/x.json", f"{LONG}.json", "."])
def test_results_that_cannot_be_kept_are_one_line(gen: Gen, place: str) -> None:
    Path("file").touch()
    command = "sweep --device cpu --shape 8 --axis tile=8 --variant tiles --json"
    code, _, err = gen(*command.split(), place)
    assert code == 2
    assert re.fullmatch(rf"error: cannot write {re.escape(place)}: .*", err.splitlines()[-1])


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder_is_one_line(gen: Gen) -> None:
    Path("old").mkdir(mode=0o555)
    command = "sweep --device cpu --shape 8 --axis tile=8 --variant tiles --json old/x.json"
    code, _, err = gen(*command.split())
    assert (code, err.splitlines()[-1]) == (
        2,
        "error: cannot write old/x.json: Permission denied; choose another place",
    )


def test_verify_prints_what_was_done_before_an_interruption(
    gen: Gen, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fake_proofs(True, 0.5)

    def interrupted(self: Proofs, item: Proof) -> ShapeResult:
        if item.spec.dtypes.name == "i32":
            raise KeyboardInterrupt
        return right(self, item)

    monkeypatch.setattr(Proofs, "__call__", interrupted)
    chosen = ("verify", "--device", "cpu", "--variant", "naive", "--jobs", "1")
    code, out, _ = gen(*chosen)
    assert code == 130
    assert [line.split()[1] for line in out.splitlines()[1:-1]] == ["f32", "f64"]
    assert out.endswith("2 of 2 kernels are right; stopped before the end of 4 more\n")
    code, out, _ = gen(*chosen, "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (130, False)
    assert {result["dtype"] for result in report["results"]} == {"f32", "f64"}


@pytest.mark.slow
def test_check_prints_what_was_found_before_an_interruption(
    gen: Gen, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kernels()
    add = checks._add

    def interrupted(report: CheckReport, *rest: Any) -> None:
        if report.trials:
            raise KeyboardInterrupt
        add(report, *rest)

    monkeypatch.setattr(checks, "_add", interrupted)
    code, out, _ = gen("check", "wrong.cu", "right.cu", "--shape", "9")
    assert code == 130
    assert "mismatch on 9x9x9: " in out
    assert "stopped by an interruption\n0 findings, 1 mismatch in 1 launch on 1 shape" in out
    assert out.endswith("0 of 1 kernels are clean; stopped before the end of 1 more\n")
    code, out, _ = gen("check", "right.cu", "--shape", "9", "--json")
    assert (code, json.loads(out)["ok"]) == (130, False)


@pytest.mark.parametrize("command", each(2, ["check", "verify"]))
def test_what_takes_long_on_the_emulator_is_said(
    gen: Gen, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    chosen = (command, "--variant", "naive", "--dtype", "f32")
    device = ("--device", "cpu") if command == "verify" else ()
    code, _, err = gen(*chosen, *device, "--shape", "8192")
    assert code == 2
    assert "5.5e+11 products, more than the 2e+07 and 1e+11 that the emulator takes; use a s" in err
    monkeypatch.setattr("gen.prove.limits.SLOW", 100)
    code, _, err = gen(*chosen, *device, "--shape", "5")
    assert code == 0
    assert "warning: 5x5x5 takes minutes on the emulator, which computes 1.2e+02 products" in err


def test_a_warning_is_shown_once(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes from, and again by the next command."""
    prove = fake_proofs(True, 0.5)

    def warning(self: Proofs, item: Proof) -> ShapeResult:
        warnings.warn_explicit("the disk is full", RuntimeWarning, "cache.py", item.shape.m)
        return prove(self, item)

    monkeypatch.setattr(Proofs, "__call__", warning)
    chosen = ("verify", "--device", "cpu", "--variant", "naive", "--dtype", "f32")
    for _ in range(2):
        code, _, err = gen(*chosen, "--shape", "5", "--shape", "6")
        assert (code, err) == (0, "device: emulator\nwarning: the disk is full\n")


def test_long_work_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SILENCE", -1.0)
    with progress.progress("verifying", 2) as step:
        step.now("verifying naive f32")
        step()
        step()
    said = capsys.readouterr().err
    assert re.fullmatch(r"verifying naive f32: 1 of 2, about [\d.e-]+ \w+ left\n", said)


@pytest.mark.parametrize("command", ["sweep", "bench"])
def test_what_is_no_result_is_not_replaced(gen: Gen, command: str) -> None:
    Path("notes.txt").write_text("mine")
    code, out, err = gen(command, "--json", "notes.txt")
    assert (code, out, Path("notes.txt").read_text()) == (2, "", "mine")
    assert re.fullmatch(r"error: notes.txt is not JSON: .*; it stays as it is, use .*\n", err)


@pytest.mark.parametrize(
    "fields",
    [
        '{"variant": "naive",}',
        '{"variant": "naive"',
        '{"variant": 3}',
        '{"layout": "rrr"}',
        '{"variant": "naive", "dtype": ["f32"]}',
        '{"variant": "naive", "threads": ' + "[" * 2000 + "]" * 2000 + "}",
        '{"variant": "naive", "threads": 100000}',
    ],
    ids=lambda text: text[:40],
)
@pytest.mark.parametrize("command", ["check", "compile", "profile"])
def test_a_broken_line_of_a_file_is_named(gen: Gen, command: str, fields: str) -> None:
    Path("edited.cu").write_text(f"// by hand\n// gen-spec: {fields}\nint x;\n")
    code, out, err = gen(command, "edited.cu")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: edited\.cu:2: .*; use .*\n", err), err


def on_terminal(*args: str, **env: str) -> str:
    """What `gen` prints on a terminal, of 80 columns if nothing else is said."""
    pty = pytest.importorskip("pty")
    main_end, other = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    variables |= {"TERM": "xterm-256color", "COLUMNS": "80", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "gen", *args], cwd=ROOT, env=variables, stdout=other, stderr=other
    )
    os.close(other)
    parts = []
    try:
        while part := os.read(main_end, 65536):
            parts.append(part)
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(main_end)
    assert process.wait() == 0
    return b"".join(parts).decode()


@pytest.mark.parametrize("columns", each(2, [40, 80]))
@pytest.mark.slow
def test_tables_fit_a_terminal_and_lose_nothing(gen: Gen, columns: int) -> None:
    for command in (["list"], ["list", "tiles"]):
        text = on_terminal(*command, COLUMNS=str(columns))
        text = re.sub(r"\x1b\[[\d;?]*\w", "", text)
        if command == ["list"]:
            assert max(map(len, text.splitlines())) <= columns
        assert set(gen(*command).out.split()) - set(text.split()) <= {"option"}


def test_a_table_on_a_narrow_terminal_keeps_words_and_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in (("COLUMNS", "40"), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    headers, row = ("kernel", "time", "message"), ("gemm_" + "x" * 20, "123 ms", "w" * 60 + " end")
    tables.table(headers, [row], ("time",))
    lines = [re.sub(r"\x1b\[[\d;]*m", "", x) for x in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 40
    assert [line.split()[0] for line in lines if line][:3] == ["kernel", "time", "message"]
    assert any("…" in line for line in lines)
    grown = tables.Growing(headers, [25, 6, 64], ("time",))
    grown.add(row)
    assert re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines() == lines


@slow
def test_colours_are_for_terminals_without_no_color() -> None:
    assert "\x1b[32m" in on_terminal("doctor")
    assert "\x1b[32m" not in on_terminal("doctor", NO_COLOR="1")
    assert "\x1b" not in python("-m", "gen", "doctor").stdout


BLOCKER = """
import os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == os.environ["BLOCKED"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize(
    ("module", "command", "requirement"),
    each(
        2,
        [
            ("typer", "list", "typer>="),
            ("jinja2", "emit --variant naive", "jinja2>="),
            ("numpy", "verify --variant naive", "numpy>="),
            ("cuda", "compile --variant naive", "cuda-python>="),
        ],
    ),
)
def test_a_missing_package_is_one_line(
    tmp_path: Path, module: str, command: str, requirement: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    env = {"PYTHONPATH": str(tmp_path), "BLOCKED": module}
    done = python("-m", "gen", *command.split(), env=env, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert re.fullmatch(
        rf"error: gen {command.split()[0]} needs .*pip install .*'{requirement}.*\n", done.stderr
    )


@pytest.mark.parametrize("where", each(2, ["a-file", "/proc/gen-cache"]))
@pytest.mark.slow
def test_a_cache_that_cannot_be_used_is_a_warning(tmp_path: Path, where: str) -> None:
    (tmp_path / "a-file").touch()
    env = {"GEN_CACHE_DIR": where}
    done = python("-m", "gen", "compile", "--variant", "naive", env=env, cwd=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"warning: .*not cached: .*; set GEN_CACHE_DIR .*\n", done.stderr)


def test_a_damaged_cache_entry_is_made_again(gen: Gen, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Path("cache").absolute()
    monkeypatch.setenv("GEN_CACHE_DIR", str(cache))
    fresh = json.loads(gen("compile", "--variant", "naive", "--json").out)["kernels"][0]
    entries = [p for p in cache.rglob("*") if p.is_file()]
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-7] + b"damaged")
    again, third = (
        json.loads(gen("compile", "--variant", "naive", "--json").out)["kernels"][0] for _ in "12"
    )
    assert (fresh["cached"], again["cached"], third["cached"]) == (False, False, True)
    assert again["registers"] == fresh["registers"]


def test_main_returns_what_the_shell_gets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert main(["nothing"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
