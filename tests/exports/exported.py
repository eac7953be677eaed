# SPDX-License-Identifier: BSD-3-Clause
"""Exports of the format tests, and their expected contents."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from collections import Counter
from pathlib import Path

BUILD = Path(os.environ.get('UNIPROF_BUILD', Path(__file__).resolve().parents[2] / 'build'))
EXAMPLE = BUILD / 'tests/exports/export_example_guest'

# Names of the program itself, whose vCPU 0 and 1 were sampled, every millisecond.
PLAIN = Counter({('example_outer', 'example_middle', 'example_leaf'): 60, ('example_outer', 'example_leaf'): 30,
                 ('example_outer',): 10})
PLAIN_SELF = {'example_leaf': 90, 'example_outer': 10}
PLAIN_TOTAL = {'example_outer': 100, 'example_leaf': 90, 'example_middle': 60}

# Functions of which one was inlined into another, each called by the next; with the mark of its line in real.c.
INLINED_SELF = {'example_here': 20, 'example_inlined': 10}
INLINED_TOTAL = {'example_here': 20, 'example_inlined': 30, 'example_caller': 30}
# Exits, by the function that caused them, or the reason.
EXITS_SELF = {'write_ports': 1_400_000, 'touch_memory': 500_000, 'interrupt': 100_000}

SOURCE = Path(__file__).with_name('real.c')


def line_of(mark):
    """The number of the line with this comment."""
    number, = [i for i, line in enumerate(SOURCE.read_text().splitlines(), 1) if f'/* {mark} */' in line]
    return number


# Characters that no text may hold, whatever its origin: control bytes, and those that turn its direction.
HARMFUL = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]')


def run(*command, **more):
    if 'input' not in more:
        more['stdin'] = subprocess.DEVNULL
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, timeout=120, **more)
    assert done.returncode == 0, f'{command}: {done.stderr.decode(errors="replace")}'
    return done.stdout


def folded(text):
    """Stacks and counts of folded text."""
    stacks = Counter()
    for line in text.splitlines():
        stack, count = line.rsplit(' ', 1)
        stacks[tuple(stack.split(';'))] += int(count)
    return stacks


def totals(stacks):
    """Samples in which each function is."""
    sums = Counter()
    for stack, count in stacks.items():
        for name in set(stack):
            sums[name] += count
    return sums


class Exported(unittest.TestCase):
    """A directory with recordings, and exports of them."""

    @classmethod
    def setUpClass(cls):
        cls.directory = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix='uniprof-exports-')))
        for kind in 'plain', 'threads', 'inlined', 'hostile', 'many', 'exits':
            run(EXAMPLE, kind, cls.directory / f'{kind}.uniprof')

    def export(self, kind, name, *options):
        """A recording by the ending of `name`."""
        path = self.directory / name
        run(BUILD / 'uniprof', 'export', *options, '-o', path, self.directory / f'{kind}.uniprof')
        return path

    def text(self, kind, name):
        """... as text, in which nothing may be harmful."""
        text = self.export(kind, name).read_bytes().decode('utf-8', 'strict')
        self.assertIsNone(HARMFUL.search(text))
        return text

    def is_as_reported(self, path, own, total=None, weight='weight_ns', unit=1):
        """What a reader says each function of `many` weighs itself, in so many ns: total and top ten are those of report."""
        report = json.loads(run(BUILD / 'uniprof', 'report', '--json', self.directory / 'many.uniprof'))
        expected = Counter({row['function']: row['self'][weight] for row in report['rows']})
        self.assertGreaterEqual(len([name for name, each in expected.items() if each]), 20)
        self.assertEqual(sum(expected.values()), report['stacks'][{'samples': 'selected'}.get(weight, weight)])
        own = Counter({name: round(each * unit) for name, each in own.items()})
        self.assertEqual(own.most_common(10), expected.most_common(10), path)
        self.assertEqual(round(total * unit) if total is not None else sum(own.values()), sum(expected.values()), path)

    def names(self):
        """The leaves of the hostile recording, with their counts, as folded stacks have them."""
        leaves = Counter()
        for stack, count in folded(self.text('hostile', 'names.folded')).items():
            leaves[stack[-1]] += count
        return leaves
