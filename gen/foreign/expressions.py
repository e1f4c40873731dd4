"""Sizes as text: a number, or an expression of C++ on integers, such as `(n+255)/256`."""

from __future__ import annotations

from collections.abc import Mapping

from gen.errors import UsageError
from gen.kernels.formulas import Fact, evaluate


def evaluated(text: str, numbers: Mapping[str, int], what: str) -> int:
    """An integer, or an expression of C++ on integers such as `(n+255)/256`."""
    text = text.strip()
    try:
        value = evaluate([Fact("it", text)], numbers)["it"]
    except NameError as error:
        known = ", ".join(numbers) or "none"
        raise UsageError(f"{what} '{text}': {error}; numbers that are known: {known}") from None
    except (ValueError, ZeroDivisionError, SyntaxError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{what} '{text}' is no whole number from 0 on, nor an expression such as (n+255)/256: "
            f"{error}"
        ) from None
    return value


def split(text: str, at: str = ",") -> list[str]:
    """The parts of a list, at commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([{<") - (char in ")]}>")
        if char == at and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]
