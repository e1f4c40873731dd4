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


def check_device(device: str) -> None:
    """Raises UsageError for what is none of `DEVICES`."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)


def why_emulator(device: str = "auto") -> str | None:
    """Why `auto` (a GPU if there is one), `gpu` or `cpu` means the emulator; None for a GPU.

    It is empty where the emulator is asked for. Raises UsageError for another word, MissingError
    where `gpu` is asked for and there is none.
    """
    check_device(device)
    if device == "cpu":
        return ""
    reason = why_no_gpu()
    if reason is not None and device == "gpu":
        raise MissingError(f"no GPU to run on: {reason}; use --device cpu for the emulator")
    return reason


def choose_runner(device: str = "auto") -> Runner:
    """The runner for a device. Raises as `why_emulator`."""
    if why_emulator(device) is None:
        return GpuRunner()
    return EmulatorRunner(multiprocessors=FEW)
