"""What is compiled for GPUs: XLA's handler once, and a library for each kernel.

A kernel's library is the C++ that `gen emit --embed` writes, machine code with its launcher, behind
the function that the handler calls. Its path is an attribute of the custom call.
"""

from __future__ import annotations

import ctypes
from functools import cache

import jax
import jaxlib.version

from gen.compile import host
from gen.source.cpp.embed import aliases, embedded_specs, render_embedded
from gen.source.render import render_template, template_dir
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
    types = aliases(spec)
    adapter = render_template(
        "jax/kernel.cpp.j2",
        name=spec.name,
        scalar=types["scalar_t"],
        input=types["input_t"],
        output=types["output_t"],
        has_bias=spec.has_bias,
        planned=spec.row.takes_workspace,
    )
    files = {
        f"{spec.name}.cpp": source,
        f"{spec.name}.h": header,
        "kernel.cpp": adapter,
        _INTERFACE: _template(_INTERFACE),
    }
    return str(host.library(files))
