"""Metadata of gemmgen-emit: gemmgen's own, with the dependencies that emitting has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # hatchling brings it


class Metadata(MetadataHookInterface):
    """Takes over what gemmgen's pyproject.toml and `gen.requirements` say."""

    def update(self, metadata: dict[str, Any]) -> None:
        checkout = Path(self.root).parents[1]
        sys.path.insert(0, str(checkout))
        from gen.requirements import EMITTING

        text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
        whole = tomllib.loads(text)["project"]
        for field in ("requires-python", "license", "keywords", "classifiers", "scripts"):
            metadata[field] = whole[field]
        metadata["dependencies"] = list(EMITTING)
