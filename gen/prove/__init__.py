"""Proofs: `verify` compares results with the `oracle` and with CUTLASS.

`check` runs a kernel under all checks, on the shapes that reach its corners.
"""
