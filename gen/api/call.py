"""The arrays of a call, what a kernel wants of them, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gen.api.views import Extent, View, overlap
from gen.errors import SpecError
from gen.spec.dtypes import DTypes
from gen.spec.kernel import EPILOGUES
from gen.spec.problem import GemmProblem, Layouts


class Arguments(NamedTuple):
    """The arrays of a call."""

    a: View
    b: View
    c: View | None
    out: View | None
    bias: View | None


A, B, C, RESULT, BIAS = range(len(Arguments._fields))  # their places


class Wanted(NamedTuple):
    """What a kernel fixes beforehand: element types and orders, if it does; whether it has a bias.

    `epilogue` is only for messages. `batched`: whether it may take batches. `grouped`: the tunable
    by which it takes groups, or ""; None where that is the call's matter.
    """

    dtype: str | None
    layouts: Layouts | None
    epilogue: str
    batched: bool = True
    grouped: str | None = None

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds a bias."""
        return self.epilogue in EPILOGUES and "bias" in self.epilogue


@dataclass(frozen=True)
class Call:
    """What a call computes: `problem` in `layouts`, with the result's shape as the caller sees it.

    `inputs` are what the result must not overlap, by place in `names`; C only where it is read.
    `own`: the arrays that the user's own epilogue takes, by name. `epilogue`: its text with their
    types; None where it is another. Of a batch, `batch_shape` is its shape, without inner
    dimensions whose rows are those of one product, and `offsets` says of each launch where all of
    `names` begin, in bytes: `problem` has the products of one. `grouped`: where the products are
    groups, the tunable of kernels for them; the last of `own` is where they end.
    """

    dtypes: DTypes
    layouts: Layouts
    problem: GemmProblem
    result_shape: tuple[int, ...]
    result: Extent
    inputs: dict[int, Extent]
    own: tuple[str, ...] = ()
    epilogue: str | None = None
    batch_shape: tuple[int, ...] = ()
    offsets: tuple[tuple[int, ...], ...] = ()
    grouped: str = ""

    @property
    def empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in self.result_shape

    @property
    def names(self) -> tuple[str, ...]:
        """Of all operands, those of `Arguments` first."""
        return (*Arguments._fields, *self.own)

    @cached_property
    def _reaches(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The bytes that the result spans; of each input its place and the bytes."""
        if self.empty:
            return 0, ()
        inputs = ((which, bytes_.reach) for which, bytes_ in self.inputs.items())
        return self.result.reach, tuple(inputs)

    def check_overlap(self, out: int, addresses: tuple[int, ...]) -> None:
        """Raises SpecError where the caller's `out` shares elements with what is read.

        addresses: of A, B, C, anything, the bias, and `own`. C may be `out` itself: each of its
        elements is read before it is replaced.
        """
        reach, inputs = self._reaches
        end = out + reach
        for which, length in inputs:
            at = addresses[which]
            if at < end and out < at + length:  # their spans overlap: maybe not their lines
                self._check_lines(out, which, at)

    def _check_lines(self, out: int, which: int, at: int) -> None:
        bytes_ = self.inputs[which]
        same = which == C and at == out and bytes_ == self.result
        if not same and overlap(out, self.result, at, bytes_):
            name = self.names[which]
            raise SpecError(
                f"out overlaps {label(name) if which <= BIAS else name}, which is read while out "
                "is written; pass another out" + (", or c itself" if which == C else "")
            )


def label(name: str) -> str:
    return name.upper() if len(name) == 1 else name
