"""Options and fixtures that all tests share."""

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers share the cores; before numpy comes

from hypothesis import HealthCheck, settings

from gen.cli import main
from gen.device.driver import why_no_gpu
from tests.support import browser

# Property tests take as long as the machine likes. A change is judged by the same examples each
# time; `make test-all` draws others.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("drawn", UNTIMED)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write tests/golden anew from the templates"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Not the user's cache, but one that parallel workers share and that is kept between runs:
    # CUTLASS takes seconds to compile.
    os.environ.setdefault("GEN_CACHE_DIR", str(config.rootpath / ".pytest_cache" / "gen"))
    os.environ["GEN_TUNED_DIR"] = ""  # what the user has measured is no part of a test
    # JAX takes three quarters of a GPU's memory when it starts, from all others who test there.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def pytest_collection_finish() -> None:
    # Thousands of tests and modules stay: they are not looked through for garbage time and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("nvcc") and not shutil.which("nvcc"):
        pytest.skip("nvcc is not on the PATH")
    if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
        pytest.skip(f"no GPU: {reason}")
    if item.get_closest_marker("browser") and not browser.find():
        pytest.skip(f"none of {', '.join(browser.NAMES)} is on the PATH")


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of only compared."""
    return bool(request.config.getoption("--update-goldens"))


class Output(NamedTuple):
    """What a run of `gen` left behind."""

    code: int
    out: str
    err: str


Gen = Callable[..., Output]


@pytest.fixture
def gen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gen:
    """Runs `gen` with some arguments, in this process, in an empty current directory."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*args: str) -> Output:
        capsys.readouterr()
        code = main(args)
        return Output(code, *capsys.readouterr())

    return run
