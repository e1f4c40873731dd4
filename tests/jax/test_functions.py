"""`gen.jax.matmul` beside JAX's, on the emulator: shapes, types, transformations, mistakes."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import gen.jax as gj  # noqa: E402
from gen.errors import SpecError, UsageError  # noqa: E402
from gen.jax import elementwise  # noqa: E402
from gen.jax.primitive import Product  # noqa: E402
from gen.spec.kernel import EPILOGUES  # noqa: E402
from tests.support.slow import sift  # noqa: E402


def ints(*shape: int, dtype: Any = "float32", seed: int = 0) -> Any:
    """Small integers, whose sums are exact in any type."""
    made = np.random.default_rng(seed + sum(shape))
    return jnp.asarray(made.integers(-3, 4, shape)).astype(dtype)


def same(found: Any, wanted: Any) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(wanted, np.float64))


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (1, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((4,), (2, 4, 5)),
    ((0, 3, 4), (0, 4, 5)),
    ((2, 3, 0), (0, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_shapes_are_those_of_jax_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = ints(*a), ints(*b, seed=1)
    wanted = x @ y
    same(gj.matmul(x, y), wanted)
    same(jax.jit(gj.matmul)(x, y), wanted)
    same(gj.matmul(x, y, wanted, alpha=2, beta=-1), wanted)
    if x.ndim > 1 and y.ndim > 1:
        same(gj.matmul(x.mT, y.mT, transpose_a=True, transpose_b=True), wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "float8_e4m3fn"])
def test_types(dtype: str) -> None:
    a, b = ints(3, 16, dtype=dtype), ints(16, 8, dtype=dtype, seed=1)
    result = {"int8": "int32", "float8_e4m3fn": "bfloat16"}.get(dtype, dtype)
    wide = a.astype("float32") @ b.astype("float32")
    same(gj.matmul(a, b), wide.astype(result))
    if dtype != result or dtype == "int32":
        return
    same(gj.matmul(a, b, dtype={"float16": "f16", "bfloat16": "bf16"}[dtype] + "_f32"), wide)
    same(gj.matmul(a, b, bias=ints(8)), wide + ints(8))  # as the bias: float32


def test_float64_with_x64() -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        a, b = ints(3, 4, dtype="float64"), ints(4, 5, dtype="float64")
        same(gj.matmul(a, b), a @ b)
    finally:
        jax.config.update("jax_enable_x64", False)


def test_tf32_where_jax_is_told() -> None:
    """A number with more bits than tf32 has."""
    a, b = jnp.full((1, 8), 1 + 2.0**-13), jnp.eye(8)
    same(gj.matmul(a, b), a)
    with jax.default_matmul_precision("tensorfloat32"):
        same(gj.matmul(a, b), jnp.ones((1, 8)))
    same(gj.matmul(a, b, dtype="tf32"), jnp.ones((1, 8)))


def with_all(a: Any, b: Any, c: Any, bias: Any) -> Any:
    return gj.matmul(a, b, c, alpha=2, beta=-3, bias=bias, epilogue="linear_bias_relu")


def with_all_of_jax(a: Any, b: Any, c: Any, bias: Any) -> Any:
    return jax.nn.relu(2 * (a @ b) - 3 * c + bias)


def test_epilogues() -> None:
    args = ints(2, 3, 4), ints(4, 5), ints(2, 3, 5), ints(5)
    same(with_all(*args), with_all_of_jax(*args))
    assert set(elementwise.NAMED) == {name for name in EPILOGUES if name.count("_") > 1}
    gelu = gj.matmul(*args[:2], bias=args[3], epilogue="linear_bias_gelu")
    wanted = jax.nn.gelu(args[0] @ args[1] + args[3], approximate=False)
    np.testing.assert_allclose(gelu, wanted, rtol=1e-5, atol=1e-6)


EPILOGUE = "x * up[row, col] + scale[row] * bias[col] - gain"


def with_operands(a: Any, b: Any, up: Any, scale: Any, bias: Any) -> Any:
    operands = {"up": up, "scale": scale, "bias": bias, "gain": 2}
    return gj.matmul(a, b, epilogue=EPILOGUE, operands=operands)


def with_operands_of_jax(a: Any, b: Any, up: Any, scale: Any, bias: Any) -> Any:
    return (a @ b) * up + scale[..., :, None] * bias[..., None, :] - 2


OPERANDS = ints(2, 3, 4), ints(4, 5), ints(2, 3, 5, seed=1), ints(2, 3, seed=2), ints(5)


def test_epilogues_of_ones_own() -> None:
    same(with_operands(*OPERANDS), with_operands_of_jax(*OPERANDS))
    same(jax.jit(with_operands)(*OPERANDS), with_operands_of_jax(*OPERANDS))
    a, b, up, scale, bias = OPERANDS
    few = a, jnp.stack([b, -b]), up[0], scale[0], bias[None]
    same(with_operands(*few), with_operands_of_jax(*few))
    row = gj.matmul(a[0, 0], b, epilogue="x * up[row, col]", operands={"up": up[0, 0]})
    same(row, (a[0, 0] @ b) * up[0, 0])
    half = gj.matmul(a, b, epilogue="x * up[row, col]", operands={"up": up.astype("float16")})
    same(half, (a @ b) * up)


def test_numbers_are_told_apart_by_their_bits() -> None:
    """-0.0 is equal to 0.0, so that JAX would take what it has compiled for the other."""
    ones = jnp.ones((2, 2))
    for zero in (-0.0, 0.0):
        infinite = jnp.full((2, 2), np.copysign(np.inf, zero))
        same(gj.matmul(ones, ones, epilogue="1 / (x * s)", operands={"s": zero}), infinite)
        same(gj.matmul(ones, ones, alpha=zero, epilogue="1 / x"), infinite)
        offsets, half = np.array([1, 2]), ones.astype("float16")
        found = gj.grouped_matmul(
            half, half[None].repeat(2, 0), offsets, epilogue="1 / (x * s)", operands={"s": zero}
        )
        same(found, infinite.astype("float16"))
    nan = [Product("f32", "x", float("nan"), 0, False, False) for _ in range(2)]
    assert len({*nan}) == 1


# All that an expression may have, and the same by JAX.
EXPRESSIONS: list[tuple[str, Any]] = [
    ("row < col && !(M == 2) ? exp(x / 9) : tanh(-x)",
     lambda x, row, col: jnp.where(row < col, jnp.exp(x / 9), jnp.tanh(-x))),
    ("x * (row - 2) / 2 + (row - 2) % 2 * x + (row - 2) / 2",
     lambda x, row, col: x * (row - 2) / 2 + jnp.fmod(row - 2, 2) * x + jnp.trunc((row - 2) / 2)),
    ("min(max(x, -2), N) + clamp(x, 0, 1.5) + abs(x)",
     lambda x, row, col: x.clip(-2, 5) + x.clip(0, 1.5) + jnp.abs(x)),
    ("sigmoid(x) + silu(x) + gelu(x) + relu(x) + erf(x)",
     lambda x, row, col: jax.nn.sigmoid(x) + jax.nn.silu(x) + jax.nn.gelu(x, approximate=False)
     + jax.nn.relu(x) + jax.scipy.special.erf(x)),
    ("log(x * x + 1) + sqrt(x * x + 1 / 2)",
     lambda x, row, col: jnp.log(x * x + 1) + jnp.sqrt(x * x + 0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("epilogue", "wanted"), EXPRESSIONS)
def test_an_expression_is_the_kernels(epilogue: str, wanted: Any) -> None:
    """What JAX computes where a derivative is taken, and the kernel elsewhere."""
    a, b = ints(3, 4) + 0.3, ints(4, 5)
    row, col = jnp.arange(3)[:, None], jnp.arange(5)

    def ours(a: Any) -> Any:
        return gj.matmul(a, b, epilogue=epilogue)

    def theirs(a: Any) -> Any:
        return wanted(a @ b, row, col)

    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    close(ours(a), theirs(a))
    for found, expected in zip(*(jax.jvp(f, (a,), (a,)) for f in (ours, theirs)), strict=True):
        close(found, expected)


def test_gradients_of_an_epilogue() -> None:
    for order in (jax.jacfwd, jax.jacrev):
        ours, theirs = (
            order(f, (0, 1, 2, 3, 4))(*OPERANDS) for f in (with_operands, with_operands_of_jax)
        )
        for found, wanted in zip(ours, theirs, strict=True):
            same(found, wanted)
    grads = [
        jax.grad(lambda *x, f=f: (f(*x) ** 2).sum(), (0, 1, 2, 3, 4))
        for f in (with_operands, with_operands_of_jax)
    ]
    axes = (0, None, 0, 0, None)
    for found, wanted in zip(*(jax.vmap(g, axes)(*OPERANDS) for g in grads), strict=True):
        same(found, wanted)


def test_rows_do_not_depend_on_others() -> None:
    made = np.random.default_rng(0)
    a, b = jnp.asarray(made.random((20, 64), "f4")), jnp.asarray(made.random((64, 10), "f4"))
    every = gj.matmul(a, b, invariant="rows")
    same(gj.matmul(a[3:5], b, invariant="rows"), every[3:5])
    few, all_ = (
        jax.grad(lambda a: gj.matmul(a, b, invariant="rows").sum())(x) for x in (a[3:5], a)
    )
    same(few, all_[3:5])


# -- transformations ------------------------------------------------------------------------------


FEW = SHAPES[:1] + SHAPES[3:4] + SHAPES[8:9]


@pytest.mark.parametrize(("a", "b"), sift(SHAPES, FEW))
@pytest.mark.parametrize(("at", "bt"), sift([(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (1, 1)]))
def test_gradients(a: tuple[int, ...], b: tuple[int, ...], at: bool, bt: bool) -> None:
    x, y = ints(*a), ints(*b, seed=1)
    at, bt = at and x.ndim > 1, bt and y.ndim > 1
    weights = ints(*(x @ y).shape, seed=2)

    def ours(x: Any, y: Any) -> Any:
        one, other = x.mT if at else x, y.mT if bt else y
        return (weights * gj.matmul(one, other, transpose_a=at, transpose_b=bt)).sum()

    for found, wanted in zip(
        jax.grad(ours, (0, 1))(x, y),
        jax.grad(lambda x, y: (weights * (x @ y)).sum(), (0, 1))(x, y),
        strict=True,
    ):
        same(found, wanted)


def test_gradients_of_all_that_is_added() -> None:
    args = ints(2, 3, 4), ints(4, 5), ints(2, 3, 5), ints(5)
    for order in (jax.jacfwd, jax.jacrev):
        ours, theirs = (order(f, (0, 1, 2, 3))(*args) for f in (with_all, with_all_of_jax))
        for found, wanted in zip(ours, theirs, strict=True):
            same(found, wanted)


def test_a_gradient_copies_no_operand() -> None:
    """What is transposed is a flag of the primitive, and B's gradient is one product of a batch."""

    def loss(x: Any, w: Any) -> Any:
        return gj.matmul(x, w).sum()

    traced = jax.make_jaxpr(jax.grad(loss, (0, 1)))(ints(2, 3, 4), ints(4, 5))
    names = [equation.primitive.name for equation in traced.eqns]
    assert names.count("gemmgen_matmul") == 3
    assert "transpose" not in names


