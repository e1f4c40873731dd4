"""What the templates of kernels on CUDA cores print besides tunables and geometry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gen.kernels import signature
from gen.kernels.batches import MOST, PRODUCTS, apart
from gen.kernels.cuda_cores import register_tiles
from gen.kernels.cuda_cores.register_tiles import Copied
from gen.kernels.variant import launch_facts
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Layouts


def printed(spec: KernelSpec) -> Mapping[str, Any]:
    """Of all of them."""
    kernel = signature.whole(spec)
    given = spec.layouts
    product = Layouts(not given.b, not given.a, True) if spec.swapped else given
    return {
        "blocks": 0,
        "shares_k": False,
        **spec.geometry.values,
        "facts": launch_facts(spec),
        "apart": apart(spec.layouts),
        "most_products": MOST,
        "products": PRODUCTS,
        "swapped": spec.swapped,
        "product": product,
        "shared_bytes": spec.geometry.dynamic_shared,
        "signature": {
            "launch": signature.launch(spec),
            "workspace": (),
            "kernel": kernel,
            "kernel_arguments": [signature.given_as(p.name, spec.swapped) for p in kernel],
        },
    }


def printed_copies(copied: Copied) -> Callable[[KernelSpec], Mapping[str, Any]]:
    """Of those whose threads copy so, several elements at once."""
    return lambda spec: {**printed(spec), **register_tiles.printed(spec, copied)}
