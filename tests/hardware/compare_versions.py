"""Two versions of gemmgen: do their kernels have the same inner loops, are they as fast?

    python compare_versions.py emit FOLDER       writes the kernels of the checkout it runs in
    python compare_versions.py opcodes OLD NEW   compares two such folders, without a GPU
    python compare_versions.py turns OLD NEW     runs them in turns, with PyTorch and nvcc

`emit` runs in a checkout that need not have this file. `opcodes` compares the instructions from a
kernel's first tensor-core instruction to its last. `turns` first compares the results, bit for bit.
Then, on operands that are no longer in the L2 cache, each round runs old, new and old again; the
table has medians of the rounds' quotients, and between which two the middle half of them lies where
files are equal.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple


class Kernel(NamedTuple):
    """A kernel by the options of `gen emit`, and the shapes that it runs on."""

    options: str
    shapes: str


SLICED = "--threadblock 96x96x64 --warp 32x48 --stages 8 --sliced-k 2"
SMALL = "--threadblock 64x64x64 --warp 32x32 --stages 8"
WIDE = "--threadblock 256x224x64 --warp 64x112"
# Those of docs/lab/tensor-cores.md and docs/lab/bench.md.
KERNELS = {
    "default": Kernel("mma_tma", "1024x1024x1024 2048x2048x2048 4096x4096x4096 8192x8192x8192"),
    "rows": Kernel("mma_tma --layout rrr", "4096x4096x4096"),
    "k8": Kernel("mma_tma --instruction m16n8k8", "4096x4096x4096"),
    "f16": Kernel("mma_tma --dtype f16_f16", "4096x4096x4096 8192x8192x8192"),
    "f16_wide": Kernel(f"mma_tma --dtype f16_f16 {WIDE}", "8192x8192x8192"),
    "f16_k8": Kernel("mma_tma --dtype f16_f16 --instruction m16n8k8", "4096x4096x4096"),
    "tall": Kernel("mma_tma --threadblock 256x128x64", "4095x4097x4099 4096x4096x4096"),
    "sliced": Kernel(f"mma_tma {SLICED}", "1023x1025x1027 1024x1024x1024"),
    "middle": Kernel("mma_tma --threadblock 64x128x64 --warp 32x64 --stages 8", "1024x1024x1024"),
    "split16": Kernel(
        "mma_tma --threadblock 64x128x64 --warp 32x64 --stages 7 --split-k 16", "256x256x16384"
    ),
    "split32": Kernel(f"mma_tma {SMALL} --split-k 32", "128x128x16384 16x4096x4096"),
    "split128": Kernel(f"mma_tma {SMALL} --split-k 128", "64x64x65536"),
    "auto": Kernel(f"mma_tma {SMALL} --split-k auto", "128x128x16384 64x64x65536 16x8192x4096"),
    "tf32": Kernel("mma_tma --dtype tf32", "4096x4096x4096"),
    "i8": Kernel("mma_tma --dtype i8", "4096x4096x4096"),
    "f16_f32": Kernel("mma_tma --dtype f16_f32 --layout rrr", "4096x4096x4096"),
    "relu": Kernel("mma_tma --epilogue linear_bias_relu", "4096x4096x4096"),
    "gelu": Kernel("mma_tma --epilogue linear_bias_gelu", "4096x4096x4096"),
    "mma": Kernel("mma", "1024x1024x1024 4096x4096x4096"),
    "mma_small": Kernel(
        "mma --layout rrr --threadblock 64x64x64 --warp 32x16 --stages 4", "1024x1024x1024"
    ),
    "tiles": Kernel("tiles --layout rrr", "2048x2048x2048"),
    "rec_tiles": Kernel("rec_tiles --layout rrr", "2048x2048x2048"),
}
COLD = 2 * 60 * 2**20  # bytes between two uses of an operand: twice the L2 cache of an H200
SAMPLE = 2e-3  # seconds of a sample, about


def option(kernel: Kernel, name: str, default: str) -> str:
    """The value of an option."""
    words = kernel.options.split()
    return words[words.index(f"--{name}") + 1] if f"--{name}" in words else default


def emit(folder: Path) -> None:
    """Writes a file for each kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, kernel in KERNELS.items():
        words = ["--variant", *kernel.options.split(), "--name", f"gemm_{name}"]
        if "--layout" not in words:
            words += ["--layout", "rcr"]
        command = [sys.executable, "-m", "gen", "emit", *words, "-o", str(folder / f"{name}.cu")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def inner(path: Path) -> list[str]:
    """Opcodes from the first tensor-core instruction to the last."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "k.cubin")
        nvcc = ["nvcc", "-std=c++17", "-arch=sm_90a", "-cubin", "-o", str(cubin), str(path)]
        subprocess.run(nvcc, check=True)
        command = ["nvdisasm", "-c", str(cubin)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    line = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
    for body in re.split(r"^\.text\.\S+:", text, flags=re.MULTILINE)[1:]:
        opcodes = line.findall(body)
        at = [i for i, opcode in enumerate(opcodes) if opcode.startswith(("HMMA", "IMMA"))]
        if at:
            return opcodes[at[0] : at[-1] + 1]
    return []


def compare_opcodes(old: Path, new: Path) -> None:
    """Prints which kernels have the same inner opcodes."""
    for name, kernel in KERNELS.items():
        if not kernel.options.startswith("mma"):
            continue
        a, b = inner(old / f"{name}.cu"), inner(new / f"{name}.cu")
        print(f"{name:10} {len(a):6} {len(b):6}  {'same' if a == b else 'different'}", flush=True)


def build(path: Path) -> ctypes.CDLL:
    """An emitted file as a library."""
    library = Path(tempfile.mkdtemp(), "k.so")
    command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-shared", "-Xcompiler=-fPIC", "-o"]
    subprocess.run([*command, str(library), str(path)], check=True)
    return ctypes.CDLL(str(library))


class Work:
    """A kernel of both versions on one shape, with enough operands that each is cold."""

    def __init__(self, name: str, shape: str, libraries: list[ctypes.CDLL]) -> None:
        import torch

        kernel = KERNELS[name]
        self.m, self.n, self.k = map(int, shape.split("x"))
        is_tensor = kernel.options.startswith("mma")
        dtype = option(kernel, "dtype", "f16" if is_tensor else "f32")
        half, single = torch.float16, torch.float32
        types: dict[str, Any] = {
            "f16": (half, half), "f16_f16": (half, half), "f16_f32": (half, single),
            "tf32": (single, single), "f32": (single, single), "i8": (torch.int8, torch.int32),
        }  # fmt: skip
        from_, to = types[dtype]
        along_k = option(kernel, "layout", "rcr")[1] == "c"

        def drawn(rows: int, cols: int) -> Any:
            if from_ is torch.int8:
                return torch.randint(-128, 128, (rows, cols), dtype=from_, device="cuda")
            return (torch.rand(rows, cols, device="cuda") - 0.5).to(from_)

        nbytes = (self.m + self.n) * self.k * from_.itemsize + self.m * self.n * to.itemsize
        self.sets = max(2, min(64, -(-COLD // nbytes)))
        self.a = [drawn(self.m, self.k) for _ in range(self.sets)]
        sides = (self.n, self.k) if along_k else (self.k, self.n)
        self.b = [drawn(*sides) for _ in range(self.sets)]
        self.d = [torch.ones(self.m, self.n, dtype=to, device="cuda") for _ in range(self.sets)]
        self.bias = torch.rand(self.n, device="cuda").to(to)
        self.scalar = ctypes.c_int if from_ is torch.int8 else ctypes.c_float
        self.has_bias = "linear_bias" in kernel.options
        self.ldb = self.k if along_k else self.n
        seconds = max(2.0 * self.m * self.n * self.k / 4e14, nbytes / 3e12, 5e-6)
        self.launches = max(1, min(200, int(SAMPLE / seconds)))
        self.name, self.libraries, self.spaces = name, libraries, []
        if is_tensor:
            self.spaces = [self._space(library) for library in libraries]

    def _matrices(self, i: int) -> list[Any]:
        return [
            *(ctypes.c_void_p(self.a[i].data_ptr()), ctypes.c_longlong(self.k)),
            *(ctypes.c_void_p(self.b[i].data_ptr()), ctypes.c_longlong(self.ldb)),
        ]

    @property
    def _sizes(self) -> list[Any]:
        return [ctypes.c_longlong(size) for size in (self.m, self.n, self.k)]

    def _space(self, library: ctypes.CDLL) -> Any:
        import torch

        nbytes = ctypes.c_size_t()
        function = getattr(library, f"gemm_{self.name}_workspace")
        assert function(*self._sizes, *self._matrices(0), ctypes.byref(nbytes)) == 0
        return torch.empty(max(nbytes.value, 1), dtype=torch.uint8, device="cuda")

    def launch(self, version: int, i: int, stream: Any, beta: int = 0) -> None:
        """One launch of a version, with one set of operands."""
        d = [ctypes.c_void_p(self.d[i].data_ptr()), ctypes.c_longlong(self.n)]
        words = [*self._sizes, self.scalar(1), *self._matrices(i), self.scalar(beta), *d, *d]
        if self.has_bias:
            words.append(ctypes.c_void_p(self.bias.data_ptr()))
        if self.spaces:
            space = self.spaces[version]
            words += [ctypes.c_void_p(space.data_ptr()), ctypes.c_size_t(space.numel())]
        function = getattr(self.libraries[version], f"gemm_{self.name}_launch")
        assert function(*words, ctypes.c_void_p(stream.cuda_stream)) == 0

    def same(self, stream: Any) -> bool:
        """Whether both versions compute the same bits, with C and without."""
        import torch

        results = []
        for version in (0, 1):
            for beta in (0, 1):
                self.d[0].fill_(1)
                self.launch(version, 0, stream, beta)
                stream.synchronize()
                results.append(self.d[0].clone().view(torch.uint8))
        return torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])

    def graph(self, version: int, stream: Any) -> Any:
        """A sample: launches one after the other, of all sets in turn."""
        import torch

        self.launch(version, 0, stream)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(self.launches):
                self.launch(version, i % self.sets, stream)
        return graph


def sample(graph: Any, stream: Any) -> float:
    """Milliseconds."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(stream)
    graph.replay()
    end.record(stream)
    stream.synchronize()
    return float(start.elapsed_time(end))


def take_turns(old: Path, new: Path, names: list[str], rounds: int) -> int:
    """Prints the table. The number of shapes whose results differ."""
    import torch

    paths = [folder / f"{name}.cu" for name in names for folder in (old, new)]
    with ThreadPoolExecutor() as pool:
        libraries = list(pool.map(build, paths))
    heads = f"{'kernel':10} {'shape':16} {'old [us]':>9}  new/old  old/old  middle half"
    print(f"{heads}   {rounds} rounds")
    wrong = 0
    for n, name in enumerate(names):
        for shape in KERNELS[name].shapes.split():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                work = Work(name, shape, libraries[2 * n : 2 * n + 2])
                stream.synchronize()
                same = work.same(stream)
                a, b = (work.graph(version, stream) for version in (0, 1))
                times: list[tuple[float, float, float]] = []
                for i in range(rounds + 2):
                    order = [0, 1, 2]
                    order = order[i % 3 :] + order[: i % 3]
                    found = {j: sample((a, b, a)[j], stream) for j in order}
                    times.append((found[0], found[1], found[2]))
            median = statistics.median
            quotients = [median(t[j] / t[0] for t in times[2:]) for j in (1, 2)]
            first = median(t[0] for t in times[2:]) * 1000 / work.launches
            note = "" if same else "  DIFFERENT RESULTS"
            low, _, high = statistics.quantiles([t[2] / t[0] for t in times[2:]])
            columns = f"{first:9.2f}   {quotients[0]:.4f}   {quotients[1]:.4f}"
            columns += f"   {low:.4f} {high:.4f}{note}"
            print(f"{name:10} {shape:16} {columns}", flush=True)
            wrong += not same
            del work, a, b
            torch.cuda.empty_cache()
    return wrong


def main() -> int:
    """Runs one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("emit").add_argument("folder", type=Path)
    for command in ("opcodes", "turns"):
        added = commands.add_parser(command)
        added.add_argument("old", type=Path)
        added.add_argument("new", type=Path)
    added.add_argument("--rounds", type=int, default=41)
    names = list(KERNELS)
    added.add_argument("--only", nargs="+", choices=names, default=names, metavar="KERNEL")
    given = parser.parse_args()
    if given.command == "emit":
        emit(given.folder)
    elif given.command == "opcodes":
        compare_opcodes(given.old, given.new)
    else:
        return 1 if take_turns(given.old, given.new, given.only, given.rounds) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
