"""Batches: where the matrices of products may lie, and which products a launch has.

Facts of C++, as in `gen.kernels.formulas`: launchers hold them, plans evaluate them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gen.errors import SpecError
from gen.kernels.formulas import Fact, evaluate
from gen.spec.arch import MAX_GRID_YZ
from gen.spec.problem import GemmProblem, Layouts, Several

# Of a launch whose blocks along z have a product each, from product `first` on.
MOST = Fact("most", f"{MAX_GRID_YZ}", "products of a launch: blocks of a grid along z")
PRODUCTS = Fact("products", "batch - first < most ? batch - first : most")


def launched(count: int) -> Iterator[tuple[int, int]]:
    """The first product of each launch, and how many it has."""
    for first in range(0, count, MAX_GRID_YZ):
        found = evaluate([MOST, PRODUCTS], {"batch": count, "first": first})
        yield first, found["products"]


def apart(layouts: Layouts, count: str = "batch") -> list[Fact]:
    """Whether no two products of D, `count` of them, share an element: "follow" or "beside"."""
    lines, length = ("M", "N") if layouts.c else ("N", "M")
    beside = f"stride_d >= {length} && ({count} - 1) * stride_d + {length} <= ldd"
    return [
        Fact(
            "follow", f"stride_d >= ({lines} - 1) * ldd + {length}", "one behind the other", "bool"
        ),
        Fact("beside", beside, "in the same lines", "bool"),
    ]


def check_batch(problem: GemmProblem, layouts: Layouts, several: Several) -> None:
    """Raises SpecError for products that a kernel does not take, or whose results overlap."""
    batch, shape = problem.batch, problem.shape
    count = batch.products
    if count != 1 and not several:
        raise SpecError(f"this kernel takes one product, not {count}; use one that is batched")
    if count < 0:
        raise SpecError(f"a batch of {count} products is none; use 0 or more")
    if several and "d" not in several.strided:
        return
    given = {
        "M": shape.m, "N": shape.n, "ldd": problem.ldd, "batch": count,
        "stride_d": batch.stride_d,
    }  # fmt: skip
    found = evaluate(apart(layouts), given)
    if count > 1 and shape.m and shape.n and not (found["follow"] or found["beside"]):
        raise SpecError(
            f"with stride_d={batch.stride_d} and ldd={problem.ldd}, products of D overlap; use a "
            f"stride of {problem.extent('D', layouts)} or more"
        )
