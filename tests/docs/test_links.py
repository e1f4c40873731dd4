"""Links and pictures of the pages lead somewhere, also within a page."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    text = page.read_text(encoding="utf-8")
    for _, content, _ in blocks(text):
        text = text.replace(content, "")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_reached_from_the_readme() -> None:
    """A page to which nothing leads is not read."""
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"https?:", link):
                left.append((page.parent / link).resolve())
    assert {p.resolve() for p in PAGES} - seen == set()
