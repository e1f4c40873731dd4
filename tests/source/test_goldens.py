"""Emitted files, byte for byte as in tests/golden: one at least for each branch of a template.

After a change of the templates, `make goldens` (pytest tests/source/test_goldens.py
--update-goldens) writes them anew; read the difference.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

from gen.device.gpus import GPUS
from gen.dispatch.products import products_of
from gen.kernels.registry import VARIANTS, make_spec
from gen.source.architectures import TEMPLATE as ARCHITECTURES
from gen.source.architectures import make_family, render_family
from gen.source.cpp import best, embed
from gen.source.cpp.best_file import render_best, render_best_header
from gen.source.cpp.bundle import read_bundle
from gen.source.cpp.bundle_files import render_bundle
from gen.source.cpp.embed_best import render_embedded_best
from gen.source.cpp.header import render_header
from gen.source.render import read_source, render
from gen.source.templates import render_template, template_dir
from gen.source.versions import template_files
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import parse_layout
from tests import ROOT
from tests.spec.test_spec import specs
from tests.support import tuned
from tests.support.branches import Branch, Branches, traced
from tests.support.programs import assert_no_warnings
from tests.support.slow import sift

GOLDEN = ROOT / "tests" / "golden"

# Epilogues of a user's own: with operands of all kinds, with none, and with what fills no line.
GATED = "silu(x) * up[row, col] + slope * rest[row, col] where up=f16[row, col], slope=scalar"
DEQUANTIZED = "clamp(x * by_row[row] * by_col[col], -1, M) where by_row=f32[row], by_col=f32[col]"
EXPERTS = "silu(x + bias[group, col]) * scale[group] where scale=f32[group]"
MASKED = "row >= col ? gelu(x) : 0"
LONG = (
    "weights_of_all[row, col] * of_each_column[col] * x + attention_mask[row, col] * exp(-abs(x)) "
    "* gain - max(x, tanh(another_one[row, col])) where gain=scalar"
)

# What is emitted: each variant as it is by default, and what takes the branches that this does not.
EMITTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("naive", {}),
    ("naive", {"dtype": "bf16", "layout": "ccc", "epilogue": "linear_bias"}),
    ("naive", {"epilogue": LONG, "name": "gemm_long"}),
    ("thread_1d", {}),
    ("thread_1d", {"epilogue": "linear_bias_relu"}),
    ("block_1d", {}),
    ("block_1d", {"grid": 64, "epilogue": "linear_bias_gelu"}),
    ("shared_row", {}),
    ("shared_row", {"dtype": "f64", "layout": "rcr", "grid": 64, "epilogue": "linear_bias_gelu"}),
    ("tiles", {}),
    ("tiles", {"batched": True}),
    ("tiles", {"epilogue": "linear_bias"}),
    ("rec_tiles", {}),
    ("rec_tiles", {"dtype": "i32", "epilogue": "linear_bias_relu"}),
    ("thread_tile_1d", {}),
    ("thread_tile_1d", {"dtype": "bf16", "layout": "rrc", "epilogue": "linear_bias"}),
    ("thread_tile_2d", {}),
    ("thread_tile_2d", {"dtype": "f64", "layout": "rrc", "epilogue": "linear_bias"}),
    ("vectorized", {}),
    ("vectorized", {"dtype": "f16", "layout": "crr", "epilogue": "linear_bias_relu"}),
    ("vectorized", {"dtype": "i8", "layout": "rcc"}),
    ("vectorized", {"layout": "rrc", "epilogue": GATED, "name": "gemm_gated"}),
    ("warp_tiled", {}),
    ("multistage", {}),
    ("multistage", {"dtype": "f64", "layout": "crr", "stages": 2, "epilogue": "linear_bias"}),
    ("multistage", {"dtype": "i32", "layout": "rcr"}),
    ("multistage", {"layout": "crc", "batched": True}),
    ("simt", {}),
    ("simt", {"layout": "rcr", "threadblock": "64x128x32", "sliced_k": 4, "split_k": 0,
              "epilogue": "linear_bias"}),
    ("simt", {"layout": "rcr", "threadblock": "128x64x16", "sliced_k": 2, "held": 0}),
    ("simt", {"layout": "rcr", "threadblock": "32x48x8", "warp": "32x48", "held": 0}),
    ("simt", {"dtype": "f64", "layout": "crc", "threadblock": "64x64x16", "warp": "32x32",
              "epilogue": "linear_bias", "split_k": 20}),
    ("simt", {"layout": "rcr", "split_k": 3, "batched": True}),
    ("simt", {"batched": True}),
    ("simt", {"dtype": "i32", "layout": "crr", "threadblock": "64x64x32", "sliced_k": 8,
              "split_k": 3, "arch": "sm_90"}),
    ("simt", {"epilogue": DEQUANTIZED, "name": "gemm_dequantized"}),
    ("simt", {"layout": "rrc", "split_k": 3, "epilogue": GATED, "name": "gemm_gated"}),
    ("simt", {"layout": "rcr", "stream_k": 1, "arch": "sm_90a"}),
    ("simt", {"dtype": "f64", "layout": "crc", "threadblock": "64x64x16", "warp": "32x32",
              "sliced_k": 2, "stream_k": 1, "epilogue": "linear_bias", "batched": True}),
    ("gemv", {}),
    ("gemv", {"dtype": "f16", "layout": "rcr", "epilogue": "linear_bias_relu"}),
    ("gemv", {"layout": "ccc"}),
    ("gemv", {"dtype": "bf16", "few": "columns", "layout": "crr"}),
    ("gemv", {"dtype": "f64", "few": "columns", "epilogue": "linear_bias"}),
    ("gemv", {"arch": "sm_90", "layout": "rcr"}),
    ("gemv", {"dtype": "f64", "layout": "rcr"}),
    ("gemv", {"layout": "rcr", "arch": "sm_90", "few": "columns", "vectors": 8, "strip": 8}),
    ("gemv", {"layout": "ccr", "arch": "sm_90", "vectors": 8}),
    ("gemv", {"dtype": "f64", "few": "columns", "layout": "rrr", "vectors": 1}),
    ("gemv", {"dtype": "f16", "layout": "rcr", "arch": "sm_90", "vectors": 1, "strip": 2}),
    ("gemv", {"arch": "sm_90", "few": "columns", "vectors": 1, "strip": 2, "threads": 256}),
    ("gemv", {"dtype": "f64", "vectors": 1}),
    ("narrow", {}),
    ("narrow", {"dtype": "f16", "layout": "crr", "few": "columns", "vectors": 4, "arch": "sm_90",
                "cluster": "1x1x4", "epilogue": "linear_bias"}),
    ("narrow", {"dtype": "f64", "layout": "ccr", "vectors": 1}),
    ("skinny", {}),
    ("skinny", {"layout": "rcr"}),
    ("skinny", {"dtype": "bf16_f32", "epilogue": "linear_bias_gelu"}),
    ("skinny", {"few": "columns", "layout": "rrc"}),
    ("skinny", {"dtype": "f16_f32", "few": "columns", "layout": "crr", "strip": 64}),
    ("slim", {}),
    ("slim", {"dtype": "bf16", "layout": "ccr", "few": "columns", "vectors": 32, "arch": "sm_90",
              "cluster": "1x1x4", "epilogue": "linear_bias_relu"}),
    ("slim", {"dtype": "f16_f32", "layout": "rcr", "vectors": 16, "batched": True}),
    ("slim", {"dtype": "bf16_f32", "layout": "crr"}),
    ("slim", {"layout": "rrr", "few": "columns", "strip": 256, "threads": 512}),
    ("mma", {}),
    ("mma", {"dtype": "f16_f16", "layout": "crr", "split_k": 0}),
    ("mma", {"dtype": "f16_f32", "layout": "rcr", "split_k": 4, "epilogue": "linear_bias_relu"}),
    ("mma", {"dtype": "bf16", "layout": "ccr", "stages": 1, "epilogue": "linear_bias"}),
    ("mma", {"pack": 0}),
    ("mma", {"pack": 0, "dtype": "bf16", "layout": "ccr", "split_k": 0, "batched": True}),
    ("mma", {"pack": 0, "dtype": "i8", "layout": "rcr", "stages": 1}),
    ("mma", {"dtype": "tf32", "layout": "crr", "stages": 2}),
    ("mma", {"dtype": "tf32"}),
    ("mma", {"dtype": "f16_f32", "threadblock": "64x64x32", "warp": "16x64", "stages": 2}),
    ("mma", {"dtype": "i8", "layout": "crr", "threadblock": "64x64x128", "warp": "16x64"}),
    ("mma", {"layout": "rcc", "epilogue": "linear_bias_gelu", "arch": "sm_75"}),
    ("mma", {"layout": "crc", "split_k": 70, "arch": "sm_90"}),
    ("mma", {"layout": "crc", "split_k": 0, "epilogue": "linear_bias", "batched": True}),
    ("mma", {"dtype": "i8", "layout": "ccr", "split_k": 2, "batched": True}),
    ("mma", {"dtype": "tf32", "layout": "crr", "arch": "sm_90", "split_k": 70, "batched": True}),
    ("mma", {"grouped": True}),
    ("mma", {"dtype": "tf32", "arch": "sm_90", "epilogue": DEQUANTIZED, "grouped": True}),
    ("mma", {"dtype": "bf16_f32", "layout": "crr", "grouped_k": True}),
    ("mma", {"dtype": "f64", "layout": "crc", "arch": "sm_90", "epilogue": "linear_bias",
             "grouped_k": True}),
    ("mma", {"dtype": "bf16", "layout": "crc", "epilogue": "group < 8 ? x + bias[group, col] : 0",
             "grouped_k": True, "name": "gemm_first"}),
    ("mma", {"dtype": "f64"}),
    ("mma", {"dtype": "f64", "threadblock": "32x32x32", "warp": "16x16"}),
    ("mma", {"dtype": "f64", "layout": "rcr", "arch": "sm_90", "split_k": 0}),
    ("mma", {"dtype": "f64", "layout": "crc", "arch": "sm_90", "instruction": "m16n8k8",
             "threadblock": "64x64x16", "warp": "32x32", "split_k": 3}),
    ("mma", {"dtype": "f64", "layout": "crr", "arch": "sm_90", "instruction": "m16n8k16",
             "threadblock": "32x32x32", "warp": "16x16", "stages": 2}),
    ("mma", {"dtype": "f64", "layout": "rcc", "threadblock": "32x32x8", "warp": "16x16",
             "stages": 1, "epilogue": "linear_bias_gelu"}),
    ("mma", {"layout": "rcc", "epilogue": GATED, "name": "gemm_gated"}),
    ("mma", {"split_k": 3, "epilogue": MASKED, "name": "gemm_masked"}),
    ("mma_m16n8k8", {}),
    ("mma_tma", {}),
    ("mma_tma", {"dtype": "f16_f16", "layout": "rcr", "threadblock": "128x128x64", "warp": "64x64",
                 "sliced_k": 2, "split_k": 0}),
    ("mma_tma", {"dtype": "f16_f16", "layout": "crr", "epilogue": "linear_bias"}),
    ("mma_tma", {"dtype": "f16_f16", "threadblock": "64x64x32", "warp": "32x32", "stages": 2,
                 "split_k": 0}),
    ("mma_tma", {"dtype": "f16_f32", "layout": "crr"}),
    ("mma_tma", {"layout": "crr", "split_k": 3}),
    ("mma_tma", {"dtype": "f16_f32", "layout": "rcc", "split_k": 0, "epilogue": "linear_bias"}),
    ("mma_tma", {"layout": "rcr", "threadblock": "96x96x64", "warp": "48x48", "stages": 4}),
    ("mma_tma", {"layout": "rcr", "threadblock": "96x96x64", "warp": "32x48", "stages": 7,
                 "sliced_k": 2, "epilogue": "linear_bias"}),
    ("mma_tma", {"dtype": "bf16", "layout": "rcc", "threadblock": "96x96x64", "warp": "48x48",
                 "stages": 4, "epilogue": "linear_bias_relu"}),
    ("mma_tma", {"dtype": "bf16", "layout": "crr", "threadblock": "64x64x32", "warp": "16x64",
                 "stages": 2}),
    ("mma_tma", {"dtype": "bf16", "layout": "rcr", "threadblock": "16x64x64", "warp": "16x32",
                 "stages": 4, "sliced_k": 2}),
    ("mma_tma", {"layout": "rcr", "threadblock": "96x96x64", "warp": "48x48", "stages": 4,
                 "sliced_k": 2}),
    ("mma_tma", {"dtype": "f16_f32", "layout": "rrc", "split_k": 3, "batched": True}),
    ("mma_tma", {"dtype": "i8", "batched": True}),
    ("mma_tma", {"batched": True}),
    ("mma_tma", {"dtype": "tf32", "layout": "rcr", "grouped": True}),
    ("mma_tma", {"dtype": "bf16", "layout": "crc", "grouped_k": True}),
    ("mma_tma", {"layout": "crr", "threadblock": "64x64x64", "warp": "32x32", "grouped_k": True}),
    ("mma_tma", {"dtype": "f16_f16", "threadblock": "64x64x32", "warp": "16x64", "stages": 2}),
    ("mma_tma", {"epilogue": "linear_bias_gelu"}),
    ("mma_tma", {"layout": "rcc", "epilogue": "linear_bias"}),
    ("mma_tma", {"epilogue": "linear_bias_relu"}),
    ("mma_tma", {"dtype": "bf16", "layout": "rrc", "split_k": 20, "epilogue": "linear_bias_gelu"}),
    ("mma_tma", {"dtype": "tf32", "layout": "ccr", "threadblock": "128x128x32", "warp": "64x64",
                 "sliced_k": 2, "split_k": 2}),
    ("mma_tma", {"dtype": "i8", "layout": "crr", "epilogue": "linear_bias_relu"}),
    ("mma_tma", {"dtype": "f64"}),
    ("mma_tma", {"dtype": "f64", "layout": "crr", "threadblock": "64x64x16", "warp": "64x16",
                 "stages": 6, "split_k": 0, "epilogue": "linear_bias"}),
    ("mma_tma", {"dtype": "f64", "layout": "rcr", "threadblock": "128x64x16", "warp": "32x32",
                 "instruction": "m16n8k8", "stages": 6, "batched": True}),
    ("mma_tma", {"dtype": "e4m3", "epilogue": DEQUANTIZED, "name": "gemm_dequantized"}),
    ("mma_tma", {"epilogue": "x < 0 ? 0.01 * x : x", "name": "gemm_leaky"}),
    ("wgmma", {}),
    ("wgmma", {"epilogue": GATED, "name": "gemm_gated"}),
    ("wgmma", {"layout": "crr", "threadblock": "192x64x32", "stages": 2,
               "epilogue": "linear_bias"}),
    ("wgmma", {"dtype": "f16_f16", "threadblock": "64x64x32", "stages": 2}),
    ("wgmma", {"dtype": "f16_f16", "layout": "rcr", "threadblock": "64x80x32", "stages": 2}),
    ("wgmma", {"dtype": "tf32", "layout": "rcr", "threadblock": "64x64x32", "split_k": 70}),
    ("wgmma", {"layout": "crr", "threadblock": "64x64x32", "stages": 3, "split_k": 2}),
    ("wgmma", {"dtype": "i8", "layout": "crr", "threadblock": "64x64x64"}),
    ("wgmma", {"dtype": "e4m3"}),
    ("wgmma", {"dtype": "e5m2_f32", "layout": "rcr", "threadblock": "64x64x64", "promote": 256,
               "split_k": 3}),
    ("wgmma", {"dtype": "bf16_f32", "layout": "rrc", "threadblock": "256x128x32", "split_k": 0,
               "epilogue": "linear_bias_relu"}),
    ("wgmma", {"layout": "rcr", "cluster": "2x1"}),
    ("wgmma", {"layout": "rcr", "threadblock": "128x128x64", "stages": 5, "cluster": "1x1x2"}),
    ("wgmma", {"layout": "rcr", "threadblock": "64x224x64", "stages": 6, "burst": 2}),
    ("wgmma", {"dtype": "e4m3", "layout": "rcr", "threadblock": "128x192x128", "stages": 5,
               "stream_k": 1}),
    ("wgmma", {"dtype": "e4m3", "layout": "rcr", "schedule": "pingpong",
               "threadblock": "64x128x128", "stream_k": 1}),
    ("wgmma", {"dtype": "i8", "layout": "crr", "threadblock": "256x64x64", "stages": 2,
               "cluster": "1x1x4", "epilogue": "linear_bias", "batched": True}),
    ("wgmma", {"layout": "rcr", "threadblock": "64x64x32", "cluster": "1x2"}),
    ("wgmma", {"layout": "rcr", "threadblock": "128x128x64", "stages": 5, "cluster": "2x2x2"}),
    ("wgmma", {"dtype": "bf16", "threadblock": "64x128x64", "stages": 7, "cluster": "2x1x4",
               "batched": True, "epilogue": "linear_bias"}),
    ("wgmma", {"dtype": "i8", "layout": "rcr", "threadblock": "128x64x128", "stages": 6,
               "cluster": "1x4x2"}),
    ("wgmma", {"dtype": "e4m3", "layout": "rcr", "threadblock": "64x80x64", "stages": 8,
               "promote": 128, "cluster": "2x1x2"}),
    ("wgmma", {"schedule": "pingpong", "threadblock": "128x64x64", "stages": 8, "cluster": "2x4"}),
    ("wgmma", {"dtype": "f16_f16", "threadblock": "256x64x32", "stages": 2}),
    ("wgmma", {"dtype": "f16_f16", "layout": "crr", "threadblock": "256x128x64",
               "cluster": "2x2", "epilogue": "linear_bias_gelu"}),
    ("wgmma", {"layout": "rcr", "threadblock": "256x192x64", "stream_k": 1}),
    ("wgmma", {"dtype": "f16_f16", "layout": "ccc", "threadblock": "128x64x64", "stream_k": 1,
               "epilogue": "linear_bias_relu"}),
    ("wgmma", {"layout": "rcr", "batched": True}),
    ("wgmma", {"layout": "rcr", "grouped": True}),
    ("wgmma", {"epilogue": EXPERTS, "grouped": True, "name": "gemm_experts"}),
    ("wgmma", {"dtype": "bf16_f32", "layout": "crr", "grouped_k": True}),
    ("wgmma", {"dtype": "f16_f16", "threadblock": "256x128x64", "grouped": True}),
    ("wgmma", {"dtype": "bf16", "schedule": "pingpong", "epilogue": "linear_bias",
               "grouped": True}),
    ("wgmma", {"dtype": "f16_f32", "layout": "crc", "threadblock": "64x64x64", "stream_k": 1,
               "epilogue": "linear_bias", "batched": True}),
    ("wgmma", {"dtype": "f16_f16", "layout": "crr", "threadblock": "256x128x64",
               "cluster": "2x2", "batched": True}),
    ("wgmma", {"dtype": "f32_6xbf16", "split_k": 0, "batched": True}),
    ("wgmma", {"dtype": "f32_6xbf16"}),
    ("wgmma", {"dtype": "f32_6xbf16", "layout": "rcr", "split_k": 3}),
    ("wgmma", {"dtype": "f32_6xbf16", "layout": "ccr", "threadblock": "256x64x32",
               "promote": 32, "split_k": 0, "stages": 2}),
    ("wgmma", {"layout": "rcr", "schedule": "pingpong"}),
    ("wgmma", {"dtype": "e5m2", "layout": "rcr", "schedule": "pingpong", "cluster": "2x1",
               "epilogue": "linear_bias"}),
    ("wgmma", {"dtype": "tf32", "layout": "rcr", "schedule": "pingpong", "stream_k": 1,
               "threadblock": "64x64x32"}),
)  # fmt: skip

# Bundles, whose kernels leave out what only a file of their own says.
BUNDLED = {
    "gemm": "--variant mma --aligned\n--variant mma --dtype i8\n"
    "--variant tiles --dtype f16 --epilogue linear_bias\n--variant naive --dtype f64",
    "one": "--variant naive",
    "two": "--variant mma --from 512",  # for two architectures
    "heads": f"--variant mma --batched --epilogue '{GATED}' --as gated --aligned\n"
    "--variant naive --batched --epilogue linear_bias\n--variant naive --dtype f16\n"
    f"--variant naive --dtype f64 --epilogue '{MASKED}' --as masked",
}

# What has a header, and what has a kernel for each of several architectures.
FAMILIES: tuple[tuple[str, dict[str, Any], tuple[str, ...], bool], ...] = (
    ("tiles", {"layout": "ccc"}, ("sm_80",), True),
    ("mma", {"epilogue": "linear_bias"}, ("sm_75", "sm_80", "sm_86", "sm_90"), True),
    ("naive", {"epilogue": GATED, "layout": "ccc"}, ("sm_80",), True),
    ("mma", {"dtype": "f16_f32"}, ("sm_75", "sm_80"), False),
    ("skinny", {}, ("sm_80", "sm_90"), True),
)

# Kernels that are chosen for shapes and GPUs, in one file; whether that has a header, and is chosen
# by measured times.
CHOSEN: tuple[tuple[str, str, str, list[str], list[str], bool, bool, str | None, str], ...] = (
    ("few", "f16", "rcr", ["8x2048x1024"], ["t4", "a100"], False, False, None, "linear"),
    ("steps", "f32", "rrr", ["100x3000x50"], ["t4", "rtx3060"], False, False, None, "linear"),
    ("one", "f16", "rcr", ["1x2048x1024"], ["a100"], False, False, None, "linear"),
    ("rows", "bf16", "rcr", ["1x2048x1024", "8x4096x512"], ["a100"], False, False, None, "linear"),
    ("decode", "f16", "rcc", ["8x4096x4096", "64"], ["h200"], True, True, None, "linear"),
    ("heads", "f32", "rrr", ["1x512x512", "128"], ["a10"], False, False, "1-64", GATED),
)

# What is embedded in C++, for these architectures; without the code itself, NVRTC's affair.
EMBEDDED: tuple[tuple[str, dict[str, Any], tuple[str, ...], tuple[str, ...]], ...] = (
    ("tiles", {"dtype": "f64", "layout": "ccc"}, ("sm_80", "sm_90a"), ("ptx", "cubin")),
    ("gemv", {"batched": True}, ("sm_80",), ("cubin",)),
    ("gemv", {"epilogue": GATED}, ("sm_80",), ("cubin",)),
    ("narrow", {}, ("sm_80",), ("cubin",)),
    ("slim", {}, ("sm_80",), ("cubin",)),
    ("mma", {"grouped": True}, ("sm_80",), ("cubin",)),
    ("mma", {"split_k": 0, "epilogue": "linear_bias"}, ("sm_80", "sm_90"), ("cubin",)),
    ("simt", {"layout": "rrc", "epilogue": "linear_bias"}, ("sm_90",), ("cubin",)),
    ("mma_tma", {}, ("sm_90a",), ("cubin",)),
    ("wgmma", {"dtype": "f32_6xbf16"}, ("sm_90a",), ("cubin",)),
    ("wgmma", {"stream_k": 1}, ("sm_90a",), ("cubin",)),
    ("wgmma", {"threadblock": "128x64x64", "cluster": "2x2"}, ("sm_90a",), ("cubin",)),
    ("simt", {"stream_k": 1}, ("sm_80",), ("cubin",)),
)


# What has a golden header.
HEADED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("naive", {}),
    ("mma", {"dtype": "bf16", "layout": "ccc", "epilogue": "linear_bias"}),
    ("mma", {"layout": "crr", "grouped_k": True}),
)


def texts() -> Iterator[tuple[Path, str]]:
    """Every golden file."""
    for variant, options in EMITTED:
        source = render(make_spec(variant, **options))
        yield GOLDEN / variant / source.filename, source.text
    for variant, options in HEADED:
        spec = make_spec(variant, **options)
        yield GOLDEN / "header" / f"{spec.name}.h", render_header(spec)
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in BUNDLED.items():
            listing = Path(folder, f"{name}.kernels")
            listing.write_text(lines)
            arch = "sm_75,sm_80" if name == "two" else None
            for suffix, text in zip(
                (".h", ".cu"), render_bundle(read_bundle(listing, arch=arch)), strict=True
            ):
                yield GOLDEN / "bundle" / f"{name}{suffix}", text
    for variant, options, archs, header in FAMILIES:
        family = make_family([make_spec(variant, arch=arch, **options) for arch in archs])
        source = render_family(family, f"{family.name}.h" if header else None)
        yield GOLDEN / "family" / source.filename, source.text
    for name, dtype, layout, shapes, gpus, header, measured, batch, epilogue in CHOSEN:
        products = products_of(shapes, parse_dtype(dtype), parse_layout(layout), batch)
        tunables = best.with_batch({"epilogue": epilogue}, batch)
        known = [GPUS[gpu] for gpu in gpus]
        with tempfile.TemporaryDirectory() as folder:
            near = products_of(["12x4096x4096"], parse_dtype(dtype), parse_layout(layout))
            tables = [tuned.table(near, gpu) for gpu in gpus if measured]
            places = tuned.places(Path(folder), *tables)
            found = best.make_best(products, known, tunables, name, "gen emit --best", places)
        text = render_best(found, f"{name}.h" if header else None)
        yield GOLDEN / "best" / f"{name}.cu", text
        if header:
            yield GOLDEN / "best" / f"{name}.h", render_best_header(found)
        formats = ("ptx", "cubin") if header else ("cubin",)
        for suffix, text in zip((".cpp", ".h"), render_embedded_best(found, formats), strict=True):
            yield GOLDEN / "best" / f"{name}_embedded{suffix}", text
    for variant, options, archs, formats in EMBEDDED:
        kernels = embed.embedded_specs(make_spec(variant, **options), archs)
        files = embed.render_embedded(kernels, formats)
        for suffix, text in zip((".cpp", ".h"), files, strict=True):
            yield GOLDEN / variant / (kernels[0].name + suffix), text


@pytest.fixture(autouse=True)
def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is two zeros."""
    code = SimpleNamespace(code=bytes(16))
    monkeypatch.setattr("gen.compile.nvrtc.compile_cuda", lambda *_, **__: code)
    monkeypatch.setattr("gen.compile.nvrtc.nvrtc_version", lambda: (0, 0))


