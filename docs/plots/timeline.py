# SPDX-License-Identifier: Apache-2.0
"""Some steps of a timeline: what the streams and engines of each rank did, and the messages between them."""

import collections
import json
import pathlib

import panels
from panels import pyplot, refuse

# Waits are pale. Names of the program's own slices get the rest of the colours, the most frequent first.
COLOURS = {"put": "C0", "post": "C9", "post credit": "lightblue", "release": "C8", "wait": "lightgray", "wait for credit": "mistyrose",
           "wait for source": "thistle", "wait for the peer's copy": "thistle", "host waits": "khaki", "synchronize": "khaki"}
GROUPS = {"start", "wait for all", "wait for credits", "release all"}  # of a plan: its parts are drawn
OTHERS = ["C1", "C2", "C3", "C4", "C5", "C6"]
BAR = 0.8  # of the height of a track
MARGIN = 0.02  # of the steps, before and after them
ARROW = "#10306e"


def events_of(path):
    try:
        events = json.loads(path.read_text())["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"}
        arrows = collections.defaultdict(dict)
        puts = {(*place_of(event), event["ts"]): event["args"] for event in slices if event["name"] == "put"}
        for event in events:
            if event["ph"] in ("s", "t", "f"):
                arrows[event["id"]][event["ph"]] = event
            if event["ph"] == "s":
                arrows[event["id"]]["put"] = puts.get((*place_of(event), event["ts"]), {})
    except (OSError, ValueError, KeyError, TypeError) as reason:
        refuse(f"{path}: no timeline: {reason!r}")
    whole = [arrow for arrow in arrows.values() if {"s", "f"} <= arrow.keys()]
    if not slices or not whole:
        refuse(f"{path}: a timeline without messages")
    return slices, tracks, sorted(whole, key=lambda arrow: arrow["s"]["ts"])


def window_of(slices, arrows, steps):
    """From when to when: so many steps, from the first of their puts until all ranks have put for the step after them. A step is an epoch
    of the channels that have the most. Of all such windows, those in which the program does most kinds of work (a program may first send
    without computing); of these, the one of median length."""
    channels = collections.defaultdict(dict)
    for arrow in arrows:
        channels[arrow["s"]["pid"], arrow["put"].get("channel")][arrow["put"].get("epoch", 0)] = arrow
    most = max(len(epochs) for epochs in channels.values())
    busy = [[arrow for _, arrow in sorted(epochs.items())] for epochs in channels.values() if len(epochs) == most]
    windows = collections.defaultdict(list)
    for first in range(max(1, most - steps)):
        some = [arrow for channel in busy for arrow in channel[first: first + steps]]
        after = [channel[first + steps]["s"]["ts"] for channel in busy if first + steps < most]
        begin, end = min(arrow["s"]["ts"] for arrow in some), max([arrow["f"]["ts"] for arrow in some] + after)
        windows[len({piece["name"] for piece in shown(slices, begin, end) if is_work(piece)})].append((begin, end))
    busiest = windows[max(windows)]
    begin, end = sorted(busiest, key=lambda window: window[1] - window[0])[len(busiest) // 2]
    margin = MARGIN * (end - begin)
    return begin - margin, end + margin


def shown(slices, begin, end):
    return [piece for piece in slices if piece["ts"] < end and piece["ts"] + piece["dur"] > begin]


def is_work(piece):
    return piece["name"] not in COLOURS and piece["name"] not in GROUPS and not piece["name"].startswith("fence")


def place_of(event):
    return event["pid"], event["tid"]


def levels_of(slices):
    """Yields each slice of a track with the number of slices that contain it."""
    open_until = []
    for piece in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
        while open_until and open_until[-1] <= piece["ts"]:
            open_until.pop()
        yield piece, len(open_until)
        open_until.append(piece["ts"] + piece["dur"])


def colours_of(slices):
    names = {piece["name"] for piece in slices}
    others = collections.Counter(piece["name"] for piece in slices if is_work(piece))
    return {name: COLOURS[name] for name in COLOURS if name in names} | dict(zip((name for name, _ in others.most_common()), OTHERS))


def draw(path, out, steps):
    slices, tracks, arrows = events_of(path)
    begin, end = window_of(slices, arrows, steps)
    pieces = shown(slices, begin, end)
    rows = {place: row for row, place in enumerate(sorted({place_of(piece) for piece in pieces}))}
    colours = colours_of(pieces)
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.55 * len(rows)), layout="constrained")
    for place, row in rows.items():
        for piece, level in levels_of([piece for piece in pieces if place_of(piece) == place]):
            if piece["name"] not in colours:
                continue
            height = BAR / (1 + 0.35 * level)
            axes.broken_barh([(piece["ts"] - begin, piece["dur"])], (row - height / 2, height), color=colours[piece["name"]],
                             edgecolor="black", linewidth=0.2)
    for arrow in arrows:
        stops = [arrow[phase] for phase in "stf" if phase in arrow]
        if stops[0]["ts"] < begin or stops[-1]["ts"] > end or not all(place_of(stop) in rows for stop in stops):
            continue
        for at, to in zip(stops, stops[1:]):
            axes.annotate("", (to["ts"] - begin, rows[place_of(to)]), (at["ts"] - begin, rows[place_of(at)]),
                          arrowprops={"arrowstyle": "-|>", "linewidth": 1.1, "color": ARROW, "shrinkA": 0, "shrinkB": 0})
        axes.plot(stops[0]["ts"] - begin, rows[place_of(stops[0])], "o", color=ARROW, markersize=3.5)
    axes.set(xlim=(0, end - begin), ylim=(len(rows) - 0.5, -0.5), xlabel="time (us)", title=f"{steps} step{'s' * (steps > 1)}: streams, engines, and messages as arrows")
    axes.set_yticks(range(len(rows)), [f"rank {rank}, {tracks.get((rank, track), track)}" for rank, track in rows])
    axes.grid(axis="y", visible=False)
    handles = [pyplot.Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="black", linewidth=0.2) for colour in colours.values()]
    handles.append(pyplot.Line2D([], [], color=ARROW, linewidth=1.1, marker="o", markersize=3.5))
    axes.legend(handles, [*colours, "message: from its put to its wait"], loc="upper center", bbox_to_anchor=(0.5, -0.75 / (1 + 0.45 * len(rows))), ncols=5)
    figure.savefig(out, dpi=160, metadata={"Date": None} if out.suffix == ".svg" else None)
    pyplot.close(figure)
    print(out)


def main():
    parser = panels.Parser(description=__doc__)
    parser.add_argument("timelines", type=pathlib.Path, nargs="+", help="what a program has written that was given --trace FILE")
    parser.add_argument("--steps", type=int, default=2, help="how many, in the middle of the run; default: 2")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="default: svg")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/plots"), help="folder of the figures")
    options = parser.parse_args()
    if options.steps < 1:
        refuse("--steps: a whole number from 1 on")
    panels.make_folder(options.out)
    for path in options.timelines:
        draw(path, options.out / f"{path.stem}.{options.format}", options.steps)


if __name__ == "__main__":
    main()
