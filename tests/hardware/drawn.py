"""A script: how the model, as it is now, chooses among kernels that were measured.

    python -m tests.hardware.drawn [FILE.json]
    python -m tests.hardware.drawn --of FOLDER --into FILE.json

The first reads problems that `tests.hardware.choice` drew and measured (by default
docs/lab/model/drawn.json), and prints how fast what the model puts first is beside the fastest, and
beside PyTorch; then the problems where it is slowest. No GPU is needed. The second makes such a
file of the results that `tests.hardware.choice` left in a folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gen import files
from gen.bench.results import OURS, find, load
from gen.device.gpus import find_gpu
from gen.dispatch.ranking import Product, ranked
from gen.kernels.registry import VARIANTS, make_spec, spec_from_json
from gen.kernels.tunables import Choice
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import parse_layout, parse_shape
from tests import ROOT
from tests.hardware.choice import TUNED, Outcome, summary, worst

DRAWN = ROOT / "docs" / "lab" / "model" / "drawn.json"
ARCH = "sm_90a"


def kept(folder: Path) -> dict[str, Any]:
    """What a file has of the results in a folder."""
    problems, header = [], None
    for path in sorted(folder.glob("*.json")):
        results = load(path)
        header = header or results.header
        ours = [row for row in results.rows if row.kind == OURS and row.ms_median]
        torch = [row.ms_median for row in find(results.rows, contender="torch") if row.ms_median]
        if ours:
            name = f"{ours[0].dtype} {ours[0].layout} {ours[0].shape}"
            times = [
                [_unusual(spec_from_json(json.dumps(r.spec))), round(1e3 * (r.ms_median or 0), 3)]
                for r in ours
            ]
            us = round(1e3 * torch[0], 3) if torch else None
            problems.append({"problem": name, "torch": us, "kernels": times})
    assert header
    run = {"gpu": header.gpu, "driver": header.driver, "date": header.date}
    return {"gpu": "h200", "run": run, "problems": problems}


def _unusual(spec: KernelSpec) -> dict[str, Any]:
    chosen = Choice(spec.dtypes, spec.layouts, spec.arch, spec.tunables)
    own = {t.name: t.show(spec.tunables[t.name]) for t in spec.row.unusual(chosen)}
    return {"variant": spec.variant, **own}


def text(contents: dict[str, Any]) -> str:
    """The file: a line for each problem."""
    lines = ",\n".join(json.dumps(one) for one in contents["problems"])
    run = json.dumps(contents["run"])
    return f'{{"gpu": "{contents["gpu"]}", "run": {run}, "problems": [\n{lines}\n]}}\n'


def read(path: Path = DRAWN) -> list[Outcome]:
    """What the model would have chosen among the kernels that a file has."""
    contents = json.loads(path.read_text(encoding="utf-8"))
    gpu = find_gpu(contents["gpu"])
    found = []
    for one in contents["problems"]:
        dtype, layout, shape = one["problem"].split()
        product = Product.packed(parse_shape(shape), parse_dtype(dtype), parse_layout(layout))
        times: list[tuple[int, float, str]] = []
        for given, us in one["kernels"]:
            # A kernel that only a generation has is compiled for it alone.
            arch = ARCH if VARIANTS[given["variant"]].max_arch else ARCH.rstrip("a")
            spec = make_spec(**given, dtype=dtype, layout=layout, arch=arch)
            times.append((ranked(spec, product, gpu).time, us, spec.name))
        times.sort(key=lambda each: each[0])
        least, _, best = min((us, i, name) for i, (_, us, name) in enumerate(times))
        _, first, chosen = times[0]
        tuned = min(us for _, us, _ in times[:TUNED])
        torch = one["torch"] / first if one["torch"] else None
        shares = least / first, least / tuned
        found.append(Outcome(one["problem"], dtype, *shares, torch, chosen, best, 0))
    return found


def main(args: Sequence[str]) -> None:
    """Prints, or makes a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.drawn")
    parser.add_argument("file", type=Path, nargs="?", default=DRAWN)
    parser.add_argument("--of", type=Path, help="results of tests.hardware.choice")
    parser.add_argument("--into", type=Path)
    given = parser.parse_args(args)
    if given.of:
        files.write(text(kept(given.of)).encode(), given.into)
    else:
        found = read(given.file)
        print("\n".join([*summary(found), "", *worst(found)]))


if __name__ == "__main__":
    main(sys.argv[1:])