def test_goldens(update_goldens: bool) -> None:
    wanted = dict(texts())
    found = {path for path in GOLDEN.rglob("*") if path.is_file()}
    if update_goldens:
        for path in found - wanted.keys():
            path.unlink()
        for path, text in wanted.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        found = set(wanted)
    assert found == wanted.keys(), "files and table differ; if that is right: make goldens"
    wrong = [str(path.relative_to(ROOT)) for path in found if path.read_text() != wanted[path]]
    assert not wrong, f"{wrong} differ; see what git diff says after: make goldens"


def is_for_several(path: Path) -> bool:
    """Whether one architecture is not enough, or a header is missing: test_architectures."""
    return path.parent.name in ("best", "family") or path.name == "two.cu"


CUDA = sorted(path for path in GOLDEN.rglob("*.cu") if not is_for_several(path))
QUICK = [path for path in CUDA if re.search(r"mma_tma_f16_crr_sk3\b", path.name)]


@pytest.mark.nvcc
@pytest.mark.parametrize("path", sift(CUDA, QUICK), ids=lambda path: path.stem)
@pytest.mark.slow
def test_nvcc_has_nothing_to_warn_about(path: Path) -> None:
    assert len(QUICK) == 1
    spec = read_source(path).spec
    assert_no_warnings(path, spec.arch if spec else "sm_80")


