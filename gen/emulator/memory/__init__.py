"""Global, shared and local memory, and what moves data between them: atomics, `cp.async`, bulk
copies with tensor maps, mbarriers.
"""
