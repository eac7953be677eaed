#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof report --annotate`: instructions as objdump has them, lines as addr2line has them, samples as the report has them."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from hostcase import BUILD, UNIPROF, HostCase
from qemucase import QemuCase

PROGRAM = """\
#include <cstdint>
#include <cstdio>
#include <vector>
static inline uint64_t mix(uint64_t x)
{
	x ^= x << 13;
	x ^= x >> 7;
	return x ^ x << 17;	// \x1b[31m
}
struct Table {
	std::vector<uint64_t> v;
	__attribute__((noinline)) uint64_t sum(uint64_t seed) const
	{
		for (uint64_t e : v)
			seed += mix(seed ^ e) / 3;
		return seed;
	}
};
__attribute__((noinline)) uint64_t both(const Table &t, uint64_t s)
{
	uint64_t first = t.sum(s);
	return first ^ t.sum(first + 1);
}
int main()
{
	Table t;
	uint64_t s = 88172645463325252ull;
	for (int i = 0; i < 4000; i++)
		t.v.push_back(s = mix(s));
	puts("begins");
	fflush(stdout);
	for (;;)
		if ((s ^= both(t, s)) == 1)
			puts("one");
}
"""


def numbers(operands):
    """The numbers in operands, whatever their base and sign."""
    found = re.findall(r"(?<![\w.%])-?0x[0-9a-f]+|(?<![\w.%])-?\d+\b", operands)
    return sorted(int(text, 16 if "0x" in text else 10) % 2**64 for text in found if int(text, 16 if "0x" in text else 10))


def normal(text):
    """(mnemonic, registers, numbers) of an instruction, as far as objdump and capstone agree on how to write them."""
    if "nop" in text:
        return "nop", [], []
    text = re.sub(r"\s*(#[^0-9-]|<|//).*", "", text.strip()).replace("\t", " ").replace(",1)", ")")
    mnemonic, _, operands = text.partition(" ")
    operands = operands.replace("#", "")
    operands = re.sub(r"^\$1, *" if mnemonic[:2] in ("sh", "sa") else "^$", "", operands)
    # objdump writes targets without 0x.
    if re.match(r"j|call|b|cb|tb|adr", mnemonic):
        operands = re.sub(r"(^|[, ])([0-9a-f]{3,})$", r"\g<1>0x\2", operands)
    operands = re.sub(r"%[er]iz", "", operands)
    return mnemonic, sorted(re.findall(r"%\w+|\b[xwvdsq]\d+\b|\bsp\b", operands)), numbers(operands)


def same(ours, theirs):
    a, b = normal(ours), normal(theirs)
    long, short = max(a[0], b[0], key=len), min(a[0], b[0], key=len)
    names = long == short or {long, short} == {"movz", "mov"} or (long[:-1] == short and long[-1] in "bwlq")
    return names and a[1:] == b[1:]


