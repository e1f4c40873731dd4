"""`gen doctor`: what it finds, and what it says about what it does not find."""

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from gen.compile import nvrtc
from gen.device import driver
from gen.dispatch import folders
from gen.dispatch.ranking import Product
from gen.doctor import Check, examine, satisfies
from gen.errors import MissingError
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout
from tests.conftest import Gen
from tests.support import tuned


def found(name: str) -> Check:
    """The line of the report that has this name."""
    return next(check for check in examine() if check.name == name)


def test_a_missing_extra_is_a_note_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"matplotlib": "3.10.1", "nvidia-cuda-nvdisasm": "12.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    assert found("matplotlib") == Check("matplotlib", "ok", "3.10.1")
    assert found("cuda-bench") == Check(
        "cuda-bench",
        "note",
        "not installed; only gen bench uses it",
        "pip install 'cuda-bench[cu13]>=0.3'",
    )
    assert found("nvmath-python").status == "note"
    old = found("nvidia-cuda-nvdisasm")
    assert (old.status, old.fix) == ("note", "pip install 'nvidia-cuda-nvdisasm>=13.2'")
    assert old.found.startswith("12.0, not nvidia-cuda-nvdisasm>=13.2")


@pytest.mark.parametrize(
    ("version", "requirement", "good"),
    [
        ("13.4.4", "x>=13,<14", True),
        ("14.0", "x>=13,<14", False),
        ("12.9", "x>=13,<14", False),
        ("13.0.3.0", "x[a,b]==13.0.*", True),
        ("13.10.0", "x==13.1.*", False),
        ("13.2", "x==13.0.*", False),
        ("2.0.0rc1", "x>=1.26", True),
        ("unknown", "x>=1", False),
        ("13.2.2", "x[a]>=13.0,<13.3", True),
        ("13.3.0", "x[a]>=13.0,<13.3", False),
    ],
)
def test_versions_are_compared_by_number(version: str, requirement: str, good: bool) -> None:
    assert satisfies(version, requirement) is good


def test_this_machine_has_what_gen_needs(gen: Gen) -> None:
    code, out, err = gen("doctor")
    assert (code, err) == (0, ""), out
    for name in ("Python", "cuda-python", "NVRTC", "CUDA headers", "CUTLASS headers", "cache"):
        assert re.search(rf"^{name} +ok ", out, re.MULTILINE)
    report = json.loads(gen("doctor", "--json").out)
    assert report["ok"] is True
    assert {check["status"] for check in report["checks"]} <= {"ok", "note"}


def test_a_missing_package_comes_with_its_command(
    gen: Gen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == "nvidia-cutlass":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    code, out, _ = gen("doctor")
    assert code == 3
    assert re.search(r"^nvidia-cutlass +MISSING +not installed$", out, re.MULTILINE)
    assert "nvidia-cutlass: pip install 'nvidia-cutlass==4.2.*'" in out
    assert re.search(r"^cuda-python +MISSING +1.0, not cuda-python>=12.9,<14$", out, re.MULTILINE)
    assert json.loads(gen("doctor", "--json").out)["ok"] is False


def test_a_missing_compiler_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[int, int]:
        raise MissingError("the library libnvrtc is missing; pip install it")

    monkeypatch.setattr(nvrtc, "nvrtc_version", missing)
    expected = Check("NVRTC", "MISSING", "the library libnvrtc is missing", "pip install it")
    assert found("NVRTC") == expected


def test_an_old_python_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    assert found("Python").status == "MISSING"
    assert "3.10" in found("Python").fix


def test_cutlass_path_is_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    assert found("CUTLASS headers").status == "MISSING"
    folder = tmp_path / "include" / "cutlass"
    folder.mkdir(parents=True)
    (folder / "cutlass.h").touch()
    (folder / "version.h").write_text(
        "#define CUTLASS_MAJOR 5\n#define CUTLASS_MINOR 1\n#define CUTLASS_PATCH 2\n"
    )
    assert found("CUTLASS headers").found == f"5.1.2 at {tmp_path}/include (CUTLASS_PATH)"


def test_measured_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert found("measured times").found == "none of yours: GEN_TUNED_DIR is empty"
    monkeypatch.setenv("GEN_TUNED_DIR", str(tmp_path / "tuned"))
    assert found("measured times").found == f"0 times in {tmp_path / 'tuned'}"
    product = Product.packed(GemmShape(64, 64, 64), parse_dtype("f16"), parse_layout("rcr"))
    folders.keep(tuned.table([product], "h200", 3), tmp_path / "tuned")
    assert found("measured times").found == f"3 times in {tmp_path / 'tuned'} of h200"
    (tmp_path / "tuned" / "h200" / "f16.json").write_text("[]")
    broken = found("measured times")
    assert (broken.status, broken.fix) == ("note", "move it away, or merge it from a copy")
    assert 'f16.json has no measured times: "format" is not' in broken.found
    monkeypatch.setenv("GEN_TUNED_DIR", "/dev/null/tuned")
    closed = found("measured times")
    assert (closed.status, closed.fix) == ("note", folders.OWN_WAY_OUT)
    assert closed.found == "cannot read /dev/null/tuned: Not a directory"


def test_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path / "new"))
    assert found("cache").found == f"{tmp_path}/new, 0 files, 0.0 MiB"
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "entry").write_bytes(bytes(3 * 2**20))
    assert found("cache").found.endswith("1 files, 3.0 MiB")
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path / "new" / "entry"))
    assert found("cache").status == "note"
    assert "Not a directory" in found("cache").found
    assert "GEN_CACHE_DIR" in found("cache").fix


def test_without_cuda_python_the_gpu_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    driver.bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    check = found("GPU")
    assert (check.status, check.found.startswith("unknown: ")) == ("note", True)


def test_no_gpu_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "why_no_gpu", lambda: "the driver sees no GPU")
    expected = "none: the driver sees no GPU; kernels run on the emulator"
    assert found("GPU") == Check("GPU", "note", expected)


@pytest.mark.gpu
def test_the_gpu_is_named() -> None:
    assert re.fullmatch(r".+ \(sm_\d+\).*, driver for CUDA \d+\.\d+", found("GPU").found)
