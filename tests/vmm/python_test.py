#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Python programs as guests: their functions and lines in place of the interpreter's, with the shares that they count themselves.

UNIPROF_PYTHON names another interpreter than /usr/bin/python3.
"""

import collections
import json
import os
import re
import subprocess
import sys
import time
import unittest

from hostcase import PROGRAMS, ROOT, HostCase, chance

PYTHON = os.environ.get("UNIPROF_PYTHON", "/usr/bin/python3")
COUNTED = ROOT / "tests" / "vmm" / "programs" / "counted.py"

TOLERANCE = 0.03

# With less of a CPU than this, a program mostly waits for one.
BUSY = 0.5

# Outermost functions of the work, by what the program calls them.
WORK = {"plain": "counted.plain", "recurse": "counted.<lambda>", "generate": "counted.generate", "order": "counted.order",
        "called": "counted.Worker.__call__"}

# Finds the program's calls by the interpreter's own hook; the outermost functions of threads are not called by any of it.
EDGES = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
import counted
found = set()
def note(frame, event, argument):
    back = frame.f_back
    if event == "call" and back and back.f_code.co_filename == frame.f_code.co_filename == counted.__file__:
        found.add((back.f_code.co_qualname, frame.f_code.co_qualname))
sys.setprofile(note)
for _, function, _ in counted.WORK:
    function(800)
    counted.timed(function, counted.Count())
sys.setprofile(None)
print(json.dumps(sorted(found)))
"""

# Objects of functions come and go, in memory that is used again and again; each function calls the one that was made with it.
CHURN = """
import itertools
def spin(rounds):
    total = 0
    for i in range(rounds):
        total += i * i % 7
    return total
for n in itertools.count():
    scope = {"spin": spin}
    exec(compile(f"def inner_{n}():\\n  spin(3000)\\ndef outer_{n}():\\n  inner_{n}()\\n", f"/made/m{n}.py", "exec"), scope)
    scope[f"outer_{n}"]()
"""


def version():
    return subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:2], sep='.')"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()


def own(stack):
    """The program's own functions of a stack."""
    return [name.removeprefix("counted.") for name in stack if name.startswith("counted.")]


