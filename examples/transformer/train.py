"""Trains a small transformer on text twice: with PyTorch's linear layers, and with gen's.

    python train.py            # on a GPU: 8 layers, 512 wide, bfloat16; steps are timed
    python train.py --quick    # anywhere: one layer, 16 wide; without a GPU, on gen's emulator

Both models start from the same weights and see the same batches. The losses of each step are
printed beside each other; they differ by rounding alone, since sums are added in another order.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import gen.torch


class Size(NamedTuple):
    """A model and its batches."""

    layers: int
    width: int
    heads: int
    context: int
    batch: int
    steps: int


FULL = Size(layers=8, width=512, heads=8, context=512, batch=32, steps=200)
QUICK = Size(layers=1, width=16, heads=2, context=8, batch=2, steps=3)


class Block(nn.Module):
    """Attention and a feed-forward network, each added to what comes in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.before_attention, self.before_mlp = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.to_qkv = nn.Linear(size.width, 3 * size.width)
        self.from_heads = nn.Linear(size.width, size.width)
        self.up, self.down = (
            nn.Linear(size.width, 4 * size.width),
            nn.Linear(4 * size.width, size.width),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, context, width = x.shape
        qkv = self.to_qkv(self.before_attention(x))
        q, k, v = qkv.view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.from_heads(found.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class Transformer(nn.Module):
    """Bytes to the logits of the next byte."""

    def __init__(self, size: Size, symbols: int) -> None:
        super().__init__()
        self.symbol = nn.Embedding(symbols, size.width)
        self.place = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        for table in (self.symbol, self.place):
            nn.init.normal_(table.weight, std=0.02)
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, symbols, bias=False)
        self.head.weight = self.symbol.weight  # tied, as it is usual

    def forward(self, symbols: Tensor) -> Tensor:
        places = torch.arange(symbols.shape[1], device=symbols.device)
        return self.head(self.norm(self.blocks(self.symbol(symbols) + self.place(places))))


def batches(text: bytes, size: Size) -> tuple[list[Tensor], int]:
    """One batch of lines for each step, each a context and the byte after it."""
    known = sorted(set(text))
    symbols = torch.tensor([known.index(byte) for byte in text])
    random = torch.Generator().manual_seed(1)
    starts = torch.randint(len(text) - size.context, (size.steps, size.batch), generator=random)
    lines = symbols.unfold(0, size.context + 1, 1)
    return [lines[at] for at in starts], len(known)


def train(model: nn.Module, data: list[Tensor], device: str) -> tuple[list[float], float]:
    """The loss of each step, and the milliseconds that a step of the second half took."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: list[Tensor] = []
    start = 0.0
    for step, lines in enumerate(data):
        if step == len(data) // 2:
            start = now(device)
        lines = lines.to(device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(lines[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), lines[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    took = (now(device) - start) / (len(data) - len(data) // 2)
    return [loss.item() for loss in losses], 1e3 * took


def now(device: str) -> float:
    """Seconds, when all that is queued has ended."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    """Trains and compares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a model that an emulator can train")
    parser.add_argument("--compile", action="store_true", help="both models by torch.compile")
    parser.add_argument("--text", type=Path, default=Path(__file__), help="a file to learn")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.quick:
        parser.error("without a GPU, only --quick takes seconds; use it")
    size = QUICK if options.quick else FULL
    data, symbols = batches(options.text.read_bytes(), size)
    torch.manual_seed(0)
    theirs = Transformer(size, symbols).to(device)
    ours = copy.deepcopy(theirs)
    done = gen.torch.replace_linear(ours)
    print(f"{len(done.swapped)} linear layers are gen's, {len(done.left)} are not")
    models = {"PyTorch": theirs, "gen": ours}
    results = {
        name: train(torch.compile(model) if options.compile else model, data, device)
        for name, model in models.items()
    }
    report(results, device)


def report(results: dict[str, tuple[list[float], float]], device: str) -> None:
    """Prints losses beside each other, and on a GPU how long a step took."""
    (first, _), (second, _) = results.values()
    print("step   PyTorch       gen")
    for step in sorted({*range(0, len(first), max(len(first) // 10, 1)), len(first) - 1}):
        print(f"{step:4} {first[step]:9.5f} {second[step]:9.5f}")
    print(f"largest difference {max(abs(x - y) for x, y in zip(first, second, strict=True)):.1e}")
    if device == "cuda":
        print(f"on {torch.cuda.get_device_name()}, PyTorch {torch.__version__}:")
        for name, (_, milliseconds) in results.items():
            print(f"  {name:<8}{milliseconds:8.2f} ms a step")


if __name__ == "__main__":
    main()