class Annotated(HostCase):
    def annotated(self, function, *more):
        report = json.loads(self.uniprof("report", "--json", "--annotate", function, *more, "out.uniprof"))
        return report, report["annotation"]

    def objdump(self, tool, image, rows):
        """{address: (bytes, text)} of the same code."""
        first, last = int(rows[0]["address"], 16), int(rows[-1]["address"], 16)
        text = subprocess.run([tool, "-d", "-w", f"--start-address={first}", f"--stop-address={last + len(rows[-1]['bytes']) // 2}", image],
                              check=True, stdout=subprocess.PIPE).stdout.decode()
        found = re.findall(r"^ *([0-9a-f]+):\t((?:[0-9a-f]+ )+) *\t(.*)$", text, re.M)
        self.assertTrue(found, text)
        return {int(at, 16): (code, line) for at, code, line in found}

    def check_instructions(self, tool, image, rows, texts=True):
        theirs = self.objdump(tool, image, rows)
        self.assertEqual([int(row["address"], 16) for row in rows], list(theirs))
        for row in rows:
            code, text = theirs[int(row["address"], 16)]
            groups = code.split()
            # Bytes one by one, or words of little-endian machines.
            code = "".join("".join(reversed(re.findall("..", word))) for word in groups)
            self.assertEqual(row["bytes"], code)
            self.assertTrue(not texts or same(row["instruction"], text), f"{row['instruction']!r} is {text!r} for objdump")

    def check_lines(self, tool, image, rows):
        asked = [row["address"] for row in rows]
        text = subprocess.run([tool, "-e", image, "-i", "-a", *asked], check=True, stdout=subprocess.PIPE).stdout.decode()
        known = 0
        for row, part in zip(rows, re.split(r"^0x[0-9a-f]+\n", text, flags=re.M)[1:], strict=True):
            theirs = [re.sub(r" \(discriminator.*", "", line).rpartition(":") for line in part.splitlines()]
            ours = [(os.path.basename(at["file"] or "??"), at["line"]) for at in row["lines"]]
            theirs = [(os.path.basename(file), int(line) if line.isdigit() else 0) for file, _, line in theirs]
            known += theirs[0][1] > 0
            self.assertEqual(ours, theirs, row["address"])
        self.assertGreater(known, len(rows) // 2)

    def check_sums(self, function, parts, only=""):
        """Samples by address are those of the report."""
        for part in parts:
            self.assertEqual(sum(row["self"]["samples"] for row in part["instructions"]), part["self"]["samples"])
            self.assertEqual(part["misplaced"], 0)
        for what, more in ("own", ()), ("self", ("--no-inline",)):
            rows = json.loads(self.uniprof("report", "--json", *more, *only, "out.uniprof"))["rows"]
            wanted = sum(row["self"]["samples"] for row in rows if row["function"] == function)
            self.assertEqual(sum(part[what]["samples"] for part in parts if not part["inlined"] or what == "own"), wanted, what)


@unittest.skipUnless(shutil.which("g++"), "no g++ on this machine")
class Processes(Annotated):
    # The program, its source and a recording of it, made by the first test.
    made = None

    @classmethod
    def tearDownClass(cls):
        if cls.made:
            cls.made.cleanup()

    def setUp(self):
        super().setUp()
        if not self.made:
            type(self).made = tempfile.TemporaryDirectory()
            self.make(Path(self.made.name))
        # Each test has files of its own, where the recording says that they are.
        self.scratch = Path(self.made.name) / "now"
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.scratch.with_name("kept"), self.scratch)
        self.program = self.scratch / "hot"
        if "with libcapstone" not in subprocess.run([UNIPROF, "-V"], check=True, stdout=subprocess.PIPE).stdout.decode():
            self.skipTest("this build has no disassembler")

    def make(self, directory):
        # Nobody, whom root becomes, reads the files.
        directory.chmod(0o755)
        self.scratch = directory / "now"
        self.scratch.mkdir()
        (self.scratch / "hot.cc").write_text(PROGRAM)
        self.program = self.scratch / "hot"
        subprocess.run(["g++", "-O2", "-g", "-o", self.program, self.scratch / "hot.cc"], check=True)
        self.end(self.start_recorded())
        self.scratch.rename(directory / "kept")

    def start_recorded(self):
        process = self.start(self.program)
        self.says(process, "begins")
        self.uniprof("record", "-F", 200, "-T", 2, "-o", "out.uniprof", f"process:{process.pid}")
        return process

    def test_a_function_is_what_objdump_and_addr2line_say(self):
        _, parts = self.annotated("Table::sum")
        self.assertEqual(len(parts), 1)
        self.assertIsNone(parts[0]["lacks"])
        self.check_instructions("objdump", self.program, parts[0]["instructions"])
        self.check_lines("addr2line", self.program, parts[0]["instructions"])
        self.check_sums("Table::sum(unsigned long) const", parts)
        self.assertGreater(parts[0]["self"]["samples"], 5)

    def test_callers_count_at_their_calls(self):
        _, parts = self.annotated("^both[(]")
        hot = [row for row in parts[0]["instructions"] if row["total"]["samples"] > row["self"]["samples"]]
        self.assertEqual(len(hot), 2)
        for row in hot:
            self.assertRegex(row["instruction"], "^call")
            self.assertEqual(row["target"], "Table::sum(unsigned long) const")
        self.assertEqual(sum(row["total"]["samples"] for row in parts[0]["instructions"]), parts[0]["total"]["samples"])

    def test_an_inlined_function_is_shown_where_it_is_inlined(self):
        report, parts = self.annotated("mix")
        inlined = [part for part in parts if part["function"].startswith("Table::sum")]
        self.assertTrue(inlined[0]["inlined"])
        for row in inlined[0]["instructions"]:
            self.assertTrue(any(at["function"].startswith("mix") for at in row["lines"]) or row["total"]["samples"], row)
        self.assertIn("x ^= x << 13;", [at["source"].strip() for row in inlined[0]["instructions"] for at in row["lines"] if at["source"]])
        self.assertEqual(report["view"], "annotate")
        rows = json.loads(self.uniprof("report", "--json", "out.uniprof"))["rows"]
        wanted = sum(row["self"]["samples"] for row in rows if row["function"].startswith("mix"))
        self.assertEqual(sum(part["own"]["samples"] for part in parts), wanted)
        self.assertGreater(wanted, 0)

    def test_text_says_the_same_and_is_harmless(self):
        text = self.uniprof("report", "--annotate", "Table::sum", "out.uniprof")
        self.assertRegex(text, r"hot\.cc:6  x \^= x << 13;  \(mix < hot\.cc:15\)")
        self.assertRegex(text, r"(?m)^ +[\d.]+ % +[\d.]+ % +[\d.]+ % +\d+ +[0-9a-f]+  \w+ ")
        self.assertNotIn("\x1b", text)

    def test_what_is_missing_is_said(self):
        moved = self.program.rename(self.scratch / "away")
        _, gone = self.annotated("Table::sum")
        self.assertRegex(gone[0]["lacks"], "hot is not here, .*: -s FILE gives it")
        self.assertIsNone(gone[0]["instructions"][0]["instruction"])
        self.check_sums("Table::sum(unsigned long) const", gone)
        _, given = self.annotated("Table::sum", "-s", moved)
        self.assertIsNone(given[0]["lacks"])
        self.check_instructions("objdump", moved, given[0]["instructions"])
        # Debugging information alone has no code; a stripped file has no names.
        subprocess.run(["objcopy", "--only-keep-debug", moved, self.scratch / "debug"], check=True)
        subprocess.run(["strip", "-o", self.program, moved], check=True)
        for more in (), ("-s", self.scratch / "debug"):
            _, parts = self.annotated("Table::sum", *more)
            self.check_instructions("objdump", moved, parts[0]["instructions"])
            self.check_sums("Table::sum(unsigned long) const", parts, more)
            if not more:
                self.assertIn("does not say where the function ends", parts[0]["lacks"])
        (self.scratch / "other.cc").write_text(PROGRAM.replace("4000", "5000"))
        subprocess.run(["g++", "-O2", "-g", "-Wl,--build-id", "-o", self.program, self.scratch / "other.cc"], check=True)
        _, changed = self.annotated("Table::sum")
        self.assertRegex(changed[0]["lacks"], "hot has changed since .*: -s FILE")

    def test_code_at_an_address_is_that_of_its_function(self):
        _, parts = self.annotated("Table::sum")
        slide = int(parts[0]["slide"], 16)
        hot = max(parts[0]["instructions"], key=lambda row: row["self"]["samples"])
        at = int(hot["address"], 16) + slide
        _, same = self.annotated(hex(at))
        self.assertEqual(same, parts)
        length = len(hot["bytes"]) // 2
        _, one = self.annotated(f"{hex(at)}-{hex(at + length)}")
        self.assertEqual([row["address"] for row in one[0]["instructions"]], [hot["address"]])
        self.assertEqual(one[0]["self"]["samples"], hot["self"]["samples"])
        self.check_instructions("objdump", self.program, one[0]["instructions"])
        self.assertIn("no sample is at 0x10", self.uniprof("report", "--annotate", "0x10", "out.uniprof", expect=2))

    def test_code_without_a_name_is_shown_around_its_samples(self):
        _, named = self.annotated("Table::sum")
        moved = self.program.rename(self.scratch / "away")
        subprocess.run(["strip", "-o", self.program, moved], check=True)
        self.end(self.start_recorded())
        function, parts = "[hot]", self.annotated("[hot]")[1]
        self.assertEqual(len(parts), 1)
        self.assertIsNone(parts[0]["lacks"])
        rows = parts[0]["instructions"]
        self.check_sums(function, parts)
        # Each stretch is what objdump has there, told by where the named file's instructions begin.
        whole = {int(row["address"], 16): row["bytes"] for row in named[0]["instructions"]}
        first, last = min(whole), max(whole)
        inside = [row for row in rows if first <= int(row["address"], 16) <= last]
        self.assertGreater(len(inside), 5)
        for row in inside:
            self.assertEqual(row["bytes"], whole[int(row["address"], 16)])
        calls = [row for row in rows if row["total"]["samples"] > row["self"]["samples"]]
        self.assertTrue(calls)
        for row in calls:
            self.assertRegex(row["instruction"] or "", "^call", row)
        text = self.uniprof("report", "--annotate", "[hot]", "out.uniprof")
        self.assertRegex(text, r"\n +\.\.\.\n")

    def test_sources_elsewhere_are_found_by_the_end_of_their_path(self):
        source = self.scratch / "hot.cc"
        (self.scratch / "tree/src").mkdir(parents=True)
        source.rename(self.scratch / "tree/src/hot.cc")
        (self.scratch / "tree").chmod(0o755)
        self.assertNotIn("x << 13", self.uniprof("report", "--annotate", "Table::sum", "out.uniprof"))
        for directory, found in (self.scratch / "tree/src", True), (self.scratch / "tree", False):
            text = self.uniprof("report", "--source-dir", directory, "--annotate", "Table::sum", "out.uniprof")
            self.assertEqual("x << 13" in text, found)
            self.assertIn("hot.cc:6", text)

    def test_a_source_that_is_newer_or_none_is_not_believed(self):
        source = self.scratch / "hot.cc"
        os.utime(source, (2**31, 2**31))
        self.assertIn("hot.cc is newer than", self.uniprof("report", "--annotate", "Table::sum", "out.uniprof"))
        source.unlink()
        os.mkfifo(source)
        text = self.uniprof("report", "--annotate", "Table::sum", "out.uniprof")
        self.assertIn("hot.cc:6", text)
        self.assertNotIn("x << 13", text)


