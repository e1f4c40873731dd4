"""Launchers on a CUDA runtime that runs nothing: what they queue, what they refuse."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.compile import host
from gen.kernels.registry import make_spec
from gen.prove.check import check
from gen.prove.launchers import program as library
from gen.prove.launchers.check import LauncherReport, check_launcher
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape
from tests.prove.test_verify import PAIRS, QUICK, SCALAR, WITH_PLAN, layout_of, small
from tests.spec.test_spec import specs
from tests.support.slow import sift, slow

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")


def edited(spec: KernelSpec, *edits: tuple[str, str]) -> Source:
    source = render(spec)
    text = source.text
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return dataclasses.replace(source, text=text)


def right(report: LauncherReport) -> bool:
    assert not report.skipped
    assert report.calls > 200
    assert not report.wrong, report.wrong
    return True


@pytest.mark.parametrize(("variant", "dtype"), sift(PAIRS, QUICK[24:25]))
@pytest.mark.slow
def test_launchers_carry_out_the_plan(variant: str, dtype: str) -> None:
    assert right(
        check_launcher(render(small(variant, dtype, layout_of(variant, dtype))), always=True)
    )


@slow
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_any_kernels_launcher_carries_out_the_plan(data: st.DataObject) -> None:
    spec = data.draw(specs(data.draw(st.sampled_from((SCALAR, WITH_PLAN)))))
    assert right(check_launcher(render(spec), always=True))


ONE: tuple[str, dict[str, Any]] = ("rec_tiles", {"dtype": "f64", "tile": 32, "coarsen": 8})
AUTO: tuple[str, dict[str, Any]] = ("mma_tma", {"split_k": 0, "epilogue": "linear_bias"})
FIXED: tuple[str, dict[str, Any]] = ("mma", {"split_k": 3, "layout": "ccc"})
BROKEN = [
    (("naive", {}), "(M + kThreadsY - 1) / kThreadsY", "M / kThreadsY"),
    (("naive", {}), "unsigned(grid_y)", "1"),
    (("naive", {}), "block{", "block{1u + "),
    (("naive", {}), "C, ldc, D, ldd);", "C, ldd, D, ldd);"),
    (("naive", {}), "alpha, A, lda, B", "beta, A, lda, B"),
    (("naive", {}), "if (K > 0 && (A == nullptr", "if (K > 0 && (A == nullptr || A == B"),
    (("naive", {}), "if (beta != 0 && (C", "if ((beta < 0 || beta > 0) && (C"),
    (("tiles", {"epilogue": "linear_bias"}), "if (M < 0", "if (!bias || M < 0"),
    (("naive", {"dtype": "f64"}), "alpha, A, lda, B", "double(float(alpha)), A, lda, B"),
    (("naive", {"dtype": "i32"}), "beta, C, ldc, D", "int(float(beta)), C, ldc, D"),
    (("shared_row", {}), "if (M < 0 || N < 0 || K < 0)", "if (C == D || M < 0 || N < 0 || K < 0)"),
    (("thread_1d", {}), "blocks < 2147483647 ? blocks", "blocks < 1000 ? blocks"),
    (("thread_1d", {}), "M * N + kThreads - 1", "M * N"),
    (("block_1d", {"grid": 3}), "M < 3 ? M : 3", "3"),
    (("shared_row", {}), "if (M < 0 || N < 0 || K < 0)", "if (M < 0 || N < 0)"),
    (("shared_row", {}), "lda < K", "lda < K - 1"),
    (("shared_row", {}), "lda > kLargest / M", "lda < 0"),
    (("tiles", {"epilogue": "linear_bias"}), "bias == nullptr", "false"),
    (("naive", {"epilogue": "x * one_row[row]"}), "one_row == nullptr", "false"),
    (("naive", {"epilogue": "x * up[row, col]"}), "if (up == nullptr", "if (K && up == nullptr"),
    (("naive", {"epilogue": "x * up[row, col]"}), "ld_up < N", "ld_up < N - 1"),
    (("naive", {"epilogue": "x * up[row, col]"}), "if (up == nullptr",
     "if ((beta != 0 && up == nullptr)"),
    (("tiles", {}), "if (D == nullptr", "if (C != D && D == nullptr"),
    (("tiles", {}), "|| ldd < N", "|| (C != D && ldd < N)"),
    (("tiles", {"epilogue": "x * up[row, col]"}), "D, ldd, up, ld_up", "D, ldd, up, ldd"),
    (("tiles", {"epilogue": "linear_bias"}), "bias == nullptr", "beta != 0 && bias == nullptr"),
    (("naive", {"dtype": "f64"}), "  if (grid_x > 2147483647)", "  if (false)"),
    (("block_1d", {"layout": "rcc"}), "M < 0 || N < 0", "N < 0"),
    (("naive", {}), "K > 0 && (A == nullptr || lda < K ||", "(A == nullptr || lda < K ||"),
    (("rec_tiles", {}), "SharedMemorySize, kSharedBytes", "SharedMemorySize, kTile * 4"),
    (("block_1d", {}), "ldb > kLargest / K", "ldb >= kLargest / K"),
    (("mma", {}), "B % 16 != 0", "B % 8 != 0"),
    (("mma", {"batched": True}), "size_t(batch) > kMost", "size_t(batch) >= kMost"),
    (("mma_tma", {"batched": True}), "size_t(batch) > kMost", "size_t(batch) > kMost + 1"),
    (("mma", {"grouped": True}), "index_t filled =", "int filled ="),
    (("wgmma", {"threadblock": "64x64x64", "cluster": "1x2"}), "plan.tiles) > kMost",
     "plan.tiles) >= kMost"),
    (("wgmma", {"threadblock": "64x64x64", "cluster": "2x2"}), "clusters * kClusterBlocks",
     "clusters * 3"),
    (("wgmma", {"threadblock": "64x64x64", "cluster": "2x2"}), "config{kClusterBlocks, kThreads",
     "config{kClusterBlocks, 128"),
    (("wgmma", {"threadblock": "64x64x64", "cluster": "8x1"}), "kThreads, kSharedBytes, stream, n",
     "kThreads, 0, stream, n"),
    (("mma", {"grouped": True}), "size_t(plan.tiles) > kMost", "size_t(plan.tiles) >= kMost"),
    (("mma", {}), "  if (bytes == nullptr) return cudaErrorInvalidValue;", ""),
    (("mma", {}), "workspace != nullptr && ", ""),
    (("mma", {}), "if (needed > 0 && !fits)", "if (!fits)"),
    (("mma", {}), "index_t b_offset = (a_lines", "index_t b_offset = int(a_lines"),
    (("mma_tma", {}), "stream, &early, 1};", "stream, &early, 2};"),
    (("mma_tma", {}), "if (error == cudaSuccess) error = make_map(b", "error = make_map(b"),
    (("mma", {"split_k": 0}), "slices > 64 ? 8", "slices >= 64 ? 8"),
    (("tiles", {}), "if (M == 0 || N == 0) return cudaSuccess;", ""),
    (("tiles", {}), "beta != 0 && (C == nullptr", "(C == nullptr"),
    (("tiles", {}), "own != device", "own < device"),
    (("tiles", {}), "own != device", "own > device"),
    (("tiles", {}), "K > 0 && (A == nullptr", "K > 1 && (A == nullptr"),
    (("tiles", {}), "if (M < 0 ||", "if (M < -1 ||"),
    (("simt", {"split_k": 0}), "if (M > kLargest / N)", "if (M >= kLargest / N)"),
    (("simt", {"split_k": 0}), "if (needed > 0 && !fits)", "if (!fits)"),
    (("simt", {"stream_k": 1}), "flags = sharing * 8", "flags = sharing * 4"),
    (("simt", {"stream_k": 1, "batched": True}), "tiles % blocks > 0", "tiles % blocks > 1"),
    (("simt", {"stream_k": 1}), "(workspace) + plan.flags_offset", "(workspace)"),
    (("wgmma", {"dtype": "f32_6xbf16"}), "DATA_TYPE_FLOAT32", "DATA_TYPE_BFLOAT16"),
    (("tiles", {}), "  int device;\n", "  int device;\n  cudaDeviceSynchronize();\n"),
    (("tiles", {}), "  int device;\n", "  int device;\n  cudaStreamSynchronize(stream);\n"),
    (("tiles", {}), "  int device;\n", "  int device;\n  delete new int;\n"),
    (("tiles", {}), " || capture != cudaStreamCaptureStatusNone", ""),
    (("tiles", {}), "grid_x > 2147483647", "false"),
    (("tiles", {}), "kernel, grid, block, 0, stream", "kernel, grid, block, 0, nullptr"),
    (("tiles", {}), "return cudaLaunchKernelEx(&config, kernel, arguments...);",
     "cudaLaunchKernelEx(&config, kernel, arguments...); return cudaGetLastError();"),
    (("tiles", {}), "return cudaLaunchKernelEx(&config, kernel, arguments...);",
     "cudaLaunchKernelEx(&config, kernel, arguments...); return cudaSuccess;"),
    (ONE, "cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes",
     "cudaFuncAttributeMaxDynamicSharedMemorySize, 49152"),
    (ONE, "block, kSharedBytes, stream", "block, kSharedBytes / 2, stream"),
    (FIXED, "workspace_bytes >= needed", "workspace_bytes + 1 >= needed"),
    (FIXED, "size_t(workspace) % 256", "size_t(workspace) % 128"),
    (FIXED, "steps < 3 ? steps : 3", "3"),
    (FIXED, "reinterpret_cast<scalar_t*>(space + plan.partials_offset)",
     "reinterpret_cast<scalar_t*>(space)"),
    (FIXED, "if (M > kLargest / N) return cudaErrorInvalidValue;", ""),
    (FIXED, "if (plan.reduce_blocks > 2147483647) return cudaErrorInvalidConfiguration;", ""),
    (FIXED, "*bytes = size_t(plan.bytes);", "*bytes = size_t(plan.partials_offset);"),
    (FIXED, "  *bytes = 0;\n", ""),
    (FIXED, "const Plan plan{N, M,", "const Plan plan{M, N,"),
    (AUTO, "fit < 2 ? 1 : fit < most", "fit < 3 ? 1 : fit < most"),
    (AUTO, "cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared",
     "cudaFuncAttributePreferredSharedMemoryCarveout, 50"),
    (AUTO, "early.val.programmaticStreamSerializationAllowed = 1;", ""),
    (AUTO, "a_edge = (M - 1) % a_box + 1", "a_edge = a_box"),
    (AUTO, "b_edge = (N - 1) % 64 / 8 * 8 + 8", "b_edge = 64"),
    (AUTO, "pieces < 65536 ? pieces : 65536", "pieces < 655360 ? pieces : 655360"),
    (AUTO, "auto encode = known.load();", "auto encode = known.load(); static int asked = 0;"
     " if (!encode && asked++) return cudaErrorNotSupported;"),
    (AUTO, "plan.b_length, B, ldb", "plan.b_length, A, ldb"),
    (AUTO, "size_t(D) % 16 == 0", "size_t(D) % 8 == 0"),
    (AUTO, "error = make_map(a_map", "make_map(a_map"),
    (("mma_tma", {"dtype": "tf32"}), "DATA_TYPE_TFLOAT32", "DATA_TYPE_FLOAT32"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "old", "new"), sift(BROKEN, BROKEN[:1]))
def test_broken_launchers_are_found(kernel: tuple[str, dict[str, Any]], old: str, new: str) -> None:
    variant, options = kernel
    report = check_launcher(edited(make_spec(variant, **options), (old, new)))
    assert not report.as_emitted
    assert not report.skipped
    assert report.wrong


@slow
@pytest.mark.parametrize(
    ("variant", "old", "new"),
    [
        ("rec_tiles", "kTile * kTile * sizeof(accumulator_t);", "kTile * kTile;"),
        ("mma_tma", "kStagingBytes + 1024;", "kStagingBytes;"),
    ],
)
def test_constants_that_a_launcher_uses_are_found(variant: str, old: str, new: str) -> None:
    report = check_launcher(edited(make_spec(variant), (old, new)))
    assert report.as_emitted
    assert report.wrong


@slow
def test_a_launcher_that_packs_before_all_is_known() -> None:
    """Nothing is launched where a later step is refused."""
    step = "  if (error != cudaSuccess) return error;\n\n  const auto kernel"
    arguments = "0, 0, A, lda, a_packed, 0, 0, 0, B, ldb, b_packed, 0"
    pack = f"  launch(k_pack, dim3(1), 256, 0, stream, {arguments});\n"
    report = check_launcher(edited(make_spec("mma_tma", name="k"), (step, pack + step)))
    assert report.wrong


@slow
def test_a_launcher_that_crashes_or_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec("tiles")
    first = "  if (M < 0 || N < 0 || K < 0)"
    crash = check_launcher(edited(spec, (first, "  *(int*)(M == 100 ? 1 : 0) = 1;\n" + first)))
    assert crash.wrong
    assert "it crashed (SIGSEGV)" in crash.wrong[0]
    monkeypatch.setattr(library, "SECONDS", 1)
    grow = "inline void grow() {\n  static int n;\n  n = n + 1;\n}\n"
    loop = (first, "  while (M == 100) grow();\n" + first)
    template = "template <class... P"
    hang = check_launcher(edited(spec, loop, (template, grow + template)))
    assert hang.wrong
    assert "it did not end in 1 seconds" in hang.wrong[0]


@slow
def test_the_end_of_what_a_launcher_says_is_told() -> None:
    first = "  if (M < 0 || N < 0 || K < 0)"
    ends = '  if (M == 100) fputs("one\\n\\ntwo\\n", stderr), _Exit(3);\n'
    report = check_launcher(edited(make_spec("tiles"), (first, ends + first)))
    assert report.wrong[0].endswith("it crashed (exit code 3): two")


@slow
def test_what_kernels_call_may_be_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where programs look up all that they may call at the start, as Ubuntu's do."""
    wrapped = tmp_path / "g++"
    wrapped.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} -Wl,-z,now "$@"\n')
    wrapped.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("LD_BIND_NOW", "1")
    source = render(make_spec("wgmma"))
    assert "compile_for_sm_90a();  // is nowhere" in source.text
    assert right(check_launcher(source, always=True))


