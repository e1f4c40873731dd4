"""The kernels on CUDA cores: their `rows`, what follows from their tunables (`geometry`, and
`register_tiles` where threads hold a tile of D in registers), and the `rules` among these.
"""
