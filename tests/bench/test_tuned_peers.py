"""Peers that choose the fastest of their own algorithms or configurations, on a pretended GPU."""

import ctypes
import sys
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from gen.bench import timing
from gen.bench.contenders import Unsupported
from gen.bench.device import GpuLost
from gen.bench.peers import cublas, cutlass3, triton_peers
from tests.bench.test_bench import FakeGpu
from tests.bench.test_peers import E4M3, a_work

# --- cuBLAS ------------------------------------------------------------------------------------


class FakeLt:
    """As much of nvmath's cublasLt as the peer uses: algorithms that take so many milliseconds."""

    class cuBLASLtError(Exception):
        pass

    matmul_heuristic_result_dtype: Any = np.dtype([("algo", "<u8", 8), ("workspace_size", "<u8")])
    MatmulDescAttribute = IntEnum("MatmulDescAttribute", "TRANSA TRANSB FAST_ACCUM")
    MatmulPreferenceAttribute = IntEnum(
        "MatmulPreferenceAttribute", "MAX_WORKSPACE_BYTES REDUCTION_SCHEME_MASK", start=100
    )
    ReductionScheme = SimpleNamespace(COMPUTE_TYPE=2)

    def __init__(self, gpu: FakeGpu, *times: float) -> None:
        self.gpu, self.times = gpu, times
        self.set: dict[str, bytes] = {}
        self.alive = 0
        self.kinds: list[int] = []

    def _made(self, *args: int) -> int:
        self.alive += 1
        return self.alive

    def _destroyed(self, _: int) -> None:
        self.alive -= 1

    create = matmul_desc_create = matmul_preference_create = _made
    destroy = matmul_desc_destroy = matmul_preference_destroy = matrix_layout_destroy = _destroyed

    def matrix_layout_create(self, kind: int, *_: int) -> int:
        self.kinds.append(kind)
        return self._made()

    def _attribute(self, _: int, code: int, at: int, size: int) -> None:
        kind = self.MatmulDescAttribute if code < 100 else self.MatmulPreferenceAttribute
        self.set[kind(code).name] = ctypes.string_at(at, size)

    matmul_desc_set_attribute = matmul_preference_set_attribute = _attribute

    def matmul_algo_get_heuristic(self, *args: int) -> None:
        most, results, count = args[-3:]
        given = np.zeros(min(most, len(self.times)), self.matmul_heuristic_result_dtype)
        given["algo"][:, 0] = range(len(given))
        given["workspace_size"] = [100 * i for i in range(len(given))]
        ctypes.memmove(results, given.ctypes.data, given.nbytes)
        ctypes.c_int32.from_address(count).value = len(given)

    def matmul(self, *args: int) -> None:
        ms = self.times[ctypes.c_uint64.from_address(args[12]).value]
        if ms < 0:
            raise self.cuBLASLtError("not supported")
        self.gpu.now += ms


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeLt]:
    """Puts a pretended nvmath in place, with algorithms of these times."""
    codes: Any = type("Codes", (), {"__class_getitem__": staticmethod(len)})

    def install(gpu: FakeGpu, *times: float) -> FakeLt:
        made = FakeLt(gpu, *times)
        for name, module in {
            "nvmath": SimpleNamespace(CudaDataType=codes),
            "nvmath.bindings": SimpleNamespace(cublasLt=made),
            "nvmath.bindings.cublas": SimpleNamespace(ComputeType=codes),
        }.items():
            monkeypatch.setitem(sys.modules, name, module)
        return made

    return install


def test_cublas_takes_the_fastest_of_all_algorithms(lt: Any) -> None:
    work = a_work()
    before = work.gpu.free_bytes
    fake = lt(work.gpu, 3.0, -1.0, *(4.0 + i for i in range(60)), 1.0, 2.0)
    prepared = cublas.Cublas(best=True).prepare(work)
    assert prepared.note == "number 63 of 64 algorithms"
    assert prepared.workspace == 6200
    start = work.gpu.now
    prepared.queue(work.gpu.stream, *work.pointers(0))
    assert work.gpu.now - start == 1.0
    first = cublas.Cublas(best=False).prepare(work)
    assert (first.note, first.workspace) == ("", 0)
    for each in (prepared, first):
        each.close()
    assert (fake.alive, work.gpu.free_bytes) == (0, before)


def test_cublas_may_have_nothing(lt: Any) -> None:
    work = a_work()
    before = work.gpu.free_bytes
    for times, message in (((), "no algorithm for these"), ((-1.0,), "that can be launched")):
        fake = lt(work.gpu, *times)
        with pytest.raises(Unsupported, match=message):
            cublas.Cublas(best=True).prepare(work)
        assert (fake.alive, work.gpu.free_bytes) == (0, before)


@pytest.mark.parametrize(
    ("dtype", "best", "masked"),
    [("f16", True, True), ("f16", False, False), ("f32", True, False), ("f16_f16", True, False)],
)
def test_cublas_best_adds_parts_of_sums_in_their_own_type(
    lt: Any, dtype: str, best: bool, masked: bool
) -> None:
    work = a_work(dtype)
    fake = lt(work.gpu, 1.0)
    cublas.Cublas(best).prepare(work).close()
    assert fake.set.get("REDUCTION_SCHEME_MASK") == (b"\2\0\0\0" if masked else None)


