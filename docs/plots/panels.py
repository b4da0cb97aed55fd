# SPDX-License-Identifier: Apache-2.0
"""Common code of the figures: draws rows of the bench as two panels, the values above and the ratios below."""

import argparse
import json
import pathlib
import re
import sys
import textwrap

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "sluice", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3,
                            "lines.marker": "o", "lines.markersize": 3, "legend.fontsize": 8, "legend.frameon": False})
from matplotlib import pyplot, ticker  # noqa: E402  (the backend is chosen first)

OURS = {"color": "black", "linewidth": 2, "marker": "o", "zorder": 3}
# The text and the look of the most frequent rivals. The colours are those of Okabe and Ito, which colour-blind people can distinguish; the
# markers differ too.
LINES = {"floor": ("floor: memcpy\nand a flag", {"color": "gray", "linestyle": "--", "marker": ""}),
         "protocol_floor": ("floor with\ncredits", {"color": "gray", "linestyle": ":", "marker": ""}),
         "mpi": ("MPI send,\nreceive", {"color": "#0072B2", "marker": "s"}),
         "mpi_persistent": ("MPI persistent\nrequests", {"color": "#CC79A7", "marker": "D"}),
         "mpi_put_flush": ("MPI put, flush,\nflag", {"color": "#D55E00", "marker": "^"})}
OTHER_LINES = [{"color": color, "marker": marker}
               for color, marker in zip(("#009E73", "#E69F00", "#56B4E9", "#0072B2", "#D55E00", "#CC79A7"), "vP*sD^")]
OLDER_STREAMS = {"inline": "program"}
STREAMS = {"program": "program order", "host": "host stream", "cuda": "CUDA stream", "hip": "HIP stream"}
MEMORIES = {"allocated": "allocated memory", "user": "malloc'ed memory"}
SIZE = (5.2, 4.7)  # inches: two figures stand side by side on a page
LABEL_HEIGHT = 0.17  # inches that a line of a label takes
TEXT, NUMBER, MAYBE = (str,), (int, float), (str, int, type(None))
FIELDS = {"bench": TEXT, "metric": TEXT, "unit": TEXT, "backend": TEXT, "stream": TEXT, "memory": TEXT, "version": TEXT, "date": TEXT,
          "cpu": MAYBE, "gpu": MAYBE, "driver": MAYBE, "fired_by": MAYBE, "p50": NUMBER,
          "ranks": NUMBER, "depth": NUMBER, "window": NUMBER, "rounds": NUMBER, "rivals": (dict,)}
# The rows of one line agree in these fields, and the figure shows them. The figure's file is named by those that differ within the JSON.
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
    """The reason why a row cannot be drawn; None if it can."""
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
        row["stream"] = OLDER_STREAMS.get(row["stream"], row["stream"])
    return rows


def groups_of(rows, more=()):
    """Yields for each line the text that distinguishes it from the other lines of these rows, and its rows."""
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


def source_of(row, more):
    """The head of a figure: processor and date, how it was measured, and `more`."""
    machine = ", ".join(str(part) for part in (row["cpu"] or "unknown processor", row["gpu"], row["driver"]) if part)
    ways = [f"{row['ranks']} ranks", row["backend"], STREAMS.get(row["stream"], row["stream"]), MEMORIES.get(row["memory"], row["memory"]),
            f"depth {row['depth']}", *([f"windows of {row['window']}"] if row["window"] > 1 else []),
            *([f"fired by {row['fired_by']}"] if row["fired_by"] else []), *more]
    lines = textwrap.wrap(", ".join(way.replace(" ", "\u00a0") for way in ways), 82)  # lines break between ways, not in them
    lines = [line.replace("\u00a0", " ") for line in lines]
    return [f"{machine}, {row['date'][:10]}", *lines, f"medians of {row['rounds']} rounds, Sluice {row['version']}"]


def names_of_rivals(rows):
    return list(dict.fromkeys(name for row in rows for name in row["rivals"]))


def shown_rivals(rows, usual, against):
    """The rivals that get a line: those of --against, else the usual ones of this figure, or all if it has none of these."""
    there = names_of_rivals(rows)
    if against == ["all"]:
        return there
    missing = [name for name in against or [] if name not in there]
    if missing:
        refuse(f"no rival '{missing[0]}' (there are {', '.join(there)})")
    return against or [name for name in usual if name in there] or there


def styles_of(names):
    """For each rival the text and the look of its line."""
    others = iter(OTHER_LINES * (1 + len(names) // len(OTHER_LINES)))
    return {name: LINES[name] if name in LINES else (name, next(others)) for name in names}


def spread(wanted, heights):
    """Places near the wanted ones, none above 1, that keep each label's height of room."""
    order = sorted(range(len(wanted)), key=lambda n: wanted[n], reverse=True)
    places = list(wanted)
    for _ in range(100):
        top = 1.03
        for n, below in zip(order, [*order[1:], None]):
            places[n] = min(places[n], top - heights[n] / 2)
            top = places[n] - heights[n] / 2
            gap = None if below is None else top - places[below] - heights[below] / 2
            if gap is not None and gap < 0:
                places[n] -= gap / 2  # each of the two gives way, the lower one when its turn comes
                top -= gap / 2
    return places


def label_lines(figure, panel, labels):
    """Writes the label of each line at its right end: `labels` are (height of the end, text, colour)."""
    figure.canvas.draw()  # sizes are known from here on
    inches = panel.get_window_extent().height / figure.dpi
    ends = [panel.transAxes.inverted().transform(panel.transData.transform((1, end)))[1] for end, _, _ in labels]
    heights = [LABEL_HEIGHT * (1 + text.count("\n")) / inches for _, text, _ in labels]
    for place, (_, text, color) in zip(spread(ends, heights), labels):
        panel.text(1.02, place, text, transform=panel.transAxes, color=color, va="center", fontsize=8.5, linespacing=1)


def scale_axes(values, ratios, at, x_text):
    for panel in (values, ratios):
        panel.xaxis.set_major_locator(ticker.FixedLocator(at if len(at) < 8 else at[:: (len(at) + 5) // 6]))
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(x_text or (lambda value, _: f"{value:g}")))
        panel.xaxis.set_minor_locator(ticker.NullLocator())
    low, high = values.get_ylim()
    values.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,)))
    ratios.set_ylim(min(0.7, ratios.get_ylim()[0]), max(1.4, ratios.get_ylim()[1]))
    low, high = ratios.get_ylim()
    ratios.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if high / low < 4 else (1, 2, 5)))
    for axis, end in ((values.yaxis, ""), (ratios.yaxis, "x")):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _, end=end: f"{value:g}{end}"))
        axis.set_minor_locator(ticker.NullLocator())


