"""The mutants and their explanations fit the kernels' present text, or they would prove nothing."""

from __future__ import annotations

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
    found = {(kernel, mutant.key) for kernel, source in every for mutant in mutants(source)}
    assert unused_explanations((*one, 1) for one in found) == []
