# SPDX-License-Identifier: BSD-3-Clause
"""How many lines of readers the inputs of fuzz targets reach, as clang counts them."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-coverage"
LEAST = 90

SETUP = ["meson", "setup", BUILD, "-Dfuzz=true", "-Dguests=false", "-Dtests=false", "-Dbpf=disabled", "-Doptimization=1", "-Db_lundef=false",
         "-Dc_args=-fprofile-instr-generate -fcoverage-mapping", "-Dc_link_args=-fprofile-instr-generate"]


def build(targets):
    if not (BUILD / "build.ninja").exists():
        subprocess.run(SETUP, env=dict(os.environ, CC="clang"), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", BUILD, *(f"src/{target.name}_fuzz" for target in targets)], check=True, stdout=subprocess.DEVNULL,
                   # Of what the build runs nobody wants a profile.
                   env=dict(os.environ, LLVM_PROFILE_FILE="/dev/null"))


def lines_of(program, profile):
    """For each file of ours: its functions with the lines where they begin, and how often each line ran."""
    text = subprocess.run(["llvm-cov", "export", "-format=lcov", f"-instr-profile={profile}", program], check=True, stdout=subprocess.PIPE).stdout.decode()
    files = {}
    for record in text.split("end_of_record\n"):
        functions, counts, name = [], {}, None
        for line in record.splitlines():
            kind, _, rest = line.partition(":")
            if kind == "SF":
                name = os.path.relpath(rest, ROOT / "src")
            elif kind == "FN":
                start, function = rest.split(",")
                functions.append((int(start), function.split(":")[-1]))
            elif kind == "DA":
                number, count = rest.split(",")[:2]
                counts[int(number)] = int(count)
        if name:
            files[name] = sorted(functions), counts
    return files


def reached(file, functions, counts):
    """(lines that ran, lines) of a file, or of some of its functions."""
    _, some, names = file.partition(":")
    but = names.startswith("-")
    wanted = names.removeprefix("-").split(",")
    starts = [start for start, _ in functions]
    chosen = []
    for number, count in counts.items():
        at = sum(start <= number for start in starts)
        if not some or (at and (functions[at - 1][1] in wanted) != but):
            chosen.append(count)
    return sum(count > 0 for count in chosen), len(chosen)


def measure(target, directories):
    program, raw = BUILD / "src" / f"{target.name}_fuzz", BUILD / f"{target.name}.profraw"
    subprocess.run([program, *directories, "-runs=0", f"-max_len={target.longest}", "-verbosity=0"], check=True, stderr=subprocess.DEVNULL,
                   env=dict(os.environ, LLVM_PROFILE_FILE=str(raw)))
    profile = raw.with_suffix(".profdata")
    subprocess.run(["llvm-profdata", "merge", "-o", profile, raw], check=True)
    files = lines_of(program, profile)
    return [(file.partition(":")[0], *reached(file, *files[file.partition(":")[0]])) for file in target.files]


def show(targets, directories):
    """Prints the table of docs/fuzzing.md; returns 1 if a reader has less than 90 %."""
    build(targets)
    poor = 0
    print("| target | reads | lines reached |\n|---|---|---|")
    for target in targets:
        parts = measure(target, directories(target))
        ran, lines = sum(part[1] for part in parts), sum(part[2] for part in parts)
        each = ", ".join(f"`{Path(name).name}` {100 * n / of:.0f} %" for name, n, of in parts)
        print(f"| `{target.name}` | {target.reads} | {100 * ran / lines:.1f} % of {lines}: {each} |", flush=True)
        poor += 100 * ran < LEAST * lines
    return 1 if poor else 0
