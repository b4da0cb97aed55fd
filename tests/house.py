#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a machine can check: includes, licence lines, READMEs, no paths of one machine, numbers, friends, mutants.

    tests/house.py [ROOT]      checks the tree; prints one line per finding and exits 1 if there is any
    tests/house.py --self-test plants a violation of every rule in a small tree and checks that it is found
"""

import os
import pathlib
import re
import sys
import tempfile

import mutants

# Bottom up. A file includes its own floor and lower ones only; "include" is the public API.
FLOORS = ["base", "include", "device", "backends", "peers", "runtime", "launch", "rma", "collectives", "segments", "unr", "c", "dialects"]
# Folders outside the library and what they may include besides the public API and the standard library.
OUTSIDE = ["apps", "tests", "examples"]
CODE = {".cpp", ".hpp", ".cu", ".c", ".h"}
SOURCES = CODE | {".cmake", ".py", ".sh"}

MPI_PLACES = [r"include/sluice/(mpi(\.hpp|_rma\.h)|unr_mpi\.hpp|dialects/.*)", r"launch/mpi\.cpp", r"backends/mpi/over_mpi\.[ch]pp", r"rma/mpi/.*", r"dialects/.*", r"apps/.*mpi[^/]*", r"tests/.*", r"examples/.*"]
VENDOR = re.compile(r"^(cuda(_\w+)?|hip/.*|nvtx3/.*|cooperative_groups|nccl|nvml)(\.h|\.hpp)?$")
STANDARD = re.compile(r"^[a-z_0-9]+$")  # of C++: no folder, no suffix
C_TYPES = ("stddef.h", "stdint.h")  # for the public headers for C
SYSTEM = re.compile(r"^((sys|linux|net|netinet|arpa)/)?[a-z_0-9]+\.h$")
VENDOR_PLACES = [r"(device|tests|examples)/.*", r"apps/bench/rivals/programs/.*"]
FABRIC = re.compile(r"^(rdma/.*|infiniband/.*|libcxi/.*|ucp/.*|cxi_.*)$")
FABRIC_PLACES = [r"backends/ofi/.*", r"apps/bench/rivals/ofi(_accesses|_endpoint)?\.[ch]pp", r"tests/.*"]
# Public headers that a program asks for by including them, and whose headers they bring.
OPT_IN = [(r"Kokkos_.*", r"include/sluice/(kokkos|cabana)(\.hpp|/.*)"),
          (r"sanitizer/tsan_interface\.h", r"base/races\.cpp"),
          (r"mpi\.h", r"include/sluice/kokkos/mpi_contexts\.hpp"),
          (r"(KokkosComm/|Kokkos_).*|mpi\.h", r"include/sluice/kokkos_comm(\.hpp|/.*)"),
          (r"Cabana_.*|mpi\.h", r"include/sluice/cabana(\.hpp|/.*)")]
# What an application measures inside of the library.
INSIDE = [("apps/bench/copy.cpp", "base/copy.hpp"), ("apps/bench/model/fit.hpp", "collectives/loggp.hpp"),
          ("apps/bench/model/predict.cpp", "collectives/footprint.hpp"), ("apps/bench/model/predict.hpp", "collectives/model.hpp"),
          ("apps/bench/model/written.hpp", "collectives/loggp.hpp")]
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root|Users|scratch)/[\w.]")
# What prints numbers as the program's locale has it: with a decimal comma, or with points between thousands.
LOCALISED = re.compile(r"(?<!\w)(v?[fs]n?printf|v?printf|\w*stringstream|\w*ofstream|cout|cerr|clog)\b")

# Private parts are private. In include/ friends keep the constructors of handles private.
FRIENDS = [r"include/.*"]
INTRUSIVE = re.compile(r"\b(friend|dynamic_cast)\b")
# Channels and plans know their rank by runtime/services.hpp alone.
CHANNELS = re.compile(r"runtime/(channel|channel_waits|sender|receiver|plan)\.[ch]pp")
EXPORTED = ("collectives/awaited.hpp", "device/copy_anywhere.hpp", "device/handshake.hpp", "runtime/ends_wait.hpp", "runtime/put_by_stream.hpp")  # by a shared library, for libraries on top
SEAM = "backends/transport.hpp"
SEAM_MOST = 30  # functions that a backend must write
PURE_VIRTUAL = re.compile(r"\bvirtual\b[^;{]*=\s*0\s*;")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def files(root, suffixes):
    """The files of the tree, relative to root, without build trees and hidden folders."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        parts = relative.parts
        if parts[0] == "build" or any(p.startswith(".") or p == "__pycache__" for p in parts):
            continue
        if path.is_file() and (not suffixes or path.suffix in suffixes or path.name == "CMakeLists.txt"):
            yield relative


