"""The kernels on tensor cores: their `rows`, the `tiles` that follow from the tunables, the `rules`
among these, the `facts` and `operands` of a launch, the `plan` that they give, and the `grid` where
the caller chooses no tile.
"""
