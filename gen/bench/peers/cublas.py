"""cuBLASLt as a peer, through nvmath-python's bindings: its first choice, and its best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gen.bench import timing
from gen.bench.contenders import (
    FAST,
    Contender,
    Lacking,
    Peer,
    Prepared,
    Unsupported,
    accumulations,
    check_even,
    launcher,
)
from gen.bench.instructions import multiplied
from gen.errors import CheckError
from gen.spec.dtypes import DTypes

if TYPE_CHECKING:
    from cuda.core import Stream

    from gen.bench.work import Work

# What cuBLAS itself takes on Hopper, and enough for every algorithm that it then offers.
_WORKSPACE = 32 * 2**20
_MOST_ALGORITHMS = 512  # more than the heuristic has
_TUNING_SECONDS = 30.0
_AGAIN = 6  # of the algorithms, those that were fastest in a short try

# cudaDataType of matrices and of alpha, which has the type of the sums.
_DATA = {
    "f32": "CUDA_R_32F",
    "f64": "CUDA_R_64F",
    "f16": "CUDA_R_16F",
    "bf16": "CUDA_R_16BF",
    "tf32": "CUDA_R_32F",
    "i8": "CUDA_R_8I",
    "i32": "CUDA_R_32I",
    "e4m3": "CUDA_R_8F_E4M3",
    "e5m2": "CUDA_R_8F_E5M2",
}

# cublasComputeType_t by what is multiplied and summed. (e5m2 it multiplies with e4m3 alone.)
_COMPUTE = {
    ("f32", "f32"): "COMPUTE_32F",
    ("f64", "f64"): "COMPUTE_64F",
    ("f16", "f32"): "COMPUTE_32F",
    ("f16", "f16"): "COMPUTE_16F",
    ("bf16", "f32"): "COMPUTE_32F",
    ("tf32", "f32"): "COMPUTE_32F_FAST_TF32",
    ("i8", "i32"): "COMPUTE_32I",
    ("e4m3", "f32"): "COMPUTE_32F",
}


_Queue = Callable[["Stream", int, int, int], None]


class _Side(NamedTuple):
    """An operand as a column-major matrix in memory, and whether it is to be transposed."""

    rows: int
    columns: int
    ld: int
    transposed: bool


def sides(work: Work) -> tuple[_Side, _Side, _Side]:
    """Left operand, right operand and result, column-major as cuBLAS has it.

    A row-major matrix in memory is its transpose, column-major, and a row-major D = A * B is
    D' = B' * A' so that left is B.
    """
    p, s, layouts = work.problem, work.shape, work.layouts

    def side(rows: int, columns: int, ld: int, column_major: bool) -> _Side:
        return _Side(rows, columns, ld, False) if column_major else _Side(columns, rows, ld, True)

    if layouts.c:
        left = side(s.n, s.k, p.ldb, layouts.b)
        right = side(s.k, s.m, p.lda, layouts.a)
        return left, right, _Side(s.n, s.m, p.ldd, False)
    left = side(s.m, s.k, p.lda, not layouts.a)
    right = side(s.k, s.n, p.ldb, not layouts.b)
    return left, right, _Side(s.m, s.n, p.ldd, False)


class _Problem:
    """cuBLASLt's descriptions of one problem. Close it.

    The scales of FP8 are 1, as they are where none are given.
    """

    def __init__(self, lt: Any, work: Work, fast: bool) -> None:
        from nvmath import CudaDataType
        from nvmath.bindings.cublas import ComputeType

        self._lt = lt
        dtypes = work.dtypes
        input_, output, scalar = (
            int(CudaDataType[_DATA[element.name]])
            for element in (dtypes.input, dtypes.output, dtypes.accumulator)
        )
        left, right, result = sides(work)
        self.handle = lt.create()
        self.matmul = lt.matmul_desc_create(int(ComputeType[_COMPUTE[multiplied(dtypes)]]), scalar)
        for attribute, value in (
            ("TRANSA", np.array([left.transposed], np.int32)),
            ("TRANSB", np.array([right.transposed], np.int32)),
            ("FAST_ACCUM", np.array([fast], np.int8)),
        ):
            code = int(lt.MatmulDescAttribute[attribute])
            lt.matmul_desc_set_attribute(self.matmul, code, value.ctypes.data, value.nbytes)
        self.layouts = [
            lt.matrix_layout_create(kind, side.rows, side.columns, side.ld)
            for kind, side in ((input_, left), (input_, right), (output, result))
        ]
        if work.products > 1:
            for layout, side in zip(self.layouts, (left, right, result), strict=True):
                self._set(layout, "BATCH_COUNT", np.array([work.products], np.int32))
                apart = np.array([side.ld * side.columns], np.int64)
                self._set(layout, "STRIDED_BATCH_OFFSET", apart)
        self.scalars = np.array([1, 0], work.accumulator)
        self.alpha = self.scalars.ctypes.data
        self.beta = self.alpha + self.scalars.itemsize

    def _set(self, layout: int, name: str, value: np.ndarray) -> None:
        code = int(self._lt.MatrixLayoutAttribute[name])
        self._lt.matrix_layout_set_attribute(layout, code, value.ctypes.data, value.nbytes)

    def algorithms(self, most: int, own_sums: bool) -> np.ndarray:
        """The heuristic's results, best first; empty where cuBLAS has nothing.

        own_sums: only those that add the parts of a sum in the type of sums, and not in D's.
        """
        lt = self._lt
        limits = {"MAX_WORKSPACE_BYTES": np.array([_WORKSPACE], np.uint64)}
        if own_sums:
            scheme = int(lt.ReductionScheme.COMPUTE_TYPE)
            limits["REDUCTION_SCHEME_MASK"] = np.array([scheme], np.uint32)
        preference = lt.matmul_preference_create()
        try:
            for name, limit in limits.items():
                code, at = int(lt.MatmulPreferenceAttribute[name]), limit.ctypes.data
                lt.matmul_preference_set_attribute(preference, code, at, limit.nbytes)
            found = np.zeros(most, lt.matmul_heuristic_result_dtype)
            count = np.zeros(1, np.int32)
            left, right, result = self.layouts
            lt.matmul_algo_get_heuristic(
                *(self.handle, self.matmul, left, right, result, result, preference, most),
                *(found.ctypes.data, count.ctypes.data),
            )
        except lt.cuBLASLtError as error:
            raise Unsupported(f"cuBLAS refuses: {error}") from None
        finally:
            lt.matmul_preference_destroy(preference)
        return found[: int(count[0])]

    def close(self) -> None:
        for layout in self.layouts:
            self._lt.matrix_layout_destroy(layout)
        self._lt.matmul_desc_destroy(self.matmul)
        self._lt.destroy(self.handle)


class Cublas(Peer):
    """`cublas` takes the heuristic's first choice, `cublas best` the fastest of its whole list."""

    def __init__(self, best: bool, fast: bool = False) -> None:
        self._best, self._fast = best, fast
        self.name = " ".join(filter(None, ("cublas", "best" * best, FAST * fast)))

    def prepare(self, work: Work) -> Prepared:
        """See Contender. `cublas best` measures the candidates here."""
        check_even(work)
        from nvmath.bindings import cublasLt as lt

        problem = _Problem(lt, work, self._fast)
        memory = work.gpu.allocate(_WORKSPACE)

        def close() -> None:
            work.gpu.free(memory)
            problem.close()

        try:
            rounded = work.dtypes.output.size < work.dtypes.accumulator.size
            found = problem.algorithms(
                _MOST_ALGORITHMS if self._best else 1, own_sums=self._best and rounded
            )
            if not len(found):
                raise Unsupported("cuBLAS has no algorithm for these types and layouts")
            queues = [
                _queue(lt, problem, found[i : i + 1], int(memory.handle), work)
                for i in range(len(found))
            ]
            chosen, note = _fastest(work, queues) if self._best else (0, "")
        except BaseException:
            close()
            raise
        size = int(found[chosen]["workspace_size"])
        return Prepared(queues[chosen], size, close, note, keep=found)


