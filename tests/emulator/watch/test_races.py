"""Races that lockstep hides: each is found with both of its lines, and orderly code has none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gen.emulator import Emulator, Finding, GlobalRaces, LaunchReport, SharedRaces, TensorMap
from tests.emulator import cutlass_kernels, tensor_kernels
from tests.emulator.emulator_kernels import compile_cuda, gemm_source, geometry, run_gemm
from tests.emulator.pipeline_kernels import HELPERS
from tests.emulator.watched import Watched
from tests.support.slow import sift, slow

FIRST = 4  # the line of a kernel's body: see `kernel`


def kernel(body: str) -> str:
    header = 'extern "C" __global__ void kernel(int* out) {\n  const int x = threadIdx.x;\n'
    return f"#include <cuda_pipeline_primitives.h>\n{header}{body}\n}}\n"


def launch(body: str, threads: int = 64, blocks: int = 2, elements: int = 256) -> LaunchReport:
    emulator, source = Emulator(), kernel(body)
    out = emulator.alloc(np.arange(elements, dtype=np.int32), "out")
    return emulator.launch(
        compile_cuda(source), "kernel", (blocks, 1, 1), (threads, 1, 1), [out],
        source_lines=source.splitlines(), observers=[SharedRaces(), GlobalRaces()],
    )  # fmt: skip


def lines(findings: list[Finding]) -> set[tuple[str, int, int]]:
    """(kind, line of the later access, line of the earlier one), counted from the body's start."""
    assert all(finding.check == "racecheck" for finding in findings)
    return {(f.kind, f.file_line - FIRST, f.other_line - FIRST) for f in findings}


def races(body: str, **options: int) -> set[tuple[str, int, int]]:
    return lines(launch(body, **options).findings)


SHARED = "  __shared__ volatile int s[64];\n"  # volatile: every access stays in the code
SWAP = SHARED + "  s[x] = x;\n{between}\n  out[x + 64 * blockIdx.x] = s[{read}];"


def test_neighbours_without_a_barrier() -> None:
    (finding,) = launch(SWAP.format(between="", read="x ^ 1")).findings
    assert lines([finding]) == {("RAW", 3, 1)}
    assert finding.threads == ((0, 0, 0), (1, 0, 0))
    assert finding.block == (0, 0, 0)
    assert finding.address == "shared+4 of 256 (s)"
    assert finding.source.strip().startswith("out[")
    assert finding.other_source.strip() == "s[x] = x;"
    assert "races with the store at line 5 (RAW)" in str(finding)
    assert finding.as_dict()["other_line"] == 5


def test_what_orders_them() -> None:
    assert races(SWAP.format(between="  __syncthreads();", read="63 - x")) == set()
    assert races(SWAP.format(between="  __syncwarp();", read="x ^ 31")) == set()
    assert races(SWAP.format(between="", read="x")) == set()  # a thread's own


def test_lanes_of_a_warp_race_and_shuffles_do_not_order_them() -> None:
    shuffle = "  if (__shfl_xor_sync(~0u, x, 1) == 99) out[0] = 1;"
    assert races(SWAP.format(between=shuffle, read="x ^ 1")) == {("RAW", 3, 1)}


