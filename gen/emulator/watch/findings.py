"""Findings: what a run did wrong, with the CUDA line, block, threads and address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from gen.emulator.memory.global_memory import Site
from gen.emulator.ptx.module import Instruction
from gen.emulator.warp.masks import Coordinates

PLAIN_WORDS = {"ld": "load", "ldu": "load", "st": "store", "cp": "cp.async", "bra": "branch"}
_CAUSES = ("trap", "memcheck", "synccheck", "racecheck", "initcheck")


@dataclass(frozen=True)
class Finding:
    """One thing a kernel did wrong, at its first occurrence.

    `block` and `threads` (a few of those involved) are (x, y, z); `file_line` is the line of the
    CUDA source, 0 if the PTX has no line information, and `source` that line's text if known. A
    race has two lines: of the later access, and as `other_line` of the earlier one. Its `threads`
    are in the same order.
    """

    check: str  # "memcheck", "synccheck", "racecheck" or "initcheck"
    kernel: str
    message: str
    file_line: int
    source: str
    block: Coordinates
    threads: tuple[Coordinates, ...]
    address: str = ""  # "A+3132 of 3072": buffer, byte offset, size in bytes
    kind: str = ""  # of a race: "RAW", "WAR" or "WAW", read after write and so on
    other_line: int = 0
    other_source: str = ""

    def as_dict(self) -> dict[str, object]:
        """The fields, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        where = f"line {self.file_line}" if self.file_line else "unknown line"
        threads = ", ".join(str(thread).replace(" ", "") for thread in self.threads)
        block = str(self.block).replace(" ", "")
        text = f"{self.check}: {self.kernel}, {where}: {self.message}; block {block}"
        text += f", threads {threads}" if threads else ""
        return text + (f": {self.source.strip()}" if self.source.strip() else "")


@dataclass
class Findings:
    """Collects findings of one launch, at most `limit`; what is left out counts as suppressed.

    There is one for each instruction and check; for those that name a second instruction, one for
    each pair of CUDA lines, since unrolled loops have the same pair many times.
    """

    kernel: str
    limit: int
    source_lines: Sequence[str] = ()
    items: list[Finding] = field(default_factory=list)
    suppressed: int = 0
    _seen: set[tuple[str, int | tuple[int, ...]]] = field(default_factory=set)

    def add(
        self, check: str, item: Instruction, message: str, block: Coordinates,
        threads: Sequence[Coordinates], address: str = "", kind: str = "",
        other: Instruction | None = None,
    ) -> None:  # fmt: skip
        """Record a finding, unless there is one like it."""
        key: tuple[str, int | tuple[int, ...]] = (check, id(item))
        if other is not None:
            lines = (item.line, other.line)
            key = (check + kind, lines if all(lines) else (id(item), id(other)))
        if key in self._seen or len(self.items) >= self.limit:
            self.suppressed += 1
            return
        self._seen.add(key)
        line, other_line = item.line, other.line if other else 0
        self.items.append(
            Finding(check, self.kernel, message, line, self._source(line), block, tuple(threads),
                    address, kind, other_line, self._source(other_line))
        )  # fmt: skip

    def ordered(self) -> list[Finding]:
        """All findings, causes before what they may have caused."""
        return sorted(self.items, key=lambda finding: _CAUSES.index(finding.check))

    def _source(self, line: int) -> str:
        return self.source_lines[line - 1] if 0 < line <= len(self.source_lines) else ""


def access_message(site: Site, what: str, address: str, lanes: int) -> str:
    """ "store of 4 bytes at D+400 of 400 is out of bounds, by 3 threads"."""
    verb = {
        "ld": "load", "ldu": "load", "st": "store", "ldmatrix": "matrix load",
        "stmatrix": "matrix store", "cp": "asynchronous copy", "mbarrier": "mbarrier operation",
        "wmma": "matrix access",
    }.get(site.item.opcode, "atomic access")  # fmt: skip
    threads = "1 thread" if lanes == 1 else f"{lanes} threads"
    space = "constant" if "const" in site.item.modifiers else site.space
    return f"{space} {verb} of {site.size} bytes at {address} is {what}, by {threads}"


def noun(site: Site) -> str:
    """What a race calls an access: "load", "bulk copy", "mbarrier.init"."""
    if "bulk" in site.item.modifiers:
        return "bulk reduction" if "reduce" in site.item.modifiers else "bulk copy"
    if "async" in site.item.modifiers and site.item.opcode != "cp":
        return f"{site.item.opcode}.async"
    if site.item.opcode in ("mbarrier", "wmma", "wgmma"):
        return ".".join(site.item.name.split(".")[:2])
    return PLAIN_WORDS.get(site.item.opcode, site.item.opcode)


def plain_name(symbol: str) -> str:
    """The C++ name of a variable in a function, without what the compiler has put around it.

    `_ZZ4gemmE4tile_0` is `tile`: names are preceded by their lengths, and the last one counts.
    """
    for length in re.finditer(r"(?<=E)\d+(?=[A-Za-z_])", symbol if symbol[:3] == "_ZZ" else ""):
        name, rest = (
            symbol[length.end() :][: int(length[0])],
            symbol[length.end() + int(length[0]) :],
        )
        if len(name) == int(length[0]) and re.fullmatch(r"(_\d+)?", rest):
            return name
    return symbol


class Sites:
    """Instructions that access memory, each with a number: records keep that."""

    def __init__(self) -> None:
        self._sites: list[Site] = []
        self._numbers: dict[Site, int] = {}

    def number(self, site: Site) -> int:
        """The instruction's own, from 0."""
        if site not in self._numbers:
            self._numbers[site] = len(self._sites)
            self._sites.append(site)
        return self._numbers[site]

    def __getitem__(self, number: int) -> Site:
        return self._sites[number]
