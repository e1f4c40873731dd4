"""A list of kernels -> one header and one .cu, whose function takes the first that fits."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gen.errors import GenError, SpecError, UsageError
from gen.kernels.registry import get_variant, make_spec
from gen.source.architectures import Family, make_family
from gen.source.render import stamp
from gen.spec.dtypes import DTYPES
from gen.spec.kernel import EPILOGUES, KernelSpec
from gen.spec.names import check_given, check_symbol
from gen.spec.problem import ALL_LAYOUTS, GemmShape, parse_shape

ALIGNMENT = 16  # bytes
DEFAULT_ARCH = "sm_80"
_FLAGS = ("aligned", "batched", "grouped", "grouped_k")  # options without a value
MAX_NAME = 24  # the kernels' own symbols begin with it
MAX_OWN = 16  # of an epilogue's name


@dataclass(frozen=True)
class Entry:
    """A kernel of a bundle: from which size on it is taken, and whether for aligned operands only.

    Aligned: A and B start, and their lines follow each other, at multiples of 16 bytes. own: what
    the header calls an epilogue of the user's own.
    """

    family: Family
    smallest: GemmShape
    aligned: bool
    own: str = ""

    @property
    def spec(self) -> KernelSpec:
        """What is the same on all architectures: types, layouts, epilogue."""
        return self.family.specs[0]

    @property
    def multiple(self) -> int:
        """Elements that the leading dimensions of A and B are multiples of; 0: any."""
        return ALIGNMENT // self.spec.dtypes.input.size if self.aligned else 0

    @property
    def epilogue(self) -> str:
        """What the header calls it."""
        return self.own or self.spec.epilogue

    @property
    def epilogue_number(self) -> int:
        """Its value in C: of one of the user's own that stays the same when others come or go."""
        if not self.own:
            return EPILOGUES.index(self.spec.epilogue)
        text = hashlib.sha256(self.spec.epilogue.encode()).hexdigest()
        return len(EPILOGUES) + int(text[:7], 16)

    def takes_all_of(self, other: Entry) -> bool:
        """Whether there is no problem that the other one is for and this one is not."""
        kinds = [(e.spec.dtypes, e.spec.layouts, e.spec.epilogue) for e in (self, other)]
        own, its = self.smallest, other.smallest
        no_larger = own.m <= its.m and own.n <= its.n and own.k <= its.k
        counts = self.spec.batched or not other.spec.batched
        aligned = other.aligned or not self.aligned
        return kinds[0] == kinds[1] and no_larger and aligned and counts


@dataclass(frozen=True)
class Bundle:
    """Kernels in the order in which they are tried, and the lines that they come from."""

    name: str
    archs: tuple[str, ...]
    source: str
    lines: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def batched(self) -> bool:
        """Whether a problem says how many products there are."""
        return any(entry.spec.batched for entry in self.entries)

    @property
    def command(self) -> str:
        """The command that emits this bundle again."""
        archs = ",".join(self.archs)
        return f"gen emit --bundle {self.source} --name {self.name} --arch {archs}"

    @property
    def stamp(self) -> str:
        """Of the header: what is chosen among, and how."""
        made_of = [
            (*e.family.specs, e.smallest, e.aligned, *[e.own] * bool(e.own)) for e in self.entries
        ]
        return stamp(self.name, *(part for parts in made_of for part in parts))