def test_a_launcher_that_is_as_emitted_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "COMPILERS", ())
    assert check_launcher(render(make_spec("tiles"))) == LauncherReport(True, [])


@slow
def test_a_launcher_is_checked_without_its_header() -> None:
    source = render(make_spec("tiles", name="f"), "somewhere_else.h")
    assert "GEMMGEN_API" in source.text
    assert check_launcher(source) == LauncherReport(True, [])
    assert right(check_launcher(source, always=True))


@slow
def test_a_launcher_that_does_not_compile_is_wrong() -> None:
    odd = edited(make_spec("tiles"), ("return launch(", "return my_launch("))
    (wrong,) = check_launcher(odd).wrong
    assert "my_launch" in wrong


@slow
def test_more_shared_memory_than_there_is() -> None:
    asks = "cudaFuncAttributeMaxDynamicSharedMemorySize, "
    report = check_launcher(edited(make_spec("mma"), (f"{asks}kSharedBytes", f"{asks}256 * 1024")))
    assert "262144 bytes of shared memory, sm_80 has 166912" in report.wrong[0]


def test_another_promotion_in_l2_is_right() -> None:
    source = edited(make_spec("mma_tma"), ("L2_PROMOTION_NONE", "L2_PROMOTION_L2_128B"))
    assert not check_launcher(source).wrong


