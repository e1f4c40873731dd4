"""What a `Kernel` is made from: which kernel a call gets, and its compiled code."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gen.api.call import Call, Wanted
from gen.api.groups import GROUPED, KINDS
from gen.api.operands import checked
from gen.compile import nvrtc
from gen.dispatch.choice import learnt, rank
from gen.dispatch.folders import default
from gen.dispatch.invariant import INVARIANT
from gen.dispatch.ranking import Product, model_of, oldest_arch
from gen.errors import UsageError, unknown
from gen.kernels.formulas import ceil_div
from gen.kernels.order import check_invariant
from gen.kernels.registry import get_variant, make_spec, retarget
from gen.source.render import Source, read_source, render
from gen.spec.dtypes import parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALIGNED, ONE, Alignment, parse_layout


class Target(Protocol):
    """What a kernel is compiled for: a runner or a GPU."""

    name: str
    format: str
    multiprocessors: int

    def target(self, arch: str) -> str:
        """The architecture to compile for, of a kernel that was specified for `arch`."""
        ...


class Origin:
    """A variant with tunables, the model's choice of one, a specification, or a file.

    The arguments are those of `Kernel`. `wanted` is what they say of a call's arrays. Raises
    UsageError and SpecError for what cannot be made.
    """

    def __init__(
        self,
        kernel: str | os.PathLike[str] | KernelSpec,
        dtype: str | None,
        layout: str | None,
        invariant: str | None,
        tunables: Mapping[str, Any],
    ) -> None:
        if invariant is not None and invariant not in INVARIANT:
            raise unknown("invariant", str(invariant), INVARIANT)
        self._invariant = invariant
        self._spec, self._source, self._variant = _taken(kernel)
        self._tunables = {k: v for k, v in tunables.items() if v is not None}
        if fixed := sorted({"arch", "name"} & self._tunables.keys()):
            raise UsageError(
                f"{' and '.join(fixed)} cannot be chosen here: a kernel is made for the device "
                "that runs it; pass a specification of gen.kernels.registry.make_spec instead"
            )
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
            self.wanted = Wanted(spec.dtypes.name, spec.layouts, spec.epilogue, *several)
        else:
            epilogue = self._tunables.get("epilogue", "linear")
            checked(epilogue)
            layouts = parse_layout(layout) if layout else None
            self.wanted = Wanted(
                parse_dtype(dtype).name if dtype else None,
                layouts,
                epilogue,
                grouped=_grouped(self._tunables) or None,
            )
        self._lock = threading.Lock()
        self._modules: dict[tuple[KernelSpec, str, str], nvrtc.Module] = {}

    def __str__(self) -> str:
        if self._spec:
            return self._spec.name
        given = {"invariant": self._invariant} if self._invariant else {}
        options = "".join(
            f", {key}={value!r}" for key, value in {**given, **self._tunables}.items()
        )
        return f"{self._variant}{options}"

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
            gpu, places = model_of(arch, target.multiprocessors, target.name), default()
            found = rank(product, gpu, arch, tunables, places, invariant=bool(self._invariant))
            # The first call takes long anyway, since it compiles. Later ones find all compared.
            learnt(gpu, call.dtypes, call.layouts, places).prepare()
            return found[0].spec, arch
        arch = target.target(get_variant(self._variant).usual_arch(call.dtypes.name))
        names = {"dtype": call.dtypes.name, "layout": str(call.layouts)}
        spec = make_spec(self._variant, arch=arch, **names, **tunables)
        if self._invariant:
            check_invariant(spec)
        return spec, arch

    def build(
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


def _taken(
    kernel: str | os.PathLike[str] | KernelSpec,
) -> tuple[KernelSpec | None, Source | None, str]:
    """The specification, source and variant that a kernel is made from; what it has not is None."""
    if isinstance(kernel, KernelSpec):
        return kernel, None, kernel.variant
    if isinstance(kernel, str) and not kernel.endswith(".cu"):
        if kernel != "auto":
            get_variant(kernel)
        return None, None, kernel
    if not isinstance(kernel, (str, os.PathLike)):
        kind = type(kernel).__name__
        raise UsageError(f"a kernel cannot be made of a {kind}; use the name of a variant, or auto")
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
