# SPDX-License-Identifier: Apache-2.0
"""Bandwidth against the size of the message."""

import panels

if __name__ == "__main__":
    panels.main(__doc__, panels.by_size("Bandwidth: windows of messages in one direction", "bandwidth"))
