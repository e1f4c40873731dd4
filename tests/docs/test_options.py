"""docs/cli.md has every option of every command, and no other."""

import re

import pytest
import typer

from gen.cli.commands import app
from gen.kernels.registry import VARIANTS
from tests.docs.pages import ROOT

TUNABLES = {
    f"--{t.name.replace('_', '-')}" for variant in VARIANTS.values() for t in variant.tunables
} | {"--operand"}
# What a page says once for all commands.
EVERYWHERE = {"-h", "--help"}
_ALL = typer.main.get_command(app).commands  # type: ignore[attr-defined]
COMMANDS = {name: lazy.whole for name, lazy in _ALL.items() if not lazy.hidden}


def section(title: str) -> str:
    """The text of a section of the page, with those below it."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section '{title}'"
    return found[1]


def options(text: str) -> set[str]:
    """The options that the first column of tables names."""
    cells = re.findall(r"^\| (`-[^|]*) \|", text, re.MULTILINE)
    return {
        option for cell in cells for option in re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", cell)
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_has_every_option(command: str) -> None:
    text = section(f"`gen {command}`")
    shown = options(text)
    if "[tunables](#tunables)" in text:
        shown |= TUNABLES
    real = {name for option in COMMANDS[command].params for name in option.opts}
    real = {name for name in real if name.startswith("-")} - EVERYWHERE
    assert shown == real


def test_the_page_has_every_command_and_tunable() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `gen (\w+)`$", page, re.MULTILINE) == list(COMMANDS)
    assert options(section("Tunables")) == TUNABLES


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_sentences(command: str) -> None:
    """Each option says what it does, in a text that ends as a sentence."""
    for option in COMMANDS[command].params:
        if option.param_type_name == "option" and option.name != "help":
            assert option.help, option.name
            assert option.help.endswith("."), f"{option.name}: {option.help}"
