"""Observers of a launch: races, reads of undefined memory, early accesses, counters."""
