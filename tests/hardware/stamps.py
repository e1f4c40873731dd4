"""A script: stamps times again whose kernels are what they were.

    python -m tests.hardware.stamps COMMIT TABLE...

A change of templates makes the entries of their kernels outdated (`gen.source.versions`), also
where it leaves a kernel as it is. Of the tables, files or folders, each entry that is stamped with
the templates of COMMIT is stamped with today's, if the code that both make for its specification is
the same, up to the host's side and to what was not done: to pack, and to bring what comes first to
L2 before a kernel's turn; or compiles to the same PTX. Printed is how many entries of each kernel
were, and were not. Tunables that are new are written to all entries, with their defaults: a kernel
that is measured again would have two entries otherwise. Then outdated entries are dropped of
problems that have enough of today's, and entries of kernels that are no choice for their problem.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gen import files
from gen.compile import nvrtc
from gen.device.execute import planned
from gen.device.gpus import GPUS
from gen.dispatch import ranking
from gen.dispatch.ranking import Product
from gen.dispatch.table import Entry, Table, load
from gen.kernels.registry import VARIANTS, spec_from_json
from gen.prove.cpp_tokens import tokens
from gen.source.versions import template_version
from gen.spec.arch import MULTIPROCESSORS
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALIGNED, GemmProblem, GemmShape, parse_layout
from tests import ROOT

# Prints, of each specification that the sources in the current folder take, the version of its
# templates and its code.
_MAKE = """
import json, sys
from gen.errors import GenError
from gen.kernels.registry import spec_from_json
from gen.source.render import render
from gen.source.versions import template_version
found = {}
for text in json.load(sys.stdin):
    try:
        spec = spec_from_json(text)
        code = render(spec).text
    except GenError:
        continue
    found[text] = template_version(spec.row.template), code
print(json.dumps(found))
"""


# What a compiler writes of constants, whose names have the file's hash: no kernel refers to them.
_CONSTANTS = re.compile(r"^(?:\.(?:global|const) \.align \d+ .*= .*;|//.*)\n", re.MULTILINE)
# Dynamic shared memory.
_SHARED = re.compile(r"^\.extern \.shared \.align \d+ \.b8 (\w+)\[\];\n", re.MULTILINE)
# The section that has the kernel which packs operands.
_PACKING = re.compile(r"^// -+ (?:packing|parts)\n.*?(?=^// ---)", re.MULTILINE | re.DOTALL)

# What brings to L2, in a kernel that has one tile for each block.
_EARLY = re.compile(
    r"^  if \(threadIdx\.x == 0\) \{\n    // A little comes to L2.*?^  \}\n",
    re.MULTILINE | re.DOTALL,
)


class Done(NamedTuple):
    """What a launch does besides: packs operands, brings what comes first to L2."""

    packs: bool
    early: bool


# Times of a problem by kernels as they are now, with which it needs no older ones.
ENOUGH = 8


class Made(NamedTuple):
    """A kernel: the version of its templates, and its code."""

    version: str
    code: str

    def words(self, done: Done) -> list[str]:
        """Those of the device's side, of which comments are none; of what was done."""
        side = self.code.partition("#ifndef __CUDACC_RTC__  // the host's side")[0]
        side = side if done.packs else _PACKING.sub("", side)
        return [token.text for token in tokens(side if done.early else _EARLY.sub("", side))]

    def ptx(self, arch: str) -> str:
        """What it compiles to, however dynamic shared memory is called and aligned."""
        compiled = nvrtc.compile_cuda(self.code, arch=arch, line_info=False)
        text = _CONSTANTS.sub("", compiled.code.decode())
        for declared in set(_SHARED.findall(text)):
            text = re.sub(rf"\b{declared}\b", "shared", text)
        return _SHARED.sub("", text)


@functools.cache  # a table has many times of a kernel
def same(old: Made, new: Made, arch: str, done: Done) -> bool:
    """Whether two kernels are the same code, as far as it was run."""
    return old.words(done) == new.words(done) or old.ptx(arch) == new.ptx(arch)


