"""`gen doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from gen.cli.options import JSON
from gen.cli.tables import as_json, table
from gen.doctor import examine


def doctor(json: Annotated[bool, JSON] = False) -> None:
    found = examine()
    missing = any(check.status == "MISSING" for check in found)
    if json:
        as_json({"ok": not missing, "checks": [asdict(check) for check in found]})
    else:
        table(("", "status", "found"), [(c.name, c.status, c.found) for c in found])
        for check in found:
            if check.fix:
                print(f"{check.name}: {check.fix}")
    if missing:
        raise typer.Exit(3)
