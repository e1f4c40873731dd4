"""What docs/which-kernel.md says to take exists, as it stands there."""

import re

import pytest

from gen.cli import main
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "which-kernel.md").read_text(encoding="utf-8")


def tiles() -> list[str]:
    """The options in the rows of each table under "`VARIANT` with", one string for each row."""
    found = []
    for variant, table in re.findall(r"^\|[^|\n]*\| `(\w+)` with \|.*\n((?:\|.*\n)+)", PAGE, re.M):
        for row in table.splitlines()[1:]:
            options = re.findall(r"`(-[^`]*)`", row)
            assert options, row
            found.append(" ".join((f"--variant {variant}", *options)))
    return found


def test_there_are_three_tables() -> None:
    assert {options.split()[1] for options in tiles()} == {"mma", "mma_tma", "wgmma"}
    assert len(tiles()) > 10


@pytest.mark.parametrize("options", tiles())
def test_a_row_is_not_refused(options: str) -> None:
    """A row with no element types of its own is for both that have accumulators in f32."""
    for dtype in [""] if "--dtype" in options else ["--dtype f16", "--dtype f16_f32"]:
        assert main(["emit", "--dry-run", *options.split(), *dtype.split()]) == 0


def test_the_commands_of_the_first_table_are_not_refused() -> None:
    (table,) = re.findall(r"^\| you have .*\n((?:\|.*\n)+)", PAGE, re.M)
    commands = re.findall(r"`(mma --[^`]*)`", table)
    assert commands
    for command in commands:
        assert main(["emit", "--dry-run", "--variant", *command.split()]) == 0
