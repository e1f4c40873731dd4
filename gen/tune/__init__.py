"""`gen tune`, and `gen sweep`: one kernel after another over the values of its tunables.

- `search`: which kernel is the fastest for a problem: the model's first ones, measured.
- `outcomes`: its candidates for a problem, and their times.
- `keeper`: keeps its times.
- `axes`: which kernels a sweep runs on which shapes.
- `results`: what it found, a benchmark file with one field more.
- `meters`: what finds it, a GPU's clock or the emulator's counters.
- `tables`: the answers: a matrix per kernel, the best per shape, the speed-up.
"""
