"""What no call reaches of an edited launcher, and calls made of the numbers that it names."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gen.kernels.launches import WORKSPACE
from gen.prove.edits import Edited
from gen.prove.launchers.call import ADDRESSES, Call, with_own
from gen.prove.launchers.program import Host, NotCompiledError, Program
from gen.prove.probes import Instrumented, complaint, instrument, is_constant
from gen.prove.reaching import values
from gen.prove.unreached import (
    HEADER,
    RefusedError,
    Unreached,
    header,
    host_begins,
    instrumented_text,
    settle,
)
from gen.source.render import Source
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmProblem, GemmShape

_LINES = ("lda", "ldb", "ldc", "ldd")
_MULTIPROCESSORS = 1000  # more than any GPU has


def unreached_by(
    source: Source, edited: Edited, tried: Sequence[Call]
) -> tuple[list[Unreached], list[int]]:
    """What is left of the conditions of a launcher's edited statements after all calls.

    Then the lines whose conditions the compiler takes no probes in.
    """

    def run(instrumented: Instrumented) -> dict[int, int]:
        host = Host.plain(source).including(instrumented_text(instrumented), HEADER, header())
        with tempfile.TemporaryDirectory() as folder:
            try:
                program = Program(host, Path(folder))
            except NotCompiledError as error:
                name = re.escape(source.filename)
                lines = re.findall(rf"^{name}:(\d+):", error.log, re.MULTILINE)
                raise RefusedError(lines) from None
            program.run(tried)
            return program.seen

    some = instrument(edited, host_begins(source.text), on_host=True)
    seen, some, skipped = settle(some, run)
    left = [
        Unreached(probe.line, f"{message} in {len(tried)} calls of the launcher", True)
        for probe in some.probes
        if not is_constant(probe)
        and (message := complaint(probe, (seen or {}).get(probe.number, 0)))
    ]
    return list(dict.fromkeys(left)), skipped


def numbered_calls(spec: KernelSpec, literals: Sequence[str]) -> Iterator[Call]:
    """Calls with each number that is named as something that a launcher may look at."""
    return (with_own(spec, call) for call in _numbered(spec, literals))


def _numbered(spec: KernelSpec, literals: Sequence[str]) -> Iterator[Call]:
    """With each number as a size, a leading dimension, alpha, beta, and what a GPU has."""
    numbers = values(literals)
    whole = [int(n) for n in numbers if n == int(n) and 0 < n < 2**44]
    near = list(dict.fromkeys(n + more for n in whole for more in (0, 1, -1)))
    tile = spec.threadblock
    for n in near:
        for axis in range(3):
            yield from _sized(spec, axis, n)
            yield from _sized(spec, axis, (n + 1) * tile[axis])
    small = GemmProblem.packed(GemmShape(3, 5, 6), spec.layouts, 2, -1)
    good = Call(small)
    for n, names in itertools.product(near, (_LINES, *((name,) for name in _LINES))):
        longer: dict[str, Any] = dict.fromkeys(names, n)
        yield replace(good, problem=replace(small, **longer))
    for n in near:
        if n <= _MULTIPROCESSORS:
            for shape in (GemmShape(3, 5, 6), GemmShape(2000, 3000, 64)):
                packed = GemmProblem.packed(shape, spec.layouts, 2, -1)
                yield Call(packed, multiprocessors=n)
        yield replace(good, workspace=ADDRESSES[WORKSPACE] + n)
        yield replace(good, workspace_bytes=n)
    for x in (sign * n for n in numbers for sign in (1, -1)):
        if spec.dtypes.scalar.is_float or (x == int(x) and -(2**31) <= x < 2**31):
            for alpha, beta in ((x, -1), (2, x), (x, x)):
                yield replace(good, problem=replace(small, alpha=alpha, beta=beta))
    for one, other in itertools.permutations(whole, 2):
        for shape in (GemmShape(one, other, 6), GemmShape(3, one, other), GemmShape(one, 5, other)):
            packed = GemmProblem.packed(shape, spec.layouts, 2, -1)
            yield Call(packed)
            longer = {name: max(one, other, getattr(packed, name)) for name in _LINES}
            yield Call(replace(packed, **longer))


def _sized(spec: KernelSpec, axis: int, size: int) -> Iterator[Call]:
    for shape in ([3, 5, 6], [size] * 3):
        shape[axis] = size
        if size > 0:
            for multiple in (1, 16):
                problem = GemmProblem.packed(GemmShape(*shape), spec.layouts, 2, -1, 0, multiple)
                yield Call(problem)
