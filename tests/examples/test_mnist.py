"""The MNIST example: its kernels, a training step on the emulator, the program, its Python side."""

import ctypes
import fcntl
import gzip
import importlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from gen.compile.nvrtc import Module, compile_cuda, include_paths
from gen.device.emulated import EmulatorRunner
from gen.device.execute import Place, run_plan
from gen.device.gpus import find_gpu
from gen.dispatch.ranking import Product
from gen.files import write
from gen.source.cpp.best import Best
from gen.source.cpp.best_file import render_best_header
from gen.source.cpp.cmake import Call, best_of
from gen.source.render import render
from gen.spec.arch import SHARED_KIB
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape, Layouts
from tests import ROOT
from tests.support.programs import need
from tests.support.slow import slow

EXAMPLE = ROOT / "examples" / "mnist"
SOURCES = EXAMPLE / "src"
HALF, SINGLE = np.float16, np.float32
PIXELS, CLASSES, CLASSES_LD = 784, 10, 16
FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """The example's own modules can be imported, as by a script that lies beside them."""
    sys.path.insert(0, str(EXAMPLE))
    yield
    sys.path.remove(str(EXAMPLE))


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


# ------------------------------------------------------------------------------- data


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images that can be told apart: a pattern for each class, and noise."""
    patterns = np.random.default_rng(0).integers(0, 200, (CLASSES, PIXELS))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    noisy = patterns[labels] + rng.integers(0, 56, (count, PIXELS))
    return noisy.astype(np.uint8), labels.astype(np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_data(folder: Path, train: int = 640, test: int = 200) -> Path:
    folder.mkdir(exist_ok=True)
    for (images_name, labels_name), count in zip(FILES, (train, test), strict=True):
        images, labels = digits(count, count)
        (folder / images_name).write_bytes(idx(images.reshape(-1, 28, 28)))
        (folder / labels_name).write_bytes(idx(labels))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data")


def real_data() -> Path:
    """The folder with MNIST itself, or the test is skipped."""
    beside = EXAMPLE.parents[2] / "shared" / "data" / "mnist"
    folder = Path(os.environ.get("GEN_MNIST", beside))
    if not any(folder.glob("train-images*")):
        pytest.skip("GEN_MNIST is not set to a folder with the MNIST files")
    return folder


# ------------------------------------------------------------------------------- the kernels


CALLS = """
function(gen_add_bundle)
  list(JOIN ARGV "\t" call)
  file(APPEND "${OUT}" "80,90a\tgen_add_bundle\t${call}\n")
endfunction()
set(MNIST_GPUS a100 h200)
include("${EXAMPLE}/kernels.cmake")
"""
NAMES = (
    "forward",
    "forward_f16",
    "input_gradient",
    "input_gradient_f16",
    "logits",
    "weight_update",
)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Best]:
    """What CMake is to emit for the products, by name."""
    need("cmake")
    folder = tmp_path_factory.mktemp("calls")
    (folder / "calls.cmake").write_text(CALLS)
    given = f"-DOUT={folder / 'calls'}", f"-DEXAMPLE={EXAMPLE}"
    subprocess.run(["cmake", *given, "-P", "calls.cmake"], check=True, cwd=folder)
    calls = map(Call.read, (folder / "calls").read_text().splitlines())
    found = {best.name.removeprefix("mnist_"): best for best in map(best_of, calls)}
    assert sorted(found) == sorted(NAMES)
    return found


def test_each_gpu_has_kernels_for_all_products(bundles: dict[str, Best]) -> None:
    for best in bundles.values():
        assert {row.gpu for row in best.rows} == {0, 1}
        for gpu in ("a100", "h200"):
            assert picked(best, Product.packed(GemmShape(10000, 64, 8), *kind(best)), gpu)


def kind(best: Best) -> tuple[DTypes, Layouts]:
    return best.kernels[0].dtypes, best.kernels[0].layouts


def picked(best: Best, product: Product, gpu: str) -> KernelSpec:
    """The kernel that the launcher takes on a GPU."""
    device = find_gpu(gpu)
    place = best.pick(product, device.capability, device.sms, SHARED_KIB[device.capability] * 1024)
    assert place is not None
    return best.named[place]


@cache
def compiled(spec: KernelSpec) -> Module:
    return compile_cuda(render(spec).text, name=f"{spec.name}.cu", arch=spec.arch)


class Advance(ctypes.Structure):
    """The parameter of the kernel `advance`: see src/advance.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("images", "labels", "order", "step")),
        ("batch", ctypes.c_int32),
        *((name, ctypes.c_uint64) for name in ("batch_images", "batch_labels")),
        *((name, ctypes.c_uint64) for name in ("masters", "copies")),
        ("weights", ctypes.c_int64),
        ("hidden", ctypes.c_int32),
        ("rate", ctypes.c_float),
        ("relu_sums", ctypes.c_uint64 * 2),
        *((name, ctypes.c_uint64) for name in ("softmax_sums", "row_losses", "losses")),
        *((name, ctypes.c_int32) for name in ("gather_blocks", "weight_blocks", "bias_blocks")),
    )


