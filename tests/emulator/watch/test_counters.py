"""Counters against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gen.emulator import Counters, Emulator
from gen.emulator.watch import banks
from gen.emulator.watch.counters import Access, Totals
from tests.emulator.emulator_kernels import compile_cuda, gemm_source, geometry, run_gemm

THREADS = (64, 1, 1)


def count(
    body: str, block=THREADS, grid=(1, 1, 1), element: str = "float", merge: bool = True
) -> Totals:
    """Counters of a kernel with the parameters `in` and `out`, 64 KiB of zeros each."""
    source = f"""
    typedef {element} T;
    extern "C" __global__ void k(const T* __restrict__ in, T* out) {{
      const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      {body}
    }}"""
    emulator, counters = Emulator(), Counters(merge=merge)
    arrays = [emulator.alloc(np.zeros(1 << 14, np.float32), name) for name in ("in", "out")]
    report = emulator.launch(compile_cuda(source), "k", grid, block, arrays, observers=[counters])
    assert not report.findings
    return counters.totals()


SHARED = "__shared__ T s[2048]; volatile T* v = s; "


@pytest.mark.parametrize(
    ("body", "requests", "sectors", "ideal"),
    [
        ("out[t] = in[t];", 2, 8, 8),
        ("out[t] = in[2 * t];", 2, 16, 8),
        ("out[t] = in[8 * t];", 2, 64, 8),
        ("out[t] = in[64 * t];", 2, 64, 8),
        ("out[t] = in[t + 1];", 2, 10, 8),
        ("out[t] = in[5];", 2, 2, 2),
        ("out[t] = in[t / 32 * 32];", 2, 2, 2),
        ("out[t] = in[t ^ 21];", 2, 8, 8),
        ("if (t < 40) out[t] = in[t];", 2, 5, 5),
        ("if (t % 2) out[t] = in[t];", 2, 8, 4),
        ("if (t >= 32) out[t] = in[t];", 1, 4, 4),
        ("if (t == 63) out[t] = in[t];", 1, 1, 1),
    ],
)
def test_global_loads(body: str, requests: int, sectors: int, ideal: int) -> None:
    """Coalesced, strided, misaligned, broadcast, permuted, partly masked."""
    found = count(body).global_load
    assert (found.requests, found.parts, found.ideal) == (requests, sectors, ideal)


@pytest.mark.parametrize(
    ("element", "sectors"), [("char", 1), ("short", 2), ("float2", 8), ("float4", 16)]
)
def test_wide_and_narrow_global_accesses(element: str, sectors: int) -> None:
    """An access of any width is one request of a warp."""
    totals = count("out[t] = in[t];", element=element)
    size = {"char": 1, "short": 2, "float2": 8, "float4": 16}[element]
    expected = Access(2, 2 * sectors, 2 * sectors, 64 * size)
    assert totals.global_load == totals.global_store == expected


@pytest.mark.parametrize(
    ("block", "requests", "sectors"),
    [((33, 1, 1), 2, 5), ((5, 3, 2), 1, 4), ((8, 8, 1), 2, 8), ((1, 1, 1), 1, 1)],
)
def test_warps_are_32_threads_in_order_of_x_y_z(block, requests: int, sectors: int) -> None:
    """The last warp of a block may be partial."""
    totals = count("out[t] = in[t];", block=block)
    assert (totals.global_load.requests, totals.global_load.parts) == (requests, sectors)
    assert totals.warps == requests


def test_every_block_counts() -> None:
    """Blocks that read the same addresses are all counted, and so are those that do not."""
    same = count("out[t] = in[t];", grid=(3, 2, 2))
    assert (same.global_load.parts, same.blocks, same.warps) == (12 * 8, 12, 24)
    different = count("out[t] = in[t + 64 * blockIdx.x + blockIdx.y];", grid=(3, 2, 1))
    assert different.global_load.parts == 3 * 8 + 3 * 10
    masked = count("if (blockIdx.x == 1) out[t] = in[t];", grid=(3, 2, 1))
    assert (masked.global_load.requests, masked.global_load.parts) == (4, 16)


@pytest.mark.parametrize(
    ("index", "wavefronts"),
    [
        ("t % 32", 1),
        ("2 * (t % 32)", 2),
        ("3 * (t % 32)", 1),
        ("8 * (t % 32)", 8),
        ("32 * (t % 32)", 32),
        ("33 * (t % 32)", 1),
        ("7", 1),
        ("t % 32 / 2", 1),
        ("(t % 2) * 32", 2),
    ],
)
def test_shared_bank_conflicts(index: str, wavefronts: int) -> None:
    """Lanes that want one word share it; different words of a bank take turns."""
    loads = count(f"{SHARED} v[t] = 0; __syncthreads(); out[t] = v[{index}];")
    assert loads.shared_load == Access(2, 2 * wavefronts, 2, 256)
    assert loads.shared_store == Access(2, 2, 2, 256)
    stores = count(f"{SHARED} v[{index}] = in[t]; __syncthreads(); out[t] = v[t];")
    assert stores.shared_store == Access(2, 2 * wavefronts, 2, 256)


def rows(addresses: list[int], size: int, pair: bool = True) -> tuple[int, int]:
    """Wavefronts, and the fewest possible, of one warp; -1 for a lane that takes no part."""
    address = np.array([addresses], np.int64)
    parts = banks.wavefronts(address, size, address >= 0, pair)
    return int(parts.number[0]), int(parts.ideal[0])


LANES = range(32)


def test_wide_shared_accesses_take_turns() -> None:
    """8 bytes: half warps; 16 bytes: quarters; pairs of lanes that agree halve the turns."""
    assert rows([8 * i for i in LANES], 8) == (2, 2)
    assert rows([16 * i for i in LANES], 16) == (4, 4)
    assert rows([8 * (i // 2) for i in LANES], 8) == (1, 1)
    assert rows([16 * (i // 2) for i in LANES], 16) == (2, 2)
    assert rows([8 * (i // 4 * 2 + i % 2) for i in LANES], 8) == (1, 1)  # as the lane ^ 2
    assert rows([0] * 32, 16) == (2, 2)
    assert rows([128 * i for i in LANES], 16) == (32, 4)
    assert rows([8 * i if i < 16 else -1 for i in LANES], 8) == (1, 1)
    assert rows([16 * i if i < 4 else -1 for i in LANES], 16) == (1, 1)
    assert rows([-1] * 32, 16) == (0, 0)


def test_wide_shared_accesses_take_all_turns_where_lanes_do_not_agree() -> None:
    """As an H200 counts: all lanes of the warp have to agree, and stores never pair."""
    assert rows([16 * (i // 2 if i < 16 else i) for i in LANES], 16) == (4, 4)
    assert rows([16 * (i // 2) for i in LANES], 16, pair=False) == (4, 4)
    assert rows([0] * 32, 8, pair=False) == (2, 2)
    store = "s[t / 2] = make_float4(0, 0, 0, 0); __syncthreads(); out[t] = s[t].x;"
    assert count(COPY + store).shared_store == Access(2, 8, 8, 1024)


@pytest.mark.parametrize(
    ("source", "target", "sectors", "ideal"),
    [
        ([16 * i for i in LANES], [16 * i for i in LANES], 16, 16),
        ([16 * i for i in LANES], [16 * (i + i // 4) for i in LANES], 20, 16),
        ([16 * i for i in LANES], [16 * (i + i // 8) for i in LANES], 18, 16),
        ([32 * i for i in LANES], [16 * i for i in LANES], 16, 16),
        ([16 * (i + 1) for i in LANES], [16 * i for i in LANES], 20, 16),
        ([0] * 32, [16 * i for i in LANES], 16, 16),
        ([16 * i for i in LANES], [128 * i for i in LANES], 32, 16),
    ],
)
def test_sectors_of_copies_that_bypass_l1(
    source: list[int], target: list[int], sectors: int, ideal: int
) -> None:
    """As an H200 counts them: the rows of 4 and of 8 lanes are padded by 16 bytes."""
    valid = np.ones((1, 32), bool)
    parts = banks.copy_sectors(np.array([source]), np.array([target]), 16, valid)
    assert (int(parts.number[0]), int(parts.ideal[0])) == (sectors, ideal)


def test_a_warp_that_reads_two_rows_16_bytes_wide_takes_two_wavefronts() -> None:
    """As an H200 counts the loads of A that the assembler joins in square tiles of 16."""
    assert rows([64 * (i // 16) for i in LANES], 16) == (2, 2)


def test_ldmatrix_reads_a_matrix_at_a_time() -> None:
    """Rows 128 bytes apart lie in the same banks; 16 bytes of padding spread them."""
    assert rows([16 * i for i in LANES], 16, pair=False) == (4, 4)
    assert rows([128 * (i % 8) for i in LANES], 16, pair=False) == (32, 4)
    assert rows([144 * (i % 8) for i in LANES], 16, pair=False) == (4, 4)
    assert rows([128 * i if i < 8 else -1 for i in LANES], 16, pair=False) == (8, 1)


def test_the_assembler_joins_neighbouring_shared_loads() -> None:
    """Four loads of one aligned row become one of 16 bytes, but not where a store intervenes."""
    setup = "__shared__ T s[256]; s[t] = in[t]; __syncthreads(); const T* r = s + 4 * (t / 32);"
    body = f"{setup} float a = r[0], b = r[1], c = r[2], d = r[3]; out[t] = a * b + c * d;"
    assert count(body, merge=True).shared_load == Access(2, 4, 4, 64 * 16)
    setup = setup.replace("4 * (t / 32)", "3 * (t / 32)")
    body = f"{setup} float a = r[0], b = r[1], c = r[2], d = r[3]; out[t] = a * b + c * d;"
    assert count(body).shared_load.requests == 8
    apart = "volatile T* w = s + 4; T a = w[0]; w[64] = a; T b = w[1]; out[t] = a + b;"
    assert count(f"{setup} {apart}").shared_load.requests == 4


def test_instructions_flops_and_classes() -> None:
    """A fused multiply-add is two operations; a branch that half of a warp takes costs a warp."""
    totals = count("out[t] = fmaf(in[t], 2.f, in[t + 64]);")
    assert (totals.fma, totals.flops) == (2, 128)
    assert totals.by_class["global load"] == 4
    assert totals.by_class["global store"] == 2
    assert sum(totals.by_class.values()) == totals.instructions
    half = count("if (t % 2) out[t] = fmaf(in[t], 2.f, in[t + 64]);")
    assert (half.fma, half.flops) == (2, 64)
    loop = count("float x = in[t]; for (int i = 0; i < t; ++i) x *= x; out[t] = x;")
    assert loop.flops == 63 * 64 // 2


COPY = """
  __shared__ __align__(128) float4 s[256];
  const unsigned at = (unsigned)__cvta_generic_to_shared(s);
