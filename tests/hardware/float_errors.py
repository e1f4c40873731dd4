"""Errors of `f32_6xbf16` beside those of f32: fused multiply-adds in numpy and, on a GPU, cuBLAS.

    python -m tests.hardware.float_errors --k 16,64,256,1024 --kind uniform,wide --side 128

Prints, for each kind of numbers and each K, root mean square and largest error of an element, in
float64 or longer, as a multiple of that of multiply-adds one after another along K. Without a GPU,
the emulator computes what an H200 does, to the bit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np

import gen

Rng = np.random.Generator


def _wide(rng: Rng, shape: tuple[int, int], exponents: float) -> np.ndarray:
    return rng.choice((-1, 1), shape) * np.exp2(rng.uniform(-exponents, exponents, shape))


KINDS: Mapping[str, Callable[[Rng, tuple[int, int]], np.ndarray]] = {
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "wide": lambda rng, shape: _wide(rng, shape, 20),
    "wide positive": lambda rng, shape: np.abs(_wide(rng, shape, 20)),
    "wider": lambda rng, shape: _wide(rng, shape, 50),
}


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Fused multiply-adds of float32, one after another along K."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):  # a product has 48 bits: float64 rounds nearly all sums once
        total = (np.outer(a[:, k].astype(np.float64), b[k]) + total).astype(np.float32)
    return total


def ours(a: np.ndarray, b: np.ndarray, promote: int) -> np.ndarray:
    """By `wgmma`, with a tile that suits small matrices; promotion changes nothing else."""
    tile = {"threadblock": "64x64x32", "stages": 4, "promote": promote}
    d: np.ndarray = gen.matmul(a, b, dtype="f32_6xbf16", variant="wgmma", **tile)
    return d


def cublas(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """By PyTorch, without TF32; None where there is no PyTorch with a GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    product = torch.from_numpy(a).cuda() @ torch.from_numpy(b).cuda()
    return np.asarray(product.cpu().numpy())


def errors(kind: str, k: int, side: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Root mean square and largest, by who computes."""
    found: dict[str, list[np.ndarray]] = {}
    for seed in range(repeats):
        rng = np.random.default_rng((seed, k))
        a, b = (KINDS[kind](rng, shape).astype(np.float32) for shape in ((side, k), (k, side)))
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        results = {"f32": chain(a, b), "cublas": cublas(a, b)}
        results |= {f"promote {n}": ours(a, b, n) for n in (16, 32)}
        for name, d in results.items():
            if d is not None:
                found.setdefault(name, []).append(np.abs(d - exact).astype(np.float64))
    every = {name: np.stack(those) for name, those in found.items()}
    return {name: (float(np.sqrt(np.mean(x**2))), float(x.max())) for name, x in every.items()}


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default=",".join(KINDS))
    parser.add_argument("--k", default="2,4,16,64,256,1024")
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=4)
    chosen = parser.parse_args()
    for kind in chosen.kind.split(","):
        for k in map(int, chosen.k.split(",")):
            found = errors(kind, k, chosen.side, chosen.repeats)
            rms, most = found.pop("f32")
            text = [f"{name} {x / rms:.2f} {y / most:.2f}" for name, (x, y) in found.items()]
            print(f"{kind:14s} K={k:<6d} f32 {rms:.3g} {most:.3g}   {'   '.join(text)}", flush=True)


if __name__ == "__main__":
    main()
