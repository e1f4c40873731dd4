"""NVRTC: compilation, its messages, its report, and the cache on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gen.compile import cache, keys, nvrtc, sass
from gen.compile.log import Resources, parse_resources
from gen.errors import CompileError, MissingError, UsageError
from gen.kernels import registry
from gen.source.render import render
from tests import ROOT
from tests.support.programs import need, run
from tests.support.slow import each, slow

COPY = 'extern "C" __global__ void copy(float* d, const float* s) { *d = *s; }\n'


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """An empty cache that can be used, and no warning given yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GEN_CACHE_DIR", str(folder))
    monkeypatch.setattr(cache, "_stores", {})
    monkeypatch.setattr(cache, "_warned", threading.Event())
    return folder


@pytest.fixture
def count_compilations(monkeypatch):
    calls = []
    compile_ = nvrtc._compile
    monkeypatch.setattr(nvrtc, "_compile", lambda *a: calls.append(a) or compile_(*a))
    return calls


def entries(folder: Path) -> list[Path]:
    return [path for path in (folder / "entries").rglob("*") if path.is_file()]


# Compilation


def test_import_needs_neither_numpy_nor_cuda():
    code = "import gen.compile.nvrtc, sys; print({'numpy', 'cuda'} & set(sys.modules))"
    output = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert output.strip() == "set()"


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f"])
def test_ptx_targets_the_architecture(arch):
    module = nvrtc.compile_cuda(COPY, arch=arch, cache=False)
    text = module.code.decode("ascii")
    assert f".target {arch}" in text
    assert ".entry copy(" in text
    assert ".loc" in text
    assert "\0" not in text
    assert (module.arch, module.format, module.cached) == (arch, "ptx", False)
    assert module.resources == {}
    assert 0 < module.seconds < 30


def test_line_info_can_be_left_out():
    assert b".loc" not in nvrtc.compile_cuda(COPY, line_info=False, cache=False).code


def test_headers_of_cuda_and_cccl_are_found():
    text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda/std/cstdint>\n" + COPY
    assert b".entry copy(" in nvrtc.compile_cuda(text, cache=False).code


@pytest.mark.parametrize(
    "tunables",
    each(
        10,
        [
            {},
            {"instruction": "m16n8k8"},
            {"dtype": "f16_f16"},
            {"dtype": "f16_f32", "epilogue": "linear_bias"},
            {"epilogue": "linear_bias_gelu"},
            {"split_k": 0},
            {"threadblock": "96x96x64", "warp": "32x48", "stages": 8, "sliced_k": 2},
            {"threadblock": "256x224x64", "warp": "64x112", "dtype": "f16_f16"},
            {"threadblock": "64x128x64", "warp": "32x64", "stages": 7, "split_k": 16},
        ],
    ),
    ids=lambda tunables: " ".join(map(str, tunables.values())) or "default",
)
@pytest.mark.slow
def test_sums_of_tensor_cores_stay_in_registers(tunables):
    values = {"dtype": "f16", "layout": "rcr", "arch": "sm_90a", **tunables}
    spec = registry.make_spec("mma_tma", **values)
    source = render(spec)
    module = nvrtc.compile_cuda(source.text, name=source.filename, arch="sm_90a", format="cubin")
    used = module.resources[spec.name]
    assert (used.spill_stores, used.spill_loads, used.stack_bytes) == (0, 0, 0)


@pytest.mark.xfail(strict=True, reason="36 bytes are spilled where two teams add up 128x128 sums")
@pytest.mark.slow
def test_sums_of_two_teams_stay_in_registers():
    tunables = {"threadblock": "128x128x64", "sliced_k": 2, "stages": 4}
    test_sums_of_tensor_cores_stay_in_registers(tunables)