"""


def test_async_copies_count_as_global_loads() -> None:
    """16 bytes for each of 64 lanes; the lanes that only write zeros read nothing."""
    copy = (
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at + 16 * t), '
        '"l"(in + 4 * t), "r"(BYTES)); asm volatile("cp.async.wait_all;"); __syncthreads(); '
        "out[t] = s[t].x;"
    )
    whole = count(COPY + copy.replace("BYTES", "16"))
    assert whole.global_load == Access(2, 32, 32, 1024)
    assert whole.copy_shared == Access(2, 8, 8, 1024)
    assert whole.by_class["async copy"] == 2
    half = count(COPY + copy.replace("BYTES", "t < 32 ? 16 : 0"))
    assert half.global_load == Access(1, 16, 16, 512)
    assert half.copy_shared == whole.copy_shared


@pytest.mark.parametrize(("pitch", "wavefronts"), [(16, 4), (128, 32), (144, 4)])
def test_ldmatrix_and_mma(pitch: int, wavefronts: int) -> None:
    """Each of two warps loads four matrices, whose rows are `pitch` bytes apart, and multiplies."""
    body = f"""
      unsigned a[4]; float c[4] = {{}};
      for (int i = t; i < 256; i += 64) s[i] = make_float4(0, 0, 0, 0);
      __syncthreads();
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0,%1,%2,%3}}, [%4];"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at + t % 8 * {pitch}));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%4,%5}}, {{%0,%1,%2,%3}};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
      out[t] = c[0];"""
    totals = count(COPY + body)
    assert totals.shared_load == Access(2, 2 * wavefronts, 8, 1024)
    assert totals.mma == totals.by_class["tensor"] == 2
    assert totals.flops == 2 * 2 * 16 * 8 * 16


def test_local_memory_and_parameters_are_not_global_traffic() -> None:
    """Only what the kernel's pointers lead to is counted."""
    totals = count("T a[64]; for (int i = 0; i < 64; ++i) a[i * t % 64] = i; out[t] = a[t];")
    assert totals.global_load == Access()
    assert totals.global_store.requests == 2


