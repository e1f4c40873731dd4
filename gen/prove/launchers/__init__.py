"""Launchers without a GPU: what they queue, and what they refuse.

- `check`: an emitted file's launcher, compiled and tried.
- `call`, `calls`, `batches`, `refusals`: what a launcher is called with.
- `contract`: what it has to do then; `program`: the compiled host's side, and its replies.
- `reaching`: calls that reach conditions of edited lines.
"""