@unittest.skipIf(sys.platform != "linux" or os.uname().machine != "x86_64", "Python's frames were read on x86-64 only")
@unittest.skipIf(version() != "3.11" and "UNIPROF_PYTHON" not in os.environ, f"{PYTHON} is not Python 3.11")
class Python(HostCase):
    def counted(self, threads=1):
        program = self.start(PYTHON, COUNTED, str(threads))
        self.wait_for(lambda: any(self.spent(program).values()), "the program counts nothing")
        return program

    @staticmethod
    def spent(program):
        """CPU time of each kind of work until now, all threads together."""
        lines = program.log.read_text().rpartition("\n")[0].splitlines()
        spent = collections.Counter()
        for name, seconds in json.loads(lines[-1]).items() if lines else ():
            spent[WORK[name.split()[1]]] += seconds
        return spent

    def check(self, threads, *options):
        """Calls of all stacks, and shares as the program counts them."""
        program = self.counted(threads)
        stacks, cpu, began = collections.Counter(), collections.Counter(), time.monotonic()

        def take(attempt):
            before = self.spent(program)
            self.said = self.uniprof("record", "-v", "-F", 499, "-T", 3 * chance.longer(attempt), *options, "-o", "out.uniprof", f"process:{program.pid}")
            time.sleep(0.3)
            known = self.spent(program)
            known.subtract(before)
            cpu.update(known)
            taken = self.folded("out.uniprof")
            stacks.update(taken)
            return ({stack: n for stack, n in taken.items() if any(name in stack for name in WORK.values())},
                    {name: seconds / sum(known.values()) for name, seconds in known.items()})

        try:
            chance.check_shares(take, TOLERANCE)
        except AssertionError as error:
            # One that waits for a CPU is seen where it gave its CPU up, more often behind system calls than elsewhere.
            if sum(cpu.values()) > (time.monotonic() - began) * BUSY:
                raise
            off = error
        else:
            off = None
        self.assertIn(f"CPython {version()}.", self.said)
        self.check_edges(stacks)
        self.assertTrue([stack for stack in stacks if stack.count("counted.recurse") == 41])
        for stack in stacks:
            self.assertIn(stack.count("counted.recurse"), range(42))
        if off:
            self.skipTest(f"the program had a CPU for too little of the time to tell shares: {off}")

    def check_edges(self, stacks):
        text = subprocess.run([PYTHON, "-c", EDGES, COUNTED.parent], check=True, stdout=subprocess.PIPE).stdout
        allowed = {tuple(edge) for edge in json.loads(text)} | {("run", "timed"), ("<module>", "main"), ("run", "Count.spent")}
        allowed |= {("run", callee) for caller, callee in allowed if caller == "timed"} | {("run", name.removeprefix("counted.")) for name in WORK.values()}
        allowed |= {("main", callee) for callee in ("main.<locals>.<dictcomp>", "Count.spent")} | {("main.<locals>.<dictcomp>", "Count.spent")}
        found = {edge for stack in stacks for edge in zip(own(stack), own(stack)[1:])}
        self.assertFalse(found - allowed)
        self.assertGreater(len(found & allowed), 10)

    def test_shares_and_calls_of_one_thread(self):
        self.check(1)

    def test_shares_and_calls_of_two_threads(self):
        self.check(2)

    def test_shares_without_perf_events(self):
        self.check(1, "--via", "ptrace")

    def test_c_code_stands_between_functions(self):
        program = self.counted()
        self.uniprof("record", "-q", "-F", 499, "-T", 3, "-o", "out.uniprof", f"process:{program.pid}")
        stacks = [stack for stack in self.folded("out.uniprof") if "counted.key_of" in stack]
        self.assertTrue(stacks)
        for stack in stacks:
            at, by = stack.index("counted.key_of"), stack.index("counted.order")
            self.assertGreater(at - by, 1, stack)
            self.assertFalse([name for name in stack[by + 1:at] if name.startswith("counted.") or "EvalFrame" in name], stack)

    def test_lines_of_functions(self):
        program = self.counted()
        self.uniprof("record", "-q", "-F", 499, "-T", 3, "-o", "out.uniprof", f"process:{program.pid}")
        source = COUNTED.read_text().splitlines()

        def lines(function):
            text = self.uniprof("report", "--annotate", function, "out.uniprof")
            self.assertNotIn("names no file", text)
            return {source[int(line) - 1].strip() for line in re.findall(r"counted\.py:(\d+)", text)}

        self.assertIn("total += i * i % 7", lines("counted.spin"))
        self.assertLessEqual(lines("counted.spin"), {"def spin(rounds):", "total = 0", "for i in range(rounds):", "total += i * i % 7", "return total"})
        self.assertEqual(lines("counted.plain"), {"return spin(rounds)"})
        self.assertIn(str(COUNTED).encode(), (self.scratch / "out.uniprof").read_bytes())

    def test_functions_that_come_and_go_keep_their_names(self):
        program = self.start(PYTHON, "-c", CHURN)
        self.uniprof("record", "-q", "-F", 997, "-T", 4, "-o", "out.uniprof", f"process:{program.pid}")
        pairs, mixed = 0, []
        for stack in self.folded("out.uniprof"):
            inner = [name for name in stack if ".inner_" in name]
            outer = [name for name in stack if ".outer_" in name]
            if inner:
                n = inner[0].rpartition("_")[2]
                pairs += 1
                if (inner, outer) != ([f"m{n}.inner_{n}"], [f"m{n}.outer_{n}"]):
                    mixed.append((inner, outer))
        self.assertGreater(pairs, 20)
        self.assertEqual(mixed, [])

    def test_functions_are_left_out_if_so_asked(self):
        program = self.counted()
        for options in (("--no-python",), ("--no-python", "--via", "ptrace")):
            self.uniprof("record", "-q", "-F", 499, "-T", 1, *options, "-o", "out.uniprof", f"process:{program.pid}")
            stacks = self.folded("out.uniprof")
            self.assertFalse([stack for stack in stacks if own(stack)])
            self.assertTrue([stack for stack in stacks if "_PyEval_EvalFrameDefault" in stack])

    def test_a_program_that_lies_has_its_c_stack(self):
        program = self.start(PROGRAMS / "liar")
        self.wait_for(lambda: program.log.read_text(), "the program says nothing")
        said = self.uniprof("record", "-v", "-F", 997, "-T", 4, "-o", "out.uniprof", f"process:{program.pid}", timeout=60)
        merged, stayed = map(int, re.search(r"CPython 3\.11\.2: (\d+) stacks have its functions, (\d+) do not", said).groups())
        self.assertGreater(stayed, 0)
        self.assertLessEqual(merged, stayed // 100)
        loops = [stack for stack in self.folded("out.uniprof") if "main" in stack]
        self.assertTrue(loops)
        self.goes_on(program)

    def test_a_dump_and_the_live_view_have_functions(self):
        program = self.counted()
        self.assertIn("counted.run", self.uniprof("stack", f"process:{program.pid}"))
        self.assertIn("counted.spin", self.uniprof("top", "--batch", "-n", 1, "-d", 2, f"process:{program.pid}"))


if __name__ == "__main__":
    unittest.main()