def _fastest(work: Work, queues: Sequence[_Queue]) -> tuple[int, str]:
    """Which algorithm, and in words. Raises Unsupported where none runs."""
    launches = [launcher(work, queue) for queue in queues]
    order, tried = timing.ranked(work.gpu, launches, _TUNING_SECONDS)
    if not order:
        raise Unsupported("cuBLAS has no algorithm that can be launched")
    best = order[:_AGAIN]
    chosen = best[timing.fastest(work.gpu, [launches[i] for i in best])]
    some = f"the first {tried} of " if tried < len(queues) else ""
    return chosen, f"number {chosen + 1} of {some}{len(queues)} algorithms"


def _queue(lt: Any, problem: _Problem, algorithm: np.ndarray, workspace: int, work: Work) -> _Queue:
    left, right, result = problem.layouts
    chosen = algorithm["algo"].ctypes.data
    swap = work.layouts.c

    def queue(stream: Stream, a: int, b: int, d: int) -> None:
        first, second = (b, a) if swap else (a, b)
        try:
            lt.matmul(
                *(problem.handle, problem.matmul, problem.alpha, first, left, second, right),
                *(problem.beta, d, result, d, result, chosen, workspace, _WORKSPACE),
                int(stream.handle),
            )
        except lt.cuBLASLtError as error:
            raise CheckError(f"cuBLAS failed: {error}") from None

    return queue


def contenders(dtypes: DTypes) -> list[Contender]:
    """Both, for the types that cuBLAS has; of FP8 both also with fast accumulation."""
    if multiplied(dtypes) not in _COMPUTE:
        return [Lacking("cublas", dtypes)]
    return [Cublas(best, fast) for fast in accumulations(dtypes) for best in (False, True)]
