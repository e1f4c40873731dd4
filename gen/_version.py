"""The package's version, which pyproject.toml and CMake read too."""

__version__ = "0.2.0"