def floor_of(header):
    """The floor a header of ours lives on, or None for a header of somebody else."""
    if header.startswith("sluice/"):
        return "include"
    top = header.split("/")[0]
    return top if top in FLOORS + OUTSIDE and "/" in header else None


def backend_of(path):
    """The backend whose folder a path is in, or None."""
    parts = pathlib.PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "backends" else None


def library_finding(source, header):
    """Why a source of the library may not include a header of ours, or None."""
    floor, target = source.parts[0], floor_of(header)
    if target in OUTSIDE:
        return "the library includes nothing of apps, tests or examples"
    if FLOORS.index(target) > FLOORS.index(floor):
        return f"an include never points up ({floor} is below {target})"
    if floor == "include" and target != "include":
        return "include/ includes nothing of ours but itself"
    if floor == "c" and target not in ("include", "c"):
        return "c/ includes the public API only"
    if floor == "rma" and target not in ("base", "include", "rma"):
        return "rma/ is built on the public API: it includes base/, include/ and itself only"
    if floor == "collectives" and target not in ("base", "include", "device", "runtime", "collectives"):
        return "collectives/ knows no backend and no peers: it is built on channels"
    if floor == "unr" and target not in ("base", "include", "device", "runtime", "unr"):
        return "unr/ is built on channels and windows: it knows no backend, no peers and no collectives"
    if floor == "segments" and target not in ("base", "include", "runtime", "segments"):
        return "segments/ is built on channels: it includes base/, include/, runtime/ and itself only"
    if floor == "dialects" and header not in EXPORTED and target not in ("base", "include", "rma", "c", "dialects"):
        return f"dialects/ is built on the public API: it includes base/, include/, rma/, c/, {', '.join(EXPORTED)} and itself only"
    if floor == "base" and target != "base":
        return "base/ includes the standard library only"
    if header == "runtime/world.hpp" and CHANNELS.fullmatch(source.as_posix()):
        return "channels and plans know their rank by runtime/services.hpp alone"
    named = backend_of(header)
    if (source.as_posix(), header) == ("launch/mpi.cpp", "backends/mpi/over_mpi.hpp"):
        return None  # of the same library: the context's communicator is given to the backend
    if named and named != backend_of(source) and source.as_posix() != "backends/backends.cpp":
        return f"only backends/backends.cpp and the backend itself name backends/{named}"
    return None


def app_finding(source, header):
    """Why an application may not include a header of ours, or None."""
    if (source.as_posix(), header) in INSIDE:
        return None
    own = source.parts[1] if len(source.parts) > 2 else ""
    if floor_of(header) == "include" or header.startswith(("apps/common/", f"apps/{own}/")):
        return None
    return "an application includes include/, apps/common and its own folder only"


