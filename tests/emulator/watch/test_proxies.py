"""Bulk copies need a fence.proxy.async behind what threads have written to shared memory.

That goes for what they read or overwrite there, and, or a fence.mbarrier_init, for their mbarriers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from gen.emulator import Emulator, LaunchReport, SharedRaces
from tests.emulator.emulator_kernels import compile_cuda
from tests.emulator.pipeline_kernels import BULK, HELPERS, TENSOR, run_copy, run_tensor
from tests.support.slow import each, sift

THREADS = 64
# Macros, so that the lines of what they do are those of the kernels.
MACROS = r"""
#define FENCE asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define FENCE_ALL asm volatile("fence.proxy.async;" ::: "memory")
#define FENCE_GLOBAL asm volatile("fence.proxy.async.global;" ::: "memory")
#define FENCE_INIT asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define INIT asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)) : "memory")
#define INVALIDATE asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at(&bar)) : "memory")
#define OUT asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" \
  "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" \
  ::"l"(out), "r"(at(s)), "r"((u32)sizeof(s)) : "memory")
#define FETCH(b) do { expect(b, sizeof(s)); asm volatile( \
  "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
  ::"r"(at(s)), "l"(in), "r"((u32)sizeof(s)), "r"(at(b)) : "memory"); wait(b, 0); } while (0)
