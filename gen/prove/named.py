"""Problems that somebody names for `gen check`: `5x7x5000,alpha=0.3,lda=8192`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from gen.errors import UsageError
from gen.prove.limits import emulated
from gen.prove.trials import PACKED, Trial, trial
from gen.spec.kernel import KernelSpec
from gen.spec.problem import parse_shape

_LINES = ("lda", "ldb", "ldc", "ldd")


def named_trial(spec: KernelSpec, text: str) -> Trial:
    """The trial of a problem in words: a shape, then alpha, beta, and leading dimensions if any.

    Lines follow each other where nothing is said, alpha is 3 and beta -2. Raises UsageError.
    """
    size, *words = text.split(",")
    shape = parse_shape(size)
    emulated([shape])
    scalars, lines = {"alpha": 3.0, "beta": -2.0}, dict[str, Any]()
    names = [word.partition("=")[0] for word in words]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"'{text}' has {twice[0]} twice; leave one out")
    for word in words:
        name, _, value = word.partition("=")
        try:
            if name in scalars:
                scalars[name] = float(value)
            elif name in _LINES:
                lines[name] = int(value)
            else:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"'{word}' in '{text}' is none of alpha=X, beta=X, lda=N, ldb=N, ldc=N and ldd=N"
            ) from None
    alpha, beta = scalars["alpha"], scalars["beta"]
    whole = all(x == math.floor(x) and abs(x) < 2**20 for x in (alpha, beta) if math.isfinite(x))
    if not spec.dtypes.scalar.is_float and not (whole and math.isfinite(alpha + beta)):
        raise UsageError(f"alpha and beta of {spec.dtypes.name} are integers, not as in '{text}'")
    one = trial(spec, shape, "integer" if whole else "random", (alpha, beta), PACKED)
    for name, least in ((name, getattr(one.problem, name)) for name in lines):
        if lines[name] < least:
            raise UsageError(f"{name} in '{text}' is less than {least}, which a line has")
    return replace(one, problem=replace(one.problem, **lines))
