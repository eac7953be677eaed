#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Names and lines of what Debian's compilers make, compared with what these languages' own tools print."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("UNIPROF_BUILD", HERE.parents[1] / "build"))
LOCATE = BUILD / "tests/names/locate"
SOURCES = HERE / "sources"


def run(*command, stdin="", cwd=None, env=None):
    done = subprocess.run([str(part) for part in command], input=stdin, cwd=cwd, capture_output=True, text=True, check=False,
                          env=dict(os.environ, **(env or {})))
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def locations(text):
    """The blocks of `addr2line -a -f -i`: by address, (function, file:line) innermost first."""
    found, lines = {}, []
    for line in text.splitlines():
        if re.fullmatch(r"0x[0-9a-f]+", line) and not len(lines) % 2:
            lines = found.setdefault(int(line, 16), [])
        else:
            lines.append(re.sub(r" \(discriminator \d+\)", "", line))
    return {address: list(zip(lines[::2], lines[1::2])) for address, lines in found.items()}


def locate(path, addresses, *options, env=None):
    return locations(run(LOCATE, *options, path, stdin="".join(f"{a:x}\n" for a in addresses), env=env))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def debuginfod(served, place):
    """A server that has the files of a directory; its address, once it knows them."""
    port = free_port()
    with open(place / "debuginfod.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(["debuginfod", "-F", "-p", str(port), "-d", str(place / "debuginfod.sqlite"), "-R", str(served)],
                                  stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
                if re.search(r'^found_debuginfo_total\S* [1-9]', answer.read().decode(), re.MULTILINE):
                    break
            time.sleep(0.1)
        else:
            raise AssertionError((place / "debuginfod.log").read_text())
        yield url
    finally:
        server.terminate()
        server.wait()


def functions(path):
    """Functions with a size: (address, size, name as it is in the file)."""
    found = []
    for line in run("nm", "-S", "--defined-only", path).splitlines():
        parts = line.split(" ", 3)
        if len(parts) == 4 and parts[2] in "TtWw":
            found.append((int(parts[0], 16), int(parts[1], 16), parts[3]))
    return found


def within(path, pattern, step=1):
    """Addresses in the functions whose names match."""
    return [a for start, size, name in functions(path) if re.search(pattern, name) for a in range(start, start + size, step)]


def plain(place):
    """Unknown names in one spelling."""
    return "??" if place.startswith("??") or place.endswith((":?", ":0")) else place


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.place = Path(cls.directory.name)
        # If we are root, the processes that read files have none of root's rights.
        cls.place.chmod(0o755)

    def source(self, name):
        return shutil.copy(SOURCES / name, self.place)

    def make(self, output, *command):
        run(*command, "-o", output, cwd=self.place)
        return self.place / output

    def assert_lines_of(self, path, addresses):
        """Each address is in the function, and innermost at the line, that binutils' addr2line says."""
        ours = locate(path, addresses)
        theirs = locations(run("addr2line", "-a", "-f", "-i", "-C", "-e", path, stdin="".join(f"{a:x}\n" for a in addresses)))
        self.assertGreater(len(theirs), 0)
        told = 0
        for address, expected in theirs.items():
            got = ours[address]
            self.assertEqual(plain(got[0][1]), plain(expected[0][1]), f"{address:x}")
            # It tells of fewer inlined functions where their code is in several pieces.
            self.assertGreaterEqual(len(got), len(expected), f"{address:x}")
            told += plain(got[0][1]) != "??"
        self.assertGreater(told, len(theirs) * 0.8)

    # C++

    def cpp(self, *flags):
        return self.make("libshop" + "".join(flags).replace("/", "") + ".so", "g++", "-O2", "-g", *flags, "-shared", "-fPIC", self.source("shop.cc"))

    def test_every_name_of_a_cpp_library_is_as_cppfilt_prints_it(self):
        library = self.cpp()
        mangled = functions(library)
        theirs = dict(zip((name for _, _, name in mangled),
                          run("c++filt", stdin="".join(f"{name}\n" for _, _, name in mangled)).splitlines()))
        ours = locate(library, [address for address, _, _ in mangled], "--no-inline")
        checked = 0
        for address, _, name in mangled:
            # Any of several names for one address will do.
            same = {theirs[other] for start, _, other in mangled if start == address}
            self.assertIn(ours[address][0][0], same)
            checked += name.startswith("_Z")
        self.assertGreater(checked, 10)

    def test_names_stay_as_they_are_if_asked(self):
        library = self.cpp()
        names = {name for _, _, name in functions(library)}
        for got in locate(library, within(library, "^_ZN4shop", 64), "--no-demangle", "--no-inline").values():
            self.assertIn(got[0][0], names)

    def test_lines_of_a_cpp_library(self):
        for flags in [], ["-gz"], ["-gdwarf-4"], ["-O0"]:
            with self.subTest(flags=flags):
                library = self.cpp(*flags)
                self.assert_lines_of(library, within(library, "^_ZN4shop", 3))

    def test_inlined_functions_of_cpp(self):
        library = self.cpp()
        stacks = [[name for name, _ in got] for got in locate(library, within(library, "_ZN4shop5totalE")).values()]
        self.assertIn(["shop::price::operator+=(shop::price const&)", "add",
                       "shop::total(shop::price const*, unsigned long)"], stacks)

    def assert_same_as_in_one_file(self, other, base):
        """Debugging information in another file gives the same names and lines."""
        self.assertEqual([(a, n) for a, _, n in functions(base)], [(a, n) for a, _, n in functions(other)])
        addresses = within(base, "^_ZN4shop")
        self.assertEqual(locate(other, addresses), locate(base, addresses))

    def test_debugging_information_in_files_of_its_own(self):
        for dwarf in "-gdwarf-4", "-gdwarf-5":
            with self.subTest(dwarf=dwarf):
                self.assert_same_as_in_one_file(self.cpp("-gsplit-dwarf", dwarf), self.cpp(dwarf))

    def test_debugging_information_that_was_stripped_off(self):
        library = self.cpp()
        stripped = self.place / "stripped.so"
        shutil.copy(library, stripped)
        run("objcopy", "--only-keep-debug", stripped, self.place / "stripped.debug")
        run("strip", "-g", stripped)
        run("objcopy", "--add-gnu-debuglink=stripped.debug", stripped, cwd=self.place)
        self.assert_same_as_in_one_file(stripped, library)

    def test_debugging_information_that_dwz_has_shared(self):
        libraries = [self.place / name for name in ("a.so", "b.so")]
        base = self.cpp()
        for library in libraries:
            shutil.copy(base, library)
        run("dwz", "-m", self.place / "common.dwz", *libraries)
        self.assertIn(".gnu_debugaltlink", run("readelf", "-S", libraries[0]))
        self.assert_same_as_in_one_file(libraries[0], base)

    def assert_not_waited_for(self, library, *files):
        """Where a FIFO stands for these files, nobody writes to it, and the same is told as without them."""
        addresses = within(library, "^_ZN4shop", 16)
        for file in files:
            file.unlink()
        expected = locate(library, addresses)
        for file in files:
            os.mkfifo(file)
        begin = time.monotonic()
        self.assertEqual(locate(library, addresses), expected)
        # Readers are given up after 120 s.
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_split_file_that_is_a_fifo(self):
        for dwarf in "-gdwarf-4", "-gdwarf-5":
            with self.subTest(dwarf=dwarf):
                library = self.cpp("-gsplit-dwarf", dwarf)
                self.assert_not_waited_for(library, *self.place.glob("*.dwo"))
                for fifo in self.place.glob("*.dwo"):
                    fifo.unlink()

    def test_a_shared_file_that_is_a_fifo(self):
        libraries = [self.place / name for name in ("c.so", "d.so")]
        for library in libraries:
            shutil.copy(self.cpp(), library)
        run("dwz", "-m", self.place / "waiting.dwz", *libraries)
        (self.place / "waiting.dwz").unlink()
        os.mkfifo(self.place / "waiting.dwz")
        begin = time.monotonic()
        self.assertTrue(locate(libraries[0], within(libraries[0], "^_ZN4shop", 16)))
        self.assertLess(time.monotonic() - begin, 60)

    def test_debugging_information_from_a_server(self):
        library = self.cpp()
        served, stripped = self.place / "served", self.place / "far.so"
        served.mkdir()
        run("objcopy", "--only-keep-debug", library, served / "shop.debug")
        run("objcopy", "--strip-debug", library, stripped)
        with debuginfod(served, self.place) as url:
            env = {"DEBUGINFOD_URLS": url, "DEBUGINFOD_CACHE_PATH": str(self.place / "debuginfod")}
            addresses = within(library, "^_ZN4shop")
            expected = locate(library, addresses)
            self.assertNotEqual(locate(stripped, addresses), expected)
            self.assertEqual(locate(stripped, addresses, env=env), expected)
            # A server that sends another file, or none, is not believed.
            self.assertEqual(locate(stripped, addresses, env=env | {"DEBUGINFOD_URLS": url + "/none", "DEBUGINFOD_CACHE_PATH":
                                                                    str(self.place / "other")}), locate(stripped, addresses))

    # Rust

    def rust(self, *flags):
        compiler = "/usr/bin/rustc" if os.path.exists("/usr/bin/rustc") else "rustc"
        return self.make("shop-rust" + "".join(flags[1:]), compiler, "-g", "-O", *flags, self.source("shop.rs"))

    def test_names_and_lines_of_rust_are_those_of_its_own_backtrace(self):
        for flags in [], ["-C", "symbol-mangling-version=v0"]:
            with self.subTest(flags=flags):
                program = self.rust(*flags)
                trace = run("sh", "-c", f"'{program}' 2>&1", env={"RUST_BACKTRACE": "1"})
                frames = re.findall(r"\d+: (.*)\n +at (.*):(\d+):\d+\n", trace)
                own = [(name, int(line)) for name, path, line in frames if "shop.rs" in path]
                self.assertEqual([name for name, _ in own[-1:]], ["shop::main"])
                self.assertGreaterEqual(len(own), 3)
                ours = {(name, int(place.rsplit(":", 1)[1]))
                        for got in locate(program, within(program, "shop|try|call", 2)).values()
                        for name, place in got if "shop.rs" in place}
                for one in own:
                    self.assertIn(one, ours)

    def test_lines_of_rust(self):
        program = self.rust()
        self.assert_lines_of(program, within(program, "4shop"))

    # OCaml

    def test_names_and_lines_of_ocaml_are_those_of_its_own_backtrace(self):
        program = self.make("shop-ocaml", "ocamlopt", "-g", self.source("shop.ml"))
        trace = run(program, env={"OCAMLRUNPARAM": "b"})
        frames = re.findall(r"(?:Raised at|Called from) (\S+) in file \"(.*?)\"(?: \(inlined\))?, line (\d+)", trace)
        # Names of files have no modules within a file, which backtraces tell; those without a name are numbered.
        own = {(name, Path(path).name, line) for name, path, line in frames if re.fullmatch(r"\w+\.\w+", name)}
        self.assertLessEqual({"Shop.add", "Shop.twice", "Stdlib__List.map"}, {name for name, _, _ in own})
        ours = {(re.sub(r"_\d+$", "", name), *place.rsplit("/", 1)[1].split(":"))
                for got in locate(program, within_unsized(program, "camlShop|camlStdlib__List")).values()
                for name, place in got if "/" in place}
        for name, path, line in own:
            self.assertIn((name.replace("__", "."), path, line), ours)

    # Go

    def test_names_and_lines_of_go_are_those_of_its_own_tools(self):
        program = self.place / "shop-go"
        run("go", "build", "-o", program, self.source("shop.go"), cwd=self.place,
            env={"GO111MODULE": "off", "GOCACHE": str(self.place / "cache"), "HOME": str(self.place)})
        symbols = {}
        for line in run("go", "tool", "nm", "-size", "-sort", "address", program).splitlines():
            address, size, kind, name = line.split(None, 3)
            if kind in "Tt" and int(size) > 0:
                symbols.setdefault(int(address, 16), set()).add(name)
        ours = locate(program, symbols, "--no-inline")
        for address, names in symbols.items():
            self.assertIn(ours[address][0][0], names)
        addresses = [a for start, names in symbols.items() if any(n.startswith("main.") for n in names) for a in range(start, start + 32, 4)]
        theirs = run("go", "tool", "addr2line", program, stdin="".join(f"{a:#x}\n" for a in addresses),
                     env={"HOME": str(self.place)}).splitlines()
        lines = dict(zip(addresses, theirs[1::2]))
        checked = 0
        for address, got in locate(program, addresses).items():
            if plain(got[0][1]) == "??" or plain(lines[address]) == "??":
                continue
            self.assertEqual(got[0][1], lines[address], f"{address:x}")
            checked += 1
        self.assertGreater(checked, 20)


def within_unsized(path, pattern):
    """OCaml's functions have sizes on some machines only: up to the next symbol in code."""
    symbols = []
    for line in run("nm", "-n", "--defined-only", path).splitlines():
        address, kind, name = line.split(" ", 2)
        if kind in "Tt":
            symbols.append((int(address, 16), name))
    return [a for (start, name), (end, _) in zip(symbols, symbols[1:]) if re.search(pattern, name) for a in range(start, min(end, start + 4096))]


if __name__ == "__main__":
    if not LOCATE.exists():
        sys.exit(f"{LOCATE} is not there: build first")
    unittest.main()
