"""Executes the PTX of CUDA kernels on the CPU, and reports what they do wrong.

::

    emulator = Emulator()
    a = emulator.alloc(np.ones(64, np.float32), "A")
    report = emulator.launch(ptx, "scale", (1, 1, 1), (64, 1, 1), [a, np.float32(2)])
    assert not report.findings
    print(emulator.read(a))

How it works, room by room: `ptx` parses, `isa` has the instructions, `translate` turns basic blocks
into numpy functions, `run` runs these for many threads at once, `memory` holds the data and moves
it, `warp` does what lanes do together. Observers (`watch`) see a launch: races, early accesses and
undefined reads, which running in lockstep, and alone, hides; and counters.

Other rooms of the package import from here alone.
"""

from gen.emulator.isa.instructions import waits
from gen.emulator.memory.arrays import DeviceArray, LineArray
from gen.emulator.memory.chances import Chances
from gen.emulator.memory.observer import Observer
from gen.emulator.memory.repeated import repeated
from gen.emulator.memory.tensor_map import TensorMap
from gen.emulator.ptx.module import Instruction, Param, PtxKernel, PtxModule, Variable
from gen.emulator.ptx.parse import parse_ptx
from gen.emulator.run.emulator import Emulator, LaunchReport
from gen.emulator.run.skipping import GapReadError, NothingSkippedError, Part, Skipping
from gen.emulator.run.system_calls import Printed
from gen.emulator.translate.blocks import build_blocks
from gen.emulator.translate.undefined import may_lack_values
from gen.emulator.watch.counters import Access, AccessPoint, Counters, Totals
from gen.emulator.watch.early_access import EarlyAccesses
from gen.emulator.watch.findings import Finding
from gen.emulator.watch.global_races import GlobalRaces
from gen.emulator.watch.joined_loads import match_widths
from gen.emulator.watch.matrix_races import SharedRaces
from gen.emulator.watch.missed_phases import MissedPhases
from gen.emulator.watch.outcomes import Outcomes, told
from gen.emulator.watch.read_only import ReadOnlyLoads
from gen.emulator.watch.same_values import SameValues
from gen.emulator.watch.shared_use import SharedUse
from gen.emulator.watch.uninitialized import UninitializedReads

__all__ = [
    "Access",
    "AccessPoint",
    "Chances",
    "Counters",
    "DeviceArray",
    "EarlyAccesses",
    "Emulator",
    "Finding",
    "GapReadError",
    "GlobalRaces",
    "Instruction",
    "LaunchReport",
    "LineArray",
    "MissedPhases",
    "NothingSkippedError",
    "Observer",
    "Outcomes",
    "Param",
    "Part",
    "Printed",
    "PtxKernel",
    "PtxModule",
    "ReadOnlyLoads",
    "SameValues",
    "SharedRaces",
    "SharedUse",
    "Skipping",
    "TensorMap",
    "Totals",
    "UninitializedReads",
    "Variable",
    "build_blocks",
    "match_widths",
    "may_lack_values",
    "parse_ptx",
    "repeated",
    "told",
    "waits",
]
