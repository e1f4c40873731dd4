"""From source to machine code: NVRTC, its log, the cache on disk; nvcc for peers; SASS to read."""
