"""What is asked for, without numpy or CUDA: element types, the problem, the chosen kernel.

`dtypes`, `problem` and `arch` are words; `kernel` is a specification, complete and frozen; `names`
makes its C symbol; `numerics` has the element types as numpy sees them.
"""