def foreign_finding(source, header):
    """Why a header of somebody else may not be included here, or None."""
    path = source.as_posix()
    top = source.parts[0]
    if header == "mpi.h" and any(re.fullmatch(p, path) for p in MPI_PLACES):
        return None
    if any(re.fullmatch(header_of, header) and re.fullmatch(p, path) for header_of, p in OPT_IN):
        return None
    if top == "include" and source.suffix == ".h" and header in C_TYPES:
        return None
    if top == "include" and not STANDARD.match(header):
        return "include/ includes nothing of others but the standard library"
    if top == "base" and not (STANDARD.match(header) or SYSTEM.match(header)):
        return "base/ includes the standard library and the system's headers only"
    if header == "mpi.h" and not any(re.fullmatch(p, path) for p in MPI_PLACES):
        return "<mpi.h> is for mpi.hpp, launch/mpi.cpp, backends/mpi/over_mpi, rma/mpi, dialects, the MPI files of applications, and tests"
    if VENDOR.match(header) and not any(re.fullmatch(p, path) for p in VENDOR_PLACES):
        return "vendor headers are for device/, the bench's rivals on GPUs, tests and examples"
    if FABRIC.match(header) and not any(re.fullmatch(p, path) for p in FABRIC_PLACES):
        return "fabric headers are for backends/ofi, and the bench's rivals on libfabric"
    return None


def include_findings(root):
    """Every include that points where it must not."""
    for source in files(root, CODE):
        if source.suffix not in CODE or source.parts[0] not in FLOORS + OUTSIDE:
            continue
        for kind, header in INCLUDE.findall((root / source).read_text()):
            floor = floor_of(header)
            reason = None
            if floor is None:
                reason = foreign_finding(source, header)
                if kind == '"':
                    reason = "an include of ours is written from the root of the tree"
            elif (kind == "<") != (floor == "include"):
                reason = "public headers are included with <>, internal ones with quotes"
            elif source.parts[0] in FLOORS:
                reason = library_finding(source, header)
            elif source.parts[0] == "apps":
                reason = app_finding(source, header)
            elif source.parts[0] == "examples" and floor != "include":
                reason = "an example includes the public API only"
            if reason:
                yield f"{source}: includes {header}: {reason}"


def licence_findings(root):
    """Sources without the licence line at the top."""
    for source in files(root, SOURCES):
        top = (root / source).read_text().splitlines()[:3]
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in top):
            yield f"{source}: no SPDX licence line at the top"


def readme_findings(root):
    """Folders of sources without a README.md."""
    folders = {source.parent for source in files(root, CODE) if source.suffix in CODE}
    for folder in sorted(folders):
        if folder.parts[:2] == ("include", "sluice"):
            folder = pathlib.Path("include")  # whose README.md speaks for what is below
        if not (root / folder / "README.md").is_file():
            yield f"{folder}: no README.md"


def unlisted_findings(root):
    """Sources that no build knows, and public headers that no installation has: no CMakeLists.txt has their path, as seen from
    there, with or without its end."""
    known = set()
    for listing in files(root, set()):
        if listing.name != "CMakeLists.txt":
            continue
        for word in re.findall(r"[\w./-]+", (root / listing).read_text()):
            known |= {os.path.normpath(listing.parent / (word + end)) for end in ("", ".cpp", "_test.cpp")}
    for source in files(root, CODE):
        listed = source.suffix in (".cpp", ".cu", ".c") or source.parts[0] == "include"
        if source.suffix in CODE and listed and str(source) not in known:
            yield f"{source}: in no CMakeLists.txt"


def machine_findings(root):
    """Paths that exist on one machine only."""
    for path in files(root, SOURCES | {".md", ".json", ".in"}):
        if path.as_posix() == "tests/house.py":
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            found = MACHINE_PATH.search(line)
            if found:
                yield f"{path}:{number}: a path of one machine: {found.group()}"


def number_findings(root):
    """Printing in the library that does not go by base/text."""
    for path in files(root, {".cpp", ".hpp"}):
        if path.parts[0] not in FLOORS:
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            found = LOCALISED.search(line.split("//")[0])
            if found:
                yield f"{path}:{number}: {found.group()} prints by the program's locale; base/text does not"