#define IN FETCH(&filled)
#define SYNC __syncthreads()
"""
START = """__shared__ __align__(128) int4 s[64];
__shared__ u64 filled;
const int x = threadIdx.x;
if (x == 0) { init(&filled, 1); fence_init(); }
SYNC;
"""
BARRIER = "__shared__ u64 bar;\nif (x == 0) { init(&bar, 64); fence_init(); }\nSYNC;\n"
WRITE = "s[x] = make_int4(x, x, x, x);  // write\n"


def kernel(body: str, name: str = "kernel") -> str:
    return f'extern "C" __global__ void {name}(int4* out, const int4* in) {{\n{START}{body}\n}}\n'


def launch(ptx: str, name: str = "kernel", source: str = "") -> LaunchReport:
    emulator = Emulator()
    out, into = (emulator.alloc(np.zeros(4 * THREADS, np.int32), n) for n in ("out", "in"))
    return emulator.launch(
        ptx, name, (2, 1, 1), (THREADS, 1, 1), [out, into], source_lines=source.splitlines(),
        observers=[SharedRaces()],
    )  # fmt: skip


def run(body: str, copy: str = "OUT") -> LaunchReport:
    """Runs a kernel whose COPY is OUT of shared memory, or IN."""
    source = HELPERS + MACROS + kernel(body.replace("COPY", copy))
    return launch(compile_cuda(source, "compute_90"), source=source)


RIGHT = {
    "all writers, then a barrier": WRITE + "FENCE; SYNC;\nif (x == 0) COPY;",
    "who copies, after a barrier": WRITE + "SYNC;\nif (x == 0) { FENCE; COPY; }",
    "of all memory": WRITE + "FENCE_ALL; SYNC;\nif (x == 0) COPY;",
    "all writers, then an mbarrier": (
        BARRIER + WRITE + "FENCE; arrive(&bar);\nif (x == 0) { wait(&bar, 0); COPY; }"
    ),
    "who copies, after an mbarrier": (
        BARRIER + WRITE + "arrive(&bar);\nif (x == 0) { wait(&bar, 0); FENCE; COPY; }"
    ),
    "a thread between two barriers": (
        WRITE + "SYNC;\nif (x == 40) FENCE;\nSYNC;\nif (x == 0) COPY;"
    ),
    "each warp's first lane": (
        WRITE + "__syncwarp();\nif (x % 32 == 0) FENCE;\nSYNC;\nif (x == 0) COPY;"
    ),
    "atomics": "atomicAdd(&s[x].x, 1); FENCE; SYNC;\nif (x == 0) COPY;",
    "cp.async": (
        'copy(s + x, in + x); asm volatile("cp.async.wait_all;" ::: "memory");\n'
        "FENCE; SYNC;\nif (x == 0) COPY;"
    ),
    "cp.async that an mbarrier waits for": (
        BARRIER + "copy(s + x, in + x); signal(&bar);\nif (x == 0) { wait(&bar, 0); FENCE; COPY; }"
    ),
    "a matrix": (
        'asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"\n'
        '             ::"r"(at(s + x)), "r"(x) : "memory");\nFENCE; SYNC;\nif (x == 0) COPY;'
    ),
    "none: what a bulk copy has written": (
        BARRIER + "if (x < 63) arrive(&bar);\nelse { expect(&bar, 1024);"
        " bulk(s, in, 1024, &bar); }\nif (x == 0) { wait(&bar, 0); COPY; }"
    ),
    "none: ordinary loads of it": (
        BARRIER + "if (x < 63) arrive(&bar);\nelse { expect(&bar, 1024);"
        " bulk(s, in, 1024, &bar); }\nwait(&bar, 0); out[x] = s[63 - x];"
    ),
}  # fmt: skip


@pytest.mark.parametrize("copy", sift(["OUT", "IN"], ["IN"]))
@pytest.mark.parametrize("fence", RIGHT)
def test_right_kernels_are_clean(fence: str, copy: str) -> None:
    assert run(RIGHT[fence], copy).findings == []


READS = {
    "after a barrier": "out[x] = s[63 - x]; SYNC;\nif (x == 0) IN;",
    "after an mbarrier": (
        BARRIER + "out[x] = s[63 - x]; arrive(&bar);\nif (x == 0) { wait(&bar, 0); IN; }"
    ),
    "of what has been shown": (
        WRITE + "FENCE; SYNC;\nout[x] = s[63 - x]; SYNC;\nif (x == 0) IN;"
    ),
    "and writes elsewhere": (
        "__shared__ int4 t[64];\nt[x] = s[63 - x]; SYNC;\nif (x == 0) IN;\nSYNC; out[x] = t[x];"
    ),
    "of what another copy has written": (
        BARRIER + "if (x == 0) IN;\nSYNC; out[x] = s[63 - x]; arrive(&bar);\n"
        "if (x == 0) { wait(&bar, 0); bulk_out(out, s, 1024); commit(); drain(); }"
    ),
}  # fmt: skip


@pytest.mark.parametrize("reads", READS)
def test_what_was_only_read_needs_no_fence(reads: str) -> None:
    assert run(READS[reads]).findings == []


WRONG = {
    "none": WRITE + "SYNC;\nif (x == 0) COPY;",
    "none, by the writer itself": WRITE.replace("s[x]", "if (x == 0) s[x]") + "if (x == 0) COPY;",
    "none, with an mbarrier": (
        BARRIER + WRITE + "arrive(&bar);\nif (x == 0) { wait(&bar, 0); COPY; }"
    ),
    "before the write": "FENCE;\n" + WRITE + "SYNC;\nif (x == 0) COPY;",
    "before the second write": (
        "s[63 - x] = make_int4(0, 0, 0, 0); FENCE; SYNC;\n" + WRITE + "SYNC;\nif (x == 0) COPY;"
    ),
    "behind the copy": WRITE + "SYNC;\nif (x == 0) COPY;\nFENCE;",
    "in a warp that is not ordered": WRITE + "SYNC;\nif (x >= 32) FENCE;\nif (x == 0) COPY;",
    "in the copy's warp, by another lane": WRITE + "SYNC;\nif (x == 5) FENCE;\nif (x == 0) COPY;",
    "of global memory": WRITE + "FENCE_GLOBAL; SYNC;\nif (x == 0) { FENCE_GLOBAL; COPY; }",
    "of mbarriers": WRITE + "FENCE_INIT; SYNC;\nif (x == 0) { FENCE_INIT; COPY; }",
    "by all but one": WRITE + "if (x != 17) FENCE;\nSYNC;\nif (x == 0) COPY;",
    "by one lane, before its warp is ordered": (
        WRITE + "if (x % 32 == 0) FENCE;\n__syncwarp();\nSYNC;\nif (x == 0) COPY;"
    ),
    "after the arrival": (
        BARRIER + WRITE + "arrive(&bar); FENCE;\nif (x == 0) { wait(&bar, 0); COPY; }"
    ),
    "in one block": (
        WRITE + "if (blockIdx.x == 0) FENCE;\nSYNC;\nif (x == 0) COPY;"
    ),
    "none behind atomics": "atomicAdd(&s[x].x, 1);  // write\nSYNC;\nif (x == 0) COPY;",
    "before cp.async has landed": (
        "copy(s + x, in + x); FENCE;\n"
        'asm volatile("cp.async.wait_all;" ::: "memory");\nSYNC;\nif (x == 0) COPY;'
    ),
    "before cp.async has landed at an mbarrier": (
        BARRIER + "copy(s + x, in + x); FENCE; signal(&bar);\nif (x == 0) { wait(&bar, 0); COPY; }"
    ),
    "none behind a matrix": (
        'asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"'
        '::"r"(at(s + x)), "r"(x) : "memory");  // write\nSYNC;\nif (x == 0) COPY;'
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("copy", "kind", "what"),
    each(2, [("OUT", "RAW", "may not see"), ("IN", "WAW", "may come before")]),
)
@pytest.mark.parametrize("fence", WRONG)
def test_missing_fences_are_found(fence: str, copy: str, kind: str, what: str) -> None:
    (finding,) = run(WRONG[fence], copy).findings
    assert (finding.check, finding.kind) == ("racecheck", kind)
    assert copy in finding.source
    line = f" at line {finding.other_line}: a fence.proxy.async is missing between them ({kind})"
    assert line in finding.message
    assert f" {what} the " in finding.message
    assert finding.message.startswith("bulk copy of 16 bytes at shared+")
    if "cp.async has" not in fence:  # `copy` is a function, whose line counts
        assert finding.other_source.endswith("// write")


def test_blocks_are_told_apart() -> None:
    (finding,) = run(WRONG["in one block"]).findings
    assert finding.block == (1, 0, 0)


@pytest.mark.parametrize("copy", ["OUT", "IN"])
def test_a_race_is_reported_as_one(copy: str) -> None:
    (finding,) = run(WRITE + "__syncwarp();\nFENCE;\nif (x == 0) COPY;", copy).findings
    assert "races with the store" in finding.message
    assert finding.threads[0] == (0, 0, 0)
    assert finding.threads[1][0] >= 32


def test_a_pipeline_with_copies_out() -> None:
    (finding,) = run_tensor(TENSOR.replace("      fence();\n", "")).report.findings
    assert "may not see the store" in finding.message
    assert "result[row][c] =" in finding.other_source
    moved = TENSOR.replace("fence();\n      __syncwarp();", "__syncwarp();\n      fence();")
    assert run_tensor(moved).report.findings == []


def test_a_pipeline_that_writes_to_its_stages() -> None:
    read = "out[i * 32 + lane] = tile[i % kStages][31 - lane];"
    write = f"{read} __syncwarp();\n      tile[i % kStages][lane] = int4{{}};"
    (finding,) = run_copy(BULK.replace(read, write), "compute_90").report.findings
    assert "bulk copy of 16 bytes at shared+0 of 1584 (tile) may come before" in finding.message
    assert "= int4{};" in finding.other_source
    assert run_copy(BULK.replace(read, write + " fence();"), "compute_90").report.findings == []
    assert run_copy(BULK.replace(read, write), "compute_90", steps=3).report.findings == []


MBARRIER = "__shared__ u64 bar, go;\nif (x == 0) init(&go, 1);\nSYNC;\n"
SHOWN = {
    "behind it": "if (x == 0) { INIT; FENCE_INIT; }\nSYNC;\nif (x == 40) FETCH(&bar);",
    "of shared memory": "if (x == 0) { INIT; FENCE; }\nSYNC;\nif (x == 40) FETCH(&bar);",
    "of all memory": "if (x == 0) { INIT; FENCE_ALL; }\nSYNC;\nif (x == 40) FETCH(&bar);",
    "without a barrier": "if (x == 0) { INIT; FENCE_INIT; FETCH(&bar); }",
    "who copies, after a barrier": (
        "if (x == 0) INIT;\nSYNC;\nif (x == 40) { FENCE_INIT; FETCH(&bar); }"
    ),
    "a thread between two barriers": (
        "if (x == 0) INIT;\nSYNC;\nif (x == 20) FENCE_INIT;\nSYNC;\nif (x == 40) FETCH(&bar);"
    ),
    "before an mbarrier": (
        "if (x == 0) { INIT; FENCE_INIT; arrive(&go); }\n"
        "if (x == 40) { wait(&go, 0); FETCH(&bar); }"
    ),
    "after an mbarrier": (
        "if (x == 0) { INIT; arrive(&go); }\n"
        "if (x == 40) { wait(&go, 0); FENCE_INIT; FETCH(&bar); }"
    ),
    "several threads": (
        "__shared__ u64 bars[64];\ninit(bars + x, 1); FENCE_INIT; SYNC;\n"
        "if (x == 40) FETCH(bars + 20);"
    ),
    "none: no copy completes there": (
        "if (x == 0) INIT;\nSYNC;\nif (x == 40) { FETCH(&filled); arrive(&bar); }\nwait(&bar, 0);"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fence", SHOWN)
def test_mbarriers_that_are_shown(fence: str) -> None:
    assert run(MBARRIER + SHOWN[fence]).findings == []


HIDDEN = {
    "none": "if (x == 0) INIT;\nSYNC;\nif (x == 40) FETCH(&bar);",
    "none, without a barrier": "if (x == 0) {\nINIT;\nFETCH(&bar); }",
    "before it": "if (x == 0) { FENCE_INIT; INIT; }\nSYNC;\nif (x == 40) FETCH(&bar);",
    "behind the copy": "if (x == 0) INIT;\nSYNC;\nif (x == 40) { FETCH(&bar); FENCE_INIT; }",
    "in a warp that is not ordered": (
        "if (x == 0) INIT;\nSYNC;\nif (x == 20) FENCE_INIT;\nif (x == 40) FETCH(&bar);"
    ),
    "after the arrival": (
        "if (x == 0) { INIT; arrive(&go); FENCE_INIT; }\n"
        "if (x == 40) { wait(&go, 0); FETCH(&bar); }"
    ),
    "of global memory": "if (x == 0) { INIT; FENCE_GLOBAL; }\nSYNC;\nif (x == 40) FETCH(&bar);",
    "in one block": (
        "if (x == 0) INIT;\nif (x == 0 && blockIdx.x == 0) FENCE_INIT;\nSYNC;\n"
        "if (x == 40) FETCH(&bar);"
    ),
    "before the second one": (
        "if (x == 0) { init(&bar, 1); FENCE_INIT; }\nSYNC;\n"
        "if (x == 20) { INVALIDATE; INIT; }\nSYNC;\nif (x == 40) FETCH(&bar);"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fence", HIDDEN)
def test_mbarriers_that_are_not_shown(fence: str) -> None:
    (finding,) = run(MBARRIER + HIDDEN[fence]).findings
    assert (finding.check, finding.kind) == ("racecheck", "RAW")
    assert "FETCH" in finding.source
    assert "INIT" in finding.other_source
    assert re.fullmatch(
        r"bulk copy that completes at shared\+\d+ of \d+ \(bar\) may not see the mbarrier.init at "
        rf"line {finding.other_line}: a fence.mbarrier_init is missing between them \(RAW\)",
        finding.message,
    )  # fmt: skip


def test_an_mbarrier_that_is_initialised_at_the_same_time() -> None:
    body = "if (x == 0) { INIT; FENCE_INIT; }\n__syncwarp();\nif (x == 40) FETCH(&bar);"
    for finding in (found := run(MBARRIER + body).findings):
        assert "races with the mbarrier.init at line" in finding.message
    assert any(finding.message.startswith("bulk copy that completes") for finding in found)


@dataclass(frozen=True)
class Statement:
    """One line of a program: a barrier, or something that the threads of `who` do."""

    what: str  # "store", "fence", "copy" out, "fetch" in, "block", "warp" or "pass"
    who: tuple[int, ...] = ()
    takers: tuple[int, ...] = ()  # of "pass": they wait for an mbarrier at which `who` arrive
    shift: int = 0  # of "store": threads write the cells of others

    def cuda(self, at: int) -> str:
        mine, takers = (f"if ({sum(1 << x for x in set_)}ull >> x & 1)"
                        for set_ in (self.who, self.takers))  # fmt: skip
        return {
            "store": f"{mine} s[(x + {self.shift}) % 64].x = x;",
            "fence": f"{mine} FENCE;",
            "copy": f"{mine} OUT;",
            "fetch": f"{mine} FETCH(bars + {at}); SYNC;",
            "block": "SYNC;",
            "warp": "__syncwarp();",
            "pass": f"{mine} arrive(bars + {at}); {takers} wait(bars + {at}, 0);",
        }[self.what]


def program(rng: random.Random) -> list[Statement]:
    """A few statements, with a copy at the end."""
    copies = ["copy", "fetch"]
    kinds = ["store", "store", "fence", "fence", "block", "warp", "pass", *copies]
    sets = [range(64), range(32), range(32, 64), range(1), range(16, 48), (5,), (40,)]
    statements = []
    for what in ["store", *rng.choices(kinds, k=rng.randint(1, 6)), rng.choice(copies)]:
        who = (0,) if what in copies else tuple(rng.choice(sets))
        statements.append(Statement(what, who, tuple(rng.choice(sets)), rng.choice([0, 0, 1, 32])))
    return statements


def unseen(statements: list[Statement]) -> Iterator[tuple[str, int, int]]:
    """("race" or "fence", copy, store) for all that a copy may miss, from the definition.

    A copy in ends with a barrier, and all that was there is gone.
    """
    last = [dict[int, int]() for _ in statements]  # cell -> its last store before each statement
    stores: list[tuple[int, int]] = []  # statement and thread of every store
    cells: dict[int, int] = {}
    for at, statement in enumerate(statements):
        last[at] = dict(cells)
        for x in statement.who if statement.what == "store" else ():
            cells[(x + statement.shift) % 64] = len(stores)
            stores.append((at, x))
        if statement.what == "fetch":
            cells.clear()
    for number, (store, writer) in enumerate(stores):
        ordered, shown = {writer}, set[int]()  # threads before which it is, and is shown
        for at in range(store + 1, len(statements)):
            statement = statements[at]
            who, copies = set(statement.who), statement.what in ("copy", "fetch")
            if statement.what == "fence":
                shown |= ordered & who
            elif copies and number in last[at].values() and not who <= shown:
                yield ("fence" if who <= ordered else "race"), at, store
            for known in (ordered, shown):
                if statement.what in ("block", "fetch") and known:
                    known |= set(range(THREADS))
                elif statement.what == "warp":
                    known |= {x for y in known for x in range(y // 32 * 32, y // 32 * 32 + 32)}
                elif statement.what == "pass" and known & who:
                    known |= set(statement.takers)


@pytest.mark.parametrize("seed", sift(range(8), [0]))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    programs, texts = [program(rng) for _ in range(50)], []
    for number, statements in enumerate(programs):
        body = f"__shared__ u64 bars[{len(statements)}];\nif (x == 0) {{"
        body += " ".join(f"init(bars + {at}, {max(1, len(s.who))});"
                         for at, s in enumerate(statements)) + "FENCE_INIT; }\nSYNC;\n"  # fmt: skip
        body += "\n".join(statement.cuda(at) for at, statement in enumerate(statements))
        texts.append(kernel(body, f"kernel{number}"))
    ptx = compile_cuda(HELPERS + MACROS + "".join(texts), "compute_90")
    line, kinds = (HELPERS + MACROS).count("\n") + START.count("\n") + 5, set()
    for number, (statements, text) in enumerate(zip(programs, texts, strict=True)):
        report = launch(ptx, f"kernel{number}")
        found = {
            ("race" if "races" in f.message else "fence", f.file_line - line, f.other_line - line)
            for f in report.findings
            if f.message.startswith("bulk copy")
        }
        expected = set(unseen(statements))
        races = {key for key in expected if key[0] == "race"}
        hidden = {(kind, *pair) for kind, *pair in expected if ("race", *pair) not in races}
        assert found == races | hidden, text
        kinds |= {kind for kind, *_ in found} or {"none"}
        line += text.count("\n")
    assert kinds == {"race", "fence", "none"}
