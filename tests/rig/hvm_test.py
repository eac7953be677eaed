#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""HVM guests with a device model: SeaBIOS, GRUB on it, and Debian's Linux, which it starts.

Firmware and boot loader have no symbols: their code is compared with the file, or each call with the
guest's memory, as tests/foreign does.
"""

import collections
import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import chance
from guestcase import ROOT, GuestCase
from linux_test import LinuxCase
from xenrig import packages

sys.path.insert(0, str(ROOT / "tests"))
from calls import check  # noqa: E402
from calls.code import Code, Memory  # noqa: E402
from calls.start import pieces_near, pointers_to  # noqa: E402

CONFIG = """\
name = "{0}"
type = "hvm"
memory = {1}
vcpus = 2
vga = "none"
vnc = 0
serial = "file:/tmp/{0}.serial"
tsc_mode = "native"
"""
MEGABYTE = 1 << 20
MEMORY = 32

# The script goes round and round: it reads and compares, and looks for a key between commands, which only the firmware can tell.
GRUB_SCRIPT = """\
serial
terminal_output serial
echo GRUB is at work
terminal_output console
while cmp (memdisk)/boot/grub/one (memdisk)/boot/grub/other; do true; done
"""
GRUB_MODULES = "biosdisk memdisk tar normal echo test cmp serial terminal true".split()
ENOUGH = 100
# Its kernel begins here, by a jump from the boot sector's code.
GRUB_STARTS = "0x903c"
# Its function that calls the firmware goes to 16-bit code and comes back in its middle, to where no flow of 32-bit code leads. Bytes:
CALLS_FIRMWARE = 160


def grub_disk(directory):
    """A disk with Debian's GRUB in its first sectors, and in it a script and two files."""
    modules, boot = directory / "usr/lib/grub/i386-pc", directory / "files/boot/grub"
    packages.unpack(packages.device_model_directory("4.17"), directory, lambda name: name.startswith("usr/lib/grub/i386-pc/"))
    boot.mkdir(parents=True)
    (boot / "grub.cfg").write_text(GRUB_SCRIPT, encoding="ascii")
    for name in ("one", "other"):
        (boot / name).write_bytes(bytes(MEGABYTE // 2))
    subprocess.run(["tar", "-C", directory / "files", "-cf", directory / "files.tar", "boot"], check=True)
    subprocess.run(["grub-mkimage", "-O", "i386-pc", "-d", modules, "-p", "/boot/grub", "-m", directory / "files.tar", "-o", directory / "core.img",
                    *GRUB_MODULES], check=True)
    disk = (modules / "boot.img").read_bytes() + (directory / "core.img").read_bytes()
    (directory / "grub.img").write_bytes(disk.ljust(MEGABYTE, b"\0"))
    return directory / "grub.img"


class Hvm(GuestCase):
    rig_options = {"hvm": True}

    def configure(self, name, settings=""):
        self.rig.write(f"{name}.cfg", CONFIG.format(name, MEMORY) + settings)

    def ends(self, name):
        """{end of a stack: samples} of all samples."""
        return json.loads(self.report(name, "--json --state=all"))["stacks"]["ends"]

    def dump(self, name):
        return json.loads(self.succeeds(f"uniprof stack --json {name}"))

    def test_firmware_without_a_disk(self):
        """It waits in 16-bit code at the top of the first megabyte, whose callers no frame tells; the second vCPU has not begun."""
        bios = self.rig.run("cat /usr/share/seabios/bios-256k.bin", check=True).output
        self.configure("bios")
        self.succeeds("uniprof run -q -F 200 -T 4 -o out -- xl create bios.cfg", 60)
        self.assertEqual({name.split(".")[0] for name in self.succeeds("ls out").split()}, {"bios"})
        self.assertRegex(self.succeeds("uniprof list"), r"xen +\d+ +bios +hvm +2 +hypercalls ")

        def take(seconds):
            self.record("bios", f"-F 200 -T {seconds}")
            return self.ends("bios")

        ends = self.until(lambda ends: ends["segmented"] > 50, take, 1)
        self.assertEqual(sum(ends.values()), sum(ends[end] for end in ("segmented", "whole", "broken")), ends)
        stacks = self.folded("bios", "--state=all --weight=samples")
        at_top = sum(samples for stack, samples in stacks.items() if len(stack) == 1 and 0xe0000 <= int(stack[0], 16) < MEGABYTE)
        print(f"\n{sum(ends.values())} samples, {ends['segmented']} of them of 16-bit code", end=" ", flush=True)
        self.assertGreaterEqual(at_top, ends["segmented"])
        first, second = next(vcpus for vcpus in (self.dump("bios")["vcpus"] for _ in range(10)) if vcpus[0]["bits"] == 16)
        self.assertFalse(second["online"])
        self.assertEqual((first["end"], first["whole"]), ("segmented code", False))
        # The bytes at the instruction are those that the file has there: the address is linear.
        at, code = next((int(line["address"], 16), bytes.fromhex(line["bytes"])) for line in first["code"] if line.get("here"))
        self.assertEqual(code, bios[len(bios) - MEGABYTE + at:][:len(code)], f"{at:#x}")

    def memory(self, name):
        """The guest's memory, as its device model sees it."""
        self.succeeds(f"xl qemu-monitor-command {name} 'pmemsave 0 {MEMORY * MEGABYTE} \"/tmp/memory\"' && gzip -1 /tmp/memory", 60)
        data = self.rig.run("cat /tmp/memory.gz; rm /tmp/memory.gz", check=True, timeout=300).output
        return gzip.decompress(data)

    @unittest.skipUnless(shutil.which("grub-mkimage"), "no grub-mkimage on this machine")
    def test_boot_loader(self):
        """GRUB's stacks in 32-bit mode are whole and have no impossible call; in between it asks the firmware, in 16-bit code."""
        with tempfile.TemporaryDirectory() as directory:
            self.rig.put(grub_disk(Path(directory)))
        self.configure("grub", 'device_model_args = ["-drive", "file=/job/grub.img,if=ide,format=raw"]\n')
        self.succeeds("xl create grub.cfg; i=0; until grep -q 'at work' /tmp/grub.serial; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; usleep 200000; done", 120)

        def take(seconds):
            self.record("grub", f"-F 997 -T {seconds}")
            text = self.succeeds("uniprof export --format=perf-script --no-inline --state=all grub.uniprof 2>/dev/null", 60)
            return check.parse_perf_script(text)

        stacks = self.until(lambda stacks: sum(len(stack) > 1 for stack in stacks) >= ENOUGH, take, 3)
        ends, called = self.ends("grub"), [stack for stack in stacks if len(stack) > 1]
        memory = self.memory("grub")
        pieces = pieces_near({address for stack in called for address in stack})
        code = Code(Memory("i386", [(start, memory[start:end]) for start, end in pieces], pointers_to(pieces, 0, memory, 4)))
        verdict = check.Verdict(code, [GRUB_STARTS])
        for stack in called:
            verdict.judge(stack)
        wrong, asking = collections.Counter(), collections.Counter()
        for reason, samples in verdict.impossible.items():
            at = re.search(r"-> (0x\w+) at \1: it calls (0x\w+)$", reason)
            (asking if at and 0 < int(at[1], 16) - int(at[2], 16) < CALLS_FIRMWARE else wrong)[at[2] if at else reason] += samples
        print(f"\n{len(stacks)} samples, {len(called)} of them with callers in 32-bit code, {sum(asking.values())} of these where the firmware returns to; "
              f"ends {ends}", end=" ", flush=True)
        self.assertFalse(wrong)
        self.assertLessEqual(len(asking), 1, asking)
        self.assertFalse(verdict.missing)
        self.assertGreaterEqual(ends["whole"], 0.98 * len(called))
        self.assertEqual(len(stacks), sum(ends[end] for end in ("whole", "segmented", "broken")), ends)
        self.assertGreater(ends["segmented"], 0)


class Linux(LinuxCase):
    """Debian's kernel, which moves itself and drives devices of Xen's and of the device model's."""

    rig_options = {"hvm": True}
    settings = r'vga="none"\nvnc=0\n'

    def test_stacks_of_a_busy_kernel(self):
        for _ in range(chance.BOOTS):
            self.start("hvm", "exec /bin/linux-load", 1)
            if self.moved:
                break
            self.succeeds("xl destroy linux")
        self.assertNotEqual(self.moved, 0)
        stacks = self.stacks()
        self.check_ends(stacks)
        self.check_calls(stacks)
        self.check_interrupts(stacks)

        def take(seconds):
            self.record("linux", f"-F 400 -T {seconds}")
            return {name for stack in self.folded("linux", "--state=all") for name in stack}

        self.until({"do_syscall_64", "handle_mm_fault", "schedule"}.issubset, take, 2)


if __name__ == "__main__":
    unittest.main()
