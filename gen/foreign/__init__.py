"""Kernels that gen did not emit: their source, arguments, launch and references.

A file is split into declarations (`scan`), what is on the host's side is left out (`prepare`), and
the rest is compiled (`build`), without what the compiler refuses and no kernel needs (`mend`); what
it warns of is told (`warned`). A launch (`launch`) names the kernel, grid, block and arguments
(`arguments`): `buffers`, numbers, `tensor_maps`, and `variables` of the file, which `symbols` sets.
With its compiled kernel it is a step (`steps`), which is run (`running`; from Python by `emulate`).
`check` (with `references`) and `gemm` (with `roles`) compare what comes out, `count` counts.
"""
