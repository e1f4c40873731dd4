"""`Kernel`: a callable GEMM. What a call needs is prepared once, and then only launched."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from gen.api.call import Arguments, Call
from gen.api.frameworks import BY_TYPE, Framework, beside, framework, stream_handle
from gen.api.frameworks.protocol import Result, Together
from gen.api.gpu import Launcher, Launchers
from gen.api.groups import fitted, with_offsets
from gen.api.operands import NOTHING, Own, checked, forms, is_number
from gen.api.origin import Origin, Target
from gen.api.views import HOST, View, element, packed
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

    __slots__ = ("check_overlap", "device", "launcher", "result", "spread", "workspace_bytes")

    def __init__(
        self, call: Call, views: Arguments, launcher: Launcher | Launchers | None, dtype: Any
    ) -> None:
        self.device, self.launcher = views.a.device, launcher
        self.spread = any(map(_is_spread, views))
        self.result = _result(call, dtype)
        self.check_overlap = call.check_overlap
        self.workspace_bytes = launcher.workspace_bytes if launcher else 0


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
        if not isinstance(time_budget, (int, float, type(None))):
            raise UsageError(f"time_budget={time_budget!r} is no number; pass seconds")
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
        home = BY_TYPE.get(type(a)) or framework(a, "A")
        views = None
        together = home.together(a, b, c, out, bias)
        if together is None:
            views = _views(home, a, b, c, out, bias, given)
            together = _together(views)
        form, at_a, at_b, at_c, at_out, at_bias = together
        # Calls with the same key differ in addresses, alpha, beta and stream, and in nothing else.
        # New memory is aligned.
        aligned: Any = (at_a | at_b | at_out) & 15 == 0
        if not aligned:
            aligned = (at_a & 15 == 0, at_b & 15 == 0, at_out & 15 == 0)
        key: Any = (form, beta == 0, aligned)
        extra = NOTHING
        at_extra: tuple[int, ...] = ()
        if operands or offsets is not None:
            operands = with_offsets(operands or {}, offsets)
            checked(self._origin.wanted.epilogue, operands)
            extra = _described(home, operands, given)
            at_extra = tuple(view.address for view in extra.views.values())
            key = (*key, forms(extra))
        try:
            ready = self._prepared.get(key)
        except TypeError:
            raise _no_number(beta, operands) from None
        if ready is None:
            views = views or _views(home, a, b, c, out, bias, given)
            if views.a.device == HOST:
                given_arrays = (a, b, c, bias, operands or {})
                return self._on_host(given_arrays, out, views, alpha, beta, given, extra)
            ready = self._prepare(key, views, alpha, beta, home, extra)
        elif ready.spread and views is None:  # prepared for z.imag, it may be PyTorch's
            _views(home, a, b, c, out, bias, given)  # z.conj().imag, which is refused here
        device = ready.device
        made = out
        if out is None:
            made, at_out = home.empty(a, device, ready.result, given)
        if c is None:
            at_c = at_out
        at_space = 0
        if ready.workspace_bytes:
            _held, at_space = home.workspace(a, device, ready.workspace_bytes, given)
        values: tuple[Any, ...] = (at_a, at_b, at_c, at_out, at_bias, at_space, alpha, beta)
        if at_extra:
            values = (*values[:5], *at_extra, *values[5:])
        if out is not None:
            ready.check_overlap(at_out, values)
        on = home.stream(device) if given is None else given
        if ready.launcher is not None:  # the result has elements
            ready.launcher(on, values)
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
            matrices = (views.a, views.b, views.out)
            alignment = Alignment(*(x is None or x.address % UNIT == 0 for x in matrices))
            spec, module = self._origin.build(call, on, alignment)

            def made(alignment: Alignment) -> Launcher:
                steps = spec.plan(call.problem, alignment, on.room(spec, module))
                return Launcher(on, module, steps, call.dtypes, call.own)

            launcher = None if call.empty else _launcher(call, alignment, made)
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        dtype = _result_dtype(home, call, views.a)
        ready = _Prepared(call, views, launcher, dtype)
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
            result = _result(call, _result_dtype(home, call, views.a))
            out, _ = home.empty(arrays[0], HOST, result, None)
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


def _no_number(beta: Any, operands: Mapping[str, Any] | None) -> UsageError:
    """The error for what no call can be found by: an operand, or else beta."""
    name, value = "beta", beta
    for operand, given in (operands or {}).items():
        if is_number(given) and not isinstance(given, Hashable):
            name, value = f"operand '{operand}'", given
    return UsageError(
        f"{name} is a {type(value).__name__}; pass a number" + " or an array" * (name != "beta")
    )


def _is_spread(view: View | None) -> bool:
    """Whether no elements are adjacent, as in the imaginary part of complex numbers."""
    if view is None:
        return False
    return all(step != 1 for n, step in zip(view.shape, view.strides, strict=True) if n > 1)


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


def _views(
    home: Framework, a: Any, b: Any, c: Any, out: Any, bias: Any, stream: int | None
) -> Arguments:
    """The arrays of a call, where A's framework is `home`, described one by one."""

    def view(array: Any, name: str) -> View:
        at, form = beside(home, array, name, stream).describe(array, name, stream)
        return View(at, *form)

    named = (("C", c), ("out", out), ("bias", bias))
    others = (None if x is None else view(x, name) for name, x in named)
    return Arguments(view(a, "A"), view(b, "B"), *others)


def _together(views: Arguments) -> Together:
    """See `Framework.together`."""
    form = tuple(None if view is None else view[1:] for view in views)
    a, b, c, out, bias = (0 if view is None else view.address for view in views)
    return form, a, b, c, out, bias


def _result_dtype(home: Framework, call: Call, a: View) -> Any:
    """The framework's type of a new result."""
    kind = call.dtypes.output.name
    return a.dtype if element(a.dtype) == kind else home.dtype(kind)


def _result(call: Call, dtype: Any) -> Result:
    """The shape, strides and type of a new result for `Framework.empty`."""
    return call.result_shape, packed(call.result_shape, call.layouts.c), dtype
