#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That a share is found to be wrong when it is, and only then."""

import random
import unittest

import chance

RUNS = 300


class Shares(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(1)

    def failures(self, true, expected, samples, tolerance, alike=1):
        """Number of failures in many tests with so many samples a recording, always some of which are alike."""
        def take(attempt):
            draws = samples * chance.longer(attempt) // alike
            hits = sum(self.random.random() < true for _ in range(draws))
            return {("main", "known"): hits * alike, ("main",): (draws - hits) * alike}, {"known": expected}

        failed = 0
        for _ in range(RUNS):
            try:
                chance.check_shares(take, tolerance)
            except AssertionError:
                failed += 1
        return failed

    def test_right_ones_are_never_wrong_by_chance(self):
        for samples, tolerance in (30, 0.2), (100, 0.12), (1000, 0.05):
            self.assertEqual(self.failures(0.6, 0.6, samples, tolerance, alike=3), 0)

    def test_wrong_ones_are_found_of_however_few_samples(self):
        for samples, tolerance in (30, 0.2), (100, 0.12), (1000, 0.05):
            self.assertGreater(self.failures(0.6 - 2.2 * tolerance, 0.6, samples, tolerance), 0.95 * RUNS)

    def test_what_is_not_there_at_all_is_missed(self):
        self.assertEqual(self.failures(0, 0.3, 100, 0.1), RUNS)
        self.assertRaisesRegex(AssertionError, "in 0 samples", chance.check_shares, lambda attempt: ({}, {"known": 0.5}), 0.1)

    def test_rare_events_may_come_by_chance_but_not_in_numbers(self):
        self.assertEqual(chance.most(0), 0)
        for expected in 0.01, 0.6, 5, 50, 500:
            self.assertGreater(chance.most(expected), expected)
            self.assertLess(chance.most(expected), expected + 6 * expected ** 0.5 + 4)


if __name__ == "__main__":
    unittest.main()
