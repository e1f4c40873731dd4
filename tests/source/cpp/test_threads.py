"""Launchers of all kinds, called by several threads at once: each call does what the plan says, and
a thread sanitizer finds no race.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gen.prove.launchers.calls import calls
from gen.prove.launchers.check import SANITIZER, THREADS, check_launcher, complaint
from gen.prove.launchers.program import Host, Program
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from tests.prove.test_verify import small
from tests.source.cpp.test_bundle_plan import ON_HOPPER, bundle
from tests.support.launchers import embedded, wrong_bundle, wrong_embedded
from tests.support.programs import need, run
from tests.support.slow import sift, slow

Edit = tuple[str, str]


@pytest.fixture(scope="module", autouse=True)
def _sanitizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where the compiler has no thread sanitizer, or the machine does not run it."""
    need("g++")
    folder = tmp_path_factory.mktemp("sanitizer")
    (folder / "main.cpp").write_text("int main() {}\n")
    try:
        run("g++", *SANITIZER, "main.cpp", "-o", "main", cwd=folder)
        run("./main", cwd=folder)
    except AssertionError:
        pytest.skip("programs with a thread sanitizer do not run here")


def program(host: Host, folder: Path, *edits: Edit) -> Program:
    """With edits of the first file."""
    first, text = next(iter(host.files.items()))
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return Program(replace(host, files={**host.files, first: text}), folder, SANITIZER)


# What an address that is looked up once is kept in, and what several threads must not keep it in.
_KNOWN = (
    "static std::atomic<decltype(&cuTensorMapEncodeTiled)> known{nullptr};\n"
    "  auto encode = known.load();",
    "static decltype(&cuTensorMapEncodeTiled) known{nullptr};\n  auto encode = known;",
)


def plain_is_right(folder: Path, *edits: Edit) -> bool:
    spec = small("mma_tma", "f16", split_k=0)
    tried = [call for call in calls(spec) if not call.no_tma]
    replies = program(Host.plain(render(spec)), folder, *edits).run(tried, THREADS)
    return not any(complaint(spec, c, r) for c, r in itertools.zip_longest(tried, replies))


def embedded_is_right(folder: Path, *edits: Edit) -> bool:
    spec: KernelSpec = small("mma_tma", "f16", split_k=0, name="gemm")
    made = program(embedded(spec), folder, *edits)
    return not wrong_embedded(made, spec, THREADS) and made.loaded == ["sm_0", "unload sm_0"]


def bundle_is_right(folder: Path, *edits: Edit) -> bool:
    made = bundle(folder, ON_HOPPER, "sm_90a")
    return not wrong_bundle(program(Host.bundle(made), folder, *edits), made, THREADS)


KINDS = [plain_is_right, embedded_is_right, bundle_is_right]


@pytest.mark.parametrize("is_right", sift(KINDS, [plain_is_right]))
def test_several_threads_launch_at_once(is_right: Callable[..., bool], tmp_path: Path) -> None:
    assert is_right(tmp_path)


@pytest.mark.parametrize(
    ("is_right", "old", "new"),
    [
        (plain_is_right, *_KNOWN),
        (bundle_is_right, *_KNOWN),
        (plain_is_right, "const Plan plan{", "static Plan plan{"),
        (bundle_is_right, "const Kernel* kernel = nullptr;", "static const Kernel* kernel;"),
        (embedded_is_right, "  const std::lock_guard<std::mutex> lock(loaded.mutex);\n", ""),
        (embedded_is_right, "  Kernels kernels;\n  error", "  static Kernels kernels;\n  error"),
        (embedded_is_right, "static const Driver driver;",
         "static Driver driver{false};\n  if (!driver.cuLaunchKernel) driver = Driver();"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_races_are_found(is_right: Callable[..., bool], old: str, new: str, tmp_path: Path) -> None:
    edits = [(old, new)]
    if "Driver driver{false}" in new:
        edits += [("  Driver() {\n", "  explicit Driver(bool) {\n  }\n  Driver() {\n"),
                  ("(*cuLaunchKernel)(", "(*cuLaunchKernel)(")]  # fmt: skip
    assert not is_right(tmp_path, *edits)


@slow
def test_the_check_finds_a_race_of_an_edited_launcher() -> None:
    source = render(small("mma_tma", "f16"))
    text = source.text.replace(*_KNOWN)
    assert text != source.text
    (wrong,) = check_launcher(replace(source, text=text)).wrong
    assert "data race" in wrong
