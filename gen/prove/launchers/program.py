"""The host's side of what gen emits as a program, on a CUDA runtime or a driver that runs nothing.

This machine's C++ compiler compiles it, with templates/prove; it writes down what a launcher asks.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gen.compile import nvrtc
from gen.compile.host import find_compiler
from gen.errors import MissingError
from gen.kernels import signature
from gen.kernels.signature import Parameter
from gen.prove.launchers.call import Call
from gen.source.cpp.best import Best
from gen.source.cpp.best_file import render_best
from gen.source.cpp.bundle import Bundle
from gen.source.cpp.bundle_files import Own, own_epilogues, render_bundle
from gen.source.cpp.embed import aliases, render_embedded
from gen.source.cpp.embed_best import render_embedded_best
from gen.source.render import Source
from gen.source.templates import render_template, template_dir
from gen.spec.kernel import KernelSpec
from gen.spec.problem import BATCH, SINGLE

SECONDS = 60  # that all calls may take
PLAIN, BUNDLE, EMBEDDED = "plain", "bundle", "embedded"

# A file may be checked without the header that it was emitted with.
_OWN_HEADER = re.compile(r'^#include "\w+\.h"\n#if \w+_SPEC .*\n#error .*\n#endif$', re.MULTILINE)


_PROBE = re.compile(r"^probe (\d+) (\d+)$", re.MULTILINE)

# What a kernel calls and no file has is looked for when it is called, and so never. Some compilers
# have all of that looked up at the start, unless they are told.
_LOOSE = ("-rdynamic", "-pthread", "-ldl", "-Wl,--unresolved-symbols=ignore-all", "-Wl,-z,lazy")
_ALL_AT_ONCE = "LD_BIND_NOW"  # in the environment: the same


@dataclass(frozen=True)
class Host:
    """What gen emits, as files by name: the first is compiled, and has the functions to be called.

    launch, workspace: their parameters, where they are listed; no workspace where there is none.
    own: the names of those that the user's own epilogue takes; epilogues: a bundle's of that kind.
    """

    kind: str
    name: str
    files: Mapping[str, str]
    launch: Sequence[Parameter] = ()
    workspace: Sequence[Parameter] = ()
    own: Sequence[str] = ()
    epilogues: Sequence[Own] = ()

    @classmethod
    def plain(cls, source: Source) -> Host:
        """A kernel's file, perhaps edited."""
        spec = source.spec
        assert spec is not None
        text = _OWN_HEADER.sub(_no_header, source.text)
        return cls(PLAIN, spec.name, {source.filename: text}, *_signatures(spec), _own(spec))

    @classmethod
    def best(cls, best: Best) -> Host:
        """Several kernels behind the launcher of one."""
        files = {f"{best.name}.cu": render_best(best)}
        own = _own(best.kernels[0])
        return cls(PLAIN, best.name, files, best.launch, best.workspace, own)

    @classmethod
    def embedded_best(cls, best: Best, formats: Sequence[str] = ("cubin",)) -> Host:
        """Several kernels as machine code behind one launcher. Raises as compile_cuda."""
        spec = best.kernels[0]
        source, header = render_embedded_best(best, formats)
        files = {f"{best.name}.cpp": source, f"{best.name}.h": header}
        of_best = signature.launch(spec, may_choose=True), signature.workspace(spec.several)
        launch, workspace = (signature.with_types(p, aliases(spec)) for p in of_best)
        return cls(EMBEDDED, best.name, files, launch, workspace, _own(spec))

    def including(self, text: str, name: str, header: str) -> Host:
        """The same with another text of its first file, and a header."""
        text = _OWN_HEADER.sub(_no_header, text)
        return replace(self, files={next(iter(self.files)): text, name: header})

    @classmethod
    def bundle(cls, bundle: Bundle) -> Host:
        """Several kernels behind one function."""
        header, source = render_bundle(bundle)
        files = {f"{bundle.name}.cu": source, f"{bundle.name}.h": header}
        own = own_epilogues(bundle)
        workspace = signature.workspace(BATCH if bundle.batched else SINGLE)
        return cls(BUNDLE, bundle.name, files, (), workspace, (), own)

    @classmethod
    def embedded(cls, specs: Sequence[KernelSpec], formats: Sequence[str] = ("cubin",)) -> Host:
        """A kernel as machine code. Raises as compile_cuda."""
        spec = specs[0]
        source, header = render_embedded(specs, formats)
        files = {f"{spec.name}.cpp": source, f"{spec.name}.h": header}
        types = aliases(spec)
        launch, workspace = (signature.with_types(p, types) for p in _signatures(spec))
        return cls(EMBEDDED, spec.name, files, launch, workspace, _own(spec))


def _no_header(match: re.Match[str]) -> str:
    """What stands in its place, in as many lines."""
    return "#define GEMMGEN_API" + "\n" * match[0].count("\n")


def _own(spec: KernelSpec) -> list[str]:
    return [p.name for p in signature.of_epilogue(spec)] if spec.fused else []


def _signatures(spec: KernelSpec) -> tuple[Sequence[Parameter], Sequence[Parameter]]:
    workspace = signature.workspace(spec.several) if spec.row.takes_workspace else ()
    return signature.launch(spec), workspace