def done(spec: KernelSpec, entry: Entry) -> Done:
    """What the launch for a problem did besides."""
    problem = GemmProblem.packed(entry.size, spec.layouts)
    problem = replace(problem, batch=problem.batched(spec.layouts, entry.batch).batch)
    launches = planned(spec, problem, ALIGNED, MULTIPROCESSORS, 0).launches
    return Done(
        any(launch.kernel.endswith("_pack") for launch in launches),
        any(launch.args.get("early") for launch in launches),
    )


def made(sources: Path, specs: Sequence[str]) -> dict[str, Made]:
    """What the sources in a folder make of specifications, which are JSON."""
    done = subprocess.run(
        [sys.executable, "-c", _MAKE], cwd=sources, input=json.dumps(specs), check=True,
        stdout=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip
    return {spec: Made(*pair) for spec, pair in json.loads(done.stdout).items()}


def made_by(commit: str, specs: Sequence[str]) -> dict[str, Made]:
    """The same by the sources of a commit."""
    archive = ["git", "archive", commit, "gen", "templates"]
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(archive, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
        return made(Path(folder), specs)


def stamped(
    table: Table, then: Mapping[str, Made], now: Mapping[str, Made], counted: Counter[str]
) -> Table:
    """The table, with today's tunables, and today's stamps where a kernel's code is the same."""
    entries = []
    for entry in table.entries:
        text = json.dumps(dict(entry.spec))
        old, new = then.get(text), now.get(text)
        if old and new and entry.templates == old.version != new.version:
            spec = spec_from_json(text)
            is_same = same(old, new, spec.arch, done(spec, entry))
            counted[f"{entry.spec['variant']}, {'stamped' if is_same else 'other code'}"] += 1
            entry = entry._replace(templates=new.version) if is_same else entry
        spec = json.loads(spec_from_json(text).to_json()) if new else entry.spec
        entries.append(entry._replace(spec=spec))
    return replace(table, entries=tuple(entries)).merged(Table())


@functools.cache
def choices(size: GemmShape, batch: int, gpu: str, kind: tuple[tuple[str, Any], ...]) -> set[str]:
    """The kernels that are chosen among for a problem: as JSON."""
    given = dict(kind)
    dtypes, layouts = parse_dtype(given.pop("dtype")), parse_layout(given.pop("layout"))
    product = Product.packed(size, dtypes, layouts, batch=batch)
    model = GPUS[gpu]
    return {one.spec.to_json() for one in ranking.rank(product, model, model.own_arch, given)}


_KIND = ("dtype", "layout", *ranking.KINDS)  # what a caller says of a product


def is_choice(entry: Entry) -> bool:
    """Whether its kernel is one of these."""
    spec = entry.spec
    if entry.gpu not in GPUS:  # one that is told by its name and multiprocessors
        return True
    kind = [(name, spec[name]) for name in _KIND if spec.get(name) not in (None, 0, "linear")]
    return json.dumps(dict(spec)) in choices(entry.size, entry.batch, entry.gpu, tuple(kind))


def pruned(table: Table, counted: Counter[str]) -> Table:
    """The table without what is outdated, where enough is not, and without what is no choice."""

    def is_fresh(entry: Entry) -> bool:
        row = VARIANTS.get(entry.spec["variant"])
        return row is not None and entry.templates == template_version(row.template)

    fresh = Counter(entry.problem for entry in table.entries if is_fresh(entry))
    kept = [x for x in table.entries if is_fresh(x) or fresh[x.problem] < ENOUGH]
    counted["outdated, dropped"] += len(table.entries) - len(kept)
    found = [entry for entry in kept if is_choice(entry)]
    counted["no choice, dropped"] += len(kept) - len(found)
    return replace(table, entries=tuple(found)).merged(Table())


def main(args: Sequence[str]) -> int:
    """Writes the tables, prints what was done."""
    if len(args) < 2:
        print(__doc__)
        return 2
    commit, *given = args
    paths = [p for word in map(Path, given) for p in sorted(word.rglob("*.json")) or [word]]
    specs = [json.dumps(dict(entry.spec)) for path in paths for entry in load(path).entries]
    specs = list(dict.fromkeys(specs))
    then, now, counted = made_by(commit, specs), made(ROOT, specs), Counter[str]()
    for path in paths:
        table = pruned(stamped(load(path), then, now, counted), counted)
        files.write(table.to_json().encode(), path)
    print("\n".join(f"{name}: {count}" for name, count in sorted(counted.items())) or "nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
