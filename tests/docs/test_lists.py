"""Lists in the pages that code has, too: rooms, GPUs, suites, terms in order."""

import re

from gen.bench.suites import SUITES
from gen.device.gpus import GPUS
from gen.kernels.registry import VARIANTS
from tests.docs.pages import ROOT
from tests.docs.test_options import section
from tests.test_rooms import ORDER

DOCS = ROOT / "docs"


def first_cells(page: str) -> list[str]:
    """What stands in backquotes in the first cells of a page's tables."""
    text = (DOCS / page).read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(.*?)`", cell)]


def test_architecture_has_every_room() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert [room for room in ORDER if f"`{room}`" not in text] == []


def test_files_that_architecture_names_exist() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:gen|templates|tests|build|examples)/[^`<]*)`", text)
    assert len(names) > 30
    assert [name for name in names if not list(ROOT.glob(name))] == []


def test_commands_have_every_gpu() -> None:
    assert [name for name in GPUS if f"`{name}`" not in section("`gen profile`")] == []


def test_measuring_has_every_suite() -> None:
    assert set(SUITES) <= set(first_cells("bench.md"))


def test_which_kernel_has_every_kernel() -> None:
    text = (DOCS / "which-kernel.md").read_text(encoding="utf-8")
    assert [name for name in VARIANTS if f"`{name}" not in text] == []


def test_no_summary_is_cut_where_the_readme_shows_gen_list() -> None:
    assert [row.name for row in VARIANTS.values() if len(row.summary) > 60] == []


def test_the_glossary_is_in_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+) \| ", text, re.MULTILINE)[1:]
    keys = [re.sub(r"[`*-]", "", word).lower() for word in words]
    assert keys == sorted(keys)
