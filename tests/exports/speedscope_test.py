#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Exports in speedscope, in a real browser: its own format, and those of others that it reads."""

import base64
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'browser'))

import npm  # noqa: E402
import webdriver  # noqa: E402
from exported import INLINED_SELF, INLINED_TOTAL, PLAIN_TOTAL, Exported  # noqa: E402

SPEEDSCOPE = 'speedscope', '1.25.0'
# Percent in all, and of itself.
VCPU_0 = {'example_leaf': (86, 86), 'example_outer': (100, 14), 'example_middle': (86, 0)}
FORMATS = 'folded', 'pb.gz', 'speedscope.json', 'perf', 'trace.json'


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

    def sandwich(self):
        """Share of total and self, in percent, of each function that the table of the sandwich view has."""
        self.view('3')
        self._wait('return document.querySelectorAll("tr").length > 1', 'sandwich')
        rows = self.browser.run('return Array.from(document.querySelectorAll("tr")).map((row) => '
                                'Array.from(row.querySelectorAll("td")).map((cell) => cell.textContent))')
        shares = {}
        for row in rows:
            if len(row) == 3:
                shares[row[2]] = tuple(float(re.search(r'\(<?([\d.]+)%\)', cell)[1]) for cell in row[:2])
        return shares


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
