"""What racecheck and memcheck find in clusters, each beside a twin without the mistake."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gen
from tests.emulator.cluster_kernels import body, clean, finding, run
from tests.support.slow import each

INIT = "if (x == 0) init(&bar, 32);\n"
# name: the kernel, the mistake in it, what stands there in the twin, and what is found.
PLANTED = {
    "store without a barrier": (
        "s[x] = x;\nout[blockIdx.x * 64 + x] = s[x];\nBETWEEN\n"
        "STORE_REMOTE(peer(&s[x], other), x);  // store\nCLUSTER_SYNC;",
        ("BETWEEN", "__syncthreads();", "CLUSTER_SYNC;"),
        ("racecheck", r"store of 4 bytes at .* races with the \w+ at line 8[34] of block"),
    ),
    "load that another block's store races with": (
        "s[x] = x;\nBETWEEN\nu32 v; LOAD_REMOTE(v, peer(&s[x], other));\n"
        "out[blockIdx.x * 64 + x] = v;\nCLUSTER_SYNC;",
        ("BETWEEN", "__syncthreads();", "CLUSTER_SYNC;"),
        ("racecheck", r"load of 4 bytes at shared\+\d+ of \d+ \(s\) of block \(1,0,0\) races with"
         r" the store at line 84 of block \(1,0,0\) \(RAW\)"),
    ),
    "relaxed arrival": (
        "s[x] = x;\nARRIVE CLUSTER_WAIT;\nu32 v; LOAD_REMOTE(v, peer(&s[x], other));\n"
        "out[blockIdx.x * 64 + x] = v;\nCLUSTER_SYNC;",
        ("ARRIVE", "CLUSTER_ARRIVE_RELAXED;", "CLUSTER_ARRIVE;"),
        ("racecheck", r"races with the store at line 84 of block"),
    ),
    "relaxed arrival behind a fence": (
        "s[x] = x;\nARRIVE CLUSTER_WAIT;\nu32 v; LOAD_REMOTE(v, peer(&s[x], other));\n"
        "out[blockIdx.x * 64 + x] = v;\nCLUSTER_SYNC;",
        ("ARRIVE", "CLUSTER_ARRIVE_RELAXED;",
         'asm volatile("fence.acq_rel.cluster;" ::: "memory"); CLUSTER_ARRIVE_RELAXED;'),
        ("racecheck", r"races with the store at line 84 of block"),
    ),
    "arrival that orders what is stored": (
        INIT + "CLUSTER_SYNC;\nSTORE_REMOTE(peer(&s[x], other), x);\n"
        "ARRIVE_REMOTE(peer(&bar, other));\nWAIT\nout[blockIdx.x * 64 + x] = s[x];\nCLUSTER_SYNC;",
        ("WAIT", "", "wait(&bar, 0);"),
        ("racecheck", r"load of 4 bytes at shared.* races with the store at line 86 of block"),
    ),
    "mbarrier that others do not know yet": (
        INIT + "FENCE\nCLUSTER_ARRIVE_RELAXED; CLUSTER_WAIT;\nARRIVE_REMOTE(peer(&bar, other));\n"
        "wait(&bar, 0);\nCLUSTER_SYNC;",
        ("FENCE", "", "FENCE_INIT;"),
        ("racecheck", r"mbarrier.arrive of 8 bytes .* races with the mbarrier.init at line \d+ of"),
    ),
    "multicast to an mbarrier without a fence": (
        "if (x == 0) init(&bar, 1);\nFENCE\nCLUSTER_SYNC;\nif (x == 0) expect(&bar, 256);\n"
        "if (x == 0 && me == 0) MULTICAST(s, in, 256u, &bar, 3);  // copy\nwait(&bar, 0);\n"
        "out[blockIdx.x * 64 + x] = s[x];\nCLUSTER_SYNC;",
        ("FENCE", "", "if (x == 0) FENCE_INIT;"),
        ("racecheck", r"bulk copy that completes at .* may not see the mbarrier.init at line \d+"
         r": a fence.mbarrier_init is missing"),
    ),
    "multicast over what a peer still reads": (
        "if (x == 0) { init(&bar, 1); init(&empty, 64); FENCE_INIT; }\nCLUSTER_SYNC;\n"
        "for (u32 i = 0; i < 2; ++i) {\n"
        "if (x == 0) expect(&bar, 128);\n"
        "if (x == 0 && me == 0) { if (i) { EMPTY } MULTICAST(s, in, 128u, &bar, 3); }  // copy\n"
        "wait(&bar, i);\nout[blockIdx.x * 64 + 32 * i + x] = s[x];\n"
        "ARRIVE_REMOTE(peer(&empty, 0));\n}\nCLUSTER_SYNC;",
        ("EMPTY", "__nanosleep(1);", "wait(&empty, 0);"),
        ("racecheck", r"bulk copy of 16 bytes at .* races with the load at line 90"),
    ),
    "exit before a peer has stored": (
        "CLUSTER_SYNC;\nSTORE_REMOTE(peer(&s[x], other), 1u);  // store\nEND",
        ("END", "", "CLUSTER_SYNC;"),
        ("racecheck", r"store of 4 bytes at shared.* of block \([01],0,0\), which may have exited: "
         "a cluster barrier is missing"),
    ),
    "exit before a peer has loaded": (
        "s[x] = x;\nCLUSTER_SYNC;\nu32 v; LOAD_REMOTE(v, peer(&s[x], other));\n"
        "out[blockIdx.x * 64 + x] = v;\nEND",
        ("END", "", "CLUSTER_SYNC;"),
        ("racecheck", r"load of 4 bytes at .* which may have exited"),
    ),
    "exit before a peer has arrived": (
        INIT + "CLUSTER_SYNC;\nARRIVE_REMOTE(peer(&bar, other));\nEND",
        ("END", "", "wait(&bar, 0);"),
        ("racecheck", r"mbarrier.arrive of 8 bytes at .* which may have exited"),
    ),
    "access to a block that has exited": (
        INIT + "CLUSTER_SYNC;\nif (me == 1) { ARRIVE_REMOTE(peer(&bar, 0)); END }\n"
        "else { wait(&bar, 0); STORE_REMOTE(peer(&s[x], 1), 1u); CLUSTER_SYNC; }  // store",
        ("END", "", "CLUSTER_SYNC;"),
        ("memcheck", r"store of 4 bytes at shared.* in block 1 of the cluster, which has exited"),
    ),
    "multicast into a block that has exited": (
        "if (x == 0) { init(&bar, 1); FENCE_INIT; }\nCLUSTER_SYNC;\n"
        "if (x == 0) expect(&bar, 256);\n"
        "if (me == 0) { if (x == 0) MULTICAST(s, in, 256u, &bar, 3);  // copy\nwait(&bar, 0); }\n"
        "END",
        ("END", "", "if (me == 1) wait(&bar, 0);"),
        ("memcheck", "bulk copy arrives in shared memory of block 1 of the cluster, which has"),
    ),
    "wrong number of bytes": (
        "if (x == 0) { init(&bar, 1); FENCE_INIT; }\nCLUSTER_SYNC;\n"
        "if (x == 0) expect(&bar, MANY);\n"
        "if (x == 0 && me == 0) MULTICAST(s, in, 128u, &bar, 3);\nwait(&bar, 0);\nCLUSTER_SYNC;",
        ("MANY", "128 + 128 * me", "128"),
        ("synccheck", r"\d+ threads wait at the mbarrier at shared.* of block \(1,0,0\) for its "
         r"phase of parity 0, which lacks 0 of 1 arrivals and 128 bytes of copies"),
    ),
    "store over a copy's source": (
        "for (u32 i = x; i < 64; i += 32) s[i] = i;\nfence();\n"
        "if (x == 0) { init(&bar, 1); FENCE_INIT; expect(&bar, 128); }\nCLUSTER_SYNC;\n"
        "if (x == 0) asm volatile(\n"
        '"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "\n'
        '"[%0], [%1], 128, [%2];" ::"r"(peer(s + 32, other)), "r"(at(s)), "r"(peer(&bar, other))\n'
        ': "memory");\nWAIT\ns[x] = 7;  // store\nwait(&bar, 0);\nCLUSTER_SYNC;',
        ("WAIT", "__syncwarp();", "wait(&bar, 0); CLUSTER_SYNC;"),
        ("racecheck", r"store of 4 bytes at .* races with the bulk copy at line \d+ \(WAR\), which "
         "is still in flight"),
    ),
}  # fmt: skip
SHARED = "__shared__ __align__(128) u32 s[64]; __shared__ u64 bar, empty;"


@pytest.mark.parametrize("chunk_threads", each(2, [1 << 16, 1]))
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake(name: str, chunk_threads: int) -> None:
    code, (place, wrong, right), expected = PLANTED[name]
    options = {"shared": SHARED, "grid": (4, 1, 1), "chunk_threads": chunk_threads}
    clean(code.replace(place, right), **options)
    findings, _ = run(code.replace(place, wrong), **options)
    assert findings
    check, message = expected
    found = [f for f in findings if f.check == check and re.search(message, f.message)]
    assert found, "\n".join(map(str, findings))


def test_a_race_of_two_blocks_in_a_third() -> None:
    code = (
        "CLUSTER_SYNC;\nif (me) STORE_REMOTE(peer(s, 0), x * MUCH + me);  // store\nCLUSTER_SYNC;"
    )
    found = finding(
        "if (x) return;\n" + code.replace("MUCH", "2"), grid=(6, 1, 1), cluster=(3, 1, 1)
    )
    assert found.check == "racecheck"
    assert found.kind == "WAW"
    assert found.block == (1, 0, 0)
    assert "of block (0,0,0) races with the store" in found.message
    assert "of block (2,0,0)" in found.message


def test_an_arrival_at_block_scope_is_no_mistake() -> None:
    """The default .release.cta, which CUTLASS uses at mbarriers of other blocks."""
    clean(
        INIT
        + """CLUSTER_SYNC;
asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer(&bar, other)) : "memory");
wait(&bar, 0);
CLUSTER_SYNC;
"""
    )


def test_blocks_of_a_cluster_write_in_turn_to_global_memory() -> None:
    code = "if (me == 0) out[blockIdx.x / 2 * 64 + x] = 1;\nSYNC;\n"
    code += "if (me == 1) out[blockIdx.x / 2 * 64 + x] += 1;"
    assert clean(code.replace("SYNC", "CLUSTER_SYNC"), grid=(4, 1, 1))[0, 0] == 2
    findings, _ = run(code.replace("SYNC", "__syncthreads()"), grid=(4, 1, 1))
    assert {f.check for f in findings} == {"racecheck"}
    assert "of block (0,0,0) (RAW)" in findings[0].message


def test_what_nobody_has_written_in_another_block() -> None:
    code = "FILL\nCLUSTER_SYNC;\nu32 v; LOAD_REMOTE(v, peer(&s[x], other));\n"
    code += "out[blockIdx.x * 64 + x] = v;\nCLUSTER_SYNC;"
    clean(code.replace("FILL", "s[x] = x;"))
    found = finding(code.replace("FILL", "if (me) s[x] = x;"))
    assert found.check == "initcheck"
    assert "of block (0,0,0), which was never written" in found.message
    assert found.block == (1, 0, 0)


def test_copies_of_threads_in_a_cluster() -> None:
    """cp.async, whose groups are counted for each thread."""
    code = """