@pytest.mark.parametrize(
    "tunables",
    each(
        5,
        [
            {},
            {"dtype": "i8", "layout": "rcr"},
            {"dtype": "tf32", "layout": "rcr"},
            {"dtype": "f16_f32"},
            {"dtype": "f16_f16"},
        ],
    ),
    ids=lambda tunables: " ".join(tunables.values()) or "default",
)
def test_wgmmas_overlap_and_their_sums_stay_in_registers(tunables):
    spec = registry.make_spec("wgmma", **tunables)
    source = render(spec)
    module = nvrtc.compile_cuda(source.text, name=source.filename, arch="sm_90a", format="cubin")
    assert "Compiling entry function" in module.log
    assert "serialized" not in module.log
    used = module.resources[spec.name]
    assert (used.spill_stores, used.spill_loads, used.stack_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("variant", "tunables"),
    each(
        2,
        [
            ("wgmma", {"layout": "crr"}),
            ("wgmma", {"schedule": "pingpong"}),
            ("wgmma", {"grouped": True}),
            ("mma_tma", {"dtype": "f64"}),
        ],
    ),
    ids=str,
)
def test_no_loop_over_lanes_is_around_a_copy(variant, tunables):
    """Where the compiler does not know that one lane asks the TMA, each copy takes 80 ns."""
    source = render(registry.make_spec(variant, **tunables))
    module = nvrtc.compile_cuda(source.text, name=source.filename, arch="sm_90a", format="cubin")
    text = sass.disassemble(module.code)
    if text is None:
        pytest.skip("needs nvdisasm")
    rows = [row for row in text.splitlines() if "/*" in row]
    copies = ["\n".join(rows[at : at + 5]) for at, row in enumerate(rows) if "UTMALDG" in row]
    assert copies
    assert not [copy for copy in copies if "BRA.U.ANY" in copy]


@pytest.mark.parametrize("tunables", [{}, {"threadblock": "64x64x32", "stages": 2}], ids=str)
def test_wgmma_has_no_machine_code_for_plain_sm_90(tunables):
    source = render(registry.make_spec("wgmma", **tunables))
    nvrtc.compile_cuda(source.text, arch="sm_90", format="ptx")  # as nvcc -arch=sm_90a does
    with pytest.raises(CompileError, match="compile_for_sm_90a"):
        nvrtc.compile_cuda(source.text, arch="sm_90", format="cubin")


def test_cubin_is_elf_and_reports_resources():
    text = """
    extern "C" __global__ void first(float* d) {
      __shared__ float tile[64];
      tile[threadIdx.x] = d[threadIdx.x];
      __syncthreads();
      d[threadIdx.x] = tile[63 - threadIdx.x];
    }
    extern "C" __global__ void __launch_bounds__(1024, 2) second(float* d, int n) {
      float x[64];
      for (int i = 0; i < 64; ++i) x[i] = d[i * n];
      for (int j = 0; j < n; ++j)
        for (int i = 0; i < 64; ++i) x[i] = x[i] * x[(i + 7) % 64] + d[j];
      for (int i = 0; i < 64; ++i) d[i * n] = x[i];
    }
    """
    module = nvrtc.compile_cuda(text, format="cubin", cache=False)
    assert module.code.startswith(b"\x7fELF")
    first, second = module.resources["first"], module.resources["second"]
    assert first.shared_bytes == 256
    assert first.barriers == 1
    assert first.registers > 0
    assert (first.spill_stores, first.spill_loads, first.stack_bytes) == (0, 0, 0)
    assert second.registers <= 32
    assert second.spill_stores > 0
    assert second.spill_loads > 0
    assert second.stack_bytes > 0
    assert nvrtc.resources(text) == module.resources


