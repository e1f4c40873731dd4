"""Cases that only `make test-all` runs: those that resemble a quick one, and long builds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

slow = pytest.mark.slow


def sift(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters, of which those that are not among the quick ones are slow."""
    return [case if case in quick else _slow(case) for case in cases]


def each(step: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters, of which the first and each `step`-th after it are quick, the others slow."""
    return [case if at % step == 0 else _slow(case) for at, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=slow)
