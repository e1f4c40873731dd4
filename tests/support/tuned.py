"""Tables of times that nobody has measured: the model's, each off by some factor."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from gen.device.gpus import GPUS
from gen.dispatch import folders
from gen.dispatch.folders import Places
from gen.dispatch.ranking import Product, Ranked, rank
from gen.dispatch.table import Entry, Run, Table
from gen.source.versions import template_version

RUN = Run(  # later than any that is shipped
    "2096-01-02T03:04:05+00:00", "a test's GPU", "sm_90a", 132, "580.1", "1.0", {"sm": [1, 2]}
)


def entry(found: Ranked, product: Product, gpu: str, us: float) -> Entry:
    """That a kernel has taken so long."""
    spec, version = found.spec, template_version(found.spec.row.template)
    fields = json.loads(spec.to_json())
    return Entry(gpu, str(product.shape), fields, us, 11, 0.01, version, RUN.name, product.batch)


def table(products: Iterable[Product], gpu: str, count: int = 16, seed: int = 0) -> Table:
    """The first kernels of each problem, off by up to a third."""
    draw, model = random.Random(seed), GPUS[gpu]
    entries = []
    for product in products:
        given = {"batched": True} if product.batch > 1 else {}
        for found in rank(product, model, model.own_arch, given)[:count]:
            us = found.time / 1e6 * draw.uniform(3 / 4, 4 / 3)
            entries.append(entry(found, product, gpu, us))
    return Table(tuple(entries), {RUN.name: RUN}).merged(Table())


def places(folder: Path, *tables: Table) -> Places:
    """A folder with these tables."""
    for each in tables:
        folders.keep(each, folder)
    return Places((folder,), strict=True)