def test_report_of_a_kernel_that_calls_a_function():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 25 registers, used 2 barriers, 160 bytes cumulative stack size, \
1024 bytes smem, 364 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Function properties for _Z1gPfi
ptxas         .     72 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
"""
    assert parse_resources(log) == {
        "k": Resources(
            registers=25,
            spill_stores=4,
            spill_loads=12,
            shared_bytes=1024,
            stack_bytes=160,
            constant_bytes=372,
            barriers=2,
        )
    }


def test_threads_compile_at_once():
    texts = [COPY.replace("*d = *s", f"*d = *s + {i}") for i in range(6)]
    alone = [nvrtc.compile_cuda(text, cache=False).code for text in texts]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda t: nvrtc.compile_cuda(t, cache=False).code, texts))
    assert together == alone
    assert len(set(alone)) == len(texts)


# Messages


def test_a_compile_error_shows_the_lines():
    text = "// one\n// two\n" + COPY.replace("*d = *s", "*d = t") + "// four\n// five\n// six\n"
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_cuda(text, name="my kernel.cu")
    line = text.splitlines()[2]
    assert str(caught.value).splitlines() == [
        'my kernel.cu:3: identifier "t" is undefined',
        "1 | // one",
        "2 | // two",
        f"3 | {line}",
        "  | " + " " * line.index("t; }") + "^",
        "4 | // four",
        "5 | // five",
    ]
    assert caught.value.exit_code == 1
    assert "1 error detected" in caught.value.log


def test_a_compile_error_counts_the_others():
    with pytest.raises(CompileError, match=r'identifier "a"(?s:.*)\nand 2 more errors$'):
        nvrtc.compile_cuda("__device__ int x = a, y = b, z = c;\n")
    with pytest.raises(CompileError, match=r'identifier "a"(?s:.*)\nand 1 more error$'):
        nvrtc.compile_cuda("__device__ int x = a, y = b;\n")


def test_the_caret_is_under_the_word_after_tabs():
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_cuda("__device__ void f() {\n\t\tint x = a;\n}\n")
    shown, caret = str(caught.value).splitlines()[2:4]
    assert shown == "2 | \t\tint x = a;"
    assert caret == "  | \t\t        ^"


def test_headers_that_stay_are_parsed_once_and_others_each_time(tmp_path):
    """NVRTC would not see that a header has changed."""
    emitted = [render(registry.make_spec("mma_tma", dtype=dtype)).text for dtype in ("f16", "f64")]
    assert [bool(nvrtc._parsed_once(text)) for text in emitted] == [True, False]
    assert not nvrtc._parsed_once('#include <cuda_fp16.h>\n#include "mine.h"\n')
    text = '#include <cuda_fp16.h>\n#include "mine.h"\n__global__ void f(int* x) { *x = MINE; }\n'
    for number in (41, 42):
        (tmp_path / "mine.h").write_text(f"#define MINE {number}\n")
        module = nvrtc.compile_cuda(text, options=[f"-I{tmp_path}"], cache=False)
        assert f" {number};" in module.code.decode()
    text = text.replace('#include "mine.h"\n', "").replace("MINE", "__half2int_rn(__half(41))")
    parsed = nvrtc.compile_cuda(text, cache=False), nvrtc.compile_cuda(text, cache=False)
    plain = nvrtc.compile_cuda(text + '#include "mine.h"\n', options=[f"-I{tmp_path}"], cache=False)
    assert [(module.code, module.log) for module in parsed] == [(plain.code, "")] * 2


def test_a_missing_include_is_a_compile_error():
    with pytest.raises(CompileError, match=r'cannot open source file "nowhere\.h"'):
        nvrtc.compile_cuda('#include "nowhere.h"\n')


def test_an_error_in_a_header_names_the_header(tmp_path):
    (tmp_path / "broken.h").write_text("__device__ int x = nothing;\n")
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_cuda('#include "broken.h"\n', options=[f"-I{tmp_path}"])
    assert str(caught.value).splitlines() == [
        f'{tmp_path}/broken.h:1: identifier "nothing" is undefined',
        "  | __device__ int x = nothing;",
        "  |                    ^",
    ]


def test_errors_of_ptxas_are_compile_errors():
    text = """extern "C" __global__ void k(float* d) {
      __shared__ float s[60000]; s[1] = *d; *d = s[(int)*d]; }"""
    with pytest.raises(CompileError, match=r"kernel\.cu: ptxas: .*too much shared data"):
        nvrtc.compile_cuda(text, format="cubin")
    text = 'extern "C" __global__ void k() { asm volatile("wrong.u32;"); }'
    with pytest.raises(CompileError, match=r"kernel\.cu: ptxas on the PTX, line \d+: "):
        nvrtc.compile_cuda(text, format="cubin")


@pytest.mark.parametrize("arch", ["sm_81", "sm_75a", "sm_90z", "compute_80", "sm_", "hopper", ""])
def test_unknown_architectures_are_named(arch):
    with pytest.raises(UsageError) as caught:
        nvrtc.compile_cuda(COPY, arch=arch, cache=False)
    version = ".".join(map(str, nvrtc.nvrtc_version()))
    assert str(caught.value).startswith(f"{arch} is unknown to NVRTC {version}; use one of sm_75, ")


def test_unknown_formats_and_options():
    with pytest.raises(UsageError, match="unknown format 'cubim'; did you mean cubin"):
        nvrtc.compile_cuda(COPY, format="cubim")
    with pytest.raises(UsageError, match="--nonsense"):
        nvrtc.compile_cuda(COPY, options=["--nonsense"])


def test_missing_cuda_python_is_named(monkeypatch):
    nvrtc._bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingError, match=r"pip install 'cuda-python") as caught:
        nvrtc._bindings()
    assert caught.value.exit_code == 3


def test_missing_library_is_named(monkeypatch):
    from cuda.bindings import nvrtc as bindings
    from cuda.pathfinder import DynamicLibNotFoundError

    def fail():
        raise DynamicLibNotFoundError("libnvrtc.so")

    nvrtc._bindings.cache_clear()
    monkeypatch.setattr(bindings, "nvrtcVersion", fail)
    with pytest.raises(MissingError, match=r"libnvrtc.*pip install 'cuda-toolkit\[nvrtc"):
        nvrtc._bindings()


BESIDE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
from gen.compile.nvrtc import compile_cuda, nvrtc_version
print(nvrtc_version()[0], len(compile_cuda(sys.argv[2], cache=False).code) > 0)
"""


