"""The emulator's roundings to tf32 are those that it says; `compare_results` has a GPU's."""

from __future__ import annotations

import numpy as np
import pytest

from gen.device.emulated import EmulatorRunner
from gen.spec import numerics
from tests.hardware.roundings import CLASSES, RULES, WAYS, compare, drawn, results


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NaN, signaling ones too
@pytest.mark.parametrize("way", WAYS)
def test_tf32(way: str) -> None:
    bits = drawn(4096)
    values, got = bits.view(np.float32), results(EmulatorRunner(), bits, way)
    assert all(of(values).any() for of in CLASSES.values())
    numbers, rounded = np.isfinite(values), got.view(np.float32).astype(np.float64)
    exact = values.astype(np.float64)
    half = np.float64(2.0 ** (np.frexp(exact[numbers])[1].clip(-125) - 12))
    overflows = np.abs(exact[numbers]) >= numerics.overflow_threshold("tf32")
    assert (np.isinf(rounded[numbers]) == overflows).all()
    near = numbers & np.isfinite(rounded)
    assert (np.abs(rounded - exact)[near] <= half[~overflows]).all()
    even, away, cut, _ = (rule(bits) for rule in RULES.values())
    if way == "TMA":
        assert (got == np.where(np.isnan(values), 0x7FFFE000, np.where(numbers, even, bits))).all()
        found = numerics.from_float64(values, "tf32").view(np.uint32)
        assert (got == found)[numbers].all()
    else:
        assert (got == np.where(numbers, away, cut)).all()


def test_a_difference_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    class Other(EmulatorRunner):
        def download(self, buffer: object) -> np.ndarray:
            found = super().download(buffer)
            found[found == 0x7F800000] = 0x7F7FE000  # saturates
            return found

    assert compare(EmulatorRunner(), EmulatorRunner(), 4096) == 0
    capsys.readouterr()
    assert compare(Other(), EmulatorRunner(), 4096) > 4
    assert "7f7fffff is 7f7fe000, on the emulator 7f800000" in capsys.readouterr().out
