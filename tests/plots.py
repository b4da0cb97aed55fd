#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/plots, from rows that the benches write now.

    tests/plots.py --bin build/release/bin --source .
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# bench: its ranks, its flags, and what its figure says
BENCHES = {
    "latency": (2, ["--sizes", "0:64", "--against", "floor"], ["message (bytes)", "time one way (us)", "floor", "Sluice's speed", "8 B"]),
    "bandwidth": (2, ["--sizes", "1k:4k", "--against", "floor"], ["message (bytes)", "bandwidth (MB/s)", "floor", "4 KiB"]),
    "rate": (2, ["--sizes", "8:64"], ["message (bytes)", "messages (million/s)", "64 B"]),
    "halo": (2, ["--sizes", "8:64"], ["message (bytes)", "time of a step (us)", "4 neighbours"]),
    "rma": (2, ["--sizes", "64,4k"], ["time (us)", "floor", "Sluice's speed"]),
    "model": (2, ["--sizes", "8,64,512"], ["message (bytes)", "predicted"]),
    "scale": (4, ["--sizes", "8"], ["pairs of ranks", "time one way (us)", "one_pair"]),
}


def python_with_matplotlib():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0:
            return python
    return None


def words_of(figure):
    return re.findall(r"<text[^>]*>([^<]*)</text>|<tspan[^>]*>([^<]*)</tspan>", figure.read_text())


def words_in(figure):
    return " ".join(word for pair in words_of(figure) for word in pair)


def expect(holds, what):
    if not holds:
        sys.exit(f"plots: {what}")


def app_rows(row):
    """As bench_apps.py writes them: by the rows of another bench."""
    return [{**row, "bench": app, "metric": f"step, {cells} x {cells} per rank", "bytes": None}
            for app in ("jacobi", "life") for cells in (64, 128)]


def draw(folder, source, python, script, files, *flags):
    files = [files] if isinstance(files, pathlib.Path) else files
    return subprocess.run([python, "-B", source / "docs/plots" / f"{script}.py", *files, "--out", folder, *flags], capture_output=True, text=True)


def machine_of(rows):
    """What a figure of these rows says of the machine and the day; nothing, if they are not of a bench."""
    rows = json.loads(rows.read_text())
    return [f"{rows[0]['cpu'] or 'unknown processor'}, {rows[0]['date'][:10]}"] if isinstance(rows, list) else []


def check_figures(folder, source, python, bench, rows, said, *flags):
    drawn = draw(folder, source, python, bench, rows, *flags)
    expect(drawn.returncode == 0, f"{bench}: {drawn.stderr}")
    figures = [pathlib.Path(line) for line in drawn.stdout.split()]
    expect(figures, f"{bench}: no figure")
    for figure in figures:
        words = {word for pair in words_of(figure) for word in pair}
        for text in [*said, *machine_of(rows)]:
            expect(any(text in word for word in words), f"{figure.name} does not say '{text}'")


def check_rivals(folder, source, python):
    """A figure shows its usual rivals, those that are asked for, or all; and rows of a machine that does not name its processor."""
    rows = folder / "rivals.json"
    written = json.loads((folder / "latency.json").read_text())
    floor = {**written[0]["rivals"]["floor"], "interval": [0.5, 0.9]}
    others = [f"other_{number}" for number in range(8)]
    rows.write_text(json.dumps([{**row, "cpu": None, "rivals": dict.fromkeys(["floor", *others], floor)} for row in written]))
    check_figures(folder, source, python, "latency", rows, ["unknown processor", "floor"])
    expect("other_1" not in words_in(folder / "rivals.svg"), "a figure shows rivals that nobody asked for")
    check_figures(folder, source, python, "latency", rows, ["other_1"], "--against", "other_1")
    expect("floor" not in words_in(folder / "rivals.svg"), "--against does not choose")
    check_figures(folder, source, python, "latency", rows, ["floor", *others], "--against", "all")
    refused = draw(folder, source, python, "latency", rows, "--against", "nothing")
    expect(refused.returncode == 2 and "no rival 'nothing' (there are floor," in refused.stderr, f"--against nothing: {refused.stderr}")


def wrong_rows(folder):
    good = json.loads((folder / "latency.json").read_text())
    return {"none": None, "text": "no JSON", "other": '[{"bench": "latency"}]', "empty": "[]", "strings": '["bench"]',
             "another": json.dumps([{**good[-1], "bench": "rate"}]), "nothing": json.dumps([{**good[-1], "bytes": 0}]),
             **{f"no_{field}": json.dumps([*good, {**good[-1], field: None}]) for field in ("bytes", "rivals", "date", "p50", "backend")},
             "rival": json.dumps([{**good[-1], "rivals": {"floor": {"what": "", "p50": 1.0, "ratio": None}}}])}


def check_refused(folder, source, python, figure, wrong):
    for name, text in wrong.items():
        path = folder / f"{name}.json"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        refused = draw(folder, source, python, figure, path)
        expect(refused.returncode == 2 and refused.stderr.count("\n") == 1 and str(path) in refused.stderr,
               f"a file that is '{name}' is refused with {refused.returncode}: {refused.stderr}")