def read_bundle(path: Path, name: str | None = None, arch: str | None = None) -> Bundle:
    """The bundle that a file lists: a line for each kernel, with the options of `gen emit`.

    `arch`: one architecture, or several with commas.

    Raises UsageError or SpecError with the file's line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from None
    name, archs = name or path.stem, (arch or DEFAULT_ARCH).split(",")
    _check_name(name)
    entries: list[Entry] = []
    places: list[int] = []
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        try:
            for entry in _entries(line, name, archs, len(entries) + 1):
                _check_own(entry, entries)
                _check_turn(entry, entries, places)
                entries.append(entry)
                places.append(number)
        except GenError as error:
            raise type(error)(f"{path}:{number}: {error}") from None
    if not entries:
        raise UsageError(f"{path} lists no kernel; write a line such as: --variant tiles")
    listed = tuple(line for line in lines if line)
    return Bundle(name, tuple(archs), path.name, listed, tuple(entries))


def _check_name(name: str) -> None:
    """Raises UsageError; the name may be that of the file, so that --name is the way out."""
    try:
        check_given(name)
    except SpecError as error:
        raise UsageError(f"a bundle cannot have this name: {error} with --name") from None
    if len(name) > MAX_NAME:
        raise UsageError(
            f"a bundle's name has at most {MAX_NAME} characters, not the {len(name)} of '{name}'; "
            "use a shorter one with --name"
        )


def _check_turn(entry: Entry, before: Sequence[Entry], lines: Sequence[int]) -> None:
    """Raises UsageError for a kernel that is never taken, because one before it always is."""
    for other, line in zip(before, lines, strict=True):
        if other.takes_all_of(entry):
            spec = entry.spec
            raise UsageError(
                f"this kernel for {spec.dtypes.name} {spec.layouts} {spec.epilogue} is never "
                f"taken: the one of line {line} takes all of its problems; leave one of them out, "
                f"or give that of line {line} a larger --from, or --aligned"
            )


# What an epilogue's name may not be, in the header: members of the problem.
_MEMBERS = (
    "type layout epilogue M N K alpha A lda B ldb beta C ldc D ldd bias batch stride_a stride_b"
)
_TAKEN = {*_MEMBERS.split(), "stride_c", "stride_d", "h", "spec"}


def _check_own(entry: Entry, before: Sequence[Entry]) -> None:
    """Raises UsageError for the name of an epilogue of the user's own, which the header has."""
    name, spec = entry.own, entry.spec
    if not spec.fused:
        if name:
            raise UsageError(
                f"--as {name} names an epilogue of your own, and {spec.epilogue} has a name; leave "
                "--as out"
            )
        return
    if not name:
        raise UsageError(
            f"epilogue '{spec.fused.text}' has no name for the bundle's header; use --as, such as "
            "--as gated"
        )
    check_symbol(name)
    known = {*DTYPES, *map(str, ALL_LAYOUTS), *EPILOGUES}
    if name.lower() != name or name in known | _TAKEN or len(name) > MAX_OWN:
        raise UsageError(
            f"--as {name}: the header has the name for something else, or it is not in lower case, "
            f"or longer than {MAX_OWN} characters; use another, such as gated"
        )
    for other in before:
        if other.own == name and other.spec.epilogue != spec.epilogue:
            raise UsageError(
                f"--as {name} is '{other.spec.epilogue}' in another line, and '{spec.epilogue}' "
                "here; use two names"
            )


def _entries(line: str, name: str, archs: Sequence[str], number: int) -> Iterator[Entry]:
    """The kernels of a line: one for each of its element types and layouts."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        reason = str(error).lower()
        raise UsageError(f"{reason} in '{line}'; quote nothing but an epilogue") from None
    options = _options(words)
    if not options:
        return
    aligned = options.pop("aligned", None) is not None
    smallest, own = _smallest(options.pop("from", "0")), options.pop("as", "")
    if "variant" not in options:
        raise UsageError("no kernel is named; use --variant")
    variant = options.pop("variant")
    dtypes = options.pop("dtype", get_variant(variant).dtypes[0]).split(",")
    layouts = options.pop("layout", "rrr")
    for dtype in dtypes:
        for layout in ALL_LAYOUTS if layouts == "all" else layouts.split(","):
            symbol = f"{name}_{variant}_{dtype}_{layout}_{number}"
            kernel = {"dtype": dtype, "layout": layout, "name": symbol, **options}
            specs = [make_spec(variant, arch=arch, **kernel) for arch in archs]
            if specs[0].grouped:
                raise SpecError(
                    "a bundle's function takes no groups; leave out --grouped and --grouped-k, "
                    "and emit a grouped kernel alone"
                )
            yield Entry(make_family(specs), smallest, aligned, own)
            number += 1


def _smallest(text: str) -> GemmShape:
    try:
        return parse_shape(text)
    except GenError as error:
        raise type(error)(f"--from: {error}") from None


def _options(words: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or key in options:
            raise UsageError(
                f"'{word}' is not an option, or is there twice; use --variant NAME and other "
                "options of gen emit, each once"
            )
        if key in ("arch", "name"):
            raise UsageError(f"{word} is the whole bundle's; give it to gen emit")
        value = "true" if key in _FLAGS else next(rest, None)
        if value is None:
            raise UsageError(f"{word} has no value; use {word} VALUE, or leave it out")
        options[key] = value
    return options
