#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The networks with another libfabric than the one that this was compiled with: the one in the folder that SLUICE_USER_LIBFABRIC names.

    SLUICE_USER_LIBFABRIC=FOLDER ctest -R other_libfabric     the folder holds its libfabric.so.1
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

# A provider, its name in the names of tests, and the suites that it runs: those with deferred work are slow.
GROUNDS = [("ofi:tcp", "ofi_tcp", ["OneWay", "Epochs", "Credits", "Plans", "Closing"]),
           ("ofi:shm", "ofi_shm", ["OneWay", "Epochs", "Credits"]),
           ("ofi:sockets", "ofi_sockets", ["OneWay", "Epochs", "Credits", "Plans", "Closing"]),
           ("emucxi", "emucxi", ["Epochs", "Closing"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    options = parser.parse_args()
    folder = pathlib.Path(os.environ.get("SLUICE_USER_LIBFABRIC", ""))
    if not (folder / "libfabric.so.1").is_file():
        print("SKIPPED-HERE: other_libfabric: SLUICE_USER_LIBFABRIC names no folder with a libfabric.so.1")
        return 0
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    shown = subprocess.run([options.bin / "sluice-info", "--json"], capture_output=True, text=True, check=True,
                           env=environment)
    providers = {row["name"]: row for row in json.loads(shown.stdout)["providers"]}
    ran, failures = 0, 0
    for name, ground, suites in GROUNDS:
        if not providers.get(name, {}).get("usable"):
            print(f"SKIPPED-HERE: other_libfabric: it has no {name}")
            continue
        print(f"{name} of libfabric {providers[name]['libfabric']}, version {providers[name]['version']}", flush=True)
        tests = ":".join(f"Quick/{suite}.*{ground}*" for suite in suites)
        done = subprocess.run([options.bin / "conformance", f"--gtest_filter={tests}:-*MiB*"], check=False, env=environment)
        ran += 1
        failures += done.returncode != 0
    return 1 if failures or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
