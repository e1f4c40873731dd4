"""The names that emitted files have already, which no kernel and no operand may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from gen.source.templates import template_dir

_NOT_CODE = re.compile(r'//.*|"[^"\n]*"|^#.*', re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z_]\w*|[(){};]")

# Of other epilogues: no expression is beside it.
_FREE = {"bias"}
_TEMPLATE_WORDS = ("frame", "parts", "kernels", "cpp")


@cache
def words_of_templates() -> frozenset[str]:
    """All names in the code of kernels and launchers."""
    found: set[str] = set()
    for folder in _TEMPLATE_WORDS:
        for path in (template_dir() / folder).glob("*.j2"):
            text = re.sub(
                r"/\*[#%].*?[#%]\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL
            )
            text = re.sub(r"//.*|%[sd]", "", text)  # comments, and where names are put together
            found.update(re.findall(r"[A-Za-z_]\w*", text))
    return frozenset(found - _FREE)


def taken(text: str, kernel: str) -> Mapping[str, str]:
    """The names that would hide a kernel, or be hidden by it, and where they are.

    These are all names of the namespace, with those that functions declare `extern`, and those in a
    function that names the kernel: its launcher. What else functions and types have is no matter.
    """
    found: dict[str, str] = {}
    depth, inner, statement = 0, [""], [""]
    for token in _TOKEN.findall(_NOT_CODE.sub("", text)):
        depth -= token in ")}"
        if token in "(){};":
            if "extern" in statement:
                found |= dict.fromkeys(statement, "the namespace")
            if depth == 1 and token in "};":  # the end of a declaration
                if kernel in inner:
                    found = {**dict.fromkeys(inner, "the launcher"), **found}
                inner = []
            statement = statement if token in "()" else []
        elif depth > 1:
            inner.append(token)
            statement.append(token)
        else:
            found[token] = "the namespace"
        depth += token in "({"
    found.pop(kernel, None)
    return found
