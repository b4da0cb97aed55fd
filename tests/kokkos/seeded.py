#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bugs on purpose of include/sluice/kokkos: each must make its tests fail.

usage: seeded.py PROGRAM [BUG ...]    PROGRAM: kokkos_test, which has them
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import seeded  # noqa: E402

BUGS = {
    "unpacked_at_once": "Races.a_kernel_that_reads_ghosts*",
    "view_released_by_wait": "Races.a_view_that_is_read_in_place*",
    "released_early": "Races.a_message_is_not_overwritten*",
    "source_not_acquired": "Races.a_message_is_not_packed*",
    "ghosts_released_early": "Races.ghosts_that_are_filled_in_place*",
    "own_not_acquired": "Races.a_view_is_not_written_before*",
    "slots_not_kept": "Messages.that_cannot_be_packed_on_a_stream*",
    "failed_message_forgotten": "Messages.that_cannot_be_unpacked*",
    "contents_unsaid": "Faults.halos_of_blocks_that_do_not_fit*",
    "failure_forgotten": "Faults.a_halo_in_place_of_a_late_peer_fails",
    "instance_not_awaited": "Races.an_exchange_on_another_instance*",
}


def planted():
    sources = (HERE.parents[1] / "include/sluice/kokkos").glob("*.hpp")
    return {bug for path in sources for bug in re.findall(r'seeded\("(\w+)"\)', path.read_text())}


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    good = True
    for bug in sorted(planted() ^ set(BUGS)):
        print(f"not both in the sources and in this table: {bug}")
        good = False
    for bug in sys.argv[2:] or sorted(BUGS):
        passed, ran, output = seeded.run(program, BUGS[bug], bug, seeded.LIMIT_MS)
        if ran == 0:
            print(f"SKIPPED-HERE: seeded: this build has no such test: {BUGS[bug]}")
            continue
        print(f"{'NOT FOUND' if passed else 'found':9} {bug}: {BUGS[bug]}")
        if passed:
            print(output)
        good = good and not passed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