def test_another_nvrtc_in_the_process_is_not_taken(tmp_path):
    """PyTorch for CUDA 12 loads one; this stand-in has no functions."""
    need("gcc")
    library = tmp_path / "libnvrtc.so.12"
    options = ("-shared", "-x", "c", "/dev/null", "-Wl,-soname,libnvrtc.so.12")
    run("gcc", *options, "-o", library, cwd=tmp_path)
    source = "#include <cuda_fp8.h>\n" + COPY
    assert run(sys.executable, "-c", BESIDE, library, source, cwd=tmp_path) == "13 True\n"


def test_missing_headers_are_named(monkeypatch):
    import cuda.pathfinder

    monkeypatch.setattr(cuda.pathfinder, "find_nvidia_header_directory", lambda name: None)
    monkeypatch.delenv("CUTLASS_PATH", raising=False)
    nvrtc.include_paths.cache_clear()
    with pytest.raises(
        MissingError, match=r"headers of c\w+ are missing; pip install 'cuda-toolkit\[.*cccl"
    ):
        nvrtc.compile_cuda("#include <cuda_fp16.h>\n" + COPY, cache=False)
    with pytest.raises(MissingError, match=r"cutlass.*pip install 'nvidia-cutlass.*CUTLASS_PATH"):
        nvrtc.cutlass_include()
    nvrtc.compile_cuda(COPY, cache=False)  # needs no header


def test_cutlass_path(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(MissingError, match=r"CUTLASS_PATH=.* has no include/cutlass/cutlass\.h"):
        nvrtc.cutlass_include()
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    (tmp_path / "include" / "cutlass" / "cutlass.h").touch()
    assert nvrtc.cutlass_include() == str(tmp_path / "include")


# The cache


def test_the_second_compilation_comes_from_the_cache(cache_folder, count_compilations):
    first = nvrtc.compile_cuda(COPY, format="cubin")
    second = nvrtc.compile_cuda(COPY, format="cubin")
    assert (first.cached, second.cached) == (False, True)
    assert second.seconds == 0
    assert (second.code, second.log) == (first.code, first.log)
    assert second.resources == first.resources != {}
    assert len(count_compilations) == len(entries(cache_folder)) == 1


def test_everything_that_matters_is_in_the_key(cache_folder, count_compilations, tmp_path):
    header = tmp_path / "value.h"
    header.write_text("#define VALUE 1\n")
    cases = [
        {"text": COPY},
        {"text": COPY + " "},
        {"text": COPY, "name": "other.cu"},
        {"text": COPY, "arch": "sm_90"},
        {"text": COPY, "format": "cubin"},
        {"text": COPY, "options": ["-DX"]},
        {"text": COPY, "options": ["-DX", "-DY"]},
        {"text": COPY, "options": ["-DX=-DY"]},
        {"text": COPY, "line_info": False},
        {"text": COPY, "options": [f"-I{tmp_path}"]},
    ]
    for case in cases:
        assert not nvrtc.compile_cuda(**case).cached
    for case in cases:
        assert nvrtc.compile_cuda(**case).cached
    keys.fingerprint.cache_clear()
    header.write_text("#define VALUE 123\n")
    assert not nvrtc.compile_cuda(COPY, options=[f"-I{tmp_path}"]).cached
    for flags in (["-I", str(tmp_path)], [f"--include-path={tmp_path}"]):
        assert nvrtc.compile_cuda(COPY, options=flags).cached  # other spellings of the same
    assert len(count_compilations) == len(cases) + 1


def test_versions_are_in_the_key(cache_folder, monkeypatch):
    assert not nvrtc.compile_cuda(COPY).cached
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: (99, 0))
    assert not nvrtc.compile_cuda(COPY).cached
    monkeypatch.setattr(keys, "_package_versions", lambda: ["nvidia-cutlass 99"])
    assert not nvrtc.compile_cuda(COPY).cached


def test_a_file_beside_the_source_is_never_stale(cache_folder, tmp_path):
    name = str(tmp_path / "kernel.cu")
    for value in ("1.5f", "2.5f"):
        (tmp_path / "value.h").write_text(f"#define VALUE {value}\n")
        text = '#include "value.h"\n' + COPY.replace("*d = *s", "*d = VALUE")
        assert not nvrtc.compile_cuda(text, name=name).cached


def test_no_cache_leaves_no_trace(cache_folder):
    nvrtc.compile_cuda(COPY, cache=False)
    assert not cache_folder.exists()


