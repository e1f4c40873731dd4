"""A launch: the `emulator` splits the grid into chunks of blocks, which run in lockstep.

`waiting` lanes stop at `barriers` until the others have come.
"""
