"""Conditions that only a mistake knows: found by results where that is cheap, else as unreached."""

import dataclasses
import shutil
from collections.abc import Sequence

import pytest

from gen.errors import UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.check import CheckReport, check
from gen.prove.launchers.check import LauncherReport, check_launcher
from gen.prove.named import named_trial
from gen.prove.planned import plan
from gen.prove.reaching import literal, reach
from gen.prove.stand import Limits, Stand
from gen.prove.trials import verify_trials
from gen.prove.unreached import differences, lines_left, probe_kernels, unreached
from gen.source.render import Source, render
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape
from tests.prove.test_defects import line_of, plant
from tests.prove.test_verify import small
from tests.support.slow import each, sift, slow

STEP, ADD = "      sum += a * b;", "sum[i][j] += a *"
# Where each kernel has a size, a leading dimension and a scalar in its hands.
PLACES = {
    "naive": ("    accumulator_t sum = 0;", "return;"),
    "rec_tiles": ("    accumulator_t sum[kRowsPerThread][kCoarsen] = {};", "return;"),
    "mma": ("  const Output out{", "return;"),
    "mma_tma": ("    const Output out{", "return;"),
    "wgmma": ("    const Output out{", "return;"),
}
REACHED = ("K == 37", "N == 256", "ldc == 4096", "alpha == 0.3f", "(K & 63) == 37", "!(M - 131)")
UNREACHED = ("K == 123456", "N == 500 && K == 77 && M == 91", "alpha == 0.3f && beta == 0.7f")


def spec_of(variant: str) -> KernelSpec:
    if variant in ("naive", "rec_tiles"):
        return make_spec(variant)
    return small(variant, split_k=1)


def mutant(variant: str, condition: str) -> Source:
    """The kernel with one more statement: it stops where a condition holds."""
    anchor, effect = PLACES[variant]
    return plant(spec_of(variant), (anchor, f"    if ({condition}) {effect}\n{anchor}"))


def surveyed(source: Source, shapes: Sequence[GemmShape] = ()) -> tuple[list[str], list[str]]:
    """What is left of a kernel's conditions after few trials and `reach`; what results say."""
    planned = plan(source)
    stand = Stand(planned.spec, planned.module, Limits(False, 20), planned.probed)
    assert planned.probed
    for shape in shapes or (GemmShape(9, 7, 5),):
        for trial in verify_trials(planned.spec, shape):
            stand.probe(trial)
    wrong = [o.result.message for _, o in reach(stand) if o.result and o.result.message]
    left = unreached(planned.probed, stand.outcomes.seen, (), 1)
    return [one.message for one in left], wrong


@pytest.mark.parametrize(
    ("variant", "condition"),
    sift(
        [(variant, condition) for variant in PLACES for condition in REACHED],
        [("naive", "K == 37"), ("naive", "alpha == 0.3f")],
    ),
)  # fmt: skip
def test_numbers_of_a_condition_are_tried(variant: str, condition: str) -> None:
    left, wrong = surveyed(mutant(variant, condition))
    assert not left
    assert wrong


@pytest.mark.parametrize(
    ("variant", "condition"),
    sift([(v, c) for v in PLACES for c in UNREACHED], [("naive", UNREACHED[2])]),
)
def test_what_is_not_reached_is_said(variant: str, condition: str) -> None:
    left, wrong = surveyed(mutant(variant, condition))
    assert not wrong
    assert [message for message in left if "` was never " in message]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    each(
        3,
        [
            ("k < K;", "k < (K < 170000 ? K : 170000);", "`K < 170000` was never false"),
            ("k < K;", "k < min(K, 170000LL);", "the operands of `min(K, 170000LL)` were always"),
            (
                STEP,
                f"switch (K) {{ case 170000: break; default: {STEP} }}",
                "`case 170000` was never",
            ),
            (STEP, f"{STEP} sum *= K >> 18;", "`K >> 18` was always 0"),
            (STEP, f"{STEP} sum += K % 32768 - K;", "`K % 32768` was always 0, or as it"),
            (STEP, f"{STEP} sum += (K & 0x7fffu) - K;", "`K & 0x7fffu` was always 0, or as it"),
            (STEP, f"{STEP} int left = K - k; sum *= left != 0;", "`left` never had more bits"),
            (STEP, f"{STEP} sum *= int(K - k) != 0;", "`int(K - k)` never had more bits"),
            (STEP, f"{STEP} sum *= (short)K != -1;", "`(short)K` never had more bits"),
        ],
    ),
)
def test_other_conditions(old: str, new: str, message: str) -> None:
    source = plant(make_spec("naive"), (old, new))
    probed = probe_kernels(source)
    stand = Stand(make_spec("naive"), plan(source).module, Limits(False, 20), probed)
    for trial in verify_trials(make_spec("naive"), GemmShape(9, 7, 5)):
        stand.probe(trial)
    left = unreached(probed, stand.outcomes.seen, (), 4)
    assert any(one.message.startswith(message) for one in left)


