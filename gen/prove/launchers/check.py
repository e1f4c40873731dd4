"""An emitted file's launcher, without a GPU: does it queue what the plan says, and refuse the rest?

The host's side of the file is compiled by this machine's C++ compiler, on a CUDA runtime that runs
nothing and writes down what it is asked. What it writes is compared with the plan in Python.
Bundles and embedded kernels keep the same contract; their tests compare them with it.
"""

from __future__ import annotations

import itertools
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gen.device.tensor_map import codes
from gen.errors import MissingError
from gen.kernels.launches import Argument, Launch, Pointer, TensorMap
from gen.prove.edits import Edited
from gen.prove.launchers.call import Call
from gen.prove.launchers.calls import calls
from gen.prove.launchers.contract import INVALID_VALUE, SUCCESS, asked, expected
from gen.prove.launchers.program import EMBEDDED, PLAIN, Host, NotCompiledError, Program, Reply
from gen.prove.launchers.reaching import numbered_calls, unreached_by
from gen.prove.unreached import Unreached
from gen.source.render import Source, render
from gen.spec.arch import SHARED_KIB, STATIC_SHARED, compute_capability
from gen.spec.kernel import KernelSpec

SANITIZER, THREADS = ("-fsanitize=thread", "-g", "-O1"), 4
REFUSED = 999  # what a call returns that is to fail
_SHARED, _CARVEOUT = 8, 9  # cudaFuncAttribute...


def _bits(argument: Argument, addresses: dict[str, int]) -> str:
    """An argument as the program prints it."""
    if isinstance(argument, Pointer):
        return f"{addresses[argument.buffer] + argument.offset:x}"
    if isinstance(argument, TensorMap):
        if 0 in argument.dims:
            return ",".join("0" * 14)
        at = (addresses[argument.source.buffer] + argument.source.offset) % 2**64
        element, swizzle = map(int, codes(argument))
        sizes, strides, box = argument.tiled
        words = [element, at, *sizes[:2], strides[0], *box[:2], swizzle]
        for more in zip(sizes[2:], strides[1:], box[2:], strict=True):
            words += more
        words += [0] * (14 - len(words))
        return ",".join(f"{word:x}" for word in words)
    return f"{int(argument.view(f'u{argument.nbytes}')):x}"


def complaint(
    spec: KernelSpec,
    call: Call,
    reply: Reply | None,
    kind: str = PLAIN,
    ended: str = "it crashed, or did not end",
) -> str:
    """What is wrong with a launcher that gave this reply to a call; nothing where all is right.

    ended: what to say where it gave none, or not all of it: see Program.
    """
    if reply is None or reply.returned is None:
        return ended
    if reply.asked:
        return f"it calls {reply.asked[0]}, which a launcher has no business with"
    code, steps = expected(spec, call, kind)
    if any(reply.refused) and reply.workspace is None:  # there is nothing but the launch
        reply = reply._replace(refused=(False, True))
    if reply.refused[1] and code == SUCCESS:
        code, steps = REFUSED, ()
    if code != reply.returned and not call.refused_launch:
        return f"it returns {reply.returned}, not {code}"
    if code != SUCCESS and reply.launches and not call.refused_launch:
        return f"it returns {code}, and has launched {reply.launches[0][0]}"
    if reply.workspace is not None and (wrong := _workspace(spec, call, reply, kind)):
        return wrong
    if call.refused_launch and len(steps) >= call.refused_launch:
        if reply.returned != call.launch_error:
            return f"a launch fails with {call.launch_error}, and it returns {reply.returned}"
        steps = steps[: call.refused_launch - 1]
    elif call.refused_launch and reply.returned != code:
        return f"it returns {reply.returned}, not {code}"
    if len(steps) != len(reply.launches):
        return f"it launches {len(reply.launches)} kernels, the plan {len(steps)}"
    for words in reply.counted:
        if wrong := _counted(spec, words):
            return wrong
    for launch, words in zip(steps, reply.launches, strict=True):
        if wrong := _launch(spec, launch, words, reply.settings, call, kind):
            return wrong
    return ""


