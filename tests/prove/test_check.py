"""`gen check`: what it finds in files that were edited, and what it says about those it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.device.choose import FEW
from gen.device.emulated import EmulatorRunner, default_budget
from gen.device.execute import Case, run_kernel
from gen.emulator import parse_ptx
from gen.errors import CheckError, CompileError, PtxError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove import check as library
from gen.prove import planned
from gen.prove.check import check
from gen.prove.check_sizes import corners
from gen.prove.check_trials import check_trials, corner_trials
from gen.prove.cutlass import cutlass_gemm
from gen.prove.inputs import draw_operands
from gen.prove.stand import Limits, Stand, outcomes
from gen.prove.trials import Trial
from gen.prove.verify import verify
from gen.source.render import Source, render
from gen.spec.problem import ALIGNED, GemmProblem, GemmShape
from tests.conftest import Gen
from tests.prove.test_defects import line_of, plant
from tests.prove.test_verify import LARGER, PAIRS, WITH_PLAN, layout_of, small
from tests.support.slow import each, sift, slow

SHAPES = [GemmShape(9, 40, 23), GemmShape(15, 11, 41)]
BARRIER = {
    "tiles": ("      __syncthreads();  // both", "      __syncthreads();  // no thread"),
    "rec_tiles": ("      __syncthreads();  // all", "      __syncthreads();  // no thread"),
    "shared_row": ("          __syncthreads();  // the chunk", "          __syncthreads();  // no"),
}
LOAD = {"tiles": "sum[i] +=", "rec_tiles": "a = tile_a[", "shared_row": "(row_of_a[k]) * b"}


# -- shipped kernels -------------------------------------------------------------------------------


# Of each way to share memory one; test_every_kernel_and_dtype has other types.
_CLEAN = [("multistage", "i32")]


@pytest.mark.parametrize(("variant", "dtype"), sift(PAIRS, _CLEAN))
def test_shipped_kernels_are_clean(variant: str, dtype: str) -> None:
    spec = small(variant, dtype, layout_of(variant, dtype))
    shapes = [*SHAPES, *(LARGER if spec.warp else [])]
    # They read what nobody wrote in shared memory, for rows and columns that D does not have.
    loads_more = variant == "mma_tma" or (variant == "simt" and str(spec.layouts).startswith("rc"))
    report = check(render(spec), shapes, strict=True)
    if loads_more:
        found = [one.finding for one in report.findings]
        assert all(one.check == "initcheck" for one in found)
        assert all(one.address.startswith("shared+") for one in found)
        report = check(render(spec), shapes)
    assert report.ok, report
    assert report.shapes == shapes


_HELD = ({}, {"threadblock": "128x64x16", "sliced_k": 2}, {"threadblock": "64x64x8"})


@pytest.mark.parametrize("tunables", _HELD)
def test_blocks_share_tiles_however_many_a_multiprocessor_holds(tunables: dict[str, Any]) -> None:
    """One, two, nine of them."""
    spec = make_spec("simt", **tunables, stream_k=1)

    def shares(one: Trial) -> bool:
        if not one.multiprocessors:  # a large GPU, which has no full round of so few tiles
            return False
        launches = spec.plan(one.problem, ALIGNED, one.multiprocessors).launches
        return launches[0].kernel == f"{spec.name}_clear"

    shared = [one for one in check_trials(spec, (), False) if shares(one)]
    assert any(one.watched for one in shared)
    assert any(one.last_first for one in shared)


@slow
def test_warpgroups_take_turns_without_steps_along_k() -> None:
    """No wgmma orders the threads that wait for their turn before it is handed on."""
    spec = make_spec("wgmma", schedule="pingpong", threadblock="64x64x32", stages=3, stream_k=1)
    shapes = [GemmShape(64, 65, 0)]
    assert check(render(spec), shapes).ok
    report = check(plant(spec, ("if (first >= last) asm", "if (false) asm")), shapes)
    assert report.findings
    assert all("may miss its phase" in one.finding.message for one in report.findings)


@pytest.mark.slow
def test_teams_have_nothing_to_add_without_steps_along_k() -> None:
    """Or else they would be several work tiles ahead of the producer, which waits for each."""
    spec = make_spec("mma_tma", threadblock="64x128x32", warp="32x64", sliced_k=2)
    asked = "if (steps > 0 && exchanges++ > 0)"
    source = plant(
        spec,
        (asked, "if (exchanges++ > 0)"),
        ("if (steps > 0) {  // without any, nothing is added", "if (true) {  // nothing is added"),
    )
    trials = [one for one in check_trials(spec, (), False) if one.shape.k == 0 and one.watched]
    both = [check(each, [], also=trials, first=True) for each in (render(spec), source)]
    assert [report.ok for report in both] == [True, False]
    (found,) = both[1].findings
    assert "may miss its phase" in str(found.finding)


@pytest.mark.slow  # the README checks the default kernel of tiles
@pytest.mark.parametrize("variant", ["tiles", "rec_tiles", "thread_1d"])
def test_the_default_kernel_on_corners(variant: str) -> None:
    assert check(render(make_spec(variant))).ok


@pytest.mark.parametrize("dtype", each(2, ["f32", "i8"]))
def test_the_cutlass_reference_is_clean(dtype: str) -> None:
    runner = EmulatorRunner(["race"])
    spec = make_spec("naive", dtype=dtype)
    problem = GemmProblem.packed(GemmShape(37, 41, 35), spec.layouts, 2, 1, padding=1)
    cutlass_gemm(runner, spec, problem, draw_operands(spec, problem, "integer"))  # raises findings


@pytest.mark.parametrize(
    ("variant", "tunables"),
    [*((v, {}) for v in VARIANTS), *((v, {"split_k": 2}) for v in WITH_PLAN)],
)
def test_the_corners_are_reached(variant: str, tunables: dict[str, Any]) -> None:
    spec = small(variant, **tunables)
    shapes, tile = corners(spec), spec.threadblock
    assert any(s.m > 2 * tile.m and s.n > 2 * tile.n and s.k > tile.k for s in shapes)
    assert any(s.m >= tile.m - 1 and s.k > max(2 * spec.stages - 1, 2) * tile.k for s in shapes)
    for size, step in (("m", tile.m), ("n", tile.n), ("k", tile.k)):
        sizes = [getattr(shape, size) for shape in shapes]
        assert any(s and s % step == 0 for s in sizes)
        assert step == 1 or any(s % step for s in sizes)
    assert any(s.k == 0 and s.m for s in shapes)
    assert any(s.m == 0 for s in shapes)
    full = [s for s in shapes if s.m % tile.m == s.n % tile.n == 0]
    if "swizzle" in spec.tunables:  # one more group of tiles, in full columns or a short one
        rows = spec.tunables["swizzle"] * tile.m
        assert any(s.m > rows and (s.n % tile.n == 0 or s.n == 1) for s in shapes)
        turned = corners(small(variant, layout="rrc", **tunables))
        assert [(s.n, s.m, s.k) for s in turned] == [(s.m, s.n, s.k) for s in shapes]
    assert spec.split_k < 2 or any(tile.k < s.k <= spec.split_k * tile.k for s in full)


@pytest.mark.parametrize("variant", WITH_PLAN)
def test_a_full_tile_is_summed_in_slices_where_their_number_is_chosen(variant: str) -> None:
    spec = small(variant, split_k=0)
    full = [s for s in corners(spec) if (s.m, s.n) == spec.threadblock[:2]]
    problems = [GemmProblem.packed(s, spec.layouts) for s in full]
    plans = [spec.plan(problem, multiprocessors=FEW) for problem in problems]
    assert {len(steps.launches) for steps in plans} == {1, 2}  # and the reduction


# -- planted mistakes ------------------------------------------------------------------------------


def without_barrier(variant: str, which: int) -> tuple[Source, str]:
    """An emitted file without one of its two barriers, and how it spells the store it protects."""
    spec = small(variant)
    comment = BARRIER[variant][which]
    source = plant(spec, (comment, comment.replace("__syncthreads();", ";")))
    store = {"tiles": "tile_a[y][x] =", "rec_tiles": "tile_a[y][x] =", "shared_row": "_of_a[k] ="}
    return source, store[variant]


@pytest.mark.parametrize("variant", each(3, BARRIER))
@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_barrier(variant: str, which: int) -> None:
    source, store = without_barrier(variant, which)
    report = check(source, corners(small(variant)))
    assert not report.ok
    kinds = {one.finding.kind for one in report.findings}
    assert kinds == ({"RAW"} if which == 0 else {"WAR"}) or variant == "shared_row"
    pairs = {(o.finding.file_line, o.finding.other_line) for o in report.findings}
    load, stored = line_of(source, LOAD[variant]), line_of(source, store)
    # A statement may take two lines, and an access stand in either.
    near = {stored, stored + 1}
    if which == 0:
        assert pairs & {(load, line) for line in near}
    else:
        assert pairs & {(line, load) for line in near}


# What fences of mma_tma with slices of K are for: the line, what is said without it, and the line
# of the earlier access.
FENCES = {
    "sums where the next tile is to come": (
        '    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  //',
        r"bulk copy of 16 bytes at .* may come before the store .* a fence\.proxy\.async is",
        "] = {acc[0], acc[1], ",
    ),
    "barriers": (
        '    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  //',
        r"bulk copy that completes at .* may not see the mbarrier\.init .* a fence\.mbarrier_",
        "mbarrier.init.shared",
    ),
}


@slow
@pytest.mark.parametrize("fence", FENCES)
def test_a_missing_fence_between_proxies(fence: str) -> None:
    line, message, earlier = FENCES[fence]
    spec = make_spec("mma_tma", threadblock="64x64x64", warp="32x32", stages=3, sliced_k=2)
    # Small tiles, of which a block takes several.
    shapes = [shape for shape in corners(spec) if shape.n == shape.k == 1]
    source = plant(spec, (line, "    ;  //"))
    (found,) = (one.finding for one in check(source, shapes).findings)
    assert re.match(message, found.message)
    assert found.file_line == line_of(source, '"l"(&map), "r"(inner), "r"(outer), "r"(barrier)')
    assert found.other_line == line_of(source, earlier)


@slow
def test_dynamic_shared_memory_that_is_too_small() -> None:
    """The file uses more than its gen-spec line, which decides on the launch, says."""
    spec = make_spec("rec_tiles", tile=8, coarsen=2)
    source = plant(spec, ("constexpr int kCoarsen = 2;", "constexpr int kCoarsen = 3;"))
    report = check(source, [GemmShape(8, 24, 8)])
    found = [one.finding for one in report.findings if one.finding.check == "memcheck"]
    assert found
    assert "of 768" in found[0].address
    assert found[0].file_line in {line_of(source, "tile_b[y][j * kTile + x] =") + i for i in (0, 1)}


# How each kernel starts its sums.
STARTS = {
    **dict.fromkeys(("naive", "thread_1d", "block_1d", "shared_row"), (" sum = 0;", " sum;")),
    "tiles": ("sum[kRowsPerThread] = {};", "sum[kRowsPerThread];"),
    "rec_tiles": ("sum[kRowsPerThread][kCoarsen] = {};", "sum[kRowsPerThread][kCoarsen];"),
    **dict.fromkeys(WITH_PLAN, ("] = {};", "];")),
    "simt": ("tile.clear();", ""),
}


_STARTS = [
    *((variant, None, {}) for variant in STARTS),
    ("tiles", "i32", {}),
    ("naive", "bf16", {}),
    ("mma", "i8", {}),
    ("mma", "f16_f16", {}),
    ("mma", "tf32", {"split_k": 2}),
    ("mma_tma", "f16", {"split_k": 2}),
    ("mma_tma", "bf16", {"sliced_k": 2, "stages": 3}),
    ("wgmma", "tf32", {"split_k": 2}),
    ("wgmma", "bf16", {"split_k": 1, "stream_k": 1}),
    ("simt", "f32", {"split_k": 1, "stream_k": 1}),
]


@pytest.mark.parametrize(("variant", "dtype", "tunables"), sift(_STARTS, _STARTS[:5:4]))
def test_sums_that_start_as_nothing(
    variant: str, dtype: str | None, tunables: dict[str, Any]
) -> None:
    """The emulator gives them 0, as a GPU mostly does."""
    spec = small(variant, dtype, **tunables)
    shape = GemmShape(*spec.threadblock)
    assert check(render(spec), [shape]).ok
    report = check(plant(spec, STARTS[variant]), [shape])
    assert report.findings
    assert {(o.finding.check, o.finding.kind) for o in report.findings} == {
        ("initcheck", "register")
    }


_MORE = [
    ("tiles", ("tile_b[y][x] =", "tile_b[y + 1][x] =")),
    ("rec_tiles", ("constexpr int kCoarsen = 3;", "constexpr int kCoarsen = 4;")),
    ("mma_tma", ("constexpr int kStages = 2;", "constexpr int kStages = 3;")),
    ("mma", ("constexpr int kStages = 3;", "constexpr int kStages = 4;")),
    ("wgmma", ("constexpr int kStages = 2;", "constexpr int kStages = 3;")),
]


@pytest.mark.parametrize(("variant", "edit"), sift(_MORE, _MORE[:1]))
def test_more_shared_memory_than_the_launch_gives(variant: str, edit: tuple[str, str]) -> None:
    spec = small(variant)
    report = check(plant(spec, edit), [GemmShape(*(4 * size for size in spec.threadblock))])
    found = [one.finding for one in report.findings if one.finding.check == "memcheck"]
    assert any(finding.address.startswith("shared") for finding in found)


@slow
def test_one_shared_array_overrun_into_the_next_one() -> None:
    """Of which the same thread writes those elements again, if they lie one behind the other."""
    source = plant(small("thread_tile_1d"), ("i < kCopiesA; ++i", "i <= kCopiesA; ++i"))
    (found,) = [one.finding for one in check(source, first=True).findings]
    assert found.check == "memcheck"
    assert found.file_line == line_of(source, "tile_a[row][a_k] =")


@slow
def test_more_shared_memory_than_the_kernel_uses() -> None:
    """Stages that the file does not use any more, though its gen-spec line still asks for them."""
    few, many = (small("mma", stages=stages, split_k=1, name="gemm") for stages in (3, 6))
    seen = []
    for spec in (few, many):
        module = compile_cuda(render(spec).text, name="gemm.cu", arch=spec.arch)
        trials = corner_trials(spec, GemmShape(64, 64, 1024))[:1]
        ((_, outcome),) = outcomes(Stand(many, module, Limits(False, 20)), [tuple(trials)], 1)
        seen.append(list(library.notes(outcome.seen)))
    ((note,), nothing) = seen
    assert nothing == []
    assert note.kind == "shared-size"
    assert re.match("gemm uses 24576 of the 49152 bytes of shared memory", note.message)


def test_an_off_by_one() -> None:
    spec = make_spec("naive", threads=16)
    source = plant(spec, ("if (col >= N) return;", "if (col > N) return;"))
    report = check(source, [GemmShape(5, 6, 7)])
    assert {one.finding.check for one in report.findings} >= {"memcheck"}
    assert line_of(source, "D[c_at(") in {one.finding.file_line for one in report.findings}


@pytest.mark.slow
def test_multiples_of_another_number_are_not_aligned() -> None:
    odd = ("lda % kWidth == 0", "lda % (kWidth + 1) == 0")
    report = check(plant(small("skinny"), odd), first=True)
    assert [one.finding.check for one in report.findings] == ["memcheck"]


def test_blocks_that_write_the_same_rows() -> None:
    spec = make_spec("naive", threads=16)
    source = plant(spec, ("index_t(blockIdx.y) * kThreadsY + threadIdx.y;", "threadIdx.y;"))
    report = check(source, [GemmShape(8, 4, 3)])
    found = [one.finding for one in report.findings]
    assert ("racecheck", "WAW") in {(finding.check, finding.kind) for finding in found}
    assert line_of(source, "D[c_at(") in {finding.file_line for finding in found}


def test_a_wrong_result_without_any_finding() -> None:
    spec = make_spec("naive", threads=16)
    report = check(plant(spec, ("sum += a * b;", "sum -= a * b;")), SHAPES)
    assert report.findings == []
    assert "D[0, 0]" in report.mismatches[0][1]


def test_reading_d_is_found_in_strict_mode() -> None:
    spec = make_spec("naive", threads=16)
    source = plant(spec, ("    accumulator_t sum = 0;", "    accumulator_t sum = 0 * D[0];"))
    strict = check(source, SHAPES[:1], strict=True)
    assert {one.finding.check for one in strict.findings} >= {"initcheck"}
    assert line_of(source, "0 * D[0]") in {one.finding.file_line for one in strict.findings}
    relaxed = check(source, SHAPES[:1])
    assert "initcheck" not in {one.finding.check for one in relaxed.findings}
    assert not relaxed.ok  # poison spoils the result


READS_OF_C = {
    "naive": ("    accumulator_t sum = 0;", "    accumulator_t sum = 0; if (C[0] == 7) D[0] = 1;"),
    "mma": ("if (out.beta != 0) {", "if (true) {"),
    "mma_tma": ("if (out.beta != 0) {", "if (true) {"),
}


@pytest.mark.parametrize("variant", each(3, READS_OF_C))
def test_reading_c_is_found_where_beta_is_0(variant: str) -> None:
    """It may be null, even if what is read there is not used."""
    report = check(plant(small(variant), READS_OF_C[variant]), SHAPES[:1])
    assert {one.finding.check for one in report.findings} == {"memcheck"}
    message = report.findings[0].finding.message
    assert message.startswith("C is read where beta is 0, though it may be null")
    assert " at C[0, 0] of " in message


def test_findings_are_merged_and_limited() -> None:
    source, _ = without_barrier("tiles", 0)
    report = check(source, SHAPES)
    keys = [(o.finding.kind, o.finding.file_line, o.finding.other_line) for o in report.findings]
    assert len(keys) == len(set(keys))
    assert max(one.launches for one in report.findings) > 3
    fewer = check(source, SHAPES, max_findings=1)
    assert len(fewer.findings) == 1
    assert fewer.suppressed > 0


# -- hostile and mistaken input --------------------------------------------------------------------


def endless() -> Source:
    return plant(make_spec("tiles", tile=8), ("k0 < K; k0 += kTile", "k0 < K; k0 += 0"))


@slow
def test_a_kernel_that_never_ends() -> None:
    source = endless()
    report = check(source)
    assert "may not end" in report.error
    assert "--budget" in report.error
    assert re.search(r"CUDA line \d+", report.error)
    assert not report.ok


def test_an_instruction_that_the_emulator_does_not_know() -> None:
    spec = make_spec("tiles", tile=8)
    start = "sum[kRowsPerThread] = {};"
    source = plant(spec, (start, f'{start} asm volatile("tcgen05.wait::ld.sync.aligned;");'))
    line = line_of(source, "tcgen05")
    message = rf"not supported.*: 'tcgen05\.wait::ld\.sync\.aligned;' \(CUDA line {line}\)"
    report = check(source)
    assert (report.findings, report.mismatches) == ([], [])
    assert re.search(message, report.error)
    assert len(report.shapes) == 1
    with pytest.raises(PtxError, match=message):
        list(verify(spec, EmulatorRunner(), SHAPES, source))


def test_a_budget_ends_a_kernel() -> None:
    spec = make_spec("tiles", tile=8)
    assert "more than 1000 thread-instructions" in check(render(spec), budget=1000).error


@slow
def test_time_ends_a_kernel() -> None:
    """A thread that loops alone runs few instructions; what it did wrong before is reported."""
    spec = make_spec("naive", threads=64)
    start = "    accumulator_t sum = 0;\n"
    loop = "for (int i = 0; *(volatile output_t*)D != 7; ++i) D[0] = i % 2;"
    line = f"if (row + col == 0) {{ D[-1] = 0; {loop} }}"
    source = plant(spec, (start, f"{start}{line}\n"))
    report = check(source, [GemmShape(8, 8, 8)], seconds=1)
    assert [one.finding.address for one in report.findings] == ["D-4 of 396"]
    assert "on 8x8x8: kernel 'gemm_naive" in report.error
    where = (
        rf"was still running at CUDA line {line_of(source, 'volatile')} when the time was up; use"
    )
    assert re.search(f"{where} a larger --time", report.error)
    assert "--time" in check(render(spec), [GemmShape(8, 8, 8)], seconds=0).error
    assert check(render(spec), [GemmShape(8, 8, 8)], seconds=100).ok


@pytest.mark.parametrize("variant", sift(VARIANTS, ["naive", "rec_tiles", "shared_row"]))
def test_budgets_have_room(variant: str) -> None:
    spec = small(variant)
    for shape in corners(spec):
        runner = EmulatorRunner()
        problem = GemmProblem.packed(shape, spec.layouts)
        runner.budget = default_budget(spec, problem) // 10
        module = compile_cuda(render(spec).text, name=f"{spec.name}.cu", arch=spec.arch)
        operands = draw_operands(spec, problem, "integer")
        run_kernel(spec, runner, module, Case(problem, operands))


def test_shapes_beyond_memory() -> None:
    for shape in (GemmShape(200_000, 200_000, 8), GemmShape(9_999, 9_999, 9_999)):
        with pytest.raises(UsageError, match="use a smaller shape"):
            check(render(make_spec("naive")), [shape])


def test_shared_memory_over_the_limit() -> None:
    spec = make_spec("tiles", tile=8)
    source = plant(spec, ("tile_a[kTile][kTile];", "tile_a[kTile][kTile * 4096];"))
    report = check(source, SHAPES)
    assert "bytes of static shared memory" in report.error
    assert report.shapes == SHAPES[:1]


def test_files_that_do_not_fit_their_line() -> None:
    spec = make_spec("tiles", tile=8)
    source = render(spec)
    line = next(text for text in source.text.splitlines() if text.startswith("// gen-spec"))
    assert source.spec == spec
    no_line = Source("mine", source.text.replace(line, ""))
    with pytest.raises(UsageError, match=r"no gen-spec line.*// gen-spec: "):
        check(no_line)
    with pytest.raises(CheckError, match=r"of 32 threads, but its .* a block of 64; mend the one"):
        check(plant(spec, ("kThreadRows = 8;", "kThreadRows = 4;")))
    renamed = Source(spec.name, source.text.replace(spec.name, "mine"), spec)
    with pytest.raises(UsageError, match="the file's kernels are: mine"):
        check(renamed)
    with pytest.raises(UsageError, match=r"parameters of .* not those"):
        check(plant(spec, ("output_t* D, index_t ldd) {\n  __sh",
                           "output_t* D, int ldd) {\n  __sh")))  # fmt: skip
    with pytest.raises(CompileError):
        check(plant(spec, ("__shared__ accumulator_t tile_a", "__shared__ nonsense tile_a")))


# -- the command -----------------------------------------------------------------------------------


def emit(source: Source) -> str:
    Path(source.filename).write_text(source.text)
    return source.filename


def test_a_clean_file(gen: Gen) -> None:
    file = emit(render(make_spec("tiles", tile=8)))
    code, out, err = gen("check", file, "--strict", "--shape", "17x18x19")
    assert (code, err) == (0, "")
    assert "nothing found in " in out
    assert "\n  launcher: as gen emit writes it" in out


def test_a_file_with_a_race(gen: Gen) -> None:
    source, _ = without_barrier("tiles", 1)
    code, out, _ = gen("check", emit(source), "--shape", "17x18x19")
    load = line_of(source, LOAD["tiles"])
    assert code == 1
    assert "racecheck" in out
    assert f"races with the load at line {load} (WAR)" in out
    assert f"{load:6} | " + source.text.splitlines()[load - 1] in out
    code, out, _ = gen("check", emit(source), "--json", "--shape", "9x9x20")
    report = json.loads(out)
    assert (code, report["ok"]) == (1, False)
    (kernel,) = report["kernels"]
    assert kernel["shapes"] == ["9x9x20"]
    first = kernel["findings"][0]
    assert (first["check"], first["kind"], first["other_line"]) == ("racecheck", "WAR", load)
    assert {"file_line", "block", "threads", "address", "shape", "source"} <= set(first)


@slow
def test_variants_like_verify(gen: Gen) -> None:
    code, out, err = gen("check", "--variant", "all", "--threads", "64", "--tile", "8",
                         "--shape", "9x10x11", "--dtype", "f32")  # fmt: skip
    assert code == 0
    left = "mma f32, mma_m16n8k8 f32, mma_tma f32, wgmma f32, skinny f32, slim f32"
    assert re.match(rf"note: left out, because there is none: {left} .*\n", err)
    count = sum(dtype == "f32" for _, dtype in PAIRS)
    assert f"{count} of {count} kernels are clean" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no kernel is named"),
        (("missing.cu",), "cannot read missing.cu"),
        (("empty.cu",), "error: empty.cu has no gen-spec line"),
        (("main.cpp",), "error: main.cpp has no gen-spec line"),
        (("empty.cu", "--tile", "8"), "leave out the options that choose one"),
        (("--variant", "tiles", "--shape", "9x9"), "is not MxNxK"),
        (("--variant", "tiles", "--budget", "0"), "--budget"),
    ],
)
def test_bad_usage(gen: Gen, arguments: tuple[str, ...], message: str) -> None:
    for name in ("empty.cu", "main.cpp"):
        Path(name).write_text("int x;\n")
    code, out, err = gen("check", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err


@slow
def test_a_kernel_that_never_ends_ends_the_command(gen: Gen) -> None:
    code, out, _ = gen("check", emit(endless()), "--budget", "100000")
    assert code == 1
    assert "stopped on" in out


_SPLIT = {"split_k": 0, "epilogue": "linear_bias_relu"}
_LIMITS: list[tuple[str, dict[str, Any]]] = [
    *((variant, _SPLIT) for variant in ("mma", "mma_tma", "wgmma")),
    ("naive", {"dtype": "f64"}),
    *((variant, {"dtype": dtype}) for variant, dtype in PAIRS if dtype == "i8"),
]


@pytest.mark.parametrize(("variant", "options"), sift(_LIMITS, _LIMITS[:5:4]))
def test_limits_of_a_spec_are_those_of_the_parameters(
    variant: str, options: dict[str, Any]
) -> None:
    """Every emitted kernel passes what `check` expects of one."""
    spec = make_spec(variant, **options)
    names = [launch.kernel.removeprefix(spec.name) for launch in planned.launches(spec)]
    wanted = ["_pack", "", "_reduce"] if spec.split_k != 1 else ["_pack", ""]
    assert names == (wanted if spec.warp else [""])
    module = compile_cuda(render(spec).text, name=f"{spec.name}.cu", arch=spec.arch)
    planned._check_kernels(spec, parse_ptx(module.code.decode()))


def test_a_wrong_kernel_is_not_tried_on_all_shapes() -> None:
    """Each launch of it takes long; what the others would find is, as a rule, the same."""
    source = plant(small("naive"), ("sum += a * b", "sum -= a * b"))
    shapes = [GemmShape(m, 3, 2) for m in range(1, library.ENOUGH + 8)]
    stopped, whole = check(source, shapes), check(source, shapes, enough=None)
    assert stopped.trials == library.ENOUGH + 1
    assert stopped.left == whole.trials - stopped.trials > 0
    assert (whole.left, check(source, shapes, first=True).trials) == (0, 1)
    assert stopped.launcher is None
    assert whole.launcher is not None
    assert not stopped.ok
    assert not whole.ok


def test_first_and_all_contradict_each_other(gen: Gen) -> None:
    found = gen("check", "--variant", "naive", "--first", "--all")
    assert found.code == 2
    assert "name one" in found.err


def test_a_named_problem_is_tried_before_enough_others_are_wrong() -> None:
    source = plant(small("naive"), ("sum += a * b", "sum += a * b + (K == 501 ? a : b)"))
    named = corner_trials(source.spec, GemmShape(5, 7, 501))[:1]
    report = check(source, also=named)
    assert report.enough
    assert report.shapes[0] == GemmShape(5, 7, 501)


def test_what_no_launch_finds_does_not_end_the_launches() -> None:
    """An atomic addition is found in the text, whether or not it runs."""
    adds = "if (row == 123456) atomicAdd(reinterpret_cast<float*>(D), 0.0f);"
    source = plant(small("naive"), ("sum += a * b;", f"sum += a * b;\n      {adds}"))
    report = check(source, [GemmShape(m, 3, 2) for m in range(1, library.ENOUGH + 8)])
    assert [one.finding.check for one in report.findings]
    assert (report.left, report.enough) == (0, False)
