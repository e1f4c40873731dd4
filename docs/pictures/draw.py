"""Draws the pictures of the guides: `python docs/pictures/draw.py` writes the SVG files beside it.

They follow the reader's light or dark theme. A test compares the files with what this prints.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent

# Of each class: the light theme's fill and stroke, the dark theme's.
COLOURS = {
    "a": ("#cfe3ff", "#2f6fd6", "#173a6b", "#6ea8ff"),
    "b": ("#ffe0b8", "#c77700", "#5f3d0b", "#f0a94a"),
    "d": ("#d3f0d3", "#2a8a3a", "#1c4a25", "#63c174"),
    "wait": ("#f0f0f3", "#8c959f", "#2a2f36", "#7d8590"),
    "none": ("none", "#8c959f", "none", "#7d8590"),
}
TEXT, MUTED = ("#1f2328", "#e6edf3"), ("#59636e", "#9198a1")


def _style(dark: bool) -> str:
    rules = [
        f".{name} {{ fill: {c[2 * dark]}; stroke: {c[2 * dark + 1]}; }}"
        for name, c in COLOURS.items()
    ]
    return " ".join(
        [
            *rules,
            f"text {{ fill: {TEXT[dark]}; }}",
            f".muted {{ fill: {MUTED[dark]}; }}",
            f".line {{ stroke: {MUTED[dark]}; }} .head {{ fill: {MUTED[dark]}; }}",
        ]
    )


class Picture:
    """Shapes of an SVG file; coordinates in pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title, self.shapes = (width, height), title, list[str]()

    def box(self, kind: str, x: float, y: float, w: float, h: float, text: str = "") -> None:
        """A rectangle of one of the COLOURS, with a text in its middle."""
        self.shapes.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2"/>'
        )
        if text:
            self.text(x + w / 2, y + h / 2 + 4, text, "middle")

    def text(self, x: float, y: float, text: str, at: str = "start", kind: str = "") -> None:
        """A line of text; `at` says which part of it x is: start, middle or end."""
        kind = f' class="{kind}"' if kind else ""
        self.shapes.append(f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{at}">{text}</text>')

    def line(self, x: float, y: float, x2: float, y2: float, dashed: bool = False) -> None:
        """A straight line."""
        dashes = ' stroke-dasharray="3 3"' if dashed else ""
        self.shapes.append(
            f'<line class="line" x1="{x:g}" y1="{y:g}" x2="{x2:g}" y2="{y2:g}"{dashes}/>'
        )

    def arrow(self, x: float, y: float, x2: float, y2: float) -> None:
        """A line along one axis with a head at its end."""
        self.line(x, y, x2, y2)
        dx, dy = (x2 > x) - (x2 < x), (y2 > y) - (y2 < y)
        back = (x2 - 7 * dx, y2 - 7 * dy)
        sides = [(back[0] + 3.5 * s * dy, back[1] + 3.5 * s * dx) for s in (1, -1)]
        points = " ".join(f"{px:g},{py:g}" for px, py in ((x2, y2), *sides))
        self.shapes.append(f'<polygon class="head" points="{points}"/>')

    def svg(self) -> str:
        """The file's text."""
        w, h = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" '
                f'height="{h}" role="img" font-family="sans-serif" font-size="12">',
                f"<title>{self.title}</title>",
                f"<style>{_style(False)}",
                f"@media (prefers-color-scheme: dark) {{ {_style(True)} }}</style>",
                *self.shapes,
                "</svg>\n",
            ]
        )


def tiles() -> Picture:
    """What a block of `tiles` and of `rec_tiles` reads and computes."""
    picture = Picture(
        720,
        424,
        "A block of tiles multiplies one tile of A by one tile of B at each step along K; "
        "a block of rec_tiles multiplies one tile of A by two neighbouring tiles of B.",
    )
    side = 34  # of a tile
    for left, coarsen, name in ((0, 1, "tiles"), (365, 2, "rec_tiles, coarsen = 2")):
        ax, ay = left + 40, 240  # the corners of A and B; D is below B and beside A
        bx, by = ax + 4 * side + 16, 50
        width, columns = 4 * side, 2  # of D; the columns of tiles that the block starts at
        picture.text(ax, 22, name)
        picture.box("none", ax, ay, 4 * side, 3 * side)
        picture.box("none", bx, by, width, 4 * side)
        picture.box("none", bx, ay, width, 3 * side)
        row, col, k = ay + side, bx + (columns - 1) * side, 2
        picture.box("wait", ax, row, k * side, side)
        picture.box("wait", col, by, coarsen * side, k * side)
        picture.box("a", ax + k * side, row, side, side)
        for j in range(coarsen):
            picture.box("b", col + j * side, by + k * side, side, side)
            picture.box("d", col + j * side, row, side, side)
        # one thread's results
        for j in range(coarsen):
            x = col + j * side + 22
            picture.shapes.append(f'<circle class="head" cx="{x:g}" cy="{row + 12:g}" r="3"/>')
        picture.arrow(ax, row + side + 14, ax + 4 * side, row + side + 14)
        picture.text(ax + 2 * side, row + side + 28, "steps along K", "middle", "muted")
        picture.text(ax - 8, ay + 14, "A", "end")
        picture.text(bx - 8, by + 14, "B", "end")
        picture.text(bx + width + 8, ay + 14, "D")
        first = "1 tile of A and 1 of B" if coarsen == 1 else "1 tile of A and 2 of B"
        picture.text(ax, 372, f"a step copies {first}")
        times = "T" if coarsen == 1 else "2T"
        picture.text(ax, 390, f"and does T x T x {times} multiply-adds;")
        what = "1 element" if coarsen == 1 else "2, T columns apart"
        picture.text(ax, 408, f"a thread (dot) computes {what}.")
    return picture


