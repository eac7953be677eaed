#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the rig, on the real thing: every one of them restores (or boots) Xen, or a host with KVM, under QEMU."""

import io
import os
import pty
import secrets
import select
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE / "lib"))

from xenrig import Kvm, Preparation, Result, Rig, RigError, RigTimeout, bundle, cache  # noqa: E402  (needs the path)

COMMAND = str(HERE / "xen-x86")
MARK = "UNIPROF_RIG_TEST"

XEN_ELFNOTE_ENTRY = 1
XEN_ELFNOTE_VIRT_BASE = 3
XEN_ELFNOTE_XEN_VERSION = 5
XEN_ELFNOTE_LOADER = 8
XEN_ELFNOTE_PHYS32_ENTRY = 18


def rig(*arguments, **more):
    return subprocess.run([COMMAND, *arguments], capture_output=True, timeout=600, check=False, **more)


def text(data):
    return data.decode("utf-8", "replace")


class MarkedRig:
    """A running rig/xen-x86 whose QEMU can be found among all others by a mark in its environment."""

    def __init__(self, *arguments, **more):
        self.mark = secrets.token_hex(8)
        self.process = subprocess.Popen([COMMAND, *arguments], env={**os.environ, MARK: self.mark}, **more)

    def qemu(self):
        """Process ids of the QEMUs that it started."""
        wanted = f"{MARK}={self.mark}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if pid != self.process.pid and wanted in _environment(pid)]

    def wait_until_gone(self, seconds=30):
        end = time.monotonic() + seconds
        while self.qemu() and time.monotonic() < end:
            time.sleep(0.05)
        return not self.qemu()


