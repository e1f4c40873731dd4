"""What can go wrong while measuring, tried on a GPU: is nothing measured lost, nothing wrong timed?

    python -m tests.hardware.try_bench [TRY...]

A line for each try, PASS or FAIL with the reason; about five minutes in all. Exits with 1 where one
fails. Files go to build/out/try_bench/. A command that does not end (nothing stops a kernel that
hangs) is a failure, with the last that it said.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gen.bench.results import OURS, PEER, Results, Row, find, load
from gen.report.model import load as load_report

FOLDER = Path("build/out/try_bench")
SPOIL = "--spoil"
PATIENCE = 240  # seconds that a command may take: nvcc's minutes on a machine of few cores

STORE = "D[c_at(row, col, ldd)] = output_t("
WRONG = STORE + "scalar_t(1) + "
OUTSIDE = STORE.replace("ldd)]", "ldd) + (index_t(1) << 45)]")


def gen(*args: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    """Runs `gen` in a process of its own; both of its outputs. It has to end with `code`."""
    return _finish([sys.executable, "-m", "gen", *args], code, env)


def spoiled_gen(new: str, *args: str, code: int) -> str:
    """The same, with a kernel `naive` that stores something else."""
    return _finish([sys.executable, "-m", __spec__.name, SPOIL, new, *args], code)


def _finish(command: Sequence[str], code: int, env: dict[str, str] | None = None) -> str:
    with (FOLDER / "said.txt").open("w+") as output:
        try:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                timeout=PATIENCE,
                check=False,
            )
            wrong = f"exit code {done.returncode}, not {code}" if done.returncode != code else ""
        except subprocess.TimeoutExpired:
            wrong = f"it did not end within {PATIENCE} s"
        output.seek(0)
        said = output.read()
    assert not wrong, f"{wrong}: {said[-1500:]}"
    assert "Traceback" not in said, said[-1500:]
    return said


def spoil(new: str, args: Sequence[str]) -> int:
    """`gen` in this process, with the spoiled kernel."""
    from gen.bench import contenders
    from gen.cli import main as gen_main

    render = contenders.render

    def other(spec: object) -> object:
        source = render(spec)  # type: ignore[arg-type]
        assert source.text.count(STORE) == 1
        return replace(source, text=source.text.replace(STORE, new))

    contenders.render = other  # type: ignore[assignment]
    return gen_main(args)


def file(name: str) -> Path:
    """A result file that is not there yet."""
    path = FOLDER / f"{name}.json"
    path.unlink(missing_ok=True)
    return path


def one(results: Results, **wanted: object) -> Row:
    """The only row that has these values."""
    (row,) = find(results.rows, **wanted)
    return row


# --- the tries


def ceilings() -> str:
    """Every ceiling is measured, and in the order that the hardware has."""
    from gen.bench.ceiling import ceilings as measure
    from gen.bench.device import MeasuredGpu

    gen("ceiling", "--fresh")
    found = measure(MeasuredGpu())
    assert found["l2_read"] > found["copy"] > 50
    assert found["mma_m16n8k16_f16_f32"] > found["mma_m16n8k8_f16_f32"] > found["fma_f32"]
    assert found["fma_f32"] > found["mad_i32"] / 2
    if "wgmma_m64n256k16_f16_f32" in found:
        assert 1 < found["wgmma_m64n256k16_f16_f32"] / found["mma_m16n8k16_f16_f32"] < 1.7
        assert found["wgmma_m64n256k32_i8_i32"] > found["wgmma_m64n256k16_bf16_f32"]
        assert found["wgmma_m64n256k16_bf16_f32"] > found["wgmma_m64n256k8_tf32_f32"]
    return ", ".join(f"{name} {value:.0f}" for name, value in found.items() if "mma" in name)


def nvbench() -> str:
    """NVBench agrees with the own timer."""
    from gen.bench.nvbench import installed

    if not installed():
        return "cuda-bench is not installed"
    path = file("nvbench")
    gen("bench", "--variant", "tiles", "--shape", "1024", "--peers", "none", "--json", str(path))
    row = one(load(path), kind=OURS)
    assert row.ms_median, row
    assert row.batch_ms, row
    assert row.cold_ms, row
    assert 0.9 < row.batch_ms / row.ms_median < 1.1, row
    assert row.cold_ms >= 0.9 * row.ms_median, row
    return f"{row.ms_median:.3f} ms, NVBench {row.batch_ms:.3f} ms, cold {row.cold_ms:.3f} ms"


def slow() -> str:
    """A slow kernel is measured less often; one beyond the limit is not started."""
    path = file("slow")
    command = ("bench", "--variant", "naive", "--threads", "1", "--shape", "4096", "--dtype", "i32")
    rest = ("--peers", "none", "--json", str(path))
    said = gen(*command, *rest, "--limit", "3")
    row = one(load(path), kind=OURS)
    assert row.ms_median, row
    assert row.rounds < 11, row
    assert "slow: measured" in row.note, row
    assert row.note in said
    path.unlink()
    gen(*command, *rest, "--limit", "0.1")
    beyond = one(load(path), kind=OURS)
    assert (beyond.check, beyond.ms_median) == ("skipped", None)
    assert "would take about" in beyond.note
    return f"{row.ms_median:.0f} ms, {row.note}, noise {row.noise}; {beyond.note}"


def large() -> str:
    """The largest squares stay feasible with the slowest kernel."""
    path, start = file("large"), time.perf_counter()
    gen(
        *("bench", "--variant", "naive", "--shape", "16384", "--peers", "cublas", "--quick"),
        *("--json", str(path)),
    )
    row = one(load(path), kind=OURS)
    assert row.check == "ok", row
    assert row.ms_median, row
    return f"naive {row.ms_median:.0f} ms, {row.note}; {time.perf_counter() - start:.0f} s in all"


def wrong() -> str:
    """A wrong kernel gets no time, and its peers get theirs."""
    path = file("wrong")
    said = spoiled_gen(
        WRONG,
        *("bench", "--variant", "naive", "--shape", "512", "--shape", "4096", "--quick"),
        *("--json", str(path)),
        code=1,
    )
    results = load(path)
    for row in find(results.rows, kind=OURS):
        assert (row.check, row.ms_median, row.tflops) == ("wrong", None, None), row
        assert row.note in said
    right = [row for row in results.rows if row.kind != OURS]
    assert all(row.ms_median for row in right), right
    return one(results, kind=OURS, shape="512x512x512").note


def broken() -> str:
    """A kernel that breaks the GPU's context ends the run, keeps its row, and --resume goes on."""
    path = file("broken")
    args = ("bench", "--variant", "naive", "--quick", "--json", str(path), "--resume")
    gen(*args, "--shape", "256")
    before = load(path).rows
    said = spoiled_gen(OUTSIDE, *args, "--shape", "256", "--shape", "512", code=1)
    assert "the same command with --resume measures the rest" in said
    broken_off = load(path)
    assert broken_off.rows[: len(before)] == before
    assert one(broken_off, kind=OURS, shape="512x512x512").check == "failed"
    gen(*args, "--shape", "256", "--shape", "512", code=1)  # that row stays
    after = load(path)
    assert all(r.ms_median for r in find(after.rows, shape="512x512x512") if r.kind != OURS)
    return said.strip().splitlines()[-1][:200]


