"""Trains the network by the CUDA program and by PyTorch, compares, and writes tables and plots.

    python compare.py --data DIR --program build/out/mnist/mnist

It writes results.json, losses.svg and times.svg, and fills the table in README.md. Both sides start
from the same weights and see the same batches, so that their losses must agree:

- each of the first 100 steps within a tolerance of 0.02 + 2 %, or within twice what PyTorch's modes
  with other rounding (compile, eager-half) were apart from eager until that step, if that is more,
- means over 50 steps of the first epoch within 3 %,
- at the end, the parts of the test set that are recognised within 1 %.

Usually rounding moves single losses by some thousandths. But training can amplify it: at hidden 32
and a learning rate of 0.2 some losses move by a tenth, whoever computes. PyTorch's modes show where
that is so. It builds up over some 50 steps; gradients that are 10 % off are seen before, while the
modes still agree. Exits with 1 where the losses do not agree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from mnist_data import FILES, initial_parameters, read_file, write_parameters

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- results: written by compare.py -->", "<!-- end of results -->"
IMAGES = 60_000
EARLY, WINDOW = 100, 50
ROUNDED_OTHERWISE = ("compile", "eager-half")  # "graph" gives the bits of "eager"
SIZES = (32, 64, 128, 256, 512, 1024, 2048)
MODES = {
    "eager": "PyTorch, eager",
    "compile": "torch.compile, CUDA graphs",
    "graph": "PyTorch, whole step in a CUDA graph",
    "eager-half": "PyTorch, eager, all in f16",
}
# At least so many times faster, by hidden size and by what it is compared with.
TARGETS = {(128, "eager"): 6.0, (128, "compile"): 1.5, (2048, "eager"): 1.3}

Result = dict[str, Any]


def means(losses: np.ndarray) -> np.ndarray:
    """Means over windows of steps."""
    return np.convolve(losses, np.ones(WINDOW) / WINDOW, "valid")


def differences(losses: np.ndarray, eager: np.ndarray) -> np.ndarray:
    """How far the losses of the first steps are apart."""
    count = min(len(losses), len(eager), EARLY)
    return np.abs(losses[:count] - eager[:count])


def in_tolerances(losses: np.ndarray, eager: np.ndarray) -> np.ndarray:
    """The same as multiples of the tolerance."""
    apart = differences(losses, eager)
    return apart / (0.02 + 0.02 * eager[: len(apart)])


def bounds(others: list[np.ndarray], eager: np.ndarray) -> np.ndarray:
    """How many tolerances ours may be from eager's at each of the first steps."""
    worst = np.zeros(min(len(eager), EARLY))
    for losses in others:
        apart = in_tolerances(losses, eager)
        apart[~np.isfinite(apart)] = 0  # a mode that diverged allows nothing
        worst[: len(apart)] = np.maximum(worst[: len(apart)], apart)
    return np.maximum(1, 2 * np.maximum.accumulate(worst))


def disagreement(
    ours: np.ndarray, eager: np.ndarray, others: list[np.ndarray], per_epoch: int
) -> str:
    """What is wrong with our losses, or nothing. All are of the same training."""
    count = min(len(ours), len(eager), per_epoch)
    ours, eager = ours[:count], eager[:count]
    good = in_tolerances(ours, eager) <= bounds(others, eager)  # not so for NaN
    if not good.all():
        step = int(np.argmin(good))
        return f"step {step}: loss {ours[step]:.4f} instead of {eager[step]:.4f}"
    if count < WINDOW:
        return ""
    apart = np.abs(means(ours) / means(eager) - 1)
    if not apart.max() <= 0.03:
        return f"means over {WINDOW} steps are up to {100 * apart.max():.1f} % apart"
    return ""


def wider_bound(ours: np.ndarray, eager: np.ndarray, others: list[np.ndarray]) -> str:
    """What to say where the tolerance alone would not have done, or nothing."""
    if (in_tolerances(ours, eager) <= 1).all():
        return ""
    apart = [differences(losses, eager) for losses in others]
    theirs = max(x[np.isfinite(x)].max(initial=0) for x in apart)
    return f"up to {differences(ours, eager).max():.2f} apart; PyTorch's own modes {theirs:.2f}"


