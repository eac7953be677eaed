// SPDX-License-Identifier: BSD-3-Clause
//
// Buttons, keys, theme, the dialog with a function's code, and the state in the address.

const KEYS = [
	[['?'], 'This list'],
	[['f'], 'Flame graph: each box stands on its caller'],
	[['l'], 'Leaf first: what was at work is at the bottom, its callers are on it'],
	[['s'], 'Sandwich: callers and callees of the function of the box in focus, or under the mouse (double click does the same)'],
	[['h'], 'Heat map: seconds across, the offset in a second down; drag to select a stretch, or ← → ↑ ↓ with Shift; Enter: its flame graph'],
	[['x'], 'Stack chart: time across, depth down, a lane for each vCPU; a click or Enter selects the time of a box, drag selects a stretch'],
	[['i'], 'Icicle: the root at the top'],
	[['r'], 'Recursion: calls of a function by itself are one box'],
	[['p'], 'Colours by function, by package (or module, or prefix of the name), by image, by kind'],
	[['a'], 'Annotate: instructions and source lines of the function of the box in focus, or under the mouse'],
	[['c'], 'Copy the stack of the box in focus, or under the mouse'],
	[['/', 'Ctrl-F'], 'Search names by regular expression; Enter goes to a match'],
	[['n', 'N'], 'Next and previous match'],
	[['↑', '↓', '←', '→'], 'From box to box'],
	[['Enter', 'Space'], 'Zoom to the box in focus (a click does the same)'],
	[['Backspace'], 'Zoom out to the next wider box; in time line, heat map and chart: select all of the time'],
	[['Home'], 'To the box that is zoomed to'],
	[['t'], 'To the time line: ← and → select a stretch and move it, with Shift they change its end'],
	[['1', '2', '3'], 'Show or hide samples that were running, runnable, blocked'],
	[['w'], 'Of two recordings: widths of both, before, after'],
	[['d'], 'Dark or light'],
	[['Esc'], 'Everything as at first'],
];

const COLORS = ['function', 'package', 'image', 'kind'];
const MOST_PRINTED = 200; // levels

