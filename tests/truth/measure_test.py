#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import Faults, bound95, distance  # noqa: E402

STACKS = {("a",), ("a", "b"), ("a", "b", "c"), ("a", "d", "c"), ("a", "d", "c", "e")}
EDGES = {pair for stack in STACKS for pair in zip(stack, stack[1:])}


class Distance(unittest.TestCase):
    def test_is_the_share_that_would_have_to_move(self):
        self.assertAlmostEqual(0.1, distance({"a": 6, "b": 4}, {"a": 500, "b": 500}))
        self.assertAlmostEqual(1.0, distance({"a": 6}, {"b": 500}))

    def test_bound_holds_for_95_of_100_draws_and_no_bias(self):
        exact = {"a": 70, "b": 20, "c": 9, "d": 1}
        bound = bound95(exact, 1000)
        generator = random.Random(1)

        def within(weights):
            draws = (generator.choices("abcd", weights, k=1000) for _ in range(400))
            return sum(distance({name: drawn.count(name) for name in "abcd"}, exact) <= bound for drawn in draws) / 400
        self.assertAlmostEqual(0.95, within([70, 20, 9, 1]), delta=0.03)
        self.assertLess(within([60, 30, 9, 1]), 0.05)


class Wrong(unittest.TestCase):
    def faults(self, *stack):
        found = Faults({stack: 3}, STACKS, EDGES)
        return found.impossible, found.missing_callers, found.truncated

    def test_a_stack_that_was_there_is_none(self):
        self.assertEqual((0, 0, 0), self.faults("a", "b", "c"))

    def test_an_edge_that_nothing_takes_is_impossible(self):
        self.assertEqual((3, 0, 0), self.faults("a", "b", "d"))

    def test_a_step_over_a_function_is_impossible_and_misses_a_caller(self):
        self.assertEqual((3, 3, 0), self.faults("a", "c"))

    def test_calls_that_never_came_together_miss_a_caller(self):
        self.assertEqual((0, 3, 0), self.faults("a", "b", "c", "e"))

    def test_a_stack_without_its_beginning_is_truncated(self):
        self.assertEqual((0, 0, 3), self.faults("d", "c"))


if __name__ == "__main__":
    unittest.main()
