"""An emitted file's launcher, without a GPU: does it queue what the plan says, and refuse the rest?

The host's side of the file is compiled by this machine's C++ compiler, on a CUDA runtime that runs
nothing and writes down what it is asked. What it writes is compared with the plan in Python.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gen.compile import nvrtc
from gen.device.tensor_map import codes
from gen.errors import MissingError, SpecError
from gen.kernels import signature
from gen.kernels.launches import BIAS, WORKSPACE, Argument, Launch, Pointer, TensorMap
from gen.prove.trials import SCALARS
from gen.source.render import Source, render, render_template
from gen.spec.kernel import KernelSpec
from gen.spec.problem import Alignment, GemmProblem, GemmShape

SUCCESS, INVALID_VALUE, INVALID_CONFIGURATION = 0, 1, 9
INVALID_HANDLE, NOT_SUPPORTED, OUT_OF_RESOURCES = 400, 801, 701
ADDRESSES = {
    "A": 0x1000_0000, "B": 0x2000_0000, "C": 0x3000_0000, "D": 0x4000_0000, BIAS: 0x5000_0000,
    WORKSPACE: 0x6000_0000,
}  # fmt: skip
COMPILERS = ("g++", "clang++", "c++")
SECONDS = 60  # that all calls may take
_SHARED, _CARVEOUT = 8, 9  # cudaFuncAttribute...
_STATIC = 48 * 1024  # bytes of shared memory that need not be asked for
_MOST = 2**44  # elements of a matrix


@dataclass(frozen=True)
class Call:
    """A call of a launcher, and the machine that it is made on.

    skips: bytes that A, B, C and D start behind a multiple of 256. without: matrices that are null.
    own: the device of the stream, where 0 is the current one. refused_launch: the number, from 1,
    of a launch that fails.
    """

    problem: GemmProblem
    skips: tuple[int, int, int, int] = (0, 0, 0, 0)
    without: str = ""
    workspace: int = ADDRESSES[WORKSPACE]
    workspace_bytes: int = 2**62
    multiprocessors: int = 132
    own: int = 0
    capturing: bool = False
    no_tma: bool = False
    refused_launch: int = 0
    sizes: tuple[int, int, int] | None = None  # other ones than the problem's

    @property
    def addresses(self) -> dict[str, int]:
        """Where the matrices start."""
        skips = dict(zip("ABCD", self.skips, strict=True))
        found = {name: at + skips.get(name, 0) for name, at in ADDRESSES.items()}
        null = dict.fromkeys(self.without.split(), 0)
        return found | {WORKSPACE: self.workspace} | null

    @property
    def line(self) -> str:
        """What the program reads."""
        p, at = self.problem, self.addresses
        s = self.sizes or (p.shape.m, p.shape.n, p.shape.k)
        numbers: list[Any] = [*s, p.alpha, p.beta]
        numbers += [*(at[name] for name in "ABCD"), at[BIAS], at[WORKSPACE]]
        numbers += [p.lda, p.ldb, p.ldc, p.ldd, self.workspace_bytes, self.multiprocessors]
        numbers += [0, self.own, *map(int, (self.capturing, self.no_tma)), self.refused_launch]
        return " ".join(map(str, numbers))

    def __str__(self) -> str:
        p, s = self.problem, self.sizes
        words = [f"{'x'.join(map(str, s))}" if s else str(p.shape)]
        words += [f"alpha={p.alpha:g} beta={p.beta:g}"]
        words += [f"{name}={getattr(p, name)}" for name in ("lda", "ldb", "ldc", "ldd")]
        words += [f"{x} off by {n}" for x, n in zip("ABCD", self.skips, strict=True) if n]
        words += [f"{name} null" for name in self.without.split()]
        return ", ".join([*words, f"{self.multiprocessors} multiprocessors"])


class Reply(NamedTuple):
    """What became of a call: the workspace's error and size, launches, settings, the error."""

    workspace: tuple[int, int] | None
    launches: list[list[str]]
    settings: list[list[str]]
    asked: list[str]  # what a launcher should not have asked for
    returned: int | None


# A file may be checked without the header that it was emitted with.
_OWN_HEADER = re.compile(r'^#include "\w+\.h"\n#if \w+_SPEC .*\n#error .*\n#endif$', re.MULTILINE)


