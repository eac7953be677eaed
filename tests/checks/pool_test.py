#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That the pool runs each step once, after what it needs, and never two that share a resource."""

import sys
import threading
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0])

from checks import results, steps  # noqa: E402
from checks.pool import Pool  # noqa: E402


class FakeStep(steps.Step):
    """A step whose work is a function."""

    def __init__(self, name, work=lambda: None, fails=False, **more):
        super().__init__(name, "", **({"needs": ()} | more))
        self.work, self.fails = work, fails

    def run(self):
        self.work()
        return results.of_command(int(self.fails), "")


class Pools(unittest.TestCase):
    def run_pool(self, todo, workers=4):
        shown = []
        pool = Pool(todo, lambda step, result, seconds: shown.append(step.name))
        pool.run(workers)
        self.assertEqual(sorted(shown), sorted(step.name for step in todo))
        return shown, pool

    def test_each_step_runs_once_and_after_what_it_needs(self):
        todo = [FakeStep("c", needs=("b",)), FakeStep("b", needs=("a",)), FakeStep("a"), FakeStep("d")]
        shown, _ = self.run_pool(todo)
        self.assertLess(shown.index("a"), shown.index("b"))
        self.assertLess(shown.index("b"), shown.index("c"))

    def test_what_needs_a_failed_step_is_not_run_and_counts_as_failed(self):
        ran = []
        todo = [FakeStep("a", fails=True), FakeStep("b", lambda: ran.append("b"), needs=("a",)), FakeStep("c", needs=("b",))]
        _, pool = self.run_pool(todo)
        self.assertEqual(ran, [])
        self.assertEqual(sum(result.failed for result in pool.finished), 3)

    def test_what_needs_a_step_that_cannot_run_here_is_skipped_for_the_same_reason(self):
        ran = []

        class CannotRun(FakeStep):
            def run(self):
                return results.of_command(results.SKIP_STATUS, "downloading it\nthe mirror has none\n")

        _, pool = self.run_pool([CannotRun("a"), FakeStep("b", lambda: ran.append("b"), needs=("a",)), FakeStep("c")])
        self.assertEqual(ran, [])
        self.assertEqual([sum(getattr(result, kind) for result in pool.finished) for kind in ("passed", "failed", "skipped")], [1, 0, 2])
        self.assertEqual([reason for result in pool.finished for reason in result.skip_reasons], ["the mirror has none"] * 2)

    def test_a_step_that_needs_one_that_was_not_chosen_runs(self):
        self.run_pool([FakeStep("b", needs=("a",))])

    def test_steps_with_a_common_resource_never_run_at_the_same_time(self):
        inside, most = [], []

        def work():
            inside.append(1)
            time.sleep(0.001)
            most.append(len(inside))
            inside.pop()

        self.run_pool([FakeStep(str(i), work, alone="screen") for i in range(50)])
        self.assertEqual(max(most), 1)

    def test_steps_run_side_by_side(self):
        both = threading.Barrier(2, timeout=60)
        self.run_pool([FakeStep("a", both.wait), FakeStep("b", both.wait)], workers=2)


class Steps(unittest.TestCase):
    def test_names_are_unique_and_what_is_needed_is_there(self):
        for chosen in steps.everything(), steps.short():
            names = [step.name for step in chosen]
            self.assertEqual(len(names), len(set(names)))
            for step in chosen:
                self.assertLessEqual(set(step.needs), set(names), step.name)


if __name__ == "__main__":
    unittest.main()
