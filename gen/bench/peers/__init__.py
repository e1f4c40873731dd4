"""What our kernels are measured beside: cuBLAS, CUTLASS 2.x and 3.x, PyTorch, Triton."""
