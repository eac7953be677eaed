# SPDX-License-Identifier: BSD-3-Clause
"""Bounds on chance, so that no test fails by it.

A busy machine takes fewer samples in a second, and a share of few is off. So whoever asserts a share takes more
of them until chance cannot explain what is seen: a wrong profile stays wrong, however often it is taken.
"""

import collections
import math

# Standard deviations that chance does not reach: it would once in two million times.
SIGMAS = 5
ONCE_IN = 2e6

# Samples of one piece of work are alike: up to three times the variance of independent draws was seen.
ALIKE = 3

# Recordings until a share that is off is believed; by then there are as many samples as that takes.
TAKES = 12

# Boots until a Linux kernel has moved itself: one of some 480 places is where it was linked.
BOOTS = 3


def margin(share, samples):
    """Error that chance allows a share of so many samples."""
    return SIGMAS * math.sqrt(ALIKE * share * (1 - share) / samples)


def most(expected):
    """Most rare events that chance makes if so many are expected (Poisson)."""
    if expected > 100:
        return expected + SIGMAS * math.sqrt(expected)
    n, one = 0, math.exp(-expected)
    more = 1 - one
    while more > 1 / ONCE_IN:
        n += 1
        one *= expected / n
        more -= one
    return n


def longer(attempt):
    """Length of the recordings after the first, as a multiple of it."""
    return min(2 ** attempt, 8)


def check_shares(take, tolerance):
    """Asserts that functions have the shares that are expected, but for a tolerance.

    `take(attempt)` takes samples and returns ({stack: samples}, {function: share expected}). The samples of
    all attempts count together. There are always so many that what is off by twice the tolerance is seen.
    """
    samples, seen, expected = 0, collections.Counter(), collections.Counter()
    for attempt in range(TAKES):
        stacks, shares = take(attempt)
        taken = sum(stacks.values())
        samples += taken
        for name, share in shares.items():
            seen[name] += sum(n for stack, n in stacks.items() if name in stack)
            expected[name] += share * taken
        if samples < 1 / tolerance ** 2:
            continue
        if all(abs(seen[name] - expected[name]) <= tolerance * samples for name in shares):
            return
        if all(margin(expected[name] / samples, samples) <= tolerance for name in shares):
            break
    whole = max(samples, 1)
    told = ", ".join(f"{name} {seen[name] / whole:.3f} instead of {expected[name] / whole:.3f}" for name in expected)
    raise AssertionError(f"{told}: may be off by {tolerance}, in {samples} samples of {attempt + 1} recordings")
