# SPDX-License-Identifier: BSD-3-Clause
"""Distance of sampled stacks from what ran.

The distance is the total variation distance between the exact shares p of all call stacks and the
sampled ones q: half the sum of |p - q|, the share of samples that would have to move. Samples that
are drawn at random from p have one, too: the 95 % bound is that which 95 of 100 such draws stay
below, each of as many samples, with a generator that begins with the same number every time.
"""

import bisect
import collections
import itertools
import random

DRAWS = 400


def distance(sampled, exact):
    """Distance of two {stack: amount}."""
    n, total = sum(sampled.values()), sum(exact.values())
    return sum(abs(sampled.get(stack, 0) / n - exact.get(stack, 0) / total)
               for stack in sampled.keys() | exact.keys()) / 2


def bound95(exact, samples):
    """The distance that 95 % of draws of so many samples from {stack: amount} stay below."""
    generator = random.Random(samples)
    limits = list(itertools.accumulate(exact.values()))
    total, expected = limits[-1], [amount / limits[-1] * samples for amount in exact.values()]
    distances = []
    for _ in range(DRAWS):
        drawn = collections.Counter(bisect.bisect(limits, generator.random() * total) for _ in range(samples))
        distances.append(sum(abs(drawn[i] - mean) for i, mean in enumerate(expected)) / (2 * samples))
    return sorted(distances)[int(0.95 * DRAWS)]


def _reaches(edges, start, end):
    """True if calls lead from one function to the other."""
    found, work = set(), [start]
    while work:
        caller = work.pop()
        for callee in {to for via, to in edges if via == caller} - found:
            if callee == end:
                return True
            found.add(callee)
            work.append(callee)
    return False


class Faults:
    """Samples whose stacks cannot be, by what is wrong with them."""

    def __init__(self, sampled, stacks, edges):
        """`stacks` are all that there were since the guest's start, `edges` all calls."""
        self.impossible = self.missing_callers = self.truncated = 0
        self.examples = collections.Counter()
        self._edges, self._roots = edges, {stack[0] for stack in stacks}
        self._skips = {}
        for stack, samples in sampled.items():
            if stack not in stacks:
                self._judge(stack, samples)

    def _judge(self, stack, samples):
        truncated = stack[0] not in self._roots
        wrong = [pair for pair in zip(stack, stack[1:]) if pair not in self._edges]
        self.truncated += samples * truncated
        self.impossible += samples * bool(wrong)
        # Either a step over some functions, or calls that are possible but never came together.
        if any(self._is_skip(pair) for pair in wrong) or (not wrong and not truncated):
            self.missing_callers += samples
        self.examples[";".join(stack)] += samples

    def _is_skip(self, pair):
        if pair not in self._skips:
            self._skips[pair] = _reaches(self._edges, *pair)
        return self._skips[pair]