@slow
def test_a_launch_between_arrows() -> None:
    """As CUDA has it: it is compared with the plan, too."""
    spec = make_spec("thread_1d")
    plain = "return cudaLaunchKernelEx(&config, kernel, arguments...);"
    arrows = "kernel<<<grid, block, shared_bytes%s>>>(arguments...);\n  return cudaSuccess;"
    unseen = check_launcher(edited(spec, (plain, arrows % ", stream")))
    assert "a launch fails with 701, and it returns 0" in unseen.wrong[0]
    other_stream = check_launcher(edited(spec, (plain, arrows % "")))
    assert "launches 0 kernels" in other_stream.wrong[0]


@slow
def test_a_sum_of_slices_may_have_more_blocks_than_there_may_be_work_tiles() -> None:
    """128 blocks add up a work tile: 2^31 - 4096 of them, where D is one work tile wide."""
    spec = make_spec("wgmma", threadblock="128x128x32", stages=2, split_k=3)
    assert right(check_launcher(render(spec), always=True))


@slow
def test_a_launcher_beside_instructions_of_all_spellings() -> None:
    """asm without volatile: g++ does not know PTX."""
    exchanged = ("grid(unsigned(plan.tiles), unsigned(plan.slices))",
                 "grid(unsigned(plan.slices), unsigned(plan.tiles))")  # fmt: skip
    spec = make_spec("mma", dtype="tf32", split_k=0)
    assert right(check_launcher(render(spec), always=True))
    assert check_launcher(edited(spec, exchanged)).wrong


def test_why_a_launcher_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec("tiles")
    changed = edited(spec, ("own != device", "device != own"))
    monkeypatch.setattr(host, "COMPILERS", ())
    assert "no C++ compiler" in check_launcher(changed).skipped
    monkeypatch.undo()
    text = render(spec).text.partition("#ifndef __CUDACC_RTC__")[0] + "}\n"
    none = check_launcher(dataclasses.replace(render(spec), text=text))
    assert "none" in none.skipped


def test_check_looks_at_the_launcher() -> None:
    spec = make_spec("thread_1d")
    report = check(edited(spec, ("M * N + kThreads - 1", "M * N")), [GemmShape(3, 5, 7)])
    assert not report.findings
    assert not report.mismatches
    assert report.launcher
    assert report.launcher.wrong
    assert not report.ok
