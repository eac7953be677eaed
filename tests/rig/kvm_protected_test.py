#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests that nobody can look into (SEV, SEV-ES, SEV-SNP, TDX): list says so, record and stack end with that.

The emulated processor has none of these. So a real guest gets what KVM notes of a protected one, in the kernel's own memory,
by the gdb stub of the machine's emulator, while its monitor is stopped: KVM must not act on it.
"""

import json
import shutil
import socket
import tempfile
import unittest
from pathlib import Path

from guestcase import PROGRAMS
from kvmcase import MONITORS, KvmCase

KVM_FLAGS = PROGRAMS.parent / "programs" / "kvm_flags.bpf.o"
BPFTOOL = shutil.which("bpftool", path="/usr/sbin:/usr/bin:/bin")

UNSEEN = "cannot be seen from outside"
REGISTERS = rf"the guest is encrypted, its registers, too \(SEV-ES, SEV-SNP or TDX\): it {UNSEEN}"
PAGES = rf"the guest's memory is its own \(KVM's guest_memfd, as for SEV-SNP and TDX\): it {UNSEEN}"
SEV = rf"the guest's memory is encrypted \(SEV\): it {UNSEEN}"
DEVICE = rf"the guest is encrypted \(its monitor has /dev/sev open\): it {UNSEEN}"


class Stub:
    """Writes to the machine's memory by its emulator's gdb stub, whose CPU translates the kernel's addresses."""

    def __init__(self, qmp, path):
        self.path = path
        self.qmp = socket.socket(socket.AF_UNIX)
        self.qmp.connect(str(qmp))
        self.answers = self.qmp.makefile("rb")
        self.answers.readline()
        self.ask("qmp_capabilities")
        self.ask("human-monitor-command", **{"command-line": f"gdbserver unix:{path},server=on,wait=off"})

    def close(self):
        self.answers.close()
        self.qmp.close()

    def ask(self, command, **arguments):
        self.qmp.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while "return" not in (answer := json.loads(self.answers.readline())):
            if "error" in answer:
                raise AssertionError(answer)
        return answer["return"]

    def write(self, address, byte):
        """The machine stops while the stub is connected."""
        with socket.socket(socket.AF_UNIX) as stub:
            stub.connect(str(self.path))
            for packet in f"M{address:x},1:{byte:02x}", "D":
                stub.sendall(f"${packet}#{sum(packet.encode()) % 256:02x}".encode())
                answer = b""
                while b"$OK#" not in answer:
                    answer += (more := stub.recv(4096))
                    if not more or b"$E" in answer:
                        raise AssertionError(f"{packet}: {answer}")
                stub.sendall(b"+")


@unittest.skipUnless(KVM_FLAGS.exists() and BPFTOOL, "no BPF in this build, or no bpftool on this machine")
class Protected(KvmCase):
    rig_options = {"cpus": 2}
    flags = {"arch.guest_state_protected": REGISTERS, "sev_info.active": SEV}

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        directory = Path(scratch.name)
        cls.rig_options = cls.rig_options | {"qmp": directory / "qmp"}
        super().setUpClass()
        cls.rig.put(KVM_FLAGS, BPFTOOL)
        cls.rig.run("mount -t bpf none /sys/fs/bpf && bpftool iter pin kvm_flags.bpf.o /sys/fs/bpf/flags", check=True)
        cls.stub = Stub(directory / "qmp", directory / "gdb")
        cls.addClassCleanup(cls.stub.close)

    def check_is_refused(self, said):
        self.assertRegex(self.host("uniprof list"), rf"kvm +\d+ +monitor +kvm +1  - +-  - \({said}\)\n")
        for verb in "record -T 1", "record --via ptrace -T 1", "record --host -T 1", "stack":
            self.assertRegex(self.host(f"rm -f out.uniprof; uniprof {verb} kvm:monitor 2>&1", expect=3), rf"^uniprof: {said}\n$")
            self.host("[ ! -e out.uniprof ]")

    def test_each_note_of_the_kernels(self):
        self.start("spinner-fp")
        self.host("kill -STOP $(pidof monitor)")
        told = dict(line.split() for line in self.host("cat /sys/fs/bpf/flags").splitlines())
        self.assertEqual(set(told), set(self.flags))
        for flag, said in self.flags.items():
            with self.subTest(flag=flag):
                self.stub.write(int(told[flag], 16), 1)
                try:
                    self.check_is_refused(said)
                finally:
                    self.stub.write(int(told[flag], 16), 0)
        self.host("kill -CONT $(pidof monitor)")
        self.works()
        self.assertIn(" via bpf,", self.record("monitor", "-T", 0.5))

    def test_without_rights_to_read_them_an_open_device_tells(self):
        """The device is one by its name alone, and uniprof has no right to load programs for BPF."""
        self.bring(MONITORS / "spinner-fp")
        self.rig.put(shutil.which("setpriv"))
        self.host("mknod /dev/sev c 1 3; monitor spinner-fp >log 2>&1 5</dev/sev &")
        self.works()
        dropped = "-sys_admin,-bpf,-perfmon"
        said = self.host(f"./setpriv --bounding-set={dropped} --inh-caps={dropped} uniprof list")
        self.assertRegex(said, rf"kvm +\d+ +monitor +kvm +1  - +-  - \({DEVICE}\)\n")
        self.boot("app1-pvh-fp", "-qmp unix:qmp,server=on,wait=off 5</dev/sev")
        said = self.host(f"./setpriv --bounding-set={dropped} --inh-caps={dropped} uniprof record -T 1 qemu:app1-pvh-fp 2>&1", expect=3)
        self.assertRegex(said, rf"^uniprof: {DEVICE}\n$")
        # With the right, KVM's own notes are believed.
        self.assertRegex(self.host("uniprof list"), r"kvm +\d+ +monitor +kvm +1 +bpf ")


class Protected612(Protected):
    rig_options = {"kernel": "6.12", "cpus": 2}
    flags = Protected.flags | {"arch.has_protected_state": REGISTERS, "arch.has_private_mem": PAGES}


if __name__ == "__main__":
    unittest.main()
