"""The transformer learns the same with gen's linear layers as with PyTorch's."""

from __future__ import annotations

import re
import sys

import pytest

from tests import ROOT
from tests.support.programs import run

pytest.importorskip("torch")


def test_losses_are_pytorchs() -> None:
    said = run(sys.executable, ROOT / "examples/transformer/train.py", "--quick", cwd=ROOT)
    assert said.startswith("5 linear layers are gen's, 0 are not\n")
    (difference,) = re.findall(r"largest difference (.*)", said)
    assert float(difference) <= 1e-4
