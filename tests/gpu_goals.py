# SPDX-License-Identifier: Apache-2.0
"""What is wanted of channels on GPUs, in figures, and which of it the rows of `./dev gpu` reach."""

import dataclasses

KIB, MIB = 1 << 10, 1 << 20
# What does the least that can be done, or the same in another way of ours: no rivals.
FLOORS = {"raw", "raw_host", "eager", "on_streams"}


def of_rows(stage, metric, rival, smallest=0, largest=None):
    """Ratios to a rival (to each that ran: None) in the rows of a stage: above 1 Sluice is better."""
    for row in stage.get("rows", []):
        in_range = smallest <= row["bytes"] and (largest is None or row["bytes"] <= largest)
        for name, beside in row["rivals"].items() if in_range and row["metric"].startswith(metric) else ():
            if beside["ratio"] and (name == rival if rival else name not in FLOORS):
                yield beside["ratio"], f"{row['bytes']} B, beside {name}"


def costs(*about):
    """How many times as much as a rival ours takes."""
    return lambda stages: [(1 / ratio, where) for ratio, where in of_rows(stages[0], *about)]


def gains(*about):
    """How many times as good as a rival ours is."""
    return lambda stages: list(of_rows(stages[0], *about))


def releases(stages):
    """How long it took in ms until what waited was released."""
    for stage in stages:
        yield from ((row["p50"], stage["name"]) for row in stage.get("rows", []))
        yield from ((took, test) for test, took in stage.get("times_ms", {}).items())


@dataclasses.dataclass
class Goal:
    """What is wanted, of the rows of which stages. The worst value counts: it is at most, at least or above the limit."""
    name: str
    how: str
    limit: float
    unit: str
    stages: tuple
    values: object

    def holds(self, value):
        return {"at most": value <= self.limit, "at least": value >= self.limit, "above": value > self.limit}[self.how]

    def outcome(self, stages):
        """As results.json has it. A goal is reached if all of its stages have passed; a value that misses it needs one alone."""
        known = [stages.get(name, {"name": name, "result": "not run", "what": ""}) for name in self.stages]
        values = sorted(self.values(known), reverse=self.how == "at most")
        found = {"goal": self.name, "limit": f"{self.how} {self.limit:g} {self.unit}".strip(), "value": None, "where": ""}
        if values:
            found |= {"value": values[0][0], "where": values[0][1]}
        without = [f"{stage['name']}: {stage['result']}" for stage in known if stage["result"] != "passed"]
        if values and not self.holds(values[0][0]):
            return found | {"result": "missed"}
        if values and not without:
            return found | {"result": "reached"}
        return found | {"result": "not measured", "where": ", ".join(without) or "no such rows"}


GOALS = [
    Goal("the host enqueues a put, beside raw calls", "at most", 1.10, "times", ("bench.stream",), costs("enqueue put", "raw")),
    Goal("from put and signal to the end of the wait, beside raw calls", "at most", 1.10, "times", ("bench.latency",),
         costs("latency", "raw")),
    Goal("bandwidth from 1 MiB on, beside raw copies", "at least", 0.95, "times", ("bench.bandwidth",), gains("bandwidth", "raw", MIB)),
    Goal("quicker than each rival that ran, 8 B to 64 KiB", "above", 1, "times", ("bench.latency",),
         gains("latency", None, 8, 64 * KIB)),
    Goal("a step of a halo of messages up to 4 KiB, beside synchronise, copy and barrier", "at least", 3, "times", ("bench.halo",),
         gains("step", "synchronised", 0, 4 * KIB)),
    Goal("a failure releases what waits", "at most", 1000, "ms", ("released", "bench.failure"), releases),
]


def outcomes(stages):
    """Of a list of stages, as results.json has it."""
    by_name = {stage["name"]: stage for stage in stages}
    return [goal.outcome(by_name) for goal in GOALS]


def lines(goals):
    yield "\n## Goals\n\nOf several rows or tests the worst counts.\n"
    yield "| goal | result | value | limit | |\n|---|---|---|---|---|"
    for goal in goals:
        value = "" if goal["value"] is None else f"{goal['value']:.4g}"
        yield f"| {goal['goal']} | {goal['result']} | {value} | {goal['limit']} | {goal['where']} |"
