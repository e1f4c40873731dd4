"""Shapes and GPUs -> one .cu with the kernels that are the fastest there, behind one launcher.

The launcher compares the times that the cost model predicts for the problem at hand, on the device
that is current, and takes the kernel with the least: the same lines of arithmetic as in Python, and
the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gen.device.gpus import GpuModel
from gen.dispatch import cost, nearness
from gen.dispatch.choice import learnt, rank
from gen.dispatch.folders import NOWHERE, Places
from gen.dispatch.learnt import place
from gen.dispatch.nearness import Point
from gen.dispatch.ranking import Product
from gen.dispatch.weights import Weights, weigh
from gen.errors import SpecError, UsageError
from gen.kernels import signature
from gen.kernels.signature import Parameter
from gen.source.render import stamp
from gen.spec.arch import compute_capability
from gen.spec.dtypes import DTypes
from gen.spec.kernel import KernelSpec
from gen.spec.names import MAX_SYMBOL, check_given, inner_symbol
from gen.spec.problem import Layouts

NEARLY = 105  # percent of the least time that a kernel of a file may take


class Row(NamedTuple):
    """A kernel of `Best.kernels` on a GPU of `Best.gpus`, by their places there.

    points: what was measured there of problems near by.
    """

    gpu: int
    kernel: int
    weights: Weights
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Best:
    """Kernels for the same types, layouts and epilogue, and what each costs on which GPU.

    `gpus` begin with the newest; `rows` are in the order in which the first of two equal times is
    taken. `command` emits the file again.
    """

    name: str
    gpus: tuple[GpuModel, ...]
    kernels: tuple[KernelSpec, ...]
    rows: tuple[Row, ...]
    command: str

    @property
    def archs(self) -> list[str]:
        """What the file is compiled for, from the oldest on."""
        own = {spec.arch for spec in self.kernels}
        newest = {compute_capability(arch): arch for arch in sorted(own)}  # sm_90a after sm_90
        return [newest[cc] for cc in sorted(newest)]

    @property
    def named(self) -> list[KernelSpec]:
        """The kernels with the names that they have in the file."""
        numbered = enumerate(self.kernels, 1)
        return [replace(spec, symbol=inner_symbol(self.name, i)) for i, spec in numbered]

    @property
    def alone(self) -> KernelSpec | None:
        """The kernel that stands for the file, where it is the only one and takes a workspace.

        Its own launcher then has the arguments of one that chooses.
        """
        first = self.kernels[0]
        symbol = None if self.name == first.full_name else self.name
        return replace(first, symbol=symbol) if _is_alone(self.kernels) else None

    @property
    def launch(self) -> Sequence[Parameter]:
        """The launcher's parameters, the same whichever kernels there are."""
        return self._typed(signature.launch(self.kernels[0], may_choose=True))

    @property
    def workspace(self) -> Sequence[Parameter]:
        """Those of the function that tells the size of its workspace."""
        return self._typed(signature.workspace(self.kernels[0].several))

    def _typed(self, parameters: Sequence[Parameter]) -> Sequence[Parameter]:
        types = self.kernels[0].dtypes
        own = {
            "index_t": "long long",
            "input_t": types.input.cuda,
            "output_t": types.output.cuda,
            "scalar_t": types.scalar.cuda,
        }
        return signature.with_types(parameters, own)

    @property
    def stamp(self) -> str:
        """Of the file and its header."""
        return stamp(*self.kernels, *self.rows)

    def gpu_for(self, capability: int, multiprocessors: int) -> int | None:
        """The place of the GPU that a device counts as: None where none is of its generation.

        It is the newest one that is no newer than the device, and of these the one with the most
        nearly as many multiprocessors.
        """
        found = None
        for i, gpu in enumerate(self.gpus):
            if gpu.capability > capability or gpu.capability // 10 != capability // 10:
                continue
            if found is None:
                found = i
            known = self.gpus[found]
            nearer = abs(gpu.sms - multiprocessors) < abs(known.sms - multiprocessors)
            if gpu.capability == known.capability and nearer:
                found = i
        return found

    def pick(
        self, product: Product, capability: int, multiprocessors: int, shared_bytes: int
    ) -> int | None:
        """The place of the kernel that the launcher takes on a device; None where there is none.

        shared_bytes: what a block may have there. A kernel that has no other beside it is not
        chosen: its own launcher says whether it runs.
        """
        if len(self.kernels) == 1:
            return 0
        gpu = self.gpu_for(capability, multiprocessors)
        times: dict[int, int] = {}
        for row in self.rows:
            spec = self.kernels[row.kernel]
            last = spec.row.max_arch or capability
            if row.gpu == gpu and capability <= last and shared_of(spec) <= shared_bytes:
                given = product.swapped if spec.swapped else product.given
                time = cost.compute(*given, multiprocessors, *row.weights)[-1]
                at = place(spec, product)
                times[row.kernel] = nearness.corrected(time, at, row.points)
        return min(times, key=lambda kernel: times[kernel]) if times else None


