"""Writes the generated kernels of this example again: `python emit.py`, or `--check` only looks.

They are committed, so that building the example needs no Python. `make_spec(...)` here is what
`gen emit` does with the same options; each file's header has that command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gen.kernels.registry import make_spec
from gen.source.render import Source, render

FOLDER = Path(__file__).parent / "kernels"

# What the GEMMs of a training step are: element types, layouts, what follows the sum.
ROLES: dict[str, dict[str, str]] = {
    "forward": {"dtype": "f16", "layout": "rrr", "epilogue": "linear_bias_relu"},
    "logits": {"dtype": "f16_f32", "layout": "rrr", "epilogue": "linear_bias"},
    "input_gradient": {"dtype": "f16", "layout": "rcr"},
    "weight_update": {"dtype": "f16_f32", "layout": "crr"},
}

# Tiles, by the name that src/gemms.cpp chooses among. All keep enough in flight for the latency of
# memory; the small ones are for products that have too few tiles to occupy a GPU.
SMALL = {"variant": "mma", "threadblock": "64x64x64", "warp": "32x16", "stages": 4}
SIZES: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "split": {**SMALL, "split_k": 0},  # slices of K, as many as occupy the GPU
    "large": {"variant": "mma", "threadblock": "128x128x64", "warp": "64x64", "stages": 3},
    "hopper": {"variant": "mma_tma", "threadblock": "128x128x64", "warp": "64x64", "stages": 4},
}

# What there is of each role: the sizes, and those that exist with sums in f16, too.
WANTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "forward": (("small", "split", "large", "hopper"), ("small", "large")),
    "logits": (("split",), ()),
    "input_gradient": (("small", "split", "large", "hopper"), ("small", "large")),
    "weight_update": (("small", "large", "hopper"), ()),
}


def sources() -> Iterator[Source]:
    """All kernels, rendered."""
    for role, (usual, in_f16) in WANTED.items():
        for size in usual:
            spec = make_spec(**SIZES[size], **ROLES[role], name=f"mnist_{role}_{size}")
            yield render(spec)
        for size in in_f16:
            types = {**ROLES[role], "dtype": "f16_f16"}
            yield render(make_spec(**SIZES[size], **types, name=f"mnist_{role}_{size}_f16"))


def stale() -> list[str]:
    """What is missing from the folder, differs, or does not belong there."""
    wanted = {source.filename: source.text for source in sources()}
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.cu")}
    return sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    if parser.parse_args().check:
        names = stale()
        if names:
            print(f"out of date: {', '.join(names)}; run emit.py", file=sys.stderr)
        return 1 if names else 0
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.cu"):
        path.unlink()
    for source in sources():
        (FOLDER / source.filename).write_text(source.text, encoding="utf-8")
        print(source.spec.command if source.spec else source.filename)
    return 0


if __name__ == "__main__":
    sys.exit(main())