u32 v;
asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(&s[x])), "l"(in + x));
asm volatile("cp.async.commit_group;");
WAIT
CLUSTER_SYNC;
LOAD_REMOTE(v, peer(&s[x], other));
out[blockIdx.x * 64 + x] = v;
CLUSTER_SYNC;
"""
    out = clean(code.replace("WAIT", 'asm volatile("cp.async.wait_all;" ::: "memory");'))
    assert list(out[:, 1]) == [101, 101]
    found = finding(code.replace("WAIT", ""))
    assert found.check == "racecheck"
    assert "races with the cp.async at line" in found.message
    assert "which is still in flight" in found.message


@pytest.mark.parametrize(("value", "noted"), [("7u", True), ("x", False)])
def test_stores_of_the_same_value(value: str, noted: bool) -> None:
    """Such races are notes, in other blocks, too."""
    code = f"CLUSTER_SYNC;\nSTORE_REMOTE(peer(s, other), {value});\nCLUSTER_SYNC;"
    arguments = {"out": np.zeros(4, np.uint32), "in": np.zeros(4, np.uint32)}
    done = gen.emulate(
        body(code), "kernel", 2, 32, arguments, cluster=2, arch="sm_90a", tools=["racecheck"]
    )
    assert len(done.notes) == noted
    assert len(done.findings) == (not noted)


@pytest.mark.parametrize("block", [(8, 4, 2), (3, 5, 1), (40, 1, 1)])
def test_blocks_of_any_shape(block: tuple[int, int, int]) -> None:
    """Each thread stores in another block, whose thread of the same number loads it."""
    code = """
const u32 t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
CLUSTER_SYNC;
STORE_REMOTE(peer(&s[t], other), t);  // store
BETWEEN
s[t] += 1;
__syncthreads();
out[t] = s[t];
CLUSTER_SYNC;
"""
    for between, races in (("CLUSTER_SYNC;", False), ("__syncthreads();", True)):
        source = body(code.replace("BETWEEN", between).replace("out[t]", "if (!me) out[t]"))
        arguments = {"out": np.zeros(64, np.uint32), "in": np.zeros(4, np.uint32)}
        done = gen.emulate(
            source, "kernel", (2, 2), block, arguments, cluster=(2, 2), arch="sm_90a"
        )
        assert bool(done.findings) == races
        if races:
            threads = {f.threads for f in done.findings}
            assert all(one == two for one, two in threads), threads
        else:
            count = int(np.prod(block))
            assert list(done.arrays["out"][:count]) == list(range(1, count + 1))