def check_png(path):
    expect(path.exists() and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000, f"{path.name} is no picture")


FIELD_OF_HEAT = """
import numpy, sys
cells = numpy.load(sys.argv[1])
assert cells.dtype.names == ("value", "rank") and cells.shape == (6, 8, 10), (cells.dtype, cells.shape)
assert sorted(numpy.unique(cells["rank"])) == [0, 1, 2] and abs(cells["value"].mean() - 1) < 1e-9, cells["value"].mean()
"""


def check_fields(folder, binaries, source, python):
    """Programs write their fields, and field.py draws them: a plane, and since when cells of life are alive."""
    run, life, heat = (binaries / name for name in ("sluice-run", "life", "heat"))
    acorn = source / "apps/life/patterns/acorn.rle"
    for command in ([heat, "--dims", "3", "--nx", "10", "--ny", "8", "--nz", "6", "-t", "5", "--field", folder / "heat.npy"],
                    [life, "--pattern", acorn, "--nx", "40", "--ny", "30", "-t", "60", "-F", "30", "--field", folder / "life.npy"]):
        ran = subprocess.run([run, "-n", "3", *command], capture_output=True, text=True)
        expect(ran.returncode == 0, f"{command[0].name} --field: {ran.stdout}{ran.stderr}")
    read = subprocess.run([python, "-c", FIELD_OF_HEAT, folder / "heat.npy"], capture_output=True, text=True)
    expect(read.returncode == 0, f"--field: {read.stderr}")
    grown = [folder / "life_000030.npy", folder / "life_000060.npy"]
    for name, fields, flags in (("heat", [folder / "heat.npy"], ["--label", "temperature"]), ("life", [folder / "life.npy"], []), ("life", grown, ["--growth"])):
        (folder / f"{name}.png").unlink(missing_ok=True)
        drawn = draw(folder, source, python, "field", fields, *flags)
        expect(drawn.returncode == 0 and drawn.stdout.split() == [str(folder / f"{name}.png")], f"field.py {name}: {drawn.stdout}{drawn.stderr}")
        check_png(folder / f"{name}.png")
    (folder / "text.npy").write_text("no field")
    for fields, flags in (([folder / "text.npy"], []), ([folder / "missing.npy"], []), ([folder / "life.npy"], ["--growth"])):
        refused = draw(folder, source, python, "field", fields, *flags)
        expect(refused.returncode == 2 and refused.stderr.count("\n") == 1 and str(fields[0]) in refused.stderr,
               f"field.py {fields[0].name} is refused with {refused.returncode}: {refused.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    options = parser.parse_args()
    python = python_with_matplotlib()
    if python is None:
        print("SKIPPED-HERE: plots: matplotlib is not installed")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for bench, (ranks, flags, said) in BENCHES.items():
            rows = folder / f"{bench}.json"
            command = [options.bin / "sluice-run", "-n", str(ranks), options.bin / "sluice-bench", bench, *flags, "--no-pin", "--rounds", "1", "--json", rows]
            ran = subprocess.run(command, capture_output=True, text=True)
            expect(ran.returncode == 0, f"sluice-bench {bench}: {ran.stdout}{ran.stderr}")
            check_figures(folder, options.source, python, bench, rows, said)
        rows = folder / "apps.json"
        rows.write_text(json.dumps(app_rows(json.loads((folder / "latency.json").read_text())[0])))
        check_figures(folder, options.source, python, "apps", rows, ["cells along each side", "time of a step (us)"])
        two = folder / "two.json"
        rows = json.loads((folder / "latency.json").read_text())
        two.write_text(json.dumps([*rows, *({**row, "stream": "host"} for row in rows)]))
        check_figures(folder, options.source, python, "latency", two, ["message (bytes)"])
        expect((folder / "two-host.svg").exists() and (folder / "two-program.svg").exists(), "rows of two streams are not two figures")
        timeline = folder / "timeline.json"
        # Fewer iterations than exchanges that warm up: steps are drawn nevertheless.
        jacobi = [options.bin / "sluice-run", "-n", "2", "--trace", timeline, options.bin / "jacobi", "--niter", "3", "--nx", "64", "--ny", "64"]
        if jacobi[5].exists():
            expect(subprocess.run(jacobi, capture_output=True).returncode == 0, "jacobi --trace")
            check_figures(folder, options.source, python, "timeline", timeline, ["rank 1, host", "put", "interior", "time (us)"])
            drawn = draw(folder, options.source, python, "timeline", timeline, "--steps", "2", "--format", "png")
            expect(drawn.returncode == 0, f"timeline.py --format png: {drawn.stderr}")
            check_png(folder / "timeline.png")
            check_fields(folder, options.bin, options.source, python)
            check_refused(folder, options.source, python, "timeline", {"none": None, "text": "no JSON", "rows": "[]", "empty": '{"traceEvents":[]}'})
        check_rivals(folder, options.source, python)
        check_refused(folder, options.source, python, "latency", wrong_rows(folder))


if __name__ == "__main__":
    main()
