"""Which way the branches of templates go, while files are rendered.

Every condition of a template (`/*% if %*/`, `/*% elif %*/`, `a if b else c`, `for a in b if c`) is
wrapped in a filter that notes its value. Nothing in the templates shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

from jinja2 import Environment, nodes

from gen.source import templates as rendering


class Branch(NamedTuple):
    """One side of a condition, the `nth` of its template."""

    template: str
    line: int
    nth: int
    taken: bool


class Branches:
    """The conditions of all templates that were loaded, and which ways they went."""

    def __init__(self) -> None:
        self.known: set[Branch] = set()
        self.seen: set[Branch] = set()
        self._sources: dict[str, list[str]] = {}

    def source(self, branch: Branch) -> str:
        """The line of the template."""
        return self._sources[branch.template][branch.line - 1].strip()

    def note(self, value: object, template: str, line: int, nth: int) -> object:
        """The filter."""
        self.seen.add(Branch(template, line, nth, bool(value)))
        return value

    def wrap(self, tree: nodes.Template, source: str, name: str, environment: Environment) -> None:
        """Wraps the conditions of a template, which is parsed already."""
        self._sources[name] = source.splitlines()
        for nth, node in enumerate(list(tree.find_all((nodes.If, nodes.CondExpr, nodes.For)))):
            if node.test is None:  # a loop over all
                continue
            place = (name, node.lineno, nth)
            self.known |= {Branch(*place, taken) for taken in (False, True)}
            node.test = nodes.Filter(
                node.test, "note", [nodes.Const(part) for part in place], [], None, None,
                lineno=node.lineno, environment=environment,
            )  # fmt: skip


@contextmanager
def traced(templates: Sequence[str]) -> Iterator[Branches]:
    """Inside, rendering notes which ways the branches go, of these templates at least."""
    branches, environment = Branches(), rendering._environment.__wrapped__()
    environment.bytecode_cache = None  # the others' templates note nothing
    parse = environment._parse

    def parse_and_wrap(source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = parse(source, name, filename)
        if name:
            branches.wrap(tree, source, name, environment)
        return tree

    environment._parse = parse_and_wrap
    environment.filters["note"] = branches.note
    for template in templates:
        environment.get_template(template)
    with mock.patch.object(rendering, "_environment", return_value=environment):
        yield branches