def shared_of(spec: KernelSpec) -> int:
    """The shared memory of a block of a kernel, in bytes."""
    return spec.geometry.dynamic_shared + spec.geometry.static_shared


def with_batch(tunables: Mapping[str, Any], batch: str | None) -> dict[str, Any]:
    """Tunables with what a batch asks of a kernel. Raises UsageError for one of unknown size."""
    if tunables.get("batched") and not batch:
        raise UsageError(
            "a batched kernel is chosen for a number of products; use --batch, such as 8 or 1-64"
        )
    return {**tunables, "batched": True} if batch else {**tunables}


def make_best(
    products: Sequence[Product],
    gpus: Sequence[GpuModel],
    tunables: Mapping[str, Any],
    name: str | None,
    command: str,
    places: Places = NOWHERE,
) -> Best:
    """Kernels of which one is nearly the first of the ranking, for each product on each GPU.

    Raises SpecError where there is none.

    name: of the file's functions; by default that of the kernel, if there is but one. places: the
    tables of measured times.
    """
    ordered = sorted(dict.fromkeys(gpus), key=lambda gpu: -gpu.capability)
    chosen = {gpu: _few(products, gpu, tunables, places) for gpu in ordered}
    kernels = list(dict.fromkeys(spec for gpu in reversed(ordered) for spec in chosen[gpu]))
    rows = [
        Row(i, kernels.index(spec), weigh(spec, gpu).weights, known.points(spec, products))
        for i, gpu in enumerate(ordered)
        for known in [learnt(gpu, products[0].dtypes, products[0].layouts, places)]
        for spec in chosen[gpu]
    ]
    return Best(_name(name, kernels), tuple(ordered), tuple(kernels), tuple(rows), command)


def _few(
    products: Sequence[Product], gpu: GpuModel, tunables: Mapping[str, Any], places: Places
) -> list[KernelSpec]:
    """Kernels of which one is nearly the fastest for each product: in turn the one for the most."""
    good = []
    for product in products:
        ranking = rank(product, gpu, gpu.own_arch, tunables, places)
        good.append([r.spec for r in ranking if r.time * 100 <= NEARLY * ranking[0].time])
    found: list[KernelSpec] = []
    while good:
        count = Counter(spec for specs in good for spec in specs)
        best = max(count, key=lambda spec: count[spec])  # the first of these that was met
        found.append(best)
        good = [specs for specs in good if best not in specs]
    return found


def _is_alone(kernels: Sequence[KernelSpec]) -> bool:
    """Whether it is one kernel, and has all arguments of a launcher that chooses."""
    return len(kernels) == 1 and kernels[0].row.takes_workspace


def name_of(dtypes: DTypes, layouts: Layouts, batched: bool) -> str:
    """What a file is called by default, whichever kernels it has."""
    return f"gemm_{dtypes.name}_{layouts}{'_batched' if batched else ''}_best"


def _name(name: str | None, kernels: Sequence[KernelSpec]) -> str:
    first, alone = kernels[0], _is_alone(kernels)
    if name is None:
        return first.name if alone else name_of(first.dtypes, first.layouts, first.batched)
    check_given(name)
    longest = MAX_SYMBOL - len(inner_symbol("", len(kernels)))
    if not alone and len(name) > longest:
        many = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
        raise SpecError(
            f"name '{name}' has {len(name)} characters; with {many} it may have "
            f"{longest}; use a shorter one"
        )
    return name
