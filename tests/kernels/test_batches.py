"""Batches in plans: how many launches, what is refused, and names."""

import pytest

from gen.errors import SpecError, UsageError
from gen.kernels.registry import make_spec, spec_from_json
from gen.spec.arch import MAX_GRID_YZ
from gen.spec.problem import Batch, GemmProblem, GemmShape

TILES = make_spec("tiles", batched=True)
ONE = GemmProblem.packed(GemmShape(100, 70, 60), TILES.layouts)


@pytest.mark.parametrize("count", [0, 1, 2, MAX_GRID_YZ, MAX_GRID_YZ + 1, 3 * MAX_GRID_YZ])
def test_each_product_has_a_block_along_z(count: int) -> None:
    launches = TILES.plan(ONE.batched(TILES.layouts, count)).launches
    found = [int(one.args["first"]) + z for one in launches for z in (0, one.grid[2] - 1)]
    assert sum(one.grid[2] for one in launches) == count
    assert found == sorted(found)
    assert all(one.grid[2] <= MAX_GRID_YZ for one in launches)
    assert found[:1] + found[-1:] == ([0, count - 1] if count else [])


def test_a_flag_is_said_where_it_is_set() -> None:
    plain = make_spec("tiles")
    assert TILES.name == f"{plain.name}_batched"
    assert TILES.command == f"{plain.command} --batched"
    assert "batched" not in plain.to_json()
    assert spec_from_json(TILES.to_json()) == TILES == make_spec("tiles", batched="true")
    with pytest.raises(UsageError, match="batched: 'maybe' is not true or false"):
        make_spec("tiles", batched="maybe")


@pytest.mark.parametrize(
    ("ldd", "stride", "apart"),
    [
        (70, 7000, True),
        (70, 6999, False),
        (75, 99 * 75 + 70, True),
        (75, 99 * 75 + 69, False),
        (210, 70, True),  # three side by side
        (209, 70, False),
        (210, 69, False),
        (70, 0, False),
        (70, -7000, False),
    ],
)
def test_results_do_not_overlap(ldd: int, stride: int, apart: bool) -> None:
    batch = Batch(3, stride_d=stride)
    problem = GemmProblem(ONE.shape, 60, 70, 70, ldd, batch=batch)
    alone = GemmProblem(ONE.shape, 60, 70, 70, ldd, batch=batch._replace(products=1))
    assert len(TILES.plan(alone).launches) == 1
    if apart:
        assert len(TILES.plan(problem).launches) == 1
    else:
        with pytest.raises(SpecError, match=f"with stride_d={stride} and ldd={ldd}, products of D"):
            TILES.plan(problem)


def test_a_kernel_for_one_product_takes_no_batch() -> None:
    with pytest.raises(SpecError, match="takes one product, not 3; use one that is batched"):
        make_spec("tiles").plan(ONE.batched(TILES.layouts, 3))
