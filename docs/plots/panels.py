# SPDX-License-Identifier: Apache-2.0
"""What the figures have in common: rows of the bench in, two panels out, the values above and the ratios below."""

import argparse
import json
import pathlib
import re
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "sluice", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3,
                            "lines.marker": "o", "lines.markersize": 3, "legend.fontsize": 8, "legend.frameon": False})
from matplotlib import pyplot, ticker  # noqa: E402  (the backend is chosen first)

OURS = {"color": "black", "linewidth": 2, "zorder": 3}
TEXT, NUMBER, MAYBE = (str,), (int, float), (str, int, type(None))
FIELDS = {"bench": TEXT, "metric": TEXT, "unit": TEXT, "backend": TEXT, "stream": TEXT, "memory": TEXT, "version": TEXT, "date": TEXT,
          "cpu": MAYBE, "gpu": MAYBE, "driver": MAYBE, "fired_by": MAYBE, "p50": NUMBER, "p10": NUMBER, "p99": NUMBER,
          "ranks": NUMBER, "depth": NUMBER, "window": NUMBER, "rounds": NUMBER, "rivals": (dict,)}
# What one line has in common, and what is said of those in which lines of one file differ.
KEYS = ("backend", "stream", "memory", "fired_by", "ranks", "depth", "window")


def refuse(why):
    print(f"plots: {why}", file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        refuse(message)


def make_folder(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        refuse(reason)


def is_a(value, kinds):
    return isinstance(value, kinds) and not isinstance(value, bool)


def fault_of(row, benches, needs):
    """Why a row cannot be drawn; None: it can."""
    if not isinstance(row, dict):
        return "a row is no object"
    for field, kinds in (FIELDS | dict.fromkeys(needs, NUMBER)).items():
        if not is_a(row.get(field), kinds) or (kinds is NUMBER and field.startswith("p") and row[field] <= 0):
            return f"a row has {row.get(field)!r} for '{field}'"
    for name, rival in row["rivals"].items():
        if not isinstance(rival, dict) or not all(is_a(rival.get(part), NUMBER) and rival[part] > 0 for part in ("p50", "ratio")):
            return f"a row has no numbers of its rival '{name}'"
    return None if row["bench"] in benches else f"rows of '{row['bench']}' are not for this figure ({', '.join(benches)})"


def rows_of(path, benches, needs):
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError) as reason:
        refuse(f"{path}: {reason}")
    if not isinstance(rows, list) or not rows:
        refuse(f"{path}: no rows of a bench")
    for row in rows:
        fault = fault_of(row, benches, needs)
        if fault:
            refuse(f"{path}: {fault}")
    return rows


def groups_of(rows, more=()):
    """Yields for each line what tells it from the others of these rows, and its rows."""
    keys = KEYS + tuple(more)
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    differ = [n for n, values in enumerate(zip(*groups)) if len(set(values)) > 1]
    for group, some in groups.items():
        yield [f"{keys[n]} {group[n]}" if keys[n] in ("ranks", "depth", "window") else str(group[n]) for n in differ], some


def bytes_text(value, _position=None):
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return f"{value / (1 << power):g} {unit}"
    return f"{value:g} B"


def source_of(row):
    """Where the numbers come from, for the foot of a figure."""
    machine = ", ".join(str(part) for part in (row["cpu"], row["gpu"], row["driver"]) if part)
    ways = [row["backend"], f"stream {row['stream']}", f"memory {row['memory']}"]
    if row["fired_by"]:
        ways.append(f"fired by {row['fired_by']}")
    return f"{row['ranks']} ranks, {', '.join(ways)}; medians; {machine}; Sluice {row['version']}, {row['date'][:10]}"


def names_of_rivals(rows):
    return list(dict.fromkeys(name for row in rows for name in row["rivals"]))


def draw(rows, out, title, x_of, x_label, y_label, x_text=None, ours="Sluice"):
    """One figure: `x_of(row)` gives where a row stands."""
    rows = sorted(rows, key=x_of)
    figure, (values, ratios) = pyplot.subplots(2, 1, sharex=True, figsize=(6.5, 5.5), height_ratios=(3, 2), layout="constrained")
    at = [x_of(row) for row in rows]
    values.plot(at, [row["p50"] for row in rows], label=f"{ours}, median; band: 10th to 99th percentile", **OURS)
    values.fill_between(at, [row["p10"] for row in rows], [row["p99"] for row in rows], color="black", alpha=0.12, linewidth=0)
    ratios.axhline(1, **{**OURS, "marker": ""})
    for number, name in enumerate(names_of_rivals(rows)):
        theirs = [(x_of(row), row["rivals"][name]) for row in rows if row["rivals"].get(name)]
        line = {"color": f"C{number}", "label": name}
        values.plot([x for x, _ in theirs], [rival["p50"] for _, rival in theirs], **line)
        ratios.plot([x for x, _ in theirs], [rival["ratio"] for _, rival in theirs], **line)
    values.set(title=title, ylabel=y_label, xscale="log", yscale="log")
    ratios.set(xlabel=x_label, ylabel="ratio to each\n(above 1: ours is faster)", yscale="log")
    for panel in (values, ratios):
        panel.xaxis.set_major_locator(ticker.FixedLocator(at if len(at) < 9 else at[:: len(at) // 8 + 1]))
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(x_text or (lambda value, _: f"{value:g}")))
        panel.xaxis.set_minor_locator(ticker.NullLocator())
    ratios.set_ylim(min(0.7, ratios.get_ylim()[0]), max(1.4, ratios.get_ylim()[1]))
    ratios.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    ratios.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ratios.yaxis.set_minor_locator(ticker.NullLocator())
    values.legend()
    figure.supxlabel(source_of(rows[0]), fontsize=6, color="gray")
    figure.savefig(out, metadata={"Date": None})
    pyplot.close(figure)
    print(out)


def number_in(pattern, row):
    found = re.search(pattern, row["metric"])
    if not found:
        refuse(f"a row measures '{row['metric']}'")
    return int(found[1])


def main(about, benches, needs, figures):
    """`figures(rows)` yields for each figure the words that tell it from others of a file, its rows, and what else `draw` is given.
    `needs`: fields that must be numbers."""
    parser = Parser(description=about)
    parser.add_argument("rows", type=pathlib.Path, nargs="+", help="JSON that sluice-bench, or bench_apps.py, has written")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/plots"), help="folder of the SVG files")
    options = parser.parse_args()
    make_folder(options.out)
    for path in options.rows:
        drawn = 0
        for words, rows, how in figures(rows_of(path, benches, needs)):
            how["title"] = ", ".join([how["title"], *words])
            draw(rows, options.out / ("-".join([path.stem, *words]).replace(" ", "") + ".svg"), **how)
            drawn += 1
        if not drawn:
            refuse(f"{path}: no row to draw")


def by_size(about, bench, title, y_label):
    """The script of a figure of rows that differ in their bytes."""

    def figures(rows):
        rows = [row for row in rows if row["bytes"] > 0]  # of nothing there is no place on a logarithmic axis
        for words, some in groups_of(rows, ("metric",)):
            yield words, some, {"title": title, "x_of": lambda row: row["bytes"], "x_label": "message (bytes)", "x_text": bytes_text,
                                "y_label": f"{y_label} ({some[0]['unit']})"}

    main(about, [bench], ["bytes"], figures)
