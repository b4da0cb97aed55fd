# SPDX-License-Identifier: Apache-2.0
"""The time of a step with its halo against the size of a message."""

import panels

if __name__ == "__main__":
    panels.by_size(__doc__, "halo", "Halo: a step, each rank sends to all its neighbours", "time of a step", usual=("mpi_persistent",))
