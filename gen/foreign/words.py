"""Findings in the words of compute-sanitizer, where it has words for them."""

from __future__ import annotations

import re

from gen.emulator import Finding

_ACCESS = re.compile(
    r"(?P<space>\w+) (?P<what>.+?) of (?P<size>\d+) bytes at (?P<name>.+?)(?P<at>[+-]\d+) of "
    r"(?P<total>\d+)(?P<more>.*?) is (?P<how>out of bounds|misaligned), by (?P<count>\d+) threads?$"
)
_RACE = re.compile(
    r"(?P<one>.+?) of \d+ bytes at (?P<where>.+?) races with the (?P<two>.+?) "
    r"\((?P<kind>\w+)\)(?P<rest>.*)$"
)
_UNDEFINED = re.compile(r"load of (?P<size>\d+) bytes at (?P<where>.+), which was never written$")
_WILD = re.compile(
    r"(?P<space>\w+) (?P<what>.+?) of (?P<size>\d+) bytes at (?P<at>0x[0-9a-f]+|shared memory of "
    r"block \d+ of a cluster of \d+) is out of bounds, by (?P<count>\d+) threads?$"
)
_VERBS = {"load": "read", "store": "write", "atomic access": "atomic"}


def sentence(finding: Finding) -> str:
    """What a finding says."""
    message = finding.message
    if match := _ACCESS.match(message):
        return _access(match)
    if match := _WILD.match(message):
        verb = _VERBS.get(match["what"], match["what"])
        null = ", a null pointer" if re.match(r"0x\w{1,3}$", match["at"]) else ""
        by = "" if match["count"] == "1" else f", by {match['count']} threads"
        access = f"Invalid __{match['space']}__ {verb} of size {match['size']} bytes"
        return f"{access} at {match['at']} is out of bounds{null}{by}"
    if message.startswith("barrier reached by"):
        return f"Barrier error detected. Divergent thread(s) in block: {message}"
    if match := _RACE.match(message):
        words = {"WAW": "write-after-write", "RAW": "read-after-write", "WAR": "write-after-read"}
        hazard = f"{words.get(match['kind'], match['kind'])} hazard ({match['kind']})"
        space = "__shared__" if match["where"].startswith("shared") else "__global__"
        return (
            f"Race reported at {space} {match['where']}: {match['one']} races with the "
            f"{match['two']}, {hazard}{match['rest']}"
        )
    if match := _UNDEFINED.match(message):
        space = "__shared__" if match["where"].startswith("shared") else "__global__"
        return (
            f"Uninitialized {space} memory read of size {match['size']} bytes at {match['where']}"
        )
    return message


def _access(match: re.Match[str]) -> str:
    at, total, size = int(match["at"]), int(match["total"]), int(match["size"])
    verb = _VERBS.get(match["what"], match["what"])
    text = f"Invalid __{match['space']}__ {verb} of size {size} bytes at {match['name']}{at:+d}"
    by = "" if match["count"] == "1" else f", by {match['count']} threads"
    if "global memory" in match["more"]:
        return f"{text}{match['more'].rstrip(',')}{by}"
    if "freed" in match["more"]:
        return f"{text}, which has been freed{by}"
    if match["how"] == "misaligned":
        return f"{text} is misaligned{by}"
    if match["space"] == "shared":
        block = match["more"] if "cluster" in match["more"] else ""
        return f"{text}{block} is out of bounds: the block has {total} bytes{by}"
    if at < 0:
        where = f"{-at} bytes before"
    elif at >= total:
        where = f"{at - total + 1} bytes after"
    else:
        where = f"{at + size - total} bytes over the end of"
    # compute-sanitizer counts the first byte behind an allocation as one byte after it.
    near = f"the nearest allocation {match['name']} of {total} bytes"
    return f"{text} is out of bounds, {where} {near}{by}"
