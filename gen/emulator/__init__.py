"""Executes the PTX of CUDA kernels on the CPU, and reports what they do wrong.

::

    emulator = Emulator()
    a = emulator.alloc(np.ones(64, np.float32), "A")
    report = emulator.launch(ptx, "scale", (1, 1, 1), (64, 1, 1), [a, np.float32(2)])
    assert not report.findings
    print(emulator.read(a))

How it works, in the order of the modules: `ptx.py` parses, `cfg.py` finds basic blocks, `isa.py`
lists the instructions, `codegen.py` turns blocks into numpy functions, `chunk.py` runs them for
many threads at once, `memory.py` and `scratch.py` hold the data, `machine.py` is the front door.
"""

from gen.emulator.checks import Finding
from gen.emulator.machine import DeviceArray, Emulator, LaunchReport
from gen.emulator.module import PtxModule
from gen.emulator.ptx import parse_ptx

__all__ = ["DeviceArray", "Emulator", "Finding", "LaunchReport", "PtxModule", "parse_ptx"]