function toggleTheme(page, theme) {
	document.documentElement.dataset.theme = theme;
	get('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
	page?.readTheme();
	for (const flame of page?.pictures() ?? [])
		flame.redraw();
	for (const times of page ? [...page.times, ...page.heats] : [])
		times.draw();
}

// As the system has it, until a person chooses.
function followSystem(page) {
	const dark = matchMedia('(prefers-color-scheme: dark)');
	const follow = () => page.ownTheme || toggleTheme(page, dark.matches ? 'dark' : 'light');
	dark.addEventListener('change', follow);
	follow();
}

function showTexts(page) {
	const {profile} = page, two = profile.sides.length === 2;
	const warnings = profile.sides.flatMap((side) => side.warning ? [two ? `${side.label}: ${side.warning}` : side.warning] : []);
	get('title').textContent = profile.title;
	get('subtitle').textContent = profile.sides.map((side) => side.subtitle ?? '').join(' → ');
	get('warning').textContent = warnings.join('; ');
	get('warning').hidden = !warnings.length;
	get('widths-label').hidden = get('legend').hidden = !two;
	const seen = profile.sides.reduce((all, side) => side.groups.state.reduce((bits, state) => bits | 1 << state, all), 0);
	get('states').replaceChildren(...STATES.flatMap((name, state) => {
		const box = make('input', {type: 'checkbox', value: state, disabled: !(seen >> state & 1)}), patch = make('i');
		patch.dataset.state = state;
		box.addEventListener('change', () => toggleState(page, state));
		return [make('label', {}, box, patch, name)];
	}));
	get('states').hidden = profile.sides[0].exits;
	get('keys').replaceChildren(...KEYS.map(([keys, what]) => make('tr', {},
		make('td', {}, ...keys.flatMap((key) => [make('kbd', {textContent: key}), ' '])), make('td', {textContent: what}))));
}

function toggleState(page, state) {
	page.states ^= 1 << state;
	page.update();
}

function nextWidths(page, widths) {
	const all = ['both', 'before', 'after'];
	page.widths = widths ?? all[(all.indexOf(page.widths) + 1) % 3];
	page.update();
}

function sandwichOfFocus(page) {
	const flame = page.current(), node = flame.hovered > 0 ? flame.hovered : flame.focused;
	if ((node > 0 && page.view !== 'sandwich' || flame.hovered > 0) && flame.view.name[node] < page.profile.rest)
		page.chosen = flame.view.name[node];
	page.update('sandwich');
}

function wire(page) {
	const field = get('search'), openField = () => { field.focus(); field.select(); };
	const theme = () => {
		page.ownTheme = true;
		toggleTheme(page, document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
	};
	const keys = {
		'?': () => get('help').showModal(), f: () => page.setView('flame'), l: () => page.setView('leaf'), s: () => sandwichOfFocus(page),
		h: () => { page.setView('heat'); page.heats[0].canvas.focus(); },
		x: () => { page.setView('chart'); page.current().canvas.focus(); },
		i: () => page.setIcicle(!page.icicle), r: () => page.setCollapsed(!page.collapsed),
		p: () => page.setColors(COLORS[(COLORS.indexOf(page.colorBy) + 1) % COLORS.length]), c: () => page.copyStack(), a: () => annotateFocus(page), '/': openField, 'Ctrl-f': openField, n: () => page.nextHit(1), N: () => page.nextHit(-1),
		t: () => page.times[0].canvas.focus(), d: theme, Escape: () => page.reset(),
		1: () => toggleState(page, 0), 2: () => toggleState(page, 1), 3: () => toggleState(page, 2),
		w: () => page.profile.sides.length === 2 && nextWidths(page),
	};
	const fieldKeys = {Enter: () => page.nextHit(1), Escape: () => { page.setSearch(''); page.current().canvas.focus(); }};
	document.addEventListener('keydown', (event) => {
		const key = event.altKey ? '' : (event.ctrlKey || event.metaKey ? 'Ctrl-' : '') + event.key;
		const action = event.target === field ? fieldKeys[key] : event.target.tagName !== 'SELECT' && keys[key];
		if (!action || document.querySelector('dialog[open]'))
			return;
		event.preventDefault();
		action();
	});
	for (const view of VIEWS)
		get(`view-${view}`).addEventListener('click', () => view === 'sandwich' ? sandwichOfFocus(page) : page.setView(view));
	get('icicle').addEventListener('click', () => page.setIcicle(!page.icicle));
	get('collapse').addEventListener('click', keys.r);
	get('colors').addEventListener('change', (event) => page.setColors(event.target.value));
	get('copy').addEventListener('click', keys.c);
	get('annotate-button').addEventListener('click', keys.a);
	wirePrinting(page);
	get('theme').addEventListener('click', theme);
	get('help-button').addEventListener('click', keys['?']);
	get('reset').addEventListener('click', () => page.reset());
	get('case').addEventListener('click', () => page.setSearch(page.pattern, !page.anyCase));
	get('widths').addEventListener('change', (event) => nextWidths(page, event.target.value));
	field.addEventListener('input', () => page.setSearch(field.value));
	followSystem(page);
}

// Paper is light, and has no window to scroll: pictures are printed whole.
function wirePrinting(page) {
	let theme;
	const redraw = (height) => {
		for (const flame of page.pictures().filter((one) => one.view && one.box.clientWidth)) {
			flame.box.style.height = height(flame);
			flame.resize();
			flame.draw();
		}
	};
	window.addEventListener('beforeprint', () => {
		({theme} = document.documentElement.dataset);
		toggleTheme(page, 'light');
		redraw((flame) => `${Math.min(flame.view.levels, MOST_PRINTED) * ROW}px`);
	});
	window.addEventListener('afterprint', () => {
		toggleTheme(page, theme);
		redraw(() => '');
	});
}

// ---- The address: what another person must see, too. Nonsense in it does no harm.

function saveState(page) {
	const {filters, profile} = page, state = new URLSearchParams();
	const set = (key, value, usual) => value !== usual && state.set(key, value);
	set('s', page.pattern, '');
	set('i', page.anyCase ? '1' : '', '');
	set('v', page.view, profile.reverse ? 'leaf' : 'flame');
	set('f', page.view === 'sandwich' && page.chosen >= 0 ? page.names[page.chosen].slice(0, 1000) : '', '');
	set('states', page.states, profile.states);
	set('rec', page.collapsed ? '1' : '', '');
	set('color', page.colorBy, profile.color);
	set('down', page.icicle ? '1' : '0', profile.icicle ? '1' : '0');
	filters.forEach((filter, i) => {
		set(`t${i}`, `${filter.from}-${filter.to}`, `0-${profile.sides[i].buckets}`);
		set(`without${i}`, [...filter.without].join(','), '');
	});
	try {
		history.replaceState(null, '', state.size ? `#${state}` : location.pathname.endsWith('/') ? ' ' : location.href.split('#')[0]);
	} catch (error) {
		// Some viewers have no history to write to; the page works without.
	}
}

function readState(page, text) {
	const state = new URLSearchParams(text.slice(1)), {profile} = page;
	const view = VIEWS.find((name) => name === state.get('v')) ?? page.view;
	page.pattern = get('search').value = state.get('s') ?? '';
	page.anyCase = state.get('i') === '1';
	page.collapsed = state.get('rec') === '1';
	page.colorBy = COLORS.find((by) => by === state.get('color')) ?? profile.color;
	page.chosen = state.has('f') ? page.names.indexOf(state.get('f')) : -1;
	page.states = /^[0-7]$/.test(state.get('states') ?? '') ? Number(state.get('states')) : page.states;
	page.icicle = page.flame.icicle = state.has('down') ? state.get('down') === '1' : page.icicle;
	page.filters.forEach((filter, i) => {
		const [, from, to] = /^(\d{1,9})-(\d{1,9})$/.exec(state.get(`t${i}`) ?? '') ?? [];
		if (from !== undefined && Number(from) < Number(to))
			Object.assign(filter, {from: Number(from), to: Math.min(Number(to), profile.sides[i].buckets)});
		for (const vcpu of page.times[i].vcpus)
			if ((state.get(`without${i}`) ?? '').split(',').includes(String(vcpu)))
				filter.without.add(vcpu);
		page.times[i].labels.querySelectorAll('input').forEach((box, lane) => {
			box.checked = !filter.without.has(page.times[i].vcpus[lane]);
		});
	});
	page.update(view);
}

// ---- The code of a function: instructions below their source lines, with their samples. page_annotate.c
// has put that of the functions that take most into the page; of the others it is said why there is none.

const baseName = (path) => path.slice(path.lastIndexOf('/') + 1) || path;

const CODE_SELF = 1, CODE_MISPLACED = 2, CODE_ENDS = 3; // as page.h has them

class Annotation {
	constructor(page, code) {
		Object.assign(this, {page, code, data: null, asked: -1, box: get('annotate'), body: get('annotate-code')});
		get('annotate-close').addEventListener('click', () => this.box.close());
	}

	// Reads the code when it is first asked for, and counts its samples when others are selected.
	prepare() {
		if (!this.code)
			return;
		this.data ??= JSON.parse(this.code.text);
		this.data.parts.forEach((part, i) => { part.number = i; });
		if (this.counted === this.page.summed)
			return;
		this.counted = this.page.summed;
		this.count();
	}

	// Sums, by row and by part, of the samples that the page's filters leave.
	count() {
		const {page, code, data: {parts}} = this, [side] = page.profile.sides, [filter] = page.filters, step = code.bucket_ns / side.bucket_ns;
		const from = Math.floor(filter.from / step), to = Math.ceil(filter.to / step);
		// Of rows first, then those of parts.
		const partAt = parts.reduce((most, {first, rows}) => Math.max(most, first + rows.length + 1), 0), all = partAt + parts.length;
		this.partOf = new Uint32Array(partAt);
		for (const {first, rows, number} of parts)
			this.partOf.fill(partAt + number, first, first + rows.length + 1);
		const column = () => ({weights: new Float64Array(all), samples: new Float64Array(all)});
		Object.assign(this, {partAt, self: column(), total: column(), misplaced: new Float64Array(all), whole: 0, samples: 0,
			stretch: {from: from * step, to: Math.min(to * step, side.buckets)}});
		this.addTotals(this.addSelf({from, to, states: page.states, without: filter.without}, side.weighted));
	}

	// Samples that end in each node, whether in its code or not; those that do are its row's own.
	addSelf({from, to, states, without}, weighted) {
		const {code: {n, row, groups, rows}, self, misplaced, partOf} = this, ends = {weights: new Float64Array(n), samples: new Float64Array(n)};
		for (let g = 0; g < groups.n; g++) {
			if (groups.bucket[g] < from || groups.bucket[g] >= to || !(states >> groups.state[g] & 1) || without.has(groups.vcpu[g]))
				continue;
			for (let at = groups.first[g]; at < groups.first[g + 1]; at++) {
				const node = Math.floor(rows.node[at] / CODE_ENDS), end = rows.node[at] % CODE_ENDS, samples = rows.samples[at];
				const weight = weighted ? rows.weight[at] : samples;
				this.whole += weight;
				this.samples += samples;
				ends.weights[node] += weight;
				ends.samples[node] += samples;
				if (end < CODE_SELF)
					continue;
				for (const place of [row[node], partOf[row[node]]]) {
					self.weights[place] += weight;
					self.samples[place] += samples;
				}
				misplaced[partOf[row[node]]] += end === CODE_MISPLACED ? samples : 0;
			}
		}
		return ends;
	}

	// Counts each sample once at each row and part that its stack passes, however often it does.
	addTotals({weights, samples}) {
		const {code: {n, parent, row}, total, partOf, partAt} = this, first = new Uint32Array(n), next = new Uint32Array(n);
		for (let node = n - 1; node > 0; node--) {
			weights[parent[node]] += weights[node];
			samples[parent[node]] += samples[node];
			next[node] = first[parent[node]];
			first[parent[node]] = node;
		}
		const open = new Uint32Array(partAt + this.data.parts.length);
		for (let node = first[0]; node;) {
			for (const place of [row[node], partOf[row[node]]])
				if (!open[place]++) {
					total.weights[place] += weights[node];
					total.samples[place] += samples[node];
				}
			let go = first[node];
			for (let at = node; !go && at; at = parent[at]) {
				open[row[at]]--;
				open[partOf[row[at]]]--;
				go = next[at];
			}
			node = go;
		}
	}

	// Parts with the function's own code first, then those that it is inlined into.
	partsOf(name) {
		const parts = (this.data?.parts ?? []).toSorted((a, b) => this.self.weights[this.partAt + b.number] - this.self.weights[this.partAt + a.number]);
		return [...parts.filter((part) => part.name === name), ...parts.filter((part) => part.name !== name && part.functions.includes(name))];
	}

	open(name) {
		this.asked = name;
		this.prepare();
		const full = this.page.names[name], parts = this.partsOf(full);
		get('annotate-title').textContent = this.page.shorts[name].slice(0, 1000);
		get('annotate-title').title = full.slice(0, 1000);
		get('annotate-note').textContent = this.note(parts);
		this.body.replaceChildren(...parts.flatMap((part) => this.part(part, full)));
		if (!this.box.open)
			this.box.showModal();
		this.body.scrollTop = this.body.scrollLeft = 0;
		const hottest = this.body.querySelector('.hottest');
		if (hottest)
			this.body.scrollTop = hottest.offsetTop - this.body.clientHeight / 3;
		this.body.focus();
	}

	// Another selection came while it was open, as by the address.
	refresh() {
		if (this.box.open)
			this.open(this.asked);
	}

	note(parts) {
		if (!this.code)
			return 'A page of two recordings has no code. uniprof report --annotate shows that of each.';
		if (!parts.length) {
			const more = this.data.left_out ? ', or there was no room for its code' : '';
			return `The page has the code of functions with at least 0.5 % of the samples that it showed at first, and this one has less${more}. `
				+ 'uniprof report --annotate shows it.';
		}
		const texts = this.data.texts ? '' : ' Text of the sources is here only if the page was made with --source-dir.';
		return `Of the ${count(this.samples, this.page.counted)} selected: ${this.selection()}; all callers and threads, whatever is zoomed to. `
			+ `Self counts at the instruction that comes next, calls at the call.${texts}`;
	}

	// States, vCPUs and time of what is counted. Slices of code may be longer than those of time lines.
	selection() {
		const {page, stretch} = this, [side] = page.profile.sides, [filter] = page.filters, time = (bucket) => seconds(bucket * side.bucket_ns, side.bucket_ns);
		const states = STATES.filter((_, state) => page.states >> state & 1).join(', ') || 'no states';
		const vcpus = filter.without.size ? `, without vCPU ${[...filter.without].sort((a, b) => a - b).join(', ')}` : '';
		const wider = stretch.from !== filter.from || stretch.to !== filter.to
			? ` (more than the ${time(filter.from)} to ${time(filter.to)} selected: code is counted in slices of ${seconds(this.code.bucket_ns, side.bucket_ns)})` : '';
		const whole = stretch.from === 0 && stretch.to >= side.buckets && !wider;
		return `${states}${vcpus}, ${whole ? 'all of the time' : `${time(stretch.from)} to ${time(stretch.to)}${wider}`}`;
	}

	share(sums, place) {
		return this.whole ? sums.weights[place] / this.whole : 0;
	}

	part(part, asked) {
		const title = part.name === asked ? [] : [make('h3', {textContent: `Inlined into ${part.name.slice(0, 1000)}`})];
		const place = this.partAt + part.number, misplaced = this.misplaced[place];
		const where = make('p', {className: 'where', textContent: `${part.path ?? 'no file'}${part.path ? ', its addresses' : ', addresses of the guest'}: `
			+ `${count(this.self.samples[place], this.page.counted)}, ${percent(this.share(this.self, place), 1)}; with callees ${percent(this.share(this.total, place), 1)}`});
		const notes = [part.lacks, part.patched && 'Code is as in the file: a kernel changes some of it when it starts.',
			misplaced && `${count(misplaced, this.page.counted)} not where an instruction begins: the file may not be what ran.`]
			.filter(Boolean).map((text) => make('p', {className: 'lacks', textContent: text}));
		return [...title, where, ...notes, this.table(part, asked)];
	}

	table(part, asked) {
		const heads = ['Self', 'Total', 'Address', 'Instruction'].map((textContent) => make('th', {scope: 'col', textContent}));
		const body = make('tbody'), most = part.rows.reduce((best, _, i) => Math.max(best, this.self.weights[part.first + i]), 0);
		let line = -1, marked = false;
		part.rows.forEach((row, i) => {
			const [, , lineOf, folded] = row, self = this.self.weights[part.first + i], hottest = !marked && self > 0 && self === most;
			if (folded)
				body.append(make('tr', {className: 'gap'}, make('td', {colSpan: 4, textContent: folded > 1 ? `… ${count(folded, 'instruction')}` : '…'})));
			if (lineOf !== line)
				body.append(this.line(this.data.lines[line = lineOf], asked));
			marked ||= hottest;
			body.append(this.row(row, part.first + i, most, hottest));
		});
		return make('table', {}, make('thead', {}, make('tr', {}, ...heads)), body);
	}

	row([address, text], place, most, hottest) {
		const {self, total} = this, own = self.weights[place], share = (sums) => total.samples[place] ? percent(this.share(sums, place), 1) : '';
		const line = make('tr', {title: self.samples[place] ? count(self.samples[place], this.page.counted) : ''}, make('td', {textContent: share(self)}),
			make('td', {textContent: share(total)}), make('td', {textContent: address}), make('td', {textContent: text || '(no code)'}));
		line.className = `${hottest ? 'hottest ' : ''}${own > most / 2 && own > 0 ? 'hot' : own > most / 10 && own > 0 ? 'warm' : ''}`;
		return line;
	}

	// "util.h:7  x ^= x << 13;  (mix < main.c:32)"
	line([text, ...chain], asked) {
		const place = ([, file, number]) => file ? `${baseName(file)}:${number}` : '?';
		const [first] = chain, into = chain.slice(1).map((at, i) => `${this.short(chain[i][0])} < ${place(at)}`).join(' ');
		const cell = make('th', {colSpan: 4, scope: 'rowgroup', title: chain.map(([name, file, number]) => `${name} ${file ?? '?'}:${number}`).join('\n').slice(0, 2000)},
			make('span', {className: 'place', textContent: first?.[1] ? place(first) : 'no line is known'}),
			make('code', {textContent: text?.trimStart() ?? ''}), make('span', {className: 'chain', textContent: into ? `(${into})` : ''}));
		return make('tr', {className: chain.some(([name]) => name === asked) ? 'line' : 'line other'}, cell);
	}

	short(name) {
		this.numbers ??= new Map(this.page.names.map((full, i) => [full, i]));
		return (this.page.shorts[this.numbers.get(name)] ?? name).slice(0, 200);
	}
}

// Of the function of the box under the mouse or in focus; in the sandwich of the one in its middle.
function annotateFocus(page) {
	const flame = page.current(), node = flame.hovered > 0 ? flame.hovered : flame.focused;
	const name = node > 0 ? flame.view.name[node] : page.view === 'sandwich' ? page.chosen : -1;
	if (name < 0 || name >= page.profile.rest)
		return page.say('No function is in focus: choose a box, then annotate it');
	page.annotation.open(name);
}

// ---- All begins here.

async function start() {
	const asked = location.hash, tell = async (text) => {
		get('progress').textContent = text;
		await pause();
	};
	try {
		await tell('Unpacking the recording');
		const page = new Page(await readProfile(await unpack(get('profile')), tell));
		if (!document.body.dataset.busy)
			get('progress').textContent = '';
		if (asked.length > 1)
			readState(page, asked);
		window.addEventListener('hashchange', () => readState(page, location.hash));
		window.uniprof = page; // for whoever looks into the page with the browser's tools
		document.body.dataset.ready = 'yes';
	} catch (error) {
		get('warning').textContent = `This page cannot be shown here: ${error.message}. It needs a browser of 2023 or later.`;
		get('warning').hidden = false;
		throw error;
	}
}

start();
