"""Commands on kernels that gen did not emit, with how to launch them.

- `options`: the options that say so, and what they come to.
- `emitted`: which files gen emitted, and what is said where these options do not fit.
- `command`: how a command for emitted kernels takes other files, too.
- `check`, `profile`, `run`: what it does with them.
"""
