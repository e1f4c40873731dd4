"""Triton's peer for groups of rows. Import it only where Triton is installed."""

from typing import Any

import triton
import triton.language as tl

from gen.bench.peers.triton_tma import Config

# Groups have few rows: tiles with many would be mostly empty.
CONFIGS = tuple(
    Config(*choice)
    for choice in (
        (64, 128, 128, 4, 4),
        (64, 256, 128, 3, 4),
        (64, 256, 128, 4, 8),
        (128, 128, 128, 4, 8),
        (128, 128, 128, 3, 4),
        (128, 256, 128, 3, 8),
        (128, 256, 128, 4, 8),
    )
)


@triton.jit(do_not_specialize=["groups", "N", "K"])
def gemm(
    a,
    b,
    d,
    ends,
    groups,
    N,
    K,
    ldd,
    B_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """D = A * B of groups of rows by programs that take turns; a and b are descriptors.

    Matrices of B follow each other. Each program adds up tiles from the first group on.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    done = 0
    begin = 0
    for group in range(groups):
        end = tl.load(ends + group)
        tiles_m = tl.cdiv(end - begin, BLOCK_M)
        until = done + tiles_m * tiles_n
        while tile < until:
            inside = tile - done
            m = begin + inside % tiles_m * BLOCK_M  # tiles with the same part of B run together
            n = inside // tiles_m * BLOCK_N
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                left = a.load([m, k])
                right = b.load([group * K + k, n]) if B_ROWS else b.load([group * N + n, k]).T
                total = tl.dot(left, right, total)
            rows = m + tl.arange(0, BLOCK_M)
            columns = n + tl.arange(0, BLOCK_N)
            at = d + rows[:, None].to(tl.int64) * ldd + columns[None, :]
            inside_d = (rows < end)[:, None] & (columns < N)[None, :]
            tl.store(at, total.to(d.dtype.element_ty), mask=inside_d)
            tile += tl.num_programs(0)
        done = until
        begin = end


def descriptors(config: Config, a: Any, b: Any, b_rows: bool) -> tuple[Any, Any]:
    """TMA descriptors of A and of all matrices of B, given as tensors of what is stored."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    k = config.k_bytes // a.dtype.itemsize
    tile_b = [k, config.n] if b_rows else [config.n, k]
    return (
        TensorDescriptor.from_tensor(a, [config.m, k]),
        TensorDescriptor.from_tensor(b.reshape(-1, b.shape[-1]), tile_b),
    )


def launch(
    config: Config,
    operands: tuple[Any, Any],
    d: Any,
    ends: Any,
    sizes: tuple[int, int],
    b_rows: bool,
    multiprocessors: int,
) -> None:
    """Queues all products in the current stream; sizes: N and K."""
    a, b = operands
    gemm[(multiprocessors,)](
        *(a, b, d, ends, ends.numel(), *sizes, d.stride(0), b_rows),
        *(config.m, config.n, a.block_shape[1]),
        num_stages=config.stages,
        num_warps=config.warps,
    )
