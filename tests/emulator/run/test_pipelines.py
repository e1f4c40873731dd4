"""Warp-specialised pipelines: right ones have no findings, planted bugs are found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gen.emulator import Counters, Emulator, SharedRaces, TensorMap
from gen.errors import PtxError, UsageError
from gen.spec.numerics import from_float64
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.pipeline_kernels import (
    BULK,
    CP_ASYNC,
    HELPERS,
    TENSOR,
    Result,
    run_copy,
    run_tensor,
)
from tests.support.slow import each, sift, slow

RUNS = {
    "cp.async": (CP_ASYNC, run_copy),
    "bulk": (BULK, lambda source: run_copy(source, "compute_90a")),
    "tensor": (TENSOR, run_tensor),
}


def planted(kernel: str, old: str, new: str) -> Result:
    source, run = RUNS[kernel]
    changed = source.replace(old, new)
    assert changed != source
    result: Result = run(changed)
    return result


@pytest.mark.parametrize("kernel", RUNS)
@pytest.mark.parametrize("stages", sift([1, 2, 3, 4], [1, 3]))
def test_pipelines_are_clean(kernel: str, stages: int) -> None:
    source, run = RUNS[kernel]
    result = run(source.replace("kStages = 3", f"kStages = {stages}"))
    assert result.report.findings == []
    assert result.right


def test_blocks_that_do_different_things() -> None:
    source = CP_ASYNC.replace("i < steps;", "i < steps - (int)blockIdx.x;")
    result = run_copy(source, steps=8, blocks=2)
    assert result.report.findings == []
    assert not result.right  # the second block leaves its last tile out
    assert "deadlock" in str(
        run_copy(CP_ASYNC.replace("i < steps;", "i < steps - (int)blockIdx.x;", 1)).report.findings
    )


ARRIVE = "arrive(empty + i % kStages);"
FULL, EMPTY = "wait(full + i % kStages, i / kStages % 2);", "i / kStages % 2 ^ 1);"
READ = "out[i * 32 + lane] = tile[i % kStages][31 - lane];"

BUGS = {
    "no wait for a full stage": (FULL, "", {"synccheck", "initcheck"}),
    "a wait for the wrong full stage": (
        FULL, "wait(full, i / kStages % 2);", {"RAW", "synccheck", "initcheck"},
    ),
    "no wait for an empty stage": ("wait(empty + i % kStages, " + EMPTY, "", {"WAW", "WAR", "RAW"}),
    "arrivals before the last read": (
        READ, f"{ARRIVE} {READ} if (lane > 40)", {"WAR"},
    ),
    "one lane arrives for its warp": (
        ARRIVE, f"if (lane == 0) for (int n = 0; n < 32; ++n) {ARRIVE}", {"WAR"},
    ),
    "a wrong parity of full stages": (FULL, FULL.replace("% 2", "% 2 ^ 1"), {"initcheck"}),
    "a wrong parity of empty stages": (EMPTY, "i / kStages % 2);", {"synccheck"}),
    "one arrival too few": (ARRIVE, f"if (lane) {ARRIVE}", {"synccheck"}),
    "one arrival too many to expect": ("init(empty + i, 32)", "init(empty + i, 33)", {"synccheck"}),
    "one arrival expected too few": ("init(empty + i, 32)", "init(empty + i, 31)", {"WAR"}),
    "no barrier behind the initialisation": ("__syncthreads();", "", {"WAW"}),
    "no arrivals": (ARRIVE, "", {"synccheck"}),
    "no initialisation of the last stage": (
        "i < kStages; ++i", "i < kStages - 1; ++i", {"synccheck", "initcheck"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernel", each(2, ["cp.async", "bulk"]))
@pytest.mark.parametrize("bug", each(2, BUGS))
def test_planted_bugs(kernel: str, bug: str) -> None:
    old, new, kinds = BUGS[bug]
    result = planted(kernel, old, new)
    assert kinds & result.kinds, result.report.findings


COPY_BUGS = {
    "cp.async": {
        "one copy is not waited for": (
            "signal(full + i % kStages);", "arrive(full + i % kStages);", {"RAW"},
        ),
        "a phase that expects one copy too few": ("(full + i, 32)", "(full + i, 31)", {"RAW"}),
        "arrivals on top of those expected": (".noinc", "", {"synccheck"}),
    },
    "bulk": {
        "more bytes expected than copied": (
            "(full + i % kStages, 512)", "(full + i % kStages, 528)", {"synccheck"},
        ),
        "fewer bytes expected than copied": (
            "(full + i % kStages, 512)", "(full + i % kStages, 496)", {"synccheck"},
        ),
        "no bytes expected": (
            "expect(full + i % kStages, 512)", "arrive(full + i % kStages)", {"RAW"},
        ),
        "a size that is no multiple of 16": (
            "in + i * 32, 512,", "in + i * 32, 500,", {"memcheck"},
        ),
        "a misaligned source": ("in + i * 32, 512,", "(char*)in + 8, 512,", {"memcheck"}),
        "a source out of bounds": ("in + i * 32, 512,", "in + 4096, 512,", {"memcheck"}),
        "a target out of bounds": (
            "bulk(tile[i % kStages]", "bulk((char*)tile + 8192", {"memcheck"},
        ),
        "an mbarrier out of bounds": (
            "512, full + i % kStages);", "512, full + 4096);", {"memcheck"},
        ),
        "an mbarrier that ends out of bounds": (
            "512, full + i % kStages);", "512, (u64*)((char*)tile + 1580));", {"memcheck"},
        ),
        "a misaligned mbarrier": (
            "512, full + i % kStages);", "512, (u64*)((char*)full + 4));", {"memcheck"},
        ),
        "nobody waits for the last copy": (
            "    for (int i = 0; i < steps; ++i) {\n      wait(full",
            "    for (int i = 0; i < steps - 1; ++i) {\n      wait(full", {"synccheck"},
        ),
    },
    "tensor": {
        "no swizzle in the reads": ("[c ^ row]", "[c]", set()),
        "one byte too many expected": ("kStages, 1024)", "kStages, 1040)", {"synccheck"}),
        "an mbarrier out of bounds": (
            "8 * blockIdx.x, full + i % kStages)", "8 * blockIdx.x, full + 4096)", {"memcheck"},
        ),
        "no bytes expected": (
            "expect(full + i % kStages, 1024)", "arrive(full + i % kStages)", {"RAW"},
        ),
        "a misaligned target": (
            "tensor(tile[i % kStages],", "tensor(tile[i % kStages][0] + 1,",
                                {"memcheck"},
        ),
        "no wait for the copy out": ("drain();", "", {"WAR"}),
        "no barrier before the copy out": ("fence();\n      __syncwarp();", "fence();", {"RAW"}),
        "no fence behind the initialisation": ("fence_init();\n  }", "}", {"RAW"}),
        "something else than a map": ("&in, 64 * i", "(Map*)&steps, 64 * i", {"memcheck"}),
        "a copy out that misses a tile": (
            "64 * i, 8 * blockIdx.x, result", "64 * i, 0, result", {"WAW"},
        ),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "bug"),
    each(3, [(kernel, bug) for kernel, bugs in COPY_BUGS.items() for bug in bugs]),
)
def test_planted_bugs_of_copies(kernel: str, bug: str) -> None:
    old, new, kinds = COPY_BUGS[kernel][bug]
    result = planted(kernel, old, new)
    assert not kinds or kinds & result.kinds, result.report.findings
    assert not result.right or result.report.findings


@pytest.mark.parametrize(
    ("barrier", "rule"),
    [
        ("full + 4096", r"its mbarrier, shared\+\d+ of 1584, is out of bounds"),
        (
            "(u64*)((char*)full + 4)",
            r"the mbarrier's address is shared\+\d+ of \d+ \(full\), not a multiple of 8",
        ),
    ],
)
def test_findings_of_a_copy_name_its_mbarrier(barrier: str, rule: str) -> None:
    result = planted("bulk", "512, full + i % kStages);", f"512, {barrier});")
    finding = next(f for f in result.report.findings if f.check == "memcheck")
    assert re.fullmatch(f"bulk copy: {rule}", finding.message)


def test_findings_of_a_pipeline_name_both_lines() -> None:
    result = planted("bulk", *BUGS["one lane arrives for its warp"][:2])
    missed, finding = sorted(result.report.findings, key=lambda one: one.check, reverse=True)
    assert "may miss its phase" in missed.message  # nobody asks whether the other lanes have waited
    assert "bulk copy of 16 bytes at shared+0 of 1584 (tile) races with the load" in finding.message
    assert READ in finding.other_source


LIMITS = {
    "dims=()": "1 to 5 dimensions",
    "strides=(520,)": "a stride is a multiple of 16 bytes",
    "box=(512, 8)": "1 to 256 elements",
    "box=(4, 8)": "a row of the box is a multiple of 16 bytes",
    "box=(128, 8), swizzle=128": "not longer than the swizzle",
    "swizzle=48": "0, 32, 64 or 128 bytes",
    "steps=(1, 9)": "the steps are 1 to 8",
    "element='f17'": "unknown type",
}


@pytest.mark.parametrize("change", LIMITS)
def test_limits_of_tensor_maps(change: str) -> None:
    buffer = Emulator().alloc(np.zeros((8, 256), np.float16), "A")
    good = {"element": "f16", "dims": (256, 8), "strides": (512,), "box": (64, 8)}
    assert TensorMap(buffer, **good).nbytes == 1024
    with pytest.raises(UsageError, match=LIMITS[change]):
        TensorMap(buffer, **{**good, **eval(f"dict({change})")})


BOX = (
    HELPERS
    + """
