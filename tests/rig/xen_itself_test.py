#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Xen itself, profiled from the host of the QEMU that it runs in: its own stacks, and what its domains do."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from guestcase import BUILD, GUESTS, ROOT, parse_folded
from xenrig import Rig, image, packages

sys.path.insert(0, str(ROOT / "tests"))
from calls import check  # noqa: E402
from calls.code import Code  # noqa: E402

XEN, GUEST = "4.17", "app1-pvh-fp"
# Exits of a guest, and hypercalls of dom0.
WORK = f"xl create {GUEST}.cfg 'cmdline=\"scale=100000\"' && {{ while :; do xl list; done >/dev/null 2>&1 & }}"
SAMPLES = 400


# Code that any function may lead to: thunks, and what makes good for a fault, which stands behind the last function.
ANYWHERE = "__x86_indirect_thunk", "__x86_return_thunk", "dom_crash_sync_extable"


class XenVerdict(check.Verdict):
    """What Xen changes in its code when it starts is not wrong: calls through pointers become direct, and calls come where the file has none."""

    def _in_file(self, address):
        """A call that has become direct is shorter by a byte; perf's callers are the last bytes of their calls."""
        code = self.code
        return next((address + more for more in (0, 1, 2) if (call := code.call_before(address + more)) and (not more or call.target is None)), address)

    def _edge(self, inner, exact, outer):
        code, place, outer = self.code, self._in_file(inner), self._in_file(outer)
        added = not code.call_before(outer) and code.name(inner) == code.name(outer)
        if added or code.name(inner).startswith(ANYWHERE):
            return None, False
        # What stands behind a shorter call has not called anything.
        return super()._edge(place if not exact or inner not in code.at else inner, exact and inner in code.at, outer)


class XenItself(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="uniprof-xen-")))
        self.symbols = packages.xen_symbols(XEN, self.scratch, print)
        self.recording = self.scratch / "xen.uniprof"

    def uniprof(self, *words):
        done = subprocess.run([BUILD / "uniprof", *map(str, words)], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def record(self):
        """Records Xen while it is at work."""
        with Rig(xen=XEN, qmp=self.scratch / "xen.qmp") as rig:
            rig.put(GUESTS / f"{GUEST}.elf", GUESTS / f"{GUEST}.cfg")
            rig.run(WORK, check=True)
            self.uniprof("record", "-q", "-F", 200, "--max-overhead", 100, "-T", 6, "-s", self.symbols, "-s", image.locate(XEN) / "linux",
                         "-o", self.recording, f"qemu:{self.scratch}/xen.qmp")

    def test_its_stacks_are_true_and_beside_them_stand_its_domains(self):
        self.record()
        verdict = XenVerdict(Code(self.symbols))
        for stack in check.parse_perf_script(self.uniprof("export", "--format=perf-script", "--no-inline", "--state=all", self.recording)):
            if all(map(verdict.code.covers, stack)):
                verdict.judge(stack)
        print(f"\n{verdict.samples} samples in Xen", end=" ", flush=True)
        self.assertGreater(verdict.samples, SAMPLES)
        self.assertFalse(verdict.impossible)
        stacks = parse_folded(self.uniprof("export", "--format=folded", "--no-inline", "--state=all", self.recording))
        of_xen = {name for _, name in verdict.code.names}
        self.assertTrue([stack for stack in stacks if not of_xen & set(stack) and not stack[-1].startswith(("0x", "["))], "no function of dom0's kernel")
        for called in (("svm_vmexit_handler",), ("lstar_enter", "pv_hypercall")):
            self.assertTrue([stack for stack in stacks if called in zip(*(stack[i:] for i in range(len(called))))], called)


if __name__ == "__main__":
    unittest.main()
