"""The peers and the ceilings without a GPU: what is compiled, how, and what is lacking."""

import ctypes
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gen.bench import contenders, instructions
from gen.bench.contenders import Lacking, Prepared, Recipe, Unsupported
from gen.bench.instructions import INSTRUCTIONS, WARPGROUP, fastest, instruction_of, wgmma_name
from gen.bench.peers import cublas, cutlass2, cutlass3, pytorch, table, triton_peers
from gen.bench.peers.cutlass3 import ARCH, Cutlass3
from gen.bench.peers.cutlass3_configs import (
    CONFIGS,
    COOPERATIVE,
    PERSISTENT,
    PINGPONG,
    STREAM_K,
    Config,
    source,
)
from gen.bench.work import Work
from gen.compile import nvcc
from gen.compile.nvrtc import compile_cuda
from gen.errors import CompileError, MissingError
from gen.kernels.registry import VARIANTS, make_spec
from gen.spec.dtypes import DTYPES, DTypes, parse_dtype
from gen.spec.problem import GemmShape, parse_layout
from tests.bench.test_bench import FakeGpu
from tests.support.slow import sift, slow

E4M3 = parse_dtype("e4m3")


def a_work(
    dtype: str = "f16", layout: str = "rrr", shape: tuple[int, int, int] = (16, 24, 32)
) -> Any:
    gpu: Any = FakeGpu()
    return Work(gpu, parse_dtype(dtype), parse_layout(layout), GemmShape(*shape))


# --- who has what ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_peer_that_lacks_a_type_says_so(dtype: str) -> None:
    dtypes = DTYPES[dtype]
    groups: dict[str, Any] = {
        "cublas": cublas.contenders(dtypes),
        "cutlass": cutlass2.contenders(dtypes),
        "cutlass3": cutlass3.contenders(dtypes),
        "torch": pytorch.contenders(dtypes),
        "triton": triton_peers.contenders(dtypes),
    }
    assert set(groups) == set(table.PEERS)
    for name, found in groups.items():
        assert found
        for contender in found:
            assert contender.name.startswith(name)
            contender.ceiling(dtypes, {})
        if isinstance(found[0], Lacking):
            with pytest.raises(Unsupported, match=rf"{name} has no product of .* with sums in "):
                found[0].prepare(a_work())


def test_what_is_lacking_is_known() -> None:
    def lacking(dtype: str) -> set[str]:
        dtypes, names = DTYPES[dtype], set()
        for found in (
            *(cublas.contenders(dtypes), cutlass2.contenders(dtypes), cutlass3.contenders(dtypes)),
            *(pytorch.contenders(dtypes), triton_peers.contenders(dtypes)),
        ):
            names |= {c.name for c in found if isinstance(c, Lacking)}
        return names

    for dtype in ("f16", "bf16", "f16_f32", "bf16_f32"):
        assert lacking(dtype) == set()
    assert lacking("f32") == {"cutlass3"}
    assert lacking("i8") == set()
    assert lacking("f64") == {"cutlass3", "triton"}
    assert lacking("i32") == {"cublas", "cutlass3", "torch", "triton"}
    assert lacking("f16_f16") == {"torch", "triton"}
    assert lacking("tf32") == {"torch"}


def test_what_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert table.missing(["cutlass3"]) == {"cutlass3": nvcc.GET}
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert table.missing(["cutlass3"]) == {}


# --- CUTLASS 2.x -------------------------------------------------------------------------------


def test_cutlass_loads_as_much_as_the_leading_dimensions_allow() -> None:
    assert cutlass2.alignment(parse_dtype("f16"), (1024, 512)) == 8
    assert cutlass2.alignment(parse_dtype("f16"), (1024, 516)) == 4
    assert cutlass2.alignment(parse_dtype("f16"), (1023, 512)) == 1
    assert cutlass2.alignment(parse_dtype("i8"), (32, 48)) == 16


def test_cutlass_configurations_have_names_of_their_own() -> None:
    for dtypes in DTYPES.values():
        names = [c.name for c in cutlass2.contenders(dtypes)]
        assert len(set(names)) == len(names)
    assert len(cutlass2.contenders(parse_dtype("f16"))) == 12
    assert (
        cutlass2.contenders(parse_dtype("f16"))[0].name == "cutlass m16n8k16 256x128x32 w64x64 s3"
    )


