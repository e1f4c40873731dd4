"""`Kernel`: a callable GEMM. What a call needs is prepared once, and then only launched."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gen.api.call import Arguments, Call, Wanted
from gen.api.frameworks import BY_TYPE, Framework, beside, framework, stream_handle
from gen.api.gpu import Launcher, Launchers
from gen.api.groups import GROUPED, KINDS, fitted, with_offsets
from gen.api.operands import NOTHING, Own, checked, forms, is_number
from gen.api.views import HOST, View, element
from gen.compile import nvrtc
from gen.device import driver
from gen.device.choose import DEVICES
from gen.dispatch.choice import rank
from gen.dispatch.folders import default
from gen.dispatch.invariant import INVARIANT
from gen.dispatch.ranking import Product, model_of, oldest_arch
from gen.errors import UsageError, said_in_python, unknown
from gen.kernels.formulas import ceil_div
from gen.kernels.order import check_invariant
from gen.kernels.registry import get_variant, make_spec, retarget
from gen.source.render import Source, read_source, render
from gen.spec.arch import UNIT
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALIGNED, ONE, Alignment, parse_layout

# Prepared calls that a kernel keeps: a few kilobytes each, of which programs with changing shapes
# would collect any number.
MOST_PREPARED = 4096


class Target(Protocol):
    """What a kernel is compiled for: a runner or a GPU."""

    name: str
    format: str
    multiprocessors: int

    def target(self, arch: str) -> str:
        """The architecture to compile for, of a kernel that was specified for `arch`."""
        ...


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
        if invariant is not None and invariant not in INVARIANT:
            raise unknown("invariant", str(invariant), INVARIANT)
        self._device, self._time_budget, self._invariant = device, time_budget, invariant
        self._spec, self._source, self._variant = _origin(kernel)
        self._tunables = {k: v for k, v in tunables.items() if v is not None}
        if self._spec:
            if dtype or layout or self._tunables:
                raise UsageError(
                    "a specification or a file is complete; pass a variant with dtype, layout and "
                    "tunables instead, or gen.kernels.registry.make_spec with others"
                )
            if invariant:
                check_invariant(self._spec)
            spec = self._spec
            several = spec.batched, _grouped(spec.tunables)
            self._wanted = Wanted(spec.dtypes.name, spec.layouts, spec.epilogue, *several)
        else:
            epilogue = self._tunables.get("epilogue", "linear")
            checked(epilogue)
            layouts = parse_layout(layout) if layout else None
            self._wanted = Wanted(
                parse_dtype(dtype).name if dtype else None,
                layouts,
                epilogue,
                grouped=_grouped(self._tunables) or None,
            )
        self._lock = threading.Lock()
        self._prepared: dict[Any, _Prepared] = {}
        self._modules: dict[tuple[KernelSpec, str, str], nvrtc.Module] = {}

    def __repr__(self) -> str:
        if self._spec:
            return f"<gen.Kernel {self._spec.name}>"
        given = {"invariant": self._invariant} if self._invariant else {}
        options = "".join(
            f", {key}={value!r}" for key, value in {**given, **self._tunables}.items()
        )
        return f"<gen.Kernel {self._variant}{options}>"

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
            checked(self._wanted.epilogue, operands)
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
            driver.gpu(device).synchronize(on)
        return out if out is not None else home.finish(made, a)

    def _prepare(
        self, key: Any, views: Arguments, alpha: Any, beta: Any, home: Framework, extra: Own
    ) -> _Prepared:
        """What the calls with this key need. Raises UsageError, SpecError, CompileError."""
        if self._device == "cpu":
            raise UsageError("device='cpu' is for arrays of the host; leave it out for a GPU's")
        call = self.fitted(views, alpha, beta, extra)
        on = driver.gpu(views.a.device)
        with on:
            alignment = Alignment(*key[-1])
            spec, module = self._build(call, on, alignment)

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
                    lambda on: self._build(call, on), self._time_budget, own,
                )  # fmt: skip
        return out

    def fitted(self, views: Arguments, alpha: Any, beta: Any, own: Own = NOTHING) -> Call:
        """What a call with such arrays comes to. Raises UsageError and SpecError as a call."""
        return fitted(views, self._wanted, alpha, beta, own)

    def choose(self, call: Call, target: Target, alignment: Alignment) -> tuple[KernelSpec, str]:
        """The kernel for a call, and the architecture to compile it for.

        alignment: of the arrays; those in the call have no addresses. Raises SpecError.
        """
        if self._spec:
            arch = target.target(self._spec.arch)
            retarget(self._spec, arch)  # whether that has what the kernel needs
            return self._spec, arch  # whose symbol, in the text of a file, names its own
        own: dict[str, Any] = {"epilogue": call.epilogue} if call.epilogue else {}
        several = {} if call.problem.batch == ONE else {"batched": True}
        if call.grouped:
            several = {call.grouped: True}
        tunables = {**self._tunables, **own, **several}
        if self._variant == "auto":
            p, arch = call.problem, target.target(oldest_arch(call.dtypes))
            count, shape = max(p.batch.products, 1), p.shape
            if call.grouped == GROUPED:  # as if all had as many rows
                shape = replace(shape, m=ceil_div(shape.m, count))
            elif call.grouped:
                shape = replace(shape, k=ceil_div(shape.k, count))
            product = Product(
                shape,
                call.dtypes,
                call.layouts,
                p.lda,
                p.ldb,
                alignment,
                count,
            )
            gpu = model_of(arch, target.multiprocessors, target.name)
            found = rank(product, gpu, arch, tunables, default(), invariant=bool(self._invariant))
            return found[0].spec, arch
        arch = target.target(get_variant(self._variant).usual_arch(call.dtypes.name))
        names = {"dtype": call.dtypes.name, "layout": str(call.layouts)}
        spec = make_spec(self._variant, arch=arch, **names, **tunables)
        if self._invariant:
            check_invariant(spec)
        return spec, arch

    def _build(
        self, call: Call, target: Target, alignment: Alignment = ALIGNED
    ) -> tuple[KernelSpec, nvrtc.Module]:
        """The kernel for a call, compiled unless it was before. Raises CompileError."""
        spec, arch = self.choose(call, target, alignment)
        key = (spec, arch, target.format)
        with self._lock:
            if key not in self._modules:
                source = self._source or render(spec)
                self._modules[key] = nvrtc.compile_cuda(
                    source.text, name=source.place, arch=arch, format=target.format
                )
            return spec, self._modules[key]


def _origin(
    kernel: str | os.PathLike[str] | KernelSpec,
) -> tuple[KernelSpec | None, Source | None, str]:
    """The specification, source and variant that a kernel is made from; what it has not is None."""
    if isinstance(kernel, KernelSpec):
        return kernel, None, kernel.variant
    if isinstance(kernel, str) and not kernel.endswith(".cu"):
        if kernel != "auto":
            get_variant(kernel)
        return None, None, kernel
    source = read_source(Path(kernel))
    if source.spec is None:
        raise UsageError(
            f"{os.fspath(kernel)} has no gen-spec line, which says what it computes; "
            "use a file that gen emit has written"
        )
    return source.spec, source, source.spec.variant


def _grouped(tunables: Mapping[str, Any]) -> str:
    """The tunable by which a kernel takes groups, or ""."""
    return next((name for name in KINDS if tunables.get(name)), "")


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
