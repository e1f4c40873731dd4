"""What CMake asks: where its files are, and what the calls of a CMakeLists.txt make."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gen.errors import GenError, MissingError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.source.architectures import Family, make_family, render_family
from gen.source.cpp import embed
from gen.source.cpp.bundle import read_bundle
from gen.source.render import render, stamp, template_dir
from gen.spec.arch import compute_capability

_ARCHITECTURE = re.compile(r"(\d+[af]?)(-real|-virtual)?")
_TUNABLES = {tunable for row in VARIANTS.values() for tunable in row.tunable_names}
_KERNEL = {"variant", "dtype", "layout", "arch", "name", *_TUNABLES}


def cmake_dir() -> Path:
    """The CMake files: a checkout's own before the copy inside the installed package."""
    package = Path(__file__).parents[2]
    for folder in (package.parent / "build", package / "cmake"):
        if (folder / "gemmgenConfig.cmake").is_file():
            return folder
    raise MissingError(
        "the CMake files are missing; install gemmgen again, from its checkout or wheel"
    )


def decisive_folders() -> tuple[Path, Path]:
    """The folders of the generator and of its templates, on which all that is emitted depends."""
    return Path(__file__).parents[2], template_dir()


@dataclass(frozen=True)
class Call:
    """A call of one of the functions of GenKernels.cmake, with its words.

    `architectures` are those of the target's CUDA_ARCHITECTURES that are known, such as sm_90a.
    """

    function: str
    target: str
    words: tuple[str, ...]
    architectures: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> Call:
        """From a line of GenKernels.cmake: fields that tabs separate."""
        architectures, function, target, *words = line.split("\t")
        known = filter(None, map(_ARCHITECTURE.fullmatch, architectures.split(",")))
        archs = tuple(dict.fromkeys(f"sm_{match[1]}" for match in known))
        return cls(function, target, tuple(words), archs)

    def __str__(self) -> str:
        return f"{self.function}({' '.join([self.target, *self.words])})"


@dataclass(frozen=True)
class Answer:
    """What a call makes: files with a stamp that says what is in them; by which `gen emit`."""

    name: str
    stamp: str
    source: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        """A line for GenKernels.cmake."""
        return "\t".join([self.name, self.stamp, self.source, f"{self.name}.h", *self.options])


def answer(call: Call) -> Answer:
    """Checks a call. Raises what `gen emit` would raise, headed by the call."""
    try:
        make, known = _FUNCTIONS[call.function]
        given = _options(call.words, known)
        answer = make(call, given)
    except GenError as error:
        raise type(error)(f"{call}: {error}") from None
    options = [word for key, value in given.items() for word in (_option(key), value)]
    return Answer(answer.name, answer.stamp, answer.source, (*answer.options, *options))


def _options(words: Sequence[str], known: set[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key, value = word.lower(), next(rest, "")
        if word != word.upper() or key not in known:
            raise UsageError(
                f"there is no word '{word}'; use {', '.join(map(str.upper, sorted(known)))}"
            )
        if key in given:
            raise UsageError(f"{word} is there twice; use it once")
        if not value:
            raise UsageError(f"{word} has no value; use {word} and a value, or leave it out")
        given[key] = value
    return given


def _option(key: str) -> str:
    return "--bundle" if key == "file" else f"--{key.replace('_', '-')}"


def _kernel(call: Call, given: dict[str, str]) -> Answer:
    family = _family(call, given)
    render_family(family)
    return Answer(family.name, stamp(*family.specs), f"{family.name}.cu", ("--header",))


def _family(call: Call, given: dict[str, str]) -> Family:
    """The kernels for the architectures that are named, or else that the target is compiled for."""
    chosen = {key: value for key, value in given.items() if key not in ("arch", "variant")}
    variant = _variant(given)
    if "arch" not in given and call.architectures:
        given["arch"] = ",".join(call.architectures)
        try:
            return make_family(
                [make_spec(variant, arch=arch, **chosen) for arch in call.architectures]
            )
        except GenError as error:
            of = ";".join(arch.removeprefix("sm_") for arch in call.architectures)
            raise type(error)(f"with CUDA_ARCHITECTURES {of}, {error}") from None
    archs = given["arch"].split(",") if "arch" in given else [None]
    family = make_family([make_spec(variant, arch=arch, **chosen) for arch in archs])
    _check_compiled(call, [spec.arch for spec in family.specs], VARIANTS[variant].max_arch)
    return family


def _variant(given: dict[str, str]) -> str:
    if "variant" not in given:
        raise UsageError(f"no kernel is named; use VARIANT with {', '.join(VARIANTS)}")
    return given["variant"]


def _check_compiled(call: Call, archs: Sequence[str], last: int | None) -> None:
    """Raises UsageError where a target is not compiled for ARCH, or for more than ARCH can serve.

    `archs`: those of the kernels. `last`: the only compute capability that a kernel runs on.
    """
    served = set()
    for target in call.architectures:
        usable = [arch for arch in archs if compute_capability(arch) <= compute_capability(target)]
        if not usable or (last and target not in archs):
            alone = " alone" if last else " or newer"
            raise UsageError(
                f"the target is compiled for {target}, too, and this kernel is for "
                f"{archs[0]}{alone}; use CUDA_ARCHITECTURES {archs[0].removeprefix('sm_')}"
                f"{'' if last else ', or another ARCH'}"
            )
        served.add(usable[-1])
    if unserved := [arch for arch in archs if arch not in served and call.architectures]:
        raise UsageError(
            f"the target is not compiled for {unserved[0]}; use CUDA_ARCHITECTURES with "
            f"{unserved[0].removeprefix('sm_')}, or leave it out of ARCH"
        )


def _bundle(call: Call, given: dict[str, str]) -> Answer:
    if "file" not in given:
        raise UsageError("no list is named; use FILE with a list of kernels")
    named = "arch" in given
    if not named and call.architectures:
        given["arch"] = ",".join(call.architectures)
    bundle = read_bundle(Path(given["file"]), given.get("name"), given.get("arch"))
    for entry in bundle.entries if named else ():
        _check_compiled(call, [s.arch for s in entry.family.specs], entry.spec.row.max_arch)
    return Answer(bundle.name, bundle.stamp, f"{bundle.name}.cu", ())


def _embedded(_: Call, given: dict[str, str]) -> Answer:
    chosen = {k: value for k, value in given.items() if k not in ("arch", "variant", "embed")}
    archs = given["arch"].split(",") if "arch" in given else [None]
    formats = embed.formats(given.pop("embed", "cubin"))
    first = make_spec(_variant(given), arch=archs[0], **chosen)
    specs = embed.embedded_specs(first, [arch for arch in archs if arch] or [first.arch])
    render(specs[0])
    options = ("--embed", ",".join(formats))
    return Answer(specs[0].name, embed.stamp_of(specs), f"{specs[0].name}.cpp", options)


_FUNCTIONS: dict[str, tuple[Callable[[Call, dict[str, str]], Answer], set[str]]] = {
    "gen_add_kernel": (_kernel, _KERNEL),
    "gen_add_bundle": (_bundle, {"file", "name", "arch"}),
    "gen_add_embedded_kernel": (_embedded, _KERNEL | {"embed"}),
}