def test_every_variant_and_kernel_template_has_a_golden() -> None:
    assert {variant for variant, options in EMITTED if not options} == set(VARIANTS)


def of_kernels() -> list[str]:
    """The templates that emitted and embedded kernels are made of."""
    kernels = [row.template for row in VARIANTS.values()]
    files = template_files(*kernels, ARCHITECTURES, *embed.TEMPLATES)
    return [file.relative_to(template_dir()).as_posix() for file in files]


def missing(branches: Branches) -> dict[Branch, str]:
    """Sides that nothing has taken but should have, and their lines."""
    return {branch: branches.source(branch) for branch in branches.known - branches.seen}


def taking(branch: Branch, branches: Branches) -> str:
    """The simplest kernel that takes a branch."""

    def takes(spec: KernelSpec) -> bool:
        branches.seen.clear()
        render(spec)
        embed.render_embedded(embed.embedded_specs(replace(spec, symbol="gemm"), [spec.arch]))
        return branch in branches.seen

    few = hypothesis.settings(max_examples=1000, database=None)
    try:
        return str(hypothesis.find(specs(), takes, settings=few).command)
    except hypothesis.errors.NoSuchExample:
        return "no kernel was found that does"


def test_every_branch_of_a_template_has_a_golden() -> None:
    with traced(of_kernels()) as branches:
        for _ in texts():
            pass
        left = sorted(missing(branches).items())
        wrong = [
            f"{template}:{line}: never {taken}: {text}\n  {taking(branch, branches)}"
            for branch, text in left
            for template, line, _, taken in [branch]
        ]
    assert not wrong, "\n".join(["no golden takes:", *wrong])


def test_the_trace_knows_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("/*% if a %*/", "/*% elif b %*/", "${ 1 if c else 2 }", "/*% endif %*/",
             "/*% for x in d if x > 1 %*/", "${ x }", "/*% endfor %*/")  # fmt: skip
    (tmp_path / "some.j2").write_text("\n".join(lines))
    monkeypatch.setattr("gen.source.templates.template_dir", lambda: tmp_path)
    with traced(["some.j2"]) as branches:
        assert len(missing(branches)) == 8
        for values in ({"a": False, "b": True, "c": 1, "d": [1]}, {"a": False, "b": 0, "d": [1]}):
            render_template("some.j2", **values)
        left = {(branch.line, branch.taken) for branch in missing(branches)}
    assert left == {(1, True), (3, False), (5, True)}


def test_every_tensor_map_is_told_how_far_lines_are_apart() -> None:
    """Where it is a parameter: what follows has defaults, with which a call lacking it compiles."""
    calls = [
        [argument.strip() for argument in call.split(",")]
        for _, text in texts()
        if "int span" in text
        for call in re.findall(r"= make_map\(([^;]*)\);", text)
    ]
    assert len(calls) > 100
    assert {call[9] for call in calls} <= {"32", "64", "128"}