extern "C" __global__ void kernel(const __grid_constant__ Map map, unsigned* out, int x, int y) {
  __shared__ __align__(1024) unsigned s[512];
  __shared__ u64 bar;
  const int t = threadIdx.x;
  if (t == 0) { init(&bar, 1); expect(&bar, BYTES); tensor(s, &map, x, y, &bar); }
  __syncthreads();
  wait(&bar, 0);
  for (int i = t; i < BYTES / 4; i += 32) out[i] = s[i];
}
"""
)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (4, 3), (-4, -2), (60, 30), (92, 50)])
def test_boxes(swizzle: int, x: int, y: int) -> None:
    """Every second row of a box, which may lie outside; swizzled as the PTX manual draws it."""
    emulator, width = Emulator(), (swizzle or 48) // 4
    values = np.arange(1, 1 + 32 * 64, dtype=np.uint32).reshape(32, 64)
    array = emulator.alloc(values, "A")
    tensor = TensorMap(array, "b32", (64, 32), (256,), (width, 16), (1, 2), swizzle)
    out = emulator.alloc(np.zeros(512, np.uint32), "out")
    counters, args = Counters(), [tensor, out, np.int32(x), np.int32(y)]
    ptx = compile_cuda(BOX.replace("BYTES", str(width * 32)), "compute_90a")
    report = emulator.launch(ptx, "kernel", (1, 1, 1), (32, 1, 1), args, observers=[counters])
    assert report.findings == []
    rows, columns = np.arange(y, y + 16, 2)[:, None], np.arange(x, x + width)
    inside = (rows >= 0) & (rows < 32) & (columns >= 0) & (columns < 64)
    box = np.where(inside, values[rows % 32, columns % 64], 0)
    chunks = box.reshape(-1, 4)  # of 16 bytes
    at = np.arange(len(chunks))
    line = {0: 0, 32: at >> 3 & 1, 64: at >> 3 & 3, 128: at >> 3 & 7}[swizzle]
    assert (emulator.read(out)[: box.size].reshape(-1, 4)[at ^ line] == chunks).all()
    assert counters.totals().global_load.bytes == inside.sum() * 4


@pytest.mark.parametrize(("swizzle", "width"), [(64, 4), (64, 12), (128, 4), (128, 20), (128, 28)])
def test_boxes_narrower_than_their_swizzle(swizzle: int, width: int) -> None:
    """Rows stay as far apart as the swizzle is wide, and the barrier counts the box alone."""
    emulator, rows = Emulator(), 16
    values = np.arange(1, 1 + 32 * 64, dtype=np.uint32).reshape(32, 64)
    array = emulator.alloc(values, "A")
    tensor = TensorMap(array, "b32", (width, 32), (256,), (width, rows), (), swizzle)
    out = emulator.alloc(np.zeros(512, np.uint32), "out")
    source = BOX.replace("expect(&bar, BYTES)", f"expect(&bar, {4 * width * rows})")
    ptx = compile_cuda(source.replace("BYTES", str(swizzle * rows)), "compute_90a")
    args = [tensor, out, np.int32(0), np.int32(5)]
    emulator.launch(ptx, "kernel", (1, 1, 1), (32, 1, 1), args)
    found = emulator.read(out)[: rows * swizzle // 4].reshape(-1, 4)
    at = np.arange(len(found))
    line = {64: at >> 3 & 3, 128: at >> 3 & 7}[swizzle]
    box = found[at ^ line].reshape(rows, swizzle // 4)
    assert (box[:, :width] == values[5 : 5 + rows, :width]).all()
    assert (box[:, width:] == 0xFFFFFFFF).all()  # as shared memory begins


def test_a_map_of_tf32_rounds_what_it_copies() -> None:
    """What it stores is in no manual, and refused."""
    emulator = Emulator()
    values = np.float32([1, 1 + 2**-12, 1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11 - 2**-20, 3.4e38])
    array = emulator.alloc(np.resize(values, (8, 64)), "A")
    out = emulator.alloc(np.zeros(512, np.uint32), "out")
    args = [TensorMap(array, "tf32", (6, 1), (256,), (8, 1)), out, np.int32(0), np.int32(0)]
    ptx = compile_cuda(BOX.replace("BYTES", "32"), "compute_90a")
    assert not emulator.launch(ptx, "kernel", (1, 1, 1), (32, 1, 1), args).findings
    rounded = [1, 1, 1, 1 + 2**-9, -1 - 2**-10, 3.4e38, 0, 0]
    assert (
        emulator.read(out)[:8].view(np.float32) == from_float64(np.array(rounded), "tf32")
    ).all()
    store = """
    extern "C" __global__ void kernel(const __grid_constant__ Map map) {
      __shared__ __align__(128) unsigned s[8];
      tensor_out(&map, 0, 0, s);
    }"""
    with pytest.raises(PtxError, match="a store by a tensor map of TFLOAT32 is not supported"):
        emulator.launch(
            compile_cuda(HELPERS + store, "compute_90a"), "kernel", (1, 1, 1), (1, 1, 1), args[:1]
        )


@pytest.mark.parametrize("x", [1, 2, -3, 63])
def test_a_box_begins_at_a_multiple_of_16_bytes(x: int) -> None:
    emulator = Emulator()
    array = emulator.alloc(np.zeros((32, 64), np.uint32), "A")
    args = [
        TensorMap(array, "b32", (64, 32), (256,), (8, 16)), emulator.alloc(np.zeros(512), "out"),
        np.int32(x), np.int32(0),
    ]  # fmt: skip
    ptx = compile_cuda(BOX.replace("BYTES", "512"), "compute_90a")
    finding = emulator.launch(ptx, "kernel", (1, 1, 1), (32, 1, 1), args).findings[0]
    assert finding.check == "memcheck"
    assert f"the first coordinate, in bytes, is {4 * x}, not a multiple of 16" in finding.message


@pytest.mark.parametrize(
    ("x", "is_map", "message"),
    [
        (4, True, ""),
        (1024, True, ""),  # wholly outside
        (2, True, "the first coordinate, in bytes, is 8, not a multiple of 16"),
        (4, False, "no tensor map at"),
    ],
)
def test_prefetch_of_a_box(x: int, is_map: bool, message: str) -> None:
    """It changes nothing, but a GPU takes a wrong operand for an illegal instruction."""
    emulator = Emulator()
    array = emulator.alloc(np.zeros((32, 64), np.uint32), "A")
    tensor = TensorMap(array, "b32", (64, 32), (256,), (8, 16))
    text = """
    struct alignas(64) Map { char bytes[128]; };
    extern "C" __global__ void kernel(const __grid_constant__ Map map, int x, bool is_map) {
      const void* from = is_map ? &map : reinterpret_cast<const void*>(1 << 16);
      asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(from),
                   "r"(x), "r"(0) : "memory");
    }"""
    args = [tensor, np.int32(x), np.bool_(is_map)]
    report = emulator.launch(
        compile_cuda(text, "compute_90a"), "kernel", (1, 1, 1), (1, 1, 1), args
    )
    assert [finding.check for finding in report.findings] == ["memcheck"] * bool(message)
    assert all(message in finding.message for finding in report.findings)


HELD = (
    HELPERS
    + """
