"""Metadata that a build makes: README.md without relative links, and the project's URLs.

hatchling runs it; pyproject.toml says where the sources are published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Code, which stays, or a link that is neither an address nor within the page.
_PART = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)|`[^`\n]+`"
    r"|(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]*)\)",
    re.MULTILINE | re.DOTALL,
)


class Metadata(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = str(self.config["repository"]).rstrip("/")
        files = f"{repository}/blob/v{metadata['version']}/" if repository else ""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, files)}
        metadata["urls"] = urls(repository, files)


def urls(repository: str, files: str) -> Mapping[str, str]:
    """The project's URLs; none where the place of the sources is not known."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{files}README.md",
        "Changelog": f"{files}CHANGELOG.md",
    }


def absolute(text: str, files: str) -> str:
    """Markdown with links to files below the address `files`; without one, with their names.

    Code stays as it is, and so do links within the page.
    """

    def link(match: re.Match[str]) -> str:
        words, path = match["words"], match["path"]
        if path is None:
            return match[0]
        if files:
            return f"{match['picture']}[{words}]({files}{path})"
        return f"{words} (`{path.partition('#')[0]}`)"

    where = "" if files else "\nThe source distribution has the files that this page names.\n"
    return _PART.sub(link, text) + where
