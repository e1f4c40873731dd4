"""The pictures are what their script draws, and no label leaves its picture."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "pictures"
NAMES = sorted(path.stem for path in FOLDER.glob("*.svg"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """docs/pictures/draw.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("draw", FOLDER / "draw.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_drawn_by_the_script(script: ModuleType) -> None:
    assert sorted(script.PICTURES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_what_the_script_draws(script: ModuleType, name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert text == script.PICTURES[name]().svg(), "run: python docs/pictures/draw.py"


@pytest.mark.parametrize("name", NAMES)
def test_labels_stay_inside(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', text)
    assert size
    labels = re.findall(r'<text.*? x="(\S+)" y="(\S+)" text-anchor="(\w+)">(.*?)</text>', text)
    assert labels
    for x, y, at, label in labels:
        width = 0.56 * 12 * len(label)  # of sans-serif letters, on average and 12 pixels high
        left = float(x) - {"start": 0, "middle": width / 2, "end": width}[at]
        assert left >= 0, label
        assert left + width <= int(size[1]), label
        assert 12 <= float(y) <= int(size[2]), label


def test_pictures_are_small() -> None:
    assert all(Path(FOLDER, f"{name}.svg").stat().st_size < 16_000 for name in NAMES)
