"""`gen.jax.grouped_matmul`: groups of rows and along K, with derivatives, on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import gen.jax as gj  # noqa: E402
from gen.errors import SpecError, UsageError  # noqa: E402
from gen.jax import groups, libraries, lowering  # noqa: E402
from gen.kernels.registry import make_spec  # noqa: E402
from tests.jax import test_handler  # noqa: E402
from tests.jax.test_functions import ints, same  # noqa: E402

ENDS = np.array([2, 2, 7, 9], np.int32)
ROWS, K, N = 10, 5, 3  # the last row is in no group
OF_ROWS, ALONG_K = ((ROWS, K), (4, K, N)), ((K, ROWS), (ROWS, N))


@pytest.fixture(autouse=True)
def with_x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def by_jax(a: Any, b: Any, ends: Any = ENDS) -> Any:
    """Group by group, with zeros where no group is."""
    bounds = list(zip([0, *ends], ends, strict=False))
    if b.ndim == 2:
        return jnp.stack([a[:, i:j] @ b[i:j] for i, j in bounds])
    parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(bounds)]
    return jnp.concatenate([*parts, a[ends[-1] :] @ jnp.zeros_like(b[0])])


def operands(shapes: Any, dtype: str = "float64") -> list[Any]:
    return [ints(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_products(shapes: Any, dtype: str) -> None:
    a, b = operands(shapes, dtype)
    wanted = by_jax(a, b)
    same(gj.grouped_matmul(a, b, ENDS), wanted)
    same(jax.jit(gj.grouped_matmul)(a, b, jnp.asarray(ENDS, jnp.int64)), wanted)
    found = gj.grouped_matmul(a.mT, b.mT, ENDS, transpose_a=True, transpose_b=True)
    same(found, wanted)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_derivatives(shapes: Any, transposed: bool) -> None:
    a, b = operands(shapes)
    weights = ints(*by_jax(a, b).shape, dtype="float64", seed=9)

    def ours(a: Any, b: Any) -> Any:
        if transposed:
            return gj.grouped_matmul(a.mT, b.mT, ENDS, transpose_a=True, transpose_b=True)
        return gj.grouped_matmul(a, b, ENDS)

    both = [jax.grad(lambda *x, f=f: (f(*x) * weights).sum(), (0, 1)) for f in (ours, by_jax)]
    for found, wanted in zip(*(g(a, b) for g in both), strict=True):
        same(found, wanted)
    for found, wanted in zip(
        *(jax.jvp(f, (a, b), (2 * a, -b)) for f in (ours, by_jax)), strict=True
    ):
        same(found, wanted)


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_derivatives_of_derivatives(shapes: Any) -> None:
    both = [
        jax.grad(lambda a, b, f=f: (jax.grad(lambda b: (f(a, b) ** 2).sum())(b) ** 2).sum(), (0, 1))
        for f in (lambda a, b: gj.grouped_matmul(a, b, ENDS), by_jax)
    ]
    for found, wanted in zip(*(g(*operands(shapes)) for g in both), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_vmap_and_a_compiled_step() -> None:
    a, b = operands(OF_ROWS)
    pairs, ends = jnp.stack([a, -a]), jnp.stack([ENDS, ENDS + 1])
    found = jax.vmap(gj.grouped_matmul, (0, None, 0))(pairs, b, ends)
    same(found, jnp.stack([by_jax(a, b), by_jax(-a, b, ENDS + 1)]))

    @jax.jit
    def step(a: Any, b: Any, sizes: Any) -> Any:
        return jax.grad(lambda b: gj.grouped_matmul(a, b, jnp.cumsum(sizes)).sum())(b)

    sizes = jnp.diff(ENDS, prepend=0)
    same(step(a, b, sizes), jax.grad(lambda b: by_jax(a, b).sum())(b))


def test_nothing() -> None:
    a, b = operands(OF_ROWS)
    same(gj.grouped_matmul(a, b[:0], ENDS[:0]), jnp.zeros((ROWS, N)))
    same(gj.grouped_matmul(a[:0], b, ENDS), jnp.zeros((0, N)))
    every = a, b[:0], jnp.zeros((0, N))
    found, gradients = jax.value_and_grad(_with_bias, (0, 1, 2))(*every)
    assert found == 0
    for x, gradient in zip(every, gradients, strict=True):
        same(gradient, jnp.zeros_like(x))
    same(gj.grouped_matmul(a[:0].mT, jnp.zeros((0, N)), ENDS), jnp.zeros((4, K, N)))


def _with_bias(a: Any, b: Any, bias: Any) -> Any:
    return gj.grouped_matmul(a, b, ENDS[:0], bias=bias).sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.ones(4)}, "offsets is float64 .* use a vector of int32"),
        ({"offsets": ENDS[None]}, "use a vector of int32"),
        ({"offsets": None}, "offsets is a NoneType; pass an array"),
        ({"dtype": jnp.float32}, "is no text; use the name of a row"),
        ({"offsets": ENDS[:3]}, "4 matrices, and offsets has 3"),
        ({"a": jnp.ones((2, ROWS, K))}, "groups of rows take A .M, K."),
        ({"b": np.ones((4, K + 1, N))}, "not as many as B's rows"),
        ({"a": ints(ROWS, K), "b": ints(4, K, N)}, "no kernel multiplies groups of rows of f32"),
        ({"a": np.ones((4000, 400)), "b": np.ones((4, 400, 400))}, "more than gen's emulator"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    given = {"a": jnp.ones((ROWS, K)), "b": jnp.ones((4, K, N)), "offsets": ENDS}
    with pytest.raises((SpecError, UsageError), match=message):
        gj.grouped_matmul(**{**given, **change})


def test_bytes_have_no_derivatives() -> None:
    a, b = (x.astype("float8_e4m3fn") for x in operands(OF_ROWS))
    assert gj.grouped_matmul(a, b, ENDS).dtype == jnp.bfloat16
    with pytest.raises(UsageError, match="no derivatives with operands of e4m3"):
        jax.grad(lambda a: gj.grouped_matmul(a, b, ENDS).astype("float32").sum())(a)


def test_the_program_says_what_it_is() -> None:
    a, b = operands(OF_ROWS)
    assert str(groups.grouped_p) in str(jax.make_jaxpr(gj.grouped_matmul)(a, b, ENDS))


# -- the custom call of GPUs, on the CPU: see test_handler ----------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Products as custom calls of kernels of the host; the specifications of these."""
    specs: list[Any] = []

    def reference(spec: Any, arch: str) -> str:
        specs.append(spec)
        return test_handler.reference(spec, arch)

    test_handler.register_on_host()
    monkeypatch.setattr(libraries, "kernel", reference)
    call = partial(groups.call, gpu=test_handler.GPU)
    lowering.lower(groups.grouped_p, call, call)
    jax.clear_caches()
    yield specs
    lowering.lower(groups.grouped_p, groups.on_gpu, groups.on_cpu)
    jax.clear_caches()


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_the_call_multiplies(called: list[Any], shapes: Any) -> None:
    """Rows behind the last group are 0, whatever was in the result's memory."""
    a, b = operands(shapes)
    wanted = by_jax(a, b)
    same(gj.grouped_matmul(a, b, ENDS), wanted)
    same(gj.grouped_matmul(a.mT, b.mT, ENDS, transpose_a=True, transpose_b=True), wanted)
    both = [jax.grad(lambda *x, f=f: (f(*x) ** 2).sum(), (0, 1)) for f in (
        lambda a, b: gj.grouped_matmul(a, b, ENDS), by_jax)]  # fmt: skip
    for found, want in zip(*(g(a, b) for g in both), strict=True):
        same(found, want)
    assert {spec.grouped_k for spec in called} == {False, True}


