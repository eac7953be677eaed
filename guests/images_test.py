#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Promises of every guest image, and that the PVH images keep them directly under QEMU.

    images_test.py DIRECTORY    where the images were built
"""
import functools
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

IMAGES = Path()
QEMU = shutil.which("qemu-system-x86_64")
QEMU_RISCV64 = shutil.which("qemu-system-riscv64")
# Its exit status then tells an end from a crash.
PC = [QEMU, "-nodefaults", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
VIRT = [QEMU_RISCV64, "-M", "virt"]
# The hypervisor writes the hypercall page: nothing can be known about its code. The others have the trait on purpose.
WITHOUT_CFI = {"hypercall_page", "switch_threads", "__arch_switch_threads", "thread_starter", "event_entry"}


@functools.cache
def read_elf(image, *options):
    return subprocess.run(["readelf", "-W", *options, str(image)], check=True, text=True,
                          capture_output=True).stdout.splitlines()


def whole(image):
    """The file with all symbols, which elf32 has beside it."""
    return next((path for path in [image.with_suffix(".elf64")] if path.exists()), image)


def symbols(image):
    """All names that the image gives to an address."""
    return {line.split()[7] for line in read_elf(whole(image), "-s") if len(line.split()) == 8}


@functools.cache
def functions(image):
    """Name -> (address, size) of all functions."""
    found = {}
    image = whole(image)
    # The lowest bit of an address says T32.
    code = ~1 if "-arm32" in image.name else ~0
    for line in read_elf(image, "-s"):
        words = line.split()
        if len(words) == 8 and words[3] == "FUNC":
            found[words[7]] = int(words[1], 16) & code, int(words[2], 0)
    return found


def described_ranges(image):
    """The address ranges of which .eh_frame tells."""
    pattern = re.compile(r"FDE .* pc=([0-9a-f]+)\.\.([0-9a-f]+)")
    matches = map(pattern.search, read_elf(image, "--debug-dump=frames"))
    return [(int(match[1], 16), int(match[2], 16)) for match in matches if match]


def run(name, command_line, *options, timeout=120, qemu=PC):
    """Console lines and exit status of an image directly under QEMU; None if it had to be ended."""
    # A file takes every byte at once: the guest never waits, so that its instructions repeat.
    with tempfile.NamedTemporaryFile("r", encoding="ascii") as console:
        command = [*qemu, "-accel", "tcg", "-m", "64", "-display", "none",
                   "-serial", f"file:{console.name}", "-no-reboot",
                   "-kernel", str(IMAGES / f"{name}.elf"), "-append", command_line, *options]
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            status = None
        return console.read().splitlines(), status


def truth(lines):
    """Function name -> (calls, share) from a guest's last lines."""
    rows = (line.split() for line in lines if line.startswith("truth "))
    return {row[1]: (int(row[3]), float(row[7])) for row in rows}


def check_truth(test, found, expected):
    test.assertEqual(set(found), {"main", *expected})
    for name, (calls, share) in expected.items():
        test.assertEqual(calls, found[name][0])
        # main's own loop takes up to 0.03 of the whole.
        test.assertAlmostEqual(share, found[name][1], delta=0.03)


