"""What the GPU at hand can do at best: instructions on registers alone, memory, the L2 cache.

These are the denominators of every share that `gen bench` reports. Register-only loops measure the
rate at which an instruction can be issued, at the clocks that the GPU holds while it does so; no
kernel that also has to load its operands gets beyond. wgmma alone takes them from shared memory.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from gen.bench.device import MeasuredGpu
from gen.bench.instructions import INSTRUCTIONS, THREADS, UNROLLED, Instruction
from gen.compile import nvrtc
from gen.compile.cache import cache_dir
from gen.device.driver import LoadedKernel, Parameters
from gen.errors import CheckError, UsageError
from gen.files import write
from gen.kernels.launches import Launch
from gen.source.templates import render_template
from gen.spec import numerics

VERSION = 4  # of the kernels below: figures of another version are measured again
ATTEMPTS = 5  # at a rate that holds for twice the work

COPY, L2 = "copy", "l2_read"

_BLOCKS_PER_MULTIPROCESSOR = 8


def ceilings(
    gpu: MeasuredGpu, fresh: bool = False, step: Callable[[str], object] = lambda _: None
) -> dict[str, float]:
    """TFLOP/s (TOP/s) of each instruction, GB/s of `copy` and `l2_read`, on this GPU.

    They are measured once for each GPU and driver and then read from the cache, unless `fresh`.
    `step` is told each name before it is measured.
    """
    path = _path(gpu)
    if not fresh and path and (known := _read(path)):
        return known
    found = {}
    for name, instruction in INSTRUCTIONS.items():
        if instruction.runs_on(gpu.arch):
            step(name)
            found[name] = _rate(gpu, instruction)
    for name, measure in ((COPY, _copy), (L2, _l2)):
        step(name)
        found[name] = measure(gpu)
    if path:
        _write(path, found)
    return found


def _path(gpu: MeasuredGpu) -> Path | None:
    words = re.sub(r"[^\w.-]+", "_", f"{gpu.name} {gpu.uuid} {gpu.driver_version()}")
    try:
        return cache_dir() / "ceilings" / f"{words}.json"
    except RuntimeError:  # no home directory
        return None


def _read(path: Path) -> dict[str, float] | None:
    """What was measured before; None where nothing was, or with other kernels than these."""
    try:
        content = json.loads(path.read_text())
        if content["version"] != VERSION:
            return None
        return {str(name): float(value) for name, value in content["ceilings"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, found: Mapping[str, float]) -> None:
    try:
        write(json.dumps({"version": VERSION, "ceilings": found}, indent=1).encode(), path)
    except UsageError:
        return  # they are measured again the next time


def _seeds(kind: str, words: int) -> np.ndarray:
    """Random operands, a register's worth each; never zeros, which cost less power."""
    rng = np.random.default_rng(1)
    if kind == "i32":
        return rng.integers(1, 2**32, words, np.uint32) | np.uint32(1)
    if kind == "i8":
        return rng.integers(0, 2**32, words, np.uint32)
    size = numerics.storage_dtype(kind).itemsize
    values = rng.uniform(-0.5, 0.5, words * max(1, 4 // size))
    return numerics.from_float64(values, kind)


def _rate(gpu: MeasuredGpu, instruction: Instruction) -> float:
    module = nvrtc.compile_cuda(
        instruction.source(), name=f"{instruction.symbol}.cu", arch=gpu.arch, format="cubin"
    )
    blocks = gpu.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    kernel = _load(gpu, module, instruction.symbol, blocks)
    seeds = _seeds(instruction.seeds, instruction.words)
    results = np.empty(blocks * THREADS, np.uint64 if instruction.output == "double" else np.uint32)
    source, target = gpu.allocate(seeds.nbytes), gpu.allocate(results.nbytes)
    try:
        gpu.write(int(source.handle), seeds)

        def run(repeats: int) -> None:
            args = (np.int32(repeats), int(source.handle), int(target.handle))
            kernel(gpu.stream, Parameters(args))

        run(0)
        gpu.read(int(target.handle), results)
        before = results.copy()
        repeats, ms = _sustained(gpu, run)
        gpu.read(int(target.handle), results)
        if np.count_nonzero(before != results) < 0.9 * results.size:
            raise CheckError(f"{instruction.symbol} did not run: its results are those of no work")
        done = blocks * THREADS // instruction.group * repeats * UNROLLED * instruction.chains
        return done * instruction.operations / ms / 1e9
    finally:
        gpu.free(source)
        gpu.free(target)


def _sustained(gpu: MeasuredGpu, run: Callable[[int], None]) -> tuple[int, float]:
    """(repeats, milliseconds): a loop long enough to hold the clocks of a long kernel.

    Raises CheckError where twice the work never takes twice the time: then the compiler has found a
    way not to do it. Others that use the GPU disturb single samples, and so are outlasted.
    """
    repeats = 64
    while (ms := gpu.elapsed(partial(run, repeats), before=partial(run, repeats))) < 10:
        repeats *= 2 if ms > 2 else 8
        if repeats > 2**28:
            raise CheckError("a loop of 2^28 steps takes no time: it was optimised away")
    warm = partial(run, repeats)
    for _ in range(ATTEMPTS):
        once = statistics.median(gpu.elapsed(warm, before=warm) for _ in range(9))
        more = partial(run, 2 * repeats)
        twice = statistics.median(gpu.elapsed(more, before=warm) for _ in range(3))
        if 1.8 < twice / once < 2.2:
            return repeats, once
    raise CheckError(
        f"twice the work takes {twice / once:.2f} times as long, also in attempt {ATTEMPTS}: it "
        "was optimised away, or somebody else uses the GPU; try again when nobody does"
    )


def _load(gpu: MeasuredGpu, module: nvrtc.Module, name: str, blocks: int) -> LoadedKernel:
    return gpu.load(module, Launch(name, (blocks, 1, 1), (THREADS, 1, 1), 0, {}))


def _memory_kernel(gpu: MeasuredGpu, name: str, blocks: int) -> LoadedKernel:
    text = render_template("bench/memory.cu.j2", threads=THREADS)
    module = nvrtc.compile_cuda(text, name="memory.cu", arch=gpu.arch, format="cubin")
    return _load(gpu, module, name, blocks)


def _copy(gpu: MeasuredGpu) -> float:
    """Bytes read plus bytes written, far more than caches hold; the fastest of three ways.

    Blocks that stay and stride over all words, blocks for four words a thread, the driver's copy:
    which one is fastest differs between GPUs.
    """
    words = np.random.default_rng(2).integers(0, 2**32, 2**20, np.uint32)
    size = max(2**30, 16 * gpu.l2_bytes) // words.nbytes * words.nbytes
    source, target = gpu.allocate(size), gpu.allocate(size)
    a, b = int(source.handle), int(target.handle)
    strides = gpu.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    once = -(-size // (16 * 4 * THREADS))
    ways: list[Callable[[], object]] = [partial(gpu.copy, b, a, size)]
    for blocks in (strides, once):
        kernel = _memory_kernel(gpu, "memory_copy", blocks)
        ways.append(partial(kernel, gpu.stream, Parameters((np.int64(size // 16), a, b))))
    try:
        for offset in range(0, size, words.nbytes):
            gpu.write(a + offset, words)
        times = []
        for run in ways:
            gpu.fill(b, b"\0", size)
            times.append(statistics.median(gpu.elapsed(run, before=run) for _ in range(15)))
            back = np.empty_like(words)
            for offset in (0, size - words.nbytes):
                gpu.read(b + offset, back)
                if not np.array_equal(words, back):
                    raise CheckError("a copy of memory copied nothing or something else")
        return 2 * size / min(times) / 1e6
    finally:
        gpu.free(source)
        gpu.free(target)


def _l2(gpu: MeasuredGpu) -> float:
    """Bytes read out of the L2 cache: a quarter of it, again and again."""
    threads = gpu.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR * THREADS
    words = max(gpu.l2_bytes // 4 // 16 // (4 * threads), 1) * 4 * threads
    values = np.random.default_rng(3).integers(0, 2**32, words * 4, np.uint32)
    kernel = _memory_kernel(gpu, "memory_read", threads // THREADS)
    source, sums = gpu.allocate(values.nbytes), gpu.allocate(threads * 4)
    passes = 200
    try:
        gpu.write(int(source.handle), values)
        args = (np.int64(words), np.int32(passes), int(source.handle), int(sums.handle))
        run = partial(kernel, gpu.stream, Parameters(args))
        ms = statistics.median(gpu.elapsed(run, before=run) for _ in range(9))
        got = np.empty(threads, np.uint32)
        gpu.read(int(sums.handle), got)
        mixed = np.bitwise_xor.reduce(values.reshape(-1, threads, 4), axis=2)
        wanted = mixed.sum(axis=0, dtype=np.uint64) * np.uint64(passes)
        if not np.array_equal(got, wanted.astype(np.uint32)):
            raise CheckError("memory_read did not read what it should")
        return words * 16 * passes / ms / 1e6
    finally:
        gpu.free(source)
        gpu.free(sums)
