"""What the programs of this example share: the data, the initial weights, the order of images.

The random numbers are those of src/random.h, bit for bit, so that the CUDA program, PyTorch and
numpy start from the same network and see the same batches.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PIXELS, CLASSES = 784, 10
FIRST_EPOCH_STREAM = 16
MAGIC = b"MLP1"
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

Layer = tuple[np.ndarray, np.ndarray]  # weights, with a row for each input; bias


class DataError(Exception):
    """A file that is missing or not what it should be."""


@dataclass(frozen=True)
class ImageSet:
    """Images as rows of 784 bytes, and their digits."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """The 60,000 images to learn from, and the 10,000 to be tried with."""

    train: ImageSet
    test: ImageSet


def load(folder: Path) -> Dataset:
    """The four files of a folder, plain or gzipped. Raises DataError."""
    return Dataset(_load_set(folder, *FILES[:2]), _load_set(folder, *FILES[2:]))


def _load_set(folder: Path, images_name: str, labels_name: str) -> ImageSet:
    images = _parse_idx(folder / images_name, 3)
    labels = _parse_idx(folder / labels_name, 1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise DataError(
            f"{folder}: {images_name} has shape {images.shape}, {labels_name} {len(labels)} labels"
        )
    if labels.max(initial=0) >= CLASSES:
        raise DataError(f"{folder}: {labels_name} has labels that are no digits")
    return ImageSet(images.reshape(-1, PIXELS), labels)


def read_file(path: Path) -> bytes:
    """A file's contents, unpacked if there is only the file with .gz appended. Raises DataError."""
    try:
        if path.exists():
            return path.read_bytes()
        path = path.with_name(path.name + ".gz")
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _parse_idx(path: Path, dimensions: int) -> np.ndarray:
    data = read_file(path)
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"{path}: is no IDX file of bytes with {dimensions} dimensions")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dimensions, 4))
    if len(data) != header + math.prod(shape):
        raise DataError(f"{path}: is cut off or too long for {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def as_inputs(images: np.ndarray) -> np.ndarray:
    """Pixels as f16 from 0 to 1."""
    halves: np.ndarray = (images * np.float32(1.0 / 255.0)).astype(np.float16)
    return halves


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def random_bits(seed: int, stream: int, count: int) -> np.ndarray:
    """The first numbers of a stream (SplitMix64), as uint64."""
    # Arrays, because numpy warns where a single number wraps around.
    start = _mix(np.array([seed], np.uint64) + _STEP * np.array([stream + 1], np.uint64))
    return _mix(start + _STEP * np.arange(1, count + 1, dtype=np.uint64))


def uniform(seed: int, stream: int, count: int) -> np.ndarray:
    """Numbers in [-1, 1) as f32, in steps of 2^-23."""
    high = (random_bits(seed, stream, count) >> np.uint64(40)).astype(np.float32)
    return high * np.float32(2.0**-23) - np.float32(1)


def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch's images."""
    return np.argsort(random_bits(seed, FIRST_EPOCH_STREAM + epoch, count), kind="stable")


def batches(images: int, batch: int, steps: int, seed: int) -> Iterator[np.ndarray]:
    """The indices of each step's images; what an epoch has beyond whole batches is left out."""
    per_epoch = images // batch
    for step in range(steps):
        epoch, at = divmod(step, per_epoch)
        if at == 0:
            order = shuffled(images, seed, epoch)
        yield order[at * batch : (at + 1) * batch]


def layer_sizes(hidden: int) -> list[tuple[int, int]]:
    """Inputs and outputs of the three layers."""
    return [(PIXELS, hidden), (hidden, hidden), (hidden, CLASSES)]


def initial_parameters(hidden: int, seed: int) -> list[Layer]:
    """Uniform in +-1 / sqrt(inputs), as PyTorch's nn.Linear starts, too."""
    layers = []
    for i, (inputs, outputs) in enumerate(layer_sizes(hidden)):
        bound = np.float32(1) / np.sqrt(np.float32(inputs))
        weights = uniform(seed, 2 * i, inputs * outputs).reshape(inputs, outputs) * bound
        layers.append((weights, uniform(seed, 2 * i + 1, outputs) * bound))
    return layers


def write_parameters(path: Path, layers: list[Layer]) -> None:
    """The file that `mnist --weights-in` takes."""
    hidden = layers[0][0].shape[1]
    sizes = np.array([PIXELS, hidden, CLASSES], "<u4").tobytes()
    arrays = [np.ascontiguousarray(array, "<f4").tobytes() for layer in layers for array in layer]
    path.write_bytes(b"".join([MAGIC, sizes, *arrays]))


def read_parameters(path: Path) -> list[Layer]:
    """What `write_parameters` or `mnist --weights-out` wrote. Raises DataError."""
    data = path.read_bytes()
    if data[:4] != MAGIC or len(data) < 16:
        raise DataError(f"{path}: is no file of weights, which begins with MLP1")
    hidden = int(np.frombuffer(data, "<u4", 3, 4)[1])
    values, layers = np.frombuffer(data, "<f4", offset=16), []
    for inputs, outputs in layer_sizes(hidden):
        if len(values) < (inputs + 1) * outputs:
            raise DataError(f"{path}: is cut off")
        weights, values = np.split(values, [inputs * outputs])
        bias, values = np.split(values, [outputs])
        layers.append((weights.reshape(inputs, outputs), bias))
    return layers
