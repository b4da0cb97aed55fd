# SPDX-License-Identifier: Apache-2.0
"""The latency of pairs of ranks that talk at once against their number."""

import panels


def figures(rows):
    sizes = sorted({row["bytes"] for row in rows})
    for size in sizes:
        some = [row for row in rows if row["bytes"] == size]
        yield (f"-{size}" if len(sizes) > 1 else "", some,
               {"title": f"Pairs that talk at once, messages of {panels.bytes_text(size)}", "x_of": lambda row: row["pairs"],
                "x_label": "pairs of ranks", "y_label": f"time one way ({some[0]['unit']})"})


if __name__ == "__main__":
    panels.main(__doc__, figures)