def _workspace(spec: KernelSpec, call: Call, reply: Reply, kind: str) -> str:
    assert reply.workspace is not None
    code, nbytes = reply.workspace
    wanted, size = (INVALID_VALUE, 0) if call.no_bytes else asked(spec, call, kind)
    if reply.refused[0] and wanted == SUCCESS:
        wanted = REFUSED
    if code != wanted:
        return f"..._workspace returns {code}, not {wanted}"
    if code == SUCCESS and nbytes != size:
        return f"..._workspace says {nbytes} bytes, the plan {size}"
    if code != SUCCESS and nbytes and not call.no_bytes:
        return f"..._workspace returns {code}, and does not set the size to 0"
    return ""


def _counted(spec: KernelSpec, words: list[str]) -> str:
    """What is wrong with the question how many clusters run at the same time."""
    (kernel, *numbers), shared = words, spec.geometry.dynamic_shared
    size, threads = spec.cluster_blocks, math.prod(spec.threads)
    wanted = [size, 1, 1, threads, 1, 1, shared]
    if kernel != spec.name:
        return f"it counts the clusters of {kernel}, not those of {spec.name}"
    if [int(x) for x in numbers] != wanted:
        return (
            f"it counts clusters with {' '.join(numbers)} (blocks, threads, shared bytes), "
            f"not {' '.join(map(str, wanted))}"
        )
    return ""


def _launch(
    spec: KernelSpec,
    launch: Launch,
    words: list[str],
    settings: list[list[str]],
    call: Call,
    kind: str,
) -> str:
    kernel, *rest = words
    numbers, values = [int(x) for x in rest[:8]], rest[8:]
    # Embedded kernels do not start early, and need no room beside the kernel before them.
    early, all_shared = (launch.early, launch.all_shared) if kind != EMBEDDED else (False, False)
    if kernel != launch.kernel:
        return f"it launches {kernel}, the plan {launch.kernel}"
    for what, got, want in (
        ("a grid of", numbers[:3], list(launch.grid)),
        ("blocks of", numbers[3:6], list(launch.block)),
        ("shared bytes:", numbers[6:7], [launch.shared_bytes]),
        ("early:", numbers[7:8], [int(early)]),
    ):
        if got != want:
            return f"{kernel}: {what} {' x '.join(map(str, got))}, not {' x '.join(map(str, want))}"
    given = {(name, int(at)): int(value) for name, at, value in settings}
    allowed, most = (
        given.get((kernel, _SHARED), STATIC_SHARED),
        1024 * SHARED_KIB[compute_capability(spec.arch)],
    )
    if allowed < launch.shared_bytes:
        return f"{kernel} is not allowed its {launch.shared_bytes} bytes of shared memory"
    if allowed > most:
        return f"{kernel} asks for {allowed} bytes of shared memory, {spec.arch} has {most}"
    if all_shared and given.get((kernel, _CARVEOUT)) != 100:
        return f"{kernel} does not ask for all of the L1 cache as shared memory"
    # What a kernel without partial sums is given in their place, it does not read.
    unused = {
        name for name in ("partials", "flags") if not isinstance(launch.args.get(name), Pointer)
    }
    if len(values) != len(launch.args):
        return f"{kernel} is given {len(values)} arguments, not {len(launch.args)}"
    for (name, argument), value in zip(launch.args.items(), values, strict=True):
        planned = _bits(argument, call.addresses)
        if value != planned and name not in unused:
            return f"{kernel}: {name} is {_number(value)}, not {_number(planned)}"
    return ""


def _number(bits: str) -> str:
    return bits if "," in bits else str(int(bits, 16))


