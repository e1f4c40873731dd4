"""What buffers hold before the first launch: a kind of numbers, one number, or a file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gen.emulator import repeated
from gen.errors import UsageError
from gen.foreign import elements

UNDEFINED = ("poison", "undefined")  # what a kernel is not to read
FILLS = ("random", "integers", "zeros", "ones", "iota", *UNDEFINED)


def one_number(fill: str, kind: str) -> np.generic | None:
    """The storage of a content that is one number over and over; None for others."""
    dtype = elements.storage(kind)
    if fill in UNDEFINED:
        ones = np.full(dtype.itemsize, 0xFF, np.uint8)
        special: Any = elements.poison(kind)
        return special or ones.view(np.uint8 if dtype.kind == "b" else dtype)[0]  # type: ignore[no-any-return]
    is_float = kind in elements.FLOATS
    if fill in ("zeros", "ones"):
        number: float = fill == "ones"
    else:
        try:
            number = float(fill) if is_float else int(fill, 0)
        except ValueError:
            return None
    return elements.stored(np.asarray(number), kind).reshape(1)[0]  # type: ignore[no-any-return]


def filled(fill: str, kind: str, shape: tuple[int, ...], seed: int, name: str) -> np.ndarray:
    """A new array of storage. Raises UsageError for a content that is not known."""
    number = one_number(fill, kind)
    if number is not None:
        return repeated(shape, number, number.dtype)
    dtype, count = elements.storage(kind), int(np.prod(shape))
    rng = np.random.default_rng([seed, *name.encode()])
    is_float = kind in elements.FLOATS
    numbers: Any
    if fill == "random":
        if not is_float and dtype.kind != "b":
            info = np.iinfo(dtype)
            return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        numbers = rng.uniform(-1, 1, shape) if is_float else rng.integers(0, 2, shape)
    elif fill == "integers":
        numbers = rng.integers(0 if dtype.kind == "u" and not is_float else -4, 5, shape)
    elif fill == "iota":
        numbers = np.arange(count).reshape(shape)
    else:
        raise UsageError(
            f"--arg {name} cannot be filled with '{fill}'; use {', '.join(FILLS)}, a number, "
            "FILE.npy or FILE.bin"
        )
    return elements.stored(np.asarray(numbers), kind)


def load(path: Path, kind: str | None) -> np.ndarray:
    """The storage that a .npy or .bin file holds. Raises UsageError."""
    dtype = elements.storage(kind) if kind else None
    try:
        if path.suffix == ".npy":
            array: np.ndarray = np.load(path, allow_pickle=False)
        else:
            array = np.fromfile(path, dtype or np.uint8)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if dtype is None or array.dtype == dtype:
        return array
    if array.dtype.itemsize == dtype.itemsize and array.dtype.kind == "V":
        return array.view(dtype)  # ml_dtypes' types, as numpy alone reads them
    assert kind is not None
    return elements.stored(array, kind)
