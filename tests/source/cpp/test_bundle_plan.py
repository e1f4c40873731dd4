"""A bundle takes the first kernel that fits, carries out its plan, and refuses the rest."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.errors import GenError
from gen.kernels.registry import VARIANTS
from gen.prove.launchers.program import Host, Program
from gen.source.architectures import make_family
from gen.source.cpp.bundle import Bundle, Entry, read_bundle
from gen.spec.kernel import EPILOGUES
from gen.spec.problem import GemmShape
from tests.prove.test_verify import WITH_PLAN, small
from tests.spec.test_spec import specs
from tests.support.launchers import bundle_calls, chosen, wrong_bundle
from tests.support.programs import need
from tests.support.slow import each, slow

LIST = """
--variant mma --dtype f16 --layout rrr,rcr --from 512x512x64 --aligned
--variant mma --dtype f16 --layout rrr,rcr --threadblock 64x64x32 --warp 32x32 --split-k auto
--variant mma --dtype i8 --epilogue linear_bias --from 64 --aligned
--variant rec_tiles --dtype i8,f64 --epilogue linear_bias
--variant naive --dtype i8
"""
ON_HOPPER = "--variant mma_tma --dtype f16 --from 300x1x1\n--variant thread_1d --dtype f16\n"
GATED = "silu(x) * up[row, col] + slope * shift_by[col] where up=f16[row, col], slope=scalar"
BATCHED = f"""
--variant mma --batched --epilogue '{GATED}' --as gated --from 64 --aligned
--variant mma --epilogue '{GATED}' --as gated
--variant naive --batched --dtype f16,f32 --epilogue '{GATED}' --as gated
--variant tiles --batched --dtype i8 --epilogue 'min(x, M) + z where z=scalar' --as rounded
--variant thread_1d --dtype f32
"""


def bundle(folder: Path, text: str = LIST, arch: str = "sm_80") -> Bundle:
    (folder / "kernels").write_text(text)
    return read_bundle(folder / "kernels", "gemm", arch)


@pytest.mark.parametrize(
    ("text", "arch"), each(3, [(LIST, "sm_80"), (ON_HOPPER, "sm_90a"), (BATCHED, "sm_80")])
)
def test_a_bundle_carries_out_the_plan(text: str, arch: str, tmp_path: Path) -> None:
    need("g++")
    made = bundle(tmp_path, text, arch)
    assert not wrong_bundle(Program(Host.bundle(made), tmp_path), made)
    taken = {entry and entry.spec.name for entry in (chosen(made, c) for c in bundle_calls(made))}
    assert taken == {*(entry.spec.name for entry in made.entries), None}


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    """Kernels of one architecture, in any order, for all problems or some."""
    arch = draw(st.sampled_from(("sm_80", "sm_90a")))
    having = tuple(v for v in VARIANTS if VARIANTS[v].runs_on(int(arch[3:5])))
    drawn = draw(st.lists(specs(having), min_size=1, max_size=3))
    entries: list[Entry] = []
    for i, spec in enumerate(drawn):
        if spec.arch != arch:
            spec = small(
                draw(st.sampled_from([v for v in having if v not in WITH_PLAN])), arch=arch
            )
        sizes = draw(st.sampled_from(((0, 0, 0), (1, 1, 1), (65, 2, 100))))
        spec = replace(spec, symbol=f"gemm_{i}")
        own = f"own_{i}" if spec.fused else ""
        entry = Entry(make_family([spec]), GemmShape(*sizes), draw(st.booleans()), own)
        if not any(other.takes_all_of(entry) for other in entries):
            entries.append(entry)
    return Bundle("gemm", (arch,), "kernels", (), tuple(entries))


def test_a_bundle_with_batches_lists_what_takes_them(tmp_path: Path) -> None:
    found = bundle(tmp_path, BATCHED).entries
    assert [entry.spec.batched for entry in found] == [True, False, True, True, True, False]
    assert [entry.own for entry in found] == ["gated"] * 4 + ["rounded", ""]
    numbers = [entry.epilogue_number for entry in found]
    assert len(set(numbers)) == 3
    assert min(numbers[:5]) > 3 == len(EPILOGUES) - 1


MISTAKES = [
    (f"--variant mma --epilogue '{GATED}'", "has no name for the bundle's header; use --as, such"),
    ("--variant mma --epilogue linear_bias --as biased", "linear_bias has a name; leave --as out"),
    ("--variant mma --epilogue x+M --as rrr", "--as rrr: the header has the name for something"),
    ("--variant mma --epilogue x+M --as alpha", "the header has the name for something else"),
    ("--variant mma --epilogue x+M --as Gated", "it is not in lower case"),
    ("--variant mma --epilogue x+M --as double", "name 'double' is a keyword of C++"),
    (f"--variant mma --epilogue x+M --as {'a' * 17}", "or longer than 16 characters"),
    ("--variant mma --epilogue x+M --as a\n--variant mma --epilogue x+N --as a", "use two names"),
    (
        "--variant mma --batched\n--variant mma",
        "kernels:2: this kernel for f16 rrr linear is",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_names_of_epilogues_that_a_header_cannot_have(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(GenError, match=re.escape(message)):
        bundle(tmp_path, text)


@slow
@given(bundles())
@settings(max_examples=3, deadline=None)
def test_any_bundle_carries_out_the_plan(made: Bundle) -> None:
    need("g++")
    with tempfile.TemporaryDirectory() as folder:
        assert not wrong_bundle(Program(Host.bundle(made), Path(folder)), made)


BROKEN = [
    ("p.M >= kernel.M", "p.M > kernel.M"),
    ("p.K >= kernel.K", "true"),
    ("p.epilogue == kernel.epilogue", "true"),
    ("p.layout == kernel.layout", "true"),
    ("is_aligned(p.B, p.ldb, kernel.multiple)", "true"),
    ("ld % multiple == 0", "true"),
    ("% 16 == 0 && ld", "% 4 == 0 && ld"),
    ("p.ldb, beta, static_cast", "p.lda, beta, static_cast"),
    ("!convert(p.beta, beta)", "(convert(p.beta, beta), false)"),
    ("p == nullptr || p->M < 0 || p->N < 0 || p->K < 0", "p == nullptr"),
    ("workspace, workspace_bytes, stream);", "workspace, ~size_t(0), stream);"),
    ("*bytes = 0;\n  const Kernel", "const Kernel"),
    ("return cudaErrorNotSupported;", "return cudaErrorInvalidValue;"),
    ("to = static_cast<float>(from);", "to = static_cast<float>(static_cast<int>(from));"),
    ("kernel->workspace(*problem, bytes)", "cudaSuccess"),
]  # fmt: skip


ALONE = [(LIST, *case) for case in BROKEN]
BROKEN_BATCHES = [
    ("(alone || kernel.batched)", "true"),
    ("is_aligned(p.B, p.ldb, alone ? 0 : p.stride_b,", "is_aligned(p.B, p.ldb, 0,"),
    ("alone ? 0 : p.stride_a", "p.stride_a"),
    ("p.ldb, p.stride_b, bytes", "p.ldb, 0, bytes"),
    ("Array{p.gated.up}", "Array{p.gated.shift_by}"),
    ("|| p->batch < 0", ""),
]


@slow
@pytest.mark.parametrize(
    ("text", "old", "new"),
    [*ALONE, *((BATCHED, *case) for case in BROKEN_BATCHES)],
)
def test_broken_bundles_are_found(text: str, old: str, new: str, tmp_path: Path) -> None:
    need("g++")
    made = bundle(tmp_path, text)
    host = Host.bundle(made)
    before, mark, choice = host.files["gemm.cu"].partition(" the choice\n")
    assert old in choice, old
    files = {**host.files, "gemm.cu": before + mark + choice.replace(old, new)}
    assert wrong_bundle(Program(replace(host, files=files), tmp_path), made)
