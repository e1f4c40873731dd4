"""The guide's programs."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jax")

from tests.docs.pages import ROOT, blocks


def test_its_blocks_run_as_one_program() -> None:
    text = (ROOT / "docs/jax.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for language, content, _ in blocks(text):
        if language == "python":
            exec(compile(content, "docs/jax.md", "exec"), names)
