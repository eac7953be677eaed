#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Exports in speedscope, in a real browser: its own format, and those of others that it reads."""

import base64
import re
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'browser'))

import npm  # noqa: E402
import webdriver  # noqa: E402
from exported import INLINED_SELF, INLINED_TOTAL, PLAIN_TOTAL, Exported  # noqa: E402

SPEEDSCOPE = 'speedscope', '1.25.0'
# Percent in all, and of itself.
VCPU_0 = {'example_leaf': (86, 86), 'example_outer': (100, 14), 'example_middle': (86, 0)}
FORMATS = 'folded', 'pb.gz', 'speedscope.json', 'perf', 'trace.json'


# "web vCPU 0 (1/5)"
TITLE = 'return (/.*\\(\\d+\\/\\d+\\)/.exec(document.body.innerText) || [""])[0]'
UNITS = {'': 1, 'ns': 1, '\u00b5s': 1e3, 'ms': 1e6, 's': 1e9}


def in_ns(text):
    """What speedscope shows as "74.00ms", or as "74" where weights are no times."""
    number, unit = re.fullmatch(r'([\d.,]+)(\D*)', text).groups()
    return round(float(number.replace(',', '')) * UNITS[unit])


class Speedscope:
    """Opens files by the way that its command line uses: a script beside it hands them over."""

    def __init__(self, browser, directory, place):
        self.browser, self.directory, self.page = browser, directory, place / 'dist/release/index.html'

    def open(self, path):
        script = self.directory / 'profile.js'
        content = base64.b64encode(path.read_bytes()).decode()
        script.write_text(f'speedscope.loadFileFromBase64({path.name!r}, {content!r})')
        self.browser.open('about:blank')
        self.browser.open(f'{self.page.as_uri()}#localProfilePath={script}')
        self._wait('return !!document.querySelector("canvas") && document.title !== "speedscope"', path)

    def _wait(self, script, what):
        deadline = time.monotonic() + 60
        while not self.browser.run(script):
            assert time.monotonic() < deadline, f'{what}: {self.browser.run("return document.body.innerText")}'
            time.sleep(.1)

    def view(self, key):
        """1: in order of time, 2: heaviest first, 3: sandwich."""
        self.browser.run('window.dispatchEvent(new KeyboardEvent("keypress", {key: arguments[0]}))', key)

    def profiles(self):
        """Of each what its weights sum up to, by name; none of a file with one. The first one is shown."""
        return {name: in_ns(total) for number, name, total in self._table() if number.isdecimal()}

    def next_profile(self):
        before = self.browser.run(TITLE)
        self.view('n')
        self._wait(f'return {TITLE.removeprefix("return ")} !== {before!r}', 'next profile')

    def _table(self):
        """Rows with three cells: those of the list of profiles, and of the sandwich view."""
        rows = self.browser.run('return Array.from(document.querySelectorAll("tr")).map((row) => '
                                'Array.from(row.querySelectorAll("td")).map((cell) => cell.textContent))')
        return [row for row in rows if len(row) == 3]

    def _rows(self):
        """Total and self of each function in the sandwich view, as texts."""
        self.view('3')
        # The head of the table is there before its rows are.
        self._wait('return Array.from(document.querySelectorAll("td")).some((cell) => cell.textContent.endsWith("%)"))', 'sandwich')
        return {name: (total, own) for total, own, name in self._table() if total.endswith('%)')}

    def sandwich(self):
        """Share of total and self, in percent, of each function that the table of the sandwich view has."""
        return {name: tuple(float(re.search(r'\(<?([\d.]+)%\)', cell)[1]) for cell in cells) for name, cells in self._rows().items()}

    def own(self):
        """Weight of itself of each function there, in ns where it is a time."""
        return {name: in_ns(own.partition(' (')[0]) for name, (_, own) in self._rows().items()}


@unittest.skipIf(webdriver.missing(), webdriver.missing())
class Reads(Exported):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        place = npm.package(*SPEEDSCOPE)
        cls.browser = cls.enterClassContext(webdriver.Browser())
        cls.speedscope = Speedscope(cls.browser, cls.directory, place)

    def test_functions_have_their_shares_in_all_formats(self):
        for ending in FORMATS:
            with self.subTest(ending):
                # Without vCPU 1, so that there is one profile to look at.
                self.speedscope.open(self.export('plain', f'plain.{ending}', '--vcpu=0'))
                shares = self.speedscope.sandwich()
                self.assertEqual(set(shares), set(PLAIN_TOTAL))
                # In perf's text, the time to the next sample is the weight: the last sample has none.
                for name, (total, own) in VCPU_0.items():
                    self.assertAlmostEqual(shares[name][0], total, delta=1.5)
                    self.assertAlmostEqual(shares[name][1], own, delta=1.5)

    def own(self):
        """Weight of itself of each function, in ns or as a number, of all profiles."""
        own = Counter(self.speedscope.own())
        for _ in range(1, len(self.speedscope.profiles())):
            self.speedscope.next_profile()
            for name, weight in self.speedscope.own().items():
                own[name] += weight
        return own

    def test_total_and_top_ten_are_those_of_report_in_all_formats(self):
        for ending, weight in ('folded', 'samples'), ('pb.gz', 'weight_ns'), ('speedscope.json', 'weight_ns'), ('trace.json', 'weight_ns'):
            with self.subTest(ending):  # of perf's text see test_functions_have_their_shares_in_all_formats
                path = self.export('many', f'many.{ending}')
                self.speedscope.open(path)
                self.is_as_reported(path, self.own(), weight=weight)

    def test_a_profile_is_a_thread_or_a_vcpu_with_gaps_where_it_did_not_run(self):
        self.speedscope.open(self.export('threads', 'threads.speedscope.json'))
        # Gaps are no part of what the threads used.
        self.assertEqual(self.speedscope.profiles(), {'web server (1) vCPU 0': 10000000, 'web server (1) nginx (12)': 60000000,
                                                      'web server (1) nginx/pool (1)\ufffd[2J (13)': 30000000})
        self.assertEqual(self.speedscope.sandwich(), {'example_outer': (100, 100)})
        self.speedscope.next_profile()
        self.speedscope.next_profile()
        # Of nothing it says that it is less than 0.01 %.
        self.assertEqual(self.speedscope.sandwich(), {'example_outer': (100, 0.01), 'example_leaf': (100, 100)})

    def test_inlined_functions_are_told_in_all_formats(self):
        for ending in FORMATS:
            if ending == 'pb.gz':
                continue  # speedscope passes over all but one of the functions at an address there
            with self.subTest(ending):
                self.speedscope.open(self.export('inlined', f'inlined.{ending}'))
                shares = self.speedscope.sandwich()
                samples = INLINED_TOTAL['example_caller']
                # As above.
                delta = 100 / samples + 0.5
                for name, total in INLINED_TOTAL.items():
                    self.assertAlmostEqual(shares[name][0], 100 * total / samples, delta=delta)
                    self.assertAlmostEqual(shares[name][1], 100 * INLINED_SELF.get(name, 0) / samples, delta=delta)

    def test_any_name_can_be_read_in_all_formats(self):
        for ending in FORMATS:
            with self.subTest(ending):
                self.speedscope.open(self.export('hostile', f'hostile.{ending}'))
                shares = self.speedscope.sandwich()
                for name in '<script>alert(1)</script>', '(1) compressed', '__proto__', '\ufffdtxt.exe', 'x' * 65536:
                    self.assertIn(name, shares)
                self.assertEqual(self.browser.run('return document.querySelectorAll("body script:not([src])").length'), 0)


if __name__ == '__main__':
    unittest.main()
