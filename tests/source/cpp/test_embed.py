"""Machine code in C++: the files, the choice by the device, what they compute on a GPU."""

import ctypes
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.device.choose import choose_runner
from gen.device.gpu import GpuRunner
from gen.errors import SpecError
from gen.kernels.registry import VARIANTS, make_spec, retarget
from gen.source.cpp.embed import embedded_specs, render_embedded
from gen.spec.dtypes import ElementType
from gen.spec.kernel import KernelSpec
from gen.spec.numerics import storage_dtype
from gen.spec.problem import GemmProblem, GemmShape
from tests.prove.test_verify import SCALAR, TENSOR, small
from tests.support.programs import STRICT, assert_formatted, check_c_and_cpp, need, run
from tests.support.slow import sift

FAKE_DRIVER = Path(__file__).parent / "fake_driver.c"


def write(folder: Path, spec: KernelSpec, archs: Sequence[str] = ()) -> Path:
    """The C++ source of an embedded kernel, with its header beside it."""
    source, header = render_embedded(embedded_specs(spec, archs or [spec.arch]))
    (folder / f"{spec.symbol}.h").write_text(header)
    (folder / f"{spec.symbol}.cpp").write_text(source)
    return folder / f"{spec.symbol}.cpp"


def compile_strictly(source: Path) -> None:
    """An ordinary C++ compiler takes it; and nothing in it is CUDA's runtime."""
    assert_formatted(source.parent)
    check_c_and_cpp(source.with_suffix(".h"))
    run("g++", "-std=c++17", "-O1", *STRICT, "-c", source, cwd=source.parent)
    assert "cuda" not in re.sub(r"//.*|\bcudaStream_t\b|libcuda", "", source.read_text())


SIMPLE = list(itertools.product(SCALAR, ("f16", "f64", "i8")))


@pytest.mark.parametrize(("variant", "dtype"), sift(SIMPLE, SIMPLE[::4]))
def test_embedded_kernels_are_plain_cpp(variant: str, dtype: str, tmp_path: Path) -> None:
    spec = make_spec(variant, dtype=dtype, layout="rcc", name="gemm")
    compile_strictly(write(tmp_path, spec))


# Of every type, layout, number of slices and epilogue one; names of all lengths.
PLANNED: list[tuple[str, dict[str, Any]]] = [
    ("f16", {"layout": "rrr"}),
    ("f16_f16", {"layout": "ccc", "split_k": 0, "name": "n" * 76}),
    ("i8", {"layout": "rrr", "split_k": 3, "epilogue": "linear_bias"}),
    ("tf32", {"layout": "crc", "split_k": 0, "epilogue": "linear_bias_relu", "name": "n" * 40}),
    ("bf16_f32", {"layout": "rcr", "epilogue": "linear_bias_gelu"}),
]


_HAVING = [[v for v in TENSOR if case[0] in VARIANTS[v].dtypes] for case in PLANNED]
EMBEDDED = [(v, *case) for case, variants in zip(PLANNED, _HAVING, strict=True) for v in variants]
TURNS = [(_HAVING[i][i % len(_HAVING[i])], *case) for i, case in enumerate(PLANNED)]


@pytest.mark.parametrize(("variant", "dtype", "more"), sift(EMBEDDED, TURNS))
def test_embedded_kernels_of_several_launches_are_plain_cpp(
    variant: str, dtype: str, more: dict[str, Any], tmp_path: Path
) -> None:
    compile_strictly(write(tmp_path, small(variant, dtype, **{"name": "gemm", **more})))


def test_an_embedded_name_has_no_architecture() -> None:
    (a, b) = embedded_specs(make_spec("tiles"), ["sm_90", "sm_80"])
    assert a.name == b.name == "gemm_tiles_f32_rrr"
    assert (a.arch, b.arch) == ("sm_80", "sm_90")


def test_an_embedded_kernel_has_to_exist_for_each_architecture() -> None:
    with pytest.raises(SpecError, match="mma_tma needs sm_90a, not sm_80"):
        embedded_specs(make_spec("mma_tma"), ["sm_90a", "sm_80"])