def intrusive_findings(root):
    """Friends and dynamic_cast in the library: both reach past a class's interface."""
    for path in files(root, CODE):
        if path.suffix not in CODE or path.parts[0] not in FLOORS:
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            found = INTRUSIVE.search(line.split("//")[0])
            allowed = found and found.group() == "friend" and any(re.fullmatch(p, path.as_posix()) for p in FRIENDS)
            if found and not allowed:
                yield f"{path}:{number}: {found.group()} in the library"


def seam_findings(root):
    """A seam that has grown."""
    if not (root / SEAM).is_file():
        return
    count = len(PURE_VIRTUAL.findall(re.sub(r"//.*", "", (root / SEAM).read_text())))
    if count > SEAM_MOST:
        yield f"{SEAM}: {count} pure virtual functions; a backend is to write {SEAM_MOST} at most"


def mutant_findings(root):
    """Mutants that no longer fit the sources or the tests."""
    if (root / mutants.LIST).is_file():
        yield from mutants.findings(root)


def findings(root):
    """All findings of all rules."""
    for rule in (include_findings, licence_findings, readme_findings, unlisted_findings,
                 machine_findings, number_findings, intrusive_findings, seam_findings, mutant_findings):
        yield from rule(root)


SPDX = "// SPDX-License-Identifier: Apache-2.0\n"

MUTANT = """
[[part]]
title = "Words"
[[part.mutant]]
name = "lost"
promise = "A word rises."
path = "{path}"
find = "#include"
replace = ""
test = "{test}"
"""

