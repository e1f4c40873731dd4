"""The same training in PyTorch: the same weights to begin with, batches and precision.

    python train_torch.py --data DIR --hidden 128 --json torch.json

Timed in four ways:

- eager: as one usually writes it.
- compile: forward and backward by torch.compile with CUDA graphs (mode="reduce-overhead").
- graph: the whole eager step, the optimizer included, captured by hand in one CUDA graph.
- eager-half: eager, with weights in f16, which are updated in f16.

All but the last use autocast: parameters and their updates in f32, products in f16 with sums in
f32, as the CUDA program does. The loss is summed over the batch and the learning rate divided by
its size: gradients in f16 then need no other scaling. The optimizer is SGD(fused=True), PyTorch's
fastest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mnist_data import Dataset, Layer, as_inputs, batches, initial_parameters, load, read_parameters
from torch import Tensor, nn
from torch.nn import functional

MODES = ("eager", "compile", "graph", "eager-half")
WARM_UP, ROUNDS, STEPS_PER_ROUND = 50, 11, 100


def make_model(layers: list[Layer], half: bool) -> nn.Sequential:
    """The network with these parameters, on the GPU. PyTorch keeps weights transposed."""
    modules: list[nn.Module] = []
    for weights, bias in layers:
        linear = nn.Linear(*weights.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights.T.copy()))
            linear.bias.copy_(torch.from_numpy(bias.copy()))
        modules += [linear, nn.ReLU()]
    model = nn.Sequential(*modules[:-1]).cuda()
    return model.half() if half else model


class Training:
    """Steps of one mode, over batches that lie on the GPU."""

    def __init__(
        self, mode: str, layers: list[Layer], data: Dataset, order: Tensor, batch: int, rate: float
    ) -> None:
        self.mode, self.batch, self.half = mode, batch, mode == "eager-half"
        self.images = torch.from_numpy(as_inputs(data.train.images)).cuda()
        self.labels = torch.from_numpy(data.train.labels.astype(np.int64)).cuda()
        self.order, self.next = order, 0
        self.model = make_model(layers, self.half)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate / batch, fused=True)
        self.x = torch.zeros(batch, self.images.shape[1], dtype=torch.float16, device="cuda")
        self.y = torch.zeros(batch, dtype=torch.int64, device="cuda")
        self.chosen = torch.zeros(batch, dtype=order.dtype, device="cuda")
        self.loss = torch.zeros((), device="cuda")
        self._loss: Callable[[Tensor, Tensor], Tensor] = self._sum_of_losses
        self._graph: torch.cuda.CUDAGraph | None = None
        if mode == "compile":
            for tensor in (self.x, self.y):  # always at the same place: no copy before a replay
                torch._dynamo.mark_static_address(tensor)
            self._loss = torch.compile(self._sum_of_losses, mode="reduce-overhead")
        elif mode == "graph":
            self._capture()

    def _sum_of_losses(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.float16, enabled=not self.half, cache_enabled=False):
            return functional.cross_entropy(self.model(x).float(), y, reduction="sum")

    def _gather(self, chosen: Tensor) -> None:
        torch.index_select(self.images, 0, chosen, out=self.x)
        torch.index_select(self.labels, 0, chosen, out=self.y)

    def _capture(self) -> None:
        before = [p.detach().clone() for p in self.model.parameters()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._work(self.chosen)
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        # On the stream of the warm-up: the nodes that accumulate gradients stay on the stream where
        # they were made, and the graph would wait for another one.
        with torch.cuda.graph(self._graph, stream=stream):
            self._gather(self.chosen)
            self.loss = self._loss(self.x, self.y)
            self.loss.backward()
            self.optimizer.step()
        with torch.no_grad():
            for parameter, old in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(old)

    def _work(self, chosen: Tensor) -> None:
        self._gather(chosen)
        if self.mode == "compile":
            torch.compiler.cudagraph_mark_step_begin()
        self.loss = self._loss(self.x, self.y)
        self.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Starts the next step; `loss` is then the sum of its losses."""
        chosen = self.order[self.next * self.batch : (self.next + 1) * self.batch]
        self.next += 1
        if self._graph is None:
            self._work(chosen)
        else:
            self.chosen.copy_(chosen)
            self._graph.replay()

    def train(self, steps: int) -> list[float]:
        """The mean loss of each of the next steps."""
        losses = torch.zeros(steps, device="cuda")
        for i in range(steps):
            self.step()
            losses[i].copy_(self.loss.detach())
        return [float(x) for x in losses.cpu() / self.batch]

    def time(self) -> dict[str, float]:
        """Microseconds a step: the median, the least and the most of several rounds."""
        for _ in range(WARM_UP):
            self.step()
        rounds = []
        for _ in range(ROUNDS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for _ in range(STEPS_PER_ROUND):
                self.step()
            end.record()
            torch.cuda.synchronize()
            rounds.append(begin.elapsed_time(end) * 1000 / STEPS_PER_ROUND)
        return {
            "step_us": statistics.median(rounds),
            "step_us_min": min(rounds),
            "step_us_max": max(rounds),
        }

    def accuracy(self, data: Dataset) -> float:
        """The fraction of the test images whose digit is recognised."""
        images = torch.from_numpy(as_inputs(data.test.images)).cuda()
        labels = torch.from_numpy(data.test.labels.astype(np.int64)).cuda()
        with torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=not self.half):
            return float((self.model(images).argmax(1) == labels).float().mean())


def run(mode: str, hidden: int, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Trains and times one mode at one size; what failed is in the result's `error`."""
    result: dict[str, Any] = {"mode": mode, "hidden": hidden, "batch": options.batch}
    layers = (
        read_parameters(options.weights_in)
        if options.weights_in
        else initial_parameters(hidden, options.seed)
    )
    steps = options.steps if mode == "eager" else min(options.steps, options.short)
    every = batches(
        len(data.train.labels), options.batch, steps + WARM_UP + ROUNDS * STEPS_PER_ROUND,
        options.seed,
    )  # fmt: skip
    order = torch.from_numpy(np.concatenate(list(every))).cuda()
    try:
        torch._dynamo.reset()
        training = Training(mode, layers, data, order, options.batch, options.lr)
        result["losses"] = training.train(steps)
        result["accuracy"] = training.accuracy(data)
        result |= training.time()
    except Exception as error:  # one mode that this version cannot do is no reason to lose all
        traceback.print_exc()
        result["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return result


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the IDX files")
    parser.add_argument("--hidden", type=int, nargs="+", default=[128])
    parser.add_argument("--mode", choices=MODES, nargs="+", default=list(MODES))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4680, help="that the mode eager trains")
    parser.add_argument("--short", type=int, default=100, help="steps that other modes train")
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weights-in", type=Path, help="initial weights, for one --hidden")
    parser.add_argument("--json", type=Path, help="write the results")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = options_of(arguments)
    if not torch.cuda.is_available():
        print("error: PyTorch sees no GPU", file=sys.stderr)
        return 3
    data, results = load(options.data), []
    for hidden in options.hidden:
        for mode in options.mode:
            result = run(mode, hidden, data, options)
            results.append(result)
            print(
                f"hidden {hidden:5}  {mode:10}  "
                + (result.get("error") or f"{result['step_us']:8.1f} us/step"),
                flush=True,
            )
    everything = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name(),
        "results": results,
    }
    if options.json:
        options.json.write_text(json.dumps(everything), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
