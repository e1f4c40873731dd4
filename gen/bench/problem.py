"""A problem to measure: a shape with types and layouts, and who takes part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from gen.bench.contenders import Contender
from gen.bench.results import Row
from gen.spec.dtypes import DTypes
from gen.spec.problem import GemmShape, Layouts


@dataclass(frozen=True)
class Problem:
    """A shape with types and layouts, and who takes part."""

    dtypes: DTypes
    layouts: Layouts
    shape: GemmShape
    contenders: Sequence[Contender] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.dtypes.name} {self.layouts} {self.shape}"

    def row(self, contender: Contender) -> Row:
        """The contender's row before anything is measured."""
        spec = contender.spec
        return Row(
            contender.name,
            contender.kind,
            self.dtypes.name,
            str(self.layouts),
            str(self.shape),
            variant=spec.variant if spec else "",
            spec=json.loads(spec.to_json()) if spec else None,
        )