@dataclass
class LauncherReport:
    """What the launcher of a file came to.

    as_emitted: whether its own lines are those that `gen emit` writes. wrong: what is wrong, by the
    first calls that show it. calls: how many were made. skipped: why it was not tried. unreached:
    conditions of edited lines without all outcomes. unprobed: lines where that is not known.
    races_unknown: whether this machine has no thread sanitizer that works.
    """

    as_emitted: bool
    wrong: list[str]
    calls: int = 0
    skipped: str = ""
    unreached: list[Unreached] = field(default_factory=list)
    unprobed: list[int] = field(default_factory=list)
    races_unknown: bool = False

    def __str__(self) -> str:
        if self.wrong:
            return f"wrong {self.wrong[0]}"
        if self.as_emitted and not self.skipped:
            return "as gen emit writes it"
        if self.as_emitted:
            return f"as gen emit writes it; its constants are not checked: {self.skipped}"
        if self.skipped:
            return f"not as gen emit writes it, and not checked: {self.skipped}"
        text = f"not as gen emit writes it, but as the plan has it, in {self.calls} calls"
        no_sanitizer = "; races of threads were not looked for: no thread sanitizer works here"
        return text + no_sanitizer * self.races_unknown


def host_side(text: str) -> str:
    """An emitted file's host side: from the guard that NVRTC leaves it out by to the end."""
    side = text.partition("#ifndef __CUDACC_RTC__  // the host's side")[2]
    return side.replace("GEMMGEN_API ", "")  # of a file with a header


def _constants(text: str) -> list[str]:
    """What stands outside of functions, and a launcher may use."""
    return re.findall(
        r"^ *(?:static )?(?:constexpr|using|alignas|static_assert)\b[^;]*;", text, re.M
    )


def check_launcher(source: Source, *, always: bool = False) -> LauncherReport:
    """Checks the launcher of a file where it is not as it was emitted, or `always`.

    Nor may the constants be other ones, of which a launcher uses some.
    """
    spec = source.spec
    assert spec is not None
    emitted = render(spec).text
    as_emitted = host_side(source.text) == host_side(emitted)
    if as_emitted and _constants(source.text) == _constants(emitted) and not always:
        return LauncherReport(True, [])
    if not host_side(source.text):
        return LauncherReport(False, [], skipped="the file has none")
    edited = Edited.between(source.text, emitted)
    tried = [*calls(spec), *numbered_calls(spec, edited.numbers)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = Program(Host.plain(source), Path(folder))
            replies = program.run(tried)
        except NotCompiledError as error:
            if _compiles(replace(source, text=emitted)):  # or it is this machine's compiler
                return LauncherReport(as_emitted, [str(error)])
            return LauncherReport(as_emitted, [], skipped=str(error))
        except MissingError as error:
            return LauncherReport(as_emitted, [], skipped=str(error))
    wrong: dict[str, str] = {}
    for call, reply in itertools.zip_longest(tried, replies):
        if text := complaint(spec, call, reply, ended=program.ended):
            wrong.setdefault(text, f"on {call}: {text}")
        if reply is None:
            break
    found = list(wrong.values())
    races = _races(source, tried) if not found and not as_emitted else False
    if races:
        found = [f"on {THREADS} threads at once: there is a data race"]
    report = LauncherReport(as_emitted, found, len(tried), races_unknown=races is None)
    if not found:
        report.unreached, report.unprobed = unreached_by(source, edited, tried)
    return report


def _compiles(source: Source) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            Program(Host.plain(source), Path(folder))
        except MissingError:
            return False
    return True


def _races(source: Source, tried: Sequence[Call]) -> bool | None:
    """Whether threads that share calls race; None where no thread sanitizer works in time."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = Program(Host.plain(source), Path(folder), SANITIZER)
        except MissingError:
            return None
        if not program.run(tried[:1]):
            return None
        races = not program.run(tried, THREADS)
        return races if program.in_time else None
