"""Trials that run abreast: all of them, once each, with the results that they have alone."""

from __future__ import annotations

import pytest

from gen.compile.nvrtc import compile_cuda
from gen.errors import CheckError
from gen.kernels.registry import VARIANTS
from gen.prove.abreast import grouped, run_together
from gen.prove.check import check
from gen.prove.check_trials import check_trials
from gen.prove.stand import Limits, Stand
from gen.source.render import render
from gen.spec.problem import GemmShape
from tests.prove.test_defects import plant
from tests.prove.test_verify import small
from tests.support.slow import each, sift


@pytest.mark.parametrize("variant", each(3, VARIANTS))
def test_every_trial_is_in_one_group(variant: str) -> None:
    spec = small(variant)
    trials = check_trials(spec)
    groups = grouped(spec, trials)
    assert sorted(map(str, trials)) == sorted(str(t) for group in groups for t in group)
    assert len(groups) < len(trials)
    for group in groups:
        assert len({(t.watched, t.in_place) for t in group}) == 1


@pytest.mark.parametrize("variant", sift(VARIANTS, ("naive", "mma")))
def test_results_are_those_of_each_alone(variant: str) -> None:
    spec = small(variant)
    module = compile_cuda(render(spec).text, name="x.cu", arch=spec.arch, format="ptx")
    stand = Stand(spec, module, Limits(False, 20))
    group = max(grouped(spec, check_trials(spec)[:200]), key=len)[:12]
    assert len(group) > 2
    alone = [stand._alone(trial, False).result for trial in group]
    stand._prepare(stand.runner, group)
    together = run_together(spec, stand.runner, module, group, [None] * len(group))
    assert [(r.ok, r.worst, r.message) for r in together] == [
        (r.ok, r.worst, r.message) for r in alone if r
    ]


def test_what_one_of_them_does_wrong_is_said_of_that_one() -> None:
    """A kernel that is wrong for one value of beta alone."""
    source = plant(small("tiles"), ("if (beta != 0) x +=", "if (beta != 0 && beta != -2) x +="))
    report = check(source, [GemmShape(9, 10, 5), GemmShape(15, 8, 16)])
    assert report.mismatches
    assert all("beta=-2" in message for _, message in report.mismatches)
    assert report.trials > len(report.mismatches)


def test_an_access_of_one_of_them() -> None:
    source = plant(small("tiles"), ("row < M && col < N", "row < M && col <= N - (beta == 0)"))
    spec = small("tiles")
    module = compile_cuda(source.text, name="x.cu", arch=spec.arch, format="ptx")
    stand = Stand(spec, module, Limits(False, 20))
    trials = [t for t in check_trials(spec)[:200] if t.shape.n % 7 and t.problem.beta]
    group = max(grouped(spec, trials), key=len)[:4]
    stand._prepare(stand.runner, group)
    with pytest.raises(CheckError):
        run_together(spec, stand.runner, module, group, [None] * len(group))
    outcomes = stand.run(group)
    assert all(outcome.result and outcome.result.message for outcome in outcomes)
