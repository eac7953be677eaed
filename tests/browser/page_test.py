#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page (`flamegraph --html`, `diff --html`) in a real browser: each does what docs/flamegraph.md says."""

import collections
import os
import random
import re

import webdriver
from page import InBrowser, Page
from picture import BUILD, perf_script, record, run, uniprof

AFTER = '''\
main;work;work;add 900
main;work;multiply 620
main;0x1234 200
main;new 280
'''

HOSTILE = ['<script>window.harm=1</script>', '"><img src=x onerror="window.harm=2">', '</script><script>window.harm=3</script>',
           '<!--', '&lt;b&gt;&amp;', '\x1b[31mred\x07', 'bad\udcff\udcfeutf8', 'abc\u202egpj.exe', 'x' * 65536, '函数名🔥', '__proto__']

# Distinct stacks of 30 frames, a sample each; a million takes some minutes.
MANY = int(os.environ.get('UNIPROF_STACKS', '100000'))


def many_stacks(n: int) -> list[list[str]]:
    chance = random.Random(7)
    bits = chance.sample(range(1 << 30), n)
    return [[f'f{level}_{one >> level & 1}{one >> max(level - 1, 0) & 1}' for level in range(30)] for one in bits]


class OneRecording(InBrowser):
    def test_widths_are_shares_of_what_runs(self) -> None:
        self.assertEqual(self.open().shares(), {
            'all': 1, 'boot': .15, 'boot;init': .15, 'main': .85, 'main;0x1234': .1, 'main;idle': .25, 'main;idle;add': .25,
            'main;work': .5, 'main;work;multiply': .3, 'main;work;work': .2, 'main;work;work;add': .2})

    def test_threads_stand_around_their_functions(self) -> None:
        self.recording = self.directory / 'threads.uniprof'
        run(BUILD / 'tests' / 'exports' / 'export_example_guest', 'threads', self.recording)
        processes, threads = self.open('--by', 'process').shares(), self.open('--by', 'thread')
        self.assertEqual({path: share for path, share in processes.items() if path.count(';') < 2}, {
            'all': 1, 'nginx (12)': .9, 'nginx (12);example_outer': .9, '[unknown]': .1, '[unknown];example_outer': .1})
        self.assertEqual(threads.shares()['nginx (12)'], .6)
        # Its blocked samples are in the page, too.
        threads.press('3')
        self.assertEqual(threads.shares()['nginx/pool (1)\ufffd[2J (13);example_middle'], round(50 / 150, 3))

    def test_it_is_the_same_as_the_svg(self) -> None:
        svg = uniprof('flamegraph', self.recording).decode()
        for box in self.open().boxes()[1:]:
            self.assertIn(f'<title>{box["text"]}</title>', svg)
            self.assertIn(f'fill="{box["color"]}"', svg)

    def test_states_and_vcpus_can_be_chosen(self) -> None:
        page = self.open()
        page.press('2')
        self.assertIn('1,200 samples', page.text('#path'))
        self.assertEqual(page.shares()['main;work;add'], round(200 / 1200, 3))
        page.press('1', '2', '3')
        self.assertEqual(page.shares(), {'all': 1, 'main': 1, 'main;wait': 1})
        page.press('1', '3')
        page.click_on('.lane input', 0)
        self.assertEqual(page.shares()['boot'], round(150 / 400, 3))
        page.press('Escape')
        self.assertEqual(page.shares()['boot'], .15)

    def test_options_say_what_is_in_the_page_at_all(self) -> None:
        page = self.open('--state=blocked,runnable', '--icicle', '--title=A <b>')
        self.assertEqual(page.shares()['main;wait'], .6)
        self.assertEqual(self.browser.run('return document.title'), 'A <b>')
        boxes = page.boxes()
        self.assertLess(boxes[0]['y'], boxes[1]['y'])

    def test_a_click_zooms_and_the_path_leads_back(self) -> None:
        page = self.open()
        whole = page.box('all')['width']
        page.click('work')
        self.assertAlmostEqual(page.box('work')['width'], whole, delta=1)
        self.assertAlmostEqual(page.box('multiply')['width'], .6 * whole, delta=1)
        self.assertNotIn('boot', [box['name'] for box in page.boxes()])
        self.assertEqual(page.text('#path'), 'all›main›work')
        self.assertEqual(page.text('#details'), 'work (500 samples, 50.00 %)')
        page.click_on('#path button', 1)
        self.assertEqual(page.text('#path'), 'all›main')
        page.press('Escape')
        self.assertIn('boot', [box['name'] for box in page.boxes()])

    def test_keys_move_and_zoom(self) -> None:
        page = self.open()
        self.browser.run('document.querySelector("#flame canvas").focus()')
        page.press('ArrowUp', 'ArrowUp')
        self.assertEqual(page.text('#details'), 'work (500 samples, 50.00 %)')
        page.press('ArrowLeft')
        self.assertEqual(page.text('#details'), 'idle (250 samples, 25.00 %)')
        page.press('Enter')
        self.assertEqual(page.text('#path'), 'all›main›idle')
        page.press('ArrowUp')
        self.assertEqual(page.text('#details'), 'add (250 samples, 25.00 %), 100.00 % of what is shown')
        page.press('Backspace')
        self.assertEqual(page.text('#path'), 'all›main')

    def test_a_search_counts_nested_matches_once(self) -> None:
        page = self.open()
        page.search('^WORK$')
        self.assertEqual(page.text('#found'), 'Matched 0.00 % (0 samples in 0 frames)')
        page.click_on('#case')
        self.assertEqual(page.text('#found'), 'Matched 50.00 % (500 samples in 2 frames)')
        self.assertEqual([box['name'] for box in page.boxes() if box['hit']], ['work', 'work'])
        self.browser.run('document.querySelector("#search").focus()')
        page.press('Enter')
        self.assertIn('work (500', page.text('#details'))
        page.press('n')
        self.assertIn('work (200', page.text('#details'))
        page.search('wo(')
        self.assertEqual(page.text('#found'), 'Not a regular expression')

    def test_leaf_first_puts_callers_on_what_was_at_work(self) -> None:
        page = self.open()
        page.press('l')
        shares = page.shares()
        self.assertEqual(shares['add'], .45)
        self.assertEqual(shares['add;idle;main'], .25)
        self.assertEqual(shares['add;work;work;main'], .2)
        self.assertEqual(self.open('--reverse').shares(), shares)

    def test_the_sandwich_shows_callers_and_callees(self) -> None:
        page = self.open()
        page.click('work')
        page.press('s')
        self.assertEqual(page.text('#pivot'), 'work (500 samples, 50.00 %)')
        self.assertEqual(page.shares('callers'), {'work': 1, 'main': 1})
        self.assertEqual(page.shares('callees'), {'work': 1, 'multiply': .6, 'work': .4, 'work;add': .4} | {'work': .4})
        page.search('^add$')
        rows = self.browser.run('return Array.from(document.querySelectorAll("#functions tbody tr"), (row) => row.textContent)')
        self.assertEqual(rows, ['45.00 %45.00 %add'])
        page.click_on('#functions td button')
        self.assertEqual(page.shares('callers'), {'add': 1, 'idle': .556, 'idle;main': .556, 'work': .444, 'work;work': .444,
                                                  'work;work;main': .444})

    def test_an_icicle_hangs_down(self) -> None:
        page = self.open()
        up = {box['node']: box['y'] for box in page.boxes()}
        page.press('i')
        down = {box['node']: box['y'] for box in page.boxes()}
        self.assertEqual(max(up.values()), up[0])
        self.assertEqual(min(down.values()), down[0])
        page.click('multiply')
        self.assertEqual(page.text('#path'), 'all›main›work›multiply')

    def test_the_state_is_in_the_address(self) -> None:
        page = self.open()
        page.drag(0, .3)
        page.search('add')
        self.browser.press('Escape')
        page.press('2', 's')
        page.search('ad')
        fragment = self.browser.run('return location.hash')
        shares, selected = page.shares('callers'), page.text('.times .span')
        again = self.open(fragment=fragment)
        self.assertEqual(again.shares('callers'), shares)
        self.assertEqual(again.text('.times .span'), selected)
        self.assertEqual(self.browser.run('return document.querySelector("#search").value'), 'ad')
        for nonsense in ('#t0=9-2&states=9&v=x', '#t0=1e9-&f=nobody&v=sandwich', '#%ff&&==', '#s=((((', '#without0=-1,x'):
            self.open(fragment=nonsense)

    def test_the_theme_follows_the_system_until_it_is_chosen(self) -> None:
        theme = 'return document.documentElement.dataset.theme'
        page = self.open()
        for name in ('dark', 'light'):
            self.browser.devtools('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': name}])
            page.settle()
            self.assertEqual(self.browser.run(theme), name)
        page.press('d')
        self.assertEqual(self.browser.run(theme), 'dark')
        self.browser.devtools('Emulation.setEmulatedMedia', features=[])
        page.settle()
        self.assertEqual(self.browser.run(theme), 'dark')

    def test_help_lists_the_keys(self) -> None:
        page = self.open()
        page.press('?')
        self.assertTrue(self.browser.run('return document.querySelector("#help").open'))
        self.assertIn('Sandwich', page.text('#keys'))
        self.browser.devtools('Emulation.setDeviceMetricsOverride', width=390, height=600, deviceScaleFactor=1, mobile=True)
        self.addCleanup(self.browser.devtools, 'Emulation.clearDeviceMetricsOverride')
        page.press('Escape', '?')
        self.assertEqual(self.browser.run('return document.querySelector("#help").scrollTop'), 0)
        page.press('Escape')
        self.assertFalse(self.browser.run('return document.querySelector("#help").open'))

    def test_warnings_cannot_be_overlooked(self) -> None:
        page = self.open(stacks='main;0x1234 90\nmain;work 10\n')
        self.assertIn('90 % of the samples are in code without a name', page.text('#warning'))
        box = self.browser.run('const b = document.querySelector("#warning").getBoundingClientRect(); return [b.y, b.height]')
        self.assertLess(box[0], 200)
        self.assertGreater(box[1], 10)

    def test_everything_can_be_reached_and_is_named(self) -> None:
        self.open()
        elements = self.browser.run('return Array.from(document.querySelectorAll("button, input, select, canvas")).filter((e) => e.checkVisibility())')
        self.assertGreater(len(elements), 10)
        for element in elements:
            self.assertTrue(self.browser.label(element), element)

    def test_narrow_windows_need_no_sideways_scrolling(self) -> None:
        page = self.open()
        for key in 'fshx':
            page.press(key)
            for width in (500, 900, 1300):
                self.browser.resize(width, 800)
                page.settle()
                self.assertLessEqual(self.browser.run('return document.documentElement.scrollWidth - innerWidth'), 0, (key, width))

    def test_it_asks_nothing_of_any_network_and_lets_no_other_script_run(self) -> None:
        page = self.open()
        page.press('l', 's', 'f')
        urls = [url for url in self.browser.requests() if not url.startswith(('chrome:', 'about:', 'data:'))]
        self.assertEqual([url.split('#')[0] for url in urls], [self.browser.run('return location.href.split("#")[0]')])
        self.browser.run('document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=\'window.harm = 1\'>"); return 0')
        page.settle()
        self.assertIsNone(self.browser.run('return window.harm ?? null'))
        self.assertTrue(all('Content Security Policy' in entry['message'] for entry in self.browser.log('browser')))

    def test_hostile_names_are_harmless(self) -> None:
        stacks = ''.join(f'main;{name};{name} {i + 1}0\n' for i, name in enumerate(HOSTILE))
        page = self.open(stacks=stacks, fragment='#v=sandwich')
        page.press('f', 'l', 'f')
        names = {box['name'] for box in page.boxes()}
        for name in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[9], HOSTILE[10], 'x' * 65536):
            self.assertTrue(any(name in found for found in names), name[:50])
        self.assertFalse(any(set(name) & set('\x1b\x07\u202e') for name in names))
        for nth in range(len(HOSTILE)):
            page.click([box for box in page.boxes() if box['level'] == 2][nth]['name'])
            page.press('s', 'f', 'Escape')
        self.assertIsNone(self.browser.run('return window.harm ?? null'))
        self.assertEqual(self.browser.run('return document.scripts.length'), 2)
        self.assertLessEqual(self.browser.run('return document.documentElement.scrollWidth - innerWidth'), 0)

    def test_100000_stacks_stay_fluid(self) -> None:
        stacks = ''.join(f'main;{";".join(f"f{depth}_{i // 3 ** (10 - depth) % 997}" for depth in range(1, 11))};leaf_{i} 1\n'
                         for i in range(100_000))
        page = self.open(stacks=stacks)
        figures = self.browser.run('''
            const {flame} = uniprof, times = {}, boxes = [];
            const measure = (name, what) => {
                const all = Array.from({length: 15}, (_, i) => {
                    const start = performance.now();
                    what(i);
                    boxes.push(flame.drawn);
                    return performance.now() - start;
                }).sort((a, b) => a - b);
                times[name] = {least: all[0], median: all[7]};
            };
            measure('draw', () => flame.draw());
            measure('zoom', (i) => { flame.zoom(Math.floor(i * flame.view.n / 15)); flame.draw(); });
            flame.zoom(0);
            measure('hover', (i) => { flame.hover(flame.at(50 * i, flame.height / 2)); flame.draw(); });
            measure('search', (i) => { uniprof.setSearch(`leaf_${i}`); flame.draw(); });
            measure('select a stretch', (i) => { uniprof.filters[0].from = i; uniprof.update(); flame.draw(); });
            return {times, boxes: Math.max(...boxes), nodes: flame.view.n,
                room: flame.view.levels * flame.width * devicePixelRatio}''')
        for name, time in figures['times'].items():
            print(f'{name}: {time["least"]:.1f} ms at best, {time["median"]:.1f} ms median, of {figures["nodes"]} boxes')
        self.assertGreater(figures['nodes'], 100_000)
        # A box for each pixel of a row at most, and far fewer than there are.
        self.assertLess(figures['boxes'], min(figures['room'] * 1.1, figures['nodes'] / 5))

    def test_the_title_is_the_guests_name(self) -> None:
        self.assertEqual(self.open().text('#title'), 'web')
        self.assertEqual(self.browser.run('return document.title'), 'web')

    def test_recursion_can_be_one_box(self) -> None:
        page = self.open(stacks='main;walk;walk;walk;visit 60\nmain;walk;walk;stop 30\nmain;walk;main;walk 10\n')
        page.press('r')
        self.assertEqual(page.shares(), {'all': 1, 'main': 1, 'main;walk': 1, 'main;walk;visit': .6, 'main;walk;stop': .3,
                                         'main;walk;main': .1, 'main;walk;main;walk': .1})
        page.press('l')
        self.assertEqual(page.shares()['visit;walk;main'], .6)
        fragment = self.browser.run('return location.hash')
        page.press('r')
        self.assertEqual(page.shares()['visit;walk;walk;walk;main'], .6)
        self.browser.run('location.hash = arguments[0]', fragment)
        page.settle()
        self.assertEqual(page.shares()['visit;walk;main'], .6)
        page.press('Escape')
        self.assertEqual(page.shares()['visit;walk;walk;walk;main'], .6)

    def test_colours_can_be_those_of_packages(self) -> None:
        page = self.open(stacks='tcp_input;tcp_parse;std::vec::push 10\nnet/http.(*conn).serve;net/http.readRequest 10\nstd::sort;0x1234 10\n')
        usual = {box['name']: box['color'] for box in page.boxes()}
        page.press('p')
        color = {box['name']: box['color'] for box in page.boxes()}
        self.assertEqual(color['tcp_input'], color['tcp_parse'])
        self.assertEqual(color['std::vec::push'], color['std::sort'])
        self.assertEqual(color['net/http.(*conn).serve'], color['net/http.readRequest'])
        self.assertEqual(len({color[name] for name in ('tcp_input', 'std::sort', 'net/http.readRequest')}), 3)
        self.assertEqual((color['0x1234'], color['all']), (usual['0x1234'], usual['all']))

    def test_colours_can_be_those_of_images_and_kinds(self) -> None:
        self.recording = self.directory / 'images.uniprof'
        run(BUILD / 'tests' / 'exports' / 'export_example_guest', 'plain', self.recording)
        page = self.open()
        page.press('p', 'p')
        images = self.browser.run('return uniprof.profile.images')
        self.assertTrue(images)
        self.assertIn(images[0][0], page.text('#color-legend'))
        color = {box['name']: box['color'] for box in page.boxes()}
        self.assertEqual(color['example_outer'], images[0][1])
        page.press('p')
        self.assertRegex(page.text('#color-legend'), 'kernel|user|guest')
        fragment = self.browser.run('return location.hash')
        self.assertIn('color=kind', fragment)
        self.assertEqual(self.browser.run('return uniprof.colorsOf()[uniprof.names.indexOf("example_outer")]'),
                         {box['name']: box['color'] for box in self.open(fragment=fragment).boxes()}['example_outer'])
        page.press('p')
        self.assertFalse(self.browser.run('return document.querySelector("#color-legend").checkVisibility()'))

    def test_exits_are_counted_and_have_no_times(self) -> None:
        self.recording = self.directory / 'exits.uniprof'
        run(BUILD / 'tests' / 'exports' / 'export_example_guest', 'exits', self.recording)
        page = self.open('--by', 'exit')
        self.assertEqual(page.shares(), {'all': 1, 'port': 0.7, 'port;write_ports': 0.7, 'nested page fault': 0.25,
                                         'nested page fault;touch_memory': 0.25, 'interrupt': 0.05})
        self.assertIn('2000000 exits in 0.1 s', page.text('body'))
        self.assertFalse(self.browser.run('return uniprof.timed || document.querySelector("#states").checkVisibility()'))
        self.assertIn('write_ports (1,400,000 exits, 70.00 %)', [box['text'] for box in page.boxes()])
        page = self.open('--by', 'exit', '--vcpu', '1')
        self.assertEqual(page.shares()['port'], 0.444)

    def test_colours_are_those_of_the_svg(self) -> None:
        self.recording = perf_script(self.directory / 'kinds.perf')
        legends = {'function': [], 'package': [], 'image': ['web', 'libc.so.6', '[kernel.kallsyms]'],
                   'kind': ['kernel', 'user', 'calls of the hypervisor', 'idle']}
        for by, legend in legends.items():
            svg = uniprof('flamegraph', '--color', by, self.recording).decode()
            page = self.open('--color', by)
            for box in page.boxes()[1:]:
                self.assertRegex(svg, rf'<title>{re.escape(box["text"])}</title><rect [^>]*fill="{box["color"]}"')
            said = self.browser.run('return Array.from(document.querySelectorAll("#color-legend span"), (patch) => patch.textContent.trim())')
            self.assertEqual(said, legend)
            self.assertEqual(self.browser.run('return location.hash'), '')
            page.press('p', 'Escape')
            self.assertEqual(self.browser.run('return uniprof.colorBy'), by)

    def test_a_stack_can_be_copied(self) -> None:
        page = self.open()
        self.browser.devtools('Browser.grantPermissions', permissions=['clipboardReadWrite', 'clipboardSanitizedWrite'])
        page.press('c')
        self.assertIn('No box is in focus', page.text('#progress'))
        page.click('multiply')
        page.press('c')
        self.assertEqual(page.text('#progress'), 'Copied 3 frames')
        self.assertEqual(self.browser.run('return navigator.clipboard.readText()'), 'main;work;multiply')

    def test_a_print_shows_the_whole_picture_on_light_ground(self) -> None:
        deep = ';'.join(f'level_{i}' for i in range(90))
        page = self.open(stacks=f'{deep} 10\n')
        page.press('d' if self.browser.run('return document.documentElement.dataset.theme') == 'light' else '?', 'Escape')
        seen = self.browser.run("""window.dispatchEvent(new Event('beforeprint'));
            const {flame} = uniprof, seen = [flame.height, flame.view.levels * 18, flame.drawn, document.documentElement.dataset.theme];
            window.dispatchEvent(new Event('afterprint')); return [...seen, flame.height, document.documentElement.dataset.theme]""")
        self.assertEqual(seen[:4], [91 * 18, 91 * 18, 91, 'light'])
        self.assertLess(seen[4], 900)
        self.assertEqual(seen[5], 'dark')

    def test_a_telephone_has_room_for_all_of_it(self) -> None:
        page = self.open()
        self.browser.devtools('Emulation.setDeviceMetricsOverride', width=390, height=844, deviceScaleFactor=2, mobile=True)
        self.addCleanup(self.browser.devtools, 'Emulation.clearDeviceMetricsOverride')
        for key in 'flshx':
            page.press(key)
            self.assertEqual(self.browser.run('return [innerWidth, document.documentElement.scrollWidth]'), [390, 390])
            outside = self.browser.run("""return Array.from(document.querySelectorAll('button, select, input, canvas'))
                .filter((one) => one.checkVisibility() && !one.closest('#path')).filter((one) => { const b = one.getBoundingClientRect();
                return b.left < 0 || b.right > 390 || one.tagName === 'BUTTON' && b.height < 30; }).map((one) => one.id || one.textContent)""")
            self.assertEqual(outside, [], key)

    def test_an_empty_recording_says_so(self) -> None:
        page = self.open('--from=1h')
        self.assertIn('no samples', page.text('#path'))
        page.press('s', 'l', 'h', 'x', 'f', 'i', '/')


