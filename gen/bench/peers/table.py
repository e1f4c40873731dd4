"""The groups of peers by name, what each needs, and who makes its contenders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from gen.bench.contenders import Absent, Contender
from gen.compile import nvcc
from gen.errors import UsageError, unknown
from gen.requirements import get, get_extra, named
from gen.spec.dtypes import DTypes

ALL, NONE = "all", "none"


class Group(NamedTuple):
    """Peers that come together: the module or the program that they need, and what gets it.

    `made_by`: a function of a module in this room, from element types to contenders.
    """

    needs: str
    get: str
    made_by: str


PEERS: Mapping[str, Group] = {
    "cublas": Group("nvmath", get_extra("bench"), "cublas:contenders"),
    "cutlass": Group("cuda.bindings", get(named("cuda-python")), "cutlass2:contenders"),
    "cutlass3": Group(nvcc.NAME, nvcc.GET, "cutlass3:contenders"),
    "torch": Group("torch", "pip install torch", "pytorch:contenders"),
    "triton": Group("triton", "pip install torch triton", "triton_peers:contenders"),
}


def parse_peers(text: str) -> list[str]:
    """`all`, `none`, or names separated by commas. Raises UsageError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [ALL]:
        return list(PEERS)
    if names == [NONE]:
        return []
    for name in names:
        if name in (ALL, NONE):
            raise UsageError(f"--peers {text}: {name} stands alone")
        if name not in PEERS:
            raise unknown("peer", name, [*PEERS, ALL, NONE])
    if not names:
        raise UsageError(f"--peers is empty; use {', '.join(PEERS)}, {ALL} or {NONE}")
    return list(dict.fromkeys(names))


def missing(names: Sequence[str]) -> dict[str, str]:
    """Of the groups of peers, those that cannot be measured here, and what gets them."""
    return {name: PEERS[name].get for name in names if not _installed(PEERS[name].needs)}


def _installed(what: str) -> bool:
    if what == nvcc.NAME:
        return nvcc.find() is not None
    try:
        return find_spec(what) is not None
    except ImportError:  # its parent is missing
        return False


def peers(names: Sequence[str], dtypes: DTypes) -> list[Contender]:
    """The contenders of these groups for these types; `Absent` for a group not installed."""
    lacking = missing(names)
    found: list[Contender] = []
    for name in names:
        if name in lacking:
            found.append(Absent(name, lacking[name]))
        else:
            module, _, function = PEERS[name].made_by.partition(":")
            found += getattr(import_module(f"gen.bench.peers.{module}"), function)(dtypes)
    return found
