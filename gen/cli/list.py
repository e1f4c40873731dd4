"""`gen list`."""

from __future__ import annotations

from typing import Annotated

import typer

from gen.cli import list_table
from gen.cli.options import JSON
from gen.cli.tables import as_json
from gen.kernels.registry import VARIANTS, get_variant


def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A kernel, to see all about it.")
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    rows = [get_variant(name)] if name else list(VARIANTS.values())
    if json:
        as_json([list_table.variant_fields(row) for row in rows])
    elif name:
        list_table.variant(rows[0])
    else:
        list_table.variants(rows)
