"""Which runner: a GPU where there is one, else the emulator."""

from __future__ import annotations

from gen.device.driver import why_no_gpu
from gen.device.emulated import EmulatorRunner
from gen.device.gpu import GpuRunner
from gen.device.runner import Runner
from gen.errors import MissingError, unknown

# Multiprocessors of the emulated GPU where kernels are tried: so few that blocks which stay have
# several of a small problem's tiles.
FEW = 4


DEVICES = ("auto", "gpu", "cpu")


def choose_runner(device: str = "auto") -> Runner:
    """The runner for `auto` (a GPU if there is one), `gpu` or `cpu` (the emulator).

    Raises UsageError for another word, MissingError where `gpu` is asked for and there is none.
    """
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cpu":
        return EmulatorRunner(multiprocessors=FEW)
    reason = why_no_gpu()
    if reason is None:
        return GpuRunner()
    if device == "gpu":
        raise MissingError(f"no GPU to run on: {reason}; use --device cpu for the emulator")
    return EmulatorRunner(multiprocessors=FEW)