def test_errors_are_not_cached(cache_folder, count_compilations):
    for _ in range(2):
        with pytest.raises(CompileError):
            nvrtc.compile_cuda("int x = a;")
    assert len(count_compilations) == 2
    assert entries(cache_folder) == []


def flip(position):
    def damage(blob: bytes) -> bytes:
        damaged = bytearray(blob)
        damaged[position] ^= 1
        return bytes(damaged)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: b"",
        lambda blob: blob[:-1],
        lambda blob: blob[:20],
        lambda blob: blob[:42],
        lambda blob: blob + b"x",
        lambda blob: os.urandom(len(blob)),
        *map(flip, (0, 10, 41, 50, -1)),
    ],
)
def test_damaged_entries_are_compiled_again(cache_folder, damage):
    whole = nvrtc.compile_cuda(COPY)
    (path,) = entries(cache_folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    again = nvrtc.compile_cuda(COPY)
    assert not again.cached
    assert again.code == whole.code
    assert path.read_bytes() == good
    assert nvrtc.compile_cuda(COPY).cached


def test_a_damaged_entry_is_dropped(cache_folder):
    cache.save("key", {"log": ""}, b"code")
    (path,) = entries(cache_folder)
    path.write_bytes(b"gemmgen1")
    assert cache.load("key") is None
    assert entries(cache_folder) == []


def test_an_entry_under_another_name_is_not_believed(cache_folder):
    nvrtc.compile_cuda(COPY)
    (first,) = entries(cache_folder)
    blob = first.read_bytes()
    nvrtc.compile_cuda(COPY + " ")
    (second,) = (path for path in entries(cache_folder) if path != first)
    second.write_bytes(blob)
    assert not nvrtc.compile_cuda(COPY + " ").cached


@slow
def test_processes_share_the_cache(cache_folder):
    code = """
import sys
from gen.compile import keys, nvrtc
COPY = 'extern "C" __global__ void copy%d(float* d, const float* s) { *d = *s; }'
for _ in range(3):
    for i in range(5):
        module = nvrtc.compile_cuda(COPY % i)
        assert f".entry copy{i}(".encode() in module.code
assert module.cached
"""
    workers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0, 0]
    assert len(entries(cache_folder)) == 5
    assert list((cache_folder / "tmp").iterdir()) == []


def test_threads_share_the_cache(cache_folder):
    texts = [COPY.replace("copy", f"copy{i % 3}") for i in range(30)]
    with ThreadPoolExecutor(6) as pool:
        modules = list(pool.map(nvrtc.compile_cuda, texts))
    for i, module in enumerate(modules):
        assert f".entry copy{i % 3}(".encode() in module.code
    assert len(entries(cache_folder)) == 3


def compile_twice_with_one_warning():
    with pytest.warns(RuntimeWarning, match="not cached.*GEN_CACHE_DIR") as warned:
        modules = [nvrtc.compile_cuda(COPY) for _ in range(2)]
    assert [module.cached for module in modules] == [False, False]
    assert len(warned) == 1


def test_a_file_in_the_directorys_place(cache_folder):
    cache_folder.write_text("mine")
    compile_twice_with_one_warning()
    assert cache_folder.read_text() == "mine"


def test_a_directory_that_cannot_be_made(cache_folder, monkeypatch):
    monkeypatch.setenv("GEN_CACHE_DIR", "/proc/no/such")
    compile_twice_with_one_warning()


def test_a_directory_that_cannot_be_written(cache_folder, monkeypatch):
    import tempfile

    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    compile_twice_with_one_warning()


def test_an_entry_that_cannot_be_read(cache_folder):
    nvrtc.compile_cuda(COPY)
    (path,) = entries(cache_folder)
    path.unlink()
    path.mkdir()
    compile_twice_with_one_warning()


def test_the_cache_is_removed_in_between(cache_folder):
    import shutil

    nvrtc.compile_cuda(COPY)
    shutil.rmtree(cache_folder)
    assert not nvrtc.compile_cuda(COPY).cached
    assert nvrtc.compile_cuda(COPY).cached


def test_the_cache_stays_below_its_cap(cache_folder, monkeypatch):
    monkeypatch.setattr(cache, "MAX_BYTES", 100_000)
    for i in range(10):
        cache.save(f"key {i}", {"log": ""}, bytes(30_000))
    assert sum(path.stat().st_size for path in entries(cache_folder)) <= 100_000
    assert cache.load("key 9") is not None
    assert cache.load("key 0") is None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path))
    assert nvrtc.cache_dir() == tmp_path
    monkeypatch.setenv("GEN_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert nvrtc.cache_dir() == Path("/somewhere/gemmgen")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert nvrtc.cache_dir() == Path("/home/me/.cache/gemmgen")
