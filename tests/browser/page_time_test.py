#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time in the page: stretches of it, the heat map and the stack chart, as docs/flamegraph.md says."""

import collections
import json
import re

import webdriver
from page import InBrowser
from picture import BUILD, run, uniprof


class Time(InBrowser):
    def test_a_stretch_of_time_can_be_selected(self) -> None:
        page = self.open()
        page.drag(0, 195 / 1500)
        self.assertEqual(page.shares(), {'all': 1, 'main': 1, 'main;work': 1, 'main;work;work': 1, 'main;work;work;add': 1})
        self.assertIn('0.00 s to 0.20 s', page.text('.times .span'))
        page.drag(.5, .5)
        self.assertEqual(page.shares()['boot'], .15)
        page.press('t', 'ArrowRight')
        self.assertNotIn('boot', page.shares())
        page.press('Backspace')
        self.assertIn('boot', page.shares())

    def test_the_heat_map_is_that_of_the_report(self) -> None:
        page = self.open()
        for keys, options in ((['h'], ['--state=running']), (['1', '3'], ['--state=blocked']), (['1', '2'], ['--state=all'])):
            page.press(*keys)
            heat, said = page.heat(), json.loads(uniprof('report', '--heat', '--json', *options, self.recording))['heat']
            # 64 rows in the page, 20 in the report: quarters of a second are whole rows of both.
            seen, expected = collections.Counter(), collections.Counter()
            for cell, samples in enumerate(heat['samples']):
                seen[cell // heat['rows'], 4 * (cell % heat['rows']) // heat['rows']] += int(samples)
            for cell in said['cells']:
                expected[cell['column'], 4 * cell['row'] // said['rows']] += cell['samples']
            # A tick at the very edge of a quarter may be in its neighbour: buckets are no whole milliseconds.
            for place in seen | expected:
                self.assertAlmostEqual(seen[place], expected[place], delta=4, msg=(options, place))
            self.assertEqual(sum(seen.values()), sum(expected.values()))

    def test_a_stretch_of_the_heat_map_is_what_all_views_show(self) -> None:
        for kind in ('mouse', 'touch'):
            page = self.open()
            page.press('h')
            page.drag_cells((0, 40), (0, 60), kind)
            self.assertIn('0.625 s to 0.953 s', page.heat()['legend'])
            page.press('f')
            self.assertEqual(set(page.shares()), {'all', 'main', 'main;idle', 'main;idle;add', 'boot', 'boot;init'})
            page.press('h')
            page.drag_cells((0, 10), (0, 10), kind)
            self.assertIn('all of the time', page.heat()['legend'])

    def test_keys_select_in_the_heat_map(self) -> None:
        page = self.open()
        page.press('h')
        self.assertIn('0.000 s to 0.016 s: 1', page.text('#details'))
        page.press('Shift+ArrowDown', 'Shift+ArrowDown')
        self.assertIn('0.000 s to 0.047 s', page.heat()['legend'])
        self.assertEqual(self.browser.role(self.browser.run('return document.activeElement')), 'application')
        page.press('Enter')
        self.assertEqual(page.shares(), {'all': 1, 'main': 1, 'main;work': 1, 'main;work;work': 1, 'main;work;work;add': 1})
        page.press('h', 'Backspace')
        self.assertIn('all of the time', page.heat()['legend'])
        page.press('Home', 'ArrowRight')
        self.assertIn('1.000 s to 1.016 s', page.text('#details'))

    def test_the_stack_chart_is_in_order_of_time(self) -> None:
        page = self.open()
        page.press('x')
        self.assertEqual(page.chart(), [
            ('vCPU 0', 0, 'main', 0, 600), ('vCPU 0', 1, 'work', 0, 500), ('vCPU 0', 2, 'work', 0, 200), ('vCPU 0', 3, 'add', 0, 200),
            ('vCPU 0', 2, 'multiply', 200, 500), ('vCPU 0', 1, '0x1234', 500, 600),
            ('vCPU 1', 0, 'main', 600, 850), ('vCPU 1', 1, 'idle', 600, 850), ('vCPU 1', 2, 'add', 600, 850),
            ('vCPU 1', 0, 'boot', 850, 1000), ('vCPU 1', 1, 'init', 850, 1000)])
        page.press('2')
        self.assertIn(('vCPU 0', 2, 'add', 1000, 1200), page.chart())
        page.click_on('.lane input', 0)
        self.assertEqual({lane for lane, *_ in page.chart()}, {'vCPU 1'})

    def test_the_stack_chart_is_that_of_the_svg(self) -> None:
        svg = uniprof('flamegraph', '--chart', self.recording).decode()
        said = re.findall(r'<g data-name="(.*?)" data-lane="(\d)" data-level="(\d)" data-from="(\d+)" data-to="(\d+)"', svg)
        page = self.open()
        page.press('x')
        self.assertEqual(sorted((f'vCPU {lane}', int(level), name, round(int(begin) / 1e6, -1), round(int(end) / 1e6, -1))
                                for name, lane, level, begin, end in said), sorted(page.chart()))

    def test_a_box_of_the_stack_chart_selects_its_time(self) -> None:
        page = self.open()
        page.press('x')
        page.press('ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowLeft')
        self.assertRegex(page.text('#details'), r'^work \(vCPU 0, 0\.000 s to 0\.(2|19)')
        page.press('ArrowRight')
        self.assertRegex(page.text('#details'), r'^multiply \(vCPU 0, 0\.(2|19)')
        page.press('Enter')
        self.assertEqual({name for _, _, name, *_ in page.chart()}, {'main', 'work', 'multiply'})
        page.press('f')
        # A slice at its edge may have a sample of its neighbour.
        self.assertGreater(page.shares()['main;work;multiply'], .99)
        page.press('x', 'Backspace')
        self.assertIn('boot', {name for _, _, name, *_ in page.chart()})
        # The mouse does the same, and drags a stretch.
        box = self.browser.run("""const chart = uniprof.charts[0], box = chart.canvas.getBoundingClientRect(),
            at = chart.view.boxes.findIndex((_, i) => i && uniprof.names[chart.view.name[i]] === 'boot');
            return [box.x + chart.left(at) + chart.size(at) / 2, box.y + chart.top(chart.view.level[at]) + 8, box.x, box.width]""")
        self.browser.click(*box[:2])
        self.assertEqual({name for _, _, name, *_ in page.chart()}, {'boot', 'init'})
        page.press('Backspace')
        page.settle()
        moves = [{'type': 'pointerMove', 'duration': 0, 'x': int(box[2] + part * box[3]), 'y': int(box[1])} for part in (.05, .1)]
        self.browser.ask('POST', '/actions', {'actions': [{'type': 'pointer', 'id': 'mouse', 'parameters': {'pointerType': 'mouse'},
            'actions': [moves[0], {'type': 'pointerDown', 'button': 0}, moves[1], {'type': 'pointerUp', 'button': 0}]}]})
        self.assertEqual({name for _, _, name, *_ in page.chart()}, {'main', 'work', 'add'})
        page.press('Escape', 'x')
        page.press('ArrowDown', 'ArrowDown', 'c')
        self.assertIn('Copied 2 frames', page.text('#progress'))

    def test_the_stack_chart_has_gaps_and_lanes_of_threads(self) -> None:
        page = self.open(stacks='main;work 300\n@0 2\nmain;wait 300\n@0 0\nmain;work 300\n')
        page.press('x')
        self.assertEqual([box[1:] for box in page.chart()], [(0, 'main', 0, 300), (1, 'work', 0, 300), (0, 'main', 600, 900), (1, 'work', 600, 900)])
        self.recording = self.directory / 'threads.uniprof'
        run(BUILD / 'tests' / 'exports' / 'export_example_guest', 'threads', self.recording)
        page = self.open('--by', 'thread')
        page.press('x')
        self.assertIn('nginx (12)', {lane for lane, *_ in page.chart()})
        self.assertEqual({name for _, level, name, *_ in page.chart() if not level}, {'example_outer'})

    def test_a_search_leaves_its_stacks_in_the_heat_map(self) -> None:
        page = self.open()
        page.press('h')
        page.search('^multiply$')
        heat = page.heat()
        self.assertEqual(sum(heat['samples']), 300)
        self.assertIn('of stacks that match', heat['legend'])

    def test_without_times_there_is_no_heat_map(self) -> None:
        self.recording = self.directory / 'timeless.folded'
        self.recording.write_text('main;work 10\n')
        page = self.open()
        self.assertFalse(self.browser.run('return document.querySelector("#view-heat").checkVisibility()'))
        self.assertFalse(self.browser.run('return document.querySelector("#view-chart").checkVisibility()'))
        page.press('h', 'x')
        self.assertEqual(page.shares(), {'all': 1, 'main': 1, 'main;work': 1})


if __name__ == '__main__':
    webdriver.main()
