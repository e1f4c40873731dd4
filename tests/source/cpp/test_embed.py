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
from gen.prove.launchers.program import build_driver
from gen.source.cpp.embed import embedded_specs, helpers, image_of, render_embedded
from gen.spec.dtypes import ElementType
from gen.spec.kernel import KernelSpec
from gen.spec.numerics import storage_dtype
from gen.spec.problem import GemmProblem, GemmShape
from tests.prove.test_verify import PAIRS, SCALAR, WITH_PLAN, small
from tests.support.programs import STRICT, assert_formatted, check_c_and_cpp, need, run
from tests.support.slow import sift, slow

STRICTEST = (
    *STRICT,
    *("-Wshadow", "-Wconversion", "-Wsign-conversion"),
    "-Wunused-const-variable",  # clang++ has it in -Wall
    # What else strict projects turn on.
    *("-Wold-style-cast", "-Wuseless-cast", "-Wcast-align", "-Wcast-qual", "-Wduplicated-cond"),
    *("-Wduplicated-branches", "-Wlogical-op", "-Wnull-dereference", "-Wdouble-promotion"),
    *("-Wformat=2", "-Wextra-semi", "-Wundef", "-Wswitch-enum", "-Weffc++", "-Wredundant-decls"),
)


def write(
    folder: Path,
    spec: KernelSpec,
    archs: Sequence[str] = (),
    formats: Sequence[str] = ("cubin",),
) -> Path:
    """The C++ source of an embedded kernel, with its header beside it."""
    source, header = render_embedded(embedded_specs(spec, archs or [spec.arch]), formats)
    (folder / f"{spec.symbol}.h").write_text(header)
    (folder / f"{spec.symbol}.cpp").write_text(source)
    return folder / f"{spec.symbol}.cpp"


def compile_strictly(source: Path) -> None:
    """An ordinary C++ compiler takes it; and nothing in it is CUDA's runtime."""
    assert_formatted(source.parent)
    check_c_and_cpp(source.with_suffix(".h"))
    run("g++", "-std=c++17", "-O1", *STRICTEST, "-c", source, cwd=source.parent)
    assert "cuda" not in re.sub(r"//.*|\bcudaStream_t\b|libcuda", "", source.read_text())


SIMPLE = [pair for pair in itertools.product(SCALAR, ("f16", "f64", "i8")) if pair in PAIRS]


@pytest.mark.parametrize(("variant", "dtype"), sift(SIMPLE, SIMPLE[:1]))
def test_embedded_kernels_are_plain_cpp(variant: str, dtype: str, tmp_path: Path) -> None:
    layout = "rrc" if variant == "narrow" else "rcc"  # which reads lines across K
    spec = make_spec(variant, dtype=dtype, layout=layout, name="gemm")
    compile_strictly(write(tmp_path, spec))


# Of every type, layout, number of slices and epilogue one; names of all lengths.
PLANNED: list[tuple[str, dict[str, Any]]] = [
    ("f16", {"layout": "rrr"}),
    ("f16_f16", {"layout": "ccc", "split_k": 0, "name": "n" * 76}),
    ("i8", {"layout": "rrr", "split_k": 3, "epilogue": "linear_bias"}),
    ("tf32", {"layout": "crc", "split_k": 0, "epilogue": "linear_bias_relu", "name": "n" * 40}),
    ("bf16_f32", {"layout": "rcr", "epilogue": "linear_bias_gelu"}),
    ("f32_6xbf16", {"layout": "rcr", "split_k": 2}),
]


_HAVING = [[v for v in WITH_PLAN if case[0] in VARIANTS[v].dtypes] for case in PLANNED]
EMBEDDED = [(v, *case) for case, variants in zip(PLANNED, _HAVING, strict=True) for v in variants]
TURNS = [(_HAVING[i][i % len(_HAVING[i])], *case) for i, case in enumerate(PLANNED)]


@slow
def test_embedded_groups_along_k_are_plain_cpp(tmp_path: Path) -> None:
    """Whose maps of the TMA have a constant that the kernel has, too."""
    spec = make_spec("mma_tma", layout="crr", grouped_k=True, name="gemm")
    compile_strictly(write(tmp_path, spec))


@pytest.mark.parametrize(("variant", "dtype", "more"), sift(EMBEDDED, TURNS[5:]))
@pytest.mark.slow
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


def build(
    folder: Path,
    spec: KernelSpec,
    user: str,
    archs: Sequence[str] = (),
    formats: Sequence[str] = ("cubin",),
) -> Path:
    """A C program with an embedded kernel, beside a driver that writes down what it is asked."""
    need("gcc", "g++")
    source = write(folder, spec, archs, formats)
    (folder / "driver").mkdir()
    (folder / "user.c").write_text(user)
    build_driver(folder / "driver")
    run("gcc", *STRICT, "-c", "user.c", cwd=folder)
    run("g++", "-std=c++17", "-pthread", "user.o", source, "-ldl", "-o", "user", cwd=folder)
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
        launch = "launch gemm 2 4 1 32 32 1 12288 0 64 46 1e 40200000"
        shared = "set gemm 8 12288"
        loaded = f"load sm_{image}", f"unload sm_{image}"
        assert lines == [loaded[0], shared, "0", shared, launch, "0", "1", "0", loaded[1]]
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