def test_derivatives_of_derivatives() -> None:
    x, y = ints(2, 3), ints(3, 2)
    ours, theirs = (
        jax.hessian(lambda x, f=f: (f(x, y) ** 2).sum())(x) for f in (gj.matmul, jnp.matmul)
    )
    same(ours, theirs)


def test_gradients_have_the_operands_type() -> None:
    x, y = ints(3, 8, dtype="float16"), ints(8, 4, dtype="float16")
    found = jax.grad(lambda x: gj.matmul(x, y, dtype="f16_f32").sum())(x)
    same(found, jnp.ones((3, 4), "float16") @ y.T)
    eighth = ints(16, 16, dtype="float8_e4m3fn")
    with pytest.raises(UsageError, match="no derivatives with operands of e4m3"):
        jax.grad(lambda x: gj.matmul(x, eighth, dtype="e4m3_f32").sum())(eighth)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (1, 2), (2, 0)])
def test_vmap(axes: tuple[int | None, int | None]) -> None:
    a, b = ints(4, 4, 4), ints(4, 4, 4, seed=1)
    same(jax.vmap(gj.matmul, axes)(a, b), jax.vmap(jnp.matmul, axes)(a, b))


def test_vmap_of_all_operands() -> None:
    args = ints(2, 3, 4), ints(4, 5), ints(2, 3, 5), ints(2, 5)
    axes = (0, None, 0, 0)
    same(jax.vmap(with_all, axes)(*args), jax.vmap(with_all_of_jax, axes)(*args))
    grads = [
        jax.grad(lambda *x, f=f: f(*x).sum(), (0, 1, 2, 3)) for f in (with_all, with_all_of_jax)
    ]
    for found, wanted in zip(*(jax.vmap(g, axes)(*args) for g in grads), strict=True):
        same(found, wanted)


