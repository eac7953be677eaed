# SPDX-License-Identifier: BSD-3-Clause
"""A page that is open in a real browser, for the tests of it: what it shows, and how a person works with it."""

import pathlib
import tempfile
import unittest

import webdriver
from picture import record, uniprof

# 1,000 samples that run: first 600 of vCPU 0, then 400 of vCPU 1; then 200 that wait and 300 that are idle.
STACKS = '''\
main;work;work;add 200
main;work;multiply 300
main;0x1234 100
@1 0
main;idle;add 250
boot;init 150
@0 1
main;work;add 200
@1 2
main;wait 300
'''


class Page:
    """A page that is open in the browser. What a canvas shows is asked of the page's own objects."""

    def __init__(self, browser: webdriver.Browser, path: pathlib.Path, fragment: str = '') -> None:
        self.browser = browser
        browser.requests()
        browser.open(path.as_uri() + fragment)
        browser.run('''return new Promise((done, fail) => { const look = () => document.body.dataset.ready ? done()
            : document.getElementById('warning').hidden ? setTimeout(look, 10) : fail(Error('not ready')); look(); })''')
        self.settle()

    def settle(self) -> None:
        self.browser.run('''return new Promise((done) => { const look = () => document.body.dataset.busy ? setTimeout(look, 10)
            : requestAnimationFrame(() => requestAnimationFrame(() => document.body.dataset.busy ? look() : done())); look(); })''')

    def boxes(self, flame: str = 'flame') -> list[dict]:
        """The boxes that can be seen, in preorder, with places in the window."""
        self.settle()
        return self.browser.run('''
            const flame = window.uniprof[arguments[0]], {view} = flame, around = flame.canvas.getBoundingClientRect();
            return Array.from({length: view.n}, (_, node) => node).filter((node) => flame.isShown(node) && view.value[node] > 0)
                .map((node) => ({node, name: flame.page.names[view.name[node]], level: view.level[node],
                    x: around.x + flame.left(node), y: around.y + flame.top(view.level[node]),
                    width: flame.size(node), height: 17, color: flame.page.color(view, node), text: flame.page.text(view, node),
                    share: view.value[node] / view.value[0], hit: Boolean(flame.page.hits?.[view.name[node]])}))''', flame)

    def shares(self, flame: str = 'flame') -> dict[str, float]:
        """Paths from the root, and how wide they are."""
        path, shares = [], {}
        for box in self.boxes(flame):
            path[box['level']:] = [box['name']]
            shares[';'.join(path[1:]) or box['name']] = round(box['share'], 3)
        return shares

    def box(self, name: str, nth: int = 0, flame: str = 'flame') -> dict:
        return [box for box in self.boxes(flame) if box['name'] == name][nth]

    def click(self, name: str, nth: int = 0, flame: str = 'flame') -> None:
        box = self.box(name, nth, flame)
        self.browser.click(box['x'] + min(box['width'] / 2, 200), box['y'] + 8)
        self.settle()

    def click_on(self, selector: str, nth: int = 0) -> None:
        self.browser.run('document.querySelectorAll(arguments[0])[arguments[1]].click()', selector, nth)
        self.settle()

    def press(self, *keys: str) -> None:
        self.browser.press(*keys)
        self.settle()

    def search(self, pattern: str) -> None:
        self.press('/')
        self.browser.type(pattern)
        self.settle()

    def text(self, selector: str) -> str:
        return self.browser.run('return document.querySelector(arguments[0]).textContent', selector)

    def drag(self, x0: float, x1: float, nth: int = 0) -> None:
        """Drags the mouse in a time line, from one part of its width to another."""
        box = self.browser.run('''const b = document.querySelectorAll('.times canvas')[arguments[0]].getBoundingClientRect();
            return {x: b.x, y: b.y, width: b.width, height: b.height}''', nth)
        move = [{'type': 'pointerMove', 'duration': 0, 'x': int(box['x'] + x * box['width']), 'y': int(box['y'] + 5)} for x in (x0, x1)]
        self.browser.ask('POST', '/actions', {'actions': [{'type': 'pointer', 'id': 'mouse', 'parameters': {'pointerType': 'mouse'},
            'actions': [move[0], {'type': 'pointerDown', 'button': 0}, move[1], {'type': 'pointerUp', 'button': 0}]}]})
        self.settle()

    def heat(self, nth: int = 0) -> dict:
        """The heat map: its samples column by column, and what it selects."""
        self.settle()
        return self.browser.run("""const heat = uniprof.heats[arguments[0]];
            return {rows: heat.rows, columns: heat.columns, samples: [...heat.samples ?? []], legend: heat.legend.textContent}""", nth)

    def chart(self, nth: int = 0) -> list[tuple]:
        """The stack chart: (lane, level in it, name, begin and end in ms) of each box, lanes and stacks one after the other."""
        self.settle()
        boxes = self.browser.run("""const chart = uniprof.charts[arguments[0]], {view} = chart, ns = (column) =>
                (view.from + column * (view.to - view.from) / view.columns) * chart.side.bucket_ns;
            return view.boxes.slice(1).map(({lane, from, to}, i) => [view.lanes[lane].label, view.level[i + 1] - view.lanes[lane].row - 1,
                uniprof.names[view.name[i + 1]], ns(from) / 1e6, ns(to) / 1e6])""", nth)
        return [(lane, level, name, round(begin, -1), round(end, -1)) for lane, level, name, begin, end in boxes]

    def drag_cells(self, first: tuple[int, int], last: tuple[int, int], kind: str = 'mouse') -> None:
        """Drags mouse or finger in the heat map, from one cell (column, row) to another."""
        places = self.browser.run("""const heat = uniprof.heats[0], box = heat.canvas.getBoundingClientRect();
            return arguments[0].map(([column, row]) => [box.x + HEAT_AXIS + (column + 0.5) * heat.cellWidth, box.y + (row + 0.5) * heat.cellHeight])""",
            [first, last])
        move = [{'type': 'pointerMove', 'duration': 0, 'x': int(x), 'y': int(y)} for x, y in places]
        self.browser.ask('POST', '/actions', {'actions': [{'type': 'pointer', 'id': kind, 'parameters': {'pointerType': kind},
            'actions': [move[0], {'type': 'pointerDown', 'button': 0}, move[1], {'type': 'pointerUp', 'button': 0}]}]})
        self.settle()


@unittest.skipIf(webdriver.missing(), webdriver.missing())
class InBrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.browser = cls.enterClassContext(webdriver.Browser())
        cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix='uniprof-pages-')))
        cls.recording = cls.directory / 'before.uniprof'
        record(STACKS, cls.recording, vcpus=2)

    def open(self, *options: str, stacks: str = '', fragment: str = '') -> Page:
        recording, path = self.recording, self.directory / f'{self._testMethodName}.html'
        if stacks:
            recording = self.directory / f'{self._testMethodName}.uniprof'
            record(stacks, recording)
        uniprof('flamegraph', '--html', *options, '-o', path, recording)
        return Page(self.browser, path, fragment)

    def tearDown(self) -> None:
        errors = [entry['message'] for entry in self.browser.log('browser')]
        self.assertEqual(errors, [], 'the console is not empty')