@slow
def test_an_embedded_kernel_serves_each_device_by_itself(tmp_path: Path) -> None:
    """Its code, its shared memory; a stream of another device is refused."""
    folder = build(tmp_path, make_spec("rec_tiles", name="gemm"), TWO_DEVICES, ["sm_80", "sm_90"])
    lines = lines_of(folder, CC="80 90", PARAMETERS="gemm=lllf")
    shared, launch = "set gemm 8 12288", "launch gemm 1 1 1 32 32 1 12288 0 9 9 9 3f800000"
    on_0 = [shared, launch, "0", shared, "400"]
    on_1 = [shared, launch, "0"] * 2
    unloaded = ["unload sm_80", "unload sm_90"]
    assert lines == ["load sm_80", *on_0, "load sm_90", *on_1, *on_0, *unloaded]


VERSIONS = ("sm_80", "sm_90a")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a kernel as machine code and as PTX."""
    spec = make_spec("rec_tiles", name="gemm")
    return build(tmp_path_factory.mktemp("both"), spec, USER, VERSIONS, ("ptx", "cubin"))


@pytest.mark.parametrize(
    ("cc", "driver", "image"),
    [
        ("80", 13000, "sm_80"),  # machine code before PTX
        ("89", 13000, "sm_80"),
        ("90", 13020, "sm_90"),
        ("100", 13000, "ptx of sm_80"),  # newer than all: the driver compiles PTX, not that of 9.0a
        ("90", 12000, "ptx of sm_90"),  # the machine code is CUDA 13's
        ("86", 12090, "ptx of sm_80"),
    ],
)
@pytest.mark.slow
def test_ptx_is_for_newer_gpus_and_older_drivers(
    cc: str, driver: int, image: str, both: Path
) -> None:
    lines = lines_of(both, CC=cc, DRIVER=str(driver), PARAMETERS="gemm=lllf")
    assert lines[0] == f"load {image}"
    assert lines[-1] == f"unload {image}"
    assert [line for line in lines if line.isdigit()] == ["0", "0", "1", "0"]


def test_machine_code_wants_a_driver_as_new_as_its_compiler(user: Path, both: Path) -> None:
    assert lines_of(user, CC="86", DRIVER="12090")[0] == "36"
    assert lines_of(user, CC="75", DRIVER="12090")[0] == "209"  # no driver would help
    assert lines_of(both, CC="75", DRIVER="13000")[0] == "209"
    assert lines_of(both, CC="86", DRIVER="11080")[0] == "36"


def test_what_could_not_be_loaded_is_loaded_later(user: Path) -> None:
    """A library in which a kernel was not found is unloaded."""
    given = {"CC": "80", "PARAMETERS": "gemm=lllf"}
    lines = lines_of(user, LOAD="2", **given)
    assert (lines[:2], lines[-1]) == (["2", "load sm_80"], "unload sm_80")
    lines = lines_of(user, FIND="2", **given)
    loaded = ["load sm_80", "unload sm_80"]
    assert (lines[:4], lines[-1]) == ([*loaded, "2", "load sm_80"], "unload sm_80")
    assert sum(line == "unload sm_80" for line in lines) == 2


def test_a_driver_older_than_cuda_12_lacks_functions(user: Path) -> None:
    folder = user / "old"
    folder.mkdir()
    (folder / "old.c").write_text("int cuDriverGetVersion(int* v) { *v = 11080; return 0; }\n")
    run("gcc", "-shared", "-fPIC", "old.c", "-o", "libcuda.so.1", cwd=folder)
    assert lines_of(user, driver="old") == ["302", "302", "1", "0"]


def test_a_header_says_what_runs_where(tmp_path: Path) -> None:
    """The GPUs and drivers of each image are those of the source's table."""
    source = write(tmp_path, make_spec("naive", name="gemm"), VERSIONS, ("ptx", "cubin"))
    header = source.with_suffix(".h").read_text()
    rows = re.findall(r"^//   (.*\S)  +(.* for sm_\w+) +(CUDA.*)$", header, re.MULTILINE)
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["9.0", "machine code for sm_90a", "CUDA 13.0, newer"],
        ["8.0 to 8.9", "machine code for sm_80", "CUDA 13.0, newer"],
        ["9.0", "PTX for sm_90a", "CUDA 12.0, newer"],
        ["8.0, newer", "PTX for sm_80", "CUDA 12.0, newer"],
    ]
    images = re.findall(r"^    \{(\d+), (\w+), (\d+), (\w+)\},$", source.read_text(), re.MULTILINE)
    assert images == [
        ("80", "9999", "12000", "kPtxSm80"),
        ("90", "90", "12000", "kPtxSm90a"),
        ("80", "89", "13000", "kSm80"),
        ("90", "90", "13000", "kSm90a"),
    ]


