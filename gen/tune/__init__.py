"""`gen sweep`: one kernel after another over the values of its tunables.

- `axes`: which kernels on which shapes.
- `results`: what was found, a benchmark file with one field more.
- `meters`: what finds it, a GPU's clock or the emulator's counters.
- `tables`: the answers: a matrix per kernel, the best per shape, the speed-up.
"""
