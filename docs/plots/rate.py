# SPDX-License-Identifier: Apache-2.0
"""Messages a second against their size."""

import panels

if __name__ == "__main__":
    panels.main(__doc__, panels.by_size("Message rate: windows of small messages in one direction", "messages"))
