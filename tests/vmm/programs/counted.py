# SPDX-License-Identifier: BSD-3-Clause
"""A Python program with a known answer: it counts the CPU time of its own functions.

Each line that it writes is a JSON object: the CPU time that each function has used so far, by thread.
Clocks are system calls, and behind these a thread gives up its CPU more often than elsewhere: one run of
the functions in EVERY is timed, and each counts as the lower quartile of those: in a guest, a clock goes on while others
have the CPU, and where its host's speed changes, the shortest may be half of any other. Usage: counted.py [threads]
"""

import itertools
import json
import sys
import threading
import time

ROUNDS = 6000
EVERY = 12

COUNTS = {}


class Count:
    def __init__(self):
        self.each = self.seconds = 0
        self.timed = []

    def note(self, seconds):
        self.timed.append(seconds)
        self.timed.sort()
        self.each = self.timed[len(self.timed) // 4]

    def spent(self):
        return self.seconds


def clock():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def spin(rounds):
    total = 0
    for i in range(rounds):
        total += i * i % 7
    return total


def plain(rounds):
    return spin(rounds)


def recurse(depth, rounds):
    if depth:
        return recurse(depth - 1, rounds)
    return spin(rounds)


def numbers(rounds):
    for _ in range(4):
        yield spin(rounds // 4)


def generate(rounds):
    return sum(numbers(rounds))


def key_of(value):
    return spin(200) + value


def order(rounds):
    return sorted(range(rounds // 200), key=key_of)


class Worker:
    def method(self, rounds):
        return [spin(rounds // 2) for _ in range(2)]

    def __call__(self, rounds):
        return self.method(rounds)


WORK = [("plain", plain, 1), ("recurse", lambda rounds: recurse(40, rounds), 2), ("generate", generate, 3),
        ("order", order, 4), ("called", Worker(), 2)]


def timed(function, count):
    before = clock()
    function(ROUNDS)
    count.note(clock() - before)


def run():
    thread = threading.current_thread().name
    counts = [COUNTS.setdefault(f"{thread} {name}", Count()) for name, _, _ in WORK]
    for turn in itertools.count():
        for count, (_, function, times) in zip(counts, WORK):
            if turn % EVERY == 0:
                timed(function, count)
                count.seconds += count.each
            for _ in range(times - (turn % EVERY == 0)):
                function(ROUNDS)
                count.seconds += count.each


def main():
    for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        threading.Thread(target=run, name=f"t{i}", daemon=True).start()
    while True:
        time.sleep(0.2)
        print(json.dumps({name: count.spent() for name, count in list(COUNTS.items())}), flush=True)


if __name__ == "__main__":
    main()
