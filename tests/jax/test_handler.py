"""The custom call of GPUs, on the CPU: XLA's handler as it is, with kernels of the host's.

What a GPU would do is the launchers' part, which tests/source/cpp compares with the plans.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.interpreters import mlir  # noqa: E402

import gen  # noqa: E402
import gen.jax as gj  # noqa: E402
from gen.api.call import BIAS, RESULT, A, B  # noqa: E402
from gen.compile import host  # noqa: E402
from gen.errors import MissingError  # noqa: E402
from gen.jax import libraries, lowering  # noqa: E402
from gen.jax.primitive import Product, matmul_p  # noqa: E402
from gen.prove.launchers.program import compile_cpp  # noqa: E402
from gen.source.cpp.embed import embedded_specs  # noqa: E402
from gen.source.templates import template_dir  # noqa: E402
from gen.spec.kernel import KernelSpec  # noqa: E402
from gen.spec.problem import Alignment  # noqa: E402
from tests import ROOT  # noqa: E402
from tests.jax.test_functions import (  # noqa: E402
    ints,
    same,
    with_all,
    with_all_of_jax,
    with_operands,
    with_operands_of_jax,
)
from tests.support.launchers import letter  # noqa: E402
from tests.support.programs import need  # noqa: E402
from tests.support.slow import sift, slow  # noqa: E402

HERE, TEMPLATES = Path(__file__).parent, template_dir() / "jax"
GPU = SimpleNamespace(
    name="NVIDIA H200", format="cubin", multiprocessors=132, target=lambda arch: "sm_90a"
)


def register_on_host() -> None:
    """Makes the handler known to XLA's CPU backend."""
    need("g++")
    text = (HERE / "host.cpp").read_text(encoding="utf-8")
    made_of = jax.__version__ + (TEMPLATES / "handler.cpp").read_text(encoding="utf-8")
    path = host.library({"host.cpp": text}, [str(TEMPLATES), jax.ffi.include_dir()], made_of)
    handler = ctypes.CDLL(str(path)).multiply_on_host
    jax.ffi.register_ffi_target(libraries.TARGET, jax.ffi.pycapsule(handler), platform="cpu")


def lower(rule: Any) -> None:
    """Has the CPU's backend lower the primitive by a rule."""
    mlir.register_lowering(matmul_p, mlir.lower_fun(rule, multiple_results=False), platform="cpu")
    jax.clear_caches()