def build(folder: Path, spec: KernelSpec, user: str, archs: Sequence[str] = ()) -> Path:
    """A C program with an embedded kernel, beside a driver that writes down what it is asked."""
    need("gcc", "g++")
    source = write(folder, spec, archs)
    (folder / "driver").mkdir()
    (folder / "user.c").write_text(user)
    soname = ("-Wl,-soname,libcuda.so.1", "-o", "driver/libcuda.so.1")
    run("gcc", "-shared", "-fPIC", *STRICT[:2], "-Werror", FAKE_DRIVER, *soname, cwd=folder)
    run("gcc", *STRICT, "-c", "user.c", cwd=folder)
    run("g++", "-std=c++17", "user.o", source, "-ldl", "-o", "user", cwd=folder)
    return folder


def lines_of(folder: Path, *arguments: object, driver: str = "driver", **env: str) -> list[str]:
    path = str(folder / driver)
    return run("./user", *arguments, cwd=folder, LD_LIBRARY_PATH=path, **env).splitlines()


USER = """
#include <stdio.h>
#include "gemm.h"
int main(void) {
  float x[4];
  printf("%d\\n", gemm_load());
  printf("%d\\n", gemm_launch(100, 70, 30, 2.5f, x, 30, x, 70, 0, NULL, 0, x, 70, NULL));
  printf("%d\\n", gemm_launch(100, 70, 30, 2.5f, NULL, 30, x, 70, 0, NULL, 0, x, 70, NULL));
  printf("%d\\n", gemm_launch(0, 70, 30, 2.5f, NULL, 30, x, 70, 0, NULL, 0, x, 70, NULL));
  return 0;
}
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a kernel of one launch."""
    archs = ["sm_80", "sm_86", "sm_90a"]
    return build(tmp_path_factory.mktemp("user"), make_spec("rec_tiles", name="gemm"), USER, archs)


@pytest.mark.parametrize(
    ("cc", "image"), [("80", 80), ("86", 86), ("89", 86), ("90", 90), ("75", 0), ("100", 0)]
)
def test_an_embedded_kernel_is_chosen_by_the_device(cc: str, image: int, user: Path) -> None:
    lines = lines_of(user, CC=cc, PARAMETERS="gemm=lllf")
    if image:
        launch = "launch gemm (2, 4, 1) (32, 32, 1) 12288: 64 46 1e 40200000"
        shared = "shared gemm 12288"
        assert lines == [f"load sm_{image}", shared, "0", shared, launch, "0", "1", "0"]
    else:
        assert lines == ["209", "209", "1", "0"]


def test_an_embedded_kernel_needs_a_context_and_a_driver(user: Path) -> None:
    assert lines_of(user, CONTEXT="201")[0] == "201"
    broken = user / "broken"
    broken.mkdir(exist_ok=True)
    (broken / "libcuda.so.1").write_text("no library")
    assert lines_of(user, driver="broken")[0] == "303"