def out_of_memory() -> str:
    """A shape that does not fit is a row that says so, and the others are measured."""
    path = file("memory")
    shapes = ("--shape", "1048576x1048576x64", "--shape", "256")
    gen("bench", "--variant", "naive", "--quick", *shapes, "--json", str(path))
    results = load(path)
    too_large = find(results.rows, shape="1048576x1048576x64")
    assert too_large
    assert {row.check for row in too_large} == {"out of memory"}, too_large
    assert all(row.ms_median for row in find(results.rows, shape="256x256x256"))
    return too_large[0].note


def _interrupted(name: str, number: signal.Signals) -> tuple[int, Results, Results]:
    """(exit code, what was there, what --resume made of it) of a run that a signal ended."""
    path = file(name)
    args = ("bench", "--variant", "tiles", "--suite", "squares", "--largest", "4096", "--quick")
    command = [sys.executable, "-m", "gen", *args, "--json", str(path), "--resume"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (path.exists() and len({row.shape for row in load(path).rows}) >= 2):
            assert process.poll() is None, "it ended before two shapes were measured"
            assert time.monotonic() < deadline, "two shapes took more than 120 s"
            time.sleep(0.02)
        process.send_signal(number)
        code = process.wait(60)
    left = load(path)
    gen(*command[3:])
    return code, left, load(path)


def killed() -> str:
    """A killed run leaves what it had measured; the same command goes on."""
    _, left, after = _interrupted("killed", signal.SIGKILL)
    assert after.rows[: len(left.rows)] == left.rows
    assert len({row.shape for row in after.rows}) == 6
    return f"{len(left.rows)} rows at the kill, {len(after.rows)} in the end"


def interrupted() -> str:
    """So does one that Ctrl-C ends, with exit code 130."""
    code, left, after = _interrupted("interrupted", signal.SIGINT)
    assert code == 130, code
    assert after.rows[: len(left.rows)] == left.rows
    return f"{len(left.rows)} rows at Ctrl-C, {len(after.rows)} in the end"


def twice() -> str:
    """The same command twice gives the same medians within the noise."""
    paths = [file(name) for name in ("first", "second")]
    for path in paths:
        args = ("--variant", "all", "--shape", "1024", "--shape", "2048", "--json", str(path))
        gen("bench", *args, "--peers", "cublas")
    pairs = load_report(paths).pairs
    apart = [f"{p.after.contender} {p.ratio:.3f}" for p in pairs if not p.in_noise]
    assert all(abs(p.ratio - 1) < 0.05 for p in pairs), apart
    assert len(apart) <= 0.2 * len(pairs), apart
    return f"{len(pairs) - len(apart)} of {len(pairs)} within the noise; apart: {apart or 'none'}"


def peers() -> str:
    """Every peer that is installed is measured, or says why not."""
    from gen.bench.peers.table import PEERS, missing

    installed = sorted(set(PEERS) - set(missing(list(PEERS))))
    assert installed, "no peer is installed"
    best = dict.fromkeys(installed, 0.0)
    path = file("peers")
    args = ("bench", "--variant", "tiles", "--quick", "--limit", "1", "--json", str(path))
    gen(*args, "--dtype", "f16", "--shape", "1024", "--peers", ",".join(installed))
    rows = load(path).rows
    assert {row.check for row in rows} <= {"ok", "skipped"}
    for row in find(rows, kind=PEER):
        family = row.contender.split(" ")[0]
        best[family] = max(best[family], row.tflops or 0.0)
    if any("and this GPU is" in row.note for row in rows):  # CUTLASS 3.x is for Hopper alone
        del best["cutlass3"]
    assert all(best.values()), [(row.contender, row.check, row.note) for row in rows]

    # Where rows start anywhere, and a type that not all have. Triton would compile for a minute.
    path = file("odd")
    few = [name for name in installed if name != "triton"]
    args = (*args[:-1], str(path), "--dtype", "f16", "--dtype", "f32", "--shape", "63x65x67")
    gen(*args, "--peers", ",".join(few))
    rows = load(path).rows
    assert {row.contender.split(" ")[0] for row in find(rows, kind=PEER)} == set(few)
    for row in rows:
        said = row.ms_median if row.check == "ok" else row.check == "skipped" and row.note
        assert said, row
    assert not any(row.ms_median for row in rows if row.contender.startswith("cutlass3"))
    return ", ".join(f"{name} {tflops:.0f}" for name, tflops in best.items()) + " TFLOP/s in f16"


def no_gpu() -> str:
    """Without a GPU gen says so, and does what it can."""
    nothing = {"CUDA_VISIBLE_DEVICES": ""}
    said = gen("bench", code=3, env=nothing)
    assert "gen profile counts" in said
    gen("ceiling", code=3, env=nothing)
    sweep = ("sweep", "--device", "cpu", "--shape", "64", "--axis", "side=4,8")
    path = file("cpu")
    gen(*sweep, "--json", str(path), env=nothing)
    gen("report", str(path), "--format", "md", "-o", str(FOLDER / "cpu.md"), env=nothing)
    return said.strip()


TRIES: tuple[Callable[[], str], ...] = (
    *(no_gpu, ceilings, nvbench, slow, large, wrong, broken, out_of_memory),
    *(killed, interrupted, twice, peers),
)


def main(names: Sequence[str]) -> int:
    """Runs the tries; the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = 0
    for attempt in TRIES:
        if names and attempt.__name__ not in names:
            continue
        start = time.perf_counter()
        try:
            verdict, words = "PASS", attempt()
        except (AssertionError, ValueError, subprocess.TimeoutExpired) as error:
            verdict, words = "FAIL", str(error) or repr(error)
            failed += 1
        print(f"{verdict} {attempt.__name__} ({time.perf_counter() - start:.0f} s): {words}")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == [SPOIL]:
        sys.exit(spoil(sys.argv[2], sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