COMPILED = [
    ("f32", "rrr", 0, 4, r"fma\.rn\.f32"),
    ("f16", "ccc", 0, 8, r"mma\.sync\.\S*m16n8k16\S*\.f32\.f16\.f16\.f32"),
    ("f16_f16", "rrr", -1, 8, r"mma\.sync\.\S*m16n8k8\S*\.f16\.f16\.f16\.f16"),
    ("tf32", "rrr", -1, 4, r"mma\.sync\.\S*m16n8k8\S*\.f32\.tf32\.tf32\.f32"),
    ("f64", "rcr", -1, 1, r"mma\.sync\.\S*m8n8k4\S*\.f64"),
    ("f64", "rrr", 3, 1, r"mma\.sync\.\S*m16n8k4\S*\.f64"),
    ("i8", "rcr", -1, 16, r"mma\.sync\.\S*m16n8k32\S*\.s32\.s8\.s8\.s32"),
]


@slow
@pytest.mark.parametrize(("dtype", "layout", "index", "align", "opcode"), COMPILED)
def test_cutlass_compiles(dtype: str, layout: str, index: int, align: int, opcode: str) -> None:
    dtypes, layouts = DTYPES[dtype], parse_layout(layout)
    peer: Any = cutlass2.contenders(dtypes)[index]
    align_d = 1 if align == 1 else 4
    module = cutlass2._compile(peer.config, dtypes, layouts, align, align_d, "sm_90a")
    assert set(module.resources) == {"prepare", "gemm"}
    assert module.resources["gemm"].spill_stores == 0
    ptx = compile_cuda(
        module.text,
        arch="sm_90a",
        options=[
            "-default-device",
            "-diag-suppress=20044",
            f"-I{cutlass2.nvrtc.cutlass_include()}",
        ],
        line_info=False,
    )
    assert re.search(opcode, ptx.code.decode())


# --- CUTLASS 3.x -------------------------------------------------------------------------------


def test_the_source_of_cutlass_3() -> None:
    assert len({config.name for config in CONFIGS}) == len(CONFIGS)
    assert CONFIGS[-1].name == "128x256 2x1 cooperative stream-k"
    wide = Config(128, 256, (2, 1), COOPERATIVE)
    text = source(wide, parse_dtype("bf16"), parse_layout("rcr"))
    for wanted in (
        "using input_t = cutlass::bfloat16_t;",
        "using accumulator_t = float;",
        "Shape<Int<128>, Int<256>, Int<64>>",
        "Shape<Int<2>, Int<1>, Int<1>>",
        "KernelTmaWarpSpecializedCooperative>",
        "input_t, Row, 8, input_t, Column, 8, accumulator_t",
        "cute::get<0>(all.mainloop.dA) = p.lda;",
        "cute::get<0>(all.mainloop.dB) = p.ldb;",
        "cute::get<0>(all.epilogue.dD) = p.ldd;",
        "all.hw_info.sm_count = p.multiprocessors;",
    ):
        assert wanted in text
    other = source(CONFIGS[0], parse_dtype("f16"), parse_layout("crc"))
    for wanted in ("get<1>(all.mainloop.dA)", "get<1>(all.mainloop.dB)", "get<1>(all.epilogue.dD)"):
        assert wanted in other
    assert all("StreamK" in source(c, *_any()) for c in CONFIGS if c.scheduler)
    narrow = source(wide, E4M3, parse_layout("rcr"), fast=True)
    for wanted in (
        "using input_t = cutlass::float_e4m3_t;",
        "Shape<Int<128>, Int<256>, Int<128>>",
        "KernelTmaWarpSpecializedCooperativeFP8FastAccum>",
    ):
        assert wanted in narrow


def test_cutlass_3_has_many_configurations() -> None:
    assert len(CONFIGS) >= 16
    assert {c.cluster for c in CONFIGS} == {(1, 1), (2, 1), (1, 2)}
    assert {(c.schedule, c.scheduler) for c in CONFIGS} == {
        *((PINGPONG, PERSISTENT), (COOPERATIVE, PERSISTENT), (COOPERATIVE, STREAM_K)),
    }
    assert all(c.m >= 128 for c in CONFIGS if c.schedule == COOPERATIVE)


@pytest.mark.parametrize("dtype", ["tf32", "i8"])
def test_cutlass_3_multiplies_other_widths_along_k_alone(dtype: str) -> None:
    shape = (16, 48, 64)
    assert len(Cutlass3().recipes(a_work(dtype, "rcc", shape))) == len(CONFIGS)
    for layout in ("rrr", "ccr", "crr"):
        with pytest.raises(Unsupported, match=f"wgmma takes {dtype} that lies along K alone"):
            Cutlass3().recipes(a_work(dtype, layout, shape))


