"""Adds times to a table as they come; what cannot be written now is tried again later."""

from __future__ import annotations

from pathlib import Path

from gen.device.gpus import GpuModel
from gen.dispatch import folders
from gen.dispatch.table import Table, load
from gen.errors import UsageError
from gen.spec.dtypes import DTypes


class Keeper:
    """A file, or a folder, to which times of a GPU are added."""

    def __init__(self, target: Path, gpu: GpuModel) -> None:
        self._target, self._gpu, self._left = target, gpu, Table()

    def known(self, dtypes: DTypes) -> Table:
        """What has been measured of element types. Raises UsageError."""
        found = Table()
        for path in folders.Places((self._target,), strict=True).files(self._gpu, dtypes):
            found = load(path).of(self._gpu.key, dtypes.name)
        return found.merged(self._left)

    def keep(self, table: Table) -> str:
        """Adds to the table; says why that cannot be, the first time that it cannot."""
        failed = bool(self._left.entries)
        self._left = self._left.merged(table)
        try:
            self.finish()
        except UsageError as error:
            return "" if failed else str(error)
        return ""

    def finish(self) -> None:
        """Adds what is left. Raises UsageError where it cannot be written."""
        if self._left.entries:
            folders.keep(self._left, self._target)
            self._left = Table()
