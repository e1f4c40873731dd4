"""`gen choose`: what it prints, and that its commands emit what it ranks."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from gen.cli import main
from gen.dispatch.ranking import Product, choose, model_of
from gen.kernels.registry import make_spec
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape
from tests.conftest import Gen


def ranking(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["choose", *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def spec_of(command: str) -> KernelSpec:
    """What `gen emit` makes of these options."""
    words = shlex.split(command.removeprefix("gen emit "))
    flags = "--batched", "--grouped"
    rest = [x for word in words for x in ([word, "true"] if word in flags else [word])]
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    variant = options.pop("--variant")
    named = {name[2:].replace("-", "_"): value for name, value in options.items()}
    return make_spec(variant, **named)


@pytest.mark.parametrize(
    "options",
    ["--shape 1000x500x4001 --dtype f16 --layout rcr --gpu h200",
     "--shape 300 --dtype i8 --layout ccr --gpu rtx3090 --epilogue linear_bias_relu",
     "--shape 1x5000x700 --dtype f32 --layout rrc --gpu t4 --lda 701 --unaligned",
     "--shape 77x3x900000 --dtype f64 --gpu b200",
     "--shape 64x64x512 --dtype f16 --gpu a100 --batch 100",
     "--shape 64x64x512 --dtype f16 --gpu h200 --batch 100 --grouped"],
)  # fmt: skip
def test_each_command_emits_the_kernel_of_its_row(
    options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ranking(capsys, *options.split(), "--top", "999")
    rows = found["ranking"]
    assert len(rows) == found["kernels"] > 9
    assert [row["us"] for row in rows] == sorted(row["us"] for row in rows)
    for row in rows:
        assert json.loads(spec_of(row["command"]).to_json()) == row["spec"], row["command"]


def test_the_first_is_what_matmul_takes(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--shape",
        "640x768x1023",
        "--dtype",
        "bf16",
        "--layout",
        "rcc",
        "--gpu",
        "l4",
        "--top",
        "1",
    ]
    (first,) = ranking(capsys, *options)["ranking"]
    spec = make_spec(**first["spec"])
    product = Product.packed(GemmShape(640, 768, 1023), spec.dtypes, spec.layouts)
    assert choose(product, model_of("sm_89", 58, "NVIDIA L4"), "sm_89") == spec


def test_the_table_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["choose", "--shape", "1024x4096x4096", "--layout", "rcr", "--dtype", "f16"]
    assert main([*options, "--gpu", "h200", "--top", "2", "--tuned", "none"]) == 0
    text = capsys.readouterr().out
    assert "fitted to times of an H200" in text
    assert "128 work tiles of 256x128 are 0.97 waves of 132 multiprocessors." in text
    assert "what limits them is tensor cores. The best by another kernel" in text
    assert text.count("gen emit") == 2
    assert main([*options, "--gpu", "a10", "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "A10 24 GB, by a model; nothing was measured on it" in text
    assert text.split("1: ")[0].strip().endswith("  modelled")
    assert main([*options, "--gpu", "h200", "--lda", "4097", "--top", "1"]) == 0
    assert "us of it are packing: an operand's lines do not start" in capsys.readouterr().out


def test_times_of_a_smaller_problem_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond what the model's integers hold."""
    for shape, more, said in (
        ("262144x64x64", (), ""),
        ("262145x64x300000", (), "with M=262,144 and K=262,144: from there on, the order"),
        ("64", ("--batch", str(10**12)), " products: from there on, the order of kernels stays"),
    ):
        found = ranking(capsys, "--shape", shape, "--gpu", "a100", *more)
        assert said in found["why"][-1]
        assert ("of a smaller problem" in found["why"][-1]) == bool(said)


def test_one_order_of_sums_for_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dtype", "f16", "--layout", "rcr", "--gpu", "h200", "--invariant", "rows"]
    found = [ranking(capsys, "--shape", f"{m}x4096x4096", *options) for m in (1, 8192)]
    first, last = (each["ranking"][0] for each in found)
    assert {first["variant"], last["variant"]} == {"wgmma"}
    assert first["spec"]["threadblock"] != last["spec"]["threadblock"]
    assert "Its order of sums is that of all M: wgmma, steps of 64. Without" in found[0]["why"][-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--shape 8 --gpu h200 --invariant all", "unknown invariant 'all'; use one of rows"),
        ("--shape 8 --gpu t4 --dtype f16 --invariant rows --split-k auto", "use split_k=1 or 2"),
        ("--shape 64", "no GPU is present: CUDA_VISIBLE_DEVICES is empty; use --gpu with h200, "),
        ("--shape 64 --gpu h20", "unknown GPU 'h20'; did you mean h200?"),
        ("--shape 64 --gpu a100,h100", "is more than one; gen emit --best chooses for several"),
        ("--shape 0x4x4 --gpu h200", "shape 0x4x4 has nothing to compute; use M and N of 1"),
        ("--shape 8 --gpu h200 --lda 7", "lda=7 is less than a line of 8x8x8 rrr; use 8"),
        ("--shape 8 --gpu h200 --lda 8,16", "--lda 8,16 is more than one; gen emit --best"),
        ("--shape 8 --gpu h200 --batch 1-8", "--batch 1-8 is more than one; gen emit --best"),
        ("--shape 8 --gpu t4 --dtype tf32", "no kernel for sm_75 has tf32 at 8x8x8; use f32, "),
        ("--shape 8 --gpu t4 --tile 3 --warp 8x8", "has tile, warp together; leave one out"),
        ("--shape 8 --gpu t4 --top 0", "invalid value for '--top'"),
    ],
)
def test_mistakes(
    options: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["choose", *options.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message.lower() in error.lower()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--lda 0", "lda '0' is no leading dimension; use elements"),
        ("--ldb -8", "ldb '-8' is no leading dimension"),
        (f"--lda {10**18}", f"lda '{10**18}' is no leading dimension"),
        ("--batch 0", "a batch of 0 has no products; use 1 or more"),
        (f"--batch {10**19}", f"'{10**19}' is neither a size nor a range"),
    ],
)
def test_what_emit_refuses_is_refused(options: str, message: str, gen: Gen) -> None:
    for command in (("choose",), ("emit", "--best", "--dry-run")):
        found = gen(*command, "--shape", "8x8x0", "--gpu", "h200", *options.split())
        assert (found.code, found.out) == (2, "")
        assert message in found.err
