"""`gen emit --best`: one kernel, or a file whose launcher chooses as Python does."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gen.cli import main
from gen.device.gpus import GPUS
from gen.dispatch import folders
from gen.dispatch.folders import NOWHERE, Places
from gen.dispatch.products import operands, products_of
from gen.dispatch.ranking import Product, choose, grids, rank
from gen.prove.launchers.program import Host, Program
from gen.source.cpp.asked import Asked
from gen.source.cpp.best import NEARLY, Best, make_best, with_batch
from gen.source.cpp.best_file import render_best
from gen.source.render import render
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import Alignment, GemmShape, parse_layout
from tests.support import tuned
from tests.support.launchers import DEVICES, best_calls, embedded_best, picked, wrong_best
from tests.support.programs import (
    STRICT,
    assert_formatted,
    check_c_and_cpp,
    cuda_includes,
    need,
    run,
)
from tests.support.slow import each, sift, slow

SHAPES = ("1-512x300-4096x2048", "1024", "7x9x3")


def best(
    gpus: str,
    dtype: str = "f16",
    layout: str = "rcr",
    batch: str | None = None,
    places: Places = NOWHERE,
    **tunables: Any,
) -> Best:
    products = products_of(SHAPES, parse_dtype(dtype), parse_layout(layout), batch)
    known = [GPUS[gpu] for gpu in gpus.split(",")]
    return make_best(products, known, with_batch(tunables, batch), "gemm", "gen emit", places)


def measured(gpus: str, dtype: str, layout: str, folder: Path) -> Places:
    """Times of problems that the tests draw, and of some near by."""
    shapes = products_of(("128x128-1000x1000", "1000", "8x9x3"), parse_dtype(dtype),
                         parse_layout(layout))  # fmt: skip
    products = [replace(one, batch=batch) for one in shapes for batch in (1, 8)]
    return tuned.places(folder, *(tuned.table(products, gpu, 40) for gpu in gpus.split(",")))


def test_one_shape_on_one_gpu_is_one_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "emit",
        "--best",
        "--shape",
        "1000x64x5000",
        "--dtype",
        "bf16",
        "--layout",
        "rcc",
        "--gpu",
        "l4",
    ]
    assert main([*options, "-o", f"{tmp_path}/"]) == 0
    (path,) = capsys.readouterr().out.split()
    product = Product.packed(GemmShape(1000, 64, 5000), parse_dtype("bf16"), parse_layout("rcc"))
    spec = choose(product, GPUS["l4"], "sm_89")
    assert f"gen-spec: {spec.to_json()}" in Path(path).read_text()
    assert main([*options, "--name", "mine", "--header", "-o", f"{tmp_path}/"]) == 0
    assert "mine_launch" in (tmp_path / "mine.h").read_text()


def test_a_file_has_a_kernel_that_is_nearly_the_best_for_each_shape() -> None:
    found = best("a100,h200")
    assert [gpu.name for gpu in found.gpus] == ["h200", "a100"]
    assert found.archs == ["sm_80", "sm_90a"]
    for i, gpu in enumerate(found.gpus):
        own = [found.kernels[row.kernel] for row in found.rows if row.gpu == i]
        assert {spec.arch[3:5] for spec in own} == {str(gpu.capability)}
        assert 1 < len(own) < 12


def test_a_file_has_kernels_for_where_operands_lie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each shape, leading dimension and address, one kernel is nearly the first."""
    shapes, types, layouts = ["64", "1024x512x512"], parse_dtype("f16"), parse_layout("rrr")
    lie = operands("2049,4096", None, unaligned=True)
    products = products_of(shapes, types, layouts, None, lie)
    assert {(p.lda, p.ldb == p.shape.n, p.alignment.a) for p in products} == {
        (lda, True, aligned) for lda in (2049, 4096) for aligned in (True, False)
    }
    asked = Asked(shapes, [GPUS["a100"]], "f16", lie=lie, name="gemm", tuned="none")
    assert "--lda 2049,4096 --unaligned --tuned none --name gemm" in asked.command
    found = asked.best()
    for product in products:
        times = {each.spec: each.time for each in rank(product, GPUS["a100"], "sm_80")}
        chosen = found.pick(product, 80, GPUS["a100"].sms, 164 << 10)
        assert chosen is not None
        assert times[found.kernels[chosen]] * 100 <= NEARLY * min(times.values())
    packed = replace(asked, lie=operands(None, None, unaligned=False)).best()
    assert not {*found.kernels} <= {*packed.kernels}
    assert main([*asked.command.split()[1:], "--dry-run", "-o", f"{tmp_path}/"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/gemm.cu\n"


@pytest.mark.parametrize("embedded", each(2, [False, True]))
def test_the_functions_are_the_same_whatever_is_chosen(
    embedded: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One kernel that takes a workspace, one that takes none, several of either kind, and both."""
    shapes = ("512", "1x4096x4096", "1x64x64 1x4096x4096", "64-512", "512 1x4096x4096")
    declared = set()
    for shape in shapes:
        words = [word for one in shape.split() for word in ("--shape", one)]
        kind = ["--embed", "cubin"] if embedded else ["--header"]
        options = ["--dtype", "f16", "--gpu", "a100", "--name", "gemm", *words, *kind]
        assert main(["emit", "--best", *options, "-o", f"{tmp_path}/"]) == 0
        header = (tmp_path / "gemm.h").read_text()
        declared.add(re.sub("//.*", "", "".join(re.findall("gemm_[a-z]+\\([^;]*;", header))))
    assert len(declared) == 1
    assert "gemm_workspace(" in declared.pop()
    capsys.readouterr()


@slow
def test_kernels_without_a_workspace_have_one_of_nothing(tmp_path: Path) -> None:
    """For `skinny` alone, and with `gemv`: the launchers carry out their plans."""
    need("g++")
    types, layouts = parse_dtype("f16"), parse_layout("rrr")
    for shapes, count in (["1x2048x1024"], 1), (["1x2048x1024", "1x32x512"], 2):
        products = products_of(shapes, types, layouts)
        found = make_best(products, [GPUS["a100"]], {}, "gemm", "gen emit")
        assert (len(found.kernels), found.alone) == (count, None)
        assert not any(spec.row.takes_workspace for spec in found.kernels)
        tried = random.Random(3).sample(best_calls(found, 10), 60)
        folder = tmp_path / str(count)
        folder.mkdir()
        assert not wrong_best(Program(Host.best(found), folder), found, tried)


PROGRAM = """
#include <cstddef>
#include <cstdio>
%s
}  // namespace gemm_ns
int main() {
  int c, s, b;
  long long m, n, k, l, a, lda, at, ldb;
  while (std::scanf("%%d%%d%%d%%lld%%lld%%lld%%lld%%lld%%lld%%lld%%lld", &c, &s, &b, &m, &n, &k, &l,
                    &a, &lda, &at, &ldb) == 11) {
    std::printf("%%d\\n", gemm_ns::pick(c, s, b, m, n, k, %s size_t(a), lda, size_t(at), ldb));
  }
}
"""


def drawn(found: Best, count: int) -> list[tuple[Product, tuple[int, int, int]]]:
    """Problems of all sizes and alignments, each on a device."""
    draw = random.Random(7)
    first = found.kernels[0]

    def size() -> int:
        return draw.choice([draw.randint(0, 70), int(2 ** draw.uniform(4, 31)), 128, 1000])

    problems = []
    for _ in range(count):
        product = Product.packed(GemmShape(size(), size(), size()), first.dtypes, first.layouts)
        more = draw.choice([0, 0, 1, 8])
        aligned = Alignment(draw.random() < 0.7, draw.random() < 0.7)
        product = replace(
            product, lda=product.lda + more, ldb=product.ldb + more, alignment=aligned
        )
        if first.batched:
            batch = draw.choice([1, 8, draw.randint(1, 300), int(2 ** draw.uniform(4, 62))])
            product = replace(product, batch=batch)
        problems.append((product, draw.choice(DEVICES)))
    return problems


@pytest.mark.parametrize(
    ("gpus", "dtype", "layout", "batch", "tables"),
    [
        ("a100,h200,l4", "f16", "rcr", None, "h200,l4"),
        pytest.param("rtx3090,rtx4090,l40s,b200", "f32", "crc", "1-64", "", marks=slow),
        pytest.param("rtx3090,l40s", "f32", "crc", "1-64", "rtx3090,l40s", marks=slow),
    ],
)
def test_c_picks_what_python_picks(
    gpus: str, dtype: str, layout: str, batch: str | None, tables: str, tmp_path: Path
) -> None:
    need("g++")
    places = measured(tables, dtype, layout, tmp_path / "tuned") if tables else NOWHERE
    found = best(gpus, dtype, layout, batch, places)
    text = render_best(found)
    choice = text[
        text.index("namespace gemm_ns {") : text.index("// ----", text.index("int pick("))
    ]
    (tmp_path / "pick.cpp").write_text(PROGRAM % (choice, "l," if batch else ""))
    run("g++", "-std=c++17", "-O1", *STRICT, "-Wconversion", "-Wshadow", "-fsanitize=undefined",
        "-fno-sanitize-recover", "pick.cpp", "-o", "pick", cwd=tmp_path)  # fmt: skip
    problems = drawn(found, 3000)
    lines = [
        " ".join(map(str, (*device, s.m, s.n, s.k, p.batch, 2 * (not p.alignment.a), p.lda,
                           4096 + 4 * (not p.alignment.b), p.ldb)))
        for p, device in problems
        for s in [p.shape]
    ]  # fmt: skip
    (tmp_path / "problems").write_text("\n".join(lines))
    picked = run("sh", "-c", "./pick < problems", cwd=tmp_path).split()
    wanted = [found.pick(product, *device) for product, device in problems]
    assert [int(kernel) for kernel in picked] == [-1 if k is None else k for k in wanted]
    assert len(set(wanted)) > 4
    untuned = replace(found, rows=tuple(row._replace(points=()) for row in found.rows))
    moved = sum(
        untuned.pick(p, *device) != k for (p, device), k in zip(problems, wanted, strict=True)
    )
    assert moved > 0 if tables else moved == 0


GATED = "silu(x) * up[row, col] + slope * vec[col] where slope=scalar"
KINDS: list[tuple[str, str, str, str | None, dict[str, Any]]] = [
    ("a100,h200", "f16", "rrr", "1-64", {"epilogue": GATED}),
    ("a100,h200,l4", "f16", "rcr", None, {}),
    ("rtx4090,a100,t4", "f32", "crc", "8", {"epilogue": "linear_bias_relu"}),
]


HOSTS = {"nvcc": Host.best, "embedded": embedded_best}
CASES = [(host, *kind) for host in HOSTS for kind in KINDS]


@slow
@pytest.mark.parametrize(("host", "gpus", "dtype", "layout", "batch", "more"), CASES)
def test_the_launcher_carries_out_the_plan_of_what_python_picks(
    host: str,
    gpus: str,
    dtype: str,
    layout: str,
    batch: str | None,
    more: dict[str, Any],
    tmp_path: Path,
) -> None:
    need("g++")
    found = best(gpus, dtype, layout, batch, **more)
    tried = best_calls(found, 20)
    tried = random.Random(3).sample(tried, min(800, len(tried)))
    program = Program(HOSTS[host](found), tmp_path)
    assert not wrong_best(program, found, tried)
    assert len({spec and spec.name for spec in (picked(found, call) for call in tried)}) > 4


BROKEN = [
    ("10 * found[0] + found[1], found[2]", "10 * found[0] + found[1], found[3]"),
    ("kernel->launch(\n      M, N, K,", "kernel->launch(\n      N, M, K,"),
    ("*bytes = 0;\n  const Kernel", "const Kernel"),
    ("time < least", "time > least"),
    ("return cudaErrorNoKernelImageForDevice;", "return cudaErrorInvalidValue;"),
]


@pytest.mark.parametrize(("old", "new"), sift(BROKEN, ()))
def test_broken_choices_are_found(old: str, new: str, tmp_path: Path) -> None:
    need("g++")
    found = best("a100")
    host = Host.best(found)
    before, mark, choice = host.files["gemm.cu"].partition(" the choice\n")
    assert old in choice, old
    files = {"gemm.cu": before + mark + choice.replace(old, new)}
    assert wrong_best(Program(replace(host, files=files), tmp_path), found, best_calls(found, 3))


def test_which_gpu_a_device_counts_as() -> None:
    found = best("a100,l4,rtx4090,h200")
    names = [None if i is None else found.gpus[i].name for i in (
        found.gpu_for(cc, sms) for cc, sms, _ in DEVICES)]  # fmt: skip
    assert names == ["a100", "a100", "a100", "rtx4090", "l4", "h200", "h200", None, None]


@pytest.mark.parametrize(
    "more",
    [
        ("--tuned", "h100.json"),
        pytest.param(("--batch", "2-9", "--epilogue", "relu(x + up[row, col])"), marks=slow),
    ],
)
def test_files_are_formatted_and_their_header_is_c(
    more: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--tuned" in more:
        products = products_of(["64-256"], parse_dtype("f16"), parse_layout("rrr"))
        folders.keep(tuned.table(products, "h100"), tmp_path / "h100.json")
        more = ("--tuned", str(tmp_path / "h100.json"))
    options = ["--shape", "16-512", "--shape", "1x4096x4096", "--dtype", "f16", *more]
    command = ["emit", "--best", *options, "--gpu", "t4,a10,h100", "--name", "gemm", "--header"]
    assert main([*command, "-o", f"{tmp_path}/"]) == 0
    capsys.readouterr()
    assert_formatted(tmp_path)
    check_c_and_cpp(tmp_path / "gemm.h", *cuda_includes())
    text = (tmp_path / "gemm.cu").read_text()
    assert "code=sm_75\n//     -gencode arch=compute_86,code=sm_86\n" in text
    assert "block: H100 SXM 80 GB, A10 24 GB, T4 16 GB\n" in (tmp_path / "gemm.h").read_text()
    assert main([*command[:-1], "-o", f"{tmp_path / 'again.cu'}"]) == 0
    assert "#include <cuda_runtime_api.h>" in (tmp_path / "again.cu").read_text()


TIGHT = [  # lines that are nearly as long as one may be, or longer
    "--best --shape 68x9x33 --gpu h100 --name " + 60 * "n",
    "--best --shape 25x128x39 --gpu rtx3060 --dtype f16_f32 --name g --embed ptx",
    "--best --shape 100x3000x50 --gpu t4,rtx3060 --name steps --embed ptx",
    "--variant mma --dtype f64 --split-k auto --name k --epilogue relu(x+s*v[row])where(s=scalar)",
]


@pytest.mark.parametrize("options", sift(TIGHT, [*TIGHT[:2], TIGHT[3]]))
def test_tight_lines_are_formatted(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("where(s=scalar)", " where s=scalar") for word in options.split()]
    assert main(["emit", *words, "-o", f"{tmp_path}/"]) == 0
    assert_formatted(tmp_path)
    capsys.readouterr()


def test_a_file_says_what_it_is_not_compiled_for(tmp_path: Path) -> None:
    """What nvcc is told is a macro, which g++ takes as well."""
    need("g++")
    text = render_best(best("t4,a100,h200"))
    checks = re.findall(r"^#ifdef __CUDA_ARCH_LIST__.*?^#endif", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "checks.cpp").write_text("\n".join(checks))
    for archs, lacking in (
        ("750,800,900", []),
        ("890,900,750", []),
        ("800", ["sm_75", "sm_90a"]),
        ("750,900", ["sm_80"]),
    ):
        done = subprocess.run(
            ["g++", "-std=c++17", "-fsyntax-only", f"-D__CUDA_ARCH_LIST__={archs}", "checks.cpp"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = re.findall("error: .*compile the kernels for (sm_[0-9a]+), too", done.stderr)
        assert said == lacking
        assert (done.returncode == 0) == (not lacking)
    assert "__CUDA_ARCH_LIST__" not in render_best(best("a100"))


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_code_for_older_gpus_than_a_kernel_runs_on_is_an_error(dtype: str) -> None:
    """In words, and not in hundreds of the assembler's: unless other kernels are for them."""
    guard = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800\n#error"
    assert guard in render_best(best("a100,h200", dtype, "rrr"))
    assert guard not in render_best(best("t4,a100", dtype, "rrr"))


def test_clusters_are_for_gpus_that_have_them() -> None:
    text = render_best(best("a100,h200"))
    assert text.count("__cluster_dims__") > 0
    guard = "#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\n    __cluster_dims__("
    assert text.count(guard) == text.count("__cluster_dims__(")
    assert guard not in render_best(best("h200"))


@pytest.mark.parametrize("kind", ["f64 rrr", "f64 crr", "f64 rcr", "f32 rrr", "f16 crr"])
def test_dynamic_shared_memory_of_one_name_is_aligned_alike(kind: str) -> None:
    """In a file with several kernels, and where programs include several files in one."""
    dtype, layout = kind.split()
    found: dict[str, set[str]] = {}
    for arch in ("sm_80", "sm_90a"):
        for spec in grids(parse_dtype(dtype), parse_layout(layout), arch, {}):
            for align, name in re.findall(
                r"extern __shared__ __align__\((\d+)\) .*?(\w+)\[\]", render(spec).text
            ):
                found.setdefault(name, set()).add(align)
    assert found
    assert all(len(aligns) == 1 for aligns in found.values()), found


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_nvcc_has_nothing_to_say(dtype: str, tmp_path: Path) -> None:
    need("nvcc")
    (tmp_path / "gemm.cu").write_text(render_best(best("a100,h200", dtype)))
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ("80", "90a")]
    warnings = "-Xcompiler=-Wall,-Wextra"
    assert run("nvcc", "-std=c++17", warnings, *codes, "-c", "gemm.cu", cwd=tmp_path) == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--gpu h200", "no shape is named; use --shape, such as 4096 or 1-64x4096x4096"),
        ("--gpu h200 --shape 3x4", "shape '3x4' is not MxNxK; use sizes or ranges"),
        ("--gpu h200 --shape 9-3", "'9-3' is neither a size nor a range; use 512, or 16-4096"),
        ("--gpu h200 --shape 0x4x4", "shape 0x4x4 has nothing to compute"),
        ("--gpu a100,h20 --shape 4", "unknown GPU 'h20'; did you mean h200?"),
        ("--gpu t4 --shape 4 --dtype tf32", "no kernel for sm_75 has tf32 at 4x4x4"),
        ("--gpu t4 --shape 4 --variant tiles", "leave out other choices"),
        ("--gpu t4,h200 --shape 8-4096 --batched", "use --batch, such as 8 or 1-64"),
        ("--gpu t4 --shape 8 --batch 0-4", "a batch of 0-4 has no products; use 1 or more"),
        ("--gpu t4 --shape 8 --batch 9-3", "'9-3' is neither a size nor a range"),
        ("--gpu t4 --shape 1-64x1-64x1-64 --batch 1-99999", "is more than 4096 shapes"),
        ("--gpu t4 --shape 1-\u00b2", "'1-\u00b2' is neither a size nor a range"),
        ("--gpu t4 --shape 1-" + 5000 * "9", "9' is neither a size nor a range"),
        ("--gpu t4 --shape 64 --lda 64,x", "lda '64,x' is no leading dimension; use elements"),
        ("--gpu t4 --shape 64 --ldb 0", "ldb '0' is no leading dimension"),
        ("--gpu t4 --shape 16-64 --lda 32", "lda=32 is less than a line of 64x64x64 rrr; use 64"),
        ("--gpu t4,h200 --shape 8-4096 --name " + "a" * 76, "name 'aaa"),
    ],
)
def test_mistakes(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "--best", "--dry-run", *options.split()]) == 2
    assert message in capsys.readouterr().err


def test_options_of_best_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--shape", "4"], ["--lda", "8"], ["--unaligned"], ["--gpu", "a100"]):
        assert main(["emit", "--variant", "tiles", *words]) == 2
        assert "--lda, --ldb, --unaligned and --tuned go with --best" in capsys.readouterr().err