def reference(spec: KernelSpec, arch: str) -> str:
    """A library of the host in the place of a kernel's."""
    assert arch == "sm_90a"
    text = (HERE / "reference.cpp").read_text(encoding="utf-8")
    head = f'#define LAYOUTS "{spec.layouts}"\n#define WORKSPACE {int(spec.row.takes_workspace)}\n'
    head += f'#define EPILOGUE "{"own" if spec.fused else "bias" if spec.has_bias else ""}"\n'
    grouped = "k" if spec.grouped_k else "rows" if spec.grouped else ""
    head += f'#define GROUPED "{grouped}"\n'
    product = (TEMPLATES / "product.h").read_text(encoding="utf-8")
    return str(host.library({"reference.cpp": head + text, "product.h": product}))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products on the CPU as custom calls of kernels of the host."""
    register_on_host()
    monkeypatch.setattr(libraries, "kernel", reference)
    lower(partial(lowering.call, gpu=GPU))
    yield
    lower(lowering.on_cpu)


@pytest.mark.parametrize("dtype", ["f32", "tf32"])  # one with a workspace
def test_the_call_multiplies(called: None, dtype: str) -> None:
    def ours(a: Any, b: Any, **flags: bool) -> Any:
        return gj.matmul(a, b, dtype=dtype, **flags)

    for a, b in [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 2, 5, 3), (2, 1, 3, 5))]:
        x, y = ints(*a), ints(*b, seed=1)
        same(ours(x, y), x @ y)
        same(ours(x.mT, y.mT, transpose_a=True, transpose_b=True), x @ y)
        grads = [jax.grad(lambda x, y, f=f: f(x, y).sum(), (0, 1)) for f in (ours, jnp.matmul)]
        for found, wanted in zip(*(g(x, y) for g in grads), strict=True):
            same(found, wanted)
    x = ints(3, 1, 3, 4)
    same(ours(x, ints(3, 4, 5)), x @ ints(3, 4, 5))
    same(ours(ints(3, 0), ints(0, 5)), jnp.zeros((3, 5)))


def test_the_call_adds_c_and_the_bias_of_each_product(called: None) -> None:
    args = ints(2, 3, 4), ints(4, 5), ints(2, 3, 5), ints(2, 5)
    for axes in ((0, None, 0, 0), (None, None, None, 0), (0, None, None, None)):
        picked = [x if axis == 0 or x.ndim < n else x[0] for x, axis, n in zip(
            args, axes, (3, 3, 3, 2), strict=True)]  # fmt: skip

        def linear(a: Any, b: Any, c: Any, bias: Any) -> Any:
            return gj.matmul(a, b, c, alpha=2, beta=-3, bias=bias)

        found = jax.vmap(linear, axes)(*picked)
        same(found, jax.vmap(lambda a, b, c, bias: 2 * (a @ b) - 3 * c + bias, axes)(*picked))
    for found, wanted in zip(
        *(jax.grad(lambda *x, f=f: f(*x).sum(), (0, 1, 2))(*args[:3], args[3][0])
          for f in (with_all, with_all_of_jax)),
        strict=True,
    ):  # fmt: skip
        same(found, wanted)


def test_the_call_has_an_epilogue_of_ones_own(called: None) -> None:
    for a, b, up, scale, bias in [
        ((3, 4), (4, 5), (3, 5), (3,), (5,)),
        ((2, 3, 4), (4, 5), (2, 3, 5), (2, 3), (5,)),  # the rows of one product
        ((2, 3, 4), (2, 4, 5), (2, 3, 5), (1, 3), (5,)),
        ((3, 4), (2, 4, 5), (3, 5), (2, 3), (2, 5)),
    ]:
        args = [ints(*shape, seed=i) for i, shape in enumerate((a, b, up, scale, bias))]
        same(with_operands(*args), with_operands_of_jax(*args))
        found = jax.vmap(with_operands)(*(jnp.stack([x, -x]) for x in args))
        each = [with_operands_of_jax(*(sign * x for x in args)) for sign in (1, -1)]
        same(found, jnp.stack(each))


def test_a_batch_is_one_launch(called: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    fitted = lowering.fitted
    monkeypatch.setattr(
        lowering, "fitted", lambda *args: chosen.append(fitted(*args)) or chosen[-1]
    )
    a, b = ints(4, 6, 5), ints(4, 5, 7)
    for function, products, rows in [
        (lambda: gj.matmul(a, b), 4, 6),
        (lambda: gj.matmul(a, b[0]), 1, 24),
        (lambda: gj.matmul(a[0], b), 4, 6),
        (lambda: jax.vmap(gj.matmul)(a, b), 4, 6),
        (lambda: jax.vmap(jax.vmap(gj.matmul, (None, 0)), (0, None))(a, b[:1]), 1, 24),
    ]:
        chosen.clear()
        jax.clear_caches()
        function().block_until_ready()
        (call,) = chosen
        assert (call.problem.batch.products, call.problem.shape.m) == (products, rows)
        assert len(call.offsets) == 1


def test_what_the_call_says(called: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "kernel", lambda spec, arch: "/nowhere.so")
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"cannot load .* trace the"):
        gj.matmul(ints(2, 7), ints(7, 2))

    def refusing(spec: KernelSpec, arch: str) -> str:
        text = '#include "product.h"\nint gen_jax_launch(const gen_jax::Product&) { return 209; }\n'
        return str(host.library({"refusing.cpp": text}, [str(TEMPLATES)]))

    monkeypatch.setattr(libraries, "kernel", refusing)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"is refused with CUresult \(209\)"):
        gj.matmul(ints(2, 8), ints(8, 2))


def test_without_a_gpu_or_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    product = Product("f32", "linear", 1.0, 0.0, False, False)
    on_gpu = partial(lowering.on_gpu, ints(2, 2), ints(2, 2), product=product)
    monkeypatch.setattr(lowering.driver, "why_no_gpu", lambda: "no driver")
    with pytest.raises(MissingError, match=r"finds none \(no driver\); trace the function on"):
        on_gpu()
    monkeypatch.setattr(lowering.driver, "why_no_gpu", lambda: None)
    monkeypatch.setattr(host, "COMPILERS", ())
    libraries.register.cache_clear()
    with pytest.raises(MissingError, match=r"no C\+\+ compiler .* install one, such as g\+\+"):
        on_gpu()


def test_the_handler_is_registered_for_gpus() -> None:
    need("g++")
    libraries.register.cache_clear()
    libraries.register()


# -- the driver -----------------------------------------------------------------------------------


_LAUNCHES = """
import sys
from functools import partial
from itertools import chain, pairwise
from unittest import mock
from types import SimpleNamespace
import gen.jax as gj
from gen.jax import lowering
from tests.jax import test_handler
from tests.jax.test_functions import ints
from tests.support.launchers import FAKE_CODE, NVRTC

