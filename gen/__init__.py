"""gen: readable CUDA GEMM kernels, generated, proven with or without a GPU."""

__version__ = "0.1.0"
