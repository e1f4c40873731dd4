"""Trains the network with `gen.matmul` on numpy arrays: on a GPU, or without one on the emulator.

    python train.py --data DIR

The step is that of the CUDA program (see README.md), a matrix product after the other; what lies
between them is numpy. On the emulator the default 500 steps take about half a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mnist_data import (
    CLASSES,
    DataError,
    Dataset,
    ImageSet,
    as_inputs,
    batches,
    initial_parameters,
    load,
)

import gen
from gen.errors import GenError

HALF, SINGLE = np.float16, np.float32

# Small tiles and many warps: the emulator runs an instruction for all warps of a launch at once, so
# that it is faster the more they share the work.
TILES = {"threadblock": "64x64x64", "warp": "16x16"}


def gemm(a: np.ndarray, b: np.ndarray, device: str = "auto", **rest: Any) -> np.ndarray:
    """alpha * a @ b + beta * c, and what follows, by a generated kernel."""
    product: np.ndarray = gen.matmul(a, b, variant="mma", device=device, **TILES, **rest)
    return product


class Network:
    """784 -> hidden -> hidden -> 10: weights and biases in f32, with copies in f16 for products."""

    def __init__(self, hidden: int, seed: int, device: str = "auto") -> None:
        layers = initial_parameters(hidden, seed)
        self.weights, self.biases = [w for w, _ in layers], [b for _, b in layers]
        self.device = device
        self._copy()

    def _copy(self) -> None:
        self._w = [w.astype(HALF) for w in self.weights]
        self._b = [b.astype(HALF) for b in self.biases[:2]]

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the hidden layers and the last one give for a batch of images in f16."""
        (w1, w2, w3), (b1, b2) = self._w, self._b
        h1 = gemm(x, w1, self.device, bias=b1, epilogue="linear_bias_relu")
        h2 = gemm(h1, w2, self.device, bias=b2, epilogue="linear_bias_relu")
        return h1, h2, gemm(h2, w3, self.device, bias=self.biases[2], epilogue="linear_bias")

    def step(self, x: np.ndarray, labels: np.ndarray, rate: float) -> float:
        """One step of gradient descent; returns the mean loss of the batch before it."""
        h1, h2, logits = self.forward(x)
        loss, d3 = softmax_gradient(logits, labels)
        d2 = self._input_gradient(d3, 2, h2)
        d1 = self._input_gradient(d2, 1, h1)
        rate /= len(x)
        for layer, (inputs, gradient) in enumerate(((x, d1), (h1, d2), (h2, d3))):
            w = self.weights[layer]  # w -= rate * inputs' gradient, in place
            gemm(inputs.T, gradient, self.device, c=w, alpha=-rate, beta=1, out=w)
            self.biases[layer] -= SINGLE(rate) * gradient.sum(0, dtype=SINGLE)
        self._copy()
        return loss

    def _input_gradient(self, d: np.ndarray, layer: int, activation: np.ndarray) -> np.ndarray:
        """With respect to what the layer below sums up, where its units are on."""
        epilogue, operands = "activation[row, col] > 0 ? x : 0", {"activation": activation}
        w = self._w[layer].T
        return gemm(d, w, self.device, epilogue=epilogue, operands=operands)

    def accuracy(self, images: ImageSet, at_once: int = 1000) -> float:
        """The fraction of images whose digit is recognised."""
        right = 0
        for i in range(0, len(images.labels), at_once):
            _, _, logits = self.forward(as_inputs(images.images[i : i + at_once]))
            right += int((logits.argmax(1) == images.labels[i : i + at_once]).sum())
        return right / len(images.labels)


def softmax_gradient(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean cross-entropy, and its gradient times the size of the batch, in f16."""
    above = logits - logits.max(1, keepdims=True)
    e = np.exp(above)
    total = e.sum(1)
    one_hot = np.eye(CLASSES, dtype=SINGLE)[labels]
    loss = float((np.log(total) - (above * one_hot).sum(1)).mean())
    return loss, (e / total[:, None] - one_hot).astype(HALF)


def train(data: Dataset, options: argparse.Namespace) -> tuple[Network, list[float]]:
    """Trains a network; shows how it goes. Returns it with the loss of every step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    network, losses = Network(options.hidden, options.seed, options.device), []
    images, labels = data.train.images, data.train.labels
    if options.subset:
        images, labels = images[: options.subset], labels[: options.subset]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=options.steps, loss="")
        for chosen in batches(len(images), options.batch, options.steps, options.seed):
            losses.append(network.step(as_inputs(images[chosen]), labels[chosen], options.lr))
            progress.update(task, advance=1, loss=f"{np.mean(losses[-20:]):.3f}")
    return network, losses


def plot(losses: list[float], path: Path) -> None:
    """The loss over the steps, and its mean over 20 of them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(losses, color="#9ecae1", linewidth=0.8, label="each step")
    window = min(20, len(losses))
    mean = np.convolve(losses, np.ones(window) / window, "valid")
    axes.plot(np.arange(window - 1, len(losses)), mean, color="#08519c", label=f"mean of {window}")
    axes.set(xlabel="step", ylabel="cross-entropy", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the IDX files")
    parser.add_argument("--hidden", type=int, default=32, help="width of the hidden layers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subset", type=int, default=0, help="only the first images; 0: all")
    parser.add_argument("--test", type=int, default=1000, help="images to try it with")
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--plot", type=Path, help="write the loss as a plot (SVG, PNG, PDF)")
    options = parser.parse_args(arguments)
    for name in ("hidden", "batch", "steps", "test"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} has to be positive")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = options_of(arguments)
    try:
        data = load(options.data)
        count = options.subset or len(data.train.labels)
        if options.batch > min(count, len(data.train.labels)):
            raise DataError(f"--batch is larger than the {count} images")
        start = time.perf_counter()
        network, losses = train(data, options)
        seconds = time.perf_counter() - start
        test = ImageSet(data.test.images[: options.test], data.test.labels[: options.test])
        accuracy = network.accuracy(test)
    except (DataError, GenError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3 if isinstance(error, DataError) else error.exit_code
    last = losses[-max(len(losses) // 10, 1) :]
    print(
        f"{len(losses)} steps in {seconds:.0f} s: loss {losses[0]:.3f} -> {np.mean(last):.3f}, "
        f"{100 * accuracy:.1f} % of {len(test.labels)} test digits recognised"
    )
    if options.plot:
        plot(losses, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