def test_counters_of_stream_k_are_zero_before_each_launch() -> None:
    text = source(CONFIGS[-1], *_any())
    launch = text[text.index('extern "C" const char* launch') :]
    zeros = launch.index("initialize_workspace(its.all, its.workspace, queue)")
    assert zeros < launch.index("run(queue)")


def _any() -> tuple[DTypes, Any]:
    return parse_dtype("f16"), parse_layout("rrr")


# Stands in for nvcc: notes how it was called, and builds a library that answers for CUTLASS.
_NVCC = """#!/bin/sh
echo "$@" >> {log}
case "$1" in --version) exit 0;; esac
for last; do :; done
exec cc -shared -fPIC {library} -o "$last"
"""
_LIBRARY = """
#include <stdlib.h>
#include <string.h>
struct Problem {
  int m, n, k, groups, swizzle, multiprocessors;
  void *a, *b, *d;
  long long lda, ldb, ldd, stride_b;
  void *ends, *workspace;
};
int alive;
size_t workspace_size(const struct Problem* p) { return 16 * p->swizzle; }
const char* create(const struct Problem* p, void* stream, void** made) {
  if (p->m == 40) return "M is 40";
  ++alive;
  memcpy(*made = malloc(sizeof *p), p, sizeof *p);
  return 0;
}
const char* launch(void* made, void* stream) {
  struct Problem* p = made;
  memcpy(p->d, p, sizeof *p);
  return p->k == 40 ? "K is 40" : 0;
}
void destroy(void* made) { --alive; free(made); }
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """A pretended nvcc on the PATH; gives the arguments of each call."""
    if not shutil.which("cc"):
        pytest.skip("cc is not on the PATH")
    folder, log = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    (tmp_path / "library.c").write_text(_LIBRARY)
    program = folder / "nvcc"
    program.write_text(_NVCC.format(log=log, library=tmp_path / "library.c"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path / "cache"))
    nvcc.library.cache_clear()
    nvcc._version.cache_clear()
    yield lambda: log.read_text().splitlines() if log.exists() else []
    nvcc.library.cache_clear()
    nvcc._version.cache_clear()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUTLASS with fewer configurations."""
    monkeypatch.setattr(cutlass3, "CONFIGS", CONFIGS[:2])


def test_nvcc_builds_once(calls: Any, tmp_path: Path) -> None:
    path = nvcc.library("one", ARCH)
    assert path.parent == tmp_path / "cache" / "nvcc"
    version, build = calls()
    assert version == "--version"
    for wanted in ("-shared", "-Xcompiler=-fPIC", "-arch=sm_90a", "-std=c++17", "-I"):
        assert wanted in build
    nvcc.library.cache_clear()
    assert nvcc.library("one", ARCH) == path  # from the disk
    assert nvcc.library("two", ARCH) != path
    assert len(calls()) == 3
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".so", ".so"]  # nothing else


def test_what_nvcc_refuses_is_one_line(calls: Any, two: None, tmp_path: Path) -> None:
    (tmp_path / "library.c").write_text("#error no good\n")
    with pytest.raises(CompileError, match="no good") as caught:
        nvcc.library("text", ARCH)
    assert "\n" not in str(caught.value)
    with pytest.raises(Unsupported, match=r"64x64 1x1 pingpong cannot be built: .*no good"):
        Cutlass3().prepare(a_work())


def test_without_nvcc_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingError, match="nvcc is not on the PATH; install NVIDIA's CUDA"):
        nvcc.library("text", ARCH)
    with pytest.raises(Unsupported, match="nvcc is not on the PATH"):
        Cutlass3().recipes(a_work())[0]()


def test_cutlass_3_gets_the_problem(calls: Any, two: None) -> None:
    work = a_work(shape=(16, 24, 32))
    before = work.gpu.free_bytes
    prepared: Prepared = Cutlass3().prepare(work)
    assert prepared.workspace == 16 * 8  # of the largest swizzle
    assert prepared.note.endswith(", of 2 configurations")
    libraries = [ctypes.CDLL(str(recipe())) for recipe in Cutlass3().recipes(work)]
    alive = [ctypes.c_int.in_dll(library, "alive") for library in libraries]
    assert [count.value for count in alive] == [4 * work.sets] * 2
    for i in range(work.sets):
        pointers = work.pointers(i)
        prepared.queue(work.gpu.stream, *pointers)
        got = cutlass3._Problem.from_address(pointers[2])
        assert (got.m, got.n, got.k, got.a, got.b, got.d) == (16, 24, 32, *pointers)
        assert (got.lda, got.ldb, got.ldd) == (32, 24, 24)
        assert got.multiprocessors == work.gpu.multiprocessors
    prepared.close()
    assert [count.value for count in alive] == [0, 0]
    assert work.gpu.free_bytes == before