def run_program(options: argparse.Namespace, hidden: int, data: Path, folder: Path) -> Result:
    """Trains and measures with the CUDA program."""
    files = {name: folder / f"{name}-{hidden}" for name in ("weights", "losses", "json")}
    write_parameters(files["weights"], initial_parameters(hidden, options.seed))
    command = [
        options.program, "--data", data, "--hidden", hidden, "--batch", options.batch,
        "--epochs", options.epochs, "--lr", options.lr, "--seed", options.seed, "--bench",
        "--accumulate", options.accumulate, "--weights-in", files["weights"],
        "--losses", files["losses"], "--json", files["json"],
    ]  # fmt: skip
    subprocess.run([str(part) for part in command], check=True)
    losses = np.loadtxt(files["losses"], delimiter=",", skiprows=1, ndmin=2)[:, 1]
    result: Result = json.loads(files["json"].read_text(encoding="utf-8"))
    return {**result, "losses": losses.tolist()}


def run_torch(options: argparse.Namespace, data: Path, folder: Path) -> Result:
    """Trains and measures with PyTorch, all sizes in one process."""
    steps = options.epochs * (IMAGES // options.batch)
    command = [
        sys.executable, HERE / "train_torch.py", "--data", data, "--batch", options.batch,
        "--steps", steps, "--lr", options.lr, "--seed", options.seed, "--json", folder / "torch",
        "--hidden", *options.hidden, "--mode", *options.mode,
    ]  # fmt: skip
    subprocess.run([str(part) for part in command], check=True)
    result: Result = json.loads((folder / "torch").read_text(encoding="utf-8"))
    return result


def rows(everything: Result) -> list[Result]:
    """For each size: times, how many times faster, whether the losses agree."""
    per_epoch = IMAGES // everything["options"]["batch"]
    table = []
    for ours in everything["ours"]:
        theirs = {
            r["mode"]: r for r in everything["torch"]["results"] if r["hidden"] == ours["hidden"]
        }
        row: Result = {"hidden": ours["hidden"], "ours": ours["step_us"]}
        row["accuracy"] = ours["accuracy"]
        for mode, result in theirs.items():
            row[mode] = result.get("step_us")
        eager = theirs.get("eager", {})
        row["torch accuracy"] = eager.get("accuracy")
        row["problem"] = "" if "losses" in eager else "there are no losses to compare with"
        row["wider"] = ""
        if "losses" in eager:
            curves = np.array(ours["losses"]), np.array(eager["losses"])
            others = [
                np.array(theirs[mode]["losses"])
                for mode in ROUNDED_OTHERWISE
                if "losses" in theirs.get(mode, {})
            ]
            row["problem"] = disagreement(*curves, others, per_epoch)
            if not row["problem"] and not abs(ours["accuracy"] - eager["accuracy"]) <= 0.01:
                row["problem"] = "the final accuracies are too far apart"
            if not row["problem"]:
                row["wider"] = wider_bound(*curves, others)
        table.append(row)
    return table


def markdown(table: list[Result], everything: Result) -> str:
    """The table of README.md."""
    o, torch = everything["options"], everything["torch"]
    modes = [mode for mode in MODES if any(row.get(mode) for row in table)]
    heads = ["hidden", "this program", *(MODES[mode] for mode in modes), "accuracy", "PyTorch's"]
    lines = [
        f"{torch['gpu']}, PyTorch {torch['torch']}, batch {o['batch']}, sums in {o['accumulate']}; "
        f"median microseconds a step, and how many times faster this program is; accuracy on the "
        f"test set after {o['epochs']} epochs:",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    for row in table:
        cells = [str(row["hidden"]), f"{row['ours']:.1f}"]
        for mode in modes:
            time = row.get(mode)
            cells.append(f"{time:.1f} ({time / row['ours']:.1f}x)" if time else "-")
        for name in ("accuracy", "torch accuracy"):
            cells.append(f"{100 * row[name]:.2f} %" if row[name] is not None else "-")
        lines.append("| " + " | ".join(cells) + " |")
    agree = [row for row in table if not row["problem"]]
    lines += ["", f"The losses agree at {len(agree)} of {len(table)} sizes."]
    wider = [f"- hidden {row['hidden']}: {row['wider']}" for row in table if row["wider"]]
    if wider:
        lines += [
            "Single steps are further apart than 0.02 + 2 % where PyTorch's own modes differ too:",
            "",
            *wider,
        ]
    return "\n".join(lines)


def plot_losses(everything: Result, path: Path) -> None:
    """Both curves of the first epoch, for each size; the legend has a place of its own."""
    from matplotlib import pyplot

    per_epoch = IMAGES // everything["options"]["batch"]
    count = len(everything["ours"])
    columns = min(4, count + 1)
    lines = -(-(count + 1) // columns)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=(2.7 * columns, 2.3 * lines), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    for axes, ours in zip(grid.flat, everything["ours"], strict=False):
        theirs = [
            r["losses"]
            for r in everything["torch"]["results"]
            if r["mode"] == "eager" and r["hidden"] == ours["hidden"] and "losses" in r
        ]
        for losses in theirs:
            axes.plot(losses[:per_epoch], color="#f2a07b", linewidth=2.4, label="PyTorch, eager")
        axes.plot(ours["losses"][:per_epoch], color="#0b4a8f", linewidth=0.7, label="this program")
        axes.set(title=f"hidden {ours['hidden']}", xlim=(0, per_epoch), ylim=(0, 2.5))
        axes.grid(alpha=0.3)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    grid.flat[-1].legend(handles, labels, loc="center", frameon=False)
    figure.supxlabel("step of the first epoch")
    figure.supylabel("loss")
    save(figure, path)


def plot_times(table: list[Result], everything: Result, path: Path) -> None:
    """Microseconds a step over the hidden size."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.6), layout="constrained")
    styles = {
        "eager": ("o", "#d9541e"),
        "compile": ("s", "#14926a"),
        "graph": ("D", "#8a3ab9"),
        "ours": ("^", "#0b4a8f"),
    }
    for name, (marker, colour) in styles.items():
        points = [(row["hidden"], row[name]) for row in table if row.get(name)]
        if points:
            axes.plot(
                *zip(*points, strict=True), "-", marker=marker, color=colour,
                label=MODES.get(name, "this program"),
            )  # fmt: skip
    axes.set(xlabel="hidden size", ylabel="microseconds a step", xscale="log", yscale="log")
    axes.set_xticks([row["hidden"] for row in table], [str(row["hidden"]) for row in table])
    axes.minorticks_off()
    ticks = [t for t in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if _near(t, table)]
    axes.set_yticks(ticks, [str(t) for t in ticks])
    axes.grid(alpha=0.3)
    batch, gpu = everything["options"]["batch"], everything["torch"]["gpu"]
    axes.set_title(f"{gpu}, batch {batch}", loc="left")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Writes an SVG file; the same figure gives the same bytes."""
    from matplotlib import pyplot, rc_context

    with rc_context({"svg.hashsalt": "mnist", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _near(tick: float, table: list[Result]) -> bool:
    times = [row[name] for row in table for name in ("ours", *MODES) if row.get(name)]
    return bool(min(times) / 2 <= tick <= max(times) * 2)


def fill(readme: Path, text: str) -> None:
    """Puts the text between the two marks."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the IDX files")
    parser.add_argument("--program", type=Path, help="the CUDA program")
    parser.add_argument("--hidden", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--mode", choices=list(MODES), nargs="+", default=list(MODES))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accumulate", choices=("f16", "f32"), default="f32")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for results and plots")
    parser.add_argument("--from", dest="saved", type=Path, help="a results.json instead of runs")
    options = parser.parse_args(arguments)
    if not options.saved and not (options.data and options.program):
        parser.error("--data and --program are needed, or --from")
    return options


def measure(options: argparse.Namespace) -> Result:
    """Runs both sides. The data is unpacked first: the program may have been built without zlib."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in FILES:
            (folder / file).write_bytes(read_file(options.data / file))
        ours = [run_program(options, hidden, folder, folder) for hidden in options.hidden]
        torch = run_torch(options, folder, folder)
    per_epoch = IMAGES // options.batch
    for result in (*ours, *torch["results"]):  # what comes later is not compared
        if "losses" in result:
            result["losses"] = [round(x, 5) for x in result["losses"][:per_epoch]]
    kept = ("batch", "epochs", "lr", "seed", "accumulate")
    return {
        "options": {key: getattr(options, key) for key in kept},
        "ours": ours,
        "torch": torch,
    }


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = options_of(arguments)
    if options.saved:
        everything = json.loads(options.saved.read_text(encoding="utf-8"))
    else:
        everything = measure(options)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(everything) + "\n", encoding="utf-8")
    table = rows(everything)
    text = markdown(table, everything)
    print(text)
    if (options.out / "README.md").exists():
        fill(options.out / "README.md", text)
    for row in table:
        if row["problem"]:
            print(f"hidden {row['hidden']}: {row['problem']}", file=sys.stderr)
        for mode in MODES:
            target = TARGETS.get((row["hidden"], mode))
            if target and row.get(mode):
                found = row[mode] / row["ours"]
                verdict = "met" if found >= target else "MISSED"
                print(f"hidden {row['hidden']}, {mode}: {found:.2f}x of {target}x: {verdict}")
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is missing: no plots", file=sys.stderr)
    else:
        matplotlib.use("Agg")
        plot_losses(everything, options.out / "losses.svg")
        plot_times(table, everything, options.out / "times.svg")
    return 1 if any(row["problem"] for row in table) else 0


if __name__ == "__main__":
    sys.exit(main())
