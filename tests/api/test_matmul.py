"""`gen.matmul` and `gen.Kernel`: NumPy arrays on the emulator, and what is refused."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gen
from gen.api.call import Arguments, Wanted
from gen.api.problem import fit
from gen.api.views import View
from gen.device.driver import why_no_gpu
from gen.device.gpus import GPUS
from gen.dispatch import folders
from gen.dispatch.ranking import Product, rank
from gen.dispatch.table import Table
from gen.errors import (
    BudgetError,
    CheckError,
    CompileError,
    GenError,
    MissingError,
    SpecError,
    UsageError,
)
from gen.kernels.registry import VARIANTS, make_spec
from gen.source.render import render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALIGNED
from tests.support import tuned
from tests.support.slow import each, sift, slow


def ints(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Small integers, whose products are exact in any type."""
    return np.random.default_rng((seed, *shape)).integers(-4, 5, shape).astype(dtype)


def multiply(*args: Any, **kwargs: Any) -> Any:
    """On the emulator, also where there is a GPU."""
    return gen.matmul(*args, device="cpu", **kwargs)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


# -- what it computes ---------------------------------------------------------------------------

MEMORY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row": np.ascontiguousarray,
    "column": np.asfortranarray,
    "rows apart": lambda x: np.pad(x, ((0, 0), (2, 3)))[:, 2 : 2 + x.shape[1]],
    "columns apart": lambda x: np.pad(x.T, ((0, 0), (1, 3)))[:, 1 : 1 + x.shape[0]].T,
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
}


@slow
@settings(max_examples=60)
@given(
    sizes=st.tuples(*(st.integers(0, 9),) * 3),
    kinds=st.tuples(*(st.sampled_from(sorted(MEMORY)),) * 3),
    order=st.sampled_from(["row", "column"]),
    alpha=st.sampled_from([1, -2, 3.0]),
    beta=st.sampled_from([0, 1, -3]),
    dtype=st.sampled_from([np.float32, np.int8]),
    gives_out=st.booleans(),
)
def test_any_view_of_any_shape(
    sizes: tuple[int, int, int],
    kinds: tuple[str, str, str],
    order: str,
    alpha: float,
    beta: float,
    dtype: Any,
    gives_out: bool,
) -> None:
    m, n, k = sizes
    result = np.int32 if dtype is np.int8 else dtype
    a, b = MEMORY[kinds[0]](ints(m, k, dtype=dtype)), MEMORY[kinds[1]](ints(k, n, dtype=dtype))
    c = MEMORY[order](ints(m, n, dtype=result, seed=1))
    out = MEMORY["rows apart" if order == "row" else "columns apart"](c * 0 + 77)
    beside = None if out.base is None else out.base.copy()
    want = alpha * exact(a, b) + beta * c
    got = multiply(
        a, b, c, alpha=alpha, beta=beta, out=out if gives_out else None, variant="tiles", tile=4
    )
    np.testing.assert_array_equal(got, want)
    assert got.dtype == result
    if gives_out:
        assert got is out
        out[...] = 77
        if beside is not None and out.base is not None:
            np.testing.assert_array_equal(out.base, beside)  # nothing beside it has changed


@pytest.mark.parametrize(
    ("dtype", "result", "name"),
    [
        (np.float32, np.float32, "f32"),
        (np.float64, np.float64, "f64"),
        (np.int32, np.int32, "i32"),
        (np.int8, np.int32, "i8"),
        (np.float16, np.float16, "f16"),
        (np.float16, np.float32, "f16_f32"),
    ],
)
@pytest.mark.parametrize("layout", sift(["rr", "cr", "rc", "cc"], ["cr"]))
def test_auto_computes_every_type(dtype: Any, result: Any, name: str, layout: str) -> None:
    a, b = (
        np.asarray(ints(*size, dtype=dtype), order="C" if order == "r" else "F")
        for size, order in zip(((37, 21), (21, 50)), layout, strict=True)
    )
    out = np.empty((37, 50), result) if name == "f16_f32" else None
    got = multiply(a, b, out=out)
    assert got.dtype == result
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, exact(a, b))


@pytest.mark.parametrize("variant", sift(VARIANTS, ["naive", "gemv", "mma_tma", "skinny"]))
def test_every_variant(variant: str) -> None:
    dtype = np.float16 if "f16" in VARIANTS[variant].dtypes else np.float32
    a, b = ints(17, 40, dtype=dtype), ints(40, 9, dtype=dtype)
    np.testing.assert_array_equal(multiply(a, b, variant=variant), exact(a, b))


