#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Can the tests fail? Plants one bug of mutants.toml at a time in a copy of its source, and runs the test that must find it.

    tests/mutants.py --check                               each text occurs once, each test exists, docs/promises.md is up to date
    tests/mutants.py --check --build DIR [--program P]     also: the programs in DIR have each test with its parameters
    tests/mutants.py --table                               writes docs/promises.md: promise, mutant, test
    tests/mutants.py --build DIR [--program P] [NAME ...]  builds and tests mutants: all, those of a program, or these

A build compiles only what the edit changes, and links it with the rest of DIR, where the program must be built (Ninja, a static
library). A mutant counts as found when its test fails, crashes or hangs. First the same tests must pass without a mutant. Mutants
of networks and of GPUs need the providers and the emulated driver in DIR; without them they are listed as skipped. Prints a line
per mutant; exits 1 if a mutant was not found, does not compile, or has no test.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = "tests/mutants.toml"
PAGE = "docs/promises.md"
ROWS = "tests/CMakeLists.txt"
FIELDS = {"name", "promise", "path", "find", "replace", "edit", "test", "settings", "program", "sources", "alone", "luck"}

LIMIT_MS = 4000  # of each group of ranks, at least: with a mutant, many end by it
CLEAN_LIMIT_MS = 20000
HANGS_S = 120  # a test program that hangs itself
ARCHIVED = ("CMakeFiles/sluice.dir/", "apps/", "tests/conformance/CMakeFiles/gpu_stream.dir/")  # objects that are linked from archives
# Of conformance, what of a filter decides which tests there are (tests/conformance/cases.cpp).
NAMED_GROUNDS = re.compile(r"^\*|Full/|cuda|(?:threads_)?ofi_[a-z]+|emucxi|chaos|late_messages")
AT_ONCE = 8  # most tests make ranks sleep until the limit


class Mutant:
    def __init__(self, part, table):
        self.part = part
        self.fields = table
        self.name = table.get("name", "")
        self.promise = table.get("promise", "")
        self.test = table.get("test", "")
        self.settings = table.get("settings", {})
        self.program = table.get("program", "conformance")
        self.sources = table.get("sources", [])
        self.alone = table.get("alone", False)
        self.edits = table.get("edit") or [{key: table.get(key, "") for key in ("path", "find", "replace")}]
        # A provider that reorders does so by chance.
        self.by_chance = self.alone or table.get("luck", False) or "/chaos_" in self.test

    def group(self):
        """What is run: mutants with the same group share the run without a mutant."""
        return self.program, self.test, tuple(sorted(self.settings.items()))

    def paths(self):
        return sorted({edit["path"] for edit in self.edits})


def load(root):
    with open(root / LIST, "rb") as file:
        parts = tomllib.load(file)["part"]
    return [Mutant(part["title"], table) for part in parts for table in part["mutant"]]


# ---- Checks that need no build.


def tests_of(root):
    """The names of the tests of each suite in the tree."""
    found = {}
    for path in (root / "tests").rglob("*_test.cpp"):
        for suite, name in re.findall(r"\bTEST\w*\(\s*(\w+),\s*(\w+)\)", path.read_text()):
            found.setdefault(suite, set()).add(name)
    return found


def edit_findings(root, mutant):
    for edit in mutant.edits:
        path = root / edit["path"]
        if not edit["path"] or not path.is_file():
            yield f"there is no file '{edit['path']}'"
            continue
        count = path.read_text().count(edit["find"]) if edit["find"] else 0
        if count != 1:
            yield f"the text to find occurs {count} times in {edit['path']}, not once: {edit['find'].strip()!r}"
        if edit["find"] == edit["replace"]:
            yield "the edit changes nothing"


