"""Embedded kernels and bundles on the fakes of templates/prove, against the plan."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

from gen.dispatch.ranking import Product
from gen.kernels.launches import Argument, TensorMap
from gen.prove.launchers.call import Call, with_own
from gen.prove.launchers.calls import calls
from gen.prove.launchers.check import complaint
from gen.prove.launchers.contract import INVALID_VALUE, NOT_SUPPORTED, expected
from gen.prove.launchers.program import BUNDLE, EMBEDDED, Host, Program, Reply
from gen.source.cpp.best import Best
from gen.source.cpp.bundle import Bundle, Entry
from gen.source.cpp.embed import embedded_specs
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTYPES
from gen.spec.kernel import KernelSpec
from gen.spec.problem import ALL_LAYOUTS, ONE, Alignment, GemmProblem, GemmShape

NVRTC = "gen.compile.nvrtc.compile_cuda"
FAKE_CODE = b"\x7fELF" + bytes(60)  # of no architecture; the fake driver does not run it


def _fake_code(*_: object, arch: str, **__: object) -> SimpleNamespace:
    """What the fake driver takes for machine code of an architecture."""
    code = bytearray(FAKE_CODE)
    code[49] = compute_capability(arch)
    return SimpleNamespace(code=bytes(code))


def embedded(spec: KernelSpec) -> Host:
    """A kernel in C++ as machine code that is none."""
    with mock.patch(NVRTC, return_value=SimpleNamespace(code=FAKE_CODE)):
        return Host.embedded(embedded_specs(spec, [spec.arch]))


def embedded_best(best: Best) -> Host:
    """Several kernels in C++ as machine code that is none."""
    with mock.patch(NVRTC, side_effect=_fake_code):
        return Host.embedded_best(best)


def of_driver(spec: KernelSpec, tried: Sequence[Call]) -> dict[str, str]:
    """What the fake driver wants to be told: of its devices, of each kernel's parameters."""
    launches = itertools.chain(*(expected(spec, call, EMBEDDED)[1] for call in tried))
    known = {launch.kernel: "".join(map(letter, launch.args.values())) for launch in launches}
    cc = spec.arch[3:5]
    return {"CC": f"{cc} {cc}", "PARAMETERS": " ".join(f"{k}={v}" for k, v in known.items())}


def letter(argument: Argument) -> str:
    """What the fake driver calls a parameter's kind."""
    if isinstance(argument, TensorMap):
        return "m"
    return {1: "c", 4: "f"}.get(getattr(argument, "nbytes", 8), "l")


def wrong_embedded(program: Program, spec: KernelSpec, threads: int = 1) -> list[str]:
    """What is wrong with an embedded launcher."""
    tried = calls(spec)
    replies = program.run(tried, threads, **of_driver(spec, tried))
    return [
        f"{text}, on {call}"
        for call, reply in itertools.zip_longest(tried, replies)
        if (text := complaint(spec, call, reply, EMBEDDED, program.ended))
    ]


def bundle_calls(bundle: Bundle) -> list[Call]:
    """Calls for each kernel's kind of problem, what comes close to it, and another kind."""
    # Of kernels for one kind of problems, one that takes batches.
    entries = sorted(bundle.entries, key=lambda entry: entry.spec.batched)
    kinds = {_kind(entry): entry.spec for entry in entries}
    tried = [replace(call, kind=kind) for kind, spec in kinds.items() for call in calls(spec, 100)]
    other = replace(tried[1], kind=(99, 0, 0))
    around = [call for entry in bundle.entries for call in _around(entry)]
    if bundle.batched:
        around += [_batch(call, bundle) for call in around]
    return [*tried, other, replace(other, sizes=(-1, 5, 5)), *around]


def _batch(call: Call, bundle: Bundle) -> Call:
    """Three products, the second of which is aligned as the first, or is not."""
    layouts = next(e.spec.layouts for e in bundle.entries if _kind(e)[1] == call.kind[1])
    gap = 8 * (call.problem.alpha == 0.5)  # so that there are both
    return replace(call, problem=call.problem.batched(layouts, 3, gap + (call.skips[0] == 8)))


def _around(entry: Entry) -> Iterator[Call]:
    """The smallest aligned problem of a kernel, and those that differ from it in one thing."""
    spec, s = entry.spec, entry.smallest
    shape = [max(64, size) for size in (s.m, s.n, s.k)]
    problem = GemmProblem.packed(GemmShape(*shape), spec.layouts, 2, -1)
    first = with_own(spec, Call(problem, kind=_kind(entry)))
    yield first
    for at, least in enumerate((s.m, s.n, s.k)):
        sizes = shape.copy()
        sizes[at] = max(least - 1, 0)
        m, n, k = sizes
        yield replace(first, sizes=(m, n, k))
    yield from (replace(first, skips=skips) for skips in ((8, 0, 0, 0), (0, 8, 0, 0), (4, 4, 4, 4)))
    p = first.problem
    scalars = ({"alpha": 0.5}, {"beta": 0.5}, {"alpha": 2.0**31}, {"beta": -(2.0**31)})
    for change in ({"lda": p.lda + 1}, {"ldb": p.ldb + 1}, *scalars):
        yield replace(first, problem=replace(p, **change))


NONE_FOR_DEVICE = 209
DEVICES = [(80, 108, 166912), (80, 60, 166912), (86, 84, 101376), (89, 142, 101376),
           (89, 50, 101376), (90, 132, 232448), (90, 78, 232448), (100, 148, 232448),
           (75, 40, 65536)]  # fmt: skip  # compute capability, multiprocessors, shared memory