class EveryImage(unittest.TestCase):
    def for_each_image(self, check):
        images = sorted(IMAGES.glob("*.elf"))
        self.assertTrue(images, f"no images in {IMAGES}")
        for image in images:
            with self.subTest(image.name):
                check(image)

    def test_has_a_size_for_every_function(self):
        self.for_each_image(lambda image: self.assertEqual(
            [], [name for name, (_, size) in functions(image).items() if not size]))

    def test_has_cfi_for_every_function_but_the_hypercall_page(self):
        def check(image):
            if image.stem.endswith("-exidx"):
                return
            ranges = described_ranges(whole(image))
            without = {name for name, (start, size) in functions(image).items()
                       if not any(low <= start and start + size <= high for low, high in ranges)}
            if "-cfiasm-" in image.stem and not image.stem.startswith("elf32-"):
                self.assertIn("main", without)
                self.assertNotIn("guest_start", set(functions(image)) - without)
                self.assertNotIn("vcpu_entry", without)
            else:
                self.assertEqual(WITHOUT_CFI & set(functions(image)), without)
        self.for_each_image(check)

    def test_has_tables_for_exceptions_if_named_after_them(self):
        def check(image):
            sections = "".join(read_elf(image, "-S"))
            # clang makes an entry for code without any: that it cannot be unwound.
            entries = re.findall(r"^0x[0-9a-f]+ <.*>: (?!0x1 \[cantunwind\])", "\n".join(read_elf(image, "-u")), re.M)
            self.assertEqual(bool(entries), image.stem.endswith("-exidx"))
            if image.stem.endswith("-exidx"):
                self.assertNotIn(".debug_frame", sections)
        self.for_each_image(check)

    def test_has_a_build_id(self):
        self.for_each_image(lambda image: self.assertTrue(
            any("Build ID:" in line for line in read_elf(image, "-n"))))

    def test_has_edges_between_its_own_functions_that_lead_from_the_entry_to_main(self):
        def check(image):
            lines = image.with_suffix(".edges").read_text(encoding="utf-8").splitlines()
            edges = {tuple(line.split()) for line in lines}
            self.assertLessEqual({name for edge in edges for name in edge}, symbols(image))
            self.assertIn(("guest_start", "main"), edges)
            callers = {caller for caller, callee in edges if callee == "guest_start"}
            self.assertEqual(1, len(callers))
            self.assertLessEqual(callers, {"_start", "start", "start_long_mode"})
        self.for_each_image(check)

    def test_has_a_configuration_that_names_it(self):
        def check(image):
            # No Xen runs these.
            if "-riscv64" in image.name:
                return
            kernel = image.with_suffix(".image") if "-arm" in image.name else image
            self.assertTrue(kernel.exists())
            self.assertIn(f'kernel = "{kernel.name}"', image.with_suffix(".cfg").read_text(encoding="utf-8"))
        self.for_each_image(check)


@unittest.skipUnless(QEMU, "qemu-system-x86_64 is missing")
class UnderQemu(unittest.TestCase):
    def check(self, found, expected):
        check_truth(self, found, expected)

    def test_app1_divides_its_instructions_1_to_3_to_6(self):
        for platform in ("pvh", "pvh32", "pvh32pae"):
            for variant, order in ("fp", "blocks"), ("nofp", "phases"):
                with self.subTest(platform=platform, variant=variant, order=order):
                    lines, status = run(f"app1-{platform}-{variant}", f"scale=1 order={order}",
                                        "-icount", "shift=0,sleep=off")
                    self.assertEqual(1, status)
                    self.check(truth(lines), {"function_1": (1000, 0.10),
                                              "function_2": (3000, 0.30),
                                              "function_3": (6000, 0.60)})

    def test_app2_divides_its_instructions_as_its_loops_say(self):
        for variant in ("fp", "nofp"):
            with self.subTest(variant=variant):
                lines, status = run(f"app2-pvh-{variant}", "scale=1", "-icount",
                                    "shift=0,sleep=off")
                self.assertEqual(1, status)
                self.check(truth(lines), {"function_1": (2000, 0.40), "function_2": (1000, 0.60),
                                          "function_3": (2000, 0.40), "function_4": (1000, 0.40),
                                          "function_5": (1000, 0.20)})

    def test_nothing_is_lost_and_everything_printed(self):
        lines, _ = run("app1-pvh-fp", "scale=1")
        self.assertEqual(3000, sum(line.startswith("function_2 ") for line in lines))
        self.assertIn("console lost 0 bytes", lines)

    def test_the_spinning_guests_spin_and_power_off(self):
        for name, function in (("recursion-pvh-fp", "bottom"), ("fp-loop-pvh-nofp", "spin_in_two_cycle"), ("mover-pvh-fp", "work_4"),
                               ("chain-pvh-nofp", "spin"), ("interrupt-pvh-fp", "tick_2"), ("vcpus-pvh-nofp", "worker_0"),
                               ("ends-pvh-nofp", "known_work"), ("elf32-pvh-nofp", "function_3"), ("noreturn-pvh-fp", "function_3"),
                               ("page0-pvh-nofp", "function_3"), ("redzone-pvh-fp", "function_3"), ("shared-page-pvh-nofp", "serve_middle"),
                               ("threads-pvh-fp", "serve_4")):
            with self.subTest(name):
                lines, status = run(name, "seconds=1")
                self.assertEqual(1, status)
                self.assertGreater(truth(lines)[function][0], 0)

    def test_the_hostile_guest_survives_its_hostilities(self):
        lines, status = run("hostile-pvh-fp", "seconds=1 slice=30")
        self.assertEqual(1, status)
        for name in "ones", "nowhere", "top":
            self.assertIn(f"hostile: {name}", lines)

    def test_the_interrupted_guest_goes_on_whatever_stack_its_handler_uses(self):
        for stack in "own", "ist":
            with self.subTest(stack=stack):
                lines, status = run("interrupt-pvh-nofp", f"seconds=1 stack={stack}")
                self.assertEqual(1, status)
                self.assertGreater(truth(lines)["tick_2"][0], 0)

    def test_every_vcpu_works(self):
        lines, _ = run("vcpus-pvh-fp", "seconds=1", "-smp", "4")
        self.assertEqual("vcpus: 4 workers", lines[0])
        self.assertTrue(all(calls > 0 for calls, _ in truth(lines).values()))

    def test_the_idle_guest_ticks_and_leaves_the_cpu_alone(self):
        for seconds in 5, 60:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            lines, status = run("idle-pvh-fp", "", timeout=seconds)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertIsNone(status)
            self.assertLess(after.ru_utime - before.ru_utime, 0.3 * seconds)
            # A busy machine may not come that far at first.
            if "tick 1" in lines:
                return
        self.fail(f"no tick in {lines}")

    def test_large_pages_hold_a_stack_each(self):
        lines, status = run("large-pages-pvh-fp", "seconds=1", "-m", "1088", "-cpu", "max")
        self.assertEqual(1, status)
        self.assertGreater(truth(lines)["spin_on_1g"][0], 0)

    def test_a_deep_recursion_comes_back(self):
        lines, status = run("recursion-pvh-nofp", "seconds=1 depth=16128")
        self.assertEqual((1, "recursion: 16128 deep"), (status, lines[0]))

    def test_the_crash_is_told_apart_from_the_power_off(self):
        _, status = run("ends-pvh-fp", "seconds=1 crash")
        self.assertEqual(7, status)