# A file to plant, and what must then be reported about it.
PLANTS = [
    ("base/x.hpp", SPDX + "#include <sluice/types.hpp>\n", "never points up"),
    ("base/x.hpp", SPDX + '#include "runtime/engine.hpp"\n', "never points up"),
    ("include/sluice/x.hpp", SPDX + '#include "base/words.hpp"\n', "nothing of ours but itself"),
    ("rma/x.cpp", SPDX + '#include "runtime/channel.hpp"\n', "built on the public API"),
    ("runtime/x.cpp", SPDX + '#include "rma/barrier.hpp"\n', "never points up"),
    ("collectives/x.cpp", SPDX + '#include "rma/barrier.hpp"\n', "built on channels"),
    ("unr/x.cpp", SPDX + '#include "collectives/schedule.hpp"\n', "channels and windows"),
    ("segments/x.cpp", SPDX + '#include "rma/barrier.hpp"\n', "built on channels"),
    ("device/x.cpp", SPDX + '#include "backends/transport.hpp"\n', "never points up"),
    ("device/x.cu", SPDX + '#include "backends/transport.hpp"\n', "never points up"),
    ("device/x.cu", "int x;\n", "no SPDX"),
    ("backends/shm/x.cpp", SPDX + '#include "backends/threads/transport.hpp"\n', "only backends/backends.cpp"),
    ("backends/x.cpp", SPDX + '#include "backends/shm/transport.hpp"\n', "only backends/backends.cpp"),
    ("runtime/x.cpp", SPDX + '#include "backends/shm/transport.hpp"\n', "only backends/backends.cpp"),
    ("launch/x.cpp", SPDX + '#include "backends/mpi/over_mpi.hpp"\n', "only backends/backends.cpp"),
    ("runtime/x.cpp", SPDX + '#include "tests/peers.hpp"\n', "nothing of apps"),
    ("include/sluice/x.hpp", SPDX + "#include <fmt/format.h>\n", "but the standard library"),
    ("include/sluice/x.hpp", SPDX + "#include <Kokkos_Core.hpp>\n", "but the standard library"),
    ("include/sluice/kokkos/x.hpp", SPDX + "#include <Cabana_Grid.hpp>\n", "but the standard library"),
    ("base/x.hpp", SPDX + "#include <Kokkos_Core.hpp>\n", "system's headers only"),
    ("backends/x.cpp", SPDX + "#include <cuda_fp16.h>\n", "vendor headers"),
    ("runtime/x.cpp", SPDX + '#include "words.hpp"\n', "from the root"),
    ("runtime/x.cpp", SPDX + '#include "sluice/types.hpp"\n', "with <>"),
    ("runtime/x.cpp", SPDX + "#include <mpi.h>\n", "<mpi.h> is for"),
    ("runtime/x.cpp", SPDX + "#include <cuda_runtime.h>\n", "vendor headers"),
    ("backends/shm/x.cpp", SPDX + "#include <rdma/fabric.h>\n", "fabric headers"),
    ("apps/life/x.cpp", SPDX + "#include <rdma/fabric.h>\n", "fabric headers"),
    ("apps/life/x.cpp", SPDX + '#include "apps/jacobi/solver.hpp"\n', "own folder only"),
    ("apps/life/x.cpp", SPDX + '#include "runtime/engine.hpp"\n', "own folder only"),
    ("apps/bench/x.cpp", SPDX + '#include "base/copy.hpp"\n', "own folder only"),
    ("examples/consumer/x.cpp", SPDX + '#include "base/words.hpp"\n', "public API only"),
    ("runtime/x.cpp", "int x;\n", "no SPDX"),
    ("c/x.cpp", SPDX + '#include "base/words.hpp"\n', "public API only"),
    ("runtime/x.cpp", SPDX + '#include "c/guard.hpp"\n', "never points up"),
    ("include/sluice/x.h", SPDX + "#include <stdio.h>\n", "but the standard library"),
    ("tests/unit/stray.c", SPDX, "in no CMakeLists.txt"),
    ("tests/unit/x.h", "int x;\n", "no SPDX"),
    ("backends/new/x.cpp", SPDX, "no README.md"),
    ("runtime/stray.cpp", SPDX, "in no CMakeLists.txt"),
    ("device/stray.cu", SPDX, "in no CMakeLists.txt"),
    ("include/sluice/stray.hpp", SPDX, "in no CMakeLists.txt"),
    ("tests/mutants.toml", MUTANT.format(path="base/words.cpp", test="Words.rise"), "occurs 2 times"),
    ("tests/mutants.toml", MUTANT.format(path="base/wards.cpp", test="Words.rise"), "there is no file"),
    ("tests/mutants.toml", MUTANT.format(path="base/words.hpp", test="Words.fall"), "no test"),
    ("runtime/x.cpp", SPDX + 'std::snprintf(text, sizeof text, "%.1f s", seconds);\n', "prints by the program's locale"),
    ("base/x.hpp", SPDX + "std::ostringstream text;\n", "prints by the program's locale"),
    ("runtime/x.hpp", SPDX + "friend class Registry;\n", "friend in the library"),
    ("runtime/x.cpp", SPDX + "auto* end = dynamic_cast<End*>(&put);\n", "dynamic_cast in the library"),
    ("include/sluice/x.hpp", SPDX + "auto* end = dynamic_cast<End*>(&put);\n", "dynamic_cast in the library"),
    ("runtime/channel.hpp", SPDX + '#include "runtime/world.hpp"\n', "services.hpp alone"),
    ("runtime/plan.cpp", SPDX + '#include "runtime/world.hpp"\n', "services.hpp alone"),
    ("backends/transport.hpp", SPDX + 31 * "virtual int poll(\n    int) = 0;\n", "31 pure virtual functions"),
    ("docs/x.md", "look at /" + "home/someone/file\n", "path of one machine"),
]

