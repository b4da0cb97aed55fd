# SPDX-License-Identifier: Apache-2.0
"""What was measured and what LogGP predicted of it, against the size of a message: a figure for each."""

import panels


def figures(rows):
    beside = [row for row in rows if "predicted" in row["rivals"]]
    for words, some in panels.groups_of([row for row in beside if row["bytes"]], ("metric",)):
        yield words, some, {"title": f"Model: {some[0]['metric']}, {some[0]['ranks']} ranks", "x_of": lambda row: row["bytes"],
                            "x_label": "message (bytes)", "x_text": panels.bytes_text, "y_label": f"{some[0]['metric']} ({some[0]['unit']})"}


if __name__ == "__main__":
    panels.main(__doc__, ["model"], ["bytes"], figures)