def test_fp8_is_summed_in_two_ways(lt: Any) -> None:
    found = cublas.contenders(E4M3)
    names = [contender.name for contender in found]
    assert names == [
        *("cublas", "cublas best", "cublas fast accumulation", "cublas best fast accumulation"),
    ]
    work = a_work()
    work.dtypes = E4M3
    for contender, fast in zip(found, (0, 0, 1, 1), strict=True):
        fake = lt(work.gpu, 1.0)
        contender.prepare(work).close()
        assert fake.set["FAST_ACCUM"] == bytes([fast])
        assert fake.kinds == [len("CUDA_R_8F_E4M3")] * 2 + [len("CUDA_R_16BF")]
    assert [c.name for c in cutlass3.contenders(E4M3)] == ["cutlass3", "cutlass3 fast accumulation"]


# --- Triton ------------------------------------------------------------------------------------


def test_triton_takes_the_fastest_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    work = a_work()

    class Config(NamedTuple):
        ms: float

        @property
        def name(self) -> str:
            return str(self.ms)

    configs = [Config(ms) for ms in (3.0, 0.0, 1.0, 2.0)]
    module = SimpleNamespace(CONFIGS=configs)
    monkeypatch.setitem(sys.modules, "gen.bench.peers.triton_tma", module)

    def queue_of(work: Any, config: Any) -> Callable[..., None]:
        def queue(*_: object) -> None:
            if not config.ms:
                raise RuntimeError("out of resource: shared memory\nand more")
            work.gpu.now += config.ms

        return queue

    monkeypatch.setattr(triton_peers, "_tma_queue", queue_of)
    assert triton_peers.TritonTma().prepare(work).note == "1.0"
    module.CONFIGS = configs[1:2]
    with pytest.raises(Unsupported, match=r"Triton refuses: out of resource: shared memory$"):
        triton_peers.TritonTma().prepare(work)
    with pytest.raises(Unsupported, match="multiples of 16 bytes apart"):
        triton_peers.TritonTma().prepare(a_work(shape=(16, 24, 33)))


def test_a_gpu_that_is_lost_ends_the_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    work = a_work()

    def lost(_: int) -> None:
        raise GpuLost("gone")

    with pytest.raises(GpuLost):
        timing.ranked(work.gpu, [lost])


def test_tuning_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "estimate", lambda _, launch: launch(0))
    clock = iter(range(100))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    launches: Any = [lambda _, ms=ms: ms for ms in (3.0, 1.0, 2.0, 0.5)]
    assert timing.ranked(a_work().gpu, launches, 2) == ([1, 2, 0], 3)


# Types of A and B, of D, bytes of an element, what is row-major, number of the configuration.
COMPILED = [
    ("fp16", "fp16", 2, (True, True, True), 1, "m64n256k16.f32.f16.f16"),
    ("fp8e4nv", "bf16", 1, (True, False, True), 0, "m64n256k32.f32.e4m3.e4m3"),
    ("fp32", "fp32", 4, (True, False, False), 5, "m64n128k8.f32.tf32.tf32"),
    ("i8", "i32", 1, (True, False, True), 4, "m64n128k32.s32.s8.s8"),
]


@pytest.mark.parametrize(("element", "output", "size", "rows", "number", "opcode"), COMPILED)
def test_triton_multiplies_with_wgmma(
    element: str, output: str, size: int, rows: Any, number: int, opcode: str
) -> None:
    triton = pytest.importorskip("triton", exc_type=ImportError)
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gen.bench.peers import triton_tma

    config = triton_tma.CONFIGS[number]
    k, columns = config.k_bytes // size, config.n // (2 if config.halves else 1)
    stored = [(element, config.m, k), (element, k, config.n), (output, config.m, columns)]
    signature = {
        name: "tensordesc<{}[{}, {}]>".format(kind, *((r, c) if row_major else (c, r)))
        for name, (kind, r, c), row_major in zip("abd", stored, rows, strict=True)
    }
    constants = dict(zip(("A_ROWS", "B_ROWS", "D_ROWS"), rows, strict=True))
    constants |= {"INTEGER": element == "i8", "HALVES": config.halves, "BLOCK_K": k}
    constants |= {"BLOCK_M": config.m, "BLOCK_N": config.n, "GROUP": 8}
    signature |= dict.fromkeys("MNK", "i32") | dict.fromkeys(constants, "constexpr")
    options = {"num_warps": config.warps, "num_stages": config.stages}
    source = ASTSource(triton_tma.gemm, signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert f"wgmma.mma_async.sync.aligned.{opcode}" in made.asm["ptx"]
    assert "cp.async.bulk.tensor.2d.global" in made.asm["ptx"]


@pytest.mark.parametrize("rows", [True, False])
def test_triton_multiplies_groups_with_wgmma(rows: bool) -> None:
    triton = pytest.importorskip("triton", exc_type=ImportError)
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gen.bench.peers import triton_grouped

    config = triton_grouped.CONFIGS[3]
    k = config.k_bytes // 2
    tile = f"{k}, {config.n}" if rows else f"{config.n}, {k}"
    signature = {"a": f"tensordesc<bf16[{config.m}, {k}]>", "b": f"tensordesc<bf16[{tile}]>"}
    signature |= {"d": "*bf16", "ends": "*i32"}
    signature |= dict.fromkeys(("groups", "N", "K", "ldd"), "i32")
    constants = {"B_ROWS": rows, "BLOCK_M": config.m, "BLOCK_N": config.n, "BLOCK_K": k}
    signature |= dict.fromkeys(constants, "constexpr")
    options = {"num_warps": config.warps, "num_stages": config.stages}
    source = ASTSource(triton_grouped.gemm, signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in made.asm["ptx"]
    assert "cp.async.bulk.tensor.2d" in made.asm["ptx"]