def gemm(name: str, m: int, n: int, k: int, types: str = "f32") -> Totals:
    """Counters of a GEMM kernel of the tests, with beta = 0."""
    counters = Counters()

    class Watched(Emulator):
        def launch(self, *args, **options):  # type: ignore[no-untyped-def]
            return super().launch(*args, **options, observers=[counters])

    grid, block = geometry(name, m, n)
    ptx = compile_cuda(gemm_source(name, types))
    run_gemm(
        ptx, types, m, n, k, grid, block, beta=0, shared_bytes=4096, emulator=Watched()
    )  # fmt: skip
    return counters.totals()


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (64, 128, 48), (128, 128, 128)])
def test_formula_of_naive(m: int, n: int, k: int) -> None:
    """A warp of 16 x 2 threads reads one element of two rows of A and 16 columns of a row of B."""
    totals, warps = gemm("naive", m, n, k), m * n // 32
    assert totals.global_load.requests == 2 * warps * k
    assert totals.global_load.parts == (2 + 2) * warps * k
    assert totals.global_store.parts == 4 * warps
    assert totals.fma == warps * k
    assert totals.flops == 2 * m * n * k + m * n


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (64, 128, 48), (128, 128, 128)])
def test_formula_of_tiles(m: int, n: int, k: int) -> None:
    """At 128^3 an H200 counts 8,192 loads of A and B, 32,768 sectors, 98,304 wavefronts."""
    totals, warps, steps = gemm("tiles", m, n, k), m * n // 32, k // 16
    assert totals.global_load.requests == 2 * warps * steps
    assert totals.global_load.parts == 8 * warps * steps
    assert totals.shared_store.parts == 2 * warps * steps
    # 16 words of B and 4 times 16 bytes of A, which take two turns
    assert totals.shared_load.requests == (16 + 4) * warps * steps
    assert totals.shared_load.parts == (16 + 8) * warps * steps
    if (m, n, k) == (128, 128, 128):
        assert totals.shared_load.parts == 98_304


def test_formula_of_rec_tiles() -> None:
    """At 128^3 an H200 counts 81,920 wavefronts of shared loads and 6,144 of stores."""
    totals = gemm("rec_tiles", 128, 128, 128)
    assert (totals.global_load.requests, totals.global_load.parts) == (6144, 24_576)
    assert totals.shared_load.parts == 81_920
    assert totals.shared_store.parts == 6144


def test_odd_shapes_count_only_the_lanes_that_exist() -> None:
    """A naive kernel on 17 x 5: two rows of blocks, five lanes of 16 in each row."""
    totals = gemm("naive", 17, 5, 3)
    # 9 warps have rows (8 of two rows, 1 of one row); rows of 5 floats straddle sectors.
    assert totals.global_load.requests == 2 * 9 * 3
    assert totals.global_load.bytes == 2 * 17 * 5 * 3 * 4
    assert totals.flops == 2 * 17 * 5 * 3 + 17 * 5