test_handler.register_on_host()
test_handler.lower(partial(lowering.call, gpu=test_handler.GPU))
with mock.patch(NVRTC, return_value=SimpleNamespace(code=FAKE_CODE)):
    a, b, up = (ints(*shape, dtype="{dtype}") for shape in {shapes})
    more = dict(epilogue="x * up[row, col]", operands=dict(up=up)) if {own} else {{}}
    gj.matmul(a, b, **more).block_until_ready()
"""


def on_fake_driver(
    folder: Path, dtype: str, shapes: Any, own: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """A product of JAX on the fake driver, which says what it is asked for."""
    library = ("-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1")
    compile_cpp(folder, str(HERE / "driver.cpp"), *library)
    script = _LAUNCHES.format(dtype=dtype, shapes=shapes, own=own)
    paths = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **paths, "CC": "90", "CONTEXT": "201", **more},
    )  # fmt: skip


# Types; shapes of A, B and an operand of the epilogue; whether it has one; calls of a launcher.
PLANNED: list[tuple[str, Any, bool, int]] = [
    ("float32", ((2, 3, 40, 24), (3, 24, 72), (72,)), False, 2),
    ("float16", ((2, 33, 65), (2, 65, 7), (33, 7)), False, 1),
    ("float32", ((3, 5, 24), (3, 24, 9), (3, 5, 9)), True, 3),
    ("float16", ((3, 5, 24), (24, 9), (3, 5, 9)), True, 1),
]


@pytest.mark.parametrize(("dtype", "shapes", "own", "count"), sift(PLANNED, PLANNED[2:3]))
def test_launches_are_the_plans(
    tmp_path: Path, dtype: str, shapes: Any, own: bool, count: int
) -> None:
    """In the stream's context alone, each batch's kernels with its own operands."""
    need("g++")
    row = {"float32": "f32", "float16": "f16"}[dtype]
    epilogue = f"x * up[row, col] where up={row}[row, col]" if own else "linear"
    product = Product(row, epilogue, 1.0, 0.0, False, False)
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    call = lowering.fitted(product, tuple(arrays[: 3 if own else 2]))
    assert len(call.offsets) == count
    aligned = [Alignment(*(begins[i] % 16 == 0 for i in (A, B, RESULT))) for begins in call.offsets]
    least = Alignment(*map(all, zip(*aligned, strict=True)))
    kernel = gen.Kernel(dtype=row, epilogue=epilogue)
    spec, arch = kernel.choose(call, GPU, least)
    (spec,) = embedded_specs(spec, [arch])
    plans = [spec.plan(call.problem, each, GPU.multiprocessors).launches for each in aligned]
    kinds = {
        launch.kernel: "".join(map(letter, launch.args.values()))
        for plan in plans
        for launch in plan
    }
    parameters = " ".join(f"{k}={v}" for k, v in kinds.items())
    done = on_fake_driver(tmp_path, dtype, shapes, own, PARAMETERS=parameters)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert (said[0], said[-2]) == ("push", "pop"), said
    found = [line.split()[1:] for line in said if line.startswith("launch ")]
    wanted = list(chain(*plans))
    assert [words[0] for words in found] == [launch.kernel for launch in wanted]
    starts: dict[str, list[int]] = {"D": [], "up": []}
    for words, launch in zip(found, wanted, strict=True):
        shape = (*launch.grid, *launch.block, launch.shared_bytes)
        assert tuple(map(int, words[1:8])) == shape
        for word, (name, value) in zip(words[9:], launch.args.items(), strict=True):
            if hasattr(value, "tobytes"):
                assert int(word, 16) == int.from_bytes(value.tobytes(), "little"), name
            if name in starts:
                starts[name].append(int(word, 16))
    for name, which in (("D", RESULT), *([("up", BIAS + 1)] if own else [])):
        moves = [at - starts[name][0] for at in starts[name]]
        assert moves == [begins[which] for begins in call.offsets], name


@slow
def test_what_the_driver_refuses_has_its_name(tmp_path: Path) -> None:
    need("g++")
    done = on_fake_driver(tmp_path, "float32", ((3, 4), (4, 5), (5,)), LOAD="200")
    assert "a launch is refused with CUDA_ERROR_INVALID_IMAGE (200)" in done.stderr
