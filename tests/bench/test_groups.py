"""Measuring groups of rows without a GPU: sizes, operands, what is checked, the peers."""

import ctypes
from contextlib import nullcontext
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.bench import check, run, sizes
from gen.bench.contenders import Ours, Unsupported
from gen.bench.peers import cublas, cutlass3, pytorch
from gen.bench.peers.cutlass3_configs import COOPERATIVE, GROUPED, source
from gen.bench.sizes import Grouped, grouped, parse_size
from gen.bench.suites import suite
from gen.bench.work import Work
from gen.errors import UsageError
from gen.kernels.registry import make_spec
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import parse_layout
from tests.bench.test_bench import Fake, FakeGpu, a_problem, product, rows
from tests.conftest import Gen

FEW = "5x3-9x16x8"


def a_work(dtype: str = "f16", layout: str = "rrr", size: str = FEW) -> Any:
    gpu: Any = FakeGpu()
    return Work(gpu, parse_dtype(dtype), parse_layout(layout), parse_size(size))


@given(groups=st.integers(1, 300), least=st.integers(0, 40), more=st.integers(0, 600), n=st.just(8))
def test_rows_are_within_the_bounds(groups: int, least: int, more: int, n: int) -> None:
    one = grouped(groups, least, least + more, n, 16)
    assert parse_size(str(one)) == one
    assert len(one.rows) == groups
    assert sum(one.rows) == one.m
    assert least <= min(one.rows) <= max(one.rows) <= least + more


def test_groups_are_uneven() -> None:
    rows_of = parse_size("64x8-512x4096x4096").rows  # type: ignore[attr-defined]
    assert min(rows_of) < 16 < 500 < max(rows_of)
    assert len(set(rows_of)) == 64
    assert abs(sum(rows_of) / 64 - 260) < 10
    assert all(isinstance(one, Grouped) and one.least == 8 for one in suite("grouped"))


