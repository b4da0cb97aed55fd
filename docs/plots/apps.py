# SPDX-License-Identifier: Apache-2.0
"""The time of an application's step against the size of its mesh."""

import panels


def figures(rows):
    for app in dict.fromkeys(row["bench"] for row in rows):
        for words, some in panels.groups_of([row for row in rows if row["bench"] == app]):
            yield [app, *words], some, {
                "title": f"{app}: a step, with Sluice and with MPI", "x_of": lambda row: panels.number_in(r"step, (\d+) x", row),
                "x_label": "cells along each side of a rank's mesh", "y_label": f"time of a step ({some[0]['unit']})"}


if __name__ == "__main__":
    panels.main(__doc__, ["jacobi", "jacobi_3d", "faces_3d", "heat", "heat_3d", "life"], [], figures)
