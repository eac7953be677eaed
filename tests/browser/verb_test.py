#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof flamegraph`: from a recording to a picture that a real browser shows."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import webdriver
from picture import BUILD, Picture, perf_script, record, run, uniprof

# 1,000 samples; 100 of them end in an address that has no name.
STACKS = '''\
main;function_1;console_write 100
main;function_2;console_write 250
main;function_2 50
main;function_3;console_write 500
main;0xdeadbeef 100
'''


@unittest.skipIf(webdriver.missing(), webdriver.missing())
class FlameGraphOfARecording(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.browser = cls.enterClassContext(webdriver.Browser())
        cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix='uniprof-recordings-')))
        cls.recording = cls.directory / 'web.uniprof'
        record(STACKS, cls.recording)

    def open(self, *options: str) -> Picture:
        path = self.directory / f'{self._testMethodName}.svg'
        uniprof('flamegraph', *options, '-o', path, self.recording)
        return Picture(self.browser, path)

    def shares(self, picture: Picture) -> dict[str, float]:
        frames = picture.frames()
        shares = {}
        for frame in frames:
            shares[frame['name']] = shares.get(frame['name'], 0) + frame['width'] / frames[0]['width']
        return {name: round(share, 2) for name, share in shares.items()}

    def test_widths_are_what_was_recorded(self) -> None:
        self.assertEqual(self.shares(self.open()), {
            'all': 1, 'main': 1, 'function_1': .1, 'function_2': .3, 'function_3': .5, 'console_write': .85,
            '0xdeadbeef': .1})

    def test_an_icicle_hangs_down(self) -> None:
        picture = self.open('--icicle')
        self.assertLess(picture.frame('main')['y'], picture.frame('function_1')['y'])
        self.assertEqual(self.shares(picture), self.shares(self.open()))

    def test_reverse_merges_from_the_leaf(self) -> None:
        picture = self.open('--reverse')
        self.assertEqual(self.shares(picture), {
            'all': 1, 'console_write': .85, 'function_1': .1, 'function_2': .3, 'function_3': .5, 'main': 1,
            '0xdeadbeef': .1})
        self.assertEqual([name for name in picture.names() if name == 'console_write'], ['console_write'])
        self.assertIn('leaf first', picture.text('.path'))

    def test_title_and_width_are_taken(self) -> None:
        picture = self.open('--title=A <title>', '--width=800')
        self.assertEqual(self.browser.run('return document.title'), 'A <title>')
        self.assertAlmostEqual(picture.frame('all')['width'], 780, delta=1)

    def test_a_search_counts_samples_of_the_recording(self) -> None:
        picture = self.open()
        picture.search('^console_')
        self.assertEqual(picture.text('.found'), 'Matched 85.00 % (850 samples in 3 frames)')

    def test_states_without_samples_make_a_picture_that_says_so(self) -> None:
        picture = self.open('--state=blocked')
        self.assertEqual(picture.names(), ['all'])
        self.assertIn('0 samples', picture.text('.path'))

    def test_a_heat_map_has_the_samples_of_the_report_and_says_them_on_hover(self) -> None:
        self.open('--heat', '--title=When <b>')
        cells = self.browser.run("""const cells = document.querySelectorAll('.cells rect[data-samples]');
            return Array.from(cells, (cell) => [Number(cell.dataset.samples), cell.querySelector('title').textContent, cell.getBoundingClientRect().right])""")
        said = json.loads(uniprof('report', '--heat', '--json', self.recording))['heat']['cells']
        hundreds = {}
        for cell in said:  # rows of 50 ms there, of 20 ms here
            place = 10 * cell['column'] + cell['row'] // 2
            hundreds[place] = hundreds.get(place, 0) + cell['samples']
        seen = {}
        for samples, title, right in cells:
            self.assertLessEqual(right, 1200)
            self.assertIn(f': {samples} sample', title)
            place = int(float(title.split(' s')[0]) * 1000) // 100
            seen[place] = seen.get(place, 0) + samples
        self.assertEqual(seen, hundreds)
        self.assertEqual(self.browser.run('return document.title'), 'When <b>')

    def test_a_heat_map_refuses_what_it_cannot_draw(self) -> None:
        folded = self.directory / 'timeless.folded'
        folded.write_text('main;work 10\n')
        for arguments, says in (([folded], 'no times'), (['--icicle', self.recording], 'time and not stacks'), (['--html', self.recording], 'a page has')):
            done = subprocess.run([BUILD / 'uniprof', 'flamegraph', '--heat', *arguments], capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)

    def test_a_stack_chart_has_time_across_and_says_it_on_hover(self) -> None:
        picture = self.open('--chart', '--title=When <b>')
        frames = {frame['name']: frame for frame in picture.frames()}
        self.assertEqual(frames['function_1']['title'], 'function_1 (0.000 s to 0.100 s: 0.100 s)')
        self.assertAlmostEqual(frames['function_1']['width'] / frames['main']['width'], .1, delta=.01)
        self.assertGreater(frames['function_3']['x'], frames['function_2']['x'])
        self.assertGreater(frames['function_3']['y'], frames['main']['y'])
        self.assertEqual([name for name in picture.names() if name == 'main'], ['main'])
        for frame in picture.frames():
            self.assertLessEqual(frame['textWidth'], frame['width'], frame['name'])
        self.assertEqual(self.browser.run('return document.title'), 'When <b>')
        picture = self.open('--chart', '--from=0.35', '--to=0.5')
        self.assertEqual(set(picture.names()), {'main', 'function_2', 'function_3', 'console_write'})

    def test_a_stack_chart_has_a_lane_for_each_thread(self) -> None:
        recording = self.directory / 'threads.uniprof'
        run(BUILD / 'tests' / 'exports' / 'export_example_guest', 'threads', recording)
        for by, lane in ('thread', '>nginx/pool (1)\\ufffd[2J (13)<'), ('process', '>nginx (12)<'):
            svg = uniprof('flamegraph', '--chart', '--by', by, '--state=all', recording).decode()
            self.assertIn(lane.replace('\\ufffd', '\ufffd'), svg)
            self.assertNotIn('>vCPU', svg)

    def test_colours_tell_images_kinds_and_packages_apart(self) -> None:
        path, recording = self.directory / 'colours.svg', perf_script(self.directory / 'kinds.perf')
        for by, alike, apart, legend in (
                ('kind', ('main', 'work', 'memcpy'), ('main', 'tcp_sendmsg', 'xen_hypercall_sched_op', 'do_idle'), ['kernel', 'user', 'calls of the hypervisor', 'idle']),
                ('image', ('tcp_sendmsg', 'do_idle'), ('main', 'memcpy', 'do_idle'), ['web', 'libc.so.6', '[kernel.kallsyms]', 'image not known']),
                ('package', ('do_idle',), ('main', 'tcp_sendmsg', 'do_idle'), [])):
            for chart in [], ['--chart']:
                uniprof('flamegraph', *chart, '--color', by, '-o', path, recording)
                picture = Picture(self.browser, path)
                fill = {frame['name']: frame['fill'] for frame in picture.frames()}
                self.assertEqual(len({fill[name] for name in alike}), 1, (by, fill))
                self.assertEqual(len({fill[name] for name in apart}), len(apart), (by, fill))
                self.assertEqual(self.browser.run('return Array.from(document.querySelectorAll(".legend text"), (text) => text.textContent)'), legend)
        done = subprocess.run([BUILD / 'uniprof', 'flamegraph', '--color=blue', recording], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn('function, package, image or kind', done.stderr)

    def test_a_stack_chart_refuses_what_it_cannot_draw(self) -> None:
        folded = self.directory / 'timeless.folded'
        folded.write_text('main;work 10\n')
        for arguments, says in (([folded], 'no times'), (['--icicle', self.recording], 'mean nothing'), (['--html', self.recording], 'a page has'),
                                (['--state=off-cpu', self.recording], '--by thread'), (['-'], 'write it to a file')):
            done = subprocess.run([BUILD / 'uniprof', 'flamegraph', '--chart', *arguments], capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)

    def test_a_picture_of_differences_shows_what_changed_and_what_may_be_chance(self) -> None:
        after = self.directory / 'after.uniprof'
        record('''\
main;function_1;console_write 400
main;function_2;console_write 1000
main;function_3;console_write 400
main;new 200
''', after)
        path = self.directory / 'differences.svg'
        uniprof('diff', '-o', path, self.recording, after)
        picture = Picture(self.browser, path)
        titles = {frame['name']: frame['title'] for frame in picture.frames()}
        self.assertEqual(titles['function_3'], 'function_3 (50.00 % before, 20.00 % after: −30.00)')
        self.assertEqual(titles['new'], 'new (0.00 % before, 10.00 % after: +10.00)')
        self.assertEqual(titles['main'], 'main (100.00 % before, 100.00 % after: ±0.00, may be chance)')
        self.assertAlmostEqual(picture.frame('function_3')['width'] / picture.frame('all')['width'], .35, delta=.01)
        colors = {name: [int(part) for part in picture.frame(name)['fill'].removeprefix('rgb(').rstrip(')').split(',')]
                  for name in titles}
        self.assertGreater(colors['new'][0], colors['new'][2] + 50, 'red')
        self.assertGreater(colors['function_3'][2], colors['function_3'][0] + 50, 'blue')
        self.assertLess(max(colors['main']) - min(colors['main']), 10, 'grey')
        picture.search('^new$')
        self.assertEqual(picture.text('.found'), 'Matched 0.00 % before, 10.00 % after (200 samples in 1 frame)')


if __name__ == '__main__':
    webdriver.main()
