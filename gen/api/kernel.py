"""`Kernel`: a callable GEMM. What a call needs is prepared once, and then only launched."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from gen.api.call import Arguments, Call
from gen.api.frameworks import BY_TYPE, Framework, beside, framework, stream_handle
from gen.api.gpu import Launcher, Launchers
from gen.api.groups import fitted, with_offsets
from gen.api.operands import NOTHING, Own, checked, forms, is_number
from gen.api.origin import Origin, Target
from gen.api.views import HOST, View, element
from gen.device import context
from gen.device.choose import DEVICES
from gen.errors import UsageError, said_in_python, unknown
from gen.spec.arch import UNIT
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment

# Prepared calls that a kernel keeps: a few kilobytes each, of which programs with changing shapes
# would collect any number.
MOST_PREPARED = 4096


class _Prepared:
    """A call with all that follows from the forms of its arrays: what is left is to launch it."""

    __slots__ = ("call", "dtype", "launcher", "row_major", "shape", "workspace_bytes")

    def __init__(self, call: Call, launcher: Launcher | Launchers | None, dtype: Any) -> None:
        self.call, self.launcher, self.dtype = call, launcher, dtype
        self.shape, self.row_major = call.result_shape, call.layouts.c
        self.workspace_bytes = launcher.workspace_bytes if launcher else 0


_ALIGNED = (True, True, True)  # A, B and D


class Kernel:
    """A GEMM that is called with arrays: D = alpha * A @ B + beta * C, then the epilogue.

    kernel: a variant of `gen list` or "auto"; a KernelSpec; or the path of an emitted `.cu` file,
    edited or not. A specification and a file fix the element types and the layouts; a variant takes
    them from the arrays of each call, unless `dtype` (see `gen.spec.DTYPES`) or `layout` ("rcr")
    are given. tunables: see `gen list`; on tensor cores also `epilogue`. invariant: "rows" for
    kernels whose rows of D do not depend on other rows, or on how many there are (see
    `gen.dispatch.invariant`). device: where NumPy arrays are multiplied: "gpu", "cpu" (the
    emulator), or "auto", a GPU if there is one. time_budget: seconds of CPU time that the emulator
    may take for a launch, after which it raises BudgetError; if left out, some thirty times of what
    any kernel needs for the shape.

    It is compiled when it is first called, once for each architecture, element types and layouts,
    and may be called from several threads. Raises UsageError and SpecError for what cannot be made.
    """

    def __init__(
        self,
        kernel: str | os.PathLike[str] | KernelSpec = "auto",
        *,
        dtype: str | None = None,
        layout: str | None = None,
        invariant: str | None = None,
        device: str = "auto",
        time_budget: float | None = None,
        **tunables: Any,
    ) -> None:
        if device not in DEVICES:
            raise unknown("device", device, DEVICES)
        self._device, self._time_budget = device, time_budget
        self._origin = Origin(kernel, dtype, layout, invariant, tunables)
        self._prepared: dict[Any, _Prepared] = {}

    def __repr__(self) -> str:
        return f"<gen.Kernel {self._origin}>"

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        *,
        alpha: Any = 1,
        beta: Any = 0,
        out: Any = None,
        bias: Any = None,
        operands: Mapping[str, Any] | None = None,
        offsets: Any = None,
        stream: Any = None,
    ) -> Any:
        """The product; see `gen.matmul` for the arrays. Returns `out`, or a new array like `a`.

        offsets: where groups end, see `gen.grouped_matmul`.
        """
        return self.multiply(a, b, c, alpha, beta, out, bias, stream, operands, offsets)

    def multiply(
        self, a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: Any, bias: Any, stream: Any,
        operands: Mapping[str, Any] | None = None, offsets: Any = None,
    ) -> Any:  # fmt: skip
        """The same, with all arguments by position, which Python passes faster."""
        given = None if stream is None else stream_handle(stream)
        kind = type(a)
        home = BY_TYPE.get(kind) or framework(a, "A")
        at_a, form_a = home.describe(a, "A", given)
        own = home if type(b) is kind else beside(home, b, "B", given)
        at_b, form_b = own.describe(b, "B", given)
        at_c = at_out = at_bias = 0
        form_c = form_out = form_bias = None
        if c is not None:
            at_c, form_c = beside(home, c, "C", given).describe(c, "C", given)
        if out is not None:
            own = home if type(out) is kind else beside(home, out, "out", given)
            at_out, form_out = own.describe(out, "out", given)
        if bias is not None:
            at_bias, form_bias = beside(home, bias, "bias", given).describe(bias, "bias", given)
        # Calls with the same key differ in addresses, alpha, beta and stream, and in nothing else.
        # New memory is aligned.
        aligned = _ALIGNED
        if (at_a | at_b | at_out) & 15:
            aligned = (at_a & 15 == 0, at_b & 15 == 0, at_out & 15 == 0)
        key: Any = (form_a, form_b, form_c, form_out, form_bias, beta == 0, aligned)
        addresses: tuple[int, ...] = (at_a, at_b, at_c, at_out, at_bias)
        extra = NOTHING
        at_extra: tuple[int, ...] = ()
        if operands or offsets is not None:
            operands = with_offsets(operands or {}, offsets)
            checked(self._origin.wanted.epilogue, operands)
            extra = _described(home, operands, given)
            at_extra = tuple(view.address for view in extra.views.values())
            addresses += at_extra
            key = (*key[:-1], forms(extra), aligned)
        ready = self._prepared.get(key)
        if ready is None:
            views = _views(key, addresses)
            if form_a[3] == HOST:
                given_arrays = (a, b, c, bias, operands or {})
                return self._on_host(given_arrays, out, views, alpha, beta, given, extra)
            ready = self._prepare(key, views, alpha, beta, home, extra)
        device = form_a[3]
        if out is None:
            made, at_out = home.empty(a, device, ready.shape, ready.dtype, ready.row_major, given)
        else:
            made = out
            ready.call.check_overlap(at_out, addresses)
        on = home.stream(device) if given is None else given
        if ready.launcher is not None:  # the result has elements
            space: tuple[Any, int] = (None, 0)
            if ready.workspace_bytes:
                space = home.workspace(a, device, ready.workspace_bytes, given)
            at_c = at_out if c is None else at_c
            ready.launcher(
                on, (at_a, at_b, at_c, at_out, at_bias, *at_extra, space[1]), alpha, beta
            )
        if home.has_streams:
            return made
        if given is None or out is None:
            context.gpu(device).synchronize(on)
        return out if out is not None else home.finish(made, a)

    def _prepare(
        self, key: Any, views: Arguments, alpha: Any, beta: Any, home: Framework, extra: Own
    ) -> _Prepared:
        """What the calls with this key need. Raises UsageError, SpecError, CompileError."""
        if self._device == "cpu":
            raise UsageError("device='cpu' is for arrays of the host; leave it out for a GPU's")
        call = self.fitted(views, alpha, beta, extra)
        on = context.gpu(views.a.device)
        with on:
            alignment = Alignment(*key[-1])
            spec, module = self._origin.build(call, on, alignment)

            def made(alignment: Alignment) -> Launcher:
                steps = spec.plan(call.problem, alignment, on.multiprocessors)
                return Launcher(on, module, steps, call.dtypes, call.own)

            launcher = None if call.empty else _launcher(call, alignment, made)
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        ready = _Prepared(call, launcher, _result_dtype(home, call, views.a))
        self._prepared[key] = ready
        return ready

    def _on_host(
        self, arrays: tuple[Any, ...], out: Any, views: Arguments, alpha: Any, beta: Any,
        given: int | None, extra: Own,
    ) -> Any:  # fmt: skip
        """The product of arrays in host memory: A, B, C, the bias, and further ones by name."""
        from gen.api import host

        if given is not None:
            raise UsageError("stream is for arrays on a GPU; leave it out for arrays of the host")
        call = self.fitted(views, alpha, beta, extra)
        home = framework(arrays[0], "A")
        named = zip(("A", "B", "C", "bias"), arrays[:4], strict=True)
        own = {
            name: framework(x, name).on_host(x, name)
            for name, x in arrays[4].items()
            if name in extra.views
        }
        inputs = [None if x is None else framework(x, name).on_host(x, name) for name, x in named]
        if out is None:
            dtype = _result_dtype(home, call, views.a)
            out, _ = home.empty(arrays[0], HOST, call.result_shape, dtype, call.layouts.c, None)
        else:
            both = (*views, *extra.views.values())
            addresses = tuple(0 if view is None else view.address for view in both)
            call.check_overlap(addresses[3], addresses)
        if not call.empty:
            with said_in_python():
                host.multiply(
                    call, inputs, framework(out, "out").on_host(out, "out"), self._device,
                    lambda on: self._origin.build(call, on), self._time_budget, own,
                )  # fmt: skip
        return out

    def fitted(self, views: Arguments, alpha: Any, beta: Any, own: Own = NOTHING) -> Call:
        """What a call with such arrays comes to. Raises UsageError and SpecError as a call."""
        return fitted(views, self._origin.wanted, alpha, beta, own)

    def choose(self, call: Call, target: Target, alignment: Alignment) -> tuple[KernelSpec, str]:
        """See `Origin.choose`."""
        return self._origin.choose(call, target, alignment)


def _described(home: Framework, operands: Mapping[str, Any], stream: int | None) -> Own:
    """An epilogue's operands, arrays and numbers."""
    views: dict[str, View] = {}
    for name, array in operands.items():
        if not is_number(array):
            at, form = beside(home, array, name, stream).describe(array, name, stream)
            views[name] = View(at, *form)
    return Own(views, {name: x for name, x in operands.items() if name not in views})


def _launcher(
    call: Call, alignment: Alignment, made: Callable[[Alignment], Launcher]
) -> Launcher | Launchers:
    """What launches a call: `made` for the alignment of each of its launches."""
    if len(call.offsets) == 1:
        return made(alignment)
    ready: dict[Alignment, Launcher] = {}
    each = []
    for moves in call.offsets:
        whole = (moves[0] % UNIT == 0, moves[1] % UNIT == 0, moves[3] % UNIT == 0)
        here = Alignment(*(x and y for x, y in zip(alignment, whole, strict=True)))
        if here not in ready:
            ready[here] = made(here)
        each.append((ready[here], moves))
    return Launchers(each)


def _views(key: tuple[Any, ...], addresses: tuple[int, ...]) -> Arguments:
    """The arrays of a call as `fit` takes them."""
    pairs = zip(addresses[1:5], key[1:5], strict=True)
    others = (None if form is None else View(at, *form) for at, form in pairs)
    return Arguments(View(addresses[0], *key[0]), *others)  # type: ignore[arg-type]


def _result_dtype(home: Framework, call: Call, a: View) -> Any:
    """The type of a new result for `Framework.empty`."""
    kind = call.dtypes.output.name
    return None if element(a.dtype) == kind else home.dtype(kind)
