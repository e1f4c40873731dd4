"""What a worker of Dask loads first, with --preload, to have a pretended GPU."""

from tests.support.pretended import in_this_process

in_this_process()
