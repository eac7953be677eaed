#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The code in a page: of a real program, with the shares that `report --annotate` tells."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import webdriver
from page import Page
from picture import record, uniprof

# A hot line whose text would be markup, if anybody took it for that.
PROGRAM = '''\
#include <stdint.h>
#include <stdio.h>
static inline uint64_t mix(uint64_t x)
{
	x ^= x << 13; // </script><script>window.harm=1</script><img src=x onerror="window.harm=2">
	x ^= x >> 7;
	return x ^ x << 17;
}
__attribute__((noinline)) uint64_t churn(uint64_t x)
{
	for (int i = 0; i < 1000; i++)
		x = mix(x) / 3;
	return x;
}
__attribute__((noinline)) uint64_t both(uint64_t x)
{
	uint64_t first = churn(x);
	return first ^ churn(first + 1);
}
int main(void)
{
	uint64_t x = 88172645463325252ull;
	puts("begins");
	fflush(stdout);
	for (;;)
		if ((x ^= both(x)) == 1)
			puts("one");
}
'''

ROWS = '''return [...document.querySelectorAll('#annotate-code tbody tr')].filter((row) => row.cells.length === 4)
    .map((row) => [...row.cells].map((cell) => cell.textContent))'''

# Samples of each instruction of a part: self and total.
COUNTS = '''const a = window.uniprof.annotation, part = a.data.parts.find(({name}) => name === arguments[0]);
    return Object.fromEntries(part.rows.map(([address], i) => [address, [a.self.samples[part.first + i], a.total.samples[part.first + i]]]))'''


