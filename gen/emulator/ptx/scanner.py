"""A place in PTX text, and how to move on from it."""

from __future__ import annotations

import re

from gen.errors import PtxError


class Scanner:
    """Reads a module from front to back; `at` is the place in its text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def space(self) -> bool:
        """Skip white space and stray semicolons; True while text is left."""
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n;":
            self.at += 1
        return self.at < len(self.text)

    def until(self, end: str) -> str:
        """The text before the next `end`, which is consumed."""
        stop = self.text.find(end, self.at)
        if stop < 0:
            rest = " ".join(self.text[self.at : self.at + 60].split())
            raise PtxError(f"truncated PTX: no '{end}' after '{rest}'; compile the kernel again")
        piece, self.at = self.text[self.at : stop], stop + 1
        return piece

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def braces(self) -> None:
        """Skip to the end of a `{ ... }` whose opening brace was consumed."""
        depth = 1
        while depth:
            match = re.compile(r"[^{}]*([{}])").match(self.text, self.at)
            if not match:
                raise PtxError("truncated PTX: a '{' is never closed; compile the kernel again")
            depth += 1 if match[1] == "{" else -1
            self.at = match.end()
