"""`Kernel`: a callable GEMM. What a call needs is prepared once, and then only launched."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Protocol

from gen.api.frameworks import framework, stream_handle, view_beside
from gen.api.gpu import Launcher
from gen.api.problem import Arguments, Call, Wanted, fit
from gen.api.views import HOST
from gen.compile import nvrtc
from gen.device import driver
from gen.device.choose import DEVICES
from gen.dispatch.rules import Product, choose, oldest_arch
from gen.errors import UsageError, said_in_python, unknown
from gen.kernels.registry import get_variant, make_spec, retarget
from gen.source.render import Source, read_source, render
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import EPILOGUES, KernelSpec
from gen.spec.problem import Alignment, parse_layout

# Prepared calls that a kernel keeps: a few kilobytes each, of which programs with changing shapes
# would collect any number.
MOST_PREPARED = 4096


class Target(Protocol):
    """What a kernel is compiled for: a runner or a GPU."""

    format: str
    multiprocessors: int

    def target(self, arch: str) -> str:
        """The architecture to compile for, of a kernel that was specified for `arch`."""
        ...


class _Prepared:
    """A call with all that follows from its arrays' shapes, strides, types and alignment."""

    __slots__ = ("_launcher", "call", "kind", "row_major", "shape")

    def __init__(self, call: Call, launcher: Launcher | None) -> None:
        self.call, self._launcher = call, launcher
        self.shape, self.kind = call.result_shape, call.dtypes.output.name
        self.row_major = call.layouts.c

    def launch(self, stream: int, views: Arguments, result: int, alpha: Any, beta: Any) -> None:
        """Queues the kernel with these arrays, and the result at an address."""
        if self._launcher is None:  # the result has no elements
            return
        a, b, c, _, bias = views
        addresses = (a[0], b[0], result if c is None else c[0], result, bias[0] if bias else 0)
        self._launcher(stream, addresses, alpha, beta)


