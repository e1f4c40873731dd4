"""The kernels on tensor cores: their `rows`, the `tiles` that follow from the tunables, the `rules`
among these, the `plan` of launches, and the `candidates` where the caller chooses no tile.
"""