def test_findings(mutant, tests):
    """What of a filter names no test of the tree. Values of parameters are known to the program alone."""
    for one in mutant.test.split("-")[0].split(":"):
        suite, _, name = re.sub(r"^\w+/", "", one).partition(".")
        name = name.split("/")[0] or "*"
        suites = [suite] if suite in tests else fnmatch.filter(tests, suite)
        if not any(fnmatch.filter(tests[one_of], name) for one_of in suites):
            yield f"no test in tests/ is called {one}"


def findings(root=ROOT):
    """What is wrong with the list of mutants, a line each."""
    mutants, tests, seen, good = load(root), tests_of(root), set(), True
    programs = planted_programs(root)
    for mutant in mutants:
        wrong = [*edit_findings(root, mutant), *test_findings(mutant, tests)]
        wrong += [f"there is no field '{key}'" for key in sorted(set(mutant.fields) - FIELDS)]
        wrong += [f"no {key}" for key in ("promise", "test") if not getattr(mutant, key)]
        wrong += [f"there is no file '{path}'" for path in mutant.sources if not (root / path).is_file()]
        if mutant.program not in programs:
            wrong.append(f"no test of {ROWS} plants mutants of {mutant.program}")
        if not re.fullmatch(r"\w+", mutant.name) or mutant.name in seen:
            wrong.append("the name is missing, or another mutant has it")
        seen.add(mutant.name)
        for line in wrong:
            good = False
            yield f"{LIST}: {mutant.name}: {line}"
    if good and (not (root / PAGE).is_file() or (root / PAGE).read_text() != page(mutants)):
        yield f"{PAGE}: differs from {LIST}: run tests/mutants.py --table"


def planted_programs(root):
    """The programs for which there is a test of ctest that plants mutants."""
    text = (root / ROWS).read_text()
    named = re.findall(r"(?:planted|program IN ITEMS) ([\w ]+)\)", text)
    return {"conformance", *" ".join(named).split(), *re.findall(r"--program (\w+)", text)}


def page(mutants):
    """The page of promises, in Markdown."""
    lines = ["# Promises, and how the tests are tested", "",
             "Each line is a promise of Sluice, a mutant that breaks it, and the test that finds the mutant. A mutant is an edit of one",
             "source: [tests/mutants.toml](../tests/mutants.toml) lists them, `tests/mutants.py --build build/release` plants them one at a",
             "time in a copy, and fails if a test does not find one. `./dev test --full` runs it. This page is written by",
             "`tests/mutants.py --table`.", ""]
    part = None
    for mutant in mutants:
        if mutant.part != part:
            part = mutant.part
            lines += ["", f"## {part}", "", "| promise | mutant | test |", "|---|---|---|"]
        where = ", ".join(mutant.paths())
        tests = "`" + " ".join([*(f"{key}={value}" for key, value in mutant.settings.items()), mutant.test]) + "`"
        lines.append(f"| {mutant.promise} | `{mutant.name}` in {where} | {tests} |")
    return re.sub(r"\n\n\n+", "\n\n", "\n".join(lines)) + "\n"


# ---- Building a mutant.


class BuildError(Exception):
    pass