TWO_DEVICES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include "gemm.h"
int main(void) {
  float x[4];
  int of_1 = 1;
  struct CUstream_st* const stream = (struct CUstream_st*)&of_1;
  union {
    void* address;
    int (*call)(void*);
  } set_current = {dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent")};
  for (intptr_t device = 0; device < 3; ++device) {
    set_current.call((void*)(device % 2));
    printf("%d\\n", gemm_launch(9, 9, 9, 1, x, 9, x, 9, 0, NULL, 0, x, 9, NULL));
    printf("%d\\n", gemm_launch(9, 9, 9, 1, x, 9, x, 9, 0, NULL, 0, x, 9, stream));
  }
  return 0;
}
"""


def test_an_embedded_kernel_serves_each_device_by_itself(tmp_path: Path) -> None:
    """Its code, its shared memory; a stream of another device is refused."""
    folder = build(tmp_path, make_spec("rec_tiles", name="gemm"), TWO_DEVICES, ["sm_80", "sm_90"])
    lines = lines_of(folder, CC="80 90", PARAMETERS="gemm=lllf")
    shared, launch = "shared gemm 12288", "launch gemm (1, 1, 1) (32, 32, 1) 12288: 9 9 9 3f800000"
    on_0 = [shared, launch, "0", shared, "400"]
    on_1 = [shared, launch, "0"] * 2
    assert lines == ["load sm_80", *on_0, "load sm_90", *on_1, *on_0]


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("variant", "dtype", "layout", "split_k"),
    [
        (variant, *kernel)
        for variant in TENSOR
        for kernel in (
            ("f16", "rrr", 1),
            ("f16_f32", "crc", 4),
            ("i8", "rrr", 0),
            ("tf32", "ccr", 2),
        )
        if kernel[0] in VARIANTS[variant].dtypes
    ],
)
def test_an_embedded_kernel_computes(
    variant: str, dtype: str, layout: str, split_k: int, tmp_path: Path
) -> None:
    gpu = choose_runner("gpu")
    assert isinstance(gpu, GpuRunner)
    name = f"gemm_{variant}_{dtype}"  # libraries are kept apart by the names of their functions
    spec = make_spec(variant, dtype=dtype, layout=layout, split_k=split_k, name=name)
    try:
        spec = retarget(spec, gpu.target(spec.arch))
    except SpecError as error:
        pytest.skip(str(error))
    source = write(tmp_path, spec)
    run("g++", "-std=c++17", "-shared", "-fPIC", source, "-o", "gemm.so", cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "gemm.so"))
    for shape in ((256, 256, 128), (129, 65, 515), (3, 200, 1000), (31, 64, 0)):
        check_on(gpu, library, spec, GemmShape(*shape))


def check_on(gpu: GpuRunner, library: ctypes.CDLL, spec: KernelSpec, shape: GemmShape) -> None:
    """One launch against a product in Python; small integers, so that every sum is exact."""
    size, pointer = ctypes.c_longlong, ctypes.c_void_p
    scalar = ctypes.c_int if spec.dtypes.scalar.name == "i32" else ctypes.c_float
    operands = [pointer, size] * 2
    workspace_of = getattr(library, f"{spec.name}_workspace")
    workspace_of.argtypes = [*[size] * 3, *operands, pointer]
    launch = getattr(library, f"{spec.name}_launch")
    room = [pointer, ctypes.c_size_t, pointer]
    launch.argtypes = [*[size] * 3, scalar, *operands, scalar, *operands, *room]

    rng = np.random.default_rng(1)
    m, n, k = shape.m, shape.n, shape.k
    a, b, c = (rng.integers(-1, 2, sizes) for sizes in ((m, k), (k, n), (m, n)))

    def upload(name: str, matrix: np.ndarray, row_major: bool, type_: ElementType) -> Any:
        lines = matrix if row_major else matrix.T
        return gpu.upload(np.ascontiguousarray(lines, storage_dtype(type_.name)), name)

    order, types = spec.layouts, spec.dtypes
    on_gpu = [
        upload("A", a, order.a, types.input),
        upload("B", b, order.b, types.input),
        upload("C", c, order.c, types.output),
        upload("D", np.full((m, n), 99), order.c, types.output),
    ]
    problem = GemmProblem.packed(shape, order)
    left = on_gpu[0].address, problem.lda, on_gpu[1].address, problem.ldb
    right = on_gpu[2].address, problem.ldc, on_gpu[3].address, problem.ldd
    nbytes = ctypes.c_size_t()
    assert workspace_of(m, n, k, *left, ctypes.byref(nbytes)) == 0
    workspace = gpu.upload(np.zeros(max(nbytes.value, 1), np.uint8), "workspace")
    room_at = workspace.address, nbytes.value
    assert launch(m, n, k, 1, *left, 2, *right, *room_at, None) == 0
    gpu.synchronize()
    result = gpu.download(on_gpu[3])
    np.testing.assert_array_equal(result if order.c else result.T, a @ b + 2 * c)
    gpu.download(workspace)  # its guards are whole
    for buffer in (*on_gpu, workspace):
        gpu.free(buffer)
