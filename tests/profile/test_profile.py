"""`gen profile`: what it counts, what it says, what it knows of GPUs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gen.cli import main
from gen.compile import sass
from gen.device.gpus import GPUS, find_gpu
from gen.errors import UsageError
from gen.kernels.occupancy import occupancy
from gen.kernels.registry import make_spec
from gen.profile import compare
from gen.profile.count import Profile, profile
from gen.profile.explain import verdict
from gen.source.render import read_source, render
from gen.spec.problem import GemmShape
from tests.hardware import compare_counters
from tests.support.slow import each, sift, slow

CUBE = GemmShape(64, 64, 64)


def profiled(variant: str, gpu: str = "h200", shape: GemmShape = CUBE, **tunables: int) -> Profile:
    return profile(render(make_spec(variant, **tunables)), shape, find_gpu(gpu))


@slow
def test_rec_tiles_reads_a_half_as_often_as_tiles() -> None:
    """Global loads fall by a quarter, the shared loads of A by half."""
    square, wide = profiled("tiles", tile=16), profiled("rec_tiles", tile=16, coarsen=2)
    steps = (64 // 16) ** 3
    assert square.totals.global_load.parts == steps * 2 * 16 * 2
    assert wide.totals.global_load.parts == steps * 2 * 16 * 2 * 3 // 4
    assert square.totals.shared_load.parts == steps * 8 * (16 + 8)
    assert wide.totals.shared_load.parts == steps * 8 * 16 + steps // 2 * 8 * 8
    assert square.totals.blocks == 2 * wide.totals.blocks
    assert wide.shared_bytes == 3072 > square.shared_bytes == 2048
    assert wide.intensity > square.intensity
    assert square.totals.fma == wide.totals.fma == 64**3 // 32


@pytest.mark.slow
def test_counters_of_every_line_add_up_to_the_totals() -> None:
    found = profiled("tiles", tile=16)
    loads = [line for line in found.lines if line.place[1:] == ("global", "load")]
    assert [line.text[:4] for line in loads] == ["in_a", "in_b"]
    assert sum(line.access.parts for line in loads) == found.totals.global_load.parts


@pytest.mark.parametrize("layout", each(2, ["rrr", "ccr"]))
def test_uncoalesced_loads_are_named(layout: str) -> None:
    """Column-major A and B: the loads of B by neighbouring threads are K elements apart."""
    found = profile(render(make_spec("thread_1d", layout=layout)), CUBE, find_gpu("h200"))
    bad = [text for text in verdict(found) if "uncoalesced load" in text]
    assert len(bad) == (0 if layout == "rrr" else 1)
    if bad:
        line = int(bad[0].split()[1].rstrip(":"))
        assert "B[b_at(" in render(found.spec).text.splitlines()[line - 1]
        assert "32 sectors a request where 4 would do" in bad[0]


def test_bank_conflicts_are_named(tmp_path: Path) -> None:
    """Swapping the indices of a shared tile: 32 lanes write to one bank."""
    path = tmp_path / "edited.cu"
    text = render(make_spec("tiles", tile=32)).text
    path.write_text(text.replace("tile_b[y][x] =", "tile_b[x][y] ="))
    found = profile(read_source(path), GemmShape(32, 32, 32), find_gpu("h200"))
    assert found.totals.shared_store.excess == 32 * 31
    assert any("32-way bank conflicts: 32 wavefronts a store" in text for text in verdict(found))


def test_misaligned_rows_are_named() -> None:
    """Rows of 33 floats: most of them start inside a sector."""
    found = profiled("tiles", shape=GemmShape(64, 64, 33), tile=32)
    assert any("misaligned load" in text for text in verdict(found))
    assert not any("misaligned" in text for text in verdict(profiled("tiles", tile=32)))


def test_verdict_on_occupancy_and_grid() -> None:
    """One block of 1024 threads on an SM of 64 warps is half; 4 blocks do not fill a GPU."""
    texts = verdict(profiled("tiles", tile=32))
    assert any("4 blocks do not fill h200" in text for text in texts)
    assert any("loads, not arithmetic, bound the inner loop" in text for text in texts)


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared", "blocks", "why"),
    [
        ("h200", 1024, 32, 8192, 2, ["warps", "registers"]),
        ("h200", 1024, 33, 8192, 1, ["registers"]),
        ("h200", 256, 40, 2048, 6, ["registers"]),
        ("h200", 128, 255, 0, 2, ["registers"]),
        ("h200", 64, 16, 0, 32, ["warps", "blocks", "registers"]),
        ("h200", 128, 32, 100 * 1024, 2, ["shared memory"]),
        ("rtx3060", 1024, 32, 0, 1, ["warps"]),
        ("rtx3060", 256, 32, 99 * 1024, 1, ["shared memory"]),
        ("t4", 128, 32, 48 * 1024, 1, ["shared memory"]),
        ("t4", 128, 32, 65 * 1024, 0, ["shared memory"]),
        ("a100", 100, 32, 0, 16, ["warps", "registers"]),
    ],
)
def test_occupancy(
    gpu: str, threads: int, registers: int, shared: int, blocks: int, why: list[str]
) -> None:
    """Worked out by hand from the limits of an SM."""
    found = occupancy(GPUS[gpu].capability, threads, registers, shared)
    assert (found.blocks, found.limited_by) == (blocks, why)


def test_gpus_are_found_by_name() -> None:
    assert find_gpu("H200").arch == "sm_90"
    with pytest.raises(UsageError, match="did you mean rtx4090"):
        find_gpu("rtx4080")


MACHINE_CODE = """
//--------------------- .text.other                --------------------------
	//## File "/a/k.cu", line 9
        /*0010*/                   LDS R2, [R0] ;
