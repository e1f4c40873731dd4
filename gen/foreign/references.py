"""What buffers should hold after a launch, by a Python function of the user's; how they differ."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.arguments import is_null, numbers_of, parse_pairs
from gen.foreign.running import Outcome
from gen.foreign.steps import Step

_PIECE = 1 << 22  # elements that are compared at a time


def from_reference(step: Step, outcome: Outcome) -> Mapping[str, np.ndarray]:
    """Buffers, and what the reference of a launch says that they hold. Raises UsageError."""
    reference = step.text.reference
    assert reference is not None
    function = find_function(reference)
    texts = parse_pairs(step.text.arg)
    nothing = {name: None for name, text in texts.items() if is_null(text)}
    aliases = _aliases(texts, outcome)
    others = {name: outcome.before[buffer] for name, buffer in aliases.items()}
    given: dict[str, Any] = {**outcome.before, **others, **all_numbers(texts), **nothing}
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
    except (Exception, SystemExit) as error:  # whatever a user's function may raise
        raise UsageError(
            f"--reference {reference} raised {type(error).__name__}: {error}{_line_of(error)}; "
            f"it gets {', '.join(given)}"
        ) from error
    if isinstance(found, Mapping):
        found = {aliases.get(name, name): value for name, value in found.items()}
        wrong = [str(name) for name in found if name not in outcome.arrays]
        if wrong:
            raise UsageError(
                f"--reference {reference} returned {', '.join(wrong)}, which are no buffers of "
                f"the launch: {', '.join(outcome.arrays)}"
            )
    else:
        found = {_meant(step, outcome): found}
    return {name: _as_array(value, name, reference) for name, value in found.items()}


def _aliases(texts: Mapping[str, str], outcome: Outcome) -> dict[str, str]:
    """The parameters that are buffers of other names, with these."""
    own = (pair for pair in texts.items() if pair[0] not in outcome.arrays)
    return {name: text for name, text in own if text in outcome.arrays}


def _line_of(error: BaseException) -> str:
    """Where in the user's file an error was raised, as far as that is known."""
    trace = error.__traceback__
    here = trace.tb_next if trace else None  # behind the call above
    if here is None:
        return ""
    return f" (line {here.tb_lineno} of {Path(here.tb_frame.f_code.co_filename).name})"


def _meant(step: Step, outcome: Outcome) -> str:
    """The buffer that an array without a name is about: the one that the launch writes."""
    signature = step.built.signature
    parameters = signature.parameters if signature else ()
    aliases = _aliases(parse_pairs(step.text.arg), outcome)
    own = [aliases.get(p.name, p.name) for p in parameters if p.writable]
    own = [name for name in dict.fromkeys(own) if name in outcome.arrays]
    changed = [name for name in outcome.changed if name not in outcome.variables]
    for names in ([name for name in own if name in changed], changed, own, outcome.changed):
        if len(names) == 1:
            return names[0]
    raise UsageError(
        f"--reference {step.text.reference} returned one array, but the launch has changed "
        f"{', '.join(outcome.changed) or 'no buffer'}; return a dict of arrays by name, such as "
        f"{{'{(own or list(outcome.arrays) or ['out'])[-1]}': ...}}"
    )


def _as_array(value: Any, name: str, reference: str) -> np.ndarray:
    """What a reference returned for a buffer, if these are real numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
        if array.dtype.kind == "V":  # ml_dtypes' floats
            return array.astype(np.float64)
    except (ValueError, TypeError, RuntimeError):  # such as lists of several lengths
        pass
    raise UsageError(
        f"--reference {reference} returned a {type(value).__name__} for {name}; return an array "
        "of real numbers"
    )


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
    except (Exception, SystemExit) as error:  # whatever a user's file may raise
        raise UsageError(
            f"--reference {text} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not callable(function):
        raise UsageError(f"--reference {text} is no function; name one that returns arrays")
    return function


def difference(got: np.ndarray, want: np.ndarray, kind: str, tolerance: float) -> str:
    """How an array differs from what is expected; nothing where it does not.

    Floats may differ by `tolerance` of the largest magnitude that is expected.
    """
    if got.size != want.size:
        return f" has {got.size} elements, {want.size} are expected"
    shape, got, want = got.shape, got.reshape(-1), want.reshape(-1)
    pieces = [slice(at, at + _PIECE) for at in range(0, got.size, _PIECE)]
    bound = None
    if kind in elements.FLOATS:
        bound = tolerance * max((_largest(want[piece]) for piece in pieces), default=0.0)
    count, first = 0, -1
    for piece in pieces:
        bad = ~_agree(got[piece], want[piece], bound)
        if bad.any():
            first = piece.start + int(np.argmax(bad)) if count == 0 else first
            count += int(np.count_nonzero(bad))
    if count == 0:
        return ""
    place = ", ".join(str(int(i)) for i in np.unravel_index(first, shape))
    return (
        f"[{place}] is {_shown(got[first])}, expected is {_shown(want[first])}; "
        f"{count} of {got.size} elements differ"
    )


def _largest(numbers: np.ndarray) -> float:
    """The largest finite magnitude."""
    found = np.abs(numbers.astype(np.float64))
    return float(np.max(found[np.isfinite(found)], initial=0.0))


def _agree(got: np.ndarray, want: np.ndarray, bound: float | None) -> np.ndarray:
    """Which elements agree: within a bound, which floats have, or exactly."""
    if bound is None:
        return np.asarray(got == want)
    with np.errstate(all="ignore"):
        left, right = got.astype(np.float64), want.astype(np.float64)
        return np.asarray(
            (np.abs(left - right) <= bound) | (left == right) | (np.isnan(left) & np.isnan(right))
        )


def _shown(number: Any) -> str:
    """An element, of integers with all digits."""
    return f"{number:.9g}" if np.asarray(number).dtype.kind == "f" else str(number)
