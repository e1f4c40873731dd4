"""What an operator is."""

from __future__ import annotations

# A name, a pattern, replacements: every match in a line of code is a mutant for each replacement.
Operators = tuple[tuple[str, str, tuple[str, ...]], ...]
