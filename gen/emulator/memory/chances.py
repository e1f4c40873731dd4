"""What no kernel is promised, and may be one way or another on a GPU."""

from __future__ import annotations

from typing import NamedTuple

TRIES = 1100  # how often in vain a late wait is tried: more than a thousand


class Chances(NamedTuple):
    """How a launch has it.

    odd_places: whether variables lie as nobody expects them to: static ones in reverse order, so
    that another one has nothing behind it; dynamic shared memory at an odd multiple of the
    alignment that its declaration asks for, and not at the beginning. zeroed: whether shared memory
    starts as zeros, not as ones, which are NaN to whoever takes them for numbers, but no flag that
    nobody has set. last_first: whether blocks start one by one from the last one on: those that
    wait for an earlier one have to wait. late: whether all that is waited for comes late, so that a
    wait is tried TRIES times in vain: whoever does not wait for long, or looks only once, goes on
    without it.
    """

    odd_places: bool = False
    zeroed: bool = False
    last_first: bool = False
    late: bool = False