def _environment(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class CommandLine(unittest.TestCase):
    def test_script_status_and_output_come_through(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
            script.write("echo to stdout\necho to stderr >&2\nexit 3\n")
            script.flush()
            done = rig("run", script.name)
        self.assertEqual((done.returncode, text(done.stdout)), (3, "to stdout\nto stderr\n"), text(done.stderr))

    def test_output_is_streamed_while_the_script_runs(self):
        running = MarkedRig("run", "-c", "echo first; sleep 30", stdout=subprocess.PIPE)
        with running.process as process:
            self.assertEqual(process.stdout.readline(), b"first\n")
            self.assertIsNone(process.poll())
            process.terminate()
        self.assertTrue(running.wait_until_gone())

    def test_files_go_in_and_come_out_unchanged(self):
        with tempfile.TemporaryDirectory() as directory:
            data = secrets.token_bytes(300_000) + b"\n\0\r\xff"
            Path(directory, "a,b c").write_bytes(data)
            done = rig("run", "--out", f"{directory}/out", "-c",
                       "mkdir -p out/deep && cp in.bin out/deep/copy && echo $OUT >out/where && pwd >>out/where",
                       f"in.bin={directory}/a,b c")
            self.assertEqual(done.returncode, 0, text(done.stderr))
            self.assertEqual(Path(directory, "out/deep/copy").read_bytes(), data)
            self.assertEqual(Path(directory, "out/where").read_text(encoding="ascii"), "/job/out\n/job\n")

    def test_programs_bring_their_shared_libraries(self):
        done = rig("run", "-c", "my-dpkg-deb --version", "my-dpkg-deb=/usr/bin/dpkg-deb")
        self.assertEqual(done.returncode, 0, text(done.stdout))
        self.assertIn("Debian", text(done.stdout))

    def test_timeout_gives_124_and_leaves_no_qemu(self):
        running = MarkedRig("run", "--timeout", "1", "-c", "echo begun; sleep 100", stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
        self.assertEqual(running.process.stdout.readline(), b"begun\n")
        # The command itself would run for longer.
        _, err = running.process.communicate(timeout=50)
        self.assertEqual(running.process.returncode, 124)
        self.assertIn("no end after 1 s", text(err))
        self.assertEqual(running.qemu(), [])

    def test_killed_qemu_gives_125_within_seconds(self):
        running = MarkedRig("run", "-c", "echo up; sleep 100", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(running.process.stdout.readline(), b"up\n")
        pid, = running.qemu()
        os.kill(pid, signal.SIGKILL)
        _, err = running.process.communicate(timeout=50)
        self.assertEqual(running.process.returncode, 125)
        self.assertIn("QEMU ended while dom0 ran a command", text(err))

    def test_killed_rig_leaves_no_qemu(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                running = MarkedRig("run", "-c", "echo up; sleep 100", stdout=subprocess.PIPE)
                with running.process as process:
                    self.assertEqual(process.stdout.readline(), b"up\n")
                    self.assertEqual(len(running.qemu()), 1)
                    process.send_signal(number)
                self.assertTrue(running.wait_until_gone())

    def test_wrong_use_gives_125_and_a_sentence(self):
        cases = [
            (["run", "--frobnicate", "-c", "true"], "unrecognized arguments: --frobnicate"),
            (["run"], "which script?"),
            (["run", "/nonexistent/script"], "the script /nonexistent/script cannot be read"),
            (["run", "-c", "true", "/nonexistent/file"], "there is no file /nonexistent/file"),
            (["run", "-c", "true", "../up=/bin/true"], "no name for a file"),
            (["run", "--timeout", "0", "-c", "true"], "no number of seconds"),
            (["run", "--cpus", "0", "-c", "true"], "0 CPUs are not possible"),
            (["run", "--cpus", "2", "--parallel", "--icount", "-c", "true"], "where CPUs take turns"),
            (["run", "--parallel", "-c", "true"], "no other to run beside"),
            (["run", "--xen", "3.0", "-c", "true"], "invalid choice: '3.0'"),
        ]
        for arguments, sentence in cases:
            with self.subTest(arguments=arguments):
                done = rig(*arguments)
                self.assertEqual(done.returncode, 125)
                self.assertIn(sentence, text(done.stderr))
                self.assertNotIn("Traceback", text(done.stderr))

    def test_missing_tools_are_named_with_their_package(self):
        done = subprocess.run([sys.executable, COMMAND, "run", "-c", "true"], capture_output=True, check=False,
                              env={**os.environ, "PATH": "/nonexistent"})
        self.assertEqual(done.returncode, 125)
        self.assertIn("qemu-system-x86_64 (package qemu-system-x86)", text(done.stderr))

    def test_shell_connects_the_terminal_until_ctrl_bracket(self):
        ours, theirs = pty.openpty()
        running = MarkedRig("shell", stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        os.write(ours, b"echo an$((40+2))swer\n")
        seen = b""
        while b"an42swer" not in seen and select.select([ours], [], [], 60)[0]:
            seen += os.read(ours, 4096)
        os.write(ours, b"\x1d")
        _, err = running.process.communicate(timeout=50)
        os.close(ours)
        self.assertEqual(running.process.returncode, 0)
        self.assertIn(b"an42swer", seen)
        self.assertIn("Ctrl-]", text(err))
        self.assertEqual(running.qemu(), [])


class OneDom0(unittest.TestCase):
    """Many commands in the same dom0."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(say=lambda sentence: print("rig:", sentence, file=sys.stderr))
        cls.addClassCleanup(cls.rig.close)

    def test_time_goes_by_as_fast_as_here(self):
        def uptime():
            before = time.monotonic()
            seconds = float(self.rig.run("cat /proc/uptime", check=True).text.split()[0])
            return seconds, before, time.monotonic()
        first, first_before, first_after = uptime()
        time.sleep(2)
        last, last_before, last_after = uptime()
        self.assertGreater(last - first, 0.8 * (last_before - first_after))
        self.assertLess(last - first, 1.2 * (last_after - first_before))

    def test_commands_share_files_and_keep_their_status_apart(self):
        self.rig.write("sub/note", "hello\n")
        self.assertEqual(self.rig.run("cat sub/note; exit 5"), Result(5, b"hello\n"))
        self.assertEqual(self.rig.read("sub/note"), b"hello\n")
        self.assertEqual(self.rig.run("kill -9 $$").status, 137)

    def test_a_failing_command_raises_when_asked_to(self):
        with self.assertRaisesRegex(RigError, "status 4:\nbad luck"):
            self.rig.run("echo bad luck; exit 4", check=True)

    def test_megabytes_pass_both_ways_unchanged(self):
        data = secrets.token_bytes(4 << 20)
        self.assertEqual(self.rig.run("cat", stdin=data).output, data)

    def test_kernel_messages_do_not_mix_with_output(self):
        noisy = self.rig.run("for i in 1 2 3; do echo '<0>noise' >/dev/kmsg; echo line $i; done")
        self.assertEqual(noisy.output, b"line 1\nline 2\nline 3\n")
        self.assertIn("noise", self.rig.console())

    def test_output_can_be_opened_again_by_its_name(self):
        self.assertEqual(self.rig.run("echo a >/dev/stdout; echo b | tee /dev/stderr").text.split(), ["a", "b", "b"])

    def test_get_brings_files_and_directories(self):
        self.rig.run("mkdir -p tree/deep; echo 1 >tree/one; echo 2 >tree/deep/two", check=True)
        with tempfile.TemporaryDirectory() as directory:
            self.rig.get("tree", f"{directory}/all")
            self.rig.get("tree/deep/two", directory)
            self.assertEqual(Path(directory, "all/deep/two").read_bytes(), b"2\n")
            self.assertEqual(Path(directory, "two").read_bytes(), b"2\n")
            with self.assertRaisesRegex(RigError, "dom0 has no file absent"):
                self.rig.get("absent", directory)

    def test_clock_is_the_hosts(self):
        self.assertAlmostEqual(int(self.rig.run("date +%s").output), time.time(), delta=30)

    def test_programs_can_run_as_nobody(self):
        self.assertEqual(self.rig.run("su nobody -s /bin/sh -c 'id -u; touch /job/x'").text.split("\n")[0], "65534")
        self.assertEqual(self.rig.run("ls x").status, 1)

    def test_small_file_systems_can_be_mounted_and_filled(self):
        full = self.rig.run("mkdir -p /mnt/small && mount -t tmpfs -o size=64k none /mnt/small && "
                            "dd if=/dev/zero of=/mnt/small/x bs=128k count=1")
        self.assertIn("No space left", full.text)

    def test_pv_and_pvh_domains_run_with_nested_paging(self):
        self.assertRegex(self.rig.run("xl info").text, r"virt_caps *: pv hvm hap")
        self.rig.write("spin", spinning_kernel())
        for kind in ("pv", "pvh"):
            with self.subTest(kind=kind):
                self.rig.write("vm.cfg", f"name = 'vm'\ntype = '{kind}'\nkernel = '/job/spin'\nmemory = 32\n")
                self.rig.run("xl create vm.cfg", check=True)
                self.rig.run("i=0; until xl list vm | awk 'NR > 1 && $6 <= 0.1 { exit 1 }'; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.5; done;"
                             " xl pause vm", check=True)
                self.assertEqual(self.rig.run("xl list vm", check=True).text.split("\n")[1].split()[4], "--p---")
                self.rig.run("xl unpause vm && xl destroy vm && ! xl list vm", check=True)


def spinning_kernel():
    """An ELF image for PV and PVH whose only instruction jumps to itself."""
    place = 0x100000
    described = {
        XEN_ELFNOTE_ENTRY: struct.pack("<Q", place),
        XEN_ELFNOTE_VIRT_BASE: struct.pack("<Q", 0),
        XEN_ELFNOTE_XEN_VERSION: b"xen-3.0\0",
        XEN_ELFNOTE_LOADER: b"generic\0",
        XEN_ELFNOTE_PHYS32_ENTRY: struct.pack("<Q", place),
    }
    notes = b"".join(struct.pack("<III4s", 4, len(value), kind, b"Xen") + value for kind, value in described.items())
    code = b"\xeb\xfe" + bytes(4094)
    headers = 64 + 2 * 56
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, place, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    note = struct.pack("<IIQQQQQQ", 4, 4, headers, 0, 0, len(notes), len(notes), 4)
    load = struct.pack("<IIQQQQQQ", 1, 7, 4096, place, place, len(code), len(code), 4096)
    return (header + load + note + notes).ljust(4096, b"\0") + code


class Hosts(unittest.TestCase):
    """Hosts with KVM."""

    # Guest time of all threads in clock ticks: the field guest_time of proc(5).
    GUEST_TIME = "cat /proc/$(pidof qemu-system-x86_64)/task/*/stat | sed 's/.*) //' | awk '{ sum += $41 } END { print sum }'"

    def guest_time(self, host):
        return int(host.run(self.GUEST_TIME, check=True).text)

    def forget(self, prepared):
        with cache.lock(True, print):
            for path in cache.root().glob(f"snapshots/kvm-*-{prepared}-????????????"):
                cache.remove(path)

    def test_nested_paging_is_there_unless_it_is_not_wanted(self):
        for npt in True, False:
            with self.subTest(npt=npt), Rig(machine=Kvm, npt=npt) as host:
                self.assertEqual(host.run("cat /sys/module/kvm_amd/parameters/npt").text, "Y\n" if npt else "N\n")
                self.assertRegex(host.run("uname -r").text, r"^6[.]1[.]")

    def test_a_kernel_may_patch_its_code_while_another_cpu_runs_it(self):
        with Rig(machine=Kvm, kernel="6.12", cpus=2) as host:
            host.run("""
                cd /proc/sys/kernel
                (while :; do echo x | cat >/dev/null; done) &
                for i in $(seq 500); do echo 1 >sched_schedstats; echo 0 >sched_schedstats; done
                kill $!""", timeout=200, check=True)

    def test_guests_that_run_when_it_is_saved_go_on_whenever_it_is_restored(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "spin").write_bytes(spinning_kernel())
            start = ("qemu-system-x86_64 -accel kvm -M microvm -m 32 -nodefaults -display none -kernel spin >log 2>&1 & "
                     f"until [ \"$({self.GUEST_TIME})\" -gt 10 ]; do sleep 0.1; done")
            prepared = Preparation("spin", (("spin", f"{directory}/spin"),), start)
            self.addCleanup(self.forget, "spin")
            for _ in range(2):
                with Rig(machine=Kvm, prepared=prepared) as host:
                    first = self.guest_time(host)
                    self.assertGreater(first, 10)
                    host.run(f"until [ \"$({self.GUEST_TIME})\" -gt {first + 10} ]; do sleep 0.1; done", check=True)

    def test_a_preparation_that_fails_says_why_and_leaves_no_snapshot(self):
        prepared = Preparation("failing", (), "echo bad luck; exit 3")
        with self.assertRaisesRegex(RigError, "to prepare failing, .* ended with status 3:\nbad luck"):
            Rig(machine=Kvm, prepared=prepared)
        self.assertEqual(list(cache.root().glob("snapshots/kvm-*-failing-*")), [])

    def test_the_command_runs_scripts(self):
        done = subprocess.run([HERE / "kvm-x86", "run", "-c", "hostname; exit 3"], capture_output=True, timeout=600, check=False)
        self.assertEqual((done.returncode, done.stdout), (3, b"host\n"), text(done.stderr))
        done = subprocess.run([HERE / "kvm-x86", "run", "--kernel", "3.0", "-c", "true"], capture_output=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn("invalid choice: '3.0'", text(done.stderr))


class Failures(unittest.TestCase):
    def test_a_closed_rig_says_so(self):
        with Rig() as closed:
            pass
        with self.assertRaisesRegex(RigError, "has been closed"):
            closed.run("true")

    def test_a_lost_qemu_ends_every_later_command_too(self):
        with Rig() as lost:
            os.kill(lost.pid(), signal.SIGKILL)
            for _ in range(2):
                with self.assertRaisesRegex(RigError, "QEMU ended"):
                    lost.run("true")

    def test_a_timeout_keeps_what_was_printed(self):
        # A busy machine may take long to print it.
        for seconds in 0.5, 5, 50:
            with Rig() as slow, self.assertRaises(RigTimeout) as raised:
                slow.run("echo so far; sleep 100", timeout=seconds)
            if raised.exception.output:
                break
        self.assertEqual(raised.exception.output, b"so far\n")

    def test_a_damaged_snapshot_is_made_anew(self):
        Rig().close()
        with tempfile.TemporaryDirectory() as base:
            there = Path(base, "uniprof/rig")
            there.mkdir(parents=True)
            for kind in ("packages", "images"):
                (there / kind).symlink_to(cache.root() / kind)
            whole, = cache.root().glob("snapshots/4.17-cpus1-mem4096-????????????")
            damaged = there / "snapshots" / whole.name
            damaged.mkdir(parents=True)
            (damaged / "ram").symlink_to(whole / "ram")
            (damaged / "state").write_bytes((whole / "state").read_bytes()[:9999])
            done = rig("run", "-c", "echo works", env={**os.environ, "XDG_CACHE_HOME": base})
            self.assertEqual((done.returncode, done.stdout), (0, b"works\n"), text(done.stderr))
            self.assertIn("attempt 2 of 3 to restore a machine failed", text(done.stderr))
            self.assertEqual(list(there.glob(".new-*")), [])

    def test_dom0_cannot_write_outside_the_target_directory(self):
        for name in ("../b", "/b", "a/../../b", ".."):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as directory:
                target = Path(directory, "target")
                target.mkdir()
                with self.assertRaisesRegex(RigError, "would leave the target directory"):
                    bundle.unpack(_archive(name), target)
                self.assertEqual([path.name for path in Path(directory).rglob("*")], ["target"])

    def test_garbage_from_dom0_is_refused(self):
        with tempfile.TemporaryDirectory() as directory, self.assertRaisesRegex(RigError, "cannot be written"):
            bundle.unpack(b"x" * 5000, directory)


def _archive(name):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return data.getvalue()


if __name__ == "__main__":
    unittest.main()