def command(words, folder):
    """Runs a compiler or linker, behind the tests that run meanwhile."""
    done = subprocess.run(["nice", "-n", "10", *words], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise BuildError("\n".join(done.stdout.splitlines()[:12]))


def parts_of(source):
    """The sources that one compilation reads: a unity build includes several in a file that it writes."""
    if source.parent.name != "Unity":
        return [source]
    return [pathlib.Path(path) for path in re.findall(r'^#include "(.*)"$', source.read_text(), re.MULTILINE)]


def in_scratch(source, scratch):
    """Where the mutant has its own copy of a source; the source itself if it has none."""
    copy = scratch / source.relative_to(ROOT) if source.is_relative_to(ROOT) else source
    return copy if copy.is_file() else source


class Build:
    """A build folder, and how it compiles and links one program."""

    def __init__(self, folder, program):
        self.folder = folder
        *commands, self.link = self.commands_of(program)
        self.objects = [word for word in self.link if word.endswith(".o")]
        self.library = [word for word in self.link if re.fullmatch(r"(.*/)?libsluice\.a", word)]
        if not self.objects or not self.library:
            raise BuildError(f"{program} is not linked with a static libsluice.a in {folder}")
        # object: (source, words) of what is compiled for the program: its own objects, the library's, those of libraries of applications,
        # and the kernels of the emulated GPU
        self.compilations = {}
        for words in commands:
            output = words[words.index("-o") + 1] if {"-c", "-o"} <= set(words) else ""
            if output in self.objects or output.startswith(ARCHIVED):
                self.compilations[output] = (pathlib.Path(words[words.index("-c") + 1]), words)
        self.parts = {output: parts_of(source) for output, (source, _) in self.compilations.items()}
        self.includes = None
        self.lock = threading.Lock()

    def commands_of(self, program):
        """The words of each command that makes a part of the program; the last one links it."""
        lines = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", f"bin/{program}"], text=True, check=True,
                               capture_output=True).stdout.strip().splitlines()
        for line in lines:
            words = shlex.split(line)
            if words[:2] == [":", "&&"]:
                words = words[2:]
            yield words[:words.index("&&")] if "&&" in words else words

    def including(self, header):
        """The objects of the program that are compiled with a header."""
        with self.lock:
            if self.includes is None:
                self.includes, current = {}, None
                for line in subprocess.run(["ninja", "-C", self.folder, "-t", "deps"], text=True, check=True,
                                           capture_output=True).stdout.splitlines():
                    if line.startswith(" "):
                        path = os.path.normpath(self.folder / line.strip())
                        self.includes.setdefault(path, []).append(current)
                    else:
                        current = line.split(":")[0]
        return [output for output in self.includes.get(str(header), []) if output in self.compilations]

    def outputs_of(self, mutant):
        """The objects that a mutant changes."""
        sources = {ROOT / path for path in mutant.sources}
        headers = [ROOT / path for path in mutant.paths() if path.endswith(".hpp")]
        sources |= {ROOT / path for path in mutant.paths() if path.endswith(".cpp")}
        outputs = [output for output, parts in self.parts.items() if sources.intersection(parts)]
        missing = sources - {part for output in outputs for part in self.parts[output]}
        if missing:
            raise BuildError(f"{self.folder} compiles no {sorted(map(str, missing))[0]} for {mutant.program}")
        if not mutant.sources:
            outputs += [output for header in headers for output in self.including(header) if output not in outputs]
        if not outputs:
            raise BuildError(f"nothing that {mutant.program} is linked of includes {', '.join(mutant.paths())}")
        return outputs

    def compile(self, output, mutant, scratch):
        """Compiles what is in one object with the mutant; returns the object."""
        source, words = self.compilations[output]
        target = scratch / output.replace("/", "_")
        edited = in_scratch(source, scratch)
        if self.parts[output] != [source]:
            edited = target.with_suffix(".cxx")
            edited.write_text("".join(f'#include "{in_scratch(part, scratch)}"\n' for part in self.parts[output]))
        result, skip = [], False
        for i, word in enumerate(words):
            if skip:
                skip = False
                continue
            if word in ("-MF", "-MT"):  # of what ninja reads
                skip = True
            elif word == "-MD":
                pass
            elif word in ("-o", "-c"):
                skip = True
                result += [word, str(target if word == "-o" else edited)]
            elif word.startswith("-I") and pathlib.Path(word[2:]).is_relative_to(ROOT):
                result += [f"-I{scratch / pathlib.Path(word[2:]).relative_to(ROOT)}", word]  # edited headers come first
            else:
                result.append(word)
        command([*result, "-w"], self.folder)
        return target

    def build(self, mutant, scratch):
        """Builds the program with the mutant; returns its path."""
        shutil.rmtree(scratch, ignore_errors=True)
        for path in mutant.paths():
            text = (ROOT / path).read_text()
            for edit in mutant.edits:
                if edit["path"] == path:
                    text = text.replace(edit["find"], edit["replace"])
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).write_text(text)
        replaced = self.outputs_of(mutant)
        objects = [str(self.compile(output, mutant, scratch)) for output in replaced]
        program = scratch / mutant.program
        # Objects that come first keep what they define from being taken out of the archive, and prevail where headers define it.
        words, first = [], True
        for word in self.link:
            if word.endswith(".o"):
                words += objects if first else []
                first = False
                words += [] if word in replaced else [word]
            else:
                words.append(str(program) if words[-1:] == ["-o"] else word)
        command([*words, "-s"], self.folder)
        return program