def test_a_warp_barrier_orders_one_warp_only() -> None:
    body = SWAP.format(between="  __syncwarp();", read="63 - x")
    (finding,) = launch(body).findings
    assert {thread[0] // 32 for thread in finding.threads} == {0, 1}
    write_again = SHARED + "  int v = s[x ^ 1];\n  __syncwarp();\n  s[{}] = v; out[x] = v;"
    assert races(write_again.format("x"), blocks=1) == set()
    assert races(write_again.format("x ^ 32"), blocks=1) == {("WAR", 3, 1)}


def test_warps_that_synchronise_one_after_the_other() -> None:
    """Warp 0 reads before and after its barrier; only what it reads after it still clashes."""
    body = SHARED + "  int v = s[0];\n  __syncwarp();\n  if (x == {}) v += s[0];\n"
    body += "  if (x == {}) s[0] = v;\n  out[x + 64 * blockIdx.x] = v;"
    assert races(body.format(3, 3), threads=32) == set()
    assert races(body.format(3, 4), threads=32) == {("WAR", 4, 3)}


def test_everyone_writes_the_same_value() -> None:
    body = SHARED + "  s[0] = 7;\n  __syncthreads();\n  out[x + 64 * blockIdx.x] = s[0];"
    (finding,) = launch(body).findings
    assert lines([finding]) == {("WAW", 1, 1)}
    assert finding.threads[0] != finding.threads[1]
    body = SHARED + "  s[x / 2] = 7;\n  __syncthreads();\n  out[x + 64 * blockIdx.x] = s[x / 2];"
    assert races(body) == {("WAW", 1, 1)}


def test_reads_of_one_element_by_all_are_no_race() -> None:
    body = SHARED + "  if (x == 0) s[0] = 7;\n  __syncthreads();\n  int sum = 0;\n"
    body += "  for (int i = 0; i < 8; ++i) sum += s[0] + s[x & 1 ? 0 : i];\n"
    body += "  out[x + 64 * blockIdx.x] = sum;"
    assert races(body.replace("s[x & 1", "s[0 & 1")) == set()


def test_a_read_by_all_then_a_write_by_one() -> None:
    body = SHARED + "  int v = s[0];\n  if (x == {}) s[0] = 3;\n  out[x + 64 * blockIdx.x] = v;"
    for writer in (0, 31, 40, 63):
        assert races(body.format(writer)) == {("WAR", 2, 1)}
    body = body.replace("int v = s[0]", "int v = 0; if (x == 9) v = s[0]")
    assert races(body.format(9)) == set()
    assert races(body.format(8)) == {("WAR", 2, 1)}


def test_atomics_race_with_plain_accesses_only() -> None:
    start = SHARED + "  if (x == 0) s[0] = 0;\n  __syncthreads();\n"
    end = "  __syncthreads();\n  out[x + 64 * blockIdx.x] = s[0];"
    adds = "  atomicAdd((int*)s, x);\n  atomicMax((int*)s, 3);\n"
    assert races(start + adds + end) == set()
    (race,) = races(start + adds + "  if (x == 5) s[0] = 1;\n" + end)
    assert race in {("WAW", 5, 3), ("WAW", 5, 4)}
    assert races(start + "  int v = s[0];\n" + adds + end + " out[0] |= v;", blocks=1) >= {
        ("WAR", 4, 3)
    }
    assert {("RAW", 5, 3), ("RAW", 5, 4)} & races(
        start + adds + "  if (x == 7) out[0] = s[0];\n" + end
    )


def test_bytes_are_told_apart() -> None:
    """Neighbouring bytes of one word do not race, overlapping accesses of other widths do."""
    body = "  __shared__ __align__(16) unsigned char s[64];\n  s[x] = x;\n{}\n  out[x] = v;"
    assert races(body.format("  int v = s[x];"), blocks=1) == set()
    wide = "  int v = reinterpret_cast<int*>(s)[x / 4];"
    assert races(body.format(wide), blocks=1) == {("RAW", 2, 1)}
    assert races(body.format("  __syncthreads();" + wide), blocks=1) == set()


def test_blocks_that_do_different_things() -> None:
    """Only block 1 races; it is the one that is named."""
    body = SHARED + "  s[blockIdx.x ? x : x ^ 1] = x;\n  if (blockIdx.x == 0) __syncthreads();\n"
    body += "  out[x + 64 * blockIdx.x] = s[x ^ 1];"
    (finding,) = launch(body).findings
    assert finding.block == (1, 0, 0)
    body = SHARED + "  for (int i = 0; i <= blockIdx.x; ++i) {\n    s[x] = i;\n"
    body += "    __syncthreads();\n    out[x + 64 * blockIdx.x] = s[63 - x];\n"
    assert races(body + "    __syncthreads();\n  }", blocks=4) == set()
    (finding,) = launch(body + "  }", blocks=4).findings
    assert lines([finding]) == {("WAR", 2, 4)}
    assert finding.block > (0, 0, 0)


NAMED = '  asm volatile("bar.sync {}, 64;" ::: "memory");\n'


def test_named_barriers_order_those_who_meet() -> None:
    pair = SHARED.replace("64", "128") + "  s[x] = x;\n"
    pair += "  if (x < 64) {\n  " + NAMED.format(1) + "  } else {\n  " + NAMED.format(2) + "  }\n"
    read = "  out[x] = s[{}];"
    assert races(pair + read.format("x ^ 32"), threads=128, blocks=1) == set()
    # The threads of the other barrier are not ordered; that is not known any more once both have
    # met, but it is as long as one side has not.
    half = SHARED.replace("64", "128") + "  s[x] = x;\n  if (x < 64)\n  " + NAMED.format(1)
    assert races(half + read.format("x ^ 64"), threads=128, blocks=1) == {("RAW", 4, 1)}


COPY = """  __shared__ __align__(16) int s[2][256];
  int sum = 0;
  __pipeline_memcpy_async(&s[0][4 * x], out + 4 * x, 16);
  __pipeline_commit();
  for (int i = 0; i < 3; ++i) {
    if (i < 2) __pipeline_memcpy_async(&s[(i + 1) & 1][4 * x], out + 4 * x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(WAIT);
    __syncthreads();
    sum += s[i & 1][255 - x];
    __syncthreads();
  }
  if (sum == -1) out[x] = sum;"""


def test_asynchronous_copies() -> None:
    assert races(COPY.replace("WAIT", "1"), blocks=1) == set()
    found = launch(COPY.replace("WAIT", "2"), blocks=1).findings
    assert ("RAW", 9, 2) in lines(found)
    assert "still in flight" in found[0].message
    no_barrier = COPY.replace("    __syncthreads();\n    sum", "    sum").replace("WAIT", "0")
    assert {kind for kind, *_ in races(no_barrier, blocks=1)} == {"RAW"}


def test_a_threads_own_copy_is_in_flight_too() -> None:
    body = "  __shared__ __align__(16) int s[256];\n"
    body += "  __pipeline_memcpy_async(&s[4 * x], out + 4 * x, 16);\n  __pipeline_commit();\n{}\n"
    body += "  if (s[4 * x] == -1) out[x] = 0;"
    assert races(body.format("  __pipeline_wait_prior(0);"), blocks=1) == set()
    assert races(body.format("  __syncthreads();"), blocks=1) == {("RAW", 4, 1)}


# -- global memory --------------------------------------------------------------------------------


def test_blocks_that_write_the_same_element() -> None:
    (finding,) = launch("  out[x] = x;", threads=8).findings
    assert lines([finding]) == {("WAW", 0, 0)}
    assert finding.address == "out+0 of 1024"
    assert "of block (" in finding.message
    assert races("  out[x + 64 * blockIdx.x] = x;") == set()
    assert races("  atomicAdd(out + x, x);") == set()
    assert races("  out[x / 2] = 1;", blocks=1) == {("WAW", 0, 0)}


def test_a_block_that_reads_what_another_writes() -> None:
    body = "  const int i = x + 64 * blockIdx.x;\n  const int v = out[(i + {}) % 256];\n"
    body += "  out[i] = v;"
    assert races(body.format(0), blocks=4) == set()
    assert races(body.format(64), blocks=4) == {("WAR", 2, 1)}
    write = "  out[x + 64 * blockIdx.x] = 1;\n"
    read = "  if (out[(x + 64 * blockIdx.x) ^ 1] == 9) out[0] = 1;"
    assert races(write + "  __syncthreads();\n" + read) == set()
    assert races(write + read) == {("RAW", 1, 0)}


# Each of two blocks copies 256 bytes of `out` to shared memory, its own or those of the other one.
COPY_IN = """  __shared__ __align__(16) int s[64];
  const int mine = 64 * blockIdx.x, there = mine ^ {distance};
{early}
  if (x < 16) __pipeline_memcpy_async(s + 4 * x, out + there + 4 * x, 16, {zeros});
  __pipeline_commit(); __pipeline_wait_prior(0);
  __syncthreads();
{late}"""
EARLY, COPIED, LATE = 2, 3, 6  # lines


def copies_in(early: str = "", late: str = "", distance: int = 64, zeros: int = 0) -> LaunchReport:
    return launch(COPY_IN.format(early=early, late=late, distance=distance, zeros=zeros))


@pytest.mark.parametrize("write", ["out[mine + x] = x;", "atomicAdd(out + mine + x, 1);"])
def test_a_copy_of_what_another_block_writes(write: str) -> None:
    early = copies_in(early=write + " __syncthreads();")
    assert lines(early.findings) == {("RAW", COPIED, EARLY)}
    (finding,) = copies_in(late=write).findings
    assert lines([finding]) == {("WAR", LATE, COPIED)}
    assert finding.source == write
    assert "memcpy_async" in finding.other_source
    assert "of 4 bytes at out+0 of 1024 races with the cp.async at line" in finding.message
    assert "of block (1,0,0) (WAR)" in finding.message


def test_a_copy_of_what_its_own_block_writes() -> None:
    write = "out[mine + (x ^ 1)] = x;"
    assert copies_in(early=write + " __syncthreads();", distance=0).findings == []
    assert copies_in(late=write, distance=0).findings == []
    early = copies_in(early=write, distance=0)
    assert lines(early.findings) == {("RAW", COPIED, EARLY)}


@pytest.mark.parametrize(
    ("when", "zeros", "found"),
    [("x % 4 >= 2", 8, False), ("x % 4 == 1", 8, True), ("x % 4 == 0", 16, False)],
)
def test_a_copy_reads_no_more_than_it_has_to(when: str, zeros: int, found: bool) -> None:
    """Of each 16 bytes, the last `zeros` are not read: another block may write there."""
    write = f"if ({when}) out[mine + x] = x;"
    early = copies_in(early=write + " __syncthreads();", zeros=zeros)
    late = copies_in(late=write, zeros=zeros)
    assert lines(early.findings) == ({("RAW", COPIED, EARLY)} if found else set())
    assert lines(late.findings) == ({("WAR", LATE, COPIED)} if found else set())


BULK = """extern "C" __global__ void kernel(int* out, const __grid_constant__ Map map) {
  const int x = threadIdx.x, mine = 64 * blockIdx.x;
  __shared__ __align__(128) int s[64];
  __shared__ u64 bar;
  if (x == 0) init(&bar, 1);
  s[x] = x;
  fence();
  __syncthreads();
"""
FETCH = "if (x == 0) {{ expect(&bar, 256); {}; }}\nwait(&bar, 0);\n"
SEND = "if (x == 0) {{ {}; commit(); drain(); }}\n"
READ = "if (out[mine + x] == 99) s[x] = 0;\n"
WRITE = "out[mine + x] = 1;\n"
SYNC = "__syncthreads();\n"


def bulk_races(*pieces: str) -> set[str]:
    source, emulator = HELPERS + BULK + "".join(pieces) + "}\n", Emulator()
    out = emulator.alloc(np.arange(128, dtype=np.int32), "out")
    report = emulator.launch(
        compile_cuda(source, "compute_90a"), "kernel", (2, 1, 1), (64, 1, 1),
        [out, TensorMap(out, "b32", (128, 1), (512,), (64, 1))],
        source_lines=source.splitlines(), observers=[GlobalRaces()],
    )  # fmt: skip
    return {kind for kind, *_ in lines(report.findings)}


@pytest.mark.parametrize("copy", ["bulk(s, out + {}, 256, &bar)", "tensor(s, &map, {}, 0, &bar)"])
def test_bulk_copies_of_what_another_block_writes(copy: str) -> None:
    mine, other, both = (FETCH.format(copy.format(at)) for at in ("mine", "(mine ^ 64)", "0"))
    assert bulk_races(other, WRITE) == {"WAR"}
    assert bulk_races(WRITE, SYNC, other) == {"RAW"}
    assert bulk_races(WRITE, SYNC, mine) == set()
    assert bulk_races(mine, WRITE) == set()
    assert bulk_races(both) == set()  # reads


@pytest.mark.parametrize("copy", ["bulk_out(out + {}, s, 256)", "tensor_out(&map, {}, 0, s)"])
def test_bulk_copies_to_what_another_block_uses(copy: str) -> None:
    mine, other, both = (SEND.format(copy.format(at)) for at in ("mine", "(mine ^ 64)", "0"))
    assert bulk_races(other, WRITE) == {"WAW"}
    assert bulk_races(both) == {"WAW"}
    assert bulk_races(READ, other) == {"WAR"}
    assert bulk_races(other, SYNC, READ) == {"RAW"}
    assert bulk_races(READ, mine) == set()


def test_a_warp_stores_a_box_once() -> None:
    """The lanes of a warp may all store the same; two warps may not, nor lanes different boxes."""
    store = "if ({}) {{ tensor_out(&map, {}, 0, s); commit(); drain(); }}\n"
    assert bulk_races(store.format("x < 32", "mine")) == set()
    assert bulk_races(store.format("x % 32 == 0", "mine")) == {"WAW"}
    assert bulk_races(store.format("x < 32", "mine + x % 2 * 4")) == {"WAW"}


def test_launches_do_not_race_with_each_other() -> None:
    emulator, observers = Emulator(), [SharedRaces(), GlobalRaces()]
    out = emulator.alloc(np.zeros(64, np.int32), "out")
    ptx = compile_cuda(kernel("  out[63 - x] = out[x] + blockIdx.x;"))
    for kernel_ptx in (ptx, compile_cuda(kernel("  out[x] = x;"))):
        launches = [
            emulator.launch(kernel_ptx, "kernel", (1, 1, 1), (32, 1, 1), [out], observers=observers)
            for _ in range(2)
        ]
        assert [report.findings for report in launches] == [[], []]


def test_races_between_chunks_are_found() -> None:
    emulator = Emulator(chunk_threads=64)
    out = emulator.alloc(np.zeros(64, np.int32), "out")
    args = (compile_cuda(kernel("  out[x] = x;")), "kernel", (3, 1, 1), (64, 1, 1), [out])
    (finding,) = emulator.launch(*args, observers=[GlobalRaces()]).findings
    assert finding.block == (1, 0, 0)


# -- GEMM kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["naive", "tiles", "rec_tiles", "thread_1d", "block_1d"])
@pytest.mark.parametrize("types", ["f32", "f16", "s8"])
def test_gemm_kernels_have_no_races(name: str, types: str) -> None:
    assert gemm_findings(name, gemm_source(name, types), types) == []


def gemm_findings(name: str, source: str, types: str = "f32") -> list[Finding]:
    m, n, k = 37, 41, 35
    shared = {"f32": 1536, "f16": 768, "s8": 384}[types] if name == "rec_tiles" else 0
    _, _, report = run_gemm(
        compile_cuda(source), types, m, n, k, *geometry(name, m, n), shared_bytes=shared,
        emulator=Watched(), source=source,
    )  # fmt: skip
    return report.findings


@pytest.mark.parametrize("name", ["tiles", "rec_tiles", "shared_row"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_barrier_of_a_gemm_kernel(name: str, which: int) -> None:
    """Without the first barrier reads race with the writes before, without the second with both."""
    source = gemm_source(name, "f32")
    places = [i for i in range(len(source)) if source.startswith("__syncthreads();", i)]
    at = places[which]
    broken = source[:at] + source[at + 16 :]
    found = gemm_findings(name, broken)
    kind = "RAW" if which == 0 else "WAR"
    assert kind in {finding.kind for finding in found}
    text = broken.splitlines()
    loads, stores = {"tiles": ("acc +=", "s[ty][tx] ="), "rec_tiles": ("acc[j] +=", "] = ("),
                     "shared_row": ("acc +=", "row_of_A[k] =")}[name]  # fmt: skip
    for finding in found:
        later, earlier = text[finding.file_line - 1], text[finding.other_line - 1]
        expected = (loads, stores) if finding.kind == "RAW" else (stores, loads)
        assert expected[0] in later
        assert expected[1] in earlier


@pytest.mark.parametrize("kernel", sift(cutlass_kernels.KERNELS, cutlass_kernels.QUICK), ids=str)
def test_cutlass_has_no_races(kernel: cutlass_kernels.CutlassKernel) -> None:
    m, n, _ = kernel.tile
    result, exact, report = cutlass_kernels.run(kernel, m + 8, n + 16, 144, Watched())
    assert np.array_equal(result, exact)
    assert report.findings == []


@slow
def test_a_tensor_core_pipeline_that_waits_for_one_group_too_few() -> None:
    """The finding names the line of the load, and that of the copy it comes too early for."""
    sizes = (64, 64, 128)
    good = tensor_kernels.run("pipeline", "f32", *sizes, in_flight=1, emulator=Watched())[2]
    assert good.findings == []
    bad = tensor_kernels.run("pipeline", "f32", *sizes, in_flight=2, emulator=Watched())[2]
    first = bad.findings[0]
    assert (first.check, first.kind) == ("racecheck", "RAW")
    assert "tile + at_a(" in first.source
    assert '"r"(target)' in first.other_source
    assert "(tiles) races with the cp.async at line" in first.message
    assert "still in flight" in first.message


def test_every_pair_of_lines_is_reported_once() -> None:
    body = SHARED + "  s[x] = x;\n  int v = 0;\n#pragma unroll\n"
    body += "  for (int i = 1; i < 9; ++i) v += s[x ^ i];\n  out[x + 64 * blockIdx.x] = v;"
    report = launch(body)
    assert lines(report.findings) == {("RAW", 4, 1)}
    assert report.suppressed == 7


def test_shared_memory_of_blocks_is_their_own() -> None:
    shapes = itertools.product((1, 2, 5), (1, 32, 33, 64))
    for blocks, threads in shapes:
        body = SWAP.format(between="  __syncthreads();", read="0")
        assert races(body, blocks=blocks, threads=threads, elements=512) == set()
