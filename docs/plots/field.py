# SPDX-License-Identifier: Apache-2.0
"""A field that an application has written with --field: its values with a scale, and the borders of the ranks."""

import pathlib
import re

import numpy

import panels
from panels import pyplot, refuse

DEAD = "#0c0e18"  # of a cell
LINES = 12  # of equal value


def field_of(path):
    try:
        cells = numpy.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as reason:
        refuse(f"{path}: {' '.join(str(reason).split())}")
    if getattr(cells, "dtype", None) is None or cells.dtype.names != ("value", "rank") or cells.ndim not in (2, 3) or cells.size == 0:
        refuse(f"{path}: no field that --field has written")
    if not numpy.isfinite(cells["value"]).all():
        refuse(f"{path}: a value is not a finite number")
    return cells


def plane_of(cells):
    """The plane that --image shows: in three dimensions the one at a quarter of z."""
    return cells[len(cells) // 4] if cells.ndim == 3 else cells


def step_of(path):
    found = re.search(r"_(\d+)$", path.stem)
    if not found:
        refuse(f"{path}: --growth takes files that -F has written, with the step in the name")
    return int(found[1])


def growth_of(paths):
    """The plane of the last file, and for each cell the step of the first file since which it lives in every file; 0: it is dead."""
    since, last = None, None
    for path in sorted(paths, key=step_of):
        last = plane_of(field_of(path))
        alive = last["value"] > 0
        since = numpy.zeros(alive.shape, int) if since is None else since
        if alive.shape != since.shape:
            refuse(f"{path}: {alive.shape[1]} x {alive.shape[0]} cells, and another file has {since.shape[1]} x {since.shape[0]}")
        since[alive & (since == 0)] = step_of(path)
        since[~alive] = 0
    return last, since


def scale_of(values):
    """The colours of values: cells dead or alive; around zero; or from zero up."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "u":
        return {"cmap": pyplot.matplotlib.colors.ListedColormap([DEAD, "#dcfac8"]), "vmin": 0, "vmax": 1}
    if low < 0:
        return {"cmap": "RdBu_r", "vmin": -max(-low, high), "vmax": max(-low, high)}
    return {"cmap": "plasma", "vmin": 0, "vmax": high or 1}


def growth_scale(since):
    colours = pyplot.matplotlib.colormaps["viridis"].copy()
    colours.set_under(DEAD)
    return {"cmap": colours, "vmin": min((step for step in numpy.unique(since) if step > 0), default=1), "vmax": max(since.max(), 2)}


def draw_ranks(axes, ranks, colour):
    """The borders between the blocks of ranks, and the name of each rank that has cells in the plane."""
    border = {"colors": colour, "linewidth": 1.2, "linestyle": (0, (5, 3))}
    for rank in numpy.unique(ranks):
        rows, columns = (numpy.flatnonzero((ranks == rank).any(axis=axis)) for axis in (1, 0))
        left, top, right, bottom = columns[0] - 0.5, rows[0] - 0.5, columns[-1] + 0.5, rows[-1] + 0.5
        if columns[0] > 0:
            axes.vlines(left, top, bottom, **border)
        if rows[0] > 0:
            axes.hlines(top, left, right, **border)
        axes.annotate(f"rank {rank}", (left, top), xytext=(6, -6), textcoords="offset points", color=colour, va="top", fontsize=11)


def draw(out, title, values, ranks, scale, label):
    height, width = values.shape
    smooth = values.dtype.kind == "f"
    side = 6.5 * min(1, width / height)  # inches along x
    figure, axes = pyplot.subplots(figsize=(max(side, 3) + 1.9, max(side * height / width, 1.5) + 0.9), layout="constrained")
    image = axes.imshow(values, interpolation="bilinear" if smooth else "nearest", **scale)
    if smooth and values.min() < values.max():
        axes.contour(values, LINES, colors="black", linewidths=0.5, linestyles="solid", alpha=0.5)
    draw_ranks(axes, ranks, "black" if scale["cmap"] == "RdBu_r" else "white")
    figure.colorbar(image, ax=axes, label=label, ticks=None if label else [], shrink=0.9)
    axes.set(title=title, xlabel="x (cells)", ylabel="y (cells)")
    axes.grid(visible=False)
    figure.savefig(out, dpi=160)
    pyplot.close(figure)
    print(out)


def main():
    parser = panels.Parser(description=__doc__)
    parser.add_argument("fields", type=pathlib.Path, nargs="+", help="what a program has written that was given --field FILE")
    parser.add_argument("--growth", action="store_true", help="one picture of all the files of a run of life with -F: since when each cell lives")
    parser.add_argument("--title", help="default: the name of the file")
    parser.add_argument("--label", help="what the scale shows")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/plots"), help="folder of the PNG files")
    options = parser.parse_args()
    if options.growth:
        plane, since = growth_of(options.fields)
        name = options.fields[0].stem.rpartition("_")[0]
        pictures = [(name, since, plane["rank"], growth_scale(since), options.label or "alive since generation")]
    else:
        planes = {}
        for path in options.fields:
            if path.stem in planes:
                refuse(f"{path}: another file has this name, and its picture would be overwritten")
            planes[path.stem] = plane_of(field_of(path))
        pictures = [(name, plane["value"], plane["rank"], scale_of(plane["value"]), options.label or "value") for name, plane in planes.items()]
    panels.make_folder(options.out)
    for name, values, ranks, scale, label in pictures:
        draw(options.out / f"{name}.png", options.title or name, values, ranks, scale, label)


if __name__ == "__main__":
    main()