class Guests(QemuCase, Annotated):
    def check_guest(self, guest, tool, texts=True):
        """Returns its image, and which of its functions have samples."""
        for name in f"{tool}objdump", f"{tool}addr2line":
            if not shutil.which(name):
                self.skipTest(f"no {name} on this machine")
        self.qemu(guest)
        image = BUILD / "guests" / f"{guest}.elf"
        self.uniprof("record", "-F", 200, "-T", 1.5, "--max-overhead", 100, "-s", image, "-o", "out.uniprof", f"qemu:{self.qmp}")
        # A loaded host may leave few samples, but always some of these.
        rows = json.loads(self.uniprof("report", "--json", "--state", "all", "out.uniprof"))["rows"]
        sampled = {row["function"] for row in rows} & {"function_1", "function_2", "function_3", "main"}
        self.assertTrue(sampled)
        for function in sorted(sampled):
            _, parts = self.annotated(function, "--state", "all")
            if "does not know" in (parts[0]["lacks"] or ""):
                self.skipTest(parts[0]["lacks"])
            # Of main, with instructions that each tool writes in its way, lengths and bytes alone.
            self.check_instructions(f"{tool}objdump", image, parts[0]["instructions"], texts and function != "main")
            self.check_sums(function, parts, ("--state", "all"))
        _, parts = self.annotated("main", "--state", "all")
        self.assertTrue(any(row["total"]["samples"] > row["self"]["samples"] for row in parts[0]["instructions"]))
        return image, sampled

    def test_x86_64(self):
        self.check_guest("app1-pvh-fp", "")

    def test_x86_32(self):
        self.check_guest("app1-pvh32-fp", "")

    def test_arm64(self):
        self.check_guest("app1-arm64-fp", "aarch64-linux-gnu-")

    def test_riscv64(self):
        self.check_guest("app1-riscv64-fp", "riscv64-linux-gnu-")

    def check_arm32(self, guest):
        """Lengths, bytes and mnemonics, whatever the mapping symbols say is there."""
        image, sampled = self.check_guest(guest, "arm-linux-gnueabihf-", texts=False)
        for function in sorted(sampled):
            _, parts = self.annotated(function, "--state", "all")
            rows = parts[0]["instructions"]
            theirs = self.objdump("arm-linux-gnueabihf-objdump", image, rows)
            for row in rows:
                mnemonic = re.sub(r"\.[nw]$", "", theirs[int(row["address"], 16)][1].split()[0])
                mnemonic = {"stmdb": "push", "ldmia": "pop"}.get(mnemonic, mnemonic)
                ours = re.sub(r"\.w$", "", (row["instruction"] or "").split()[0])
                if mnemonic in ("mov", "movs") and ours.rstrip("s") in ("lsl", "lsr", "asr", "ror"):
                    mnemonic = ours
                if not mnemonic.startswith("."):
                    self.assertEqual(ours, mnemonic)
                else:
                    self.assertEqual(row["instruction"], "(data)")
        return rows

    def test_arm32(self):
        rows = self.check_arm32("app1-arm32-fp")
        self.assertEqual({len(row["bytes"]) for row in rows}, {8})

    def test_thumb(self):
        rows = self.check_arm32("app1-arm32t-fp")
        self.assertIn(4, {len(row["bytes"]) for row in rows})

    def test_arm32_without_mapping_symbols_says_that_it_shows_none(self):
        self.qemu("app1-arm32-fp")
        image = self.scratch / "stripped.elf"
        self.scratch.chmod(0o755)
        subprocess.run(["arm-linux-gnueabihf-objcopy", "-w", "-N", "$*", BUILD / "guests/app1-arm32-fp.elf", image], check=True)
        self.uniprof("record", "-F", 200, "-T", 1, "--max-overhead", 100, "-s", image, "-o", "out.uniprof", f"qemu:{self.qmp}")
        _, parts = self.annotated("main", "--state", "all")
        self.assertIn("mapping symbols", parts[0]["lacks"])
        self.check_sums("main", parts, ("--state", "all"))


if __name__ == "__main__":
    unittest.main()
