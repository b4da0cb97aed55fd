# SPDX-License-Identifier: Apache-2.0
"""Bandwidth against the size of the message."""

import panels

if __name__ == "__main__":
    panels.by_size(__doc__, "bandwidth", "Bandwidth: windows of messages one way", "bandwidth", usual=("floor", "mpi", "mpi_put_flush"))
