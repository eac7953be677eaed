# SPDX-License-Identifier: BSD-3-Clause
"""Exact counts of a guest's calls, by exact.so inside the emulator (follow.h says how)."""

import collections
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

# Functions that are entered by an interrupt, and such whose code the image does not hold.
HANDLERS = {"timer_entry"}
WRITTEN = {"hypercall_page"}


class ExactError(Exception):
    pass


class Tree:
    """{stack as a tuple of names, root first: what ran on it}, since the guest's start."""

    def __init__(self, text=""):
        self.guest, self.xen, self.calls = {}, {}, {}
        self.lost = 0
        for line in text.splitlines():
            if line.startswith("# lost "):
                self.lost = int(line.split()[2])
                continue
            names, guest, xen, calls = line.rsplit(" ", 3)
            stack = tuple(names.split(";"))
            self.guest[stack], self.xen[stack], self.calls[stack] = int(guest), int(xen), int(calls)

    def edges(self):
        return {pair for stack in self.guest for pair in zip(stack, stack[1:])}

    def since(self, before):
        """{stack: instructions}, the guest's and Xen's on its behalf, since an earlier tree."""
        return {stack: count for stack in self.guest
                if (count := self.guest[stack] - before.guest.get(stack, 0)
                    + self.xen[stack] - before.xen.get(stack, 0))}

    def calls_of_edges(self):
        """{(caller, callee): calls}"""
        found = collections.Counter()
        for stack, calls in self.calls.items():
            if len(stack) > 1:
                found[stack[-2:]] += calls
        return found

    def inclusive(self):
        """{function: instructions of the guest in it and in all that it called}"""
        found = collections.Counter()
        for stack, count in self.guest.items():
            for name in set(stack):
                found[name] += count
        return found


class Exact:
    """The plugin of one QEMU: start that with `argument` behind "-plugin"."""

    def __init__(self, plugin):
        self._directory = tempfile.TemporaryDirectory(prefix="exact-")
        self._path = Path(self._directory.name)
        self._stream = None
        self.argument = f"{plugin},socket={self._path / 'socket'}"

    def close(self):
        if self._stream:
            self._stream.close()
        self._directory.cleanup()

    def watch(self, elf):
        """Counts this image from now on, from nothing. The guest must not have been created yet."""
        with tempfile.TemporaryDirectory(dir=self._path) as image:
            _describe(elf, Path(image))
            self._ask(f"image {image}")

    def read(self):
        """The tree; while the guest does not run."""
        file = self._path / "tree"
        self._ask(f"write {file}")
        return Tree(file.read_text(encoding="ascii"))

    def _ask(self, line):
        if not self._stream:
            self._stream = self._connect()
        self._stream.write(line + "\n")
        self._stream.flush()
        if self._stream.readline() != "ok\n":
            raise ExactError(f"the plugin does not obey: {line}")

    def _connect(self, seconds=10):
        end = time.monotonic() + seconds
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(self._path / "socket"))
                with sock:
                    return sock.makefile("rw", encoding="ascii")
            except OSError:
                sock.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


def _output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _describe(elf, directory):
    """The two files that code.h asks for."""
    start, offset, size = next(line.split(".text")[1].split()[1:4] for line in _output("readelf", "-SW", str(elf)).splitlines()
                               if " .text " in line)
    # Not by objcopy, which knows its own machine's files only.
    text = Path(elf).read_bytes()[int(offset, 16):][:int(size, 16)]
    (directory / "text").write_bytes(text)
    functions = []
    for line in _output("readelf", "-sW", str(elf)).splitlines():
        words = line.split()
        if len(words) == 8 and words[3] == "FUNC":
            kind = "h" if words[7] in HANDLERS else "w" if words[7] in WRITTEN else "c"
            functions.append((int(words[1], 16), int(words[2], 0), kind, words[7]))
    with open(directory / "functions", "w", encoding="ascii") as file:
        file.write(f"{start}\n")
        file.writelines(f"{address:x} {size:x} {kind} {name}\n" for address, size, kind, name in sorted(functions))