def test_cutlass_3_that_refuses_gives_everything_back(calls: Any, two: None) -> None:
    work = a_work(shape=(40, 24, 32))
    before = work.gpu.free_bytes
    with pytest.raises(Unsupported, match="CUTLASS refuses: M is 40"):
        Cutlass3().prepare(work)
    assert work.gpu.free_bytes == before
    work = a_work(shape=(16, 24, 40))
    before = work.gpu.free_bytes
    with pytest.raises(Unsupported, match="none of 2 configurations can be launched"):
        Cutlass3().prepare(work)
    assert work.gpu.free_bytes == before


class FakeLibrary:
    """One configuration that takes `ms`, and twice that but with the swizzle 4."""

    def __init__(self, gpu: FakeGpu, ms: float) -> None:
        self.gpu, self.ms = gpu, ms
        self.made: list[int] = []

    def workspace_size(self, problem: Any) -> int:
        return int(self.ms * 8)

    def create(self, problem: Any, stream: int, made: Any) -> bytes | None:
        self.made.append(problem.swizzle)
        made.value = len(self.made)
        return b"no" if self.ms == 1 else None

    def launch(self, made: Any, stream: int) -> bytes | None:
        self.gpu.now += self.ms if self.made[made.value - 1] == 4 else 2 * self.ms
        return b"no" if self.ms == 2 else None

    def destroy(self, made: Any) -> None:
        pass


def test_cutlass_3_takes_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    work = a_work()
    times = {config.name: 3.0 + i for i, config in enumerate(CONFIGS)}
    # One is refused, one fails, one is the fastest of the others.
    times |= {CONFIGS[4].name: 1.0, CONFIGS[5].name: 2.0, CONFIGS[9].name: 2.5}
    libraries = {name: FakeLibrary(work.gpu, ms) for name, ms in times.items()}

    def built(config: Config, *_: Any) -> str:
        if config == CONFIGS[0]:
            raise Unsupported("no")
        return config.name

    monkeypatch.setattr(cutlass3, "_library", built)
    monkeypatch.setattr(cutlass3, "_load", libraries.get)
    prepared = Cutlass3().prepare(work)
    assert prepared.note == f"{CONFIGS[9].name}, swizzle 4, of {len(CONFIGS) - 1} configurations"
    assert prepared.workspace == 20
    assert set(libraries[CONFIGS[9].name].made) == {1, 2, 4, 8}
    assert set(libraries[CONFIGS[-1].name].made) == {1}  # too slow to be tried again


def test_cutlass_3_is_for_hopper_and_even_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    work = a_work(shape=(16, 24, 33))
    with pytest.raises(Unsupported, match="TMA takes rows that are multiples of 16 bytes apart"):
        Cutlass3().prepare(work)
    monkeypatch.setattr(work, "arch", "sm_80")
    with pytest.raises(Unsupported, match="built for sm_90a, and this GPU is sm_80"):
        Cutlass3().prepare(work)


# --- compiling ---------------------------------------------------------------------------------


def test_compiling_says_how_far_it_is() -> None:
    def build(name: str) -> None:
        if name == "odd":
            raise Unsupported("no")

    seen: list[int] = []
    contenders.compile_all([Recipe(build, ("odd",)), Recipe(build, ("even",))], seen.append)
    assert seen == [1, 2]


def test_what_is_missing_ends_the_compiling() -> None:
    def build() -> None:
        raise MissingError("no compiler")

    with pytest.raises(MissingError, match="no compiler"):
        contenders.compile_all([Recipe(build, ())])


def test_equal_kernels_are_one_recipe() -> None:
    small, large = (a_work(shape=(side, 24, 32)) for side in (16, 48))
    odd = a_work(shape=(16, 24, 33))
    for peer in (Cutlass3(), cutlass2.contenders(parse_dtype("f16"))[0]):
        assert peer.recipes(small) == peer.recipes(large)
        with pytest.raises(Unsupported):
            peer.recipes(odd)
    assert len(set(Cutlass3().recipes(small))) == len(CONFIGS)
    assert cublas.Cublas(best=True).recipes(small) == ()


