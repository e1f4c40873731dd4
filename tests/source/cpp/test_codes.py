"""Headers and pages name each error that a launcher returns, with its number."""

import re
import subprocess
from pathlib import Path

import pytest
from cuda.bindings.driver import CUresult
from cuda.bindings.runtime import cudaError_t

from gen.kernels.registry import make_spec
from gen.prove.launchers.calls import calls
from gen.prove.launchers.contract import expected
from gen.prove.launchers.program import EMBEDDED
from gen.source.cpp.bundle_files import render_bundle
from gen.source.cpp.header import render_header
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from tests import ROOT
from tests.source.cpp.test_bundle_plan import ON_HOPPER, bundle
from tests.support.launchers import embedded
from tests.support.programs import need
from tests.support.slow import each

LISTED = re.compile(r"^// +(\d+)  (\w+): ", re.MULTILINE)
SPECS = [
    make_spec("naive"),
    make_spec("mma", split_k=0, epilogue="linear_bias"),
    make_spec("mma_tma"),
]


def named(text: str) -> dict[int, str]:
    return {int(number): name for number, name in LISTED.findall(text)}


def returned(spec: KernelSpec, kind: str = "plain") -> set[int]:
    """By the contract, in all calls that are tried; and where there is no code for the GPU."""
    return {expected(spec, call, kind)[0] for call in calls(spec)} - {0, 701} | {209}


@pytest.mark.parametrize("spec", each(2, SPECS), ids=lambda spec: spec.variant)
def test_a_kernels_files_name_what_its_launcher_returns(spec: KernelSpec) -> None:
    header, source = named(render_header(spec)), named(render(spec).text)
    assert header == source
    never = {9} if spec.row.takes_workspace else set()  # tiles are too large for so many of them
    assert set(header) - never == returned(spec)
    assert all(getattr(cudaError_t, name) == number for number, name in header.items())


def test_a_bundles_header_names_what_its_launcher_returns(tmp_path: Path) -> None:
    text = render_bundle(bundle(tmp_path, ON_HOPPER, "sm_90a"))[0]
    assert set(named(text)) == {1, 9, 209, 400, 801}
    assert all(getattr(cudaError_t, name) == number for number, name in named(text).items())
    assert "no kernel is for the problem, or the driver does not know the TMA" in text
    assert "an alpha or beta that is no int" not in text
    text = render_bundle(bundle(tmp_path))[0]
    assert "801  cudaErrorNotSupported: no kernel is for the problem\n" in text
    assert "an alpha or beta that is no int" in text


@pytest.mark.parametrize("spec", each(2, SPECS), ids=lambda spec: spec.variant)
def test_an_embedded_kernels_header_names_what_its_launcher_returns(spec: KernelSpec) -> None:
    of_driver = {3, 36, 201, 209, 302, 303}  # see test_embed.py
    found = named(embedded(spec).files[f"{embedded(spec).name}.h"])
    assert set(found) == returned(spec, EMBEDDED) | of_driver
    assert all(getattr(CUresult, name) == number for number, name in found.items())


def test_the_page_names_them_all() -> None:
    page = (ROOT / "docs" / "launchers.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)`", page, re.MULTILINE)
    of_runtime = {int(n): name for n, name in rows if name.startswith("cuda")}
    of_driver = {int(n): name for n, name in rows if name.startswith("CUDA")}
    assert all(getattr(cudaError_t, name) == number for number, name in of_runtime.items())
    assert all(getattr(CUresult, name) == number for number, name in of_driver.items())
    assert set(of_runtime) == {0, 1, 9, 209, 222, 400, 801}
    assert set(of_driver) == {1, 3, 36, 201, 209, 302, 303, 400}


@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("sm_80", "a GPU older than nvcc's -arch. For newer ones the driver"),
        ("sm_90a", "a GPU of another compute capability than 9.0"),
        ("sm_100f", "a GPU of another compute capability than 10.x"),
    ],
)
def test_files_say_what_other_gpus_get(arch: str, says: str, tmp_path: Path) -> None:
    spec = make_spec("naive", arch=arch)
    for text in (
        render(spec).text,
        render_header(spec),
        render_bundle(bundle(tmp_path, "--variant naive", arch))[0],
    ):
        assert f"//   209  cudaErrorNoKernelImageForDevice: {says}\n" in text


@pytest.mark.parametrize(("major", "compiles"), [(19, False), (20, True)])
def test_a_clang_that_ignores_grid_constants_stops(
    major: int, compiles: bool, tmp_path: Path
) -> None:
    """As a compiler of CUDA: the preprocessor of g++, told that it is clang."""
    need("g++")
    text = render(make_spec("mma_tma")).text
    (tmp_path / "gemm.cu").write_text(re.sub("(?m)^#include.*", "", text))
    clang = ("-D__clang__", "-D__CUDA__", f"-D__clang_major__={major}")
    command = ["g++", "-E", "-x", "c++", *clang, "gemm.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == compiles
    assert compiles or "older compilers ignore __grid_constant__" in done.stderr


@pytest.mark.parametrize(("variant", "most"), [("mma", 594), ("mma_tma", 767), ("wgmma", 721)])
def test_a_file_is_as_long_as_a_reader_bears(variant: str, most: int) -> None:
    assert len(render(make_spec(variant)).text.splitlines()) <= most