@pytest.mark.parametrize("along_k", [False, True])
def test_launchers_take_what_the_handler_gives(along_k: bool) -> None:
    more = {"layout": "crr", "grouped_k": True} if along_k else {"grouped": True}
    up = "x * up[row, col] + at[row] where up=f16[row, col], at=f16[row]"
    arguments = list(libraries._arguments(make_spec("mma", epilogue=up, **more)))
    assert "p.batch" in arguments
    assert "static_cast<const int*>(p.further[2])" in arguments


# --- epilogues ---------------------------------------------------------------------------------

_SCALED = "silu(x + bias[group, col]) * scale[group] + slope * group"
_OWN = {"bias": ((4, N), 5), "scale": ((4,), 6)}


def _own() -> list[Any]:
    return [ints(*shape, dtype="float64", seed=seed) for shape, seed in _OWN.values()]


def _scaled(x: Any, bias: Any, scale: Any) -> Any:
    """By JAX, of the products x."""
    if x.ndim == 3:
        bias, scale, ids = bias[:, None], scale[:, None, None], jnp.arange(4)[:, None, None]
        return jax.nn.silu(x + bias) * scale + 2.0 * ids
    ids = np.array([0, 0, 2, 2, 2, 2, 2, 3, 3, 3])
    found = jax.nn.silu(x + bias[ids]) * scale[ids][:, None] + 2.0 * ids[:, None]
    return jnp.where(np.arange(ROWS)[:, None] < 9, found, 0)


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_epilogues_of_groups(shapes: Any) -> None:
    def ours(a: Any, b: Any, bias: Any, scale: Any) -> Any:
        given = {"bias": bias, "scale": scale, "slope": 2.0}
        return gj.grouped_matmul(a, b, ENDS, epilogue=_SCALED, operands=given)

    def wanted(a: Any, b: Any, *own: Any) -> Any:
        return _scaled(by_jax(a, b), *own)

    every = [*operands(shapes), *_own()]
    np.testing.assert_allclose(jax.jit(ours)(*every), wanted(*every), rtol=1e-12)
    both = [jax.grad(lambda *x, f=f: f(*x).sum(), (0, 1, 2, 3)) for f in (ours, wanted)]
    for one, other in zip(*(g(*every) for g in both), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shapes", [OF_ROWS, ALONG_K])
def test_each_group_has_a_bias(shapes: Any) -> None:
    a, b = operands(shapes)
    bias, x = _own()[0], by_jax(a, b)
    of_row = bias[:, None] if x.ndim == 3 else bias[np.array([0, 0, 2, 2, 2, 2, 2, 3, 3, 3])]
    for given, added in ((bias, of_row), (bias[0], bias[0])):
        got = gj.grouped_matmul(a, b, ENDS, bias=given, epilogue="linear_bias_relu")
        same(got[..., :9, :], jax.nn.relu(x + added)[..., :9, :])


def test_operands_of_groups_that_do_not_fit() -> None:
    a, b = operands(OF_ROWS)
    for given in ({}, {"scale": jnp.ones(3)}, {"scale": 2.0}):
        with pytest.raises((SpecError, UsageError), match="scale"):
            gj.grouped_matmul(a, b, ENDS, epilogue="x * scale[group]", operands=given)
    with pytest.raises(UsageError, match="epilogue=linear_bias adds a bias; pass bias"):
        gj.grouped_matmul(a, b, ENDS, epilogue="linear_bias")