# --- ceilings ----------------------------------------------------------------------------------


# Of wgmma, which takes ptxas seconds, one.
QUICK = [name for name in INSTRUCTIONS if not name.startswith("wgmma")][::4]


@pytest.mark.parametrize("name", sift(INSTRUCTIONS, QUICK))
def test_ceilings_stay_in_registers(name: str) -> None:
    instruction = INSTRUCTIONS[name]
    assert instruction.runs_on("sm_90a")
    module = compile_cuda(instruction.source(), arch="sm_90a", format="cubin")
    used = module.resources[instruction.symbol]
    assert (used.spill_stores, used.spill_loads, used.stack_bytes) == (0, 0, 0)
    wide = 128 if instruction.output == "double" else 64
    assert used.registers <= (168 if instruction.group == WARPGROUP else wide)
    assert "serialized" not in module.log  # ptxas, of wgmma that waits after each one


def test_wgmma_is_hoppers_alone() -> None:
    for name, instruction in INSTRUCTIONS.items():
        wide = name.startswith("wgmma")
        assert instruction.runs_on("sm_100a") == instruction.runs_on("sm_90") == (not wide)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kernel_has_a_ceiling(variant: str) -> None:
    for dtype in VARIANTS[variant].dtypes:
        assert instruction_of(make_spec(variant, dtype=dtype)) in INSTRUCTIONS


@pytest.mark.parametrize(
    ("text", "dtype", "wanted"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {", "f16", "mma_m16n8k8_f16_f32"),
        ("mma.sync.aligned.m16n8k16.row.col", "bf16", "mma_m16n8k16_bf16_f32"),
        ("mma.sync.aligned.m16n8k16.row.col", "f16_f16", "mma_m16n8k16_f16_f16"),
        ("mma.sync.aligned.m16n8k8.row.col", "tf32", "mma_m16n8k8_tf32_f32"),
        ("mma.sync.aligned.m16n8k32.row.col", "i8", "mma_m16n8k32_i8_i32"),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32", "f16", "wgmma_m64n256k16_f16_f32"),
        ("mma.sync.aligned.m16n8k4.row.col", "f64", "mma_m16n8k4_f64_f64"),
        ("sum += a * b", "f16", "fma_f32"),
    ],
)
def test_a_kernels_ceiling_is_read_off_its_source(
    text: str, dtype: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spec:
        dtypes = DTYPES[dtype]

    class Source:
        def __init__(self, _: object) -> None:
            self.text = text

    monkeypatch.setattr(instructions, "render", Source)
    spec: Any = Spec
    assert instruction_of(spec) == wanted
    assert wanted in INSTRUCTIONS


def test_every_peers_ceiling_is_measured() -> None:
    for dtypes in DTYPES.values():
        known = dict.fromkeys(INSTRUCTIONS, 1.0)
        for found in (cutlass2.contenders(dtypes), cutlass3.contenders(dtypes)):
            assert all(c.ceiling(dtypes, known) in INSTRUCTIONS for c in found)
    assert wgmma_name("i8", "i32") == "wgmma_m64n256k32_i8_i32"


def test_a_library_may_take_the_fastest_instruction() -> None:
    rates = {name: float(i) for i, name in enumerate(INSTRUCTIONS)}  # wgmma last
    on_ampere = {n: r for n, r in rates.items() if not n.startswith("wgmma")}
    for dtype, hopper, ampere in (
        ("f32", "fma_f32", "fma_f32"),
        ("f64", "mma_m16n8k16_f64_f64", "mma_m16n8k16_f64_f64"),
        ("i32", "mad_i32", "mad_i32"),
        ("f16", "wgmma_m64n256k16_f16_f32", "mma_m16n8k16_f16_f32"),
        ("f16_f16", "wgmma_m64n256k16_f16_f16", "mma_m16n8k16_f16_f16"),
        ("bf16", "wgmma_m64n256k16_bf16_f32", "mma_m16n8k16_bf16_f32"),
        ("tf32", "wgmma_m64n256k8_tf32_f32", "mma_m16n8k8_tf32_f32"),
        ("i8", "wgmma_m64n256k32_i8_i32", "mma_m16n8k32_i8_i32"),
    ):
        dtypes = DTYPES[dtype]
        assert (fastest(dtypes, rates), fastest(dtypes, on_ampere)) == (hopper, ampere)
        assert fastest(dtypes, {}) == ""