# What must be accepted.
GOOD = {
    "base/words.cpp": SPDX + '#include "base/words.hpp"\n#include <atomic>\n',
    "base/words.hpp": SPDX + "#include <atomic>\n",
    "include/sluice/types.hpp": SPDX + "#include <cstdint>\n",
    "include/sluice/unr_mpi.hpp": SPDX + "#include <sluice/types.hpp>\n#include <mpi.h>\n",
    "include/sluice/kokkos/x.hpp": SPDX + "#include <sluice/types.hpp>\n#include <Kokkos_Core.hpp>\n",
    "include/sluice/mpi.hpp": SPDX + "#include <sluice/types.hpp>\n#include <mpi.h>\n",
    "device/host.cpp": SPDX + '#include "base/words.hpp"\n#include <sluice/types.hpp>\n',
    "backends/backends.cpp": SPDX + '#include "backends/shm/transport.hpp"\n',
    "backends/transport.hpp": SPDX + 30 * "virtual void poll() = 0;\n" + "int friends = 0;  // no friend\n",
    "include/sluice/memory.hpp": SPDX + "friend struct detail::MemoryAccess;\n",
    "runtime/world.cpp": SPDX + '#include "runtime/world.hpp"\n',
    "runtime/plan.cpp": SPDX + '#include "runtime/services.hpp"\n',
    "runtime/channel.hpp": SPDX,
    "backends/shm/transport.cpp": SPDX + '#include "backends/shm/transport.hpp"\n#include "device/gpu.hpp"\n',
    "c/guard.hpp": SPDX + "#include <sluice/types.hpp>\n",
    "c/plan.cpp": SPDX + '#include "c/guard.hpp"\n',
    "include/sluice/c.h": "/* " + SPDX[3:-1] + " */\n#include <stdint.h>\n",
    "runtime/engine.cpp": SPDX + '#include "backends/transport.hpp"\n',
    "launch/mpi.cpp": SPDX + '#include "backends/mpi/over_mpi.hpp"\n#include <mpi.h>\n',
    "rma/barrier.cpp": SPDX + '#include "rma/barrier.hpp"\n#include "base/limit.hpp"\n#include <sluice/channel.hpp>\n',
    "unr/core.cpp": SPDX + '#include "unr/core.hpp"\n#include "device/copy.hpp"\n#include <sluice/channel.hpp>\n',
    "collectives/binomial.cpp": SPDX + '#include "collectives/binomial.hpp"\n#include "runtime/fate.hpp"\n',
    "segments/end.cpp": SPDX + '#include "segments/end.hpp"\n#include "runtime/sender.hpp"\n',
    "apps/life/main.cpp": SPDX + '#include "apps/common/png.hpp"\n#include "apps/life/rle.hpp"\n#include <png.h>\n',
    "apps/bench/copy.cpp": SPDX + '#include "base/copy.hpp"\n',
    "apps/common/exchange_mpi.cpp": SPDX + "#include <mpi.h>\n",
    "examples/consumer/main.cpp": SPDX + "#include <sluice/sluice.hpp>\n",
    "examples/kernels/main.cu": SPDX + "#include <cuda_runtime.h>\n",
    "tests/unit/words_test.cpp": SPDX + '#include "base/words.hpp"\n#include "runtime/engine.hpp"\nTEST(Words, rise) {}\n',
}


def write_tree(root, extra):
    for name, text in {**GOOD, **extra}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if "stray" not in name:
            names = " ".join(["x.cpp", "x.cu", "x.hpp", "x.h", *(pathlib.PurePosixPath(n).name for n in GOOD)])
            (path.parent / "CMakeLists.txt").write_text("# " + SPDX[3:] + names + "\n")
        if name in GOOD:
            (path.parent / "README.md").write_text("about\n")
    (root / "include" / "README.md").write_text("about\n")


def found_in(extra):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_tree(root, extra)
        return list(findings(root))


def self_test():
    """Checks the checker. Returns the number of its faults."""
    faults = [f"reported in a good tree: {line}" for line in found_in({})]
    for name, text, expected in PLANTS:
        lines = found_in({name: text})
        where = str(pathlib.PurePosixPath(name).parent if "README" in expected else name)
        if len(lines) != 1 or expected not in lines[0] or not lines[0].startswith(where):
            faults.append(f"planted {name} ({expected!r}), reported: {lines}")
    for fault in faults:
        print(fault)
    print(f"house: self-test: {len(PLANTS)} planted, {len(faults)} faults")
    return len(faults)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    lines = list(findings(root))
    for line in lines:
        print(line)
    print(f"house: {len(lines)} findings")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
