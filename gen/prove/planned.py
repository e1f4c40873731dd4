"""A kernel's file made ready for `gen check`: compiled, and what is to be tried of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gen.compile import nvrtc
from gen.emulator import PtxKernel, PtxModule, parse_ptx, waits
from gen.errors import CheckError, UsageError
from gen.kernels.launches import MAP_BYTES, Argument, Launch, Pointer, TensorMap
from gen.kernels.registry import VARIANTS
from gen.kernels.tensor_cores.facts import held_blocks
from gen.prove.check_trials import check_trials, corner_trials, late_trials
from gen.prove.drawn import drawn_trials
from gen.prove.far import FAR, NEARER, Far
from gen.prove.limits import emulated
from gen.prove.reaching import values
from gen.prove.trials import Trial
from gen.prove.unreached import Probed, probe_kernels
from gen.source.render import Source
from gen.spec.arch import MULTIPROCESSORS
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

MAX_THRESHOLD = 4096  # of what a kernel compares with, what may be a size


class Planned(NamedTuple):
    """A kernel, compiled, and what `check` tries of it.

    far: large matrices, too, unless somebody named shapes.
    """

    source: Source
    spec: KernelSpec
    module: nvrtc.Module
    trials: list[Trial]
    far: Sequence[Far]
    probed: Probed | None = None  # the same with probes, where it is edited


def plan(
    source: Source,
    shapes: Sequence[GemmShape] | None = None,
    also: Sequence[Trial] = (),
    thorough: bool = False,
) -> Planned:
    """What `check` tries, on shapes or on those that it chooses itself. Raises as `check`.

    thorough: all of it, as of an edited kernel. CheckError: for a block of another size, too.
    """
    emulated(shapes or ())
    spec = source.spec
    if spec is None:
        raise UsageError(_NO_SPEC.format(name=source.place, variants=", ".join(VARIANTS)))
    module = nvrtc.compile_cuda(source.text, name=source.place, arch=spec.arch)
    ptx = parse_ptx(module.code.decode())
    _check_kernels(spec, ptx)
    if shapes is not None:
        trials = [trial for shape in shapes for trial in corner_trials(spec, shape)]
        return Planned(source, spec, module, [*also, *trials], far=())
    probed = probe_kernels(source)
    thorough = thorough or bool(probed.edited.edited)
    trials = check_trials(spec, thresholds(ptx), thorough)
    if waits(ptx):
        trials += late_trials(spec, thorough)
    if thorough:
        trials += drawn_trials(spec, [int(n) for n in values(probed.edited.numbers) if n == int(n)])
    far = FAR if thorough else NEARER
    return Planned(source, spec, module, [*also, *trials], far, probed)


def thresholds(ptx: PtxModule) -> list[int]:
    """Numbers that the kernels compare something with: beyond them, they may do something else."""
    found = {abs(number) for number in ptx.comparisons}
    return sorted(number for number in found if number <= MAX_THRESHOLD)


_NO_SPEC = (
    "{name} has no gen-spec line, which says how to launch the kernel; edit a file that gen emit "
    'has written, or add a comment line such as // gen-spec: {{"variant": "tiles", "dtype": "f32", '
    '"name": "my_kernel"}} (variants: {variants})'
)


# Where each of a file's kernels takes part: operands that need packing, a long sum in slices, tiles
# that blocks share.
_UNALIGNED = Alignment(False, False, False)
LONG = GemmShape(1, 1, 2**20)


def launches(spec: KernelSpec) -> tuple[Launch, ...]:
    """A launch of each kernel that the file of a specification has."""
    shape, multiprocessors = LONG, MULTIPROCESSORS
    if spec.stream_k:  # a tile more than two multiprocessors have blocks for
        rows = 2 * held_blocks(spec) * spec.threadblock.m + 1
        shape = replace(LONG, m=rows) if spec.layouts.c else replace(LONG, n=rows)
        multiprocessors = 2
    problem = GemmProblem.packed(shape, spec.layouts)
    return spec.plan(problem, _UNALIGNED, multiprocessors).launches


def _check_kernels(spec: KernelSpec, ptx: PtxModule) -> None:
    """Raises UsageError where the file's kernels are not what its `gen-spec` line says."""
    kernels = ptx.kernels
    for launch in launches(spec):
        if launch.kernel not in kernels:
            found = ", ".join(kernels) or "none"
            raise UsageError(
                f"the file's gen-spec line names the kernel {launch.kernel}, but the file's "
                f'kernels are: {found}; rename the kernel, or set "name" in the gen-spec line'
            )
        kernel = kernels[launch.kernel]
        sizes = [_size(arg) for arg in launch.args.values()]
        if [parameter.nbytes for parameter in kernel.params] != sizes:
            raise UsageError(
                f"the parameters of {launch.kernel} are not those of an emitted kernel any more: "
                f"{len(kernel.params)} of {', '.join(str(p.nbytes) for p in kernel.params)} bytes, "
                f"not {len(sizes)} of {', '.join(map(str, sizes))} ({', '.join(launch.args)})"
            )
        _check_threads(launch, kernel)


def _size(argument: Argument) -> int:
    """Bytes of a kernel's parameter."""
    if isinstance(argument, TensorMap):
        return MAP_BYTES
    return 8 if isinstance(argument, Pointer) else argument.nbytes


def _check_threads(launch: Launch, kernel: PtxKernel) -> None:
    wanted = math.prod(launch.block)
    if kernel.max_threads and math.prod(kernel.max_threads) != wanted:
        raise CheckError(
            f"{launch.kernel} has __launch_bounds__ of {math.prod(kernel.max_threads)} threads, "
            f"but its gen-spec line describes a block of {wanted}; mend the one that is wrong"
        )
