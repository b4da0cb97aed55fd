# SPDX-License-Identifier: Apache-2.0
"""The latency of pairs of ranks that communicate at once against their number."""

import panels


def figures(rows):
    for words, some in panels.groups_of(rows, ("bytes",)):
        title = f"Pairs that talk at once, messages of {panels.bytes_text(some[0]['bytes'])}"
        yield words, some, {"title": title, "x_of": lambda row: row["pairs"], "x_label": "pairs of ranks",
                            "y_label": f"time one way ({some[0]['unit']})"}


if __name__ == "__main__":
    panels.main(__doc__, ["scale"], ["bytes", "pairs"], figures)
