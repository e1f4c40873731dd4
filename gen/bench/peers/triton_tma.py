"""The peer that Triton compiles with TMA descriptors. Import it only where Triton is installed."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Config(NamedTuple):
    """Rows and columns of a tile, its bytes along K, and how it is computed.

    Stored in halves, a tile of D needs less shared memory, which is there for one more stage.
    """

    m: int
    n: int
    k_bytes: int
    stages: int
    warps: int
    halves: bool = False

    @property
    def name(self) -> str:
        """What results call it."""
        tile = f"{self.m}x{self.n}x{self.k_bytes}B"
        halves = ", in halves" if self.halves else ""
        return f"{tile}, {self.stages} stages, {self.warps} warps{halves}"


CONFIGS = tuple(
    Config(*choice)
    for choice in (
        (128, 256, 128, 3, 8),
        (128, 256, 128, 4, 8, True),
        (256, 128, 128, 3, 8),
        (256, 128, 128, 4, 8, True),
        (128, 128, 128, 4, 8),
        (128, 128, 128, 5, 4, True),
        (128, 128, 256, 3, 8),
        (64, 256, 128, 4, 4),
        (128, 64, 128, 5, 4),
        (64, 128, 128, 5, 4),
        (64, 128, 256, 3, 4),
        (64, 64, 128, 6, 4),
        (64, 64, 256, 4, 4),
        (64, 32, 256, 5, 4),
    )
)

_GROUP = 8  # rows of tiles that run close in time, so that they share operands in the L2 cache


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile, numbered in groups of GROUP rows."""
    group = tile // (GROUP * tiles_n)
    rows = min(tiles_m - group * GROUP, GROUP)
    inside = tile % (GROUP * tiles_n)
    return group * GROUP + inside % rows, inside // rows


@triton.jit
def store(d, m, n, sums, D_ROWS: tl.constexpr):
    """Sums into D from row m and column n on."""
    if D_ROWS:
        d.store([m, n], sums.to(d.dtype))
    else:
        d.store([n, m], sums.to(d.dtype).T)


@triton.jit(do_not_specialize=["M", "N", "K"])  # so that a type is compiled once
def gemm(
    a,
    b,
    d,
    M,
    N,
    K,
    A_ROWS: tl.constexpr,
    B_ROWS: tl.constexpr,
    D_ROWS: tl.constexpr,
    INTEGER: tl.constexpr,
    HALVES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """D = A * B by programs that take turns; a, b, d are descriptors of what is stored.

    A_ROWS and so on: whether it is row-major. Descriptors read zeros beyond the edges, and write
    nothing there.
    """
    sums: tl.constexpr = tl.int32 if INTEGER else tl.float32
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        tile_m, tile_n = place(tile, tiles_m, tiles_n, GROUP)
        m, n = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=sums)
        for k in range(0, K, BLOCK_K):
            left = a.load([m, k]) if A_ROWS else a.load([k, m]).T
            right = b.load([k, n]) if B_ROWS else b.load([n, k]).T
            total = tl.dot(left, right, total, input_precision="tf32", out_dtype=sums)
        if HALVES:
            both = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(both)
            store(d, m, n, left, D_ROWS)
            store(d, m, n + BLOCK_N // 2, right, D_ROWS)
        else:
            store(d, m, n, total, D_ROWS)


def descriptors(
    config: Config, stored: tuple[Any, Any, Any], rows: tuple[bool, bool, bool]
) -> tuple[Any, Any, Any]:
    """TMA descriptors of A, B and D, given as tensors of what is stored."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    k = config.k_bytes // stored[0].dtype.itemsize
    columns = config.n // 2 if config.halves else config.n
    tiles = ((config.m, k), (k, config.n), (config.m, columns))
    a, b, d = (
        TensorDescriptor.from_tensor(tensor, list(tile if row_major else tile[::-1]))
        for tensor, tile, row_major in zip(stored, tiles, rows, strict=True)
    )
    return a, b, d


def launch(
    config: Config,
    operands: tuple[Any, Any, Any],
    shape: tuple[int, int, int],
    rows: tuple[bool, bool, bool],
    integer: bool,
    multiprocessors: int,
) -> None:
    """Queues D = A * B for descriptors in the current stream."""
    m, n, _ = shape
    tiles = triton.cdiv(m, config.m) * triton.cdiv(n, config.n)
    programs = min(tiles, multiprocessors)
    k = operands[0].block_shape[rows[0]]
    constants = (*rows, integer, config.halves, config.m, config.n, k, _GROUP)
    gemm[(programs,)](
        *operands, *shape, *constants, num_stages=config.stages, num_warps=config.warps
    )