def best_calls(best: Best, count: int = 100) -> list[Call]:
    """Calls for each of the kernels, on all kinds of devices."""
    draw = random.Random(0)
    tried = []
    for call in itertools.chain(*(calls(spec, count) for spec in best.named)):
        # The TMA is looked up but once, and what breaks two rules is refused for either.
        elements = math.prod(call.shape[:2]) * call.problem.batch.products
        # Kernels on CUDA cores launch a large batch piece by piece.
        many = elements > 2**40 or call.problem.batch.products > 2**20
        if call.no_tma or call.workspace_bytes < 0 or many:
            continue
        capability, multiprocessors, shared = draw.choice(DEVICES)
        tried.append(
            replace(
                call, capability=capability, multiprocessors=multiprocessors, shared_bytes=shared
            )
        )
    return tried


def picked(best: Best, call: Call) -> KernelSpec | None:
    """The kernel that Python takes for a call."""
    p, spec, at = call.problem, best.kernels[0], call.addresses
    shape = GemmShape(*(max(size, 0) for size in call.shape))
    aligned = Alignment(at["A"] % 16 == 0, at["B"] % 16 == 0)
    batch = p.batch.products
    product = Product(shape, spec.dtypes, spec.layouts, p.lda, p.ldb, aligned, batch)
    device = call.capability, call.multiprocessors, call.shared_bytes
    place = best.pick(product, *device)
    return None if place is None else best.named[place]


def wrong_best(program: Program, best: Best, tried: Sequence[Call]) -> list[str]:
    """What is wrong with a launcher that chooses."""
    wrong, kind = [], program.host.kind
    specs = [(spec, call) for call in tried if (spec := picked(best, call))]
    launches = itertools.chain(*(expected(spec, call, kind)[1] for spec, call in specs))
    known = {launch.kernel: "".join(map(letter, launch.args.values())) for launch in launches}
    parameters = " ".join(f"{kernel}={letters}" for kernel, letters in known.items())
    for call, reply in itertools.zip_longest(tried, program.run(tried, PARAMETERS=parameters)):
        spec = picked(best, call)
        text = complaint(spec, call, reply, kind, program.ended) if spec else _refusal(call, reply)
        wrong += [f"{text}, on {call} and {call.capability}"] if text else []
    return wrong


def _refusal(call: Call, reply: Reply | None) -> str:
    """What is wrong where a device has no kernel."""
    if reply is None or any(reply.refused):
        return "" if reply else "it crashed"
    told = (INVALID_VALUE, 99) if call.no_bytes else (NONE_FOR_DEVICE, 0)
    wanted = (told, [], NONE_FOR_DEVICE)
    got = (reply.workspace, reply.launches, reply.returned)
    return "" if got == wanted else f"{got}, not {wanted}"


def _kind(entry: Entry) -> tuple[int, int, int]:
    spec = entry.spec
    dtypes, layouts = list(DTYPES), list(map(str, ALL_LAYOUTS))
    return (
        dtypes.index(spec.dtypes.name), layouts.index(str(spec.layouts)),
        entry.epilogue_number,
    )  # fmt: skip


def chosen(bundle: Bundle, call: Call) -> Entry | None:
    """The kernel of a bundle that a call is for, by what its header says."""
    at, p = call.addresses, call.problem

    def is_aligned(entry: Entry) -> bool:
        size = entry.spec.dtypes.input.size
        operands = [at["A"], p.lda * size, at["B"], p.ldb * size]
        if p.batch.products != 1:
            operands += [p.batch.stride_a * size, p.batch.stride_b * size]
        return not entry.aligned or all(number % 16 == 0 for number in operands)

    def takes(entry: Entry) -> bool:
        smallest = (entry.smallest.m, entry.smallest.n, entry.smallest.k)
        sizes = zip(call.shape, smallest, strict=True)
        return (
            _kind(entry) == call.kind
            and all(size >= least for size, least in sizes)
            and (entry.spec.batched or p.batch.products == 1)
            and is_aligned(entry)
        )

    return next(filter(takes, bundle.entries), None)


def wrong_bundle(program: Program, bundle: Bundle, threads: int = 1) -> list[str]:
    """What is wrong with a bundle's launcher."""
    # Of several threads, any may be the first to look the TMA up.
    tried = [c for c in bundle_calls(bundle) if threads == 1 or not c.no_tma]
    pairs = itertools.zip_longest(tried, program.run(tried, threads))
    return [f"{text}, on {c}" for c, r in pairs if (text := _complaint(bundle, c, r))]


def _complaint(bundle: Bundle, call: Call, reply: Reply | None) -> str:
    entry = chosen(bundle, call)
    refused = 0
    if min(*call.shape, call.problem.batch.products) < 0:
        refused = INVALID_VALUE
    elif entry is None:
        refused = NOT_SUPPORTED
    if refused:
        told = (INVALID_VALUE, 99) if call.no_bytes else (refused, 0)  # what the program puts there
        wanted = (told, [], refused)
        got = reply and (reply.workspace, reply.launches, reply.returned)
        return "" if got == wanted else f"{got}, not {wanted}"
    assert entry is not None
    scalars = call.problem.alpha, call.problem.beta
    most = 2**31 - 1
    if entry.spec.dtypes.scalar.name == "i32" and any(x != int(x) or x > most for x in scalars):
        returned = reply and reply.returned
        return "" if returned == INVALID_VALUE else f"it returns {returned}, not {INVALID_VALUE}"
    if not entry.spec.batched:  # for whose one product strides do not count
        call = replace(call, problem=replace(call.problem, batch=ONE))
    return complaint(entry.spec, call, reply, BUNDLE)
