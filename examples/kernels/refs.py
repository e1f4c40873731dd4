def total(**buffers):
    return {"out": buffers["in"].reshape(2, 128).sum(axis=1)}
