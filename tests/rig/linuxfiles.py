# SPDX-License-Identifier: BSD-3-Clause
"""Files of Linux guests for tests: programs of this machine with all that they need, as a first root file system."""

import re
import subprocess
from pathlib import Path

LOADER = "lib64/ld-linux-x86-64.so.2"
PYTHON = Path("/usr/bin/python3.11")

# (caller, callee) in tests/vmm/programs/sorter.c; a library is between some.
SORTER_CALLS = {("main", "rounds"), ("rounds", "sort_all"), ("sort_all", "by_bits"), ("by_bits", "spin")}

# Modules that are loaded with these, as paths of this machine.
MODULES = """
import itertools, json, sys, threading, time
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print(module.__file__)
"""


def archive(files):
    """A cpio archive ("newc") of {name: (mode, contents, device)}."""
    out = b""
    for number, (name, (mode, data, device)) in enumerate([*files.items(), ("TRAILER!!!", (0, b"", (0, 0)))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return out


def files_of(programs):
    """Files of a guest with these programs {name: path} and the libraries of this machine that they need."""
    told = "".join(subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout for path in programs.values())
    files = {**programs, LOADER: Path("/") / LOADER, **{library.lstrip("/"): Path(library) for library in re.findall(r"=> (/\S+)", told)}}
    directories = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    return {**{name: (0o40755, b"", (0, 0)) for name in sorted(directories)}, **{name: (0o100755, path.read_bytes(), (0, 0)) for name, path in files.items()}}


def python_files(name, script):
    """Files of a guest with Debian's Python and a script."""
    modules = subprocess.run([PYTHON, "-S", "-c", MODULES], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    paths = [PYTHON, Path("/usr/lib/python3.11/os.py"), *map(Path, modules)]
    return {**files_of({str(path).lstrip("/"): path for path in paths}), name: (0o100644, script.encode(), (0, 0))}


def python_words(name):
    """Words for the kernel to begin with that script."""
    return f"rdinit={PYTHON} -- -S -E -B /{name}"
