"""What C and C++ projects get: headers, bundles of kernels, embedded machine code, CMake files."""
