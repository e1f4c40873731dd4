"""Measuring kernels: `gen bench` and `gen ceiling`.

- `results`: the format in which measurements are kept; free of CUDA, so that reports can be made
  on any machine.
- `ratios`: our best kernels against the best peers.
- `suites`: named lists of shapes.
- `device`: the GPU as measuring needs it: buffers, launches, graphs, clocks.
- `contenders`: what is measured; `peers/`: what our kernels are measured beside.
- `admission`: who may be measured; `check`: no time without a right result.
- `timing`: the interleaved timer; `nvbench`: cold and batched times by NVBench.
- `problem`: a shape and who takes part; `run`: all of it together.
- `ceiling`: what the GPU could do at best, by `instructions`.
"""
