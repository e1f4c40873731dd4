"""The instructions: `instructions` finds an opcode's row in the `table`.

A row names the functions of `ops`, `bits` and `rounding` that compute it.
"""