//--------------------- .text.k                    --------------------------
	//## File "/a/k.cu", line 9
        /*0010*/                   LDS.128 R4, [R0] ;
        /*0020*/              @!P0 LDS.U8 R4, [R0+0x10] ;
        /*0030*/                   LDSM.16.M88.4 R4, [R0] ;
	//## File "/a/k.cu", line 12
        /*0040*/                   LDS R2, [R6.X4+0x80] ;
        /*0050*/                   LDS.U.64 R2, [UR4] ;
	//## File "/include/math.h", line 12
        /*0060*/                   LDS R2, [R0] ;
"""


def test_widths_of_shared_loads_in_machine_code() -> None:
    """By line of the kernel's own file; ldmatrix is not among them."""
    found = sass.shared_load_widths(MACHINE_CODE, "k", "k.cu")
    assert (found[9], found[12]) == (Counter({16: 1, 1: 1}), Counter({4: 1, 8: 1}))


@slow
def test_widths_are_those_of_the_machine_code() -> None:
    """The rules for joined loads and the disassembler agree on kernels of every kind."""
    if sass.find_disassembler() is None:
        pytest.skip("needs nvdisasm")
    for variant, tunables in (("tiles", {"tile": 10}), ("rec_tiles", {"tile": 32, "coarsen": 3})):
        found = profiled(variant, shape=GemmShape(8, 8, 8), **tunables)
        assert found.widths == "machine code"
        assert not found.unmatched


@pytest.mark.parametrize(
    ("shape", "wavefronts"),
    [((64, 96, 33), 3456), ((37, 53, 61), 2368), ((129, 65, 130), 21_285), ((1, 521, 3), 33)],
)
def test_shared_row_reads_the_end_of_a_chunk_ahead(
    shape: tuple[int, int, int], wavefronts: int
) -> None:
    """The wavefronts of shared loads that an H200 counts."""
    found = profiled("shared_row", shape=GemmShape(*shape))
    assert found.totals.shared_load.parts == wavefronts
    assert not found.unmatched


