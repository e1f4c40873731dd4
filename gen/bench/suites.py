"""Named lists of shapes to measure."""

from __future__ import annotations

from collections.abc import Mapping

from gen.bench.sizes import Batched, grouped
from gen.errors import UsageError, unknown
from gen.spec.problem import GemmShape


def _cubes(*sizes: int) -> tuple[GemmShape, ...]:
    return tuple(GemmShape(n, n, n) for n in sizes)


# Rows and sums of the projections in two open models, 4096 and 8192 wide: queries, keys and values
# (grouped), the output, up and gate, down.
_LLAMA_TOKENS = (1, 2, 3, 4, 7, 8, 16, 17, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
LLAMA = "llama"
_LLAMA_N_K = (
    (4096, 4096),
    (6144, 4096),
    (28672, 4096),
    (4096, 14336),
    (8192, 8192),
    (28672, 8192),
    (8192, 28672),
)

# A batch through a network of 784 inputs and 10 outputs: forward, and the gradients of the weights
# (sums over the batch) and of the activations.
_MNIST_BATCHES = (64, 128, 1024)
_MNIST_WIDTHS = (128, 512)


def _mnist() -> tuple[GemmShape, ...]:
    shapes = []
    for batch in _MNIST_BATCHES:
        for width in _MNIST_WIDTHS:
            shapes += [
                GemmShape(batch, width, 784),
                GemmShape(batch, 10, width),
                GemmShape(784, width, batch),
                GemmShape(width, 10, batch),
                GemmShape(batch, width, 10),
            ]
    return tuple(dict.fromkeys(shapes))


SUITES: Mapping[str, tuple[GemmShape, ...]] = {
    "seeds": _cubes(256, 512, 1024, 4096),
    "squares": _cubes(128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "ladder": _cubes(1024, 2048, 4096),
    "odd": (
        *_cubes(127, 511, 1023, 2047, 4095),
        GemmShape(1023, 1025, 1027),
        GemmShape(4095, 4097, 4099),
        GemmShape(1000, 1000, 1001),
        GemmShape(4096, 4096, 4097),
        GemmShape(4097, 4096, 4096),
    ),
    "splitk": tuple(
        GemmShape(m, n, k)
        for m, n in ((16, 256), (64, 64), (128, 128), (256, 256))
        for k in (16384, 65536, 262144)
    ),
    LLAMA: tuple(GemmShape(m, n, k) for m in _LLAMA_TOKENS for n, k in _LLAMA_N_K),
    "mnist": _mnist(),
    # Few large products, as those of experts; many small ones, as those of the heads of attention,
    # whose scores and values are not square.
    "batched": (
        *(Batched(n, n, n, count) for count, n in ((8, 1024), (64, 256), (512, 128))),
        *(Batched(m, n, k, 128) for m, n, k in ((512, 512, 64), (512, 64, 512))),
    ),
    # Experts, up (with a gate) and down: of OLMoE, Qwen3-30B-A3B, and wider ones.
    "grouped": tuple(
        grouped(groups, 8, 512, n, k)
        for groups, n, k in (
            *((64, 2048, 2048), (64, 2048, 1024)),
            *((128, 1536, 2048), (128, 2048, 768)),
            *((64, 4096, 4096), (128, 4096, 2048)),
        )
    ),
}


def suite(name: str) -> tuple[GemmShape, ...]:
    """The shapes of a suite. Raises UsageError with the nearest name."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]


def of_tokens(text: str) -> tuple[GemmShape, ...]:
    """Of the suite `llama`, the shapes with so many tokens: numbers and ranges, such as 1-8,64.

    Raises UsageError where there are none.
    """
    ranges = [_range(part) for part in text.split(",")]
    found = tuple(s for s in SUITES[LLAMA] if any(s.m in one for one in ranges))
    if not found:
        known = ", ".join(map(str, _LLAMA_TOKENS))
        raise UsageError(f"no shape of the suite {LLAMA} has {text} tokens; it has {known}")
    return found


def _range(text: str) -> range:
    least, dash, most = text.strip().partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise UsageError(f"tokens {text!r} are no number or range; use such as 8 or 64-512")
    return range(int(least), int(most or least) + 1)
