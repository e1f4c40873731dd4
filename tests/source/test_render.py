"""Emitted files: formatted, free of warnings, and read again."""

import contextlib
import itertools
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.compile.nvrtc import compile_cuda
from gen.errors import CheckError, GenError, MissingError, SpecError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.source import templates as module
from gen.source.render import read_source, render
from gen.source.templates import template_dir
from gen.spec.kernel import KernelSpec
from gen.spec.names import MAX_SYMBOL
from gen.spec.problem import ALL_LAYOUTS
from tests.spec.test_spec import specs
from tests.support.programs import assert_formatted, assert_no_warnings, need, run
from tests.support.slow import each, slow


def test_every_template_is_a_variants() -> None:
    templates = {f"kernels/{path.name}" for path in (template_dir() / "kernels").iterdir()}
    assert templates == {row.template for row in VARIANTS.values()}


@settings(max_examples=25)
@given(specs())
def test_rendering_is_deterministic(spec: KernelSpec) -> None:
    assert render(spec).text == render(spec).text


PAIRS = [(name, dtype) for name, row in VARIANTS.items() for dtype in row.dtypes]
ALONG_K = ("rcr", "rcc")  # which `narrow` has no kernels for


def _taken(choices: Iterable[tuple[tuple[str, str], str]]) -> list[tuple[tuple[str, str], str]]:
    return [one for one in choices if one[0][0] != "narrow" or one[1] not in ALONG_K]


@slow
@pytest.mark.parametrize(
    "choices",
    [
        pytest.param(_taken(zip(PAIRS, itertools.cycle(ALL_LAYOUTS))), id="each type"),
        pytest.param(_taken(itertools.product(PAIRS, ALL_LAYOUTS)), id="and layout"),
    ],
)
def test_clang_format_changes_nothing(
    choices: list[tuple[tuple[str, str], str]], tmp_path: Path
) -> None:
    names = (None, "f", "n" * MAX_SYMBOL)
    for i, ((variant, dtype), layout) in enumerate(choices):
        text = render(make_spec(variant, dtype=dtype, layout=layout, name=names[i % 3])).text
        (tmp_path / f"{variant}_{dtype}_{layout}.cu").write_text(text)
    for layout in ALL_LAYOUTS:
        text = render(make_spec("mma", pack=0, layout=layout)).text
        (tmp_path / f"mma_pack0_{layout}.cu").write_text(text)
    assert_formatted(tmp_path)


