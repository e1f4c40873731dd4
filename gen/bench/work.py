"""A problem with its operands on the GPU, in so many copies that no cache holds them all."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.bench import sizes
from gen.spec import numerics
from gen.spec.dtypes import DTypes
from gen.spec.problem import GemmShape, Layouts

if TYPE_CHECKING:
    from gen.bench.device import MeasuredGpu

# Distinct random elements of an operand; a large one repeats them. A prime, so that no two rows
# of a matrix are alike.
_RANDOM = 16_777_213

# For sums in f16, which has all integers up to 2048: twelve standard deviations even of the sum of
# 262,144 products.
_SIMPLE = np.array([-1, 0, 0, 0, 0, 1], np.float16)

_ALIGNMENT = 256  # of each copy of an operand, as of separate allocations
_MOST_SETS = 1024


def exact_in_check(dtypes: DTypes) -> bool:
    """Whether results are checked with operands whose sums are exact: no useful bound is known."""
    return dtypes.accumulator.name == "f16" or dtypes.input.is_fp8


def sets_needed(set_bytes: int, l2_bytes: int) -> int:
    """How many copies of the operands are twice what the L2 cache holds: one at least."""
    return min(max(-(-2 * l2_bytes // max(set_bytes, 1)), 1), _MOST_SETS)


class Outline:
    """D = A * B for one shape, without operands: what compiling needs to know."""

    def __init__(self, arch: str, dtypes: DTypes, layouts: Layouts, shape: GemmShape) -> None:
        self.arch, self.dtypes, self.layouts = arch, dtypes, layouts
        self.problem = sizes.problem(shape, layouts)
        self.each = sizes.each(shape)

    @property
    def products(self) -> int:
        """How many there are."""
        return len(self.each)

    @property
    def grouped(self) -> bool:
        """Whether they are groups of rows."""
        return self.problem.ends is not None


class Work(Outline):
    """Random operands, `sets` copies of them and of D.

    alpha is 1 and beta 0, since that is what all peers compute. Close it to give the memory back.
    Raises OutOfMemory.
    """

    def __init__(
        self, gpu: MeasuredGpu, dtypes: DTypes, layouts: Layouts, shape: GemmShape
    ) -> None:
        super().__init__(gpu.arch, dtypes, layouts, shape)
        self.gpu = gpu
        self.accumulator = numerics.storage_dtype(dtypes.accumulator.name)
        each = sizes.operand_bytes(shape, dtypes)
        self.bytes = sum(each)
        self.sets = sets_needed(self.bytes, gpu.l2_bytes)
        strides = [-(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT for size in each]
        self.stride_a, self.stride_b, self.stride_d = strides
        self._memory = []
        try:
            for stride in strides:
                self._memory.append(gpu.allocate(stride * self.sets))
        except BaseException:
            self.close()
            raise
        rng = np.random.default_rng(self.bytes)
        self._a, self._b = (
            random_elements(rng, size // dtypes.input.size, dtypes.input.name) for size in each[:2]
        )
        self._write()
        self._repeat()

    def _write(self) -> None:
        """Puts A and B into the first set."""
        a, b, _ = self.pointers(0)
        for address, array in ((a, self._a), (b, self._b)):
            if array.size:
                self.gpu.write(address, array)

    def _repeat(self) -> None:
        """Copies A and B into the other sets."""
        a, b, _ = self.pointers(0)
        for first, stride, array in ((a, self.stride_a, self._a), (b, self.stride_b, self._b)):
            for i in range(1, self.sets if array.size else 0):
                self.gpu.copy(first + i * stride, first, array.nbytes)
        self.gpu.sync()

    @contextmanager
    def provable(self) -> Iterator[None]:
        """Meanwhile the first set holds what results can be checked with.

        Sums of 11 or 14 bits of arbitrary values may rightly be off by all that they are worth: for
        these it holds -1, 1 and mostly 0, whose sums are exact.
        """
        if not exact_in_check(self.dtypes):
            yield
            return
        drawn = self._a, self._b
        rng = np.random.default_rng(self.bytes)
        simple = numerics.from_float64(_SIMPLE, self.dtypes.input.name)
        self._a, self._b = (
            np.resize(simple[rng.integers(simple.size, size=min(each.size, _RANDOM))], each.size)
            for each in drawn
        )
        self._write()
        yield
        self._a, self._b = drawn
        self._write()

    def close(self) -> None:
        """Gives the memory back."""
        for memory in self._memory:
            self.gpu.free(memory)
        self._memory = []

    @property
    def shape(self) -> GemmShape:
        """M, N and K; of groups, M is that of all rows."""
        return self.problem.shape

    @property
    def flops(self) -> int:
        """Of all products."""
        return sum(map(sizes.flops, self.each))

    def pointers(self, index: int) -> tuple[int, int, int]:
        """The addresses of A, B and D in one set; `index` goes round."""
        a, b, d = (int(memory.handle) for memory in self._memory)
        i = index % self.sets
        return a + i * self.stride_a, b + i * self.stride_b, d + i * self.stride_d

    def shortened(self, k: int) -> Work:
        """The same operands with a sum of only `k` products, to see how long the whole takes."""
        other = copy.copy(self)
        p = self.problem
        shape = GemmShape(p.shape.m, p.shape.n, min(k, p.shape.k))
        other.problem = replace(p, shape=shape)
        return other

    def matrices(self, product: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """A (M x K) and B (K x N) of one product, of storage."""
        s, p = self.each[product], self.problem
        rows = sum(one.m for one in self.each[:product])
        a, b = self._a[rows * s.k :], self._b[product * s.k * s.n :]
        return (
            numerics.unpack(a, s.m, s.k, self.layouts.a, p.lda),
            numerics.unpack(b, s.k, s.n, self.layouts.b, p.ldb),
        )

    def poison(self, index: int = 0) -> None:
        """Spoils D in one set: NaN, or a rare integer."""
        value = poison(self.dtypes)
        pattern = value.tobytes()[:4]  # of f64 all bytes are alike
        count = self._results * value.itemsize // len(pattern)
        self.gpu.fill(self.pointers(index)[2], pattern, count)

    @property
    def _results(self) -> int:
        """The elements of D."""
        return sum(one.m * one.n for one in self.each)

    def result(self, index: int = 0) -> list[np.ndarray]:
        """D (M x N) of each product, of storage."""
        storage = np.empty(self._results, numerics.storage_dtype(self.dtypes.output.name))
        if storage.size:
            self.gpu.read(self.pointers(index)[2], storage)
        ends = np.cumsum([one.m * one.n for one in self.each])
        return [
            numerics.unpack(part, s.m, s.n, self.layouts.c, self.problem.ldd)
            for s, part in zip(self.each, np.split(storage, ends[:-1]), strict=True)
        ]


def poison(dtypes: DTypes) -> Any:
    """What `Work.poison` writes into each element."""
    storage = numerics.storage_dtype(dtypes.output.name)
    if dtypes.output.is_float:
        return np.frombuffer(b"\xff" * storage.itemsize, storage)[0]  # NaN
    return storage.type(np.iinfo(storage).min + 1)


def random_elements(rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    """Storage of uniform random values: within 0.5 of 0, or any integer.

    Never zeros or constants: on those, a GPU draws less power and runs faster than it ever will.
    """
    fresh = min(count, _RANDOM)
    if numerics.is_float(dtype):
        values = numerics.from_float64(rng.uniform(-0.5, 0.5, fresh), dtype)
    else:
        info = np.iinfo(numerics.storage_dtype(dtype))
        values = rng.integers(info.min, info.max, fresh, info.dtype, endpoint=True)
    return values if fresh == count else np.resize(values, count)
