"""A figure with what is said about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gen.report import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure, what it is called in file names, and what to say below it."""

    name: str
    caption: str
    figure: Figure

    @property
    def width(self) -> str:
        """How much of a page it gets."""
        inches = self.figure.get_figwidth()
        return "third" if inches <= theme.THIRD else "half" if inches <= theme.HALF else "full"


def file_name(*words: str) -> str:
    """Words as the name of a file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