@pytest.mark.nvcc
@pytest.mark.parametrize(("variant", "dtype"), sift(PAIRS, [("wgmma", "f16")]))
def test_embedded_ptx_is_of_the_version_that_it_says(
    variant: str, dtype: str, tmp_path: Path
) -> None:
    """Lower than NVRTC's own: the assembler refuses what is newer than the version of a file."""
    need("ptxas")
    for arch in ("sm_75", "sm_80", "sm_90", "sm_90a"):
        try:
            (spec,) = embedded_specs(small(variant, dtype, arch=arch, name="gemm"), [arch])
        except SpecError:
            continue
        image = image_of(spec, "ptx")
        newer = spec.dtypes.factor.is_fp8 and variant != "wgmma"  # mma.sync has fp8 since then
        assert image.driver == (12040 if newer else 12000)
        assert image.code.count(b"\n.version 8.4\n" if newer else b"\n.version 8.0\n") == 1
        (tmp_path / "gemm.ptx").write_bytes(image.code)
        run("ptxas", f"-arch={arch}", "gemm.ptx", "-o", "gemm.cubin", cwd=tmp_path)


THREADS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include "gemm.h"
static int (*set_current)(void*);
static void launch(void) {
  float x[4] = {0};
  printf("%d\\n", gemm_launch(9, 9, 9, 1, x, 9, x, 9, 0, NULL, 0, x, 9, NULL));
}
static void* thread(void* unused) {
  launch();
  set_current(NULL);
  launch();
  return unused;
}
int main(void) {
  union {
    void* address;
    int (*set)(void*);
    int (*init)(unsigned);
  } of = {dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent")};
  pthread_t other;
  set_current = of.set;
  of.address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  launch();
  of.init(0);
  set_current(NULL);
  launch();
  pthread_create(&other, NULL, thread, NULL);
  pthread_join(other, NULL);
  return 0;
}
"""


@slow
def test_each_thread_sets_its_own_context_and_code_goes_before_the_driver(tmp_path: Path) -> None:
    """Before cuInit, in a thread with a context, in one without, in the same with one."""
    folder = build(tmp_path, make_spec("naive", name="gemm"), THREADS)
    lines = lines_of(folder, CONTEXT="201", UNINITIALIZED="1", PARAMETERS="gemm=l")
    launch = "launch gemm 1 1 1 16 16 1 0 0 9"
    assert lines == ["3", "load sm_80", launch, "0", "201", launch, "0", "unload sm_80"]


ROUNDS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  for (int i = 0; i < 3; ++i) {
    void* const library = dlopen("./gemm.so", RTLD_NOW);
    union {
      void* address;
      int (*load)(void);
    } of = {dlsym(library, "gemm_load")};
    printf("%d\\n", of.load());
    printf("%d\\n", of.load());
    dlclose(library);
    printf("%s\\n", dlopen("./gemm.so", RTLD_NOW | RTLD_NOLOAD) ? "there" : "gone");
  }
  return 0;
}
"""


@slow
@pytest.mark.parametrize("variant", ["rec_tiles", "mma"])
def test_a_shared_library_takes_its_code_along(variant: str, tmp_path: Path) -> None:
    """Loaded and unloaded once in each round of dlopen and dlclose."""
    need("gcc", "g++")
    source = write(tmp_path, make_spec(variant, name="gemm"))
    build_driver(tmp_path)
    (tmp_path / "rounds.c").write_text(ROUNDS)
    run("g++", "-std=c++17", "-shared", "-fPIC", source, "-o", "gemm.so", "-ldl", cwd=tmp_path)
    run("gcc", *STRICT, "rounds.c", "-ldl", "-o", "rounds", cwd=tmp_path)
    out = run("./rounds", cwd=tmp_path, LD_LIBRARY_PATH=str(tmp_path)).splitlines()
    kept = [line for line in out if not line.startswith("set")]
    assert kept == ["load sm_80", "0", "0", "unload sm_80", "gone"] * 3


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("variant", "dtype", "layout", "split_k"),
    [
        (variant, *kernel)
        for variant in WITH_PLAN
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


HELPED: list[tuple[str, dict[str, Any]]] = [
    ("skinny", {}), ("gemv", {}), ("mma", {"split_k": 0}), ("simt", {"split_k": 2}),
    ("mma", {"dtype": "f64"}), ("mma_tma", {"dtype": "f64"}), ("wgmma", {"stream_k": 1}),
    ("simt", {"stream_k": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "options"), sift(HELPED, HELPED[:1]))
def test_the_kernels_that_are_looked_for_are_in_the_code(
    variant: str, options: dict[str, Any]
) -> None:
    spec = make_spec(variant, **options, name="gemm")
    code = image_of(spec, "ptx").code.decode()
    wanted = {"gemm", *(f"gemm_{role}" for role, _ in helpers(spec))}
    assert set(re.findall(r"\.entry (\w+)", code)) == wanted