@slow
def test_an_integer_that_has_become_shorter_is_unreached() -> None:
    step = "beside = kAtOnce * ld * index_t(sizeof(input_t))"
    short = "beside = kAtOnce * (ld * int(index_t(kAtOnce) * sizeof(input_t))) / kAtOnce"
    report = check(plant(make_spec("simt"), (step, short)))
    assert not report.unreached  # a product of constants
    short = "beside = kAtOnce * int(ld * sizeof(input_t))"
    report = check(plant(make_spec("simt"), (step, short)), first=True)
    assert not report.ok


def test_what_the_compiler_decides_is_no_condition() -> None:
    source = plant(make_spec("naive"), (STEP, f"{STEP} if (kThreadsX == 4) sum = 0;"))
    assert not probe_kernels(source).probes


@pytest.mark.parametrize("variant", each(3, VARIANTS))
def test_emitted_files_have_no_probes(variant: str) -> None:
    source = render(make_spec(variant))
    probed = probe_kernels(source)
    assert probed.module is None
    assert not probed.edited.edited


def test_a_statement_is_told_apart_from_where_the_compiler_puts_it() -> None:
    old, new = "multiply<kWidth>(sums, row0, ", "multiply<kWidth>(sums, row0 + 0, "
    source = plant(make_spec("gemv"), (old, new))
    left, wrong = surveyed(source)  # of lines that are no whole units
    assert not wrong
    assert left == [f"`{new}col0, M, N, K, A, lda, B, l...` was never reached in 1 launches"]
    assert not surveyed(source, [GemmShape(4, 32, 64)])[0]


def test_a_line_has_run_if_one_behind_it_in_its_block_has() -> None:
    source = render(make_spec("gemv"))
    planned = plan(source)
    stand = Stand(planned.spec, planned.module, Limits(False, 20))
    outcome = stand.run(list(verify_trials(planned.spec, GemmShape(9, 7, 5))))[-1]
    not_run = sorted(outcome.seen.lines_not_run or ())
    line = line_of(source, "const int i = at / kCols")  # folded, where threads are enough
    assert line in not_run
    assert line not in lines_left(differences(source), planned.module, not_run)


@slow
def test_an_unreached_condition_fails_the_check() -> None:
    condition = "K == 5 && M == 6 && N == 7 && lda == 8"
    source = mutant("naive", condition)
    report = check(source)
    assert not report.findings
    assert not report.mismatches
    assert report.unreached
    assert {one.line for one in report.unreached} == {line_of(source, condition)}
    assert not report.ok
    report.allow_unreached = True
    assert report.ok


@slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if (col >= N) return;", "if (!(col < N)) return;"),
        ("for (index_t k = 0; k < K; ++k) {", "for (index_t k = 0; k != K; k += 1) {"),
        ("#pragma unroll 16", "#pragma unroll 4"),
        (STEP, "      sum = fmaf(a, b, sum);"),
    ],
)
def test_a_right_edit_has_nothing_to_say(old: str, new: str) -> None:
    report = check(plant(make_spec("naive"), (old, new)))
    assert report.ok
    assert not report.unreached