@pytest.mark.parametrize("dtype", each(2, [np.float16, np.float32, np.float64]))
@pytest.mark.parametrize("epilogue", ["linear_bias", "linear_bias_relu", "linear_bias_gelu"])
def test_epilogues(epilogue: str, dtype: Any) -> None:
    a, b, bias = (ints(*s, dtype=dtype) for s in ((9, 16), (16, 20), (20,)))
    x = exact(a, b) / 8 + bias
    want = {
        "linear_bias": x,
        "linear_bias_relu": np.maximum(x, 0),
        "linear_bias_gelu": 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    }[epilogue]
    got = multiply(a, b, bias=bias, alpha=1 / 8, epilogue=epilogue)
    tolerance = {np.float16: 2e-2, np.float32: 1e-5, np.float64: 1e-14}[dtype]
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_a_bias_alone_is_added() -> None:
    a, b, bias = ints(5, 8, dtype=np.float16), ints(8, 6, dtype=np.float16), ints(6)
    got = multiply(a, b, bias=bias)
    assert got.dtype == np.float32  # as the bias
    np.testing.assert_array_equal(got, exact(a, b) + bias)


def test_tf32_is_chosen_by_name() -> None:
    a, b = ints(5, 8), ints(8, 6)
    np.testing.assert_array_equal(multiply(a, b, dtype="tf32"), exact(a, b))
    fine = np.full((1, 1), 1 + 2**-20, np.float32)
    assert multiply(fine, fine, dtype="tf32")[0, 0] != multiply(fine, fine)[0, 0]


def test_bfloat16() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = ints(5, 8).astype(bfloat16), ints(8, 6).astype(bfloat16)
    got = multiply(a, b)
    assert got.dtype == bfloat16
    np.testing.assert_array_equal(got.astype(np.float64), exact(a, b))
    out = np.empty((5, 6), np.float32)
    np.testing.assert_array_equal(multiply(a, b.T.copy().T, out=out), exact(a, b))
    c = ints(5, 6).astype(bfloat16)
    got = multiply(a, b, c, beta=1, bias=c[0])
    np.testing.assert_array_equal(
        got.astype(np.float64), (exact(a, b) + c.astype(np.float64) + c[0]).astype(bfloat16)
    )


def test_vectors_are_rows_and_columns() -> None:
    matrix, row, column = ints(5, 8), ints(10)[::2], ints(16)[::2]
    for got, want in (
        (multiply(row, matrix), exact(row, matrix)),
        (multiply(matrix, column), exact(matrix, column)),
        (multiply(row, matrix, column, beta=2), exact(row, matrix) + 2 * column),
    ):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)
    out = np.zeros((5, 3), np.float32)
    multiply(matrix, column, out=out[:, 1])  # a column of a larger matrix
    np.testing.assert_array_equal(out, np.outer(exact(matrix, column), [0, 1, 0]))


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_subclasses_of_arrays_are_arrays(tmp_path: Path) -> None:
    a, b = ints(5, 7), ints(7, 3)
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(5, 7))
    mapped[...] = a
    for kind in (np.asmatrix(a), mapped):
        np.testing.assert_array_equal(gen.matmul(kind, b), a @ b)
    with pytest.raises(GenError, match="B is a masked array, whose mask no kernel reads"):
        gen.matmul(a, np.ma.masked_less(b, 0))


def test_an_empty_sum_leaves_c() -> None:
    c = ints(3, 4)
    got = multiply(np.empty((3, 0), np.float32), np.empty((0, 4), np.float32), c, beta=2)
    np.testing.assert_array_equal(got, 2 * c)


def test_c_may_be_out() -> None:
    a, b, c = ints(6, 7), ints(7, 5), ints(6, 5)
    want = exact(a, b) + c
    assert multiply(a, b, c, beta=1, out=c) is c
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize(
    ("variant", "split_k"),
    sift(itertools.product(["mma", "mma_tma"], [1, 2]), [("mma", 2), ("mma_tma", 1)]),
)
def test_c_may_be_out_on_tensor_cores(variant: str, split_k: int) -> None:
    tiles = {"threadblock": f"64x64x{64 if variant == 'mma_tma' else 32}", "warp": "32x32"}
    a, b, c = (ints(*s, dtype=np.float16) for s in ((70, 130), (130, 75), (70, 75)))
    want = exact(a, b) - c
    multiply(a, b, c, beta=-1, out=c, variant=variant, split_k=split_k, **tiles)
    np.testing.assert_array_equal(c, want)


def test_a_new_result_has_the_order_of_c() -> None:
    a, b, c = ints(6, 7), ints(7, 5), np.asfortranarray(ints(6, 5))
    got = multiply(a, b, c, beta=1)
    assert got.flags.f_contiguous
    np.testing.assert_array_equal(got, exact(a, b) + c)


