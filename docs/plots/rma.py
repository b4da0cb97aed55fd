# SPDX-License-Identifier: Apache-2.0
"""The time of accesses to a window: a figure against the size for each that was measured with several, and one of the others."""

import panels


def figures(rows):
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    sizes = {metric: {row["bytes"] for row in rows if row["metric"] == metric} for metric in metrics}
    for words, some in panels.groups_of([row for row in rows if len(sizes[row["metric"]]) > 1], ("metric",)):
        yield words, some, {"title": f"Windows: {some[0]['metric']}", "x_of": lambda row: row["bytes"], "x_label": "access (bytes)",
                            "x_text": panels.bytes_text, "y_label": f"time ({some[0]['unit']})"}
    single = [metric for metric in metrics if len(sizes[metric]) == 1]
    for words, some in panels.groups_of([row for row in rows if row["metric"] in single]):
        yield [*words, "words"], some, {
            "title": "Windows: accesses of one size", "x_of": lambda row: 1 + single.index(row["metric"]), "x_label": "",
            "x_text": lambda place, _: single[round(place) - 1].replace(" ", "\n"), "y_label": f"time ({some[0]['unit']})", "apart": True}


if __name__ == "__main__":
    panels.main(__doc__, ["rma"], ["bytes"], figures)