# -- launchers -------------------------------------------------------------------------------------

REFUSE = "  if (D == nullptr"


def launcher_of(variant: str, condition: str) -> LauncherReport:
    """What is said of a launcher that refuses what a condition holds for."""
    refused = f"  if ({condition}) return cudaErrorInvalidValue;\n"
    return check_launcher(plant(spec_of(variant), (REFUSE, refused + REFUSE)))


@slow
@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
@pytest.mark.parametrize(
    ("variant", "condition"),
    [(v, c) for v in PLACES for c in ("ldc > 100000", "K == 12345", "alpha == 0.625f")],
)
def test_numbers_of_a_launcher_are_tried(variant: str, condition: str) -> None:
    report = launcher_of(variant, condition)
    assert report.wrong


@slow
@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
@pytest.mark.parametrize(
    ("variant", "condition"),
    [(v, c) for v in PLACES for c in ("size_t(D) % 4096 == 48", "M == 11 && N == 22 && K == 3")],
)
def test_unreached_conditions_of_a_launcher(variant: str, condition: str) -> None:
    report = launcher_of(variant, condition)
    assert not report.wrong
    (left,) = report.unreached
    assert left.host
    assert "was never true" in left.message
    assert "calls of the launcher" in left.message


@slow
@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_a_launcher_in_another_layout_is_not_edited() -> None:
    source = render(make_spec("naive"))
    head, mark, host = source.text.partition("#ifndef __CUDACC_RTC__  // the host's side")
    report = check_launcher(
        dataclasses.replace(source, text=head + mark + host.replace(";\n", " ;\n\n"))
    )
    assert not report.as_emitted
    assert not report.wrong
    assert not report.unreached


# -- problems that somebody names ------------------------------------------------------------------


def test_a_named_problem() -> None:
    one = named_trial(make_spec("naive"), "5x7x50,alpha=0.3,lda=4096")
    p = one.problem
    assert (one.shape, one.kind) == (GemmShape(5, 7, 50), "random")
    assert (p.alpha, p.beta, p.lda, p.ldb) == (0.3, -2, 4096, 7)
    assert named_trial(make_spec("naive"), "5x7x50").kind == "integer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5x7x50,alpha=2,alpha=3", "'5x7x50,alpha=2,alpha=3' has alpha twice"),
        ("5x7x50,gamma=3", "'gamma=3' in '5x7x50,gamma=3' is none of alpha=X"),
        ("5x7x50,lda=x", "'lda=x' in"),
        ("5x7x50,lda=49", "lda in '5x7x50,lda=49' is less than 50"),
        ("5x7", "5x7"),
    ],
)
def test_problems_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        named_trial(make_spec("naive"), text)


def test_integers_have_integer_scalars() -> None:
    with pytest.raises(UsageError, match="alpha and beta of i32 are integers"):
        named_trial(make_spec("naive", dtype="i32"), "5x7x50,alpha=0.3")


def test_a_named_problem_is_tried() -> None:
    source = mutant("naive", "M == 3 && N == 5 && K == 6 && lda == 9999")
    spec = make_spec("naive")
    also = [named_trial(spec, "3x5x6,lda=9999")]
    report = check(source, [GemmShape(1, 1, 1)], also=also)
    assert isinstance(report, CheckReport)
    assert [shape for shape, _ in report.mismatches] == [GemmShape(3, 5, 6)]


def test_literals() -> None:
    texts = ("37", "0x1F", "1'000", "64u", "2LL", "0.3f", "1e3", "017", "0b11", "1.2.3")
    assert [literal(text) for text in texts] == [37, 31, 1000, 64, 2, 0.3, 1000, 15, 3, None]


@pytest.mark.slow
def test_lines_that_only_long_sums_reach_have_run() -> None:
    source = plant(
        make_spec("naive"),
        (
            "      sum += a * b;",
            "      if (K > 0x7fffffff) {\n        sum = fmaf(a, b, sum);\n      } else {\n"
            "        sum += a * b;\n      }",
        ),
    )
    report = check(source)
    assert report.ok
    assert report.not_run == []