def test_scan_and_checkpoint() -> None:
    """A loop's body, traced once, with its gradient."""
    x, y = ints(3, 3), ints(3, 3, seed=1)

    def powers(multiply: Any) -> Any:
        body = jax.checkpoint(lambda s, _: (multiply(s, y), None))
        return jax.grad(lambda x: jax.lax.scan(body, x, None, 3)[0].sum())(x)

    same(powers(gj.matmul), powers(jnp.matmul))


def test_without_jit() -> None:
    with jax.disable_jit():
        same(gj.matmul(ints(2, 3), ints(3, 2)), ints(2, 3) @ ints(3, 2))


# -- mistakes -------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    a = ints(4, 4)
    for wrong, error, match in [
        (lambda: gj.matmul(a, a[:3]), SpecError, "A is 4 x 4 and B is 3 x 4"),
        (lambda: gj.matmul(a[0], a[0]), SpecError, "both vectors"),
        (lambda: gj.matmul(a, 2), SpecError, "multiply with"),
        (lambda: gj.matmul(a, a, beta=1), UsageError, "beta=1 needs c"),
        (lambda: gj.matmul(a, a, a[:3], beta=1), SpecError, r"C has shape \(3, 4\)"),
        (lambda: gj.matmul(a, a, bias=a[0, :3]), SpecError, r"bias has shape \(3,\), which"),
        (lambda: gj.matmul(a, a, epilogue="linear_bias_relu"), UsageError, "pass bias"),
        (lambda: gj.matmul(a, a, epilogue="other"), UsageError, "unknown epilogue"),
        (lambda: gj.matmul(a, a, epilogue="x * up[col]"), UsageError, "needs up"),
        (lambda: gj.matmul(a, a, epilogue="x * up[col]", operands={"up": a}), SpecError,
         r"up has shape \(4, 4\), which does not broadcast to \(4,\)"),
        (lambda: gj.matmul(a, a, epilogue="x * left[col]", operands={"left": a[0]}), SpecError,
         "use another name"),
        (lambda: jax.jit(lambda g: gj.matmul(a, a, epilogue="x * gain", operands={"gain": g}))(2.0),
         UsageError, "gain is traced"),
        (lambda: gj.matmul(a, a, epilogue="relu(x)", bias=a[0]), UsageError, "as an operand"),
        (lambda: gj.matmul(a, a, operands={"up": a}), UsageError, "epilogue=linear takes none"),
        (lambda: gj.matmul(a, a, invariant="columns"), UsageError, "unknown invariant"),
        (lambda: gj.matmul(a[0], a, transpose_a=True), UsageError, "no transpose"),
        (lambda: gj.matmul(a, a.astype("float16")), SpecError, "A is f32 and B is f16"),
        (lambda: gj.matmul(a[None] * jnp.ones((2, 1, 1)), jnp.ones((3, 4, 4))), SpecError,
         r"batches \(2,\) of A and \(3,\) of B do not broadcast"),
        (lambda: jax.jit(lambda x: gj.matmul(a, a, alpha=x))(2.0), UsageError, "alpha is traced"),
        (lambda: gj.matmul(None, a), UsageError, "A is a NoneType; pass an array"),
        (lambda: gj.matmul(a[0], a, jnp.array(2.0), beta=1), SpecError, r"C has shape \(\), which"),
        (lambda: gj.matmul(a, a, dtype=jnp.float32), UsageError, "is no text; use the name of a"),
        (lambda: gj.matmul(ints(64, 1024), ints(1024, 2048)), UsageError,
         r"64 x 2048 x 1024 on the CPU .* or use jax\.numpy\.matmul"),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            wrong()
    for one, number in itertools.product((a, a[0]), (2, jnp.array(2.0), [2.0])):
        with pytest.raises((UsageError, SpecError), match=r"operand 'u' is a|u has shape \("):
            gj.matmul(one, a, epilogue="x * u[row, col]", operands={"u": number})
