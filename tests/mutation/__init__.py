"""Kernels with one small mistake each: does `gen check` notice? `run` is the script."""
