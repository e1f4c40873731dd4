"""Copies out of shared memory need a fence.proxy.async behind what threads have written there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from emulator_kernels import compile_cuda
from pipeline_kernels import HELPERS, TENSOR, run_tensor

from gen.emulator import Emulator, LaunchReport, SharedRaces

THREADS = 64
# Macros, so that the lines of what they do are those of the kernels.
MACROS = r"""
#define FENCE asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define FENCE_ALL asm volatile("fence.proxy.async;" ::: "memory")
#define FENCE_GLOBAL asm volatile("fence.proxy.async.global;" ::: "memory")
#define COPY asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" \
  "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" \
  ::"l"(out), "r"(at(s)), "r"((u32)sizeof(s)) : "memory")
#define SYNC __syncthreads()
"""
START = "__shared__ __align__(128) int4 s[64];\nconst int x = threadIdx.x;\n"
BARRIER = "__shared__ u64 bar;\nif (x == 0) init(&bar, 64);\nSYNC;\n"
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


def run(body: str) -> LaunchReport:
    source = HELPERS + MACROS + kernel(body)
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


@pytest.mark.parametrize("fence", RIGHT)
def test_right_kernels_are_clean(fence: str) -> None:
    assert run(RIGHT[fence]).findings == []


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


@pytest.mark.parametrize("fence", WRONG)
def test_missing_fences_are_found(fence: str) -> None:
    (finding,) = run(WRONG[fence]).findings
    assert (finding.check, finding.kind) == ("racecheck", "RAW")
    assert "COPY" in finding.source
    line = f" at line {finding.other_line}: a fence.proxy.async is missing between them (RAW)"
    assert line in finding.message
    assert finding.message.startswith("bulk copy of 16 bytes at shared+")
    if "cp.async has" not in fence:  # `copy` is a function, whose line counts
        assert finding.other_source.endswith("// write")


def test_blocks_are_told_apart() -> None:
    (finding,) = run(WRONG["in one block"]).findings
    assert finding.block == (1, 0, 0)


def test_a_race_is_reported_as_one() -> None:
    (finding,) = run(WRITE + "__syncwarp();\nFENCE;\nif (x == 0) COPY;").findings
    assert "races with the store" in finding.message
    assert finding.threads[0] == (0, 0, 0)
    assert finding.threads[1][0] >= 32


def test_a_pipeline_with_copies_out() -> None:
    (finding,) = run_tensor(TENSOR.replace("      fence();\n", "")).report.findings
    assert "may not see the store" in finding.message
    assert "result[row][c] =" in finding.other_source
    moved = TENSOR.replace("fence();\n      __syncwarp();", "__syncwarp();\n      fence();")
    assert run_tensor(moved).report.findings == []


@dataclass(frozen=True)
class Statement:
    """One line of a program: a barrier, or something that the threads of `who` do."""

    what: str  # "store", "fence", "copy", "block", "warp" or "pass"
    who: tuple[int, ...] = ()
    takers: tuple[int, ...] = ()  # of "pass": they wait for an mbarrier at which `who` arrive
    shift: int = 0  # of "store": threads write the cells of others

    def cuda(self, at: int) -> str:
        mine, takers = (f"if ({sum(1 << x for x in set_)}ull >> x & 1)"
                        for set_ in (self.who, self.takers))  # fmt: skip
        return {
            "store": f"{mine} s[(x + {self.shift}) % 64].x = x;",
            "fence": f"{mine} FENCE;",
            "copy": f"{mine} COPY;",
            "block": "SYNC;",
            "warp": "__syncwarp();",
            "pass": f"{mine} arrive(bars + {at}); {takers} wait(bars + {at}, 0);",
        }[self.what]


def program(rng: random.Random) -> list[Statement]:
    """A few statements, with a copy at the end."""
    kinds = ["store", "store", "fence", "fence", "block", "warp", "pass", "copy"]
    sets = [range(64), range(32), range(32, 64), range(1), range(16, 48), (5,), (40,)]
    statements = []
    for what in ["store", *rng.choices(kinds, k=rng.randint(1, 6)), "copy"]:
        who = (0,) if what == "copy" else tuple(rng.choice(sets))
        statements.append(Statement(what, who, tuple(rng.choice(sets)), rng.choice([0, 0, 1, 32])))
    return statements


def unseen(statements: list[Statement]) -> Iterator[tuple[str, int, int]]:
    """("race" or "fence", copy, store) for all that a copy may miss, from the definition."""
    last = [dict[int, int]() for _ in statements]  # cell -> its last store before each statement
    stores: list[tuple[int, int]] = []  # statement and thread of every store
    cells: dict[int, int] = {}
    for at, statement in enumerate(statements):
        last[at] = dict(cells)
        for x in statement.who if statement.what == "store" else ():
            cells[(x + statement.shift) % 64] = len(stores)
            stores.append((at, x))
    for number, (store, writer) in enumerate(stores):
        ordered, shown = {writer}, set[int]()  # threads before which it is, and is shown
        for at in range(store + 1, len(statements)):
            statement = statements[at]
            who = set(statement.who)
            if statement.what == "fence":
                shown |= ordered & who
            elif statement.what == "copy" and number in last[at].values() and not who <= shown:
                yield ("fence" if who <= ordered else "race"), at, store
            for known in (ordered, shown):
                if statement.what == "block" and known:
                    known |= set(range(THREADS))
                elif statement.what == "warp":
                    known |= {x for y in known for x in range(y // 32 * 32, y // 32 * 32 + 32)}
                elif statement.what == "pass" and known & who:
                    known |= set(statement.takers)


def test_random_programs() -> None:
    rng = random.Random(0)
    programs, texts = [program(rng) for _ in range(80)], []
    for number, statements in enumerate(programs):
        body = f"__shared__ u64 bars[{len(statements)}];\nif (x == 0) {{"
        body += " ".join(f"init(bars + {at}, {max(1, len(s.who))});"
                         for at, s in enumerate(statements)) + "}\nSYNC;\n"  # fmt: skip
        body += "\n".join(statement.cuda(at) for at, statement in enumerate(statements))
        texts.append(kernel(body, f"kernel{number}"))
    ptx = compile_cuda(HELPERS + MACROS + "".join(texts), "compute_90")
    line, kinds = (HELPERS + MACROS).count("\n") + 7, set()
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