class ManyStacks(InBrowser):
    """Trees that no browser has room for are made as far as they can be seen."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.stacks, cls.recording = many_stacks(MANY), cls.directory / 'many.uniprof'
        record(''.join(f'{";".join(stack)} 1\n' for stack in cls.stacks), cls.recording)
        cls.path = cls.directory / 'many.html'
        uniprof('flamegraph', '--html', '-o', cls.path, cls.recording)

    def test_each_view_is_made_in_slices_and_is_right(self) -> None:
        page, total = Page(self.browser, self.path), len(self.stacks)
        leaves = collections.Counter(';'.join(stack[:26:-1]) for stack in self.stacks)
        self.browser.run("""window.longest = 0; let last = performance.now(); setInterval(() => {
            longest = Math.max(longest, performance.now() - last); last = performance.now(); }, 1)""")
        page.press('l')
        print(f'{total} stacks: the page answers after {self.browser.run("return window.longest"):.0f} ms at most')
        shares = page.shares()
        for path, samples in leaves.items():
            self.assertAlmostEqual(shares[path], samples / total, delta=.001)
        figures = self.browser.run("""const {view} = uniprof.flame; let wide = 0;
            for (let i = 1; i < view.n; i = view.end[i]) wide += view.value[i]; return [view.n, wide, view.value[0]]""")
        self.assertLess(figures[0], 200_000)
        self.assertEqual(figures[1:], [total * 1e6, total * 1e6])  # ns

    def test_the_page_says_what_it_leaves_out(self) -> None:
        page = Page(self.browser, self.path)
        for key in 'fls':
            page.press(key)
            self.assertRegex(page.text('#left-out'), 'Grey: [0-9,]+ boxes or more are too narrow', key)
            self.assertEqual(page.text('#progress'), '')

    def test_what_is_zoomed_to_is_made_finer(self) -> None:
        page = Page(self.browser, self.path)
        page.press('l')
        path = self.browser.run("""const {flame} = uniprof, {view} = flame;
            let node = 0; for (let i = 1; i < view.n; i++) if (!view.rest[i] && view.level[i] > view.level[node]) node = i;
            const path = []; for (let i = node; i; i = view.parent[i]) path.unshift(flame.page.names[view.name[i]]);
            flame.zoom(node); return path""")
        page.settle()
        suffix = path[::-1]
        here = [stack for stack in self.stacks if stack[-len(path):] == suffix]
        view = self.browser.run("""const {flame} = uniprof, {view} = flame, z = flame.zoomed; let deepest = 0;
            for (let i = z; i < view.end[z]; i++) deepest = Math.max(deepest, view.level[i]);
            return [view.value[z], deepest, flame.page.names[view.name[z]]]""")
        self.assertEqual(view, [len(here) * 1e6, 30, path[-1]])

    def test_a_zoom_while_pictures_are_built_is_made_finer_afterwards(self) -> None:
        page = Page(self.browser, self.path)
        page.press('l')
        self.browser.run("""uniprof.work(function* () { for (const until = performance.now() + 300; performance.now() < until;) yield 'busy'; }());
            const {flame} = uniprof, {view} = flame; let node = 1;
            while (!view.rest[node + 1] && view.level[node] < 4) node++;
            flame.zoom(node); window.wasBusy = document.body.dataset.busy""")
        page.settle()
        busy, made, wanted = self.browser.run("""const {view, zoomed} = uniprof.flame, node = view.nodes[zoomed];
            return [window.wasBusy, node.limit, uniprof.finest() * view.grown.share(node.sums)]""")
        self.assertEqual(busy, 'yes')
        self.assertLessEqual(made, wanted * 1.02)

    def test_the_heat_map_has_all_samples(self) -> None:
        page = Page(self.browser, self.path)
        page.press('h')
        self.assertEqual(sum(page.heat()['samples']), len(self.stacks))

    def test_the_stack_chart_is_bounded_and_has_all_of_the_time(self) -> None:
        page = Page(self.browser, self.path)
        page.press('x')
        boxes = page.chart()
        self.assertLessEqual(len(boxes), 1 << 17)
        self.assertAlmostEqual(sum(end - begin for _, level, _, begin, end in boxes if not level), len(self.stacks), delta=len(self.stacks) / 1000)

    def test_the_sandwich_has_its_callers_and_callees(self) -> None:
        page = Page(self.browser, self.path, '#v=sandwich&f=f15_00')
        within = [stack for stack in self.stacks if stack[15] == 'f15_00']
        callers = collections.Counter(';'.join(stack[14:11:-1]) for stack in within)
        callees = collections.Counter(';'.join(stack[16:19]) for stack in within)
        for flame, expected in (('callers', callers), ('callees', callees)):
            shares = page.shares(flame)
            for path, samples in expected.items():
                self.assertAlmostEqual(shares[path], samples / len(within), delta=.001)


class TwoRecordings(InBrowser):
    def compare(self) -> Page:
        after, path = self.directory / 'after.uniprof', self.directory / f'{self._testMethodName}.html'
        record(AFTER, after)
        uniprof('diff', '-o', path, self.recording, after)
        return Page(self.browser, path)

    def test_changes_are_red_and_blue_and_noise_is_grey(self) -> None:
        page = self.compare()
        new, boot, number = page.box('new'), page.box('boot'), page.box('0x1234')
        self.assertEqual(new['text'], 'new (0.00 % before, 14.00 % after: +14.00)')
        self.assertEqual(new['color'], 'rgb(255,92,72)')
        self.assertEqual(boot['color'], 'rgb(84,152,255)')
        self.assertEqual(number['text'], '0x1234 (10.00 % before, 10.00 % after: ±0.00, may be chance)')
        self.assertEqual(number['color'], '#dcdce0')

    def test_widths_are_of_both_or_of_one(self) -> None:
        page = self.compare()
        self.assertEqual(page.shares()['main;new'], .07)
        page.press('w')
        self.assertNotIn('main;new', page.shares())
        page.press('w')
        self.assertEqual(page.shares()['main;new'], .14)
        self.assertNotIn('boot', page.shares())

    def test_it_marks_what_the_text_marks(self) -> None:
        page = self.compare()
        page.press('s')
        marked = self.browser.run('''return Array.from(document.querySelectorAll("#functions tbody tr"))
            .filter((row) => row.textContent.includes("*")).map((row) => row.querySelector("button").textContent).sort()''')
        lines = uniprof('diff', self.recording, self.directory / 'after.uniprof').decode().splitlines()
        said = sorted(line.split('  ')[-1].split()[-1] if '(' not in line else line.rsplit('(', 1)[0].split()[-1]
                      for line in lines if ' * ' in line)
        self.assertEqual(marked, said)

    def test_each_has_a_heat_map(self) -> None:
        page = self.compare()
        page.press('h')
        self.assertEqual([sum(page.heat(nth)['samples']) for nth in (0, 1)], [1000, 2000])

    def test_each_has_a_stack_chart(self) -> None:
        page = self.compare()
        page.press('x')
        self.assertIn('boot', {name for _, _, name, *_ in page.chart(0)})
        self.assertIn('new', {name for _, _, name, *_ in page.chart(1)})

    def test_a_stretch_of_either_can_be_selected(self) -> None:
        page = self.compare()
        page.drag(0, .1, nth=1)
        self.assertNotIn('main;new', page.shares())
        self.assertIn('boot', page.shares())


if __name__ == '__main__':
    webdriver.main()
