#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The program symbolize as its users meet it.

Usage: symbolize_test.py SYMBOLIZE [unittest options]
"""

import bisect
import os
import random
import resource
import subprocess
import sys
import tempfile
import unittest

SYMBOLIZE = os.path.abspath(sys.argv.pop(1))

HEAD = (
    "#unikernel stack tracer using libxencall hypercall interface\n"
    "#tracing domid 7 on 2026-11-21 09:00:00 UTC (+0000)\n"
    "\n"
)
SYMS = "0000000000000000 T _start\n0000000000001000 T main\n0000000000001100 T work\n"


class Symbolize(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.syms = self.file("syms", SYMS)

    def file(self, name, contents):
        path = os.path.join(self.work.name, name)
        with open(path, "wb") as file:
            file.write(contents if isinstance(contents, bytes) else contents.encode())
        return path

    def run_it(self, *args, **options):
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([SYMBOLIZE, *args], stderr=subprocess.PIPE, timeout=60, **options)

    def resolved(self, trace):
        done = self.run_it(self.syms, self.file("trace", trace))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def fails(self, done, code, *words):
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, text)
        self.assertTrue(text.startswith("symbolize: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        for word in words:
            self.assertIn(word, text)

    def test_a_stripped_file_is_named_by_its_debug_file(self):
        """The tools of GNU binutils part symbolize itself from its symbols, as distributions do."""
        os.chmod(self.work.name, 0o755)
        at = lambda name: os.path.join(self.work.name, name)  # noqa: E731
        subprocess.run(["objcopy", "--only-keep-debug", SYMBOLIZE, at("apart.debug")], check=True)
        subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={at('apart.debug')}", SYMBOLIZE, at("stripped")], check=True)
        nm = subprocess.run(["nm", SYMBOLIZE], check=True, stdout=subprocess.PIPE, text=True).stdout
        address = next(line.split()[0] for line in nm.splitlines() if line.endswith(" T main"))
        trace = self.file("trace", HEAD + f"0x{address.lstrip('0')}\n1\n\n")
        done = self.run_it(at("stripped"), trace)
        self.assertEqual(done.stdout.decode(), HEAD + "main\n1\n\n", done.stderr)
        os.remove(at("apart.debug"))
        done = self.run_it(at("stripped"), trace)
        self.assertNotIn("main", done.stdout.decode())

    def test_trace_gets_names(self):
        self.assertEqual(
            self.resolved(HEAD + "0x1104\n0x1100\n0x10\n1\n\n0x1100\n0\n\n"),
            HEAD + "work+0x4\nmain+0x100\n_start+0x10\n1\n\nwork\n0\n\n",
        )

    def test_trace_of_the_2017_tool_with_and_without_names(self):
        """It leaves the address where it hits a function exactly."""
        self.assertEqual(self.resolved("main+0x10\n0x1100\n1\n\n"), "main+0x10\nmain+0x100\n1\n\n")
        self.assertEqual(self.resolved("0x1000\nwork+0x2\n1\n\n"), "main\nwork+0x2\n1\n\n")

    def test_own_output_is_left_alone(self):
        once = self.resolved(HEAD + "0x1104\n0x1005\n1\n\n")
        self.assertEqual(self.resolved(once), once)

    def test_unresolved_addresses_are_told_and_stay(self):
        done = self.run_it(self.syms, self.file("trace", "0x1000\n0xffffffff81000000\n1\n\n"))
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"main\n0xffffffff81000000\n1\n\n")
        self.assertIn(b"1 of 2 addresses (50.0 %)", done.stderr)

    def test_standard_input_and_pipes(self):
        done = self.run_it(self.syms, "-", input=b"0x1000\n1\n\n")
        self.assertEqual((done.returncode, done.stdout), (0, b"main\n1\n\n"))
        command = f'"{SYMBOLIZE}" <(cat "{self.syms}") <(echo 0x1004)'
        self.assertEqual(subprocess.check_output(["bash", "-c", command]), b"main+0x4\n")

    def test_answers_while_the_pipe_is_open(self):
        with subprocess.Popen([SYMBOLIZE, self.syms, "-"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdin.write(b"0x1000\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b"main\n")
            process.stdin.close()
        self.assertEqual(process.returncode, 0)

    def test_names_from_an_elf_file(self):
        """This program's own symbols, as nm prints them and as the ELF file has them."""
        try:
            listing = subprocess.check_output(["nm", "-n", SYMBOLIZE], text=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no nm here")
        address = [line.split()[0] for line in listing.splitlines() if line.endswith(" T main")]
        if not address:
            self.skipTest("the program is stripped")
        trace = self.file("trace", f"{int(address[0], 16) + 2:#x}\n")
        for syms in (SYMBOLIZE, self.file("nm", listing)):
            self.assertEqual(self.run_it(syms, trace).stdout, b"main+0x2\n")

    def test_matches_a_plain_implementation(self):
        rng = random.Random(2026)
        starts = sorted(rng.sample(range(0x100000, 0x200000), 500))
        syms = self.file("many", "".join(f"{start:016x} t f{start:x}\n" for start in starts))
        trace, expected = [HEAD], [HEAD]
        for _ in range(3000):
            for depth in range(rng.randrange(1, 20)):
                address = rng.choice(starts) + rng.choice((0, 0, 1, 5, 3000))
                at = bisect.bisect_right(starts, address - (depth > 0)) - 1
                trace.append(f"{address:#x}\n")
                if at < 0 or at == len(starts) - 1 and address - (depth > 0) >= starts[at] + 4096:
                    expected.append(f"{address:#x}\n")
                elif address == starts[at]:
                    expected.append(f"f{starts[at]:x}\n")
                else:
                    expected.append(f"f{starts[at]:x}+{address - starts[at]:#x}\n")
            trace.append("1\n\n")
            expected.append("1\n\n")
        done = self.run_it(syms, self.file("trace", "".join(trace)))
        self.assertEqual(done.stdout.decode(), "".join(expected))

    def test_is_fast(self):
        """A million stacks of 12 frames are to take less than 0.8 s; allow for slow machines."""
        stacks = ["".join(f"{0x1000 + i * 12 + f:#x}\n" for f in range(12)) + "1\n\n"
                  for i in range(100)]
        trace = self.file("trace", HEAD + "".join(stacks) * 1000)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(self.run_it(self.syms, trace, stdout=subprocess.DEVNULL).returncode, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.assertLess(used, 0.8)

    def test_bad_symbol_files(self):
        trace = self.file("trace", "0x1000\n")
        for path, words in (
            ("/no/such/file", "No such file"),
            (self.work.name, "directory"),
            (self.file("empty", ""), "empty"),
            (self.file("binary", bytes(range(256))), "binary"),
            (self.file("words", "hello\n"), "no function symbols"),
            (self.file("elf", b"\x7fELF" + bytes(100)), "ELF"),
        ):
            with self.subTest(path=path):
                done = self.run_it(path, trace)
                self.fails(done, 6, path, words)
                self.assertEqual(done.stdout, b"")

    def test_bad_traces(self):
        self.fails(self.run_it(self.syms, "/no/such/file"), 6, "/no/such/file", "No such file")
        self.fails(self.run_it(self.syms, "/"), 6, "Is a directory")

    def test_full_disk(self):
        trace = self.file("trace", "0x1000\n" * 1000)
        with open("/dev/full", "wb") as full:
            self.fails(self.run_it(self.syms, trace, stdout=full), 7, "No space left")

    def test_closed_pipe(self):
        trace = self.file("trace", "0x1000\n" * 1000000)
        reader, writer = os.pipe()
        os.close(reader)
        self.fails(self.run_it(self.syms, trace, stdout=writer), 7, "Broken pipe")
        os.close(writer)

    def test_closed_standard_output(self):
        trace = self.file("trace", "0x1000\n")
        command = f'exec "{SYMBOLIZE}" "{self.syms}" "{trace}" >&-'
        done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, check=False)
        self.fails(done, 7, "cannot write")

    def test_usage(self):
        for args in ((), (self.syms,), (self.syms, "a", "b"), ("--nonsense", "a")):
            with self.subTest(args=args):
                done = self.run_it(*args)
                self.assertEqual((done.returncode, done.stdout), (2, b""))
                self.assertIn(b"symbolize", done.stderr)
        for option in ("-h", "--help"):
            done = self.run_it(option)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"SYMS TRACE", done.stdout)
        for option in ("-V", "--version"):
            done = self.run_it(option)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertRegex(done.stdout.decode(), r"^symbolize \(uniprof [0-9.]+\)\n$")


if __name__ == "__main__":
    unittest.main()
