#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of `uniprof history`, in a real browser."""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / 'bench')]

import webdriver  # noqa: E402
from picture import BUILD  # noqa: E402
from viewing.store import HOUR, Store, moment  # noqa: E402

START = 1790000000 // HOUR * HOUR


def iso(unix_s: int) -> str:
    text = moment(unix_s)
    return f'{text[:4]}-{text[4:6]}-{text[6:11]}:{text[11:13]}:{text[13:]}'


@unittest.skipIf(webdriver.missing(), webdriver.missing())
class HistoryPage(unittest.TestCase):
    """Four hours, the third of which is missing; a column is an hour."""

    @classmethod
    def setUpClass(cls) -> None:
        place = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix='uniprof-history-')))
        store = Store(BUILD.resolve(), place, hz=2, stacks=200)
        for hour in (0, 1, 3):
            store.hour('it%27s', START + hour * HOUR)
        cls.page = place / 'web.html'
        subprocess.run([BUILD / 'uniprof', 'history', '--from', iso(START), '--to', iso(START + 4 * HOUR), '--step', '1h', '--store', place, '-o', cls.page, "it's"],
                       check=True, env=os.environ | {'TZ': 'UTC'})
        cls.browser = cls.enterClassContext(webdriver.Browser())

    def setUp(self) -> None:
        self.browser.open(self.page.as_uri())

    def tearDown(self) -> None:
        self.assertEqual(self.browser.log('browser'), [])

    def text(self, selector: str) -> str:
        return self.browser.run('return document.querySelector(arguments[0]).textContent', selector)

    def commands(self) -> list[str]:
        return self.browser.run("return Array.from(document.querySelectorAll('#commands code'), (code) => code.textContent)")

    def choose(self, *keys: str) -> None:
        self.browser.run("document.getElementById('load').focus()")
        for key in keys:
            self.browser.press(key)

    def test_it_shows_bands_a_gap_and_their_figures(self) -> None:
        self.assertEqual(self.browser.run("return document.querySelectorAll('.gaps > rect').length"), 1)
        self.assertIn('of 2 vCPUs busy', self.text('#details'))
        rows = self.browser.run("return Array.from(document.querySelectorAll('#bands tbody tr'), (row) => row.textContent)")
        self.assertTrue(rows[0].startswith('function_0'))
        self.assertEqual(len(rows), len(self.browser.run("return Array.from(document.querySelectorAll('path.band'))")))

    def test_a_stretch_that_is_chosen_gives_the_commands_that_show_it(self) -> None:
        self.choose('ArrowRight', 'ArrowRight')
        for command in self.commands():
            words = shlex.split(command)
            self.assertEqual(words[0], 'uniprof')
            self.assertEqual(words[-1], "it's")
            self.assertIn(f'--from {iso(START + HOUR)} --to {iso(START + 2 * HOUR)}', command)
        report = [words for words in map(shlex.split, self.commands()) if words[1] == 'report'][0]
        shown = subprocess.run([BUILD / 'uniprof', *report[1:]], stdout=subprocess.PIPE, check=True).stdout.decode()
        share = self.text('#bands tbody td:last-child')
        self.assertIn(share, shown)

    def test_it_can_be_zoomed_and_bands_be_hidden(self) -> None:
        self.choose('ArrowRight', 'Enter')
        self.assertEqual(self.browser.run("return document.querySelectorAll('.gaps > rect').length"), 0)
        bands = self.browser.run("return document.querySelectorAll('path.band').length")
        self.browser.run("document.querySelector('#bands button').click()")
        self.assertEqual(self.browser.run("return document.querySelectorAll('path.band').length"), bands - 1)
        self.browser.press('Escape')
        self.assertEqual(self.browser.run("return document.querySelectorAll('.gaps > rect').length"), 1)

    def test_a_drag_chooses_columns(self) -> None:
        box = self.browser.run("const box = document.querySelector('#load svg').getBoundingClientRect(); return [box.x, box.y, box.width]")
        self.browser.run("""const svg = document.querySelector('#load svg');
            svg.setPointerCapture = () => {};
            for (const [type, x] of [['pointerdown', .6], ['pointermove', .4], ['pointerup', .4]])
                svg.dispatchEvent(new PointerEvent(type, {clientX: arguments[0] + arguments[2] * x, clientY: arguments[1] + 50, bubbles: true, pointerId: 1}));""", *box)
        self.assertIn(f'--from {iso(START + HOUR)} --to {iso(START + 3 * HOUR)}', self.commands()[0])

    def test_it_fits_a_telephone_and_a_desk(self) -> None:
        for width, height in ((390, 844), (1400, 900)):
            self.browser.devtools('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
            self.browser.open(self.page.as_uri())
            self.assertEqual(self.browser.run('return [innerWidth, document.documentElement.scrollWidth]'), [width, width])
        self.browser.devtools('Emulation.clearDeviceMetricsOverride')


if __name__ == '__main__':
    webdriver.main()
