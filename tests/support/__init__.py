"""What several tests use: small kernels, compilers, a browser, a stand-in for PyTorch, branches."""
