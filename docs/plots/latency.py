# SPDX-License-Identifier: Apache-2.0
"""Half a round trip against the size of the message."""

import panels

if __name__ == "__main__":
    panels.by_size(__doc__, "latency", "Latency: half of a ping-pong", "time one way", usual=("floor", "mpi", "mpi_put_flush"))
