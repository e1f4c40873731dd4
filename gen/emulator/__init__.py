"""Executes the PTX of CUDA kernels on the CPU, and reports what they do wrong.

::

    emulator = Emulator()
    a = emulator.alloc(np.ones(64, np.float32), "A")
    report = emulator.launch(ptx, "scale", (1, 1, 1), (64, 1, 1), [a, np.float32(2)])
    assert not report.findings
    print(emulator.read(a))

How it works, in the order of the modules: `ptx.py` parses, `cfg.py` finds basic blocks, `isa.py`
lists the instructions (rows in `rows_*.py`), `codegen.py` turns blocks into numpy functions,
`chunk.py` runs them for many threads at once, `memory.py` and `scratch.py` hold the data,
`tensor.py` and `async_copy.py` do what their names say, `machine.py` is the front door. Observers
(`observe.py`) watch a launch: `races.py`, `global_races.py`, `early.py` and `initialized.py` find
what running in lockstep, and alone, hides.
"""

from gen.emulator.checks import Finding
from gen.emulator.copy_races import SharedRaces
from gen.emulator.counters import Counters
from gen.emulator.early import EarlyAccesses
from gen.emulator.global_races import GlobalRaces
from gen.emulator.initialized import UninitializedReads
from gen.emulator.machine import DeviceArray, Emulator, LaunchReport, LineArray
from gen.emulator.module import PtxModule
from gen.emulator.observe import Observer
from gen.emulator.ptx import parse_ptx
from gen.emulator.tensormap import TensorMap

__all__ = [
    "Counters",
    "DeviceArray",
    "EarlyAccesses",
    "Emulator",
    "Finding",
    "GlobalRaces",
    "LaunchReport",
    "LineArray",
    "Observer",
    "PtxModule",
    "SharedRaces",
    "TensorMap",
    "UninitializedReads",
    "parse_ptx",
]
