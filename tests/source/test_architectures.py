"""One kernel for several architectures: each is what gen emits for it alone, and they link."""

import re
from collections import Counter
from pathlib import Path

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.errors import SpecError
from gen.kernels.registry import make_spec
from gen.source.architectures import _GLOBAL, Family, make_family, render_family
from gen.source.cpp.header import render_header
from gen.source.render import render
from gen.spec.names import MAX_SYMBOL
from tests.support.programs import run
from tests.support.slow import sift, slow

RUNTIME = Path(__file__).with_name("fake_runtime.c")
ARCHS = ("sm_75", "sm_80", "sm_90")


def family(**options: object) -> Family:
    return make_family([make_spec("mma", arch=arch, **options) for arch in ARCHS])


def ptx(text: str, arch: str) -> dict[str, Counter[str]]:
    """The instructions that each kernel compiles to.

    Not in which order blocks of them lie, nor which way branches go: that changes with a comment.
    """
    code = compile_cuda(text, name="f.cu", arch=arch, format="ptx", line_info=False).code.decode()
    kernels = re.findall(r"\.entry (\w+)\((.*?)^}", code, re.MULTILINE | re.DOTALL)
    found: dict[str, Counter[str]] = {}
    for name, body in kernels:
        words = re.findall(r"^\t(?:@!?%p\d+ )?(\w[\w.:]*)", body, re.MULTILINE)
        found[name] = Counter(word for word in words if not word.startswith(("bra", "setp.")))
    return found


@pytest.mark.parametrize("arch", sift(ARCHS, ["sm_80"]))
def test_each_architecture_has_the_code_of_its_own_kernel(arch: str) -> None:
    found = family(name="f", split_k=2)
    text = render_family(found).text
    together = ptx(text, arch)
    (spec,) = (spec for spec in found.specs if spec.arch == arch)
    alone = render(spec).text
    bodies = [body for _, body, _ in _GLOBAL.findall(alone)]
    assert len(bodies) == 3
    assert all(body in text for body in bodies)
    own = ptx(alone, arch)
    assert own.keys() == {f"f_{arch.replace('_', '')}{end}" for end in ("", "_pack", "_reduce")}
    for name, instructions in together.items():
        assert instructions == own[name] if name in own else "trap" in instructions


def test_an_older_architecture_than_the_first_is_refused() -> None:
    found = make_family([make_spec("mma", arch=arch, name="f") for arch in ("sm_80", "sm_90")])
    text = render_family(found).text
    assert text.count("#error") == 1
    assert "__CUDA_ARCH__ < 800\n#error" in text


def test_a_family_has_one_name() -> None:
    assert family().name == "gemm_mma_f16_rrr"
    assert family(stages=2).name == family(stages=2).specs[0].name.removesuffix("_sm75")
    with pytest.raises(SpecError, match="with several architectures it may have 71; use a shorter"):
        family(name="n" * MAX_SYMBOL)


FEW = ["gemv", "skinny", "narrow", "slim"]  # rows or columns: these begin early on newer GPUs


@pytest.mark.parametrize("variant", FEW)
def test_what_takes_no_workspace_asks_for_none(variant: str) -> None:
    both = [make_spec(variant, arch=arch, name="f") for arch in ("sm_80", "sm_90")]
    assert "workspace" not in render_family(make_family(both)).text


@slow
@pytest.mark.nvcc
@pytest.mark.parametrize("layout", ["rrr", "crc"])
@pytest.mark.parametrize("variant", [*FEW, "mma", "simt"])
def test_nvcc_has_nothing_to_say(variant: str, layout: str, tmp_path: Path) -> None:
    archs = ("sm_80", "sm_90")
    found = make_family([make_spec(variant, arch=arch, layout=layout, name="f") for arch in archs])
    assert len(found.specs) == 2
    (tmp_path / "f.cu").write_text(render_family(found).text)
    codes = [f"-gencode=arch=compute_{arch[3:]},code={arch}" for arch in archs]
    command = ("nvcc", "-std=c++17", "-Xcompiler=-Wall,-Wextra", "-c")
    assert run(*command, "f.cu", *codes, cwd=tmp_path) == ""


USER = """
#include <cstdio>
#include "f.h"
int main() {
  const __half* const x = reinterpret_cast<const __half*>(4096);
  __half* const d = reinterpret_cast<__half*>(4096);
  size_t bytes = 7;
  int error = f_workspace(64, 64, 64, x, 64, x, 64, &bytes);
  std::printf("%d %d ", error, int(bytes));
  error = f_launch(64, 64, 64, 1, x, 64, x, 64, 0, nullptr, 64, d, 64, nullptr, 0, nullptr);
  std::printf("%d", error);
}
"""


@slow
@pytest.mark.nvcc
def test_the_launcher_takes_the_kernel_for_the_device(tmp_path: Path) -> None:
    """Compiled for all architectures without a warning, and not for less."""
    found = family(name="f", threadblock="64x64x32", warp="32x32", stages=2)
    (tmp_path / "f.cu").write_text(render_family(found, "f.h").text)
    (tmp_path / "f.h").write_text(render_header(*found.specs, name="f"))
    (tmp_path / "main.cpp").write_text(USER)
    codes = [f"-gencode=arch=compute_{arch[3:]},code={arch}" for arch in ARCHS]
    command = ("nvcc", "-std=c++17", "-Xcompiler=-Wall,-Wextra", "-c")
    assert run(*command, "f.cu", *codes, cwd=tmp_path) == ""
    with pytest.raises(AssertionError, match="compile the kernel for sm_75, too"):
        run(*command, "f.cu", *codes[1:], cwd=tmp_path)

    assert run(*command, "main.cpp", cwd=tmp_path) == ""
    run("gcc", "-shared", "-fPIC", "-w", RUNTIME, "-o", "libruntime.so", cwd=tmp_path)
    run("g++", "main.o", "f.o", "./libruntime.so", "-o", "main", cwd=tmp_path)
    lines = {cc: run("./main", cwd=tmp_path, CC=f"{cc}") for cc in (70, 75, 80, 86, 90, 100)}
    assert lines == {
        70: "209 0 209",
        75: "0 0 f_sm75 0",
        80: "0 0 f_sm80 0",
        86: "0 0 f_sm80 0",
        90: "0 0 f_sm90 0",
        100: "0 0 f_sm90 0",
    }