def test_c_is_not_read_where_beta_is_0() -> None:
    a, b = ints(6, 7), ints(7, 5)
    c = np.full((6, 5), np.nan, np.float32)
    np.testing.assert_array_equal(multiply(a, b, c), exact(a, b))


# -- kernels ------------------------------------------------------------------------------------


def test_a_kernel_takes_the_layouts_of_each_call() -> None:
    kernel = gen.Kernel("rec_tiles", tile=8, device="cpu")
    for a in (ints(9, 10), ints(10, 9).T):
        for b in (ints(10, 11), ints(11, 10).T):
            np.testing.assert_array_equal(kernel(a, b), exact(a, b))
    assert len(kernel._origin._modules) == 4


def test_a_specification_fixes_types_and_layouts() -> None:
    kernel = gen.Kernel(make_spec("tiles", dtype="i8", layout="cr" + "r", tile=8), device="cpu")
    a, b = ints(9, 10, dtype=np.int8), ints(10, 11, dtype=np.int8)
    np.testing.assert_array_equal(kernel(np.asfortranarray(a), b), exact(a, b))
    with pytest.raises(SpecError, match="A is row-major, but the kernel takes column-major"):
        kernel(a, b)
    with pytest.raises(SpecError, match=r"dtype=i8 has A and B in i8, .* not f32"):
        kernel(ints(9, 10), ints(10, 11))
    with pytest.raises(UsageError, match=r"arch and name cannot be chosen here: .*make_spec"):
        gen.Kernel("tiles", arch="sm_90", name="mine")
    with pytest.raises(UsageError, match="is complete"):
        gen.Kernel(make_spec("tiles"), tile=4)
    assert "tiles_i8_crr" in repr(kernel)
    assert repr(gen.Kernel("mma", stages=2)) == "<gen.Kernel mma, stages=2>"


def test_an_edited_file_is_what_runs(tmp_path: Path) -> None:
    source = render(make_spec("tiles", dtype="i32", tile=8, name="mine"))
    path = tmp_path / "mine.cu"
    assert "accumulator_t sum[kRowsPerThread] = {};" in source.text
    path.write_text(source.text.replace("x += beta *", "x += (beta + 1) *"))
    a, b, c = (ints(*s, dtype=np.int32) for s in ((5, 6), (6, 7), (5, 7)))
    for file in (path, str(path)):
        got = gen.Kernel(file, device="cpu")(a, b, c, beta=1)
        np.testing.assert_array_equal(got, exact(a, b) + 2 * c)
    plain = tmp_path / "plain.cu"
    plain.write_text("// nothing\n")
    with pytest.raises(UsageError, match="no gen-spec line"):
        gen.Kernel(plain)


def test_threads_have_runners_of_their_own() -> None:
    kernel, wrong = gen.Kernel("tiles", tile=4, device="cpu"), []

    def work(seed: int) -> None:
        a, b = ints(5 + seed, 6, seed=seed), ints(6, 7, seed=seed)
        for _ in range(3):
            if not np.array_equal(kernel(a, b), exact(a, b)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_the_emulator_finds_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "bad.cu"
    text = render(make_spec("naive")).text
    path.write_text(text.replace("row < M", "row < M + 1"))
    assert path.read_text() != text
    with pytest.raises(CheckError, match="A"):
        gen.Kernel(path, device="cpu")(ints(3, 4), ints(4, 5))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        pytest.param({}, "ran more than .* thread-instructions", marks=slow),
        ({"time_budget": 0.1}, "longer than 0.1 secon"),
    ],
)
def test_an_endless_kernel_is_stopped(tmp_path: Path, wanted: Any, message: str) -> None:
    path = tmp_path / "endless.cu"
    text = render(make_spec("naive")).text
    path.write_text(text.replace("sum += a * b;", "sum += a * b, k %= 2;"))
    assert path.read_text() != text
    with pytest.raises(BudgetError, match=f"{message}.*; it may not end, or pass a larger time_b"):
        gen.Kernel(path, device="cpu", **wanted)(ints(3, 4), ints(4, 5))


def test_a_file_that_does_not_compile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.cu"
    path.write_text(render(make_spec("naive")).text.replace("sum += a * b;", "sum += a * q;"))
    with pytest.raises(CompileError, match=rf"^{re.escape(str(path))}:\d+: identifier \"q\""):
        gen.Kernel(path, device="cpu")(ints(3, 4), ints(4, 5))


