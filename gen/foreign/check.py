"""`gen check` of a kernel that gen did not emit: findings, and results against references."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gen.errors import CheckError, UsageError
from gen.foreign import elements
from gen.foreign.arguments import is_null, numbers_of, parse_pairs
from gen.foreign.contents import load
from gen.foreign.launch import LaunchText
from gen.foreign.running import Checks, Outcome, run_steps
from gen.foreign.steps import Step, prepare


@dataclass
class Report:
    """What the launches of a file came to, and where their results are not as expected."""

    outcome: Outcome
    mismatches: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)  # buffers

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain about."""
        return self.outcome.ok and not self.mismatches


def check(text: str, name: str, launches: Sequence[LaunchText], checks: Checks) -> Report:
    """Runs launches of a file under checks, and compares what they leave with what is expected.

    Raises UsageError, CompileError, and CheckError for what the emulator does not support.
    """
    steps = prepare(text, name, launches)
    outcome = run_steps(steps, checks)
    report = Report(outcome)
    if outcome.stopped:
        return report
    for step in steps:
        for buffer, want in _expected(step, outcome):
            report.compared.append(buffer)
            kind = outcome.types[buffer]
            tolerance = _tolerance(step.text.tolerance, kind)
            message = difference(outcome.arrays[buffer], want, kind, tolerance)
            if message:
                report.mismatches.append(f"{buffer}{message}")
    return report


def _tolerance(text: str | None, kind: str) -> float:
    if text is None:
        return elements.TOLERANCE.get(kind, 0.0)
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise UsageError(f"--tolerance {text} is not a number from 0, such as 1e-5")
    return tolerance


def _expected(step: Step, outcome: Outcome) -> Iterator[tuple[str, np.ndarray]]:
    """Buffers, and what they should hold, as numbers."""
    for text in step.text.expect:
        name, equals, path = text.partition("=")
        if not equals or name not in outcome.arrays:
            known = ", ".join(outcome.arrays) or "none"
            raise UsageError(
                f"--expect {text} is not BUFFER=FILE.npy with a buffer of the launch: {known}"
            )
        kind = outcome.types[name]
        yield name, elements.values(load(Path(path), kind), kind)
    if step.text.reference:
        yield from _from_reference(step, outcome).items()


def _from_reference(step: Step, outcome: Outcome) -> Mapping[str, np.ndarray]:
    reference = step.text.reference
    assert reference is not None
    function = find_function(reference)
    texts = parse_pairs(step.text.arg)
    nothing = {name: None for name, text in texts.items() if is_null(text)}
    given: dict[str, Any] = {**outcome.before, **all_numbers(texts), **nothing}
    named = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in named.values()):
        lacking = [p for p, v in named.items() if p not in given and v.default is v.empty]
        if lacking:
            raise UsageError(
                f"--reference {reference} wants {', '.join(lacking)}; the launch has "
                f"{', '.join(given)}"
            )
        given = {name: given[name] for name in named if name in given}
    try:
        found = function(**given)
    except Exception as error:  # whatever a user's function may raise
        raise CheckError(
            f"--reference {reference} raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(found, Mapping):
        wrong = [name for name in found if name not in outcome.arrays]
        if wrong:
            raise UsageError(
                f"--reference {reference} returned {', '.join(wrong)}, which are no buffers of "
                f"the launch: {', '.join(outcome.arrays)}"
            )
        return {name: np.asarray(value) for name, value in found.items()}
    changed = outcome.changed
    if len(changed) != 1:
        raise UsageError(
            f"--reference {reference} returned one array, but the launch has changed "
            f"{', '.join(changed) or 'none'}; return a dict of arrays by name"
        )
    return {changed[0]: np.asarray(found)}


def all_numbers(texts: Mapping[str, str]) -> dict[str, Any]:
    """The numbers among arguments: integers, and others."""
    found: dict[str, Any] = dict(numbers_of(texts))
    for name, text in texts.items():
        kind, _, value = text.rpartition(":")
        if name not in found and kind in ("", *elements.NAMES):
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found


def find_function(text: str) -> Callable[..., Any]:
    """The function `module:function` or `FILE.py:function`. Raises UsageError."""
    module, colon, name = text.rpartition(":")
    if not colon:
        raise UsageError(f"--reference {text} is not module:function, such as refs:scale")
    try:
        if module.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(module).stem, module)
            assert spec is not None
            assert spec.loader is not None
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
        else:
            if "" not in sys.path:
                sys.path.insert(0, "")
            loaded = importlib.import_module(module)
        function: Callable[..., Any] = getattr(loaded, name)
    except (ImportError, OSError, AttributeError) as error:
        raise UsageError(f"--reference {text} cannot be imported: {error}") from None
    return function


def difference(got: np.ndarray, want: np.ndarray, kind: str, tolerance: float) -> str:
    """How an array differs from what is expected; nothing where it does not.

    Floats may differ by `tolerance` of the largest magnitude that is expected.
    """
    if got.size != want.size:
        return f" has {got.size} elements, {want.size} are expected"
    want = want.reshape(got.shape)
    if kind in elements.FLOATS:
        with np.errstate(all="ignore"):
            left, right = got.astype(np.float64), want.astype(np.float64)
            largest = np.max(np.abs(right[np.isfinite(right)]), initial=0.0)
            good = np.abs(left - right) <= tolerance * largest
            good |= (left == right) | (np.isnan(left) & np.isnan(right))
    else:
        good = got == want
    if good.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    place = ", ".join(map(str, at))
    return (
        f"[{place}] is {_shown(got[at])}, expected is {_shown(want[at])}; "
        f"{np.count_nonzero(~good)} of {got.size} elements differ"
    )


def _shown(number: Any) -> str:
    """An element, of integers with all digits."""
    return f"{number:.9g}" if np.asarray(number).dtype.kind == "f" else str(number)
