"""Kernels that gen did not emit: their source, arguments, launch and references.

A file is split into declarations (`scan`), what is on the host's side is left out (`prepare`), and
the rest is compiled (`build`), without what the compiler refuses and no kernel needs (`mend`). A
launch (`launch`) names the kernel, grid, block and arguments (`arguments`); with its compiled
kernel it is a step (`steps`), which is run (`running`; from Python by `emulate`). `check` and
`gemm` (with `roles`) compare what comes out, `count` counts.
"""
