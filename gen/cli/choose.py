"""`gen choose`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from gen.cli import tables
from gen.cli.options import DTYPE, JSON, LAYOUT, TUNED
from gen.device.gpus import GPUS, GpuModel, find_gpu
from gen.dispatch import words
from gen.dispatch.choice import rank
from gen.dispatch.folders import places
from gen.dispatch.invariant import INVARIANT
from gen.dispatch.peers import PEERS, Advice, Advised, advised
from gen.dispatch.products import Operands, counts_of, operands
from gen.dispatch.ranking import Product, Ranked, model_of
from gen.errors import UsageError, unknown
from gen.kernels.tunables import Value
from gen.spec.dtypes import parse_dtype
from gen.spec.problem import GemmShape, parse_layout, parse_shape

GPU = typer.Option(
    "--gpu",
    metavar="NAME",
    help=f"The GPU: {', '.join(GPUS)}; default: the one that is present.",
)

LDA, LDB = (
    typer.Option(
        f"--ld{name}",
        metavar="N",
        help=f"Leading dimension of {name.upper()}; default: the shape's.",
    )
    for name in "ab"
)

INVARIANT_OPTION = typer.Option(
    "--invariant",
    metavar="rows",
    help="Rank kernels that give a row of D the same bits for all M: one order of sums.",
)


PEER = typer.Option(
    "--peer",
    metavar="NAME",
    help=f"Name also what this would take of its kernels: {', '.join(PEERS)}.",
)


def choose(
    shape: Annotated[
        str,
        typer.Option("--shape", metavar="MxNxK", help="Problem size, or one number for a cube."),
    ],
    dtype: Annotated[str, DTYPE] = "f32",
    layout: Annotated[str, LAYOUT] = "rrr",
    gpu: Annotated[str | None, GPU] = None,
    lda: Annotated[str | None, LDA] = None,
    ldb: Annotated[str | None, LDB] = None,
    unaligned: Annotated[
        bool,
        typer.Option("--unaligned", help="A and B do not start at multiples of 16 bytes."),
    ] = False,
    batch: Annotated[
        str,
        typer.Option(
            "--batch",
            metavar="COUNT",
            help="So many products of the shape, by --batched kernels; with --grouped, so many "
            "groups of M rows on average.",
        ),
    ] = "1",
    invariant: Annotated[str | None, INVARIANT_OPTION] = None,
    tuned: Annotated[str | None, TUNED] = None,
    peer: Annotated[str | None, PEER] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Show so many kernels.")] = 8,
    json: Annotated[bool, JSON] = False,
    **tunables: Value | None,
) -> None:
    if gpu and "," in gpu:
        raise _several("--gpu", gpu)
    target = find_gpu(gpu) if gpu else present()
    count, *more = counts_of(batch)
    if more:
        raise _several("--batch", batch)
    product = _product(parse_shape(shape), dtype, layout, operands(lda, ldb, unaligned))
    given = {name: value for name, value in tunables.items() if value is not None}
    if count > 1:
        product = replace(product, batch=count)
        if not (given.get("grouped") or given.get("grouped_k")):
            given["batched"] = True
    why: list[str] = []
    tables = places(tuned)
    found = rank(product, target, target.own_arch, given, tables)
    if invariant is not None:
        if invariant not in INVARIANT:
            raise unknown("invariant", invariant, INVARIANT)
        free, found = found, rank(product, target, target.own_arch, given, tables, invariant=True)
        why.append(words.price(found, free))
    why[:0] = [*words.why(found, target), *words.cut(found[0], product)]
    if peer is not None and peer not in PEERS:
        raise unknown("peer", peer, PEERS)
    others = advised(product, target, top) if peer else None
    if json:
        _as_json(found[:top], found, why, product, target, others)
    else:
        _print(found[:top], found, why, target)
        if others:
            _print_peer(others, found)


def _product(shape: GemmShape, dtype: str, layout: str, lie: Operands) -> Product:
    if 0 in (shape.m, shape.n):
        raise UsageError(f"shape {shape} has nothing to compute; use M and N of 1 or more")
    for name, lines in (("--lda", lie.lda), ("--ldb", lie.ldb)):
        if len(lines) > 1:
            raise _several(name, ",".join(map(str, lines)))
    placed = lie.placed(Product.packed(shape, parse_dtype(dtype), parse_layout(layout)))
    return placed[-1]  # the unaligned one comes last


def _several(option: str, value: str) -> UsageError:
    return UsageError(f"{option} {value} is more than one; gen emit --best chooses for several")


def present() -> GpuModel:
    """The GPU of this machine. Raises UsageError where there is none."""
    from gen.device.context import gpu
    from gen.device.driver import why_no_gpu

    if reason := why_no_gpu():
        raise UsageError(f"no GPU is present: {reason}; use --gpu with {', '.join(GPUS)}")
    here = gpu(0)
    return model_of(here.arch, here.multiprocessors, here.name)


def _print(
    shown: Sequence[Ranked], found: Sequence[Ranked], why: Sequence[str], gpu: GpuModel
) -> None:
    from gen.tables import number

    headers = ["", "kernel", "tile", "how", "time", "waves", "limited by", "time is"]
    rows = [
        (
            str(i),
            each.spec.variant,
            str(each.spec.threadblock),
            _how(each),
            f"{number(each.time / 1e6).text} us",
            f"{words.waves(each, gpu):.2f}",
            words.limit(each),
            words.basis(each, gpu),
        )
        for i, each in enumerate(shown, 1)
    ]
    print(f"{gpu.called}, {words.rests(found, gpu)}")
    tables.table(headers, rows, right=("", "time", "waves"))
    print("1:", " ".join(why))
    for i, each in enumerate(shown, 1):
        print(f"{i}: {words.command(each.spec)}")


def _print_peer(others: Advised, found: Sequence[Ranked]) -> None:
    from gen.tables import number

    def ours(one: Advice) -> str:
        place = one.ours(found)
        return f"{place}: {number(found[place - 1].time / 1e6).text} us" if place else "none"

    headers = ["", "tile", "warp", "stages", "cluster", "slices", "time", "with this tile, above"]
    rows = [
        (
            str(i),
            "x".join(map(str, one.tile)),
            "x".join(map(str, one.warp)),
            str(one.stages),
            "x".join(map(str, one.cluster)),
            str(one.slices),
            f"{number(one.us).text} us",
            ours(one),
        )
        for i, one in enumerate(others.kernels, 1)
    ]
    print(f"nvMatmulHeuristics {others.version} for {others.target}, by its own model")
    tables.table(headers, rows, right=("", "stages", "slices", "time"))


def _how(found: Ranked) -> str:
    """What tells it from another kernel with the same tile."""
    t, said = found.spec.tunables, []
    names = ("few", "schedule", "stages", "sliced_k")
    said += [f"{name.replace('_', '-')} {t[name]}" for name in names if name in t]
    said += [f"bursts of {t['burst']}"] if t.get("burst", 1) > 1 else []
    said += [f"cluster {t['cluster']}"] if found.spec.cluster_blocks > 1 else []
    said += ["held"] * bool(t.get("held"))
    said += ["stream-k"] * bool(t.get("stream_k"))
    if found.value("slices") > 1:
        said.append(f"{found.value('slices')} slices")
    return ", ".join(said)


def _as_json(
    shown: Sequence[Ranked],
    found: Sequence[Ranked],
    why: Sequence[str],
    product: Product,
    gpu: GpuModel,
    others: Advised | None,
) -> None:
    import json

    def fields(each: Ranked) -> dict[str, Any]:
        us = {
            name: each.value(value) / 1e6
            for name, value in (
                ("multiplying", "multiplying"), ("memory", "moving"), ("packing", "packing"),
                ("adding", "adding"),
            )
        }  # fmt: skip
        return {
            "variant": each.spec.variant,
            "spec": json.loads(each.spec.to_json()),
            "command": words.command(each.spec),
            "us": each.time / 1e6,
            "us_of": us,
            "tiles": each.value("tiles"),
            "slices": each.value("slices"),
            "waves": words.waves(each, gpu),
            "limited_by": words.limit(each),
            "basis": each.basis,
            "fitted": words.is_fitted(gpu),
            "us_modelled": each.modelled / 1e6,
        }

    tables.as_json(
        {
            "gpu": gpu.name,
            "dtype": product.dtypes.name,
            "layout": str(product.layouts),
            "shape": str(product.shape),
            "lda": product.lda,
            "ldb": product.ldb,
            "batch": product.batch,
            "kernels": len(found),
            "why": list(why),
            "ranking": [fields(each) for each in shown],
            **({"peer": _peer_fields(others, found)} if others else {}),
        }
    )


def _peer_fields(others: Advised, found: Sequence[Ranked]) -> dict[str, Any]:
    kernels = [{**one._asdict(), "ours": one.ours(found)} for one in others.kernels]
    return {"version": others.version, "target": others.target, "kernels": kernels}
