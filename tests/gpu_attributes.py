#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What CUDA's driver says of this machine's first GPU, as JSON: what decides which of the library's ways are possible there."""

import ctypes
import json
import sys

# Of CUdevice_attribute, in cuda.h.
NUMBERS = {"compute_capability_major": 75, "compute_capability_minor": 76, "multiprocessors": 16, "copy_engines": 40}
GPUDIRECT_RDMA, FLUSH_WRITES_OPTIONS, WRITES_ORDERING, POOL_HANDLE_TYPES = 116, 117, 118, 119
FLUSHES = {1: "host", 2: "stream operations"}
ORDERINGS = {0: "none", 100: "owner", 200: "all devices"}
HANDLES = {1: "file descriptor", 2: "win32", 4: "win32_kmt", 8: "fabric"}


def bits(value, names):
    return ", ".join(name for bit, name in names.items() if value & bit) or "none"


def main():
    driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    for call in (lambda: driver.cuInit(0), lambda: driver.cuDeviceGet(ctypes.byref(device), 0)):
        error = call()
        if error:
            print(f"the driver answers with error {error}")
            return 1

    def attribute(number):
        """None: this driver does not know it."""
        value = ctypes.c_int()
        return None if driver.cuDeviceGetAttribute(ctypes.byref(value), number, device) else value.value

    found = {name: attribute(number) for name, number in NUMBERS.items()}
    ordering = attribute(WRITES_ORDERING)
    found |= {"gpudirect_rdma": bool(attribute(GPUDIRECT_RDMA)),
              "flush_writes_options": bits(attribute(FLUSH_WRITES_OPTIONS) or 0, FLUSHES),
              "writes_ordering": ORDERINGS.get(ordering, ordering),
              "pool_handle_types": bits(attribute(POOL_HANDLE_TYPES) or 0, HANDLES)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