def mma() -> Picture:
    """The pipeline of `mma` with four stages."""
    picture = Picture(
        720,
        366,
        "Four stages of shared memory over time: a tile is in flight for three steps and is read "
        "in the fourth; below, one step in detail.",
    )
    left, top, step, row = 104, 56, 86, 26
    picture.text(12, 22, "Shared memory: each stage holds a tile of A and a tile of B")
    for n in range(7):
        x = left + n * step
        picture.text(x + step / 2, top - 8, f"step {n}", "middle", "muted")
        picture.line(x, top - 4, x, top + 4 * row + 4, dashed=True)
    end = left + 7 * step
    picture.line(end, top - 4, end, top + 4 * row + 4, dashed=True)
    for stage in range(4):
        y = top + stage * row
        picture.text(left - 10, y + 17, f"stage {stage}", "end")
        for tile in range(stage, 11, 4):
            begin, read = max(left, left + (tile - 3) * step), left + tile * step
            if begin < min(read, end):
                w = min(read, end) - begin
                text = f"tile {tile} in flight" if w > 1.2 * step else f"tile {tile}"
                picture.box("a", begin, y + 2, w, row - 4, text)
            if read < end:
                picture.box("d", read, y + 2, step, row - 4, f"read {tile}")
    y = top + 4 * row + 24
    picture.box("a", left, y, 14, 12)
    picture.text(left + 20, y + 11, "cp.async copies it", kind="muted")
    picture.box("d", left + 150, y, 14, 12)
    picture.text(left + 170, y + 11, "ldmatrix reads it", kind="muted")
    picture.box("b", left + 290, y, 14, 12)
    picture.text(left + 310, y + 11, "mma.sync multiplies it", kind="muted")

    top, width = 246, 298
    picture.text(12, top - 12, "Step n in a warp: two K blocks of 16 elements (a line of 64 bytes)")
    for s in range(2):
        x = left + s * (width + 6)
        load = "load K block 1 of tile n" if s == 0 else "load K block 0 of tile n + 1"
        if s == 0:
            picture.box("a", x, top + 2, width, row - 4, "start to copy tile n + 3")
        else:
            picture.box("wait", x, top + 2, width, row - 4, "wait for tile n + 1; __syncthreads()")
        picture.box("d", x, top + row + 2, width, row - 4, load)
        picture.box("b", x, top + 2 * row + 2, width, row - 4, f"multiply K block {s} of tile n")
    for i, name in enumerate(("to shared", "to registers", "tensor cores")):
        picture.text(left - 10, top + i * row + 17, name, "end")
    picture.text(
        12,
        top + 3 * row + 24,
        "Fragments are double-buffered: registers hold this K block and the next one.",
        kind="muted",
    )
    return picture