# ---- Running tests.


def environment(folder, mutant, limit_ms):
    """Of a test with a time limit for each group of its ranks."""
    variables = dict(os.environ, SLUICE_USER_TEST_LIMIT_MS=str(limit_ms), OMP_PROC_BIND="false", **mutant.settings)
    if (folder / "providers").is_dir():
        variables["FI_PROVIDER_PATH"] = str(folder / "providers")
    if "_cuda_" in mutant.test:
        variables["LD_LIBRARY_PATH"] = str(folder / "emucuda")
    return variables


def run(program, folder, mutant, limit_ms):
    """Returns whether all tests passed, and what they said."""
    try:
        done = subprocess.run([program, f"--gtest_filter={mutant.test}", "--gtest_fail_fast"], text=True, errors="replace", timeout=HANGS_S,
                              env=environment(folder, mutant, limit_ms), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return False, "hung"
    return done.returncode == 0, done.stdout


def names_of(listing):
    """Of what --gtest_list_tests prints: the full name of each test, a line each."""
    suite, names = "", []
    for line in listing.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        else:
            suite = name
    return "\n".join(names)


def matches(names, wanted):
    """Whether a filter of googletest matches one of these lines."""
    def regex(patterns):
        return "|".join(re.escape(one).replace(r"\*", ".*").replace(r"\?", ".") for one in patterns.split(":"))

    positive, _, negative = wanted.partition("-")
    unwanted = f"(?!(?:{regex(negative)})$)" if negative else ""
    return re.search(f"^{unwanted}(?:{regex(positive or '*')})$", names, re.MULTILINE) is not None


def filter_findings(folder, mutants):
    """Filters that match no test of their program. One call lists the tests of all filters that name the same grounds."""
    alike = {}
    for mutant in mutants:
        variables = environment(folder, mutant, LIMIT_MS)
        key = mutant.program, frozenset(NAMED_GROUNDS.findall(mutant.test)), tuple(sorted(variables.items()))
        alike.setdefault(key, (variables, []))[1].append(mutant)
    for (program, *_), (variables, planted) in alike.items():
        any_of = ":".join(dict.fromkeys(mutant.test.partition("-")[0] for mutant in planted))
        names = names_of(subprocess.run([folder / "bin" / program, "--gtest_list_tests", f"--gtest_filter={any_of}"], text=True, env=variables,
                                        capture_output=True).stdout)
        for mutant in planted:
            if not matches(names, mutant.test):
                yield f"{LIST}: {mutant.name}: {program} has no such test: {mutant.test}"


def missing_here(folder, mutant):
    """What a mutant's test needs and the build does not have; empty: nothing."""
    if re.search("/(ofi_|emucxi|chaos)", mutant.test) and not (folder / "providers").is_dir():
        return "no networks"
    if "_cuda_" in mutant.test and not (folder / "emucuda").is_dir():
        return "no emulated GPU"
    return ""


def check_clean(folder, mutants):
    """Runs the tests without a mutant. Returns the limit of each group that can be used, and what is wrong with the others."""
    groups = {mutant.group(): mutant for mutant in mutants}
    limits, wrong = {}, []

    def clean(mutant):
        for _ in range(2):  # a machine may be busy
            began = time.monotonic()
            passed, output = run(folder / "bin" / mutant.program, folder, mutant, CLEAN_LIMIT_MS)
            if passed:
                break
        return passed, output, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (group, mutant), (passed, output, took) in zip(groups.items(), pool.map(clean, groups.values())):
            if not passed:
                wrong.append(f"{mutant.name}: fails without a mutant: {mutant.test}\n{output}")
            else:
                limits[group] = int(min(max(LIMIT_MS, 4000 * took), CLEAN_LIMIT_MS))
    return limits, wrong


def check_mutant(program, folder, mutant, limit_ms):
    """Returns whether the test finds the mutant, and a line that says so."""
    began = time.monotonic()
    if "/chaos_" in mutant.test:
        limit_ms = CLEAN_LIMIT_MS  # being late is not being found
    limits = [limit_ms, *[CLEAN_LIMIT_MS] * (5 if mutant.by_chance else 2)]  # later tries have time
    tries = next((n for n, limit in enumerate(limits, 1) if not run(program, folder, mutant, limit)[0]), None)
    outcome = "NOT FOUND" if tries is None else "found" if tries == 1 else f"found at try {tries}"
    return tries is not None, f"{outcome:9} {mutant.name} ({time.monotonic() - began:.1f} s): {mutant.test}"


def check_mutants(folder, mutants, limits):
    """Builds and tests each mutant. Returns how many were found."""
    builds = {program: Build(folder, program) for program in {mutant.program for mutant in mutants}}
    processors = threading.Semaphore(len(os.sched_getaffinity(0)))

    def check(mutant):
        scratch = folder / "mutants" / mutant.name
        try:
            with processors:
                program = builds[mutant.program].build(mutant, scratch)
            return check_mutant(program, folder, mutant, limits[mutant.group()])
        except BuildError as reason:
            return False, f"NOT BUILT {mutant.name}: {reason}"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    count = 0
    together = [mutant for mutant in mutants if not mutant.alone]
    for at_once, chosen in ((AT_ONCE, together), (1, [mutant for mutant in mutants if mutant.alone])):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for done in concurrent.futures.as_completed([pool.submit(check, mutant) for mutant in chosen]):
                found, line = done.result()
                count += found
                print(line, flush=True)
    return count


def usable_here(folder, chosen):
    """Those of the mutants whose tests this build can run. Says which it cannot."""
    skipped = {}
    for mutant in chosen:
        skipped.setdefault(missing_here(folder, mutant), []).append(mutant)
    usable = skipped.pop("", [])
    for reason, mutants in skipped.items():
        print(f"SKIPPED-HERE: mutants: {reason} in {folder}: {', '.join(mutant.name for mutant in mutants)}")
    return usable


def run_all(folder, usable):
    limits, wrong = check_clean(folder, usable)
    for line in wrong:
        print(line, flush=True)
    found = check_mutants(folder, [mutant for mutant in usable if mutant.group() in limits], limits)
    print(f"{found} of {len(usable)} mutants found")
    return 0 if found == len(usable) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--program")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    mutants = load(ROOT)
    if options.table:
        (ROOT / PAGE).write_text(page(mutants))
        return 0
    if not options.check and options.build is None:
        parser.error("one of --check, --table and --build is needed")
    unknown = set(options.names) - {mutant.name for mutant in mutants}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    wrong, usable = list(findings()), []
    if options.build is not None and not wrong:
        folder = options.build.resolve()
        chosen = [m for m in mutants if (not options.names or m.name in options.names) and options.program in (None, m.program)]
        wrong += [f"{folder} has no {program}: build it first" for program in sorted({m.program for m in chosen})
                  if not (folder / "bin" / program).is_file()]
        usable = [] if wrong else usable_here(folder, chosen)
        wrong += filter_findings(folder, usable)
    for line in wrong:
        print(line)
    if options.check or wrong:
        print(f"mutants: {len(mutants)} mutants, {len(wrong)} findings")
        return 1 if wrong else 0
    return run_all(folder, usable)


if __name__ == "__main__":
    sys.exit(main())
