# SPDX-License-Identifier: Apache-2.0
"""Messages a second against their size."""

import panels

if __name__ == "__main__":
    panels.by_size(__doc__, "rate", "Message rate: windows of small messages one way", "messages", usual=("floor", "mpi"))
