"""Where kernels run: a `Runner` on a `gpu` or `emulated`; `execute` carries out a plan on either.

`driver` calls NVIDIA's driver; `gpus` has data sheets.
"""
