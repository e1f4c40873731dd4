"""What the counters of a kernel mean, in sentences."""

from __future__ import annotations

from gen.profile.count import LaunchProfile, LineAccess, Profile

_SECTORS_PER_WAVEFRONT = 4  # the L1 delivers 128 bytes at a time


def verdict(profile: Profile) -> list[str]:
    """What stands out, the worst first; at least one sentence."""
    found = [text for line in profile.lines if (text := _line(line))]
    found += [_load_pipe(profile), _memory(profile), *_occupancy(profile)]
    return [text for text in [*found, _unmatched(profile)] if text]


def verdict_of_launch(profile: LaunchProfile) -> list[str]:
    """The same of a kernel that is no matrix product; may be empty."""
    found = [text for line in profile.lines if (text := _line(line))]
    found += [*_occupancy(profile), _unmatched(profile)]
    return [text for text in found if text]


def _unmatched(profile: LaunchProfile) -> str:
    if not profile.unmatched:
        return ""
    lines = ", ".join(map(str, profile.unmatched))
    return (
        f"the machine code joins the shared loads of line {lines} in a way that is not "
        "modelled: their wavefronts are those of the PTX's loads, joined where they can be"
    )


def _line(line: LineAccess) -> str:
    """A sentence about the accesses of one line, empty where they are as good as can be."""
    where, access = f"line {line.place.line}", line.access
    verb = {"load": "load", "store": "store", "copy": "copy"}.get(line.place.kind, "atomic")
    if line.place.space == "shared":
        if verb == "atomic" or access.excess * 20 < access.ideal:
            return ""
        ways = access.parts / access.ideal
        return (
            f"{where}: {ways:.3g}-way bank conflicts: {line.each:.3g} wavefronts a {verb} where "
            f"{line.ideal:.3g} would do"
        )
    if line.each - line.ideal >= 2 and line.each >= 1.5 * line.ideal:
        what = "uncoalesced"
    elif line.ideal >= 2 and access.excess * 20 >= access.ideal:
        what = "misaligned"
    else:
        return ""
    return (
        f"{where}: {what} {verb}: {line.each:.3g} sectors a request where {line.ideal:.3g} would do"
    )


def data_wavefronts(profile: Profile) -> float:
    """Turns of the data stage that shared memory and L1 have in common."""
    t = profile.totals
    shared = t.shared_load.parts + t.shared_store.parts + t.copy_shared.parts
    loads, stores = t.global_load, t.global_store
    turns = [max(a.requests, a.parts / _SECTORS_PER_WAVEFRONT) for a in (loads, stores)]
    return shared + sum(turns)


def _load_pipe(profile: Profile) -> str:
    """Whether bringing operands or arithmetic takes longer in an SM."""
    t = profile.totals
    if not t.fma or t.mma:
        return ""
    each = data_wavefronts(profile) / t.fma
    gpu = profile.gpu
    rate = gpu.limits.fp32_lanes / 32 * profile.peak / gpu.fp32
    text = f"{each:.3g} wavefronts of shared memory and L1 for each FMA of a warp"
    if each * rate > 1:
        return (
            f"loads, not arithmetic, bound the inner loop: {text}, where an SM of {gpu.name} "
            f"does {rate:.3g} FMAs in the time of one wavefront: at best {1 / (each * rate):.0%} "
            "of its peak"
        )
    return f"arithmetic, not loads, bounds the inner loop: {text}"


def _memory(profile: Profile) -> str:
    if not profile.sector_bytes:
        return ""
    gpu, ridge = profile.gpu.name, profile.ridge
    text = f"{profile.intensity:.3g} operations a byte of sectors"
    text += f", against a ridge of {ridge:.3g} on {gpu}"
    best = profile.work / profile.matrix_bytes
    if profile.intensity >= ridge:
        return f"{text}: not bound by device memory, even if caches never hit"
    if best >= ridge:
        return f"{text}: bound by memory where caches miss, not where they hit ({best:.3g} a byte)"
    return f"{text}: bound by device memory, even if caches always hit ({best:.3g} a byte)"


def _occupancy(profile: LaunchProfile) -> list[str]:
    o, used = profile.occupancy, profile.resources
    name = profile.gpu.name
    if o.blocks == 0:
        return [f"cannot be launched on {name}: too much of {' and '.join(o.limited_by)}"]
    found = []
    if o.fraction < 0.5:
        found.append(
            f"occupancy of {o.fraction:.0%} on {name}, limited by {' and '.join(o.limited_by)}: "
            "few warps to hide latency with"
        )
    blocks, slots = profile.totals.blocks, o.blocks * profile.gpu.sms
    if 0 < blocks < slots:
        few = "1 block does" if blocks == 1 else f"{blocks} blocks do"
        found.append(f"{few} not fill {name}, which holds {slots} of them at a time")
    if used.spill_loads + used.spill_stores:
        found.append(f"registers spill: {used.spill_stores} bytes a thread are stored to memory")
    return found
