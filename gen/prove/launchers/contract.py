"""What a launcher returns, and the function that tells its workspace: the contract, in Python."""

from __future__ import annotations

from collections.abc import Sequence

from gen.errors import SpecError
from gen.kernels.launches import BIAS, OFFSETS, WORKSPACE, Launch, TensorMap
from gen.prove.launchers.call import Call
from gen.prove.launchers.program import EMBEDDED, PLAIN
from gen.spec.epilogue import MATRIX, VALUE
from gen.spec.kernel import KernelSpec

SUCCESS, INVALID_VALUE, INVALID_CONFIGURATION = 0, 1, 9
INVALID_HANDLE, NOT_SUPPORTED = 400, 801
_MOST = 2**44  # elements of a matrix
_FAR = 2**40  # bytes between lines, which the TMA does not take


def _too_large(kind: str) -> int:
    """What a launcher returns for more blocks than a grid has: the driver has no word for it."""
    return INVALID_VALUE if kind == EMBEDDED else INVALID_CONFIGURATION


def asked(spec: KernelSpec, call: Call, kind: str) -> tuple[int, int]:
    """What the function of the workspace returns, by the contract, and the bytes that it tells."""
    if not spec.row.takes_workspace:
        return SUCCESS, 0
    code = _refused(spec, call, launch=False)
    if code or not call.has_elements:
        return code, 0
    try:
        return SUCCESS, call.plan(spec, of_operands=True).workspace_bytes
    except SpecError:
        return _too_large(kind), 0


def _refused(spec: KernelSpec, call: Call, launch: bool) -> int:
    """The contract: what a launcher, or the function that tells its workspace, refuses."""
    p, batch = call.problem, call.problem.batch
    m, n, k = call.shape
    null, layouts = call.without.split(), spec.layouts
    most = spec.row.most if spec.grouped else spec.most_work
    if batch.products < 0 or (spec.row.takes_workspace and batch.products > most):
        return INVALID_VALUE
    if min(m, n, k) < 0 or (spec.row.takes_workspace and max(m, n, k) > spec.row.most):
        return INVALID_VALUE
    if not call.has_elements:
        return SUCCESS
    matrices = batch.products if spec.stacked else 1  # D
    if spec.row.takes_workspace and m * n * matrices > _MOST:
        return INVALID_VALUE

    def wrong(name: str, lines: int, length: int, row_major: bool, ld: int) -> bool:
        if not row_major:
            lines, length = length, lines
        stride = batch.stride(name) if name in "ABCD" else 0
        far = stride < 0 or stride * batch.products > _MOST
        return name in null or ld < length or lines * ld > _MOST or far

    bad = k > 0 and (
        wrong("A", m, k, layouts.a, p.lda) or wrong("B", k, n, layouts.b, p.ldb)
    )  # fmt: skip
    if launch:
        bad |= p.beta != 0 and wrong("C", m, n, layouts.c, p.ldc)
        bad |= wrong("D", m, n, layouts.c, p.ldd) or (spec.has_bias and BIAS in null)
        for operand in spec.operands:
            bad |= operand.index != VALUE and operand.name in null
            if operand.index == MATRIX:
                ld = int(p.value(operand.ld, p.ldd))
                bad |= wrong(operand.name, m, n, layouts.c, ld)
        bad |= spec.grouped and OFFSETS in null
        bad |= spec.stacked and batch.products > 1 and _overlaps(spec, call)
    return INVALID_VALUE if bad else SUCCESS


def _overlaps(spec: KernelSpec, call: Call) -> bool:
    """Whether products of D do: none has the next one's first element, nor do they share lines."""
    m, n, _ = call.shape
    lines, length = (m, n) if spec.layouts.c else (n, m)
    p, batch = call.problem, call.problem.batch
    together = (batch.products - 1) * batch.stride_d + length  # of all products' first lines
    if batch.stride_d >= length and together <= p.ldd:
        return False
    return batch.stride_d < (lines - 1) * p.ldd + length


def expected(spec: KernelSpec, call: Call, kind: str = PLAIN) -> tuple[int, Sequence[Launch]]:
    """What a launcher returns, by the contract, and the launches of the plan."""
    code = _refused(spec, call, launch=True)
    if code or not call.has_elements:  # it asks for the workspace first, and returns what that does
        return asked(spec, call, kind)[0] or code, ()
    if call.own and not call.capturing and kind != EMBEDDED:
        return INVALID_HANDLE, ()
    try:
        steps = call.plan(spec)
    except SpecError:
        return _too_large(kind), ()
    at, nbytes = call.addresses[WORKSPACE], call.workspace_bytes
    if steps.workspace_bytes and (at == 0 or at % 256 or nbytes < steps.workspace_bytes):
        return INVALID_VALUE, ()
    given = [a for launch in steps.launches for a in launch.args.values()]
    maps = sum(isinstance(a, TensorMap) and 0 not in a.dims for a in given)
    if call.no_tma and maps and kind != EMBEDDED:  # whose driver is looked at once
        return NOT_SUPPORTED, ()
    too_far = any(
        isinstance(a, TensorMap) and 0 not in a.dims and max(a.tiled[1]) >= _FAR for a in given
    )
    if 0 < call.refused_map <= maps or too_far:
        return INVALID_VALUE, ()
    if call.own and kind == EMBEDDED:  # the driver refuses the first launch
        return INVALID_HANDLE, ()
    return SUCCESS, steps.launches
