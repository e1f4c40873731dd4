"""Buffers of gigabytes take room only where a kernel writes; others may be refused."""

from __future__ import annotations

import numpy as np
import pytest

import gen
from gen.emulator import repeated
from gen.errors import UsageError
from gen.foreign import elements
from gen.foreign.contents import filled
from gen.spread import processes
from tests.support.slow import each

FAR = "__global__ void k(T* x, long long n) { x[n - 1 - threadIdx.x] = 7; x[threadIdx.x] = X; }"


@pytest.mark.parametrize(
    ("kind", "name", "fill"), [("u8", "unsigned char", "undefined"), ("i32", "int", "3"),
                               ("f32", "float", "poison"), ("f64", "double", "zeros")],
)  # fmt: skip
def test_a_buffer_of_gigabytes(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, fill: str
) -> None:
    monkeypatch.setattr(processes, "free_memory", lambda: 1 << 30)
    count = (3 << 30) // elements.storage(kind).itemsize
    source = FAR.replace("T*", f"{name}*").replace("X", "9")
    outcome = gen.emulate(source, None, 1, 32, {"x": f"{kind}[n]:{fill}", "n": count})
    assert outcome.ok
    assert outcome.changed == ["x"]
    x = outcome.arrays["x"]
    assert (x[-32:] == 7).all()
    assert (x[:32] == 9).all()
    assert x[count // 2].tobytes() == filled(fill, kind, (1,), 0, "x")[0].tobytes()
    assert outcome.before["x"][-1].tobytes() == x[count // 2].tobytes()


def test_checks_of_a_buffer_of_gigabytes() -> None:
    for text, check in (("9; x[n] = 1", "memcheck"), ("x[1000] + threadIdx.x", "initcheck"),
                        ("0; x[1 << 20] = threadIdx.x", "racecheck")):  # fmt: skip
        source = FAR.replace("T*", "char*").replace("X", text)
        outcome = gen.emulate(source, None, 1, 32, {"x": "i8[n]:undefined", "n": 3 << 30})
        assert check in {finding.check for finding in outcome.findings + outcome.notes}


@pytest.mark.parametrize(
    ("text", "way_out"), [("f32[268435456]", "or undefined, zeros or a number"),
                          ("bf16[1073741824]:zeros", "or u16[...]:undefined, zeros or a number")],
)  # fmt: skip
def test_what_there_is_no_room_for(
    monkeypatch: pytest.MonkeyPatch, text: str, way_out: str
) -> None:
    monkeypatch.setattr(processes, "free_memory", lambda: 1 << 30)
    with pytest.raises(UsageError, match="MiB, and 1024 MiB are free; use a smaller") as error:
        gen.emulate("__global__ void k(void* x) {}", args={"x": text})
    assert way_out in str(error.value)


def test_more_than_a_buffer_may_have() -> None:
    with pytest.raises(UsageError, match="has 5000000000 bytes; at most 4294967296 are possible"):
        gen.emulate("__global__ void k(void* x) {}", args={"x": "u8[5000000000]:zeros"})


@pytest.mark.parametrize("dtype", each(3, ["i1", "i4", "i8", "f8"]))
def test_repeated_numbers(dtype: str) -> None:
    for count in (3, 1 << 24, (1 << 26) + 5):
        array = repeated((count,), -1, dtype)
        assert (array == -1).all()
        array[count // 2] = 5
        assert (array[: count // 2] == -1).all()
        assert array[count // 2] == 5
    assert (repeated((3, 1 << 25), 0, dtype)[::2] == 0).all()
    assert np.array_equal(repeated(4, 9, dtype), np.full(4, 9, dtype))
