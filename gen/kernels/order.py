"""The order in which a kernel adds up products: two kernels with the same one give the same bits.

What an element of D is, to the bit, follows from the chain of its sums: which elements of K an
instruction adds up at a time, in which order these sums come together, and how many pieces K has.
None of that is a matter of the tile's rows and columns, of stages, schedules or copies, nor of
clusters that share operands.
"""

from __future__ import annotations

from typing import NamedTuple

from gen.errors import SpecError
from gen.spec.kernel import KernelSpec


class Order(NamedTuple):
    """Of a kernel whose sums depend on nothing but N, K and its specification.

    variant: kernels of different rows round what follows the sums in ways of their own. step,
    instruction: elements along K of a work tile, and of an instruction, 0 where there is none.
    slices: pieces of K, at most, that begin at multiples of the step. blocks: of a cluster, that
    have such pieces, too. teams: of warps, that share each step, or take turns, of `slab` elements
    where that is not 0. promote: the elements after which sums are promoted, or 0.
    """

    variant: str
    step: int
    instruction: int
    slices: int
    blocks: int
    teams: int
    slab: int
    promote: int

    def __str__(self) -> str:
        pieces = [f"{self.variant}, steps of {self.step}"]
        if self.slices > 1:
            pieces.append(f"{self.slices} slices")
        if self.blocks > 1:
            pieces.append(f"{self.blocks} blocks of a cluster")
        if self.teams > 1:
            pieces.append(f"{self.teams} teams of warps")
        return ", ".join(pieces)


# Sums of integers are the same in any order: they wrap at 2^32.
EXACT = Order("any kernel", 1, 0, 1, 1, 1, 0, 0)


def order_of(spec: KernelSpec) -> Order | None:
    """The order of a kernel's sums; None where M, or where operands lie, has a part in it."""
    if not spec.dtypes.accumulator.is_float:
        return EXACT
    if _obstacle(spec):
        return None
    g, instruction = spec.geometry, spec.instruction
    return Order(
        spec.variant,
        spec.threadblock.k,
        instruction.k if instruction else 0,
        spec.split_k,
        spec.cluster_k,
        max(g.teams, spec.sliced_k),
        g.slab,
        int(spec.tunables.get("promote", 0)),
    )


def check_invariant(spec: KernelSpec) -> None:
    """Raises SpecError for a kernel of whose sums M, or where operands lie, has a part."""
    obstacle = _obstacle(spec)
    if obstacle and order_of(spec) is None:
        why, instead = obstacle
        raise SpecError(
            f"a row of D would depend on the number of rows (invariant='rows'): {why}; use "
            f"{instead}, or leave out invariant"
        )


def _obstacle(spec: KernelSpec) -> tuple[str, str] | None:
    """Why there is no order, and what to use instead."""
    if spec.split_k == 0:
        return "split_k=auto takes as many slices as tiles leave room for", "split_k=1 or 2"
    if spec.stream_k:
        return "stream_k=1 shares those tiles along K that are left", "stream_k=0"
    if spec.row.adds_as_aligned:
        return f"the lanes of {spec.variant} add up what alignment lets them read", "variant=auto"
    return None
