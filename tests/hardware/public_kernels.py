"""Kernels of public repositories under `gen check`: right, refused, or found to be wrong.

    python -m tests.hardware.public_kernels FOLDER [NAME...] [--markdown]

FOLDER has checkouts of the repositories under their own names (see `FOLDERS`); nothing is
downloaded. NAME chooses rows by a part of the kernel's name or of the file. It needs no GPU.
"""

# ruff: noqa: E501 - a row of the table is a line

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from gen.errors import CheckError, CompileError, GenError
from gen.foreign import elements
from gen.foreign.arguments import parse_pairs
from gen.foreign.gemm import check_gemm
from gen.foreign.launch import LaunchText
from gen.foreign.references import all_numbers, difference
from gen.foreign.roles import understand
from gen.foreign.running import Checks, run_steps
from gen.foreign.steps import prepare
from gen.foreign.words import sentence
from gen.spec.problem import parse_shape

FOLDERS = {
    "siboehm": "SGEMM_CUDA",
    "yzhaiustc": "Optimizing-SGEMM-on-NVIDIA-Turing-GPUs",
    "llm.c": "llm.c",
    "LeetCUDA": "LeetCUDA",
    "cuda-samples": "cuda-samples",
}

Reference = Callable[[Any], Any]


class Row(NamedTuple):
    """A kernel and how it is launched. `args` are words of `--arg`; or it is a GEMM on `shapes`."""

    repository: str
    file: str
    kernel: str
    grid: str
    block: str
    args: str
    reference: Reference | None = None  # from the buffers before to those after, by name
    shared: str = "0"
    gemm: str = ""
    shapes: str = ""
    layout: str = "rrr"
    define: tuple[str, ...] = ()
    tolerance: float | None = None


# -- what kernels compute --------------------------------------------------------------------------


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def causal(x: np.ndarray) -> np.ndarray:
    """Softmax over the keys that are not later than the query."""
    return softmax(np.where(np.tril(np.ones(x.shape[-2:])) > 0, x, -np.inf))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


POINTWISE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
}