class Kernel:
    """A GEMM that is called with arrays: D = alpha * A @ B + beta * C, then the epilogue.

    kernel: a variant of `gen list` or "auto"; a KernelSpec; or the path of an emitted `.cu` file,
    edited or not. A specification and a file fix the element types and the layouts; a variant takes
    them from the arrays of each call, unless `dtype` (see `gen.spec.DTYPES`) or `layout` ("rcr")
    are given. tunables: see `gen list`; on tensor cores also `epilogue`. device: where NumPy arrays
    are multiplied: "gpu", "cpu" (the emulator), or "auto", a GPU if there is one. time_budget:
    seconds that the emulator may take for a launch, after which it raises BudgetError; if left out,
    some thirty times of what any kernel needs for the shape.

    It is compiled when it is first called, once for each architecture, element types and layouts,
    and may be called from several threads. Raises UsageError and SpecError for what cannot be made.
    """

    def __init__(
        self,
        kernel: str | os.PathLike[str] | KernelSpec = "auto",
        *,
        dtype: str | None = None,
        layout: str | None = None,
        device: str = "auto",
        time_budget: float | None = None,
        **tunables: Any,
    ) -> None:
        if device not in DEVICES:
            raise unknown("device", device, DEVICES)
        self._device, self._time_budget = device, time_budget
        self._spec, self._source, self._variant = _origin(kernel)
        self._tunables = {k: v for k, v in tunables.items() if v is not None}
        if self._spec:
            if dtype or layout or self._tunables:
                raise UsageError(
                    "a specification or a file is complete; pass a variant with dtype, layout and "
                    "tunables instead, or gen.kernels.registry.make_spec with others"
                )
            self._wanted = Wanted(self._spec.dtypes.name, self._spec.layouts, self._spec.epilogue)
        else:
            epilogue = self._tunables.get("epilogue", "linear")
            if epilogue not in EPILOGUES:
                raise unknown("epilogue", str(epilogue), EPILOGUES)
            layouts = parse_layout(layout) if layout else None
            self._wanted = Wanted(parse_dtype(dtype).name if dtype else None, layouts, epilogue)
        self._lock = threading.Lock()
        self._prepared: dict[Any, _Prepared] = {}
        self._modules: dict[tuple[KernelSpec, str, str], nvrtc.Module] = {}

    def __repr__(self) -> str:
        if self._spec:
            return f"<gen.Kernel {self._spec.name}>"
        options = "".join(f", {key}={value!r}" for key, value in self._tunables.items())
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
        stream: Any = None,
    ) -> Any:
        """The product; see `gen.matmul` for the arrays. Returns `out`, or a new array like `a`."""
        given = None if stream is None else stream_handle(stream)
        home = framework(a, "A")
        views = Arguments(
            home.view(a, "A", given),
            view_beside(home, b, "B", given),
            None if c is None else view_beside(home, c, "C", given),
            None if out is None else view_beside(home, out, "out", given),
            None if bias is None else view_beside(home, bias, "bias", given),
        )
        if views.a.device == HOST:
            return self._on_host((a, b, c, bias), out, views, alpha, beta, given)
        key = _key(views, beta)
        ready = self._prepared.get(key) or self._prepare(key, views, alpha, beta)
        if views.out is None:
            made, address = home.empty(a, views.a, ready.shape, ready.kind, ready.row_major, given)
        else:
            ready.call.check_overlap(views)
            made, address = out, views.out.address
        stream = home.stream(views.a.device) if given is None else given
        ready.launch(stream, views, address, alpha, beta)
        if home.has_streams:
            return made
        if given is None or out is None:
            driver.gpu(views.a.device).synchronize(stream)
        return out if out is not None else home.finish(made, a)

    def _prepare(self, key: Any, views: Arguments, alpha: Any, beta: Any) -> _Prepared:
        """What the calls with this key need. Raises UsageError, SpecError, CompileError."""
        if self._device == "cpu":
            raise UsageError("device='cpu' is for NumPy arrays; leave it out for arrays on a GPU")
        call = fit(views, self._wanted, alpha, beta)
        on = driver.gpu(views.a.device)
        with on:
            spec, module = self._build(call, on)
            steps = spec.plan(call.problem, Alignment(*key[-3:]), on.multiprocessors)
            launcher = None if call.empty else Launcher(on, module, steps, call.dtypes)
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        ready = self._prepared[key] = _Prepared(call, launcher)
        return ready

    def _on_host(
        self, arrays: tuple[Any, ...], out: Any, views: Arguments, alpha: Any, beta: Any,
        given: int | None,
    ) -> Any:  # fmt: skip
        """The product of NumPy arrays."""
        from gen.api import host

        if given is not None:
            raise UsageError("stream is for arrays on a GPU; leave it out for NumPy arrays")
        call = fit(views, self._wanted, alpha, beta)
        call.check_overlap(views)
        host.check(arrays, out)
        if out is None:
            home, kind = framework(arrays[0], "A"), call.dtypes.output.name
            out, _ = home.empty(arrays[0], views.a, call.result_shape, kind, call.layouts.c, None)
        if not call.empty:
            with said_in_python():
                host.multiply(
                    call, arrays, out, self._device, lambda on: self._build(call, on),
                    self._time_budget,
                )  # fmt: skip
        return out

    def _spec_for(self, call: Call, target: Target) -> tuple[KernelSpec, str]:
        """The kernel for a call, and the architecture to compile it for."""
        if self._spec:
            arch = target.target(self._spec.arch)
            retarget(self._spec, arch)  # whether that has what the kernel needs
            return self._spec, arch  # whose symbol, in the text of a file, names its own
        variant, tunables = self._variant, self._tunables
        if variant == "auto":
            arch = target.target(oldest_arch(call.dtypes))
            product = Product(call.problem.shape, call.dtypes, call.layouts)
            variant, tunables = choose(product, arch, target.multiprocessors, tunables)
        arch = target.target(get_variant(variant).usual_arch(call.dtypes.name))
        names = {"dtype": call.dtypes.name, "layout": str(call.layouts)}
        return make_spec(variant, arch=arch, **names, **tunables), arch

    def _build(self, call: Call, target: Target) -> tuple[KernelSpec, nvrtc.Module]:
        """The kernel for a call, compiled unless it was before. Raises CompileError."""
        spec, arch = self._spec_for(call, target)
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


def _key(views: Arguments, beta: Any) -> tuple[Any, ...]:
    """What a prepared call depends on: all but addresses and values.

    The last three are the alignment of A, B and D; new memory is aligned.
    """
    a, b, c, out, bias = views
    return (
        a[1:],
        b[1:],
        None if c is None else c[1:],
        None if out is None else out[1:],
        None if bias is None else bias[1:],
        beta == 0,
        a[0] & 15 == 0,
        b[0] & 15 == 0,
        out is None or out[0] & 15 == 0,
    )