def test_the_package_shows_what_it_has() -> None:
    assert {"Kernel", "matmul", "emulate", "__version__"} <= set(dir(gen))


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU")
def test_a_missing_gpu_is_said_in_python() -> None:
    with pytest.raises(MissingError, match='use device="cpu" for the emulator'):
        gen.matmul(ints(3, 4), ints(4, 5), device="gpu")


# -- what is refused ----------------------------------------------------------------------------

A, B, C = ints(4, 6), ints(6, 8), ints(4, 8)
BIG = ints(64, 64)
MISTAKES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("A is 4 x 6 and B is 4 x 6: A's columns are not as many as B's rows", (A, A), {}),
    (r"C has shape \(2, 2\), not the result's", (A, B, ints(2, 2)), {"beta": 1}),
    (r"A has 0 dimensions, shape \(\)", (np.array(1, np.float32), ints(2, 6, 8)), {}),
    (r"A has 0 dimensions, shape \(\)", (np.array(1, np.float32), B), {}),
    ("A and B are both vectors", (ints(6), ints(6)), {}),
    (r"strides \(128, 2\): neither stride is 1; pass a copy", (BIG[:8:2, :12:2], B), {}),
    ("B has .* its lines repeat", (A, np.broadcast_to(ints(8), (6, 8))), {}),
    ("A has .* its lines repeat, overlap or run in reverse", (A[::-1], B), {}),
    ("A has dtype complex64, which no kernel has; use float32", (A.astype("c8"), B), {}),
    ("A has dtype >f4, which no kernel has", (A.astype(">f4"), B), {}),
    ("A is f32 and B is f16, not of one type", (A, B.astype(np.float16)), {}),
    ("no kernel makes f64 of f32; use C, out and bias of f32", (A, B, C.astype("f8")), {}),
    ("not C f64, out f32", (A, B, C.astype("f8")), {"out": C}),
    (r"C has shape \(4, 7\), not the result's \(4, 8\)", (A, B, C[:, :7]), {"beta": 1}),
    (r"out has shape \(8, 4\), not the result's", (A, B), {"out": C.T}),
    ("C is column-major, but out is row-major", (A, B, np.asfortranarray(C)),
     {"beta": 1, "out": C.copy()}),
    ("beta=1 needs c", (A, B), {"beta": 1}),
    ("epilogue=linear_bias_relu adds a bias; pass bias, 8 elements", (A, B),
     {"epilogue": "linear_bias_relu"}),
    ("epilogue=linear_bias_gelu needs sums in floating point, not i32",
     (A.astype(np.int32), B.astype(np.int32)),
     {"epilogue": "linear_bias_gelu", "bias": np.zeros(8, np.int32)}),
    (r"bias has shape \(4,\)", (A, B), {"bias": ints(4), "dtype": "tf32"}),
    ("unknown epilogue 'swish'; use one of linear, linear_bias", (A, B), {"epilogue": "swish"}),
    (r"epilogue 'relu' is a function alone; use 'relu\(x\)'", (A, B), {"epilogue": "relu"}),
    ("unknown variant 'tile'; did you mean tiles", (A, B), {"variant": "tile"}),
    ("unknown dtype 'f8'", (A, B), {"dtype": "f8"}),
    ("tiles has no tunable 'coarsen'", (A, B), {"variant": "tiles", "coarsen": 2}),
    ("tiles has no dtype tf32", (A, B), {"variant": "tiles", "dtype": "tf32"}),
    ("out overlaps A, which is read while out is written", (BIG[:32, :32], BIG[32:, :32]),
     {"out": BIG[:32, 16:48]}),
    ("out overlaps C.* or c itself", (A, B, BIG[:4, :8]), {"beta": 1, "out": BIG[1:5, :8]}),
    ("A is a list, no array", ([[1.0]], B), {}),
    ("B is a float, no array", (A, 2.0), {}),
    ("stream is for arrays on a GPU", (A, B), {"stream": 0}),
    ("stream is a str", (A, B), {"stream": "0"}),
    ("alpha=2.5 is no integer", (A.astype(np.int32), B.astype(np.int32)), {"alpha": 2.5}),
    ("beta='1' is no number", (A, B, C), {"beta": "1"}),
    ("alpha=4294967296 does not fit", (A.astype(np.int32), B.astype(np.int32)),
     {"alpha": 2**32}),
    ("alpha does not fit into a double", (A, B), {"alpha": 10**400}),
    ("beta is a ndarray; pass a number", (A, B, C), {"beta": np.array([1.0, 2.0])}),
    ("operand 'u' is a list; pass a number or an array", (A, B),
     {"epilogue": "x * u[col]", "operands": {"u": [1.0] * 8}}),
    ("'D' cannot be an operand's name", (A, B),
     {"epilogue": "x * D[row, col]", "operands": {"D": C}}),
    ("dtype is <class .*, not a name; use one of f32,", (A, B), {"dtype": np.float32}),
    ("tile is a list; pass a text or a number", (A, B), {"variant": "tiles", "tile": [16]}),
    ("epilogue is a dict; pass a text", (A, B), {"epilogue": {}}),
    ("a kernel cannot be made of a NoneType", (A, B), {"variant": None}),
    ("kernel is no argument of a product; use variant", (A, B), {"kernel": "tiles"}),
    ("time_budget='9' is no number", (A, B), {"time_budget": "9"}),
    (r"'exp\(x\)': exp needs sums in floating point",
     (A[:, :1].astype(np.int32), B[:1, :1].astype(np.int32)), {"epilogue": "exp(x)"}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "args", "kwargs"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(message: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(GenError, match=message) as raised:
        multiply(*args, **kwargs)
    assert isinstance(raised.value, (UsageError, SpecError))
    assert "\n" not in str(raised.value)


def test_what_overflows_is_infinite_without_a_warning() -> None:
    with np.errstate(all="raise"):
        assert np.isinf(multiply(A + 100, B + 100, alpha=1e300)).all()
        assert np.isinf(multiply(*(x.astype(np.float16) + 1000 for x in (A, B)))).all()


def test_errors_are_there_at_once() -> None:
    code = "import gen; print(gen.errors.UsageError.__name__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "UsageError\n"


def test_integers_may_be_whole_floats_of_numpy() -> None:
    a, b = A.astype(np.int32), B.astype(np.int32)
    np.testing.assert_array_equal(multiply(a, b, alpha=np.float32(2)), 2 * (a @ b))


def test_out_has_to_be_writable() -> None:
    out = C.copy()
    out.flags.writeable = False
    with pytest.raises(UsageError, match="out is read-only"):
        multiply(A, B, out=out)


def test_neighbours_in_a_larger_matrix_do_not_overlap() -> None:
    whole = ints(6, 20)
    a, out = whole[:, :6], whole[:, 8:16]
    want = exact(a, B)
    np.testing.assert_array_equal(multiply(a, B, out=out), want)
    np.testing.assert_array_equal(whole[:, 8:16], want)


def test_devices() -> None:
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        gen.matmul(A, B, device="tpu")
    here = View(0, (4, 6), (6, 1), np.dtype(np.float32), 0)
    other = View(0, (6, 8), (8, 1), np.dtype(np.float32), 1)
    free = Wanted(None, None, "linear")
    with pytest.raises(UsageError, match="A is on GPU 0 and B on GPU 1; move one"):
        fit(Arguments(here, other, None, None, None), free, 1, 0)
    host = other._replace(device=-1)
    with pytest.raises(UsageError, match="A is on GPU 0 and B in host memory"):
        fit(Arguments(here, host, None, None, None), free, 1, 0)


def test_the_kernel_is_the_fastest_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the user's times, from the time on that there are some; a broken table is left out."""
    monkeypatch.setenv("GEN_TUNED_DIR", str(tmp_path))
    a, b = (View(0, (1024, 1024), (1024, 1), np.dtype(np.float16), 0) for _ in "AB")
    call = fit(Arguments(a, b, None, None, None), Wanted(None, None, "linear"), 1, 0)
    gpu = SimpleNamespace(name="NVIDIA H200", format="cubin", multiprocessors=132,
                          target=lambda _: "sm_90a")  # fmt: skip

    def chosen() -> KernelSpec:
        return gen.Kernel().choose(call, gpu, ALIGNED)[0]

    product = Product.packed(call.problem.shape, call.dtypes, call.layouts)
    first, found = chosen(), rank(product, GPUS["h200"], "sm_90a")
    another = next(each for each in found[5:] if each.spec != first)
    measured = [(each, 1 if each == another else 2) for each in found]
    entries = tuple(tuned.entry(each, product, "h200", us) for each, us in measured)
    folders.keep(Table(entries, {tuned.RUN.name: tuned.RUN}), tmp_path)
    assert chosen() == another.spec
    (tmp_path / "h200" / "f16.json").write_text("{")
    with pytest.warns(RuntimeWarning, match="measured times are left out: .*f16.json is not JSON"):
        assert chosen() == first


# -- the package --------------------------------------------------------------------------------


def test_importing_gen_loads_neither_numpy_nor_cuda() -> None:
    code = "import sys, gen; print([m for m in ('numpy', 'cuda', 'gen.api') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'gemm'"):
        _ = gen.gemm  # type: ignore[attr-defined]