def mma_tma() -> Picture:
    """The pipeline of `mma_tma` with three stages, over the end of one work tile."""
    picture = Picture(
        720,
        322,
        "The producer fills three stages through the TMA while consumer warps multiply; while the "
        "consumers write one work tile of D, the operands of the next one arrive.",
    )
    left, top, step, row = 104, 62, 63, 28
    steps, tail = 5, 1.5  # of the first work tile; the length of its epilogue in steps
    start = [n if n < steps else n + tail for n in range(9)]  # when a step is multiplied
    end = 9.5

    def at(time: float) -> float:
        return left + time * step

    picture.text(
        12, 22, "One block on a multiprocessor: full and empty barriers pass each stage on"
    )
    for n, time in enumerate(start[:8]):
        name = f"step {n}" if n < steps else f"step {n - steps}"
        picture.text(at(time + 0.5), top - 8, name, "middle", "muted")
        picture.line(at(time), top - 4, at(time), top + 3 * row + 2, dashed=True)
    for stage in range(3):
        y = top + stage * row
        picture.text(left - 10, y + 18, f"stage {stage}", "end")
        free = 0.0
        for n in range(stage, 8, 3):
            if n >= 3:
                full = free + 1.3
                picture.box("a", at(free), y + 3, 1.3 * step, row - 6, "copy")
                if start[n] > full:
                    picture.box("wait", at(full), y + 3, (start[n] - full) * step, row - 6, "full")
            elif start[n] > 0:
                picture.box("wait", at(0), y + 3, start[n] * step, row - 6, "full")
            stop = min(start[n] + 1, end)
            picture.box("b", at(start[n]), y + 3, (stop - start[n]) * step, row - 6, "multiply")
            free = stop
        if free < end:
            copied = min(free + 1.3, end)
            picture.box("a", at(free), y + 3, (copied - free) * step, row - 6, "copy")
            if copied < end:
                picture.box("wait", at(copied), y + 3, (end - copied) * step, row - 6, "full")
    y = top + 3 * row + 18
    picture.text(left - 10, y + 18, "consumers", "end")
    picture.box("b", at(0), y + 3, steps * step, row - 6, "work tile 0: multiply")
    picture.box("d", at(steps), y + 3, tail * step, row - 6, "epilogue")
    picture.box("b", at(steps + tail), y + 3, (end - steps - tail) * step, row - 6, "work tile 1")
    y += row + 4
    picture.text(left - 10, y + 18, "TMA stores", "end")
    picture.box("d", at(steps + 0.5), y + 3, 2.6 * step, row - 6, "D of work tile 0")

    y += row + 26
    x = 104
    picture.text(x - 10, y, "In a stage", "end")
    for kind, name, what in (
        ("a", "copy", "the producer thread waits for empty, then asks the TMA for two tiles"),
        ("wait", "full", "the bytes have arrived; no consumer has come to them yet"),
        ("b", "multiply", "consumers: ldmatrix and mma.sync; then each warp arrives at empty"),
        ("d", "epilogue", "D waits in shared memory; the TMA stores it during the next work tile"),
    ):
        picture.box(kind, x, y - 11, 14, 12)
        picture.text(x + 22, y, name)
        picture.text(x + 82, y, what, kind="muted")
        y += 20
    return picture


# TFLOP/s at 4096 a side, as docs/cuda-cores.md has them, and the idea of each kernel.
LADDER = (
    ("naive", 4.4, "each thread reads what it multiplies"),
    ("tiles", 8.1, "tiles in shared memory"),
    ("rec_tiles", 10.9, "a tile of A serves two of B"),
    ("thread_tile_1d", 20.4, "a column of results a thread"),
    ("thread_tile_2d", 32.9, "a square of results a thread"),
    ("vectorized", 41.4, "16 bytes at a time"),
    ("warp_tiled", 43.2, "an order of lanes without bank conflicts"),
    ("multistage", 40.1, "copies ahead of multiplications"),
    ("simt", 54.2, "as much of D in registers as they hold"),
    ("cuBLAS", 51.3, "the fastest of its list"),
)


def ladder() -> Picture:
    """How fast the kernels on CUDA cores are, one below another."""
    row, left, most = 26, 110, 65
    picture = Picture(
        720,
        row * len(LADDER) + 46,
        "Kernels on CUDA cores at 4096 a side, TFLOP/s: "
        + ", ".join(f"{name} {speed}" for name, speed, _ in LADDER),
    )
    scale = (700 - left) / most
    for n, (name, speed, idea) in enumerate(LADDER):
        y, end = 8 + n * row, left + speed * scale
        picture.text(left - 8, y + 16, name, "end")
        picture.box("b" if name == "cuBLAS" else "a", left, y, speed * scale, row - 5)
        inside = speed > most / 2
        picture.text(
            end + (-8 if inside else 8), y + 15, f"{speed:.1f}", "end" if inside else "start"
        )
        if inside:
            picture.text(left + 8, y + 15, idea)
        else:
            picture.text(end + 46, y + 15, idea, kind="muted")
    y = 8 + len(LADDER) * row
    picture.line(left + most * scale, 4, left + most * scale, y, dashed=True)
    picture.text(left + most * scale, y + 16, "multiplications alone: 65 TFLOP/s", "end", "muted")
    return picture


PICTURES = {"tiles": tiles, "mma": mma, "mma_tma": mma_tma, "ladder": ladder}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
