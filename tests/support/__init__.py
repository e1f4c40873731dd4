"""What several tests use: compilers, a browser, a stand-in for PyTorch, branches of templates."""