@unittest.skipUnless(QEMU_RISCV64, "qemu-system-riscv64 is missing")
class UnderQemuOnRiscv64(unittest.TestCase):
    def run_guest(self, name, command_line, *options):
        if not (IMAGES / f"{name}.elf").exists():
            self.skipTest("guests for RISC-V were not built (gcc-riscv64-linux-gnu)")
        lines, status = run(name, command_line, *options, qemu=VIRT)
        self.assertEqual(0, status)
        return lines

    def test_app1_divides_its_instructions_1_to_3_to_6(self):
        for platform in ("riscv64", "riscv64sv48", "riscv64sv57"):
            for variant in ("fp", "nofp"):
                with self.subTest(platform=platform, variant=variant):
                    lines = self.run_guest(f"app1-{platform}-{variant}", "scale=1", "-icount", "shift=0,sleep=off")
                    check_truth(self, truth(lines), {"function_1": (1000, 0.10), "function_2": (3000, 0.30),
                                                     "function_3": (6000, 0.60)})

    def test_the_spinning_guests_spin_and_power_off(self):
        for name, function in (("recursion-riscv64-nofp", "bottom"), ("chain-riscv64-fp", "spin"),
                               ("interrupt-riscv64-nofp", "tick_2"), ("ends-riscv64-fp", "known_work")):
            with self.subTest(name):
                lines = self.run_guest(name, "seconds=1")
                self.assertGreater(truth(lines)[function][0], 0)

    def test_every_vcpu_works(self):
        lines = self.run_guest("vcpus-riscv64-fp", "seconds=1", "-smp", "4")
        # Whichever of them the firmware begins with.
        self.assertIn("vcpus: 4 workers", lines)
        self.assertTrue(all(calls > 0 for calls, _ in truth(lines).values()))


if __name__ == "__main__":
    IMAGES = Path(sys.argv.pop(1))
    unittest.main()
