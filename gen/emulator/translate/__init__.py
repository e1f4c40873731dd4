"""PTX to numpy: basic `blocks` become Python functions, of which a `program` is made.

`block` writes the `lines` of one: `compute`, `memory`, `mbarrier` and `bulk` know the instructions.
"""