def test_without_a_disassembler_the_widths_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are the same, and the output says where they come from."""
    known = profiled("tiles", tile=16)
    monkeypatch.setattr(sass, "disassemble", lambda _: None)
    predicted = profiled("tiles", tile=16)
    assert "predicted" in predicted.widths
    assert predicted.totals == known.totals


@pytest.mark.slow
def test_command_prints_kernels_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", "--variant", "tiles", "--variant", "rec_tiles", "--tile", "16"]
    assert main([*words, "--shape", "64", "--gpu", "rtx3060"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("64x64x64 on rtx3060 (GeForce RTX 3060 12 GB)")
    rows = {line[:28].strip(): line[28:].split() for line in text.splitlines()}
    assert rows["global load sectors"] == ["4,096", "3,072"]
    assert "gemm_rec_tiles_f32_rrr_tile16_sm86:" in text
    first, *sentences = text[text.index("\ncompared with") + 1 :].splitlines()
    assert first == "compared with tiles:"
    assert sentences == [
        "- rec_tiles moves 1.3 times fewer sectors of global memory than tiles at 64 a side",
        "- rec_tiles takes 1.2 times fewer wavefronts of shared memory than tiles at 64 a side",
        "- rec_tiles executes 1.5 times fewer instructions of warps than tiles at 64 a side",
    ]


@slow
def test_command_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(render(make_spec("naive")).text)
    assert main(["profile", str(path), "--shape", "32x64x16", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["kernels"]
    assert found["counters"]["global_load"]["requests"] == 2 * 16 * 32 * 64 // 32
    assert found["counters"]["global_load"]["bytes"] == 2 * 32 * 64 * 16 * 4
    assert {line["kind"] for line in found["lines"]} == {"load", "store"}
    assert found["occupancy"]["max_warps"] == 64


@slow
def test_kernels_are_compared_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", "--variant", "naive", "--variant", "tiles", "--variant", "thread_1d"]
    assert main([*words, "--shape", "33x64x32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert all(text.count(" 33x64x32") == 1 for text in found)
    assert [text.split()[0] for text in found] == ["tiles"] * 3 + ["thread_1d"] * 2
    assert "wavefronts of shared memory at 33x64x32, naive has none" in found[1]
    # One kernel has nothing to be compared with.
    assert main([*words[:3], "--shape", "32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"] == []


@pytest.mark.parametrize(
    ("value", "than", "sentence", "cell"),
    [
        (10, 162, "a moves 16 times fewer S than b", "16.2x fewer"),
        (1_000, 117, "a moves 8.5 times more S than b", "8.55x more"),
        (100, 101.9, "a moves as many S as b", "as many"),
        (101.9, 100, "a moves as many S as b", "as many"),
        (100, 103, "a moves 1.03 times fewer S than b", "1.03x fewer"),
        (1, 9.97, "a moves 10 times fewer S than b", "9.97x fewer"),
        (1, 12_345, "a moves 12,345 times fewer S than b", "12,300x fewer"),
        (5, 0, "a has 5 S, b has none", "-"),
        (0, 0, "", "-"),
    ],
)  # fmt: skip
def test_a_comparison_in_words(value: float, than: float, sentence: str, cell: str) -> None:
    """A factor is always above 1, and the words say which way."""
    sectors = compare.COUNTERS[0]
    found = "".join(sectors.compare("a", value, "b", than, ""))
    assert found.replace(sectors.title, "S").replace(" ,", ",").strip() == sentence
    assert sectors.cell(than / value if value else None).text == cell


def test_times_in_words() -> None:
    def said(value: float, than: float) -> str:
        return "".join(compare.TIME.compare("mma_tma", value, "cublas", than, "here"))

    assert said(1.0, 1.3) == "mma_tma is 1.3 times as fast as cublas here"
    assert said(1.3, 1.0) == "mma_tma takes 1.3 times as long as cublas here"
    assert said(1.0, 1.01) == "mma_tma is as fast as cublas here"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--variant", "tiles", "--gpu", "rtx9090"], 2),
        (["--variant", "tiles", "--shape", "x"], 2),
        (["missing.cu"], 2),
        ([], 2),
    ],
)
def test_bad_usage(words: list[str], code: int) -> None:
    assert main(["profile", *words]) == code


@slow
def test_the_grid_is_that_of_the_gpu_which_is_asked_for() -> None:
    """A persistent kernel has a block for each multiprocessor."""
    spec = make_spec("mma_tma", layout="rcr", threadblock="64x64x64", warp="32x32")
    for sms, blocks in ((1, 1), (2, 2), (132, 3)):
        gpu = replace(find_gpu("h200"), sms=sms)
        found = profile(render(spec), GemmShape(192, 64, 64), gpu)
        assert found.grid == (blocks, 1, 1)
        assert found.totals.blocks == blocks


def test_an_empty_result_has_nothing_to_count() -> None:
    with pytest.raises(UsageError, match="shape 0x5x7 has nothing to count"):
        profiled("tiles", shape=GemmShape(0, 5, 7))


def test_a_file_without_a_specification_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text('extern "C" __global__ void k() {}\n')
    with pytest.raises(UsageError, match=r"k\.cu has no line.*gen-spec"):
        profile(read_source(path), CUBE, find_gpu("h200"))


# -- the script that compares with ncu ----------------------------------------------------------
def test_script_reads_what_ncu_prints() -> None:
    metrics = [*compare_counters.METRICS, compare_counters.INSTRUCTIONS]
    header = ",".join(f'"{name}"' for name in ["ID", "Process ID", "Kernel Name", *metrics])
    units = ",".join('""' for _ in range(3 + len(metrics)))
    row = ",".join(['"0"', '"7"', '"k(long, float *)"', *(f'"{i},000"' for i in range(10))])
    output = f"==PROF== Connected to process 7\n{header}\n{units}\n{row}\n==PROF== Disconnected\n"
    ((kernel, values),) = compare_counters.parse_ncu(output)
    assert kernel == "k"
    assert values[metrics[3]] == 3000
    found = profiled("naive").totals
    rows = list(compare_counters.compare("job", found, values, False))
    assert rows[0] == ("job", "global load requests", "16,384", "0", "+16,384")
    with pytest.raises(SystemExit):
        compare_counters.parse_ncu("==ERROR== no GPU")


@pytest.mark.parametrize("cutlass", sift([False, True], [False]))
@pytest.mark.slow
def test_script_runs_its_launches_on_the_emulator(cutlass: bool) -> None:
    """Patterns count one access each; kernels and CUTLASS are launched once each."""
    runner = compare_counters.CountingRunner("sm_90")
    jobs = [
        job
        for job in compare_counters.pattern_jobs()
        if "two rows" in job.name and "," not in job.name
    ]
    jobs += compare_counters.gemm_jobs([make_spec("tiles")], [GemmShape(33, 5, 7)])
    if cutlass:
        jobs += compare_counters.cutlass_jobs([GemmShape(33, 5, 7)], ["f32"])
    for job in jobs:
        job.run(runner)
    assert len(runner.launched) == len(jobs)
    found = {job.name: totals for job, (_, totals) in zip(jobs, runner.launched, strict=True)}
    assert found["shared_load16: two rows of a tile"].shared_load.parts == 2
    assert found["global_store16: two rows of a tile"].global_store.parts == 2
