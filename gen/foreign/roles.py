"""What a kernel's parameters are to a matrix product, and shapes to try it on.

The shapes follow from the grid: how far M and N can grow before the grid does tells the tile of a
block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.errors import UsageError, unknown
from gen.foreign import elements
from gen.foreign.arguments import numbers_of, parse_pairs
from gen.foreign.build import Built
from gen.foreign.launch import LaunchText, sizes
from gen.foreign.steps import prepare
from gen.kernels.registry import make_spec
from gen.spec.dtypes import DTYPES, SCALAR_DTYPES, DTypes, parse_dtype
from gen.spec.kernel import KernelSpec
from gen.spec.problem import GemmShape, parse_layout

ROLES = ("A", "B", "C", "D", "M", "N", "K", "lda", "ldb", "ldc", "ldd", "alpha", "beta")
_LONGEST_TILE = 512
_STEP = 16  # along K, which a grid does not tell


@dataclass(frozen=True)
class Gemm:
    """A kernel as a matrix product: which parameter is what."""

    built: Built
    text: LaunchText
    roles: Mapping[str, str]
    dtypes: DTypes
    spec: KernelSpec  # one of ours with these types and layouts, which inputs are drawn for

    @property
    def output(self) -> str:
        """The role of the result."""
        return "D" if "D" in self.roles else "C"

    def sizes(self, shape: GemmShape) -> dict[str, int]:
        """What the grid may use: M, N, K, by these names and the parameters'."""
        known = numbers_of(parse_pairs(self.text.arg))
        for role, value in zip("MNK", (shape.m, shape.n, shape.k), strict=True):
            known[role] = value
            if role in self.roles:
                known[self.roles[role]] = value
        return known

    def fits(self, shape: GemmShape) -> bool:
        """Whether parameters that are several sizes at once have one value."""
        found: dict[str, int] = {}
        for role, value in zip("MNK", (shape.m, shape.n, shape.k), strict=True):
            if role in self.roles and found.setdefault(self.roles[role], value) != value:
                return False
        return True


def parse_roles(text: str, built: Built) -> dict[str, str]:
    """`A=a,B=b,...`: parameters by role. Raises UsageError."""
    if built.signature is None:
        raise UsageError("--gemm names parameters, but the source shows no names for this kernel")
    names = [parameter.name for parameter in built.signature.parameters]
    found: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (word.strip() for word in part.partition("="))
        if role not in ROLES:
            raise unknown("role in --gemm", role, ROLES)
        if not equals or name not in names:
            raise UsageError(f"--gemm {role}={name}: {built.signature} has no such parameter")
        found[role] = name
    lacking = [role for role in "AB" if role not in found]
    if lacking or not {"C", "D"} & found.keys():
        raise UsageError(
            f"--gemm {text} lacks {' and '.join(lacking) or 'C or D'}; name A, B, and C or D"
        )
    return found


def _dtype(built: Built, roles: Mapping[str, str]) -> str:
    """The element types that the parameters' types tell. Raises UsageError."""
    assert built.signature is not None
    types = {p.name: elements.of_cxx(p.type) for p in built.signature.parameters}
    input_, output = types[roles["A"]], types[roles.get("D", roles.get("C", ""))]
    for name, dtypes in DTYPES.items():
        if (dtypes.input.name, dtypes.output.name) == (input_, output) and name != "tf32":
            return name
    raise UsageError(
        f"--gemm: the types of {built.signature} are none that are known ({input_} to {output}); "
        f"say them with --gemm-dtype: {', '.join(DTYPES)}"
    )


def understand(text: str, name: str, launch: LaunchText) -> Gemm:
    """The kernel of a launch as a matrix product. Raises UsageError, CompileError."""
    (step,) = prepare(text, name, [launch])
    assert launch.gemm is not None
    roles = parse_roles(launch.gemm, step.built)
    dtypes = parse_dtype(launch.gemm_dtype or _dtype(step.built, roles))
    layout = launch.layout or "rrr"
    parse_layout(layout)
    variant = "naive" if dtypes.name in SCALAR_DTYPES else "mma"
    return Gemm(
        step.built, launch, roles, dtypes, make_spec(variant, dtype=dtypes.name, layout=layout)
    )


def default_shapes(gemm: Gemm) -> list[GemmShape]:
    """Few and small shapes: one element, whole tiles, ragged edges, several tiles both ways."""
    m, n, k = _tile(gemm, 0), _tile(gemm, 1), _STEP
    tried = [
        (m, n, k),
        (2 * m, 2 * n, 4 * k),
        (2 * m, n, 2 * k),
        (1, 1, 1),
        (m + 1, n + 1, k + 1),
        (2 * m + 1, 2 * n + 1, 3 * k + 1),
        (max(m - 1, 1), 2 * n, max(k - 1, 1)),
        (1, 2, 3 * k + 1),
    ]
    shapes = [GemmShape(*one) for one in dict.fromkeys(tried)]
    fitting = [shape for shape in shapes if gemm.fits(shape)]
    if len(fitting) < 3:  # one parameter is several sizes
        cubes = (max(m, n), 2 * max(m, n), 1, max(m, n) + 1, 2 * max(m, n) + 3)
        fitting = [GemmShape(*[side] * 3) for side in dict.fromkeys(cubes)]
    return [shape for shape in fitting if gemm.fits(shape)]


def _tile(gemm: Gemm, axis: int) -> int:
    """How long M or N can be without another grid than for 1: the tile of a block."""

    def grid(size: int) -> tuple[int, int, int]:
        dims = [1, 1, 1]
        dims[axis] = size
        return sizes(gemm.text.grid, "grid", gemm.sizes(GemmShape(*dims)))

    first = grid(1)
    if grid(_LONGEST_TILE) == first:
        return 32
    return next(size for size in range(2, _LONGEST_TILE + 1) if grid(size) != first) - 1
