"""The tunable that all kernels have: what becomes of the sums, by name or as an expression."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from gen.errors import SpecError
from gen.kernels.tunables import Conflict, Value, Word
from gen.spec.dtypes import DTypes
from gen.spec.epilogue import no_epilogue, parse_epilogue
from gen.spec.kernel import EPILOGUES
from gen.spec.typed import PLACES


@dataclass(frozen=True)
class Expression(Word):
    """One of several words, the first of which is what `x` is, or an expression of it.

    See `gen.spec.epilogue`.
    """

    @property
    def values(self) -> str:
        """See Tunable."""
        return f"{super().values} | an expression"

    def limits(self) -> dict[str, object]:
        """See Tunable."""
        return {**super().limits(), "expression": True}

    def parse(self, value: object) -> Value:
        """See Tunable."""
        text = str(value).strip()
        if text in self.words:
            return text
        if re.fullmatch(r"[A-Za-z]\w+", text) and text not in PLACES:
            raise no_epilogue(text, self.words)
        found = str(parse_epilogue(text))
        return self.words[0] if found == "x" else found

    def in_name(self, value: Value) -> str:
        """See Tunable. An expression has 32 bits of its SHA-256 there."""
        if value in self.words:
            return super().in_name(value)
        return f"e{hashlib.sha256(str(value).encode()).hexdigest()[:8]}"


EPILOGUE = Expression(
    "epilogue", "what is applied to an accumulator before it is stored", "linear", EPILOGUES
)


def epilogue_rule(epilogue: str, dtypes: DTypes, grouped: bool = False) -> None:
    """Raises SpecError for an epilogue that the element types do not have, or that needs groups."""
    if epilogue.endswith("gelu") and epilogue in EPILOGUES and not dtypes.scalar.is_float:
        raise Conflict(
            f"epilogue={epilogue} needs sums in floating point, not {dtypes.name}", "epilogue"
        )
    if epilogue in EPILOGUES:
        return
    own = parse_epilogue(epilogue)
    if reason := own.conflict(dtypes):
        raise Conflict(reason, "epilogue")
    if reason := own.not_held(dtypes):
        raise SpecError(reason)
    if own.has_groups and not grouped:
        raise Conflict(
            f"epilogue '{own.text}' has group, and the kernel has none: it goes with grouped=true "
            "or grouped_k=true",
            "epilogue",
        )
