"""How long a launch may take."""

from __future__ import annotations

import math
import time


class TimeLimit:
    """A number of seconds, and a time when all has to end; None: no limit.

    seconds: of this thread's CPU time, so that other work of the machine ends no launch. deadline:
    as time.perf_counter gives it.
    """

    def __init__(self, seconds: float | None = None, deadline: float | None = None) -> None:
        self._seconds = seconds
        self._ends = math.inf if seconds is None else time.thread_time() + seconds
        self._deadline = math.inf if deadline is None else deadline
        self._look = -math.inf  # until then nothing can be late: no thread outruns the clock

    def shorten(self, seconds: float) -> None:
        """At most so many seconds of CPU time are left from now on."""
        if time.thread_time() + seconds < self._ends:
            self._seconds, self._ends = seconds, time.thread_time() + seconds
            self._look = -math.inf

    def late(self) -> str:
        """What a message says, with the `{line}` it has come to, where a launch takes too long."""
        now = time.perf_counter()
        if now < self._look:
            return ""
        if now > self._deadline:
            return "was still running{line} when the time was up"
        left = self._ends - time.thread_time()
        if left <= 0:
            most = f"ran longer than {self._seconds:g} seconds"
            return most + "{line}; it may not end, or raise time_budget"
        self._look = min(now + left, self._deadline)
        return ""
