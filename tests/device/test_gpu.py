"""The same proofs on a GPU: every kernel against CUTLASS run there, and the host launchers."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.compile.nvrtc import compile_cuda
from gen.device.choose import choose_runner
from gen.device.gpu import GpuRunner
from gen.errors import CheckError, SpecError
from gen.kernels.registry import VARIANTS, make_spec, retarget
from gen.prove.verify import verify
from gen.source.render import render
from gen.spec.kernel import EPILOGUES, KernelSpec
from gen.spec.problem import ALL_LAYOUTS, GemmShape
from tests.prove.test_verify import PAIRS, SCALAR, WITH_PLAN, small
from tests.support.small import takes

pytestmark = pytest.mark.gpu

GROUPED = [v for v, row in VARIANTS.items() if "grouped" in row.tunable_names]
TENSOR = [v for v in WITH_PLAN if "f16" in VARIANTS[v].dtypes]
SHAPES = [
    GemmShape(*s) for s in ((1, 1, 1), (97, 65, 33), (3, 515, 70), (129, 5, 1050), (31, 64, 0))
]
TUNED = [
    *(make_spec("tiles", tile=t) for t in (1, 7, 16, 31)),
    *(make_spec("rec_tiles", tile=8, coarsen=c) for c in range(1, 9)),
    make_spec("tiles", tile=32, threads=128),
    make_spec("rec_tiles", dtype="f64", tile=32, threads=64, coarsen=8),
    *(make_spec("naive", threads=t) for t in (1, 96, 1024)),
    *(make_spec("shared_row", chunk=c, threads=33, grid=2) for c in (1, 100)),
    make_spec("block_1d", grid=3, threads=7),
    make_spec("naive", arch="sm_75"),
    *(small(v, "f16", "ccr", split_k=0, epilogue=e) for v in TENSOR for e in EPILOGUES),
    *(small(v, d, "crc", stages=4) for v, d in PAIRS if v in TENSOR and d in ("f16_f16", "i8")),
    *(small("mma", "bf16", "rcc", stages=s) for s in (1, 2)),
    make_spec("mma", arch="sm_75"),
    *(make_spec(v, layout="rcr", grouped=True) for v in GROUPED),
    *(make_spec(v, layout=layout, grouped_k=True) for v in GROUPED for layout in ("crr", "crc")),
    make_spec("wgmma", layout="crr", schedule="pingpong", grouped_k=True),
    make_spec(
        "mma_tma", layout="crr", threadblock="64x64x64", warp="32x32", sliced_k=2, grouped_k=True
    ),
]
LONG = [GemmShape(*s) for s in ((200, 300, 2000), (1000, 777, 128), (64, 64, 5001))]


def on_this_gpu(gpu: GpuRunner, spec: KernelSpec) -> KernelSpec:
    """The specification; the test is skipped where this GPU cannot run it."""
    try:
        retarget(spec, gpu.target(spec.arch))
    except SpecError as error:
        pytest.skip(str(error))
    return spec


@pytest.fixture(scope="module")
def gpu() -> GpuRunner:
    runner = choose_runner("gpu")
    assert isinstance(runner, GpuRunner)
    return runner


@pytest.mark.parametrize(("variant", "dtype"), PAIRS)
@pytest.mark.parametrize("layout", ALL_LAYOUTS)
def test_equals_cutlass(variant: str, dtype: str, layout: str, gpu: GpuRunner) -> None:
    if not takes(variant, layout):
        pytest.skip(f"{variant} has no layout {layout}")
    spec = on_this_gpu(gpu, make_spec(variant, dtype=dtype, layout=layout))
    assert [r.message for r in verify(spec, gpu, SHAPES) if not r.ok] == []


@pytest.mark.parametrize(("variant", "dtype"), PAIRS)
def test_equals_cutlass_on_every_edge(variant: str, dtype: str, gpu: GpuRunner) -> None:
    spec = on_this_gpu(gpu, make_spec(variant, dtype=dtype))
    assert [r.message for r in verify(spec, gpu) if not r.ok] == []


@pytest.mark.parametrize("spec", TUNED, ids=lambda s: s.name)
def test_tunables(spec: KernelSpec, gpu: GpuRunner) -> None:
    on_this_gpu(gpu, spec)
    assert [r.message for r in verify(spec, gpu, SHAPES) if not r.ok] == []


@pytest.mark.parametrize("variant", TENSOR)
@pytest.mark.parametrize("split_k", [0, 1, 5])
def test_many_tiles_and_long_sums(variant: str, split_k: int, gpu: GpuRunner) -> None:
    spec = on_this_gpu(gpu, make_spec(variant, split_k=split_k))
    assert [r.message for r in verify(spec, gpu, LONG) if not r.ok] == []


def test_more_rows_than_a_grid_has_blocks(gpu: GpuRunner) -> None:
    spec = make_spec("tiles", tile=1)
    assert [r.message for r in verify(spec, gpu, [GemmShape(70_000, 1, 2)]) if not r.ok] == []


def test_a_write_beside_a_buffer_is_noticed(gpu: GpuRunner) -> None:
    text = 'extern "C" __global__ void stray(int* p) { p[4] = 7; }'
    module = compile_cuda(text, arch=gpu.target("sm_80"), format="cubin")
    buffer = gpu.upload(np.zeros(4, np.int32), "P")
    assert not gpu.launch(module, "stray", (1, 1, 1), (1, 1, 1), [buffer])
    with pytest.raises(CheckError, match="beside P was overwritten: offset 16 of 16"):
        gpu.download(buffer)


def test_a_launch_that_fails_says_so(gpu: GpuRunner) -> None:
    module = compile_cuda(
        'extern "C" __global__ void f() {}', arch=gpu.target("sm_80"), format="cubin"
    )
    with pytest.raises(CheckError, match="f failed on"):
        gpu.launch(module, "f", (1, 1, 1), (2048, 1, 1), [])


# -- the launcher in the emitted file -----------------------------------------------------------


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    folder = tmp_path_factory.mktemp("launchers")
    loaded = {}
    for variant in VARIANTS:
        path: Path = folder / f"{variant}.cu"
        spec = make_spec(variant, name=f"gemm_{variant}")
        path.write_text(render(spec).text)
        library = path.with_suffix(".so")
        arch = spec.arch if VARIANTS[variant].max_arch else "native"
        command = ["nvcc", "-std=c++17", f"-arch={arch}", "-shared", "-Xcompiler=-fPIC", str(path)]
        subprocess.run([*command, "-o", str(library)], check=True)
        loaded[variant] = ctypes.CDLL(str(library))
    return loaded


def _call(library: ctypes.CDLL, variant: str, args: list[Any]) -> int:
    i64, f32, pointer = ctypes.c_longlong, ctypes.c_float, ctypes.c_void_p
    function = library[f"gemm_{variant}_launch"]
    function.argtypes = [
        *(i64, i64, i64, f32, pointer, i64, pointer, i64, f32, pointer, i64, pointer, i64, pointer)
    ]
    return int(function(*args))


@pytest.mark.nvcc
@pytest.mark.parametrize("variant", SCALAR)
def test_launcher_computes(variant: str, libraries: dict[str, ctypes.CDLL], gpu: GpuRunner) -> None:
    m, n, k = 70, 300, 45
    rng = np.random.default_rng(0)
    dtype = {"f16": np.float16, "f32": np.float32}[make_spec(variant).dtypes.input.name]
    a, b, c = (rng.integers(-4, 5, size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    buffers = [gpu.upload(x, name) for x, name in ((a, "A"), (b, "B"), (c, "C"), (c * 0, "D"))]
    pa, pb, pc, pd = (x.address for x in buffers)
    args = [m, n, k, 2.0, pa, k, pb, n, -1.0, pc, n, pd, n, None]
    assert _call(libraries[variant], variant, args) == 0
    gpu.synchronize()
    np.testing.assert_array_equal(gpu.download(buffers[3]), 2 * (a @ b) - c)


@pytest.mark.nvcc
@pytest.mark.parametrize("variant", TENSOR)
def test_launcher_with_a_workspace_computes(
    variant: str, libraries: dict[str, ctypes.CDLL], gpu: GpuRunner
) -> None:
    on_this_gpu(gpu, make_spec(variant))
    m, n, k = 70, 301, 45  # rows of B are no whole units of 16 bytes, and have to be packed
    i64, f32, pointer = ctypes.c_longlong, ctypes.c_float, ctypes.c_void_p
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (k, n), (m, n)))
    buffers = [gpu.upload(x, name) for x, name in ((a, "A"), (b, "B"), (c, "C"), (c * 0, "D"))]
    pa, pb, pc, pd = (x.address for x in buffers)
    wanted = ctypes.c_size_t()
    ask, launch = (libraries[variant][f"gemm_{variant}_{what}"] for what in ("workspace", "launch"))
    ask.argtypes = [i64, i64, i64, pointer, i64, pointer, i64, pointer]
    assert ask(m, n, k, pa, k, pb, n, ctypes.byref(wanted)) == 0
    assert wanted.value > 0
    space = gpu.upload(np.zeros(wanted.value, np.uint8), "workspace")
    launch.argtypes = [
        *(i64, i64, i64, f32, pointer, i64, pointer, i64, f32, pointer, i64, pointer, i64),
        *(pointer, ctypes.c_size_t, pointer),
    ]
    args = [m, n, k, 2.0, pa, k, pb, n, -1.0, pc, n, pd, n]
    assert launch(*args, space.address, wanted.value - 1, None) == 1  # cudaErrorInvalidValue
    assert launch(*args, space.address, wanted.value, None) == 0
    gpu.synchronize()
    want = 2 * (a.astype(np.float64) @ b) - c
    np.testing.assert_array_equal(gpu.download(buffers[3]), want.astype(np.float16))
    gpu.download(space)


@pytest.mark.nvcc
@pytest.mark.parametrize("variant", SCALAR)
def test_launcher_checks_its_arguments(variant: str, libraries: dict[str, ctypes.CDLL]) -> None:
    good = [4, 5, 6, 1.0, 4096, 6, 4096, 5, 0.0, None, 5, 4096, 5, None]
    invalid = 1  # cudaErrorInvalidValue
    changes: list[dict[int, Any]] = [
        {0: -1}, {1: -1}, {2: -1}, {4: None}, {6: None}, {11: None},
        {5: 5}, {7: 4}, {12: 4}, {8: 1.0},
    ]  # fmt: skip
    for change in changes:
        args = [change.get(i, x) for i, x in enumerate(good)]
        assert _call(libraries[variant], variant, args) == invalid, change
    nothing = [0, *good[1:]]
    nothing[4] = nothing[6] = nothing[11] = None
    assert _call(libraries[variant], variant, nothing) == 0