struct Arguments { int x; alignas(64) Map map; int y; };
__device__ void copy(const Map* map, unsigned* out, int x, int y) {
  __shared__ __align__(1024) unsigned s[128];
  __shared__ u64 bar;
  const int t = threadIdx.x;
  if (t == 0) { init(&bar, 1); expect(&bar, 512); tensor(s, map, x, y, &bar); }
  __syncthreads();
  wait(&bar, 0);
  for (int i = t; i < 128; i += 32) out[i] = s[i];
}
extern "C" __global__ void in_struct(const __grid_constant__ Arguments args, unsigned* out) {
  copy(&args.map, out, args.x, args.y);
}
extern "C" __global__ void in_memory(const Map* map, unsigned* out) { copy(map, out, 4, 3); }
"""
)


@pytest.mark.parametrize("kernel", ["in_struct", "in_memory"])
def test_a_map_may_lie_anywhere(kernel: str) -> None:
    emulator = Emulator()
    values = np.arange(32 * 64, dtype=np.uint32).reshape(32, 64)
    array = emulator.alloc(values, "A")
    raw = emulator.encode(TensorMap(array, "b32", (64, 32), (256,), (8, 16)))
    assert raw == emulator.encode(TensorMap(array, "b32", (64, 32), (256,), (8, 16)))
    held = {
        "in_struct": np.void(
            np.int32(4).tobytes() + bytes(60) + raw + np.int32(3).tobytes() + bytes(60)
        ),
        "in_memory": emulator.alloc(np.frombuffer(raw, np.uint8), "map"),
    }
    out = emulator.alloc(np.zeros((16, 8), np.uint32), "out")
    ptx = compile_cuda(HELD, "compute_90a")

    def run() -> list[str]:
        report = emulator.launch(ptx, kernel, (1, 1, 1), (32, 1, 1), [held[kernel], out])
        return [finding.message for finding in report.findings]

    assert run() == []
    assert np.array_equal(emulator.read(out), values[3:19, 4:12])
    emulator.free(array)
    assert "no tensor map at" in run()[0]


def test_a_map_of_a_freed_array() -> None:
    emulator = Emulator()
    array = emulator.alloc(np.zeros((8, 64), np.uint32), "A")
    emulator.free(array)
    with pytest.raises(UsageError, match="'A' is not allocated"):
        emulator.encode(TensorMap(array, "b32", (64, 8), (256,), (8, 8)))


def test_stores_end_at_a_multiple_of_16_bytes() -> None:
    """What follows the tensor's rows in the last 16 bytes is overwritten, as on a GPU."""
    report = run_tensor(columns=300)
    assert not report.right
    assert not report.report.findings


