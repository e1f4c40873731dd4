"""`simt`, the best kernel on CUDA cores: its row in `rows`, what follows from its tunables in
`geometry`, the `rules` among these.

As on tensor cores, threadblock.m counts rows of the left operand, threadblock.n columns of the
right one; where D is column-major, its transpose is computed.
"""