@settings(max_examples=5)
@given(st.lists(specs(), min_size=20, max_size=20))
@pytest.mark.slow
def test_clang_format_changes_nothing_whatever_the_tunables(choices: list[KernelSpec]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for i, spec in enumerate(choices):
            Path(folder, f"{i}.cu").write_text(render(spec).text)
        assert_formatted(Path(folder))


@pytest.mark.parametrize("variant", VARIANTS)
def test_lines_of_code_fit_100_columns(variant: str) -> None:
    code = render(make_spec(variant, name="f")).text.splitlines()
    long = [line for line in code if len(line) > 100 and not line.startswith("//")]
    assert not long


def test_one_warp_is_no_warps() -> None:
    text = render(make_spec("mma", threadblock="64x64x32")).text
    assert "constexpr int kThreads = 32;  // 1 warp\n" in text
    assert "constexpr int kThreads = 256;  // 8 warps\n" in render(make_spec("mma")).text


@slow
@pytest.mark.nvcc
@pytest.mark.parametrize("variant", VARIANTS)
def test_nvcc_has_nothing_to_warn_about(variant: str, tmp_path: Path) -> None:
    own = "bf16" if "bf16" in VARIANTS[variant].dtypes else None  # or its first
    for dtype in ("f32", "f16") if variant == "rec_tiles" else (own,):
        source = render(make_spec(variant, dtype=dtype))
        path = tmp_path / source.filename
        path.write_text(source.text)
        assert source.spec
        assert_no_warnings(path, source.spec.arch)


def test_the_header_says_how_to_make_the_file_again(tmp_path: Path) -> None:
    spec = make_spec("rec_tiles", dtype="bf16", layout="rcr", tile=7, coarsen=3, name="fast")
    path = tmp_path / "edited.cu"
    path.write_text(render(spec).text + "// edited by hand\n")
    source = read_source(path)
    assert source.spec == spec
    assert "gen emit --variant rec_tiles --dtype bf16 --layout rcr --arch sm_80 --tile 7 " in (
        source.text
    )


def test_a_file_without_the_header_line_has_no_specification(tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text('extern "C" __global__ void own() {}\n')
    source = read_source(path)
    assert source.spec is None
    assert source.name == "own"


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.cu"):
        read_source(tmp_path / "nowhere.cu")
    (tmp_path / "binary.cu").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read"):
        read_source(tmp_path / "binary.cu")


@pytest.mark.parametrize(
    ("variant", "symbol", "where"),
    [
        ("naive", "epilogue", "namespace"),
        ("naive", "input_t", "namespace"),
        ("naive", "kThreads", "namespace"),
        ("naive", "launch", "namespace"),
        ("naive", "kernel", "launcher"),
        ("naive", "M", "launcher"),
        ("mma", "mma", "namespace"),
        ("mma", "tiles", "launcher"),
        ("rec_tiles", "shared", "namespace"),  # declared extern in a function
    ],
)
def test_a_symbol_that_is_something_else_is_refused(variant: str, symbol: str, where: str) -> None:
    message = f"name '{symbol}' is something else in the {where} .*; use another, such as gemm_"
    with pytest.raises(SpecError, match=message) as caught:
        render(make_spec(variant, name=symbol))
    render(make_spec(variant, name=str(caught.value).split()[-1]))


@slow
@pytest.mark.nvcc
@pytest.mark.parametrize(("variant", "most"), [("naive", 12), ("mma", 6)])
def test_any_other_word_of_a_file_can_be_its_symbol(
    variant: str, most: int, tmp_path: Path
) -> None:
    """Many emitted files as one, each with a symbol that it also has for something inside."""
    tiles = {"threadblock": "64x64x32", "warp": "32x32"} if variant == "mma" else {}
    words = set(re.findall(r"[A-Za-z]\w*", render(make_spec(variant, **tiles)).text))
    texts = []
    for word in sorted(words, key=lambda word: (len(word), word)):
        with contextlib.suppress(SpecError):
            texts.append(render(make_spec(variant, name=word, **tiles)).text)
    path = tmp_path / "all.cu"
    assert len(texts) > most
    path.write_text("\n".join(texts[:most]))
    assert_no_warnings(path, "sm_80", "-Wshadow")


def test_short_and_plain_symbols_are_free() -> None:
    for variant, symbol in itertools.product(("naive", "mma_tma"), ("q", "naive", "gemm", "half")):
        assert f"    {symbol}(" in render(make_spec(variant, name=symbol)).text
    assert "    mma(" in render(make_spec("naive", name="mma")).text


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        (
            "kThreadsX = ${ threads_x }",
            "= ${ threads_q }",
            CheckError,
            "'threads_q' is un",
        ),
        (
            "kThreadsX = ${ threads_x }",
            "= ${ threads_x",
            CheckError,
            "unexpected '}'|exp",
        ),
        (
            "kThreadsX = ${ threads_x }",
            "${ self.nothing() }",
            CheckError,
            ".*no attribute 'nothing'",
        ),
        ("= ${ threads_x }", "${ 1 // 0 }", CheckError, "ZeroDivisionError"),
        ('"frame/cuda_core.cu.j2"', '"frame/none.cu.j2"', MissingError, "there is no template"),
    ],
)
def test_a_broken_template_is_named_with_its_line(
    old: str,
    new: str,
    kind: type[GenError],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "templates"
    shutil.copytree(template_dir(), folder)
    path = folder / "kernels" / "naive.cu.j2"
    text = path.read_text()
    line = text[: text.index(old)].count("\n") + 1
    path.write_text(text.replace(old, new, 1))
    monkeypatch.setattr(module, "template_dir", lambda: folder)
    module._environment.cache_clear()
    try:
        with pytest.raises(kind, match=rf"^{re.escape(str(path))}:{line}: ({message})") as caught:
            render(make_spec("naive"))
    finally:
        monkeypatch.undo()
        module._environment.cache_clear()
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("block", ["about", "constants", "kernel"])
def test_a_block_that_a_template_lacks_is_named(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "templates"
    shutil.copytree(template_dir(), folder)
    path = folder / "kernels" / "naive.cu.j2"
    path.write_text(path.read_text().replace(f"block {block} ", "block misspelt "))
    monkeypatch.setattr(module, "template_dir", lambda: folder)
    module._environment.cache_clear()
    try:
        with pytest.raises(CheckError, match=rf"\.j2:\d+: Required block '{block}' not found; "):
            render(make_spec("naive"))
    finally:
        monkeypatch.undo()
        module._environment.cache_clear()


@pytest.mark.parametrize("variant", each(3, VARIANTS))
def test_index_arithmetic_is_64_bits_wide(variant: str) -> None:
    """No product of two sizes may be formed in 32 bits: every index starts as an index_t."""
    text = render(make_spec(variant)).text
    assert not re.findall(r"(?<!index_t\()(?:blockIdx|gridDim)\.[xyz]\)? \*", text)
    assert "using index_t = long long;" in text


@pytest.mark.parametrize(
    ("variant", "options"),
    each(5, [
        ("rec_tiles", {"dtype": "f64", "coarsen": 3}),
        ("mma", {}),
        ("mma", {"stages": 2, "split_k": 3}),
        ("mma", {"stages": 1, "dtype": "f16_f32", "threadblock": "64x64x32", "warp": "16x64"}),
        ("mma_tma", {}),
        ("mma_tma", {"split_k": 3}),
        ("mma_tma", {"layout": "rcr", "threadblock": "96x96x64", "warp": "32x48", "stages": 7,
                     "sliced_k": 2}),
        ("wgmma", {}),
        ("wgmma", {"split_k": 3}),
        ("wgmma", {"stream_k": 1}),
        ("simt", {"stream_k": 1}),
        ("wgmma", {"schedule": "pingpong"}),
    ]),
)  # fmt: skip
def test_shared_memory_is_what_plans_say(variant: str, options: dict[str, Any]) -> None:
    """The file has it as an expression of its constants."""
    spec = make_spec(variant, **options)
    wanted = spec.geometry.dynamic_shared
    text = render(spec).text
    assert re.search(rf"constexpr int kSharedBytes = .*\bk\w+.*;  // {wanted}\b", text)
    compile_cuda(f"{text}static_assert({spec.name}_ns::kSharedBytes == {wanted});", arch=spec.arch)


def test_every_work_tile_comes_once(tmp_path: Path) -> None:
    """Also where the tiles of a whole group would be more than 32 bits can count."""
    need("g++")
    text = render(make_spec("mma", swizzle=1024, threadblock="64x64x32", warp="32x32")).text
    function = re.search(r"__device__ (inline void tile_at\(.*?\n}\n)", text, re.S)
    assert function
    (tmp_path / "main.cpp").write_text(
        "#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n#include <vector>\n"
        f"constexpr int kTileM = 1, kTileN = 1, kGroup = 1024;\n{function[1]}"
        "int main(int, char** x) {\n"
        "  const int m = atoi(x[1]), n = atoi(x[2]);\n"
        "  std::vector<bool> seen(size_t(m) * n);\n"
        "  for (int t = 0; t < m * n; ++t) {\n"
        "    int row = 0, col = 0;\n"
        "    tile_at(t, m, n, row, col);\n"
        "    if (row < 0 || row >= m || col < 0 || col >= n) return 1;\n"
        "    if (seen[size_t(row) * n + col]) return 2;\n"
        "    seen[size_t(row) * n + col] = true;\n"
        "  }\n"
        "}\n"
    )
    run("g++", "-std=c++17", "-O2", "main.cpp", "-o", "main", cwd=tmp_path)
    for m, n in ((1, 2**22), (3, 2**22), (1025, 3), (1024, 5), (2500, 7)):
        run("./main", m, n, cwd=tmp_path)
