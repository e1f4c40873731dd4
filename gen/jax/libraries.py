"""What is compiled for GPUs: XLA's handler once, and a library for each kernel.

A kernel's library is the C++ that `gen emit --embed` writes, machine code with its launcher, behind
the function that the handler calls. Its path is an attribute of the custom call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import jax
import jaxlib.version

from gen.compile import host
from gen.kernels.signature import fill, launch, of_epilogue, with_types
from gen.source.cpp.embed import aliases, embedded_specs, render_embedded
from gen.source.templates import render_template, template_dir
from gen.spec.kernel import KernelSpec

TARGET = "gemmgen_matmul"
_INTERFACE = "product.h"


def _template(name: str) -> str:
    return (template_dir() / "jax" / name).read_text(encoding="utf-8")


@cache
def register() -> None:
    """Makes the handler known to XLA, built if need be. Raises MissingError, CompileError."""
    files = {name: _template(name) for name in ("handler.cpp", _INTERFACE)}
    path = host.library(files, [jax.ffi.include_dir()], jaxlib.version.__version__)
    handler = ctypes.CDLL(str(path)).gen_jax_multiply
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform="CUDA")


@cache
def kernel(spec: KernelSpec, arch: str) -> str:
    """The path of a kernel's library. Raises MissingError, CompileError, as compile_cuda."""
    (spec,) = embedded_specs(spec, [arch])
    source, header = render_embedded([spec])
    arguments = fill(_arguments(spec), 6)
    adapter = render_template("jax/kernel.cpp.j2", name=spec.name, arguments=arguments)
    files = {
        f"{spec.name}.cpp": source,
        f"{spec.name}.h": header,
        "kernel.cpp": adapter,
        _INTERFACE: _template(_INTERFACE),
    }
    return str(host.library(files))


def _arguments(spec: KernelSpec) -> Iterator[str]:
    """Those of the launcher, of the handler's `Product`."""
    own = [p.name for p in of_epilogue(spec)]
    lds = {operand.ld: i for i, operand in enumerate(o for o in spec.operands if o.index)}
    given = {"D": "p.d", "A": "p.a", "B": "p.b", "C": "p.c"}
    arrays = numbers = 0
    for p in with_types(launch(spec), aliases(spec)):
        name = given.get(p.name, f"p.{p.name.lower()}")
        if p.name in lds:
            name = f"p.further_ld[{lds[p.name]}]"
        elif p.name in own and "*" in p.type:
            name, arrays = f"p.further[{arrays}]", arrays + 1
        elif p.name in own:
            name, numbers = f"p.numbers[{numbers}]", numbers + 1
        elif p.name == "groups":
            name = "p.batch"
        elif p.name == "offsets":  # behind what the epilogue takes
            name = f"p.further[{sum('*' in one.type for one in of_epilogue(spec))}]"
        is_index = p.type == "index_t" or p.name in ("workspace", "workspace_bytes", "stream")
        yield name if is_index else f"static_cast<{p.type}>({name})"