def rope(x: np.ndarray) -> np.ndarray:
    """Pairs (positions, n, 2), each turned by an angle."""
    position, n = np.arange(len(x))[:, None], x.shape[1]
    angle = position / 10000.0 ** (2 * np.arange(n) / (2 * n))
    a, b = x[..., 0], x[..., 1]
    return np.stack(
        [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1
    )


def layer_norm_backward(v: Any) -> dict[str, np.ndarray]:
    norm = (v.inp - v.mean[..., None]) * v.rstd[..., None]
    d = v.weight * v.dout
    dinp = d - d.mean(-1, keepdims=True) - norm * (d * norm).mean(-1, keepdims=True)
    return {
        "dinp": v.dinp + dinp * v.rstd[..., None],
        "dweight": v.dweight + (v.dout * norm).sum((0, 1)),
        "dbias": v.dbias + v.dout.sum((0, 1)),
    }


def layer_norm(v: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    return {"mean": x.mean(-1), "rstd": 1 / np.sqrt(x.var(-1) + 1e-5),
            "normed": normalised(x) * v.weight + v.bias}  # fmt: skip


def heads(v: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K and V (B, NH, T, HS) of an input (B, T, 3 C)."""
    parts = v.inp.reshape(v.B, v.T, 3, v.NH, -1).transpose(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def adamw(v: Any) -> dict[str, np.ndarray]:
    m = v.beta1 * v.m_memory + (1 - v.beta1) * v.grads_memory
    s = v.beta2 * v.v_memory + (1 - v.beta2) * v.grads_memory**2
    step = (m / v.beta1_correction) / (np.sqrt(s / v.beta2_correction) + v.eps)
    p = v.params_memory
    return {"params_memory": p - v.learning_rate * (step + v.weight_decay * p),
            "m_memory": m, "v_memory": s}  # fmt: skip


def classified(v: Any) -> dict[str, np.ndarray]:
    """Gradients of logits, and losses, of softmax and cross-entropy."""
    p = softmax(v.logits[..., : v.V])
    t = v.targets[..., None].astype(int)
    hot = np.arange(v.V) == t
    d = np.zeros_like(v.logits)
    d[..., : v.V] = (p - hot) / (v.B * v.T)
    return {"dlogits": d, "losses": -np.log(np.take_along_axis(p, t, -1)[..., 0])}


def softmax_backward(v: Any) -> dict[str, np.ndarray]:
    scale = 1 / math.sqrt(v.C / v.NH) if hasattr(v, "NH") else v.scale
    d = v.att * (v.datt - (v.att * v.datt).sum(-1, keepdims=True)) * scale
    return {"dpreatt": np.where(np.tril(np.ones(d.shape[-2:])) > 0, d, v.dpreatt)}


# -- the table -------------------------------------------------------------------------------------

TALL = "128x128x32 256x128x64"


def siboehm() -> Iterator[Row]:
    """A course of SGEMM kernels, C = alpha A B + beta C in place, for whole tiles."""
    roles = "A=A,B=B,C=C,M=M,N=N,K=K,alpha=alpha,beta=beta"
    small, wide = "(N+63)/64,(M+63)/64", "(N+127)/128,(M+127)/128"
    for file, kernel, grid, block in (
        ("1_naive", "sgemm_naive", "(M+31)/32,(N+31)/32", "32,32"),
        ("2_kernel_global_mem_coalesce", "sgemm_global_mem_coalesce<32>", "(M+31)/32,(N+31)/32", "1024"),
        ("3_kernel_shared_mem_blocking", "sgemm_shared_mem_block<32>", "(M+31)/32,(N+31)/32", "1024"),
        ("4_kernel_1D_blocktiling", "sgemm1DBlocktiling<64,64,8,8>", small, "512"),
        ("5_kernel_2D_blocktiling", "sgemm2DBlocktiling<128,128,8,8,8>", wide, "256"),
        ("6_kernel_vectorize", "sgemmVectorize<128,128,8,8,8>", wide, "256"),
        ("7_kernel_resolve_bank_conflicts", "sgemmResolveBankConflicts<128,128,8,8,8>", wide, "256"),
        ("8_kernel_bank_extra_col", "sgemmResolveBankExtraCol<128,128,8,8,8>", wide, "256"),
        ("9_kernel_autotuned", "sgemmAutotuned<128,128,16,8,8>", wide, "256"),
        ("10_kernel_warptiling", "sgemmWarptiling<128,128,16,64,64,4,8,4,128>", wide, "128"),
        ("11_kernel_double_buffering", "sgemmDoubleBuffering<128,256,16,32,128,1,8,8,256>", "(N+255)/256,(M+127)/128", "256"),
        ("12_kernel_double_buffering", "runSgemmDoubleBuffering2<128,128,16,64,64,4,8,4,128>", wide, "128"),
    ):  # fmt: skip
        # The last two use a constant of the 10th, behind which they are meant to be included.
        path = (
            "src/kernels.cuh" if kernel[0] != "s" or file[:2] == "11" else f"src/kernels/{file}.cuh"
        )
        yield Row(
            "siboehm",
            path,
            kernel,
            grid,
            block,
            "",
            gemm=roles,
            shapes=TALL.replace("x128x", "x256x") if "256,16" in kernel else TALL,
        )


def yzhaiustc() -> Iterator[Row]:
    """Another course of SGEMM kernels, column-major."""
    roles = "A=A,B=B,C=C,M=M,N=N,K=K,alpha=alpha,beta=beta"
    for number, tile, block in (
        (1, 32, "32,32"), (2, 32, "32,32"), (3, 32, "1024"), (4, 32, "1024"), (5, 32, "256"),
        (6, 32, "256"), (7, 64, "256"), (8, 128, "256"), (9, 128, "256"), (10, 128, "256"),
        (11, 128, "256"),
    ):  # fmt: skip
        grid = f"(M+{tile - 1})/{tile},(N+{tile - 1})/{tile}"
        yield Row("yzhaiustc", f"include/kernel{number}.cuh", f"mysgemm_v{number}", grid, block, "",
                  gemm=roles, shapes=TALL, layout="ccc")  # fmt: skip


def leetcuda() -> Iterator[Row]:
    """Many small kernels in several types, most of them for whole vectors."""

    def row(file: str, kernel: str, grid: str, block: str, args: str, ref: Reference | None,
            **more: Any) -> Row:  # fmt: skip
        return Row("LeetCUDA", f"kernels/{file}.cu", kernel, grid, block, args, ref, **more)

    forms = (("f32", "f32", 1), ("f32x4", "f32", 4), ("f16", "f16", 1), ("f16x2", "f16", 2),
             ("f16x8", "f16", 8), ("f16x8_pack", "f16", 8))  # fmt: skip
    for name, function in POINTWISE.items():
        for form, kind, width in forms:
            args = f"x={kind}[N]:random y={kind}[N]:poison N=1024"
            yield row(f"{name}/{name}", f"{name}_{form}_kernel", "N/256", str(256 // width), args,
                      lambda v, f=function: {"y": f(v.x)})  # fmt: skip
    for form, kind, width in forms:
        args = f"a={kind}[N]:random b={kind}[N]:random c={kind}[N]:poison N=1024"
        yield row("elementwise/elementwise", f"elementwise_add_{form}_kernel", "N/256",
                  str(256 // width), args, lambda v: {"c": v.a + v.b})  # fmt: skip
    for form, kind, width in (
        ("f32_f32", "f32", 1), ("f32x4_f32", "f32", 4), ("f16_f16", "f16", 1), ("f16_f32", "f16", 1),
        ("f16x2_f32", "f16", 2), ("f16x2_f16", "f16", 2), ("f16x8_pack_f16", "f16", 8),
        ("f16x8_pack_f32", "f16", 8), ("bf16_bf16", "bf16", 1), ("bf16_f32", "bf16", 1),
        ("bf16x2_bf16", "bf16", 2), ("bf16x2_f32", "bf16", 2), ("bf16x8_pack_bf16", "bf16", 8),
        ("bf16x8_pack_f32", "bf16", 8), ("fp8_e4m3_f16", "e4m3", 1), ("fp8_e5m2_f16", "e5m2", 1),
        ("fp8_e4m3x16_pack_f16", "e4m3", 16), ("fp8_e5m2x16_pack_f16", "e5m2", 16),
        ("i8_i32", "i8", 1), ("i8x16_pack_i32", "i8", 16),
    ):  # fmt: skip
        out = "i32" if kind == "i8" else "f32"
        args = f"a={kind}[N]:integers y={out}[1]:zeros N=1024"
        yield row("reduce/block_all_reduce", f"block_all_reduce_sum_{form}_kernel<{256 // width}>",
                  "N/256", str(256 // width), args, lambda v: {"y": [v.a.sum()]},
                  tolerance=0.0 if kind not in ("bf16",) else 0.05)  # fmt: skip
    for form, kind, width in (("f32_f32", "f32", 1), ("f32x4_f32", "f32", 4), ("f16_f32", "f16", 1),
                              ("f16x2_f32", "f16", 2), ("f16x8_pack_f32", "f16", 8)):  # fmt: skip
        args = f"a={kind}[N]:integers b={kind}[N]:integers y=f32[1]:zeros N=1024"
        yield row("dot-product/dot_product", f"dot_prod_{form}_kernel<{256 // width}>", "N/256",
                  str(256 // width), args, lambda v: {"y": [(v.a * v.b).sum()]})  # fmt: skip
    for form, kind, width in (
        ("f32", "f32", 1), ("f32x4", "f32", 4), ("f16_f16", "f16", 1), ("f16x2_f16", "f16", 2),
        ("f16x8_f16", "f16", 8), ("f16_f32", "f16", 1), ("f16x8_pack_f16", "f16", 8),
        ("f16x8_pack_f32", "f16", 8),
    ):  # fmt: skip
        threads = 256 // width
        args = f"x={kind}[N,K]:random y={kind}[N,K]:poison g=1.5 b=0.25 N=6 K=256"
        yield row("layer-norm/layer_norm", f"layer_norm_{form}_kernel<{threads}>", "N", str(threads),
                  args, lambda v: {"y": normalised(v.x) * v.g + v.b}, tolerance=0.02)  # fmt: skip
    for form, kind, width in (
        ("f32", "f32", 1), ("f32x4", "f32", 4), ("f16_f16", "f16", 1), ("f16x2_f16", "f16", 2),
        ("f16x8_f16", "f16", 8), ("f16x8_f32", "f16", 8), ("f16_f32", "f16", 1),
        ("f16x8_pack_f16", "f16", 8), ("f16x8_pack_f32", "f16", 8),
    ):  # fmt: skip
        threads = 256 // width
        args = f"x={kind}[N,K]:random y={kind}[N,K]:poison g=1.5 N=6 K=256"
        yield row("rms-norm/rms_norm", f"rms_norm_{form}_kernel<{threads}>", "N", str(threads), args,
                  lambda v: {"y": v.x / np.sqrt((v.x**2).mean(-1, keepdims=True)) * v.g},
                  tolerance=0.02)  # fmt: skip
    for form, kind, width in (
        ("softmax_f32", "f32", 1), ("softmax_f32x4", "f32", 4), ("safe_softmax_f32", "f32", 1),
        ("safe_softmax_f32x4", "f32", 4), ("safe_softmax_f16_f32", "f16", 1),
        ("safe_softmax_f16x2_f32", "f16", 2), ("safe_softmax_f16x8_pack_f32", "f16", 8),
        ("online_safe_softmax_f32", "f32", 1), ("online_safe_softmax_f32x4_pack", "f32", 4),
    ):  # fmt: skip
        threads = 256 // width
        args = f"x={kind}[6,256]:random y={kind}[6,256]:poison N=1536"
        yield row("softmax/softmax", f"{form}_per_token_kernel<{threads}>", "6", str(threads), args,
                  lambda v: {"y": softmax(v.x)})  # fmt: skip
    for form, kind, width in (("f32", "f32", 1), ("f32x4", "f32", 4), ("f32x4_pack", "f32", 4),
                              ("f16", "f16", 1), ("f16x8", "f16", 8), ("f16x8_pack", "f16", 8)):  # fmt: skip
        args = (f"idx=u32[n]:integers weight={kind}[8,emb_size]:random "
                f"output={kind}[n,emb_size]:poison n=12 emb_size=64")  # fmt: skip
        yield row("embedding/embedding", f"embedding_{form}_kernel", "n", str(64 // width), args,
                  lambda v: {"output": v.weight[v.idx.astype(int)]})  # fmt: skip
    for form, width in (("i32", 1), ("i32x4", 4)):
        yield row("histogram/histogram", f"histogram_{form}_kernel", "N/256", str(256 // width),
                  "a=u32[N]:integers y=i32[8]:zeros N=1024",
                  lambda v: {"y": np.bincount(v.a.astype(int), minlength=8)})  # fmt: skip
    for form, grid, block in (
        ("f32", "4", "256"),
        ("f32_v2", "16", "64"),
        ("f32x4_pack", "2", "256"),
    ):
        n = 32 if form == "f32x4_pack" else 64
        yield row("rope/rope", f"rope_{form}_kernel", grid, block,
                  f"x=f32[16,64,2]:random out=f32[16,64,2]:poison seq_len=16 N={n}",
                  lambda v: {"out": rope(v.x)}, tolerance=1e-4)  # fmt: skip
    for name, columns, rows in (
        ("f32_col2row", 0, 1), ("f32_row2col", 0, 1), ("f32x4_col2row", 0, 4), ("f32x4_row2col", 0, 4),
        ("f32_col2row2d", 1, 1), ("f32_row2col2d", 1, 1), ("f32x4_col2row2d", 4, 1),
        ("f32x4_row2col2d", 1, 4), ("f32_diagonal2d", 1, 1), ("f32x4_shared_col2row2d", 4, 1),
        ("f32x4_shared_row2col2d", 1, 4), ("f32x4_shared_bcf_col2row2d", 4, 1),
        ("f32x4_shared_bcf_row2col2d", 1, 4), ("f32x4_shared_bcf_merge_write_row2col2d", 1, 4),
    ):  # fmt: skip
        flat = f"(row*col+255)/{rows}/256"
        grid = f"(col+15)/{16 * columns},(row+15)/{16 * rows}" if columns else flat
        side = 128 if name == "f32_diagonal2d" else 64
        yield row("mat-transpose/mat_transpose", f"mat_transpose_{name}_kernel", grid,
                  "16,16" if columns else "256",
                  f"x=f32[row,col]:random y=f32[col,row]:poison row={side} col=128",
                  lambda v: {"y": v.x.T})  # fmt: skip
    for form, block, k in (("k32_f32_kernel", "32,4", 64), ("k128_f32x4_kernel", "32,4", 256),
                           ("k16_f32_kernel<2>", "32,4", 16)):  # fmt: skip
        yield row("sgemv/sgemv", f"sgemv_{form}", f"M/{8 if k == 16 else 4}", block,
                  f"{'A' if k == 16 else 'a'}=f32[M,K]:random x=f32[K]:random y=f32[M]:poison M=32 K={k}",
                  lambda v: {"y": getattr(v, "a", getattr(v, "A", None)) @ v.x})  # fmt: skip
    for form, k in (("k32_f16_kernel", 64), ("k128_f16x4_kernel", 256), ("k16_f16_kernel<2>", 16)):
        yield row("hgemv/hgemv", f"hgemv_{form}", f"M/{8 if k == 16 else 4}", "32,4",
                  f"{'A' if k == 16 else 'a'}=f16[M,K]:integers x=f16[K]:integers y=f16[M]:poison "
                  f"M=32 K={k}",
                  lambda v: {"y": getattr(v, "a", getattr(v, "A", None)) @ v.x})  # fmt: skip
    for form in ("naive", "padding", "swizzle"):
        yield row("swizzle/mat_trans_swizzle", f"mat_trans_smem_{form}_kernel", "N/32,M/32", "32,32",
                  "dev_A=i32[M,N]:random dev_B=i32[N,M]:poison M=64 N=96",
                  lambda v: {"dev_B": v.dev_A.T})  # fmt: skip
    yield from leetcuda_products()
    yield from leetcuda_notes()


def leetcuda_products() -> Iterator[Row]:
    """SGEMM kernels, C = A B."""
    roles = "A=a,B=b,C=c,M=M,N=N,K=K"
    for file, kernel, tile, block in (
        ("sgemm", "sgemm_naive_f32_kernel", (32, 32), "32,32"),
        ("sgemm", "sgemm_sliced_k_f32_kernel<32,32,32>", (32, 32), "32,32"),
        ("sgemm", "sgemm_t_8x8_sliced_k_f32x4_kernel<128,128,8,8,8>", (128, 128), "16,16"),
        ("sgemm", "sgemm_t_8x8_sliced_k_f32x4_bcf_kernel<128,128,8,8,8>", (128, 128), "16,16"),
        ("sgemm", "sgemm_t_8x8_sliced_k_f32x4_bcf_kernel<128,128,8,8,8,4>", (128, 128), "16,16"),
        ("sgemm", "sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf_kernel<128,128,8,8,8>", (128, 128), "16,16"),
        ("sgemm_async", "sgemm_t_8x4_sliced_k16_f32x4_bcf_dbuf_kernel<64,64,16,8,4>", (64, 64), "16,8"),
        ("sgemm_async", "sgemm_t_8x4_sliced_k16_f32x4_bcf_dbuf_async_kernel<64,64,16,8,4>", (64, 64), "16,8"),
        ("sgemm_async", "sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_kernel<128,128,16,8,8>", (128, 128), "16,16"),
        ("sgemm_async", "sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_async_kernel<128,128,16,8,8>", (128, 128), "16,16"),
        ("sgemm_async", "sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_kernel<128,256,16,8,16>", (128, 256), "16,16"),
        ("sgemm_async", "sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_kernel<128,256,16,8,16>", (128, 256), "16,16"),
    ):  # fmt: skip
        m, n = tile
        yield Row("LeetCUDA", f"kernels/sgemm/{file}.cu", kernel,
                  f"(N+{n - 1})/{n},(M+{m - 1})/{m}", block, "", gemm=roles,
                  shapes="128x256x32 256x256x64")  # fmt: skip


def leetcuda_notes() -> Iterator[Row]:
    """One file of notes with a kernel of each kind."""

    def row(
        kernel: str, grid: str, block: str, args: str, ref: Reference | None, **more: Any
    ) -> Row:
        return Row("LeetCUDA", "kernels/notes-v1.cu", kernel, grid, block, args, ref, **more)

    for kernel, block in (("sigmoid", 128), ("sigmoid_vec4", 32), ("relu", 128), ("relu_vec4", 32)):
        function = POINTWISE[kernel.partition("_")[0]]
        yield row(kernel, "N/128", str(block), "x=f32[N]:random y=f32[N]:poison N=512",
                  lambda v, f=function: {"y": f(v.x)})  # fmt: skip
    for kernel, block in (("elementwise_add", 128), ("elementwise_add_vec4", 32)):
        yield row(kernel, "N/128", str(block),
                  "a=f32[N]:random b=f32[N]:random c=f32[N]:poison N=512",
                  lambda v: {"c": v.a + v.b})  # fmt: skip
    for kernel, block in (
        ("block_all_reduce_sum<128>", 128),
        ("block_all_reduce_sum_vec4<32>", 32),
    ):
        yield row(kernel, "N/128", str(block), "a=f32[N]:integers y=f32[1]:zeros N=512",
                  lambda v: {"y": [v.a.sum()]})  # fmt: skip
    for kernel, block in (("dot<128>", 128), ("dot_vec4<32>", 32)):
        yield row(kernel, "N/128", str(block),
                  "a=f32[N]:integers b=f32[N]:integers y=f32[1]:zeros N=512",
                  lambda v: {"y": [(v.a * v.b).sum()]})  # fmt: skip
    for kernel, block in (("histogram", 128), ("histogram_vec4", 32)):
        yield row(kernel, "N/128", str(block), "a=u32[N]:integers y=i32[8]:zeros N=512",
                  lambda v: {"y": np.bincount(v.a.astype(int), minlength=8)})  # fmt: skip
    for kernel, block in (
        ("softmax<128>", 128),
        ("softmax_v2<128>", 128),
        ("softmax_v2_vec4<32>", 32),
    ):
        yield row(kernel, "1", str(block), "x=f32[N]:random y=f32[N]:poison total=f32[1]:zeros N=128",
                  lambda v: {"y": softmax(v.x)})  # fmt: skip
    for kernel, block in (("rms_norm<128>", 128), ("rms_norm_vec4<32>", 32)):
        yield row(kernel, "N", str(block), "x=f32[N,K]:random y=f32[N,K]:poison g=1.5 N=4 K=128",
                  lambda v: {"y": v.x / np.sqrt((v.x**2).mean(-1, keepdims=True)) * v.g},
                  tolerance=1e-4)  # fmt: skip
    for kernel, block in (("layer_norm<128>", 128), ("layer_norm_vec4<32>", 32)):
        yield row(kernel, "N", str(block), "x=f32[N,K]:random y=f32[N,K]:poison g=1.5 b=0.5 N=4 K=128",
                  lambda v: {"y": normalised(v.x) * v.g + v.b}, tolerance=1e-3)  # fmt: skip
    for kernel, k in (("sgemv_k32", 64), ("sgemv_k128", 256), ("sgemv_k16<2>", 16)):
        yield row(kernel, f"M/{8 if k == 16 else 4}", "32,4",
                  f"{'A' if k == 16 else 'a'}=f32[M,K]:random x=f32[K]:random y=f32[M]:poison M=32 K={k}",
                  lambda v: {"y": getattr(v, "a", getattr(v, "A", None)) @ v.x})  # fmt: skip
    for kernel, tile, block in (("sgemm", 32, "32,32"), ("sgemm_thread_tile_vec4", 128, "16,16")):
        grid = f"(N+{tile - 1})/{tile},(M+{tile - 1})/{tile}"
        yield row(kernel, grid, block, "", None, gemm="A=a,B=b,C=c,M=M,N=N,K=K", shapes=TALL)


def llm_c() -> Iterator[Row]:
    """The training of a language model, in several versions of each kernel."""

    def row(file: str, kernel: str, grid: str, block: str, args: str, ref: Reference | None,
            **more: Any) -> Row:  # fmt: skip
        return Row("llm.c", f"dev/cuda/{file}.cu", kernel, grid, block, args, ref, **more)

    for kernel, grid, block, shared in (
        ("softmax_forward_kernel1", "1", "32", "0"), ("softmax_forward_kernel2", "N", "64", "256"),
        ("softmax_forward_kernel3", "N", "32", "128"), ("softmax_forward_kernel4", "N", "64", "8"),
        ("softmax_forward_online_kernel1", "1", "32", "0"),
        ("softmax_forward_online_kernel2", "N*32/64", "64", "0"),
        ("softmax_forward_kernel7", "N", "64", "16"),
        ("softmax_forward_online_kernel8", "N*32/64", "64", "0"),
    ):  # fmt: skip
        yield row("softmax_forward", kernel, grid, block,
                  "out=f32[N,C]:poison inp=f32[N,C]:random N=12 C=100",
                  lambda v: {"out": softmax(v.inp)}, shared=shared)  # fmt: skip
    norm = ("mean=f32[N]:poison rstd=f32[N]:poison inp=f32[N,C]:random weight=f32[C]:random "
            "bias=f32[C]:random N=10 C=128")  # fmt: skip
    for kernel, grid, block, shared in (
        ("layernorm_forward_kernel1", "1", "32", "0"), ("layernorm_forward_kernel3", "5", "64", "0"),
        ("layernorm_forward_kernel4", "5", "64", "0"), ("layernorm_forward_kernel5", "N", "64", "0"),
        ("layernorm_forward_kernel6", "5", "32,2", "4*C*4"),
    ):  # fmt: skip
        yield row("layernorm_forward", kernel, grid, block, f"out=f32[N,C]:poison {norm}",
                  lambda v: {("out" if k == "normed" else k): x
                             for k, x in layer_norm(v, v.inp).items()}, shared=shared)  # fmt: skip
    yield row("layernorm_forward", "mean_kernel", "N", "64",
              "mean=f32[N]:poison inp=f32[N,C]:random N=10 C=100 block_size=64",
              lambda v: {"mean": v.inp.mean(-1)}, shared="256")  # fmt: skip
    yield row("layernorm_forward", "rstd_kernel", "N", "64",
              "rstd=f32[N]:poison inp=f32[N,C]:random mean=f32[N]:zeros N=10 C=100 block_size=64",
              lambda v: {"rstd": 1 / np.sqrt((v.inp**2).mean(-1) + 1e-5)}, shared="256")  # fmt: skip
    yield row("layernorm_forward", "normalization_kernel", "(B*T*C+255)/256", "256",
              "out=f32[B,T,C]:poison inp=f32[B,T,C]:random mean=f32[B,T]:random rstd=f32[B,T]:random "
              "weight=f32[C]:random bias=f32[C]:random B=2 T=3 C=128",
              lambda v: {"out": (v.inp - v.mean[..., None]) * v.rstd[..., None] * v.weight + v.bias},
              )  # fmt: skip
    encoded = "inp=u32[B,T]:integers wte={0}[8,C]:random wpe={0}[T,C]:random B=2 T=5 C=64"
    for number, grid in ((1, "1"), (2, "(B*T*C+63)/64"), (3, "(B*T*C+511)/512")):
        yield row("encoder_forward", f"encoder_forward_kernel{number}", grid, "64",
                  f"out=bf16[B,T,C]:poison {encoded.format('bf16')}",
                  lambda v: {"out": v.wte[v.inp.astype(int)] + v.wpe}, define=("ENABLE_BF16",))  # fmt: skip

    def encoder_backward(v: Any) -> dict[str, np.ndarray]:
        dwte = v.dwte.copy()
        np.add.at(dwte, v.inp.astype(int), v.dout)
        return {"dwte": dwte, "dwpe": v.dwpe + v.dout.sum(0)}

    for number, grid in ((1, "(B*T*C+63)/64"), (2, "1")):
        yield row("encoder_backward", f"encoder_backward_kernel{number}", grid, "64",
                  "dwte=f32[8,C]:zeros dwpe=f32[T,C]:zeros dout=f32[B,T,C]:random "
                  "inp=u32[B,T]:integers B=2 T=5 C=64", encoder_backward)  # fmt: skip
    for number, grid in ((1, "4"), (2, "1")):
        yield row("gelu_forward", f"gelu_forward_kernel{number}", grid, "128" if number == 1 else "64",
                  "out=bf16[N]:poison inp=bf16[N]:random N=512",
                  lambda v: {"out": gelu(v.inp)}, define=("ENABLE_BF16",))  # fmt: skip

    def gelu_slope(x: np.ndarray) -> np.ndarray:
        h = 1e-5
        return (gelu(x + h) - gelu(x - h)) / (2 * h)

    for number, grid in ((1, "4"), (2, "1")):
        yield row("gelu_backward", f"gelu_backward{number}", grid, "128" if number == 1 else "64",
                  "dinp=bf16[N]:poison inp=bf16[N]:random dout=bf16[N]:random N=512",
                  lambda v: {"dinp": gelu_slope(v.inp) * v.dout}, define=("ENABLE_BF16",))  # fmt: skip
    for number, block in ((1, 128), (2, 16)):
        yield row("residual_forward", f"residual_forward_kernel{number}", "4", str(block),
                  "out=bf16[N]:poison inp1=bf16[N]:random inp2=bf16[N]:random N=512",
                  lambda v: {"out": v.inp1 + v.inp2}, define=("ENABLE_BF16",))  # fmt: skip

    def fused(v: Any) -> dict[str, np.ndarray]:
        return {"residual": v.inp1 + v.inp2, **layer_norm(v, v.inp1 + v.inp2)}

    for kernel, grid, block, shared in (
        ("fused_residual_forward2", "1", "32", "0"), ("fused_residual_forward3", "3", "32,4", "0"),
        ("fused_residual_forward_kernel4", "3", "32,4", "0"),
        ("fused_residual_forward_kernel5", "3", "32,4", "6*C*2"),
    ):  # fmt: skip
        yield row("fused_residual_forward", kernel, grid, block,
                  "residual=bf16[N,C]:poison normed=bf16[N,C]:poison mean=bf16[N]:poison "
                  "rstd=bf16[N]:poison inp1=bf16[N,C]:random inp2=bf16[N,C]:random "
                  "weight=bf16[C]:random bias=bf16[C]:random N=10 C=256", fused,
                  shared=shared, define=("ENABLE_BF16",))  # fmt: skip
    for number in (1, 2):
        yield row("adamw", f"adamw_kernel{number}", "4", "64",
                  "params_memory=f32[256]:random grads_memory=f32[256]:random "
                  "m_memory=f32[256]:random v_memory=f32[256]:0.5 num_parameters=250 "
                  "learning_rate=0.01 beta1=0.9 beta2=0.999 beta1_correction=0.5 "
                  "beta2_correction=0.25 eps=1e-8 weight_decay=0.1",
                  lambda v: {k: np.r_[x[:250], getattr(v, k)[250:]] for k, x in adamw(v).items()},
                  )  # fmt: skip
    yield row("crossentropy_forward", "crossentropy_forward_kernel1", "1", "32",
              "losses=f32[B,T]:poison probs=f32[B,T,V]:0.125 targets=u32[B,T]:integers B=2 T=5 V=8",
              lambda v: {"losses": np.full((v.B, v.T), -math.log(0.125))})  # fmt: skip
    yield row("crossentropy_softmax_backward", "crossentropy_softmax_backward_kernel1", "2", "64",
              "dlogits=f32[B,T,V]:ones dlosses=f32[B,T]:random probs=f32[B,T,V]:random "
              "targets=u32[B,T]:integers B=2 T=5 V=8",
              lambda v: {"dlogits": 1 + (v.probs - (np.arange(v.V) == v.targets[..., None]))
                         * v.dlosses[..., None]})  # fmt: skip
    for kernel in (
        "fused_classifier_kernel1",
        "fused_classifier_kernel2",
        "fused_classifier_kernel3",
    ):
        probs = "" if kernel.endswith("1") else "probs=null "
        dlosses = "f32[B,T]:0.16666667" if kernel.endswith("1") else "null"
        yield row("classifier_fused", kernel, "B*T", "64",
                  f"dlogits=f32[B,T,P]:zeros losses=f32[B,T]:zeros {probs}logits=f32[B,T,P]:random "
                  f"dlosses={dlosses} targets=u32[B,T]:integers B=2 T=3 V=61 P=64",
                  classified)  # fmt: skip
    yield row("matmul_forward", "matmul_forward_kernel1", "(BT+15)/16,(OC+15)/16", "16,16",
              "out=f32[BT,OC]:poison inp=f32[BT,C]:random weight=f32[OC,C]:random bias=f32[OC]:random "
              "BT=20 C=30 OC=40", lambda v: {"out": v.inp @ v.weight.T + v.bias})  # fmt: skip
    yield row("matmul_forward", "add_bias", "2", "64",
              "out=f32[B,T,OC]:random bias=f32[OC]:random B=2 T=3 OC=40",
              lambda v: {"out": v.out + v.bias})  # fmt: skip
    yield row("matmul_forward", "matmul_forward_kernel4", "1,1", "16,16",
              "out=f32[128,OC]:poison inp=f32[128,C]:random weight=f32[OC,C]:random "
              "bias=f32[OC]:random C=64 OC=128",
              lambda v: {"out": v.inp @ v.weight.T + v.bias})  # fmt: skip
    for kernel, block, shared in (("matmul_backward_bias_kernel_naive", "40", "0"),
                                  ("matmul_backward_bias_kernel_faster", "64", "256")):  # fmt: skip
        yield row("matmul_backward", kernel, "1" if "naive" in kernel else "OC", block,
                  "dbias=f32[OC]:zeros dout=f32[B,T,OC]:random B=2 T=50 OC=40",
                  lambda v: {"dbias": v.dout.sum((0, 1))}, shared=shared)  # fmt: skip
    bias = "dout=bf16[B,T,OC]:integers B=2 T=32 OC=512"
    for kernel, grid, block, shared in (
        ("matmul_backward_bias_kernel1", "OC", "64", "256"),
        ("matmul_backward_bias_kernel2", "OC*32/64", "64", "0"),
        ("matmul_backward_bias_kernel3", "OC", "64", "0"),
        ("matmul_backward_bias_kernel4", "OC/32", "64", "256"),
    ):  # fmt: skip
        yield row("matmul_backward_bias", kernel, grid, block, f"dbias=bf16[OC]:zeros {bias}",
                  lambda v: {"dbias": v.dout.sum((0, 1))}, shared=shared)  # fmt: skip
    yield row("matmul_backward_bias", "matmul_backward_bias_kernel7", "2,2", "32,8",
              f"dbias=f32[OC]:zeros {bias} block_size=256",
              lambda v: {"dbias": v.dout.sum((0, 1))}, shared="256*4")  # fmt: skip
    yield row("matmul_backward_bias", "cast_and_add_kernel", "2", "256",
              "dst=bf16[n]:integers src=f32[n]:integers n=512",
              lambda v: {"dst": v.dst + v.src})  # fmt: skip
    yield row("matmul_backward_bias", "reduce_add_sum_kernel", "1", "256",
              "dst=bf16[n]:integers src=f32[m,n]:integers n=512 m=3",
              lambda v: {"dst": v.dst + v.src.sum(0)})  # fmt: skip
    for number, grid in ((1, 4), (2, 4), (3, 4)):
        yield row("global_norm", f"norm_kernel{number}<float>", str(grid), "128",
                  "out=f32[1]:zeros data=f32[count]:random count=1000",
                  lambda v: {"out": [(v.data**2).sum()]})  # fmt: skip
    yield row("global_norm", "norm_kernel4<float>", "4", "128",
              "out=f32[4]:zeros data=f32[count]:ones count=1000",
              lambda v: {"out": [256, 256, 256, 232]})  # fmt: skip
    yield row("global_norm", "global_norm_aggregate_kernel", "1", "1024",
              "out=f32[count]:random count=100",
              lambda v: {"out": np.r_[v.out.sum(), v.out[1:]]})  # fmt: skip
    yield row("permute", "permute_kernel", "4", "64",
              "matrix=f32[3,4,5,4]:random out_matrix=f32[4,5,3,4]:poison dim1=3 dim2=4 dim3=5 dim4=4",
              lambda v: {"out_matrix": v.matrix.transpose(3, 2, 0, 1)})  # fmt: skip
    attention = "inp=f32[B,T,3,C]:random B=2 T=9 C=32 NH=4"
    yield row("attention_forward", "attention_query_key_kernel1", "(B*NH*T*T+63)/64", "64",
              f"preatt=f32[B,NH,T,T]:0 {attention}",
              lambda v: {"preatt": np.where(np.tril(np.ones((v.T, v.T))) > 0, heads(v)[0]
                         @ heads(v)[1].transpose(0, 1, 3, 2) / math.sqrt(8), -np.inf)})  # fmt: skip
    yield row("attention_forward", "attention_softmax_kernel1", "2", "64",
              "att=f32[B,NH,T,T]:zeros preatt=f32[B,NH,T,T]:random B=2 T=9 NH=4",
              lambda v: {"att": causal(v.preatt)})  # fmt: skip
    yield row("attention_forward", "attention_value_kernel1", "2", "64",
              f"out=f32[B,T,C]:poison att=f32[B,NH,T,T]:zeros {attention}",
              lambda v: {"out": np.zeros((v.B, v.T, v.C))})  # fmt: skip
    yield row("attention_forward", "scale_kernel", "(B*NH*T*T+63)/64", "64",
              "inp=f32[B,NH,T,T]:random scale=0.5 B=2 NH=4 T=9",
              lambda v: {"inp": np.where(np.tril(np.ones((v.T, v.T))) > 0, v.inp * 0.5, -np.inf)},
              )  # fmt: skip
    yield row("attention_forward", "softmax_forward_kernel4", "N", "64",
              "out=f32[N,C]:poison inp=f32[N,C]:random N=12 C=100",
              lambda v: {"out": softmax(v.inp)}, shared="16")  # fmt: skip
    for file in ("attention_forward", "attention_backward"):
        yield row(file, "softmax_forward_kernel5", "N*T*32/64", "64",
                  "out=f32[N,T,T]:zeros inv_temperature=0.25 inp=f32[N,T,T]:random N=2 T=16",
                  lambda v: {"out": np.where(np.tril(np.ones((v.T, v.T))) > 0, causal(v.inp * 0.25), 0)},
                  )  # fmt: skip
        yield row(file, "permute_kernel", "(B*N*NH*d+63)/64", "64",
                  "q=f32[B,NH,N,d]:poison k=f32[B,NH,N,d]:poison v=f32[B,NH,N,d]:poison "
                  "inp=f32[B,N,3,NH,d]:random B=2 N=9 NH=4 d=8",
                  lambda v: dict(zip("qkv", v.inp.transpose(2, 0, 3, 1, 4), strict=True)))  # fmt: skip
        yield row(file, "unpermute_kernel", "(B*N*NH*d+63)/64", "64",
                  "inp=f32[B,NH,N,d]:random out=f32[B,N,NH,d]:poison B=2 N=9 NH=4 d=8",
                  lambda v: {"out": v.inp.transpose(0, 2, 1, 3)})  # fmt: skip
    yield row("attention_backward", "permute_kernel_backward", "(B*N*NH*d+63)/64", "64",
              "dinp=f32[B,N,3,NH,d]:zeros dq=f32[B,NH,N,d]:random dk=f32[B,NH,N,d]:random "
              "dv=f32[B,NH,N,d]:random B=2 N=9 NH=4 d=8",
              lambda v: {"dinp": np.stack([v.dq, v.dk, v.dv]).transpose(1, 3, 0, 2, 4)})  # fmt: skip
    yield row("attention_backward", "unpermute_kernel_backward", "(B*N*NH*d+63)/64", "64",
              "dinp=f32[B,NH,N,d]:zeros dout=f32[B,N,NH,d]:random B=2 N=9 NH=4 d=8",
              lambda v: {"dinp": v.dout.transpose(0, 2, 1, 3)})  # fmt: skip
    for number, grid, block in ((1, "1,B*NH", "32"), (2, "1,B*NH", "32"), (3, "T,B*NH", "32"),
                                (4, "T,B*NH", "32"), (5, "T,B*NH", "64")):  # fmt: skip
        yield row("attention_backward", f"softmax_autoregressive_backward_kernel{number}", grid, block,
                  "dpreatt=f32[B,NH,T,T]:zeros datt=f32[B,NH,T,T]:random att=f32[B,NH,T,T]:random "
                  "B=2 T=16 C=32 NH=4",
                  lambda v: softmax_backward(SimpleNamespace(**{**vars(v), "att": np.tril(v.att)})),
                  )  # fmt: skip
    # The sixth reads and writes rows in whole blocks, and relies on zeros for later keys.
    yield row("attention_backward", "softmax_autoregressive_backward_kernel6<64>", "T,B*NH", "64",
              "dpreatt=f32[B,4,T,T]:zeros datt=f32[B,4,T,T]:random att=f32[B,4,T,T]:random "
              "B=1 T=64 C=32 NH=4",
              lambda v: {"dpreatt": np.where(np.tril(np.ones((v.T, v.T))) > 0,
                         softmax_backward(SimpleNamespace(**{**vars(v), "att": np.tril(v.att)}))
                         ["dpreatt"], np.nan)}, tolerance=1e-4)  # fmt: skip
    for number, grid in ((7, "T,B*4"), (8, "T/4,B*4")):
        last = "scale=0.25"
        yield row("attention_backward", f"softmax_autoregressive_backward_kernel{number}<64>", grid, "64",
                  "dpreatt=f32[B,4,T,T]:zeros datt=f32[B,4,T,T]:random att=f32[B,4,T,T]:random "
                  f"B=2 T=16 C=32 {last}",
                  lambda v: softmax_backward(SimpleNamespace(**{**vars(v), "att": np.tril(v.att)})),
                  )  # fmt: skip
    backward = ("dout=f32[B,T,C]:random inp=f32[B,T,C]:random weight=f32[C]:random "
                "mean=f32[B,T]:random rstd=f32[B,T]:ones B=2 T=3 C=64")  # fmt: skip
    outs = "dinp=f32[B,T,C]:zeros dweight=f32[C]:zeros dbias=f32[C]:zeros"
    yield row("layernorm_backward", "layernorm_backward_kernel1", "1", "32", f"{outs} {backward}",
              layer_norm_backward, tolerance=1e-4)  # fmt: skip
    yield row("layernorm_backward", "layernorm_backward_kernel3<float,float,float,float>", "3", "64",
              f"{outs} {backward}", layer_norm_backward, shared="2*C*4", tolerance=1e-4)  # fmt: skip
    half = "__nv_bfloat16"
    yield row("layernorm_backward", f"layernorm_backward_kernel4<{half},{half},{half},{half}>", "3",
              "64", f"{outs} {backward}".replace("f32", "bf16"), layer_norm_backward,
              shared="2*C*4", tolerance=0.05)  # fmt: skip
    for number in (5, 6):
        yield row("layernorm_backward", f"layernorm_backward_kernel{number}<float,float,float,float>",
                  "3", "64", f"{outs} scratch=f32[{6 if number == 5 else 2}*C+1]:zeros {backward}",
                  lambda v: layer_norm_backward(v), shared="2*C*4+4", tolerance=1e-4)  # fmt: skip


def cuda_samples() -> Iterator[Row]:
    """NVIDIA's samples."""

    def row(file: str, kernel: str, grid: str, block: str, args: str, ref: Reference | None,
            **more: Any) -> Row:  # fmt: skip
        return Row("cuda-samples", f"Samples/{file}.cu", kernel, grid, block, args, ref, **more)

    yield row("0_Introduction/vectorAdd/vectorAdd", "vectorAdd", "4", "256",
              "A=f32[1000]:random B=f32[1000]:random C=f32[1000]:poison numElements=1000",
              lambda v: {"C": v.A + v.B})  # fmt: skip
    for tile in (16, 32):
        yield row("0_Introduction/matrixMul/matrixMul", f"MatrixMulCUDA<{tile}>",
                  f"wB/{tile},2", f"{tile},{tile}",
                  f"C=f32[{2 * tile},wB]:poison A=f32[{2 * tile},wA]:random B=f32[wA,wB]:random "
                  "wA=64 wB=96", lambda v: {"C": v.A @ v.B})  # fmt: skip
    yield row("0_Introduction/simpleTemplates/simpleTemplates", "testKernel<float>", "1", "32",
              "g_idata=f32[32]:random g_odata=f32[32]:poison",
              lambda v: {"g_odata": v.g_idata * 32}, shared="128")  # fmt: skip
    yield row("0_Introduction/template/template", "testKernel", "1", "32",
              "g_idata=f32[32]:random g_odata=f32[32]:poison",
              lambda v: {"g_odata": v.g_idata * 32}, shared="128")  # fmt: skip
    yield row("0_Introduction/fp16ScalarProduct/fp16ScalarProduct", "scalarProductKernel_native",
              "2", "128", "a=f16[2048]:ones b=f16[2048]:ones results=f32[2]:zeros size=1024",
              None)  # fmt: skip
    yield row("0_Introduction/asyncAPI/asyncAPI", "increment_kernel", "2", "64",
              "g_data=i32[128]:iota inc_value=26", lambda v: {"g_data": v.g_data + 26})  # fmt: skip
    yield row("0_Introduction/simpleStreams/simpleStreams", "init_array", "2", "64",
              "g_data=i32[128]:zeros factor=i32[1]:7 num_iterations=3",
              lambda v: {"g_data": np.full(128, 21)})  # fmt: skip
    yield row(
        "0_Introduction/simplePrintf/simplePrintf", "testKernel", "2,2", "2,2,2", "val=10", None
    )
    yield row("0_Introduction/simpleAssert/simpleAssert", "testKernel", "2", "32", "N=64", None)
    for number in range(4):
        yield row("2_Concepts_and_Techniques/reduction/reduction_kernel", f"reduce{number}<float>",
                  "2" if number == 3 else "4", "128",
                  "g_idata=f32[n]:integers g_odata=f32[4]:zeros n=512",
                  (lambda v: {"g_odata": np.r_[v.g_idata.reshape(2, -1).sum(1), 0, 0]}) if number == 3
                  else (lambda v: {"g_odata": v.g_idata.reshape(4, -1).sum(1)}),
                  shared="1024")  # fmt: skip
    for kernel, block in (("reduce4<float,128>", 128), ("reduce5<float,128>", 128),
                          ("reduce6<float,128,true>", 128), ("reduce7<float,128,true>", 128),
                          ("reduce7<int,128,true>", 128)):  # fmt: skip
        yield row("2_Concepts_and_Techniques/reduction/reduction_kernel", kernel, "2", str(block),
                  "g_idata={0}[n]:integers g_odata={0}[2]:zeros n=512".format(
                      "i32" if "int" in kernel else "f32"),
                  lambda v: {"g_odata": v.g_idata.reshape(2, -1).sum(1)},
                  shared="1024")  # fmt: skip
    for kernel in ("transposeNaive", "transposeCoalesced", "transposeNoBankConflicts",
                   "transposeDiagonal", "copy", "copySharedMem", "transposeFineGrained",
                   "transposeCoarseGrained"):  # fmt: skip
        yield row("6_Performance/transpose/transpose", kernel, "4,4", "32,16",
                  "odata=f32[128,128]:poison idata=f32[128,128]:random width=128 height=128",
                  None if "Grained" in kernel
                  else (lambda v: {"odata": v.idata}) if kernel.startswith("copy")
                  else (lambda v: {"odata": v.idata.T}))  # fmt: skip
    for kernel in ("shfl_scan_test",):
        yield row("2_Concepts_and_Techniques/shfl_scan/shfl_scan", kernel, "2", "128",
                  "data=i32[256]:ones width=32 partial_sums=i32[2]:zeros",
                  lambda v: {"data": np.tile(np.arange(1, 129), 2), "partial_sums": [128, 128]},
                  shared="32*4")  # fmt: skip
    yield row("2_Concepts_and_Techniques/scalarProd/scalarProd", "scalarProdGPU", "4", "256",
              "d_C=f32[4]:poison d_A=f32[4,1024]:integers d_B=f32[4,1024]:integers vectorN=4 "
              "elementN=1024", lambda v: {"d_C": (v.d_A * v.d_B).sum(1)})  # fmt: skip
    yield row("2_Concepts_and_Techniques/histogram/histogram256", "mergeHistogram256Kernel", "256",
              "256", "d_Histogram=u32[256]:poison d_PartialHistograms=u32[3,256]:integers "
              "histogramCount=3",
              lambda v: {"d_Histogram": v.d_PartialHistograms.sum(0)})  # fmt: skip
    yield row("5_Domain_Specific/BlackScholes/BlackScholes", "BlackScholesGPU", "2", "128",
              "d_CallResult=f32[512]:poison d_PutResult=f32[512]:poison d_StockPrice=f32[512]:20 "
              "d_OptionStrike=f32[512]:30 d_OptionYears=f32[512]:2 Riskfree=0.02 Volatility=0.3 "
              "optN=512", None)  # fmt: skip
    yield row("5_Domain_Specific/fastWalshTransform/fastWalshTransform", "modulateKernel", "4", "64",
              "d_A=f32[256]:random d_B=f32[256]:random N=256",
              lambda v: {"d_A": v.d_A * v.d_B / 256})  # fmt: skip
    yield row("0_Introduction/simpleVoteIntrinsics/simpleVoteIntrinsics", "VoteAnyKernel1", "1", "64",
              "input=u32[64]:ones result=u32[64]:poison size=64",
              lambda v: {"result": np.ones(64)})  # fmt: skip
    yield row("0_Introduction/simpleVoteIntrinsics/simpleVoteIntrinsics", "VoteAllKernel2", "1", "64",
              "input=u32[64]:ones result=u32[64]:poison size=64",
              lambda v: {"result": np.ones(64)})  # fmt: skip
    yield row("0_Introduction/simpleOccupancy/simpleOccupancy", "square", "2", "64",
              "array=i32[128]:iota arrayCount=128", lambda v: {"array": v.array**2})  # fmt: skip
    yield row("0_Introduction/simpleZeroCopy/simpleZeroCopy", "vectorAddGPU", "2", "64",
              "a=f32[128]:random b=f32[128]:random c=f32[128]:poison N=128",
              lambda v: {"c": v.a + v.b})  # fmt: skip
    yield row("0_Introduction/simpleCooperativeGroups/simpleCooperativeGroups", "cgkernel", "1", "64",
              "", None, shared="256")  # fmt: skip


ROWS = [*siboehm(), *yzhaiustc(), *llm_c(), *leetcuda(), *cuda_samples()]


# -- running it ------------------------------------------------------------------------------------


def values(row: Row, before: Mapping[str, np.ndarray]) -> SimpleNamespace:
    """Buffers, floats in float64, and numbers."""
    wide = {k: x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)
            for k, x in before.items()}  # fmt: skip
    return SimpleNamespace(**all_numbers(parse_pairs(row.args.split())), **wide)


def judge(row: Row, folder: Path) -> tuple[str, str]:
    """ "right", "refused", "found" or "failed", and what about."""
    path = folder / FOLDERS[row.repository] / row.file
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return "failed", str(error.strerror)
    launch = LaunchText(row.kernel, row.grid, row.block, tuple(row.args.split()), row.shared,
                        gemm=row.gemm or None, layout=row.layout, define=row.define)  # fmt: skip
    try:
        return (_product if row.gemm else _launch)(row, text, str(path), launch)
    except CompileError as error:
        return "found", f"does not compile: {str(error).splitlines()[0]}".replace(f"{folder}/", "")
    except CheckError as error:
        return "refused", str(error)
    except GenError as error:
        return "failed", str(error)


def _product(row: Row, text: str, name: str, launch: LaunchText) -> tuple[str, str]:
    shapes = [parse_shape(shape) for shape in row.shapes.split()]
    report = check_gemm(understand(text, name, launch), Checks(), shapes)
    if report.ok:
        return "right", f"{', '.join(map(str, shapes))}; error/bound {report.worst:.2g}"
    first = [sentence(finding) for finding, _ in report.findings]
    return "found", (first + [text for _, text in report.mismatches] + [report.stopped])[0]


def _launch(row: Row, text: str, name: str, launch: LaunchText) -> tuple[str, str]:
    outcome = run_steps(prepare(text, name, [launch]), Checks())
    said = [f"line {finding.file_line}: {sentence(finding)}" for finding in outcome.findings]
    if outcome.stopped:
        said.append(outcome.stopped)
    elif row.reference:
        for buffer, want in row.reference(values(row, outcome.before)).items():
            kind = outcome.types[buffer]
            tolerance = row.tolerance
            if tolerance is None:
                tolerance = elements.TOLERANCE.get(kind, 0.0)
            got, want = outcome.arrays[buffer], np.asarray(want)
            if want.dtype.kind == "f":  # NaN stands for what does not matter
                want = np.where(np.isnan(want), got.reshape(want.shape), want)
            wrong = difference(got, want, kind, tolerance)
            said += [f"{buffer}{wrong}"] if wrong else []
    if said:
        return "found", said[0] + (f" (and {len(said) - 1} more)" if len(said) > 1 else "")
    return "right", "" if row.reference else "ran, no reference"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--markdown", action="store_true", help="print tables at the end")
    chosen = parser.parse_args()
    results = []
    for row in ROWS:
        if chosen.names and not any(n in row.kernel or n in row.file for n in chosen.names):
            continue
        start = time.perf_counter()
        verdict, about = judge(row, chosen.folder)
        took = time.perf_counter() - start
        about = " ".join(about.split())[:240]
        results.append((row, verdict, about))
        line = f"{verdict:8} {took:6.1f} s  {row.repository:12} {row.kernel:50} {about}"
        print(line, file=sys.stderr if chosen.markdown else sys.stdout, flush=True)
    if chosen.markdown:
        print("\n".join(tables(results)))


def tables(results: Sequence[tuple[Row, str, str]]) -> Iterator[str]:
    """How many, what is not right, and what is, as Markdown."""
    verdicts = ("right", "refused", "found")
    yield "| repository | kernels | right | refused | found |"
    yield "|---|---:|---:|---:|---:|"
    for repository in dict.fromkeys(row.repository for row, _, _ in results):
        mine = [verdict for row, verdict, _ in results if row.repository == repository]
        counts = " | ".join(str(mine.count(verdict)) for verdict in verdicts)
        yield f"| {repository} | {len(mine)} | {counts} |"
    yield "\n| repository | kernel | verdict | what |"
    yield "|---|---|---|---|"
    for row, verdict, about in results:
        if verdict != "right":
            about = about.replace("|", "\\|")
            yield f"| {row.repository} | `{row.kernel}` | {verdict} | {about} |"
    yield "\n| file | kernels that are right |"
    yield "|---|---|"
    files: dict[str, list[str]] = {}
    for row, verdict, _ in results:
        if verdict == "right":
            files.setdefault(f"{row.repository}: {row.file}", []).append(f"`{row.kernel}`")
    for file, kernels in files.items():
        yield f"| {file} | {', '.join(kernels)} |"


if __name__ == "__main__":
    main()
