"""The kernels there are: a row of the `registry` for each, what may be chosen of it (`tunables`),
and the plan of its launches (`launches`).

`cuda_cores/` and `tensor_cores/` hold the rows.
"""
