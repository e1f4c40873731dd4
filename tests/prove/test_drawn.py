"""Problems drawn at random, of edited kernels."""

import random
from dataclasses import replace

import pytest

from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.check import check
from gen.prove.drawn import draw_trial, drawn_trials
from gen.prove.far import FAR
from gen.prove.planned import plan
from gen.source.render import render
from tests.prove.test_defects import plant
from tests.prove.test_outsiders import STEP
from tests.support.slow import each, slow


@pytest.mark.parametrize("variant", each(3, VARIANTS))
def test_they_are_the_same_each_time_and_differ(variant: str) -> None:
    spec = make_spec(variant)
    trials = drawn_trials(spec)
    assert trials == drawn_trials(spec)
    assert len(set(trials)) > 0.9 * len(trials)
    assert {one.in_place for one in trials} == {False, True}
    assert any(one.shape.k == 0 for one in trials)


def test_edited_kernels_alone_have_them() -> None:
    spec = make_spec("naive")
    drawn = set(drawn_trials(spec))
    assert not drawn & set(plan(render(spec)).trials)
    assert drawn <= set(plan(plant(spec, (STEP, f"{STEP} ;"))).trials)


@pytest.mark.parametrize("variant", each(2, ("simt", "naive", "mma", "wgmma")))
def test_a_thorough_check_tries_what_edited_kernels_have(variant: str) -> None:
    source = render(make_spec(variant))
    plain, thorough = plan(source), plan(source, thorough=True)
    edited = plan(replace(source, text=f"{source.text}\nnamespace other {{}}\n"))
    assert thorough.trials == edited.trials
    assert thorough.far == edited.far == FAR
    assert len(plain.trials) < 0.75 * len(thorough.trials)
    shapes, more = ({x.shape for x in p.trials} for p in (plain, thorough))
    assert len(shapes) < len(more)
    others = shapes - more  # of blocks with several tiles, of which there are fewer, or fewer steps
    assert len(others) <= 4
    assert all(any(x.m == y.m and x.n <= y.n and x.k <= y.k for y in more) for x in others)
    assert {part.what for part in plain.far} < {part.what for part in FAR}


def test_sizes_are_near_numbers_that_an_edit_names() -> None:
    draw, spec = random.Random(0), make_spec("naive")
    sizes = [draw_trial(draw, spec, [777]).shape for _ in range(50)]
    assert any({776, 777, 778} & {one.m, one.n, one.k} for one in sizes)


@slow
def test_what_comes_together_is_found() -> None:
    # Nothing but these three tells: no list of trials has them all in one problem.
    together = "if (beta < -1 && ldc > N + 7 && ldd < ldc && K % 5 == 3 && M < 9) sum += 1;"
    source = plant(make_spec("naive"), (STEP, f"{STEP} {together}"))
    assert not check(source, first=True).ok
