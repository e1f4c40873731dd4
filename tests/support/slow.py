"""Cases that only `make test-all` runs: what they show, a quick one shows with other types."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

slow = pytest.mark.slow


def sift(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters, of which those that are not among the quick ones are slow."""
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=slow)