class Reply(NamedTuple):
    """What became of a call: the workspace's error and size, launches, settings, questions for
    clusters, the error.
    """

    workspace: tuple[int, int] | None
    launches: list[list[str]]
    settings: list[list[str]]
    counted: list[list[str]]
    asked: list[str]  # what a launcher should not have asked for
    refused: tuple[bool, bool]  # whether a call failed as it was to: for the workspace, the launch
    returned: int | None


class NotCompiledError(MissingError):
    """What this machine's C++ compiler says against a file."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@dataclass
class Program:
    """A host's side, compiled in a folder, with further options of the compiler.

    Raises MissingError without a C++ compiler, and where it does not compile the files.
    """

    host: Host
    folder: Path
    options: Sequence[str] = ()
    loaded: list[str] = field(default_factory=list)  # images of the last run, as "sm_80"
    seen: dict[int, int] = field(default_factory=dict)  # outcomes that the last run's probes tell
    ended: str = ""  # how the last run did, if not as it should
    in_time: bool = True  # whether it did

    def __post_init__(self) -> None:
        host = self.host
        for name, text in host.files.items():
            (self.folder / name).write_text(_as_cpp(text))
        text = render_template(
            "prove/launcher.cpp.j2",
            file=next(iter(host.files)),
            name=host.name,
            kind=host.kind,
            launch=host.launch,
            workspace=host.workspace,
            own=host.own,
            epilogues=host.epilogues,
        )
        (self.folder / "launcher.cpp").write_text(text)
        includes = [f"-I{path}" for path in (".", *nvrtc.include_paths())]
        self._compile(*includes, "launcher.cpp", "-o", "launcher", *_LOOSE)
        if host.kind == EMBEDDED:
            build_driver(self.folder, self.options)

    def _compile(self, *words: str) -> None:
        compile_cpp(self.folder, "-w", *self.options, *words)

    def run(self, calls: Sequence[Call], threads: int = 1, **environment: str) -> list[Reply]:
        """What becomes of calls; fewer replies than calls where the launcher crashed or hung.

        With several threads, which share the calls, there are no replies where one of them did.
        """
        lines = "".join(f"{call.line}\n" for call in calls)
        libraries = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
        others = {name: text for name, text in os.environ.items() if name != _ALL_AT_ONCE}
        self.loaded, self.ended, self.in_time = [], "", True
        try:
            done = subprocess.run(
                [self.folder / "launcher", str(threads)], input=lines.encode(), capture_output=True,
                timeout=SECONDS, env={**others, **environment},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            code, output, errors = 0, error.stdout or b"", error.stderr or b""
            self.ended, self.in_time = f"it did not end in {SECONDS} seconds", False
        else:
            code, output, errors = done.returncode, done.stdout, done.stderr
        said = errors.decode(errors="replace")
        self.seen = {int(n): int(seen) for n, seen in _PROBE.findall(said)}
        parts = output.decode(errors="replace").split("problem\n")[1:]
        replies = [_reply(part, self.loaded) for part in parts]
        if self.in_time and (code or len(replies) < len(calls)):
            self.ended = f"it crashed ({_status(code)})"
        if self.ended and (last := _PROBE.sub("", said).strip().splitlines()[-1:]):
            self.ended += f": {last[0]}"
        # What a thread sanitizer finds it says with the program's exit status.
        return [] if self.ended and threads > 1 else replies


def _status(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _as_cpp(text: str) -> str:
    """CUDA in the words that templates/prove/runtime.h has a meaning for."""
    text = re.sub(r"\basm\s*\(", "asm volatile(", text)
    return re.sub(
        r"([\w:]+(?:<[^<>;]*>)?)\s*<<<(.*?)>>>", r"by_arrows({\2}, \1)", text, flags=re.DOTALL
    )


def compile_cpp(folder: Path, *words: str) -> None:
    """Runs this machine's C++ compiler in a folder. Raises MissingError."""
    compiler = find_compiler()
    fakes = f"-I{template_dir() / 'prove'}"
    command = [compiler, "-std=c++17", fakes, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        line = next((x for x in done.stderr.splitlines() if "error" in x), "no reason given")
        text = f"{Path(compiler).name} does not compile the file: {line}"
        raise NotCompiledError(text, done.stderr)


def build_driver(folder: Path, options: Iterable[str] = ()) -> None:
    """A libcuda.so.1 in a folder that runs nothing: see templates/prove/driver.cpp."""
    driver = str(template_dir() / "prove" / "driver.cpp")
    library = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1")
    compile_cpp(folder, *options, driver, *library)


def _reply(text: str, loaded: list[str]) -> Reply:
    workspace, returned = None, None
    launches: list[list[str]] = []
    settings: list[list[str]] = []
    counted: list[list[str]] = []
    asked = []
    refused = [False, False]
    for line in text.splitlines():
        word, *words = line.split()
        if word == "workspace":
            workspace = int(words[0]), int(words[1])
        elif word == "launch":
            launches.append(words)
        elif word == "set":
            settings.append(words)
        elif word == "clusters":
            counted.append(words)
        elif word == "returned":
            returned = int(words[0])
        elif word == "refused":
            refused[workspace is not None] = True
        elif word in ("load", "unload"):
            loaded.append(" ".join(words if word == "load" else [word, *words]))
        else:
            asked.append(word)
    return Reply(workspace, launches, settings, counted, asked, (refused[0], refused[1]), returned)