class Step:
    """What src/trainer.cpp launches, on the emulator, with all of its checks.

    Each array lies in memory of its own, so that an access beside it is found.
    """

    def __init__(
        self, bundles: dict[str, Best], gpu: str, sums: str, hidden: int, batch: int, rate: float
    ) -> None:
        self.bundles, self.gpu, self.suffix = bundles, gpu, "_f16" if sums == "f16" else ""
        self.hidden, self.batch, self.rate = hidden, batch, rate
        processors = find_gpu(gpu).sms
        self.runner = EmulatorRunner(("race", "init"), multiprocessors=processors)
        path = SOURCES / "step_kernels.cuh"
        self.own = compile_cuda(path.read_text(encoding="utf-8"), name=str(path))
        self.buffers: dict[str, Any] = {}
        relu_rows, softmax_rows = -(-batch // 32), -(-batch // 16)
        for layer in (0, 1):
            self.new(f"h{layer + 1}", np.zeros((batch, hidden), HALF), False)
            self.new(f"d{layer + 1}", np.zeros((batch, hidden), HALF), False)
            self.new(f"sums{layer + 1}", np.zeros((relu_rows, hidden), SINGLE))
        self.new("x", np.zeros((batch, PIXELS), HALF), False)
        self.new("y", np.zeros(batch, np.uint8), False)
        self.new("logits", np.zeros((batch, CLASSES_LD), SINGLE), False)
        self.new("d3", np.zeros((batch, CLASSES_LD), HALF), False)
        self.new("sums3", np.zeros((softmax_rows, CLASSES_LD), SINGLE))
        self.new("row_losses", np.zeros(batch, SINGLE))
        self.new("step", np.zeros(1, np.int32))

    def new(self, name: str, array: np.ndarray, defined: bool = True) -> None:
        self.buffers[name] = self.runner.upload(array, name, defined)

    def read(self, name: str) -> np.ndarray:
        return self.runner.download(self.buffers[name])

    def at(self, name: str, offset: int = 0) -> np.uint64:
        return np.uint64(self.buffers[name].address + offset)

    def launch(self, name: str, grid: tuple[int, int], *args: Any) -> None:
        findings = self.runner.launch(self.own, name, (*grid, 1), (256, 1, 1), args)
        assert findings == []

    def load(self, parameters: np.ndarray, images: np.ndarray, labels: np.ndarray) -> None:
        self.new("masters", parameters)
        self.new("copies", np.zeros(parameters.shape, HALF), False)
        self.new("images", images)
        self.new("labels", labels)

    def gemm(
        self, name: str, shape: tuple[int, int, int], a: str, lda: int, b: tuple[str, int],
        ldb: int, d: tuple[str, int], ldd: int, bias: tuple[str, int] | None = None,
        active: str | None = None, alpha: float = 1, beta: float = 0,
    ) -> None:  # fmt: skip
        best = self.bundles[name]
        spec = picked(best, Product(GemmShape(*shape), *kind(best), lda, ldb), self.gpu)
        operands = (("ld_activation", ldd),) if active else ()
        problem = GemmProblem(GemmShape(*shape), lda, ldb, ldd, ldd, alpha, beta, operands=operands)
        dtypes: DTypes = spec.dtypes
        place = lambda where, size: Place(self.buffers[where[0]], where[1] * size)  # noqa: E731
        places = {
            "A": Place(self.buffers[a]),
            "B": place(b, 2),
            "C": place(d, dtypes.output.size),
            "D": place(d, dtypes.output.size),
        }
        if bias:
            places["bias"] = place(bias, dtypes.output.size)
        if active:
            places["activation"] = Place(self.buffers[active])
        steps = spec.plan(problem, multiprocessors=self.runner.multiprocessors)
        if steps.workspace_bytes:
            self.new("workspace", np.zeros(steps.workspace_bytes, np.uint8), False)
            places["workspace"] = Place(self.buffers["workspace"])
        run_plan(self.runner, compiled(spec), steps, places)

    def advance(self) -> None:
        weights = (PIXELS + self.hidden + CLASSES_LD) * self.hidden
        at = lambda name: int(self.at(name))  # noqa: E731
        blocks = [
            -(-n // 256)
            for n in (self.batch * PIXELS // 16, weights // 8, 2 * self.hidden + CLASSES)
        ]
        a = Advance(
            at("images"), at("labels"), at("order"), at("step"), self.batch, at("x"), at("y"),
            at("masters"), at("copies"), weights, self.hidden, self.rate / self.batch,
            (at("sums1"), at("sums2")), at("sums3"), at("row_losses"), at("losses"), *blocks,
        )  # fmt: skip
        self.launch("advance", (sum(blocks) + 1, 1), np.void(bytes(a)))

    def run(self) -> None:
        h, n, i32 = self.hidden, self.batch, np.int32
        w2, w3, b1 = PIXELS * h, (PIXELS + h) * h, (PIXELS + h + CLASSES_LD) * h
        forward, backward = f"forward{self.suffix}", f"input_gradient{self.suffix}"
        update, rate = "weight_update", -self.rate / n
        self.gemm(
            forward, (n, h, PIXELS), "x", PIXELS, ("copies", 0), h, ("h1", 0), h, ("copies", b1)
        )
        self.gemm(forward, (n, h, h), "h1", h, ("copies", w2), h, ("h2", 0), h, ("copies", b1 + h))
        self.gemm(
            "logits", (n, CLASSES, h), "h2", h, ("copies", w3), CLASSES_LD, ("logits", 0),
            CLASSES_LD, ("masters", b1 + 2 * h),
        )  # fmt: skip
        self.launch(
            "softmax_gradient", (-(-n // 16), 1), i32(n), self.at("logits"), self.at("y"),
            self.at("d3"), self.at("row_losses"), self.at("sums3"), self.at("step"),
        )  # fmt: skip
        self.gemm(
            update, (h, CLASSES, n), "h2", h, ("d3", 0), CLASSES_LD, ("masters", w3), CLASSES_LD,
            alpha=rate, beta=1,
        )  # fmt: skip
        self.gemm(
            backward, (n, h, CLASSES), "d3", CLASSES_LD, ("copies", w3), CLASSES_LD, ("d2", 0), h,
            active="h2",
        )  # fmt: skip
        self.gemm(update, (h, h, n), "h1", h, ("d2", 0), h, ("masters", w2), h, alpha=rate, beta=1)
        self.sum_columns("d2", "sums2")
        self.gemm(backward, (n, h, h), "d2", h, ("copies", w2), h, ("d1", 0), h, active="h1")
        self.sum_columns("d1", "sums1")
        self.gemm(
            update, (PIXELS, h, n), "x", PIXELS, ("d1", 0), h, ("masters", 0), h, alpha=rate, beta=1
        )
        self.advance()

    def sum_columns(self, matrix: str, sums: str) -> None:
        grid = (-(-self.hidden // 64), -(-self.batch // 32))
        self.launch(
            "column_sums", grid, np.int32(self.batch), np.int32(self.hidden), self.at(matrix),
            self.at(sums),
        )  # fmt: skip


def flat(layers: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Parameters as ParameterLayout has them: the last rows and the last bias padded."""
    pad = CLASSES_LD - CLASSES
    (w1, b1), (w2, b2), (w3, b3) = layers
    parts = (w1, w2, np.pad(w3, ((0, 0), (0, pad))), b1, b2, np.pad(b3, (0, pad)))
    return np.concatenate([part.ravel() for part in parts])


def layers_of(parameters: np.ndarray, hidden: int) -> list[tuple[np.ndarray, np.ndarray]]:
    sizes = [PIXELS * hidden, hidden * hidden, hidden * CLASSES_LD, hidden, hidden]
    w1, w2, w3, b1, b2, b3 = np.split(parameters, np.cumsum(sizes))
    weights = (w1.reshape(PIXELS, -1), w2.reshape(hidden, -1), w3.reshape(hidden, -1)[:, :CLASSES])
    return list(zip(weights, (b1, b2, b3[:CLASSES]), strict=True))


def numpy_step(
    layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray, labels: np.ndarray, rate: float
) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
    """The step in float64, rounded where the program stores f16; new parameters, mean loss."""

    def half(a: np.ndarray) -> np.ndarray:
        return a.astype(HALF).astype(np.float64)

    w, b = [half(w) for w, _ in layers], [half(b) for _, b in layers[:2]]
    inputs = [half(x)]
    for i in (0, 1):
        inputs.append(half(np.maximum(inputs[i] @ w[i] + b[i], 0)))
    logits = inputs[2] @ w[2] + layers[2][1]
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(x)), labels]).mean()
    d = [np.empty(0)] * 3
    d[2] = half(p - np.eye(CLASSES)[labels])
    for i in (1, 0):
        d[i] = half(d[i + 1] @ w[i + 1].T) * (inputs[i + 1] > 0)
    after = [
        (w - rate / len(x) * inputs[i].T @ d[i], b - rate / len(x) * d[i].sum(0))
        for i, (w, b) in enumerate(layers)
    ]
    return after, float(loss)


@slow
@pytest.mark.parametrize(
    ("gpu", "sums"),
    [("a100", "f32"), ("h200", "f32"), ("a100", "f16")],
)
def test_steps_on_the_emulator(gpu: str, sums: str, bundles: dict[str, Best]) -> None:
    """Two steps, of sizes that fill no tile, equal numpy's: losses, parameters, next batches."""
    hidden, batch, rate, images = 136, 77, 0.5, 200
    pixels, labels = digits(images, 1)
    layers = script("mnist_data").initial_parameters(hidden, 3)
    order = np.random.default_rng(2).integers(0, images, (3, batch), np.int32)
    step = Step(bundles, gpu, sums, hidden, batch, rate)
    step.load(flat(layers), pixels, labels)
    step.new("order", order)
    step.new("losses", np.zeros(3, SINGLE))

    step.advance()  # from nothing to the first step
    assert np.array_equal(step.read("masters"), flat(layers))
    x = script("mnist_data").as_inputs(pixels)
    for number in (0, 1):
        assert np.array_equal(step.read("x"), x[order[number]])
        assert np.array_equal(step.read("y"), labels[order[number]])
        assert np.array_equal(step.read("copies")[:-CLASSES_LD], flat_half(step)[:-CLASSES_LD])
        step.run()
        expected, loss = numpy_step(layers, x[order[number]], labels[order[number]], rate)
        assert step.read("losses")[number] == pytest.approx(loss, abs=2e-3)
        found = layers_of(step.read("masters"), hidden)
        for (w, b), (w_expected, b_expected), (w_before, b_before) in zip(
            found, expected, layers, strict=True
        ):
            for got, want, old in ((w, w_expected, w_before), (b, b_expected, b_before)):
                # With sums in f16, a unit near zero may be on for one and off for the other.
                limit = 0.1 if sums == "f16" else 0.005
                assert np.linalg.norm(got - want) < limit * np.linalg.norm(want - old)
        layers = found
    padding = step.read("masters")[-hidden * 2 - CLASSES_LD - hidden * CLASSES_LD :]
    assert not padding[: hidden * CLASSES_LD].reshape(hidden, -1)[:, CLASSES:].any()


def flat_half(step: Step) -> np.ndarray:
    return step.read("masters").astype(HALF)


# ------------------------------------------------------------------------------- the program


class Run(NamedTuple):
    code: int
    out: str
    err: str


def run(program: Path, *arguments: Any) -> Run:
    found = subprocess.run(
        [str(a) for a in (program, *arguments)], capture_output=True, text=True, timeout=300
    )
    return Run(found.returncode, found.stdout, found.stderr)


def built(folder: Path, command: list[str], output: str) -> Path:
    """What a command builds in a folder that parallel workers share; it must not warn."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / output).exists():
            found = subprocess.run(command, capture_output=True, text=True, cwd=folder)
            text = found.stdout + found.stderr
            assert found.returncode == 0, text
            assert "warning" not in text.lower(), text
    return folder / output


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of the tests, the same for all of its workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mnist"


@pytest.fixture(scope="module")
def on_cpu(shared_folder: Path, bundles: dict[str, Best]) -> Path:
    """The program on top of check/cpu_stand_in.cpp, with sanitizers."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not on the PATH")
    headers = shared_folder / "headers"
    headers.mkdir(parents=True, exist_ok=True)
    for best in bundles.values():
        write(render_best_header(best).encode(), headers / f"{best.name}.h")
    own = sorted(SOURCES.glob("*.cpp"))
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-o", "on_cpu"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [f"-isystem{folder}" for folder in include_paths()]
    command += [f"-I{headers}"]
    command += [str(path) for path in (EXAMPLE / "check" / "cpu_stand_in.cpp", *own)]
    return built(shared_folder / "cpu", command, "on_cpu")


def losses_of(path: Path) -> list[float]:
    return [float(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("eager", ["0", "1"])  # the stream that does its work as early as it can
@pytest.mark.parametrize("sums", ["f32", "f16"])
def test_program_trains_as_python_does(
    sums: str, eager: str, on_cpu: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, batches, losses and the final parameters, over the end of an epoch."""
    monkeypatch.setenv("STAND_IN_EAGER", eager)
    hidden, batch, rate, steps, seed = 24, 100, 0.5, 9, 7
    mnist_data = script("mnist_data")
    weights, losses, report = (tmp_path / name for name in ("weights", "losses.csv", "json"))
    found = run(
        on_cpu, "--data", data, "--hidden", hidden, "--batch", batch, "--steps", steps,
        "--lr", rate, "--seed", seed, "--accumulate", sums, "--weights-out", weights,
        "--losses", losses, "--json", report,
    )  # fmt: skip
    assert found.code == 0, found.err
    images, labels = digits(640, 640)
    layers = mnist_data.initial_parameters(hidden, seed)
    expected = []
    for chosen in mnist_data.batches(640, batch, steps, seed):
        x = mnist_data.as_inputs(images[chosen])
        layers, loss = numpy_step(layers, x, labels[chosen], rate)
        expected.append(loss)
    assert losses_of(losses) == pytest.approx(expected, abs=0.01)
    for (w, b), (w_expected, b_expected) in zip(
        mnist_data.read_parameters(weights), layers, strict=True
    ):
        assert np.abs(w - w_expected).max() < 2e-3
        assert np.abs(b - b_expected).max() < 2e-3
    summary = json.loads(report.read_text())
    assert summary["steps"] == steps
    assert summary["loss"] == pytest.approx(np.mean(expected[6:]), abs=0.01)


@pytest.mark.slow
def test_graph_computes_the_same(on_cpu: Path, data: Path, tmp_path: Path) -> None:
    """Also with weights from a file."""
    weights = tmp_path / "weights"
    script("mnist_data").write_parameters(weights, script("mnist_data").initial_parameters(16, 1))
    curves = []
    for i, more in enumerate(
        (["--epochs", 2], ["--epochs", 2, "--no-graph"], ["--epochs", 2, "--weights-in", weights])
    ):  # fmt: skip
        losses = tmp_path / f"{i}.csv"
        found = run(
            on_cpu, "--data", data, "--hidden", 16, "--batch", 128, "--losses", losses, *more
        )
        assert found.code == 0, found.err
        curves.append(losses_of(losses))
    assert all(curve == curves[0] for curve in curves)


@slow
def test_weights_that_were_written_are_those_that_are_read(
    on_cpu: Path, data: Path, tmp_path: Path
) -> None:
    """At a rate that changes nothing, what goes in comes out; and it starts as Python says."""
    first, second = tmp_path / "first", tmp_path / "second"
    common = ("--data", data, "--hidden", 8, "--batch", 64, "--steps", 1, "--lr", 1e-30)
    assert run(on_cpu, *common, "--seed", 5, "--weights-out", first).code == 0
    assert run(on_cpu, *common, "--weights-in", first, "--weights-out", second).code == 0
    assert first.read_bytes() == second.read_bytes()
    expected = script("mnist_data").initial_parameters(8, 5)
    for got, want in zip(script("mnist_data").read_parameters(first), expected, strict=True):
        assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))
    first.write_bytes(second.read_bytes()[:-4])
    found = run(on_cpu, *common, "--weights-in", first)
    assert (found.code, "is cut off" in found.err) == (3, True)
    found = run(on_cpu, "--data", data, "--hidden", 16, "--batch", 64, "--weights-in", second)
    assert (found.code, "network of 784, 8 and 10" in found.err) == (3, True)


@slow
def test_program_says_when_it_diverges(on_cpu: Path, data: Path) -> None:
    found = run(on_cpu, "--data", data, "--hidden", 16, "--batch", 64, "--epochs", 3, "--lr", 1e30)
    assert (found.code, found.err) == (
        1, "error: the loss is no number any more; try a smaller --lr\n",
    )  # fmt: skip


@slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data is missing"),
        (["--data"], "--data has no value"),
        (["--data", "x", "--hidden", "12"], "a multiple of 8"),
        (["--data", "x", "--batch", "0"], "an integer from 1"),
        (["--data", "x", "--batch", "1x"], "not '1x'"),
        (["--data", "x", "--lr", "nan"], "a positive number"),
        (["--data", "x", "--accumulate", "f64"], "one of f16, f32"),
        (["--data", "x", "--fast"], "no option '--fast'"),
        (["--data", "DATA", "--batch", "1000"], "larger than the 640 images"),
        (["--data", "DATA", "--epochs", "1000000000"], "too many steps"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, on_cpu: Path, data: Path) -> None:
    found = run(on_cpu, *(str(data) if a == "DATA" else a for a in arguments))
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert message in found.err


@slow
def test_check_data(on_cpu: Path, data: Path) -> None:
    found = run(on_cpu, "--data", data, "--check-data")
    assert found == (0, "640 training and 200 test images: ok\n", "")


IMAGES, LABELS = FILES[0]


def _edit(name: str, edit: Any) -> Any:
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


WRONG = {
    "missing": (lambda f: (f / LABELS).unlink(), f"there is neither this file nor {LABELS}.gz"),
    "empty": (_edit(IMAGES, lambda b: b""), "0 bytes are too few"),
    "cut in the header": (_edit(IMAGES, lambda b: b[:14]), "14 bytes are too few"),
    "magic": (_edit(IMAGES, lambda b: b"\0\0\x09" + b[3:]), "begins with 0x00000903"),
    "swapped": (_edit(IMAGES, lambda b: b[:3] + b"\1" + b[4:]), "instead of 0x00000803"),
    "cut off": (_edit(IMAGES, lambda b: b[:-1]), "it is cut off"),
    "too long": (_edit(LABELS, lambda b: b + b"0"), "it is too long"),
    "a huge count": (_edit(LABELS, lambda b: b[:4] + b"\xff" * 4 + b[8:]), "it is cut off"),
    "no images": (_edit(LABELS, lambda b: b[:4] + bytes(4)), "is empty"),
    "other sizes": (
        _edit(IMAGES, lambda b: b[:8] + struct.pack(">2I", 14, 56) + b[16:]), "14 x 56 pixels",
    ),
    "fewer labels": (
        _edit(LABELS, lambda b: b[:4] + struct.pack(">I", 639) + b[8:-1]),
        "639 labels for the 640 images",
    ),
    "a label": (_edit(LABELS, lambda b: b[:-1] + b"\x0a"), "the label 10 is no digit"),
}  # fmt: skip


@slow
@pytest.mark.parametrize("what", WRONG)
def test_wrong_files(what: str, on_cpu: Path, data: Path) -> None:
    spoil, message = WRONG[what]
    spoil(data)
    found = run(on_cpu, "--data", data, "--check-data")
    assert (found.code, found.out) == (3, "")
    assert found.err.startswith(f"error: {data}")
    assert message in found.err
    with pytest.raises(script("mnist_data").DataError):
        script("mnist_data").load(data)


@slow
def test_files_that_are_gzipped(on_cpu: Path, data: Path) -> None:
    """This build has no zlib, and says how to do without; Python reads them."""
    for name in (IMAGES, LABELS):
        (data / f"{name}.gz").write_bytes(gzip.compress((data / name).read_bytes()))
        (data / name).unlink()
    found = run(on_cpu, "--data", data, "--check-data")
    assert found.code == 3
    assert f"built without zlib; run: gunzip -k {data / IMAGES}.gz" in found.err
    assert len(script("mnist_data").load(data).train.labels) == 640


# ------------------------------------------------------------------------------- Python


def test_random_numbers() -> None:
    """The order is a permutation, another one for each epoch and seed."""
    mnist_data = script("mnist_data")
    orders = [mnist_data.shuffled(1000, seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert all(np.array_equal(np.sort(order), np.arange(1000)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    numbers = mnist_data.uniform(1, 0, 100_000)
    assert numbers.dtype == SINGLE
    assert abs(numbers.mean()) < 0.01
    assert numbers.std() == pytest.approx(3**-0.5, abs=0.01)


@pytest.mark.slow
def test_train_on_the_emulator(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    plot = tmp_path / "loss.svg"
    code = script("train").main(
        ["--data", str(data), "--hidden", "32", "--batch", "64", "--steps", "40", "--lr", "0.1",
         "--test", "200", "--device", "cpu", "--plot", str(plot)]
    )  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    found = re.search(r"40 steps in .* loss ([\d.]+) -> ([\d.]+), ([\d.]+) % of 200", out)
    assert found, out
    assert float(found[2]) < 0.8 * float(found[1])
    assert float(found[3]) > 50
    assert plot.read_text().startswith("<?xml")


def test_train_equals_numpy(data: Path) -> None:
    mnist_data, train = script("mnist_data"), script("train")
    images, labels = digits(64, 4)
    network = train.Network(24, 2, "cpu")
    layers = mnist_data.initial_parameters(24, 2)
    for _ in range(2):
        x = mnist_data.as_inputs(images)
        layers, expected = numpy_step(layers, x, labels, 0.5)
        assert network.step(x, labels, 0.5) == pytest.approx(expected, abs=2e-3)
    for w, (w_expected, _) in zip(network.weights, layers, strict=True):
        assert np.abs(w - w_expected).max() < 1e-3


def test_train_refuses_wrong_data(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert script("train").main(["--data", str(tmp_path)]) == 3
    assert "train-images-idx3-ubyte.gz" in capsys.readouterr().err


@pytest.fixture
def measured() -> dict[str, Any]:
    """What compare.py measures, made up: two sizes, and a mode that failed."""
    losses = np.linspace(2.3, 0.3, 468)
    ours = [
        {"hidden": h, "step_us": 20.0, "accuracy": 0.975, "losses": losses.tolist()}
        for h in (128, 256)
    ]
    theirs = [
        {"mode": mode, "hidden": h, "step_us": us, "accuracy": 0.974, "losses": losses.tolist()}
        for h in (128, 256)
        for mode, us in (("eager", 400.0), ("graph", 60.0))
    ]
    failed = {"mode": "compile", "hidden": 128, "error": "RuntimeError: no"}
    return {
        "options": {"batch": 128, "epochs": 10, "accumulate": "f32"},
        "ours": ours,
        "torch": {"torch": "2.9", "gpu": "a GPU", "results": [*theirs, failed]},
    }


@slow
def test_compare(measured: dict, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The table, the plots and the README, from results that were saved."""
    pytest.importorskip("matplotlib")
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(measured))
    compare = script("compare")
    (tmp_path / "README.md").write_text(f"before\n{compare.BEGIN}\nold\n{compare.END}\nafter\n")
    assert compare.main(["--from", str(saved), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "| 128 | 20.0 | 400.0 (20.0x) | 60.0 (3.0x) | 97.50 % | 97.40 % |" in out
    assert "hidden 128, eager: 20.00x of 6.0x: met" in out
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n")
    assert readme.endswith("after\n")
    assert "| 256 |" in readme
    assert "old" not in readme
    assert json.loads((tmp_path / "results.json").read_text()) == measured
    pictures = [(tmp_path / name).read_bytes() for name in ("losses.svg", "times.svg")]
    assert compare.main(["--from", str(tmp_path / "results.json"), "--out", str(tmp_path)]) == 0
    assert [(tmp_path / name).read_bytes() for name in ("losses.svg", "times.svg")] == pictures


@pytest.mark.parametrize(
    "what", ["a step", "the means", "NaN", "NaN later", "the accuracy", "nothing"]
)
def test_compare_finds_what_disagrees(what: str, measured: dict) -> None:
    losses = measured["ours"][0]["losses"]
    if what == "a step":
        losses[7] += 0.1
    elif what == "the means":
        losses[200:260] = [x * 1.05 for x in losses[200:260]]
    elif what == "NaN":
        losses[7] = float("nan")
    elif what == "NaN later":
        losses[300] = float("nan")
    elif what == "the accuracy":
        measured["ours"][0]["accuracy"] = 0.9
    found = [row["problem"] for row in script("compare").rows(measured)]
    assert bool(found[0]) == (what != "nothing")
    assert found[1] == ""


@pytest.mark.parametrize(
    ("ours", "modes", "agree"),
    [
        ({70: 2.9}, {"compile": {60: 1.5}}, True),
        ({70: -2.9}, {"compile": {60: 1.2}, "eager-half": {65: 1.5}}, True),
        ({70: 3.1}, {"compile": {60: 1.5}, "eager-half": {65: 1.5}}, False),
        ({70: 3.1}, {"compile": {60: 1.5}, "eager-half": {65: float("nan")}}, False),
        ({70: 1.1}, {"compile": {60: 0.5}}, False),
        ({70: 0.9}, {"compile": {60: 0.1}}, True),  # never less than the tolerance
        ({50: 1.1}, {"compile": {60: 1.5}}, False),  # the modes still agreed
        ({70: 1.1}, {}, False),
        ({70: 1.1}, {"graph": {60: 1.5}}, False),  # its rounding is eager's
        ({70: 1.1}, {"compile": {60: float("nan")}}, False),
        ({70: 1.1}, {"compile": {60: float("inf")}}, False),
        ({70: float("nan")}, {"compile": {60: 1.5}}, False),
        ({70: float("inf")}, {"compile": {60: 1.5}}, False),
        (dict.fromkeys(range(60, 100), 2.0), {"compile": {60: 1.5}}, False),  # the means are apart
        ({120: 10}, {"compile": {60: 1.5}}, True),  # single steps count only among the first 100
    ],
)
def test_compare_allows_what_rounding_does_to_pytorch(
    ours: dict[int, float], modes: dict[str, dict[int, float]], agree: bool, measured: dict
) -> None:
    """Twice as far as other modes were from eager until that step; distances are in tolerances."""
    eager = np.array(measured["ours"][0]["losses"])

    def moved(by: dict[int, float]) -> list[float]:
        losses = eager.copy()
        for step, tolerances in by.items():
            losses[step] += tolerances * (0.02 + 0.02 * eager[step])
        return losses.tolist()

    compare = script("compare")
    measured["ours"][0]["losses"] = moved(ours)
    kept = [r for r in measured["torch"]["results"] if r["hidden"] == 256 or r["mode"] == "eager"]
    others = [{"mode": m, "hidden": 128, "losses": moved(by)[:100]} for m, by in modes.items()]
    measured["torch"]["results"] = [*kept, *others]
    table = compare.rows(measured)
    assert [not row["problem"] for row in table] == [agree, True]
    text = compare.markdown(table, measured)
    assert f"agree at {1 + agree} of 2 sizes" in text
    wider = agree and abs(ours.get(70, 0)) > 1
    assert ("- hidden 128: up to 0.17 apart; PyTorch's own modes 0.09" in text) == wider


def test_readme_has_the_results() -> None:
    """Its table is the one of results.json."""
    compare = script("compare")
    everything = json.loads((EXAMPLE / "results.json").read_text(encoding="utf-8"))
    table = compare.markdown(compare.rows(everything), everything)
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert f"{compare.BEGIN}\n\n{table}\n\n{compare.END}" in text


# ------------------------------------------------------------------------------- with nvcc


@pytest.fixture(scope="module")
def with_nvcc(shared_folder: Path) -> Path:
    """The program itself, built by CMake."""
    need("cmake")
    folder, jobs = shared_folder / "nvcc", min(os.cpu_count() or 2, 16)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gen").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gen "$@"\n')
    (folder / "gen").chmod(0o755)
    found = f"-Dgemmgen_DIR={ROOT / 'build'} -DGEMMGEN_EXECUTABLE={folder / 'gen'}"
    script_text = f"""
        export PYTHONPATH={ROOT}
        cmake -S {EXAMPLE} -B . {found} && cmake --build . -j {jobs}
    """
    (folder / "build.sh").write_text(script_text)
    return built(folder, ["sh", "-e", "build.sh"], "mnist")


@pytest.mark.slow
@pytest.mark.nvcc
def test_build_reads_both_kinds_of_files(with_nvcc: Path, data: Path) -> None:
    assert run(with_nvcc, "--help").out.startswith("usage: mnist --data DIR")
    plain = run(with_nvcc, "--data", data, "--check-data")
    assert plain == (0, "640 training and 200 test images: ok\n", "")
    packed = gzip.compress((data / IMAGES).read_bytes())
    (data / f"{IMAGES}.gz").write_bytes(packed)
    (data / IMAGES).unlink()
    found = run(with_nvcc, "--data", data, "--check-data")
    if "built without zlib" in found.err:
        pytest.skip("CMake found no zlib")
    assert found == plain
    (data / f"{IMAGES}.gz").write_bytes(packed[:-100])
    found = run(with_nvcc, "--data", data, "--check-data")
    assert found.code == 3
    assert "it is damaged or cut off" in found.err


@pytest.mark.slow
@pytest.mark.nvcc
def test_without_a_gpu(with_nvcc: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = run(with_nvcc, "--data", data)
    assert (found.code, found.out) == (4, "")
    assert found.err.startswith("error: there is no GPU to train on")


@pytest.mark.gpu
@pytest.mark.nvcc
@pytest.mark.parametrize("sums", ["f32", "f16"])
def test_program_on_a_gpu(sums: str, with_nvcc: Path, data: Path, tmp_path: Path) -> None:
    """The losses are numpy's, by replays and by launches."""
    mnist_data = script("mnist_data")
    images, labels = digits(640, 640)
    layers, expected = mnist_data.initial_parameters(72, 1), []
    for chosen in mnist_data.batches(640, 100, 12, 1):
        x = mnist_data.as_inputs(images[chosen])
        layers, loss = numpy_step(layers, x, labels[chosen], 0.2)
        expected.append(loss)
    curves = []
    for more in ([], ["--no-graph"]):
        losses = tmp_path / "losses.csv"
        found = run(
            with_nvcc, "--data", data, "--hidden", 72, "--batch", 100, "--steps", 12,
            "--accumulate", sums, "--losses", losses, *more,
        )  # fmt: skip
        assert found.code == 0, found.err
        curves.append(losses_of(losses))
    assert curves[0] == curves[1]
    assert curves[0] == pytest.approx(expected, abs=0.02 if sums == "f32" else 0.05)


@pytest.mark.gpu
@pytest.mark.nvcc
@pytest.mark.parametrize("sums", ["f32", "f16"])
def test_one_epoch_of_mnist(sums: str, with_nvcc: Path, tmp_path: Path) -> None:
    report = tmp_path / "json"
    folder = tmp_path / "data"
    folder.mkdir()
    for name in script("mnist_data").FILES:  # the program may have been built without zlib
        (folder / name).write_bytes(script("mnist_data").read_file(real_data() / name))
    found = run(
        with_nvcc, "--data", folder, "--hidden", 128, "--epochs", 1, "--accumulate", sums,
        "--bench", "--json", report,
    )  # fmt: skip
    assert found.code == 0, found.err
    summary = json.loads(report.read_text())
    assert summary["accuracy"] > 0.9
    assert summary["step_us_min"] <= summary["step_us"] <= summary["step_us_max"]