def test_a_map_beyond_its_buffer() -> None:
    emulator = Emulator()
    array = emulator.alloc(np.zeros((8, 64), np.uint32), "A")
    tensor = TensorMap(array, "b32", (64, 9), (256,), (32, 9))
    out = emulator.alloc(np.zeros(512, np.uint32), "out")
    args = [tensor, out, np.int32(0), np.int32(0)]
    ptx = compile_cuda(BOX.replace("BYTES", "1152"), "compute_90a")
    (finding,) = emulator.launch(ptx, "kernel", (1, 1, 1), (32, 1, 1), args).findings
    assert finding.check == "memcheck"
    assert "A+2048 of 2048 is out of bounds" in finding.message


CUTLASS = r"""
#include <cutlass/arch/barrier.h>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>
using namespace cute;
using Pipeline = cutlass::PipelineTmaAsync<3>;
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void kernel(const __grid_constant__ Map in, unsigned* out, int steps) {
  __shared__ alignas(1024) unsigned tile[3][8][32];
  __shared__ alignas(16) char raw[sizeof(Pipeline::SharedStorage)];
  const int x = threadIdx.x;
  Pipeline::Params params;
  params.transaction_bytes = 1024;
  params.role = x < 32 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
  params.is_leader = x == 0;
  params.num_consumers = 128;
  Pipeline pipe(*reinterpret_cast<Pipeline::SharedStorage*>(raw), params, Shape<_1, _1, _1>{});
  __syncthreads();
  if (x < 32) {
    if (cute::elect_one_sync()) {
      auto state = cutlass::make_producer_start_state<Pipeline>();
      for (int i = 0; i < steps; ++i, ++state) {
        pipe.producer_acquire(state);
        SM90_TMA_LOAD_2D::copy(&in, (uint64_t*)pipe.producer_get_barrier(state), 0ull,
                               tile[state.index()], 0, 8 * i);
      }
      pipe.producer_tail(state);
    }
  } else if (x >= 128) {
    cutlass::PipelineState<3> state;
    for (int i = 0; i < steps; ++i, ++state) {
      pipe.consumer_wait(state);
      for (int k = x - 128; k < 256; k += 128)
        out[256 * i + k] = tile[state.index()][k / 32][k % 32];
      if (i % 2) cutlass::arch::NamedBarrier::sync(128, 0);
      pipe.consumer_release(state);
    }
  }
}
"""


def run_cutlass(source: str) -> Result:
    emulator, values = Emulator(), np.arange(80 * 32, dtype=np.uint32).reshape(80, 32)
    array, out = emulator.alloc(values, "A"), emulator.alloc(np.zeros_like(values), "out")
    args = [TensorMap(array, "b32", (32, 80), (128,), (32, 8)), out, np.int32(10)]
    report = emulator.launch(
        compile_cuda(source, "compute_90a"), "kernel", (1, 1, 1), (256, 1, 1), args,
        observers=[SharedRaces()],
    )  # fmt: skip
    return Result(bool((emulator.read(out) == values).all()), report)


@slow
def test_the_pipeline_of_cutlass() -> None:
    result = run_cutlass(CUTLASS)
    assert result.report.findings == []
    assert result.right
    for old, new, kind in (
        ("transaction_bytes = 1024", "transaction_bytes = 1040", "synccheck"),
        ("pipe.consumer_wait(state);", "", "RAW"),
        ("pipe.consumer_release(state);", "", "synccheck"),
    ):
        assert kind in run_cutlass(CUTLASS.replace(old, new)).kinds
