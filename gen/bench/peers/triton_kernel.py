"""The peer that Triton compiles. Import it only where Triton is installed."""

from typing import Any

import torch
import triton
import triton.language as tl

from gen.bench.peers.triton_tma import place


def _configs(*choices: tuple[int, int, int, int, int]) -> list[Any]:
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8},
            num_stages=stages,
            num_warps=warps,
        )
        for m, n, k, stages, warps in choices
    ]


# Tiles for tensor cores. On CUDA cores (f32) each thread runs all of its multiply-adds unrolled,
# and such tiles would take minutes to compile.
_WIDE = _configs(
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 128, 64, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 64, 32, 5, 2),
    (64, 32, 32, 5, 2),
    (32, 64, 32, 5, 2),
    (32, 32, 64, 4, 2),
)
_NARROW = _configs(
    (128, 128, 32, 3, 8),
    (128, 128, 16, 3, 8),
    (128, 64, 16, 3, 8),
    (64, 128, 16, 3, 8),
    (64, 64, 16, 3, 4),
    (64, 32, 16, 3, 4),
    (32, 32, 16, 3, 2),
)


def _fitting(configs: list[Any], arguments: dict[str, Any], **_: Any) -> list[Any]:
    narrow = arguments["a_ptr"].dtype == torch.float32 and arguments["PRECISION"] == "ieee"
    chosen = _NARROW if narrow else _WIDE
    return [config for config in configs if config in chosen]


@triton.autotune(
    configs=[*_WIDE, *_NARROW],
    key=["M", "N", "K", "stride_ak", "stride_bk", "stride_dn", "PRECISION"],
    prune_configs_by={"early_config_prune": _fitting},
)
@triton.jit
def _gemm(
    a_ptr,
    b_ptr,
    d_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_dm,
    stride_dn,
    INTEGER: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    block_m, block_n = place(tl.program_id(0), blocks_m, blocks_n, GROUP)

    m = block_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = block_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if INTEGER else tl.float32)
    zero: tl.constexpr = 0 if INTEGER else 0.0  # no integer becomes an fp8
    for start in range(0, K, BLOCK_K):
        left = tl.load(a, mask=(m[:, None] < M) & (k[None, :] + start < K), other=zero)
        right = tl.load(b, mask=(k[:, None] + start < K) & (n[None, :] < N), other=zero)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    d = d_ptr + m[:, None] * stride_dm + n[None, :] * stride_dn
    tl.store(d, total.to(d_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def multiply(a: Any, b: Any, d: Any, precision: str) -> None:
    """Queues d = a @ b in PyTorch's current stream; `precision`, ieee or tf32, is f32's."""
    (m, k), n = a.shape, b.shape[1]

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    strides = (*a.stride(), *b.stride(), *d.stride())
    _gemm[grid](a, b, d, m, n, k, *strides, d.dtype == torch.int32, precision)


def best_config() -> str:
    """What the autotuner chose last."""
    best = _gemm.best_config
    tile = "x".join(str(best.kwargs[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    return f"{tile}, {best.num_stages} stages, {best.num_warps} warps"
