"""The mutants and their explanations fit the kernels' present text, or they would prove nothing."""

from __future__ import annotations

from collections import Counter

from tests.mutation.equivalent import unused_explanations
from tests.mutation.kernels import SPECS
from tests.mutation.mutants import mutants, unused
from tests.mutation.run import sources
from tests.support.slow import slow


def test_every_operator_matches_something() -> None:
    assert unused(sources()) == []


@slow
def test_every_explanation_is_of_a_mutant() -> None:
    every = zip(SPECS, sources(), strict=True)
    found = Counter((kernel, mutant.key) for kernel, source in every for mutant in mutants(source))
    each = ((*one, nth) for one, count in found.items() for nth in range(1, count + 1))
    assert unused_explanations(each) == []
