# SPDX-License-Identifier: Apache-2.0
"""Bandwidth against the size of the message."""

import panels

if __name__ == "__main__":
    panels.by_size(__doc__, "bandwidth", "Bandwidth: windows of messages in one direction", "bandwidth")