class Program:
    """The host's side of a file, compiled.

    Raises MissingError without a C++ compiler, and where it does not compile the file.
    """

    def __init__(self, source: Source, folder: Path) -> None:
        spec = source.spec
        assert spec is not None
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            raise MissingError(f"there is no C++ compiler ({', '.join(COMPILERS)})")
        file, program = folder / f"{spec.name}.cu", folder / "launcher"
        file.write_text(_OWN_HEADER.sub("", source.text))
        has_workspace = spec.row.takes_workspace
        text = render_template(
            "prove/launcher.cpp.j2",
            file=file.name,
            name=spec.name,
            launch=signature.launch(spec.has_bias, has_workspace),
            workspace=signature.workspace() if has_workspace else (),
        )
        (folder / "launcher.cpp").write_text(text)
        includes = [f"-I{path}" for path in nvrtc.include_paths()]
        command = [
            compiler, "-std=c++17", "-w", "-rdynamic", "-DGEMMGEN_API=", *includes, "launcher.cpp",
            "-o", str(program), "-ldl", "-Wl,--unresolved-symbols=ignore-all",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            line = next((x for x in done.stderr.splitlines() if "error" in x), "no reason given")
            raise MissingError(f"{Path(compiler).name} does not compile the file: {line}")
        self._program = program

    def run(self, calls: Sequence[Call]) -> list[Reply]:
        """What becomes of calls; fewer replies than calls where the launcher crashed or hung."""
        lines = "".join(f"{call.line}\n" for call in calls)
        try:
            done = subprocess.run(
                [self._program], input=lines, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return []
        return [_reply(part) for part in done.stdout.split("problem\n")[1:]]


def _reply(text: str) -> Reply:
    workspace, returned = None, None
    launches: list[list[str]] = []
    settings: list[list[str]] = []
    asked = []
    for line in text.splitlines():
        word, *words = line.split()
        if word == "workspace":
            workspace = int(words[0]), int(words[1])
        elif word == "launch":
            launches.append(words)
        elif word == "set":
            settings.append(words)
        elif word == "returned":
            returned = int(words[0])
        else:
            asked.append(word)
    return Reply(workspace, launches, settings, asked, returned)


def _bits(argument: Argument, addresses: dict[str, int]) -> str:
    """An argument as the program prints it."""
    if isinstance(argument, Pointer):
        return f"{addresses[argument.buffer] + argument.offset:x}"
    if isinstance(argument, TensorMap):
        if 0 in argument.dims:
            return ",".join("0" * 8)
        at = addresses[argument.source.buffer] + argument.source.offset
        element, swizzle = map(int, codes(argument))
        words = [element, at, *argument.dims, argument.pitch, *argument.box, swizzle]
        return ",".join(f"{word:x}" for word in words)
    return f"{int(argument.view(f'u{argument.nbytes}')):x}"


def complaint(spec: KernelSpec, call: Call, reply: Reply | None) -> str:
    """What is wrong with a launcher that gave this reply to a call; nothing where all is right."""
    if reply is None or reply.returned is None:
        return "it crashed, or did not end"
    if reply.asked:
        return f"it calls {reply.asked[0]}, which tells of another call's error"
    code, steps = expected(spec, call)
    if code != reply.returned and not call.refused_launch:
        return f"it returns {reply.returned}, not {code}"
    if code != SUCCESS and reply.launches and not call.refused_launch:
        return f"it returns {code}, and has launched {reply.launches[0][0]}"
    if reply.workspace is not None and (wrong := _workspace(spec, call, reply.workspace)):
        return wrong
    if call.refused_launch and len(steps) >= call.refused_launch:
        if reply.returned != OUT_OF_RESOURCES:
            return f"a launch fails with {OUT_OF_RESOURCES}, and it returns {reply.returned}"
        steps = steps[: call.refused_launch - 1]
    elif call.refused_launch and reply.returned != SUCCESS:
        return f"it returns {reply.returned}, not 0"
    if len(steps) != len(reply.launches):
        return f"it launches {len(reply.launches)} kernels, the plan {len(steps)}"
    for launch, words in zip(steps, reply.launches, strict=True):
        if wrong := _launch(launch, words, reply.settings, call):
            return wrong
    return ""


def _workspace(spec: KernelSpec, call: Call, found: tuple[int, int]) -> str:
    code, nbytes = found
    refused = _refused(spec, call, launch=False)
    wanted = refused
    size = 0
    if not refused and _is_something(call):
        try:
            size = _plan(spec, call).workspace_bytes
        except SpecError:
            wanted = INVALID_CONFIGURATION
    if code != wanted:
        return f"..._workspace returns {code}, not {wanted}"
    if code == SUCCESS and nbytes != size:
        return f"..._workspace says {nbytes} bytes, the plan {size}"
    return ""


def _launch(launch: Launch, words: list[str], settings: list[list[str]], call: Call) -> str:
    kernel, *rest = words
    numbers, values = [int(x) for x in rest[:8]], rest[8:]
    if kernel != launch.kernel:
        return f"it launches {kernel}, the plan {launch.kernel}"
    for what, got, want in (
        ("a grid of", numbers[:3], list(launch.grid)),
        ("blocks of", numbers[3:6], list(launch.block)),
        ("shared bytes:", numbers[6:7], [launch.shared_bytes]),
        ("early:", numbers[7:8], [int(launch.early)]),
    ):
        if got != want:
            return f"{kernel}: {what} {' x '.join(map(str, got))}, not {' x '.join(map(str, want))}"
    given = {(name, int(at)): int(value) for name, at, value in settings}
    if launch.shared_bytes > _STATIC and given.get((kernel, _SHARED), 0) < launch.shared_bytes:
        return f"{kernel} is not allowed its {launch.shared_bytes} bytes of shared memory"
    if launch.all_shared and given.get((kernel, _CARVEOUT)) != 100:
        return f"{kernel} does not ask for all of the L1 cache as shared memory"
    # What a kernel without partial sums is given in their place, it does not read.
    unused = {"partials"} if launch.args.get("slices") == 1 else set()
    if len(values) != len(launch.args):
        return f"{kernel} is given {len(values)} arguments, not {len(launch.args)}"
    for (name, argument), value in zip(launch.args.items(), values, strict=True):
        planned = _bits(argument, call.addresses)
        if value != planned and name not in unused:
            return f"{kernel}: {name} is {_number(value)}, not {_number(planned)}"
    return ""


def _number(bits: str) -> str:
    return bits if "," in bits else str(int(bits, 16))


def _is_something(call: Call) -> bool:
    m, n, _ = call.sizes or (call.problem.shape.m, call.problem.shape.n, 0)
    return bool(m and n)


def _plan(spec: KernelSpec, call: Call) -> Any:
    unit = [skip % 16 == 0 for skip in call.skips]
    aligned = Alignment(unit[0], unit[1], unit[3])
    shape = GemmShape(*call.sizes) if call.sizes else call.problem.shape
    return spec.plan(replace(call.problem, shape=shape), aligned, call.multiprocessors)


def _refused(spec: KernelSpec, call: Call, launch: bool) -> int:
    """The contract: what a launcher, or the function that tells its workspace, refuses."""
    p, s = call.problem, call.problem.shape
    m, n, k = call.sizes or (s.m, s.n, s.k)
    null, layouts = call.without.split(), spec.layouts
    if min(m, n, k) < 0 or (spec.row.takes_workspace and max(m, n, k) > spec.row.most):
        return INVALID_VALUE
    if m == 0 or n == 0:
        return SUCCESS
    if spec.row.takes_workspace and m * n > _MOST:
        return INVALID_VALUE

    def wrong(name: str, lines: int, length: int, row_major: bool, ld: int) -> bool:
        if not row_major:
            lines, length = length, lines
        return name in null or ld < length or lines * ld > _MOST

    bad = k > 0 and (
        wrong("A", m, k, layouts.a, p.lda) or wrong("B", k, n, layouts.b, p.ldb)
    )  # fmt: skip
    if launch:
        bad |= p.beta != 0 and wrong("C", m, n, layouts.c, p.ldc)
        bad |= wrong("D", m, n, layouts.c, p.ldd) or (spec.has_bias and BIAS in null)
    return INVALID_VALUE if bad else SUCCESS


def expected(spec: KernelSpec, call: Call) -> tuple[int, Sequence[Launch]]:
    """What a launcher returns, by the contract, and the launches of the plan."""
    code = _refused(spec, call, launch=True)
    if code or not _is_something(call):
        return code, ()
    if call.own and not call.capturing:
        return INVALID_HANDLE, ()
    try:
        steps = _plan(spec, call)
    except SpecError:
        return INVALID_CONFIGURATION, ()
    at, nbytes = call.addresses[WORKSPACE], call.workspace_bytes
    if steps.workspace_bytes and (at == 0 or at % 256 or nbytes < steps.workspace_bytes):
        return INVALID_VALUE, ()
    maps = any(isinstance(a, TensorMap) and 0 not in a.dims
               for launch in steps.launches for a in launch.args.values())  # fmt: skip
    if call.no_tma and maps:
        return NOT_SUPPORTED, ()
    return SUCCESS, steps.launches


# -- what is tried ---------------------------------------------------------------------------------


def calls(spec: KernelSpec, count: int = 150) -> list[Call]:
    """Problems of all sizes on several GPUs, and each that is to be refused.

    First comes a driver without TMA: what it lacks is looked up again.
    """
    first = Call(GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1), no_tma=True)
    return [first, *itertools.islice(_problems(spec), count), *_refusals(spec)]


def _problems(spec: KernelSpec) -> Iterator[Call]:
    draw = random.Random(0)
    tile, size = spec.threadblock, spec.dtypes.output.size
    most = 3 * 10**4 if spec.row.takes_workspace else 10**7
    while True:
        m, n, k = (
            draw.choice((1, side, draw.randint(1, 5) * side + draw.randint(-1, 1),
                         draw.randint(1, 5000), draw.randint(1, most)))
            for side in tile
        )  # fmt: skip
        shape = GemmShape(max(m, 1), max(n, 1), draw.choice((0, max(k, 1), max(k, 1))))
        alpha, beta = draw.choice(SCALARS)
        padding = draw.choice((0, 0, 1, 8, 16, 100))
        problem = GemmProblem.packed(shape, spec.layouts, alpha, beta, padding)
        if draw.random() < 0.3:
            problem = replace(problem, lda=problem.lda + 3, ldd=problem.ldd + 5)
        a, b, c, d = (draw.choice((0, 0, 0, 16, size, 4 * size)) for _ in range(4))
        count = draw.choice((1, 2, 7, 84, 108, 132, 148))
        yield Call(problem, (a, b, c, d), multiprocessors=count)


def _refusals(spec: KernelSpec) -> Iterator[Call]:
    """What is refused, each alone, and what comes close to it."""
    p = GemmProblem.packed(GemmShape(100, 70, 600), spec.layouts, 2, -1)
    good = Call(p)
    yield from (replace(good, without=x) for x in ("A", "B", "C", "D", BIAS, WORKSPACE))
    for name in ("lda", "ldb", "ldc", "ldd"):
        for value in (getattr(p, name) - 1, 0, -1, -(2**63), 2**63 - 1, 2**45, 2**38):
            changed: dict[str, Any] = {name: value}
            yield replace(good, problem=replace(p, **changed))
    no_c = replace(p, beta=0)
    yield Call(replace(no_c, ldc=0), without="C")
    for big in (-1, -(2**63), 2**31 - 4096, 2**31 - 4095, 2**40, 2**62, 2**63 - 1):
        for at in range(3):
            sizes = [100, 70, 600]
            sizes[at] = big
            m, n, k = sizes
            yield replace(good, sizes=(m, n, k))
            if 0 < big < 2**62:  # leading dimensions that fit it
                fitting = GemmProblem.packed(GemmShape(m, n, k), spec.layouts, 2, -1)
                yield Call(fitting)
    for size in (2**20, 2**22 + 1, 2**31 - 4096, 2**40):
        yield Call(GemmProblem.packed(GemmShape(size, size, 64), spec.layouts, 2, -1))
    yield from (replace(good, sizes=sizes) for sizes in ((0, 70, 600), (100, 0, 600), (0, -1, 0)))
    odd = replace(good, skips=(spec.dtypes.input.size,) * 2 + (0, 0))
    for at in (1, 16, 128, 255, 256):
        yield replace(odd, workspace=ADDRESSES[WORKSPACE] + at)
    if spec.row.takes_workspace:
        need = _plan(spec, odd).workspace_bytes
        yield from (replace(odd, workspace_bytes=n) for n in (0, need - 1, need, need + 1))
    yield replace(good, own=1)
    yield replace(good, own=1, capturing=True)
    yield replace(good, capturing=True)
    yield good
    yield from (replace(odd, refused_launch=n) for n in (1, 2, 3))


@dataclass
class LauncherReport:
    """What the launcher of a file came to.

    as_emitted: whether its lines are those that `gen emit` writes. wrong: what is wrong, by the
    first calls that show it. calls: how many were made. skipped: why it was not tried.
    """

    as_emitted: bool
    wrong: list[str]
    calls: int = 0
    skipped: str = ""

    def __str__(self) -> str:
        if self.as_emitted:
            return "as gen emit writes it"
        if self.skipped:
            return f"not as gen emit writes it, and not checked: {self.skipped}"
        if self.wrong:
            return f"wrong {self.wrong[0]}"
        return f"not as gen emit writes it, but as the plan has it, in {self.calls} calls"


def host_side(text: str) -> str:
    """An emitted file's host side: from the guard that NVRTC leaves it out by to the end."""
    side = text.partition("#ifndef __CUDACC_RTC__  // the host's side")[2]
    return side.replace("GEMMGEN_API ", "")  # of a file with a header


def check_launcher(source: Source, *, always: bool = False) -> LauncherReport:
    """Checks the launcher of a file where it is not as it was emitted, or `always`."""
    spec = source.spec
    assert spec is not None
    as_emitted = host_side(source.text) == host_side(render(spec).text)
    if as_emitted and not always:
        return LauncherReport(True, [])
    if not host_side(source.text):
        return LauncherReport(False, [], skipped="the file has none")
    tried = calls(spec)
    with tempfile.TemporaryDirectory() as folder:
        try:
            replies = Program(source, Path(folder)).run(tried)
        except MissingError as error:
            return LauncherReport(as_emitted, [], skipped=str(error))
    wrong: dict[str, str] = {}
    for call, reply in itertools.zip_longest(tried, replies):
        if text := complaint(spec, call, reply):
            wrong.setdefault(text, f"on {call}: {text}")
        if reply is None:
            break
    return LauncherReport(as_emitted, list(wrong.values()), len(tried))