@unittest.skipIf(webdriver.missing(), webdriver.missing())
@unittest.skipUnless(shutil.which('gcc'), 'no gcc on this machine')
class Annotated(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.browser = cls.enterClassContext(webdriver.Browser())
        cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix='uniprof-code-')))
        # Nobody, whom root becomes, reads the files.
        cls.directory.chmod(0o755)
        (cls.directory / 'hot.c').write_text(PROGRAM)
        subprocess.run(['gcc', '-O2', '-g', '-o', cls.directory / 'hot', cls.directory / 'hot.c'], check=True)
        cls.recording = cls.directory / 'hot.uniprof'
        process = subprocess.Popen([cls.directory / 'hot'], stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            uniprof('record', '-F', '200', '-T', '2', '-o', cls.recording, f'process:{process.pid}')
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def tearDown(self) -> None:
        self.assertEqual([entry['message'] for entry in self.browser.log('browser')], [], 'the console is not empty')

    def open(self, *options: str, recording: pathlib.Path | None = None) -> Page:
        path = self.directory / f'{self._testMethodName}.html'
        uniprof('flamegraph', *options, '-o', path, recording or self.recording)
        return Page(self.browser, path)

    def annotate(self, page: Page, name: str) -> list[list[str]]:
        box = page.box(name)
        self.browser.hover(box['x'] + min(box['width'] / 2, 200), box['y'] + 8)
        page.press('a')
        return self.browser.run(ROWS)

    def is_open(self) -> bool:
        return self.browser.run("return document.getElementById('annotate').open")

    def test_instructions_have_the_shares_of_the_report(self) -> None:
        page = self.open()
        rows = self.annotate(page, 'churn')
        part = json.loads(uniprof('report', '--json', '--annotate', 'churn', self.recording))['annotation'][0]
        told = {row['address'][2:]: row for row in part['instructions']}
        self.assertEqual([row[2] for row in rows], list(told))
        self.assertGreater(len(rows), 5)
        counts, shown = self.browser.run(COUNTS, 'churn'), {}
        for self_share, total, address, text in rows:
            row = told[address]
            target = f' <{row["target"]}>' if row['target'] else ''
            self.assertEqual(text, row['instruction'] + target)
            self.assertEqual(counts[address], [row['self']['samples'], row['total']['samples']])
            self.assertEqual(bool(total), counts[address][1] > 0)
            shown[address] = float(self_share[:-2] or 0)
        # Weights are those of the flame graph: the report's may be CPU time, which a recording does not have of other states.
        table = self.browser.run("""const page = uniprof, name = page.names.indexOf('churn');
            const {self, total} = sumFunctions(page.profile, page), {annotation: a} = page, part = a.data.parts.find((one) => one.name === 'churn');
            return [[a.total.weights[a.partAt + part.number], total[0][name]], [a.whole, page.wholes[0]]]""")
        for mine, theirs in table:
            self.assertEqual(mine, theirs)
        self.assertEqual(max(shown.values()), shown[self.browser.run("return document.querySelector('.hottest').cells[2].textContent")])

    def test_counts_are_those_of_what_is_selected(self) -> None:
        page = self.open()
        times = self.browser.run('const {groups, bucket_ns, buckets} = uniprof.profile.sides[0]; return [bucket_ns, buckets]')
        stretch = [round(times[1] * part) for part in (.25, .6)]
        self.browser.run('Object.assign(uniprof.filters[0], {from: arguments[0], to: arguments[1]}); uniprof.update()', *stretch)
        self.annotate(page, 'churn')
        counts = self.browser.run(COUNTS, 'churn')
        edges = [f'{bucket * times[0] / 1e9:.9f}s' for bucket in stretch]
        told = json.loads(uniprof('report', '--json', '--annotate', 'churn', '--from', edges[0], '--to', edges[1], self.recording))
        for row in told['annotation'][0]['instructions']:
            self.assertEqual(counts[row['address'][2:]], [row['self']['samples'], row['total']['samples']])
        samples = self.browser.run('return uniprof.totals[0].samples[0]')
        self.assertIn(f'Of the {samples} samples selected: running, ', page.text('#annotate-note'))
        self.assertNotIn('all of the time', page.text('#annotate-note'))
        # Another selection while the code is open, as by the address.
        self.browser.run('uniprof.states = 4; uniprof.update()')
        page.settle()
        blocked = self.browser.run('return uniprof.totals[0].samples[0]')
        self.assertIn(f'Of the {blocked} samples selected: blocked, ', page.text('#annotate-note'))

    def test_longer_slices_of_code_are_said(self) -> None:
        """Where code is counted in longer slices than the time line has, the note says which stretch is counted."""
        page = self.open()
        self.browser.run("""const {code, sides: [side]} = uniprof.profile, {groups} = code; code.bucket_ns = 4 * side.bucket_ns;
            groups.bucket.forEach((bucket, g) => { groups.bucket[g] = bucket >> 2; });
            Object.assign(uniprof.filters[0], {from: 4, to: 9}); uniprof.update()""")
        self.annotate(page, 'churn')
        self.assertIn('selected: code is counted in slices of', page.text('#annotate-note'))
        self.browser.run('Object.assign(uniprof.filters[0], {from: 4, to: 12}); uniprof.update()')
        self.assertNotIn('slices', page.text('#annotate-note'))

    def test_calls_have_the_samples_of_what_they_call(self) -> None:
        rows = self.annotate(self.open(), 'both')
        calls = [row for row in rows if row[1] and row[3].startswith('call')]
        self.assertEqual(len(calls), 2)
        for row in calls:
            self.assertIn('<churn>', row[3])

    def test_an_inlined_function_is_shown_where_it_is_inlined(self) -> None:
        page = self.open()
        self.annotate(page, 'mix')
        self.assertIn('Inlined into churn', page.text('#annotate-code'))
        self.assertEqual(page.text('#annotate-title'), 'mix')
        self.assertTrue(self.browser.run("return [...document.querySelectorAll('.line:not(.other)')].some((row) => row.textContent.includes('mix < hot.c:12'))"))

    def test_sources_are_in_it_only_if_the_maker_says_where_they_are(self) -> None:
        page = self.open()
        self.annotate(page, 'churn')
        self.assertIn('--source-dir', page.text('#annotate-note'))
        self.assertIn('hot.c:5', page.text('#annotate-code'))
        self.assertNotIn('x << 13', page.text('#annotate-code'))
        page = self.open('--source-dir', str(self.directory))
        self.annotate(page, 'churn')
        self.assertIn('x ^= x << 13; // </script><script>window.harm=1</script>', page.text('#annotate-code'))
        self.assertIsNone(self.browser.run('return window.harm ?? null'))
        self.assertEqual(self.browser.run("return document.querySelectorAll('#annotate-code img, #annotate-code script').length"), 0)

    def test_the_keyboard_is_enough(self) -> None:
        page = self.open()
        page.browser.run("document.querySelector('#flame canvas').focus()")
        for _ in range(40):
            page.press('ArrowUp')
            if 'churn' in page.text('#details'):
                break
        page.press('a')
        self.assertTrue(self.is_open())
        self.assertEqual(self.browser.run('return document.activeElement.id'), 'annotate-code')
        # Keys of the page below do nothing now.
        page.press('l')
        self.assertEqual(self.browser.run('return window.uniprof.view'), 'flame')
        page.press('Escape')
        self.assertFalse(self.is_open())
        self.assertEqual(self.browser.run('return window.uniprof.view'), 'flame')
        page.click_on('#annotate-button')
        self.assertTrue(self.is_open())
        page.click_on('#annotate-close')
        self.assertFalse(self.is_open())

    def test_what_has_no_code_says_why(self) -> None:
        folded = self.directory / 'folded.uniprof'
        record('main;work 9980\nmain;rare 20\n', folded)
        page = self.open('--html', recording=folded)
        page.press('Home', 'a')
        self.assertIn('No function is in focus', page.text('#progress'))
        rows = self.annotate(page, 'work')
        self.assertTrue(all(row[3] == '(no code)' for row in rows))
        self.assertIn('names no file for this code', page.text('#annotate-code'))
        page.press('Escape')
        page.search('rare')
        self.browser.run("window.uniprof.annotation.open(window.uniprof.names.indexOf('rare'))")
        self.assertIn('this one has less', page.text('#annotate-note'))
        both = self.directory / 'both.html'
        uniprof('diff', '-o', both, self.recording, self.recording)
        page = Page(self.browser, both)
        self.browser.run("window.uniprof.annotation.open(window.uniprof.names.indexOf('churn'))")
        self.assertIn('two recordings', page.text('#annotate-note'))

    def test_it_fits_a_telephone_dark_and_light(self) -> None:
        self.browser.devtools('Emulation.setDeviceMetricsOverride', width=390, height=844, deviceScaleFactor=2, mobile=True)
        self.addCleanup(self.browser.devtools, 'Emulation.clearDeviceMetricsOverride')
        page = self.open('--source-dir', str(self.directory))
        for theme in 'light', 'dark':
            self.annotate(page, 'churn')
            box = self.browser.run("""const b = document.getElementById('annotate').getBoundingClientRect(), c = document.getElementById('annotate-code');
                const close = document.getElementById('annotate-close').getBoundingClientRect();
                return [b.left >= 0 && b.right <= 390 && b.top >= 0 && b.bottom <= 844, close.right <= 390 && close.height >= 30,
                    document.documentElement.scrollWidth, c.clientHeight > 300]""")
            self.assertEqual(box, [True, True, 390, True])
            text, ground = self.browser.run("""const s = getComputedStyle(document.querySelector('.hot td:last-child'));
                return [s.color, s.backgroundColor].map((color) => color.match(/[0-9]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))""")
            self.assertGreater(abs(text - ground), 250)
            self.assertTrue(self.browser.run("""const cells = document.querySelector('.hot').cells, b = document.getElementById('annotate-code').getBoundingClientRect();
                return cells[3].getBoundingClientRect().left < b.right - 60"""), 'the instruction can be seen without scrolling')
            shots = os.environ.get('UNIPROF_SHOTS')
            if shots:
                self.browser.screenshot(pathlib.Path(shots) / f'annotate-390-{theme}.png')
            page.press('Escape')
            page.press('d')

    def test_long_code_is_bounded(self) -> None:
        """A function of 40,000 instructions: what was sampled is there, the rest is counted."""
        source = self.directory / 'long.c'
        lines = '\n'.join(f'\tx += x * {7 * i + 1} >> {i % 13 + 1};' for i in range(12000))
        source.write_text(f'#include <stdio.h>\n__attribute__((noinline)) unsigned long grind(unsigned long x)\n{{\n{lines}\n\treturn x;\n}}\n'
                          'int main(void)\n{\n\tunsigned long x = 3;\n\tputs("begins");\n\tfflush(stdout);\n\tfor (;;)\n\t\tif ((x = grind(x)) == 1)\n\t\t\tputs("one");\n}\n')
        subprocess.run(['gcc', '-O1', '-g', '-o', self.directory / 'long', source], check=True)
        recording = self.directory / 'long.uniprof'
        process = subprocess.Popen([self.directory / 'long'], stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            uniprof('record', '-F', '100', '-T', '1', '-o', recording, f'process:{process.pid}')
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        page = self.open(recording=recording)
        rows = self.annotate(page, 'grind')
        told = json.loads(uniprof('report', '--json', '--annotate', 'grind', recording))['annotation'][0]
        sampled = {row['address'][2:] for row in told['instructions'] if row['total']['samples']}
        self.assertGreater(len(told['instructions']), 20000)
        self.assertEqual({row[2] for row in rows if row[1]}, sampled)
        self.assertLess(len(rows), 16384)
        self.assertRegex(page.text('#annotate-code'), r'… [\d,]+ instructions')
        self.assertLess((self.directory / f'{self._testMethodName}.html').stat().st_size, 1 << 20)


if __name__ == '__main__':
    webdriver.main()
