"""An emulator whose launches are all checked, for helpers that know nothing of observers."""

from __future__ import annotations

from typing import Any

from gen.emulator import (
    EarlyAccesses,
    Emulator,
    GlobalRaces,
    LaunchReport,
    MissedPhases,
    SharedRaces,
)


class Watched(Emulator):
    """Checks every launch for races."""

    def launch(self, *args: Any, **options: Any) -> LaunchReport:
        """See Emulator."""
        observers = [SharedRaces(), GlobalRaces(), EarlyAccesses(), MissedPhases()]
        return super().launch(*args, **options, observers=observers)
