#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whatever guests, files and functions are called, what uniprof shows of them is harmless, and can be read."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
import xml.dom.minidom
from pathlib import Path

sys.path[0:0] = [str(Path(__file__).resolve().parents[1] / 'exports'), str(Path(__file__).resolve().parents[1] / 'browser')]

import webdriver  # noqa: E402
from exported import BUILD, EXAMPLE, HARMFUL, Exported, run  # noqa: E402

UNIPROF = BUILD / 'uniprof'


class Shown(Exported):
    def shown(self, *arguments):
        done = subprocess.run([UNIPROF, *arguments], cwd=self.directory, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=120, check=False)
        text, said = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, 0, said)
        for output in text, said:
            self.assertIsNone(HARMFUL.search(output))
        return text


class Recordings(Shown):
    def test_reports(self):
        for by in 'function', 'file', 'line', 'image', 'vcpu', 'state':
            text = self.shown('report', '--by', by, 'hostile.uniprof')
            if by not in ('vcpu', 'state'):
                self.assertIn('<script>alert(1)</script>', text)
        for options in ['-g'], ['--tree=up'], ['-w'], ['-f', '+5 17']:
            self.shown('report', *options, 'hostile.uniprof')

    def test_reports_for_programs(self):
        report = json.loads(self.shown('report', '--json', '--by', 'function,file,image', 'hostile.uniprof'))
        rows = {(row['function'], row['file'], row['image']) for row in report['rows']}
        for name in '<script>alert(1)</script>', 'x' * 65536, '\ufffdtxt.exe':
            self.assertIn((name, name, name), rows)

    def test_differences(self):
        self.shown('diff', 'plain.uniprof', 'hostile.uniprof')
        names = {row['name'] for row in json.loads(self.shown('diff', '--json', 'plain.uniprof', 'hostile.uniprof'))['functions']}
        self.assertIn('<script>alert(1)</script>', names)

    def test_pictures_are_xml(self):
        for verb in ('flamegraph', 'hostile.uniprof'), ('diff', 'plain.uniprof', 'hostile.uniprof'):
            self.shown(*verb, '-o', 'picture.svg')
            text = (self.directory / 'picture.svg').read_text()
            self.assertIsNone(HARMFUL.search(text))
            self.assertIn('alert(1)', text)
            xml.dom.minidom.parseString(text)

    def test_a_file_that_waits_is_not_waited_for(self):
        self.directory.chmod(0o755)
        image = self.directory / 'image'
        shutil.copy(EXAMPLE, image)
        run(image, 'plain', self.directory / 'waits.uniprof')
        image.unlink()
        os.mkfifo(image)
        image.chmod(0o666)
        self.assertIn('[image]', self.shown('report', 'waits.uniprof'))
        self.assertRegex(self.shown('report', '--addresses', 'waits.uniprof'), r'image\+0x[0-9a-f]+')
        self.shown('export', '-o', 'waits.perf', 'waits.uniprof')


@unittest.skipIf(webdriver.missing(), webdriver.missing())
class Pages(Shown):
    def test_nothing_in_a_name_runs(self):
        with webdriver.Browser() as browser:
            for verb, name in ((('flamegraph', 'hostile.uniprof'), 'page.html'), (('flamegraph', 'hostile.uniprof'), 'page.svg'),
                               (('diff', 'plain.uniprof', 'hostile.uniprof'), 'diff.svg')):
                with self.subTest(name):
                    self.shown(*verb, '-o', name)
                    browser.open((self.directory / name).as_uri())
                    # An alert would make the driver refuse.
                    self.assertEqual(browser.run('return document.querySelectorAll("img, [onerror]").length'), 0)
                    self.assertIn('alert(1)', browser.run('return document.documentElement.textContent'))


class Guests(Shown):
    """Processes, which are called what their file is called."""

    NAME = '\x1b[31m\u202e<b>;\r\n\u00e9\u00e9'

    def setUp(self):
        path = self.directory / self.NAME
        shutil.copy('/bin/sleep', path)
        self.process = subprocess.Popen([path, '600'])
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.send_signal, signal.SIGKILL)
        self.guest = f'process:{self.process.pid}'

    def test_one_look(self):
        self.assertIn('<b>', self.shown('stack', self.guest))
        self.assertIn('<b>', json.loads(self.shown('stack', '--json', self.guest))['guest']['name'])

    def test_live(self):
        self.assertIn('<b>', self.shown('top', '-b', '-n', '1', '-d', '0.2', self.guest))

    def test_recording(self):
        self.shown('record', '-T', '0.2', self.guest)
        path, = self.directory.glob('*<b>*.uniprof')
        self.assertIsNone(HARMFUL.search(path.name))
        self.assertIn('<b>', self.shown('report', path.name))


if __name__ == '__main__':
    unittest.main()
