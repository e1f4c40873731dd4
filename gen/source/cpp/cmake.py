"""What CMake asks: what the calls of a CMakeLists.txt make."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gen.device.gpus import find_gpu
from gen.dispatch.folders import OURS
from gen.dispatch.products import operands
from gen.errors import GenError, UsageError
from gen.kernels.registry import VARIANTS, make_spec
from gen.kernels.tunables import Flag
from gen.source.architectures import Family, make_family, render_family
from gen.source.cpp import embed, embed_best
from gen.source.cpp.asked import Asked
from gen.source.cpp.best import Best
from gen.source.cpp.best_file import render_best
from gen.source.cpp.bundle import read_bundle
from gen.source.render import render, stamp
from gen.spec.arch import compute_capability
from gen.spec.kernel import KernelSpec

_ARCHITECTURE = re.compile(r"(\d+[af]?)(-real|-virtual)?")
_TUNABLES = {tunable for row in VARIANTS.values() for tunable in row.tunable_names}
_FLAGS = {t.name for row in VARIANTS.values() for t in row.tunables if isinstance(t, Flag)}
_FLAGS |= {"auto", "unaligned"}
_LISTS = {"shapes", "gpus", "lda", "ldb"}  # words with several values
_KERNEL = {"variant", "dtype", "layout", "arch", "name", *_TUNABLES}
_OF_FILE = {"file", "name", "arch"}
_OF_AUTO = {"auto", *_LISTS, "unaligned", "batch", "embed", "tuned", "name", "dtype", "layout"}
_OF_AUTO |= _TUNABLES - _FLAGS  # BATCH says how many products, and groups are not chosen for
_IN_PLACE = {
    "BATCHED": "BATCH with the number of products",
    "GROUPED": "BATCH for products of one shape, or gen_add_kernel for groups",
    "GROUPED_K": "BATCH for products of one shape, or gen_add_kernel for groups",
}  # of words that AUTO has not
_SET = "true"  # what stands for a flag's value, which a call does not have


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
        words = " ".join([self.target, *self.words])
        return f"{self.function}({textwrap.shorten(words, 200, placeholder=' ...')})"


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
        return make(call, _given(call.words, known))
    except GenError as error:
        raise type(error)(f"{call}: {error}") from None


def _given(words: Sequence[str], known: set[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key = word.lower()
        if key in _FLAGS & known:
            value = _SET
        elif key in _LISTS:
            end = next((i for i, word in enumerate(rest) if _is_word(word)), len(rest))
            value, rest = ",".join(rest[:end]), rest[end:]
        else:
            value = rest.pop(0) if rest else ""
        if word != word.upper() or key not in known:
            raise UsageError(f"there is no word '{word}'; use {_usable(word, words, known)}")
        if key in given:
            raise UsageError(f"{word} is there twice; use it once")
        if not value:
            raise UsageError(f"{word} has no value; use {word} and a value, or leave it out")
        given[key] = value
    return given


def _usable(word: str, words: Sequence[str], known: set[str]) -> str:
    """What to use in place of a word that a function does not know."""
    if "auto" in known and "AUTO" in words:
        if word in _IN_PLACE:
            return _IN_PLACE[word]
        known = _OF_AUTO
    elif "auto" in known and "FILE" in words:
        known = _OF_FILE
    return ", ".join(map(str.upper, sorted(known)))


def _is_word(text: str) -> bool:
    """Whether it can be a word of some function, known or not, and no value in a list."""
    return bool(re.fullmatch("[A-Z][A-Z_]+", text))


def _options(given: Mapping[str, str]) -> tuple[str, ...]:
    """The options of `gen emit` for words that it has, too."""
    return tuple(
        word for key, value in given.items() for word in (_option(key), value) if word != _SET
    )


def _option(key: str) -> str:
    return "--bundle" if key == "file" else f"--{key.replace('_', '-')}"


def _kernel(call: Call, given: dict[str, str]) -> Answer:
    family = _family(call, given)
    render_family(family)
    return Answer(
        family.name, stamp(*family.specs), f"{family.name}.cu", ("--header", *_options(given))
    )


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
        usable = [arch for arch in archs if compute_capability(arch) <= _capability(target)]
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


def _capability(target: str) -> int:
    """What a target is compiled for, which may be older than all kernels: sm_90a -> 90."""
    return int(target.removeprefix("sm_").rstrip("af"))


def _bundle(call: Call, given: dict[str, str]) -> Answer:
    if ("file" in given) == ("auto" in given):
        raise UsageError(
            "a bundle is listed or chosen; use FILE with a list of kernels, or AUTO with SHAPES "
            "and GPUS"
        )
    if "auto" in given:
        return _chosen(call, given)
    if "embed" in given:
        raise UsageError("EMBED goes with AUTO: nvcc compiles what a list has; leave it out")
    if strange := [word for word in given if word not in _OF_FILE]:
        raise UsageError(f"{strange[0].upper()} goes with AUTO; FILE's list says it")
    named = "arch" in given
    if not named and call.architectures:
        given["arch"] = ",".join(call.architectures)
    bundle = read_bundle(Path(given["file"]), given.get("name"), given.get("arch"))
    for entry in bundle.entries if named else ():
        _check_compiled(call, [s.arch for s in entry.family.specs], entry.spec.row.max_arch)
    return Answer(bundle.name, bundle.stamp, f"{bundle.name}.cu", _options(given))


def _chosen(call: Call, given: dict[str, str]) -> Answer:
    """Kernels that the cost model chooses for shapes and GPUs."""
    asked = asked_for(given)
    best, options = asked.best(), tuple(shlex.split(asked.command)[2:])
    if asked.embed:
        formats = embed.formats(asked.embed)
        own = embed.stamp_of([best.alone]) if best.alone else embed_best.stamp_of(best)
        return Answer(best.name, f"{own}{','.join(formats)}", f"{best.name}.cpp", options)
    _check_all_compiled(call, best.kernels)
    if not best.alone:
        render_best(best)
    own = stamp(best.alone) if best.alone else best.stamp
    return Answer(best.name, own, f"{best.name}.cu", (*options, "--header"))


def best_of(call: Call) -> Best:
    """What a call of gen_add_bundle with AUTO chooses. Raises GenError."""
    return asked_for(_given(call.words, _OF_AUTO)).best()


def asked_for(given: Mapping[str, str]) -> Asked:
    """What the words of AUTO say. Raises UsageError.

    A build gives the same on every machine: what its user has measured is no part of it. Nor does
    the name of its files depend on what is chosen.
    """
    if "arch" in given:
        raise UsageError("the architectures are those of GPUS; leave out ARCH")
    for word in ("shapes", "gpus"):
        if word not in given:
            raise UsageError(f"AUTO chooses for shapes and GPUs; use {word.upper()}, too")
    shapes, gpus = given["shapes"].split(","), given["gpus"].split(",")
    words = ("dtype", "layout", "batch", "embed", "name")
    said = {"tuned": given.get("tuned", OURS), **{k: given[k] for k in words if k in given}}
    tunables = {key: value for key, value in given.items() if key in _TUNABLES}
    lie = operands(given.get("lda"), given.get("ldb"), "unaligned" in given)
    asked = Asked(shapes, [find_gpu(gpu) for gpu in gpus], lie=lie, **said, tunables=tunables)
    return asked if asked.name else replace(asked, name=asked.usual_name)


def _check_all_compiled(call: Call, kernels: Sequence[KernelSpec]) -> None:
    """Raises UsageError where a target is not compiled for a kernel, or for what none is for."""
    targets = call.architectures
    oldest = min(compute_capability(spec.arch) for spec in kernels)
    wanted = dict.fromkeys(spec.arch for spec in kernels)
    compiled = {_capability(target) for target in targets}
    lacking = [
        arch
        for arch in wanted
        if (arch not in targets if arch.endswith("a") else compute_capability(arch) not in compiled)
    ]
    if targets and (lacking or min(compiled) < oldest):
        of = ";".join(arch.removeprefix("sm_") for arch in targets)
        # One for 9.0 serves both kinds of kernels.
        known = {compute_capability(arch): arch for arch in sorted(wanted)}
        use = ";".join(known[cc].removeprefix("sm_") for cc in sorted(known))
        raise UsageError(
            f"with CUDA_ARCHITECTURES {of}, the target is not compiled for what the GPUs need; use "
            f"CUDA_ARCHITECTURES {use}, of a library of its own if the target needs others, too"
        )


def _embedded(_: Call, given: dict[str, str]) -> Answer:
    chosen = {k: value for k, value in given.items() if k not in ("arch", "variant", "embed")}
    archs = given["arch"].split(",") if "arch" in given else [None]
    formats = embed.formats(given.pop("embed", "cubin"))
    first = make_spec(_variant(given), arch=archs[0], **chosen)
    specs = embed.embedded_specs(first, [arch for arch in archs if arch] or [first.arch])
    render(specs[0])
    options = ("--embed", ",".join(formats), *_options(given))
    return Answer(specs[0].name, embed.stamp_of(specs), f"{specs[0].name}.cpp", options)


_FUNCTIONS: dict[str, tuple[Callable[[Call, dict[str, str]], Answer], set[str]]] = {
    "gen_add_kernel": (_kernel, _KERNEL),
    "gen_add_bundle": (_bundle, _OF_FILE | _OF_AUTO),
    "gen_add_embedded_kernel": (_embedded, _KERNEL | {"embed"}),
}