def draw(rows, out, title, x_of, x_label, y_label, x_text=None, more=(), usual=(), against=None, apart=False):
    """One figure: `x_of(row)` is the place of a row on the x axis. `apart`: no line joins the rows, and the axis is linear."""
    rows = sorted(rows, key=x_of)
    figure, (values, ratios) = pyplot.subplots(2, 1, sharex=True, figsize=SIZE, height_ratios=(3, 2))
    head = source_of(rows[0], more)
    figure.subplots_adjust(left=0.15, right=0.76, top=1 - (0.45 + 0.14 * len(head)) / SIZE[1], bottom=0.1, hspace=0.1)
    at = [x_of(row) for row in rows]
    look = {"linestyle": ""} if apart else {}
    values.plot(at, [row["p50"] for row in rows], **OURS | look)
    ratios.axhline(1, color="black", linewidth=2, marker="")
    ends, below = [(rows[-1]["p50"], "Sluice", "black")], [(1, "Sluice", "black")]
    for name, (text, line) in styles_of(shown_rivals(rows, usual, against)).items():
        line = line | look | ({"marker": line["marker"] or "_"} if apart else {})
        theirs = [(x_of(row), row["rivals"][name]) for row in rows if row["rivals"].get(name)]
        values.plot([x for x, _ in theirs], [rival["p50"] for _, rival in theirs], **line)
        ratios.plot([x for x, _ in theirs], [rival["ratio"] for _, rival in theirs], **line)
        known = [(x, *rival["interval"]) for x, rival in theirs if rival.get("interval")]
        if known and not apart:
            ratios.fill_between(*zip(*known), color=line["color"], alpha=0.2, linewidth=0)
        ends.append((theirs[-1][1]["p50"], text, line["color"]))
        below.append((theirs[-1][1]["ratio"], text, line["color"]))
    values.margins(x=0.2 if apart else 0.05)
    values.set(ylabel=y_label, xscale="linear" if apart else "log", yscale="log")
    ratios.set(xlabel=x_label, ylabel="Sluice's speed /\nthe other's", yscale="log")
    scale_axes(values, ratios, at, x_text)
    label_lines(figure, values, ends)
    if len(below) <= 5:  # more have no room here, and are named above
        label_lines(figure, ratios, below)
    figure.text(0.02, 1 - 0.07 / SIZE[1], title, fontsize=10, fontweight="bold", va="top")
    figure.text(0.02, 1 - 0.29 / SIZE[1], "\n".join(head), fontsize=8, color="dimgray", va="top")
    figure.savefig(out, metadata={"Date": None})
    pyplot.close(figure)
    print(out)


def number_in(pattern, row):
    found = re.search(pattern, row["metric"])
    if not found:
        refuse(f"a row measures '{row['metric']}'")
    return int(found[1])


def main(about, benches, needs, figures, usual=()):
    """`figures(rows)` yields for each figure the words that tell it from others of a file, its rows, and what else `draw` is given.
    `needs`: fields that must be numbers. `usual`: the rivals that are shown unless --against names others."""
    parser = Parser(description=about)
    parser.add_argument("rows", type=pathlib.Path, nargs="+", help="JSON that sluice-bench, or bench_apps.py, has written")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/plots"), help="folder of the SVG files")
    parser.add_argument("--against", type=lambda names: names.split(","), metavar="NAME,...",
                        help="the rivals that get a line, or 'all'; default: " + (", ".join(usual) or "all"))
    options = parser.parse_args()
    make_folder(options.out)
    for path in options.rows:
        drawn = 0
        for words, rows, how in figures(rows_of(path, benches, needs)):
            draw(rows, options.out / ("-".join([path.stem, *words]).replace(" ", "") + ".svg"), usual=usual, against=options.against, **how)
            drawn += 1
        if not drawn:
            refuse(f"{path}: no row to draw")


def by_size(about, bench, title, y_label, usual=()):
    """The script of a figure of rows that differ in their bytes."""

    def figures(rows):
        rows = [row for row in rows if row["bytes"] > 0]  # a logarithmic axis has no place for 0
        for words, some in groups_of(rows, ("metric",)):
            metric = [] if some[0]["metric"] in title.lower() else [some[0]["metric"]]
            yield words, some, {"title": title, "more": metric, "x_of": lambda row: row["bytes"], "x_label": "message (bytes)", "x_text": bytes_text,
                                "y_label": f"{y_label} ({some[0]['unit']})"}

    main(about, [bench], ["bytes"], figures, usual)
