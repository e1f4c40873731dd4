"""Reductions of global memory by bulk copies: cp.reduce.async.bulk, also of tensors."""

from __future__ import annotations

import itertools
import string
from typing import Any

import numpy as np
import pytest

from gen.emulator import TensorMap
from gen.emulator.isa.rounding import bf16, from_bf16
from gen.errors import CheckError
from tests.emulator.cluster_kernels import CLUSTER, launch
from tests.support.slow import each

SIZE = 64  # elements
TYPES: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32,
    "b64": np.uint64, "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16,
}  # fmt: skip
LINEAR = [
    *itertools.product(["add"], ["u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16"]),
    *itertools.product(["min", "max"], ["u32", "s32", "u64", "s64", "f16", "bf16"]),
    *itertools.product(["and", "or", "xor"], ["b32", "b64"]),
    *itertools.product(["inc", "dec"], ["u32"]),
]
OPERATIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
    "inc": lambda old, b: np.where(old >= b, 0, old + 1),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - 1),
}  # fmt: skip
KERNEL = r"""
extern "C" __global__ void kernel(u32* out, const u32* in $PARAMETER) {
  __shared__ __align__(128) u32 s[$WORDS];
  for (u32 i = threadIdx.x; i < $WORDS; i += 32) s[i] = in[blockIdx.x * $WORDS + i];
  $FENCE;
  __syncthreads();
  if (threadIdx.x == 0) {
    $REDUCE
    commit();
    $DRAIN
  }
}
"""


def numbers(kind: str, blocks: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 50, (blocks, SIZE))
    if kind in ("s32", "s64", "f32", "f64", "f16", "bf16"):
        values = values - 25
    if kind == "bf16":
        return np.asarray(bf16(values.astype(np.float32)))
    return values.astype(TYPES[kind])


def reduced(operation: str, kind: str, arrays: list[np.ndarray]) -> np.ndarray:
    result = arrays[0]
    for array in arrays[1:]:
        if kind == "bf16":
            wide = OPERATIONS[operation](from_bf16(result), from_bf16(array))
            result = np.asarray(bf16(wide))
        else:
            result = OPERATIONS[operation](result, array).astype(result.dtype)
    return result


def reduce(code: str, kind: str, blocks: int = 3, **options: Any) -> tuple[list, np.ndarray, list]:
    size = np.dtype(TYPES[kind]).itemsize
    arrays = {"out": numbers(kind, 1)[0][::-1].copy(), "in": numbers(kind, blocks)}
    words = {"WORDS": SIZE * size // 4, "REDUCE": code, "FENCE": "fence()", "DRAIN": "drain();"}
    words |= {"PARAMETER": ""} | options.pop("words", {})
    source = CLUSTER + string.Template(KERNEL).substitute(words)
    findings, (out, _) = launch(source, arrays, (blocks, 1, 1), 32, None, **options)
    return findings, out, [arrays["out"], *arrays["in"]]


def linear(operation: str, spelling: str) -> str:
    return (
        f'asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{spelling} '
        '[%0], [%1], %2;" ::"l"(out), "r"(at(s)), "r"((u32)sizeof(s)) : "memory");'
    )


def tensor(operation: str) -> str:
    return (
        f'asm volatile("cp.reduce.async.bulk.tensor.1d.global.shared::cta.{operation}.tile'
        '.bulk_group [%0, {%1}], [%2];" ::"l"(&map), "r"(0), "r"(at(s)) : "memory");'
    )


@pytest.mark.parametrize(("operation", "spelling"), each(3, LINEAR))
def test_linear(operation: str, spelling: str) -> None:
    kind = spelling.rpartition(".")[2]
    findings, out, arrays = reduce(linear(operation, spelling), kind)
    assert not findings, "\n".join(map(str, findings))
    assert out.tobytes() == reduced(operation, kind, arrays).tobytes()


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("add", "f32"), ("add", "f16"), ("add", "bf16"), ("add", "s32"), ("min", "s32"),
        ("max", "f16"), ("max", "u32"), ("and", "u32"), ("or", "b32"), ("xor", "u64"),
    ],
)  # fmt: skip
def test_tensor(operation: str, kind: str) -> None:
    def maps(_: object, device: list[Any]) -> list[TensorMap]:
        return [TensorMap(device[0], kind, (SIZE,), (), (SIZE,))]

    words = {"PARAMETER": ", const __grid_constant__ Map map"}
    findings, out, arrays = reduce(tensor(operation), kind, arguments=maps, words=words)
    assert not findings, "\n".join(map(str, findings))
    assert out.tobytes() == reduced(operation, kind, arrays).tobytes()


def test_what_does_not_exist() -> None:
    def maps(_: object, device: list[Any]) -> list[TensorMap]:
        return [TensorMap(device[0], "f32", (SIZE,), (), (SIZE,))]

    words = {"PARAMETER": ", const __grid_constant__ Map map"}
    with pytest.raises(CheckError, match="by min of a tensor map of f32 does not exist"):
        reduce(tensor("min"), "f32", arguments=maps, words=words)


def test_findings() -> None:
    code = linear("add", "u32")
    findings, _, _ = reduce(code, "u32", words={"FENCE": "__syncthreads()"})
    assert [f.check for f in findings] == ["racecheck"]
    assert "bulk reduction of 4 bytes at shared+0" in findings[0].message
    assert "a fence.proxy.async is missing" in findings[0].message
    findings, _, _ = reduce(code, "u32", words={"DRAIN": ""})
    assert "the block ends while a bulk copy uses its shared memory" in findings[0].message
    plain = f"atomicAdd(out, 1); {code} if (blockIdx.x) out[3] = 1;"
    findings, _, _ = reduce(plain, "u32")
    assert {f.check for f in findings} == {"racecheck"}
    assert any("bulk reduction" in f.message and "out+12" in f.message for f in findings)
