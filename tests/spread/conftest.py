"""A cluster for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Machines, machines


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two workers that are watched by a nanny, as `dask worker` starts them."""
    with machines(tmp_path_factory.mktemp("cluster"), 1, "--nworkers", "2") as found:
        yield found