@pytest.mark.parametrize("text", ["0x1-2x3x4", "2x5-4x8x8", "2x1-x8x8", "1-2x8x8", "1x2x3x4x5"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"groups of L to M rows such as|is not MxNxK"):
        parse_size(text)


def test_groups_lie_one_behind_the_other() -> None:
    size = grouped(4, 2, 9, 5, 7)
    problem = sizes.problem(size, parse_layout("rcr"))
    assert problem.ends == tuple(accumulate(size.rows))
    assert (problem.shape.m, problem.batch.products, problem.batch.stride_b) == (size.m, 4, 35)
    assert sizes.flops(size) == 2 * size.m * 5 * 7
    f16 = parse_dtype("f16")
    assert sizes.operand_bytes(size, f16) == (2 * size.m * 7, 2 * 4 * 5 * 7, 2 * size.m * 5)
    wanted = sizes.product(size, f16, parse_layout("rcr"))
    assert (wanted.shape.m, wanted.batch) == (-(-size.m // 4), 4)
    with pytest.raises(UsageError, match="are rows; use --layout rrr or rcr, not crr"):
        sizes.problem(size, parse_layout("crr"))


@pytest.mark.parametrize("layout", ["rrr", "rcr"])
def test_a_wrong_group_gets_no_time(layout: str) -> None:
    def last_row(d: np.ndarray) -> None:
        if len(d) == a_work().each[-1].m:
            d[-1, 0] += 1

    right, wrong = Fake("right"), Fake("wrong", spoil=last_row)
    problem = a_problem(right, wrong, dtype="f16", layout=layout, shape=FEW)
    by_name = {row.contender: row for row in rows(FakeGpu(), problem)}
    assert (by_name["right"].check, by_name["right"].shape) == ("ok", FEW)
    assert by_name["wrong"].check == "wrong"
    assert by_name["wrong"].note.startswith("product ")


def test_kernels_without_groups_say_so() -> None:
    for given_ in ({}, {"batched": True}, {"layout": "crr", "grouped_k": True}):
        kernel = Ours(make_spec("mma", **given_))
        with pytest.raises(Unsupported, match="takes no groups of rows; use --grouped"):
            kernel.prepare(a_work())
    with pytest.raises(Unsupported, match="multiplies products of one size"):
        cublas.Cublas(best=False).prepare(a_work())


def test_peers_of_groups_alone_take_no_part_in_others(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [Fake("any"), Fake("of groups", only_groups=True)]
    monkeypatch.setattr(run.table, "peers", lambda *_: peers)
    options = run.Options([make_spec("mma", grouped=True)], [parse_size(FEW), parse_size("8")])
    found = [[c.name for c in problem.contenders[1:]] for problem in run.problems(options)]
    assert found == [["any", "of groups"], ["any"]]


def test_groups_are_measured_apart_from_others(gen: Gen) -> None:
    asked = ("bench", "--variant", "mma", "--dtype", "f16", "--peers", "none", "--compile-only")
    done = gen(*asked, "--shape", FEW, "--shape", "64")
    assert done.code == 2
    assert f"{FEW} are groups and 64x64x64 is none" in done.err
    assert gen("tune", "--suite", "grouped").code == 2
    for more in ((), ("--best", "1")):
        done = gen("bench", "--suite", "grouped", "--peers", "none", "--compile-only", *more)
        assert (done.code, "no kernel has groups of f32; use --dtype f16" in done.err) == (2, True)


# --- PyTorch -----------------------------------------------------------------------------------


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch on the CPU, whose tensors are those of the pretended GPU."""
    torch = pytest.importorskip("torch")

    def tensor(address: int, products: int, rows: int, columns: int, by_row: bool, _: str) -> Any:
        shape = (rows, columns) if by_row else (columns, rows)
        shape = (products, *shape) if products > 1 else shape
        raw = (ctypes.c_uint16 * int(np.prod(shape))).from_address(address)
        found = torch.frombuffer(raw, dtype=torch.bfloat16).view(shape)
        return found if by_row else found.mT

    monkeypatch.setattr(pytorch, "_tensor", tensor)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    made = torch.tensor
    monkeypatch.setattr(torch, "tensor", lambda *a, device, **given: made(*a, **given))
    return torch


@pytest.mark.parametrize("layout", ["rrr", "rcr"])
def test_pytorch_multiplies_groups(torch: Any, layout: str) -> None:
    for peer, launches in ((pytorch.Torch(), 5), (pytorch.TorchGrouped(), 1)):
        work = a_work("bf16", layout)
        prepared = peer.prepare(work)
        assert prepared.launches == launches
        assert check.check(work, prepared, check.all_expected(work)) == ""
        work.gpu.write(work.pointers(0)[0], np.zeros(8, np.uint16))  # a row of A
        assert "D[0, " in check.check(work, prepared, check.all_expected(work))


# --- CUTLASS -----------------------------------------------------------------------------------


def test_cutlass_has_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    f16, layouts = parse_dtype("f16"), parse_layout("rcr")
    texts = [source(config, f16, layouts, grouped=True) for config in GROUPED]
    assert len(set(texts)) == len(texts)
    for config, text in zip(GROUPED, texts, strict=True):
        schedule = "Cooperative" if config.schedule == COOPERATIVE else "Pingpong"
        assert f"KernelPtrArrayTmaWarpSpecialized{schedule}>" in text
        assert "GroupProblemShape<Sizes>" in text
        assert "cute::get<1>(step_b) = p.ldb" not in text  # B lies along K
    work = a_work("f16", "rcr")
    recipes = cutlass3.Cutlass3().recipes(work)
    assert [recipe.args[0] for recipe in recipes] == list(GROUPED)
    made = cutlass3._problem(work, 1)
    ends = (ctypes.c_int * made.groups).from_address(made.ends)
    assert (made.groups, tuple(ends), made.stride_b) == (5, work.problem.ends, 16 * 8)


def test_products_of_groups_are_right() -> None:
    work = a_work()
    a, b = work.matrices(3)
    assert product(work, 3).shape == (work.each[3].m, 16)
    assert (a.shape, b.shape) == ((work.each[3].m, 8), (8, 16))
