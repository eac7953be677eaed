// SPDX-License-Identifier: BSD-3-Clause

// The load of a guest over days: bands stacked over time, a stretch that is chosen, and the commands that show more of it.

const get = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const DAY = 86400, HEIGHT = 300, NARROW_HEIGHT = 240, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 34;
// Colours that stay apart for people who see few, on light and on dark ground; all others and waiting are grey.
const COLORS = ['#4477aa', '#ee6677', '#228833', '#ccbb44', '#66ccee', '#aa3377', '#ee8866', '#77aadd', '#44bb99', '#bbcc33', '#9970ab', '#ffaabb',
	'#0077bb', '#cc3311', '#009988', '#ddaa33', '#33bbee', '#882255', '#ee7733', '#99ddff', '#117733', '#aaaa00', '#762a83', '#ee99aa', '#999933', '#cc6677'];

function make(tag, properties = {}, ...children) {
	const element = Object.assign(document.createElement(tag), properties);
	element.append(...children);
	return element;
}

function draw(tag, attributes, ...children) {
	const element = document.createElementNS(SVG, tag);
	for (const [name, value] of Object.entries(attributes))
		element.setAttribute(name, value);
	element.append(...children);
	return element;
}

function lengthText(s) {
	const units = [[DAY, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
	const at = units.findIndex(([unit]) => s >= unit), [unit, name] = units[at < 0 ? 3 : at];
	const more = units[(at < 0 ? 3 : at) + 1], rest = more ? Math.floor(s % unit / more[0]) : 0;
	return `${Math.floor(s / unit)} ${name}${rest ? ` ${rest} ${more[1]}` : ''}`;
}

const momentText = (s) => new Date(s * 1000).toLocaleString(undefined, {weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit',
	...(s % 60 ? {second: '2-digit'} : {})});
const utcText = (s) => new Date(s * 1000).toISOString().replace('.000', '');
const shellWord = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
const percent = (share) => `${(100 * share).toFixed(2)} %`;

class History {
	constructor(data) {
		this.data = data;
		this.n = data.recorded_ns.length;
		this.step = data.step_s;
		this.bands = data.rows.map((row, i) => ({name: row.name ?? 'all others', other: row.name === null, weights: row.weights_ns, shown: true,
			color: row.name === null ? 'var(--others)' : COLORS[i % COLORS.length]}));
		this.bands = this.bands.filter((band) => !band.other || band.weights.some((ns) => ns));
		if (data.waits && data.states_ns.runnable.some((ns) => ns))
			this.bands.push({name: 'wanted a CPU and had none', waits: true, weights: data.states_ns.runnable, shown: true, color: 'var(--waiting)'});
		this.view = [0, this.n];
		this.chosen = null; // [first, behind the last] of the buckets
	}

	start(bucket) {
		return this.data.first_s + bucket * this.step;
	}

	load(band, bucket) {
		return this.data.recorded_ns[bucket] ? band.weights[bucket] / this.data.recorded_ns[bucket] : 0;
	}

	sum(values, [from, to]) {
		let sum = 0;
		for (let i = from; i < to; i++)
			sum += values[i];
		return sum;
	}

	// The stretch that numbers and commands are about.
	stretch() {
		return this.chosen ?? this.view;
	}

	// Without what lies before and behind the time that was asked for.
	bounds([from, to]) {
		return [Math.max(this.start(from), this.data.from_s), Math.min(this.start(to), this.data.to_s)];
	}
}

// The upper edge of the chart: a round number.
function roundTop(most) {
	const power = 10 ** Math.floor(Math.log10(Math.max(most, 0.001)));
	return power * ([1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((round) => round * power >= most * 0.9999) ?? 10);
}

class Chart {
	constructor(history, parent) {
		Object.assign(this, {history, parent, dragging: null, pointed: -1});
		this.svg = draw('svg', {});
		parent.append(this.svg);
		new ResizeObserver(() => this.redraw()).observe(parent);
		this.svg.addEventListener('pointerdown', (event) => this.press(event));
		this.svg.addEventListener('pointermove', (event) => this.move(event));
		this.svg.addEventListener('pointerup', () => { this.dragging = null; });
		this.svg.addEventListener('pointercancel', () => { this.dragging = null; });
		this.svg.addEventListener('pointerleave', () => { this.pointed = -1; this.update(); });
		this.svg.addEventListener('dblclick', () => zoomIn(this.history));
	}

	x(bucket) {
		const [from, to] = this.history.view;
		return LEFT + (this.width - LEFT - RIGHT) * (bucket - from) / (to - from);
	}

	y(load) {
		return this.height - BOTTOM - (this.height - TOP - BOTTOM) * load / this.top;
	}

	bucketAt(event) {
		const [from, to] = this.history.view, box = this.svg.getBoundingClientRect();
		const at = from + (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT) * (to - from);
		return Math.min(to - 1, Math.max(from, Math.floor(at)));
	}

	press(event) {
		if (event.button)
			return;
		this.svg.setPointerCapture(event.pointerId);
		this.dragging = this.bucketAt(event);
		this.moved = false;
		// A press inside of what is chosen gives the whole up, unless it becomes a drag.
		this.again = this.history.chosen && this.dragging >= this.history.chosen[0] && this.dragging < this.history.chosen[1];
		if (!this.again)
			choose(this.history, [this.dragging, this.dragging + 1]);
		else
			this.svg.addEventListener('pointerup', () => this.moved || choose(this.history, null), {once: true});
	}

	move(event) {
		const at = this.bucketAt(event);
		this.pointed = at;
		if (this.dragging !== null && (at !== this.dragging || this.moved)) {
			this.moved = true;
			choose(this.history, [Math.min(at, this.dragging), Math.max(at, this.dragging) + 1]);
		}
		this.update();
	}

	redraw() {
		const {history} = this, [from, to] = history.view;
		this.width = Math.max(this.parent.clientWidth, 240);
		this.height = this.width < 600 ? NARROW_HEIGHT : HEIGHT;
		let most = 0;
		for (let i = from; i < to; i++)
			most = Math.max(most, history.bands.reduce((sum, band) => sum + (band.shown ? history.load(band, i) : 0), 0));
		this.top = roundTop(most);
		for (const [name, value] of Object.entries({width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}`}))
			this.svg.setAttribute(name, value);
		this.overlay = draw('g', {class: 'overlay'});
		this.svg.replaceChildren(this.gaps(), this.levels(), ...this.areas(), this.times(), this.overlay);
		this.update();
	}

	// What was not recorded is hatched: it is not the same as no load.
	gaps() {
		const {history} = this, [from, to] = history.view, group = draw('g', {class: 'gaps'});
		const pattern = draw('pattern', {id: 'gap', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
			draw('line', {x1: 0, y1: 0, x2: 0, y2: 6}));
		group.append(draw('defs', {}, pattern));
		for (let i = from; i < to; i++) {
			const first = i;
			while (i < to && !history.data.recorded_ns[i])
				i++;
			if (i > first)
				group.append(draw('rect', {x: this.x(first), y: TOP, width: this.x(i) - this.x(first), height: this.height - TOP - BOTTOM, fill: 'url(#gap)'},
					draw('title', {}, 'Nothing was recorded')));
		}
		return group;
	}

	levels() {
		const group = draw('g', {class: 'levels'}), digits = this.top < 0.05 ? 3 : this.top < 0.5 ? 2 : this.top < 20 ? 1 : 0;
		for (let i = 0; i <= 4; i++) {
			const load = this.top * i / 4, y = Math.round(this.y(load)) + 0.5;
			group.append(draw('line', {x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y}),
				draw('text', {x: LEFT - 5, y: y + 4, 'text-anchor': 'end'}, load.toFixed(this.top * 10 % 4 && this.top < 20 ? digits + 1 : digits)));
		}
		return group;
	}

	areas() {
		const {history} = this, [from, to] = history.view, below = new Float64Array(to - from), paths = [];
		for (const band of history.bands.filter(({shown}) => shown)) {
			let path = '';
			for (let i = from; i < to; i++) {
				const load = history.load(band, i), base = below[i - from];
				if (!load)
					continue;
				path += `M${this.x(i).toFixed(2)} ${this.y(base).toFixed(2)}V${this.y(base + load).toFixed(2)}H${(this.x(i + 1) + 0.3).toFixed(2)}V${this.y(base).toFixed(2)}Z`;
				below[i - from] += load;
			}
			paths.push(draw('path', {d: path, class: 'band', fill: band.color}));
		}
		return paths;
	}

	// Labels stand at round times of the clock here; days change with the date below.
	times() {
		const {history} = this, [from, to] = history.view, group = draw('g', {class: 'axis'}), bottom = this.height - BOTTOM;
		const first = history.start(from), last = history.start(to), room = (this.width - LEFT - RIGHT) / (last - first);
		const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY];
		const step = steps.find((s) => s * room >= 56) ?? 56 * DAY, daily = step >= DAY;
		group.append(draw('line', {x1: LEFT, x2: this.width - RIGHT, y1: bottom + 0.5, y2: bottom + 0.5}));
		let day = '', free = 0;
		for (let at = roundUp(first, step); at <= last; at = roundUp(at + 1, step)) {
			const x = this.x(from + (at - first) / history.step), date = new Date(at * 1000);
			const dayText = date.toLocaleDateString(undefined, {weekday: 'short', day: 'numeric', month: 'short'});
			const text = daily ? date.toLocaleDateString(undefined, {weekday: 'short', day: 'numeric'})
				: date.toLocaleTimeString(undefined, {hour: '2-digit', minute: '2-digit', ...(step < 60 ? {second: '2-digit'} : {})});
			if (x > this.width - RIGHT - 18)
				break;
			group.append(draw('line', {x1: x, x2: x, y1: bottom, y2: bottom + 5}), draw('text', {x, y: bottom + 16, 'text-anchor': 'middle'}, text));
			const below = daily ? date.toLocaleDateString(undefined, {month: 'long', year: 'numeric'}) : dayText;
			if (below !== day && x >= free) {
				group.append(draw('text', {x: Math.max(x, LEFT + 10), y: bottom + 30, 'text-anchor': x < LEFT + 40 ? 'start' : 'middle', class: 'day'}, below));
				day = below;
				free = x + 100;
			}
		}
		return group;
	}

	update() {
		const {history, overlay} = this, [from, to] = history.view, height = this.height - TOP - BOTTOM;
		if (!overlay)
			return;
		overlay.replaceChildren();
		if (history.chosen) {
			const left = this.x(Math.max(history.chosen[0], from)), right = this.x(Math.min(history.chosen[1], to));
			overlay.append(draw('rect', {x: LEFT, y: TOP, width: left - LEFT, height, class: 'away'}),
				draw('rect', {x: right, y: TOP, width: Math.max(0, this.width - RIGHT - right), height, class: 'away'}),
				draw('rect', {x: left, y: TOP, width: Math.max(1, right - left), height, class: 'chosen'}));
		}
		if (this.pointed >= from && this.pointed < to)
			overlay.append(draw('rect', {x: this.x(this.pointed), y: TOP, width: Math.max(1, this.x(this.pointed + 1) - this.x(this.pointed)), height, class: 'pointed'}));
		showDetails(history, this.pointed >= 0 ? [this.pointed, this.pointed + 1] : history.stretch());
	}
}

// The next multiple of the step, by the local clock; days begin at midnight, and weeks with Monday.
function roundUp(s, step) {
	if (step < 3600)
		return Math.ceil(s / step) * step;
	const at = new Date(s * 1000), midnight = new Date(at.getFullYear(), at.getMonth(), at.getDate());
	if (step < DAY) {
		const hours = step / 3600, since = (s - midnight / 1000) / 3600;
		return new Date(at.getFullYear(), at.getMonth(), at.getDate(), Math.ceil(since / hours) * hours) / 1000;
	}
	let days = midnight / 1000 < s ? 1 : 0;
	if (step >= 7 * DAY)
		while (new Date(at.getFullYear(), at.getMonth(), at.getDate() + days).getDay() !== 1)
			days++;
	else if (step > DAY)
		while (Math.round(new Date(at.getFullYear(), at.getMonth(), at.getDate() + days) / 864e5) % 2)
			days++;
	return new Date(at.getFullYear(), at.getMonth(), at.getDate() + days) / 1000;
}

function showDetails(history, stretch) {
	const {data} = history, recorded = history.sum(data.recorded_ns, stretch), [from, to] = history.bounds(stretch);
	const load = (bands) => (bands.reduce((sum, band) => sum + history.sum(band.weights, stretch), 0) / recorded).toFixed(3);
	const top = history.bands.filter((band) => !band.waits).sort((a, b) => history.sum(b.weights, stretch) - history.sum(a.weights, stretch))[0];
	get('details').textContent = `${momentText(from)} – ${momentText(to)} (${lengthText(to - from)}): ` + (recorded
		? `${load(history.bands.filter((band) => !band.waits))} of ${data.guest.vcpus} vCPUs busy, most with ${top.name} (${load([top])})` : 'nothing was recorded');
}

function showBands(history) {
	const stretch = history.stretch(), recorded = history.sum(history.data.recorded_ns, stretch);
	const busy = history.bands.filter((band) => !band.waits).reduce((sum, band) => sum + history.sum(band.weights, stretch), 0);
	const rows = history.bands.map((band) => {
		const weight = history.sum(band.weights, stretch);
		let most = 0;
		for (let i = stretch[0]; i < stretch[1]; i++)
			most = Math.max(most, history.load(band, i));
		const swatch = draw('svg', {width: 12, height: 12, 'aria-hidden': 'true'}, draw('rect', {width: 12, height: 12, rx: 2, fill: band.color}));
		const button = make('button', {type: 'button', title: `${band.name}\nShow or hide this band; Shift: this one alone`}, swatch, band.name);
		button.setAttribute('aria-pressed', band.shown);
		button.addEventListener('click', (event) => toggle(history, band, event.shiftKey));
		return make('tr', {className: band.shown ? '' : 'hidden-band'}, make('td', {}, button), make('td', {textContent: recorded ? (weight / recorded).toFixed(3) : '–'}),
			make('td', {textContent: most.toFixed(3)}), make('td', {textContent: band.waits || !busy ? '–' : percent(weight / busy)}));
	});
	const focused = [...get('bands').querySelectorAll('button')].indexOf(document.activeElement);
	get('bands').replaceChildren(make('table', {}, make('thead', {}, make('tr', {}, ...[history.data.key, 'vCPUs', 'most', 'self'].map((textContent) => make('th', {textContent, scope: 'col'})))),
		make('tbody', {}, ...rows)));
	get('bands').querySelectorAll('button')[focused]?.focus();
}

// A page of days has no stacks: it tells what has them.
function showCommands(history) {
	const {data} = history, [from, to] = history.bounds(history.stretch()), store = data.store ? ` --store ${shellWord(data.store)}` : '';
	const window = `--from ${utcText(from)} --to ${utcText(to)}${store}`, guest = shellWord(data.asked);
	const lines = [['Its flame graph', `uniprof flamegraph ${window} -o stretch.html ${guest}`], ['Its functions', `uniprof report ${window} ${guest}`],
		['Compared with a day before', `uniprof diff ${window} --against 1d ${guest}`]];
	get('commands').replaceChildren(make('h2', {textContent: history.chosen ? 'The chosen stretch' : 'This stretch (drag over the chart to choose another)'}),
		...lines.map(([what, command]) => {
			const button = make('button', {type: 'button', textContent: 'Copy', title: `Copy: ${what}`});
			button.addEventListener('click', () => copy(button, command));
			return make('div', {className: 'command'}, make('span', {textContent: what}), make('code', {textContent: command, tabIndex: 0}), button);
		}));
}

async function copy(button, text) {
	try {
		await navigator.clipboard.writeText(text);
		button.textContent = 'Copied';
	} catch {
		const range = document.createRange();
		range.selectNodeContents(button.previousElementSibling);
		getSelection().removeAllRanges();
		getSelection().addRange(range);
		button.textContent = 'Ctrl-C';
	}
	setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

let chart;

function refresh(history) {
	get('zoom').disabled = !history.chosen;
	get('whole').disabled = !history.chosen && history.view[1] - history.view[0] === history.n;
	showBands(history);
	showCommands(history);
	chart.redraw();
}

function choose(history, stretch) {
	history.chosen = stretch;
	refresh(history);
}

function zoomIn(history) {
	if (!history.chosen)
		return;
	history.view = history.chosen;
	choose(history, null);
}

function showWhole(history) {
	history.view = [0, history.n];
	choose(history, null);
}

function toggle(history, band, alone) {
	const only = history.bands.every((other) => other.shown === (other === band));
	for (const other of history.bands)
		if (alone)
			other.shown = only || other === band;
	if (!alone)
		band.shown = !band.shown;
	refresh(history);
}

function moveChosen(history, by, grow) {
	const [from, to] = history.view, [first, end] = history.chosen ?? (by > 0 ? [from - 1, from] : [to, to + 1]);
	const least = grow ? first + 1 : from + (end - first);
	const moved = Math.min(to, Math.max(least, end + by));
	choose(history, [grow ? first : moved - (end - first), moved]);
}

function setTheme(theme) {
	document.documentElement.dataset.theme = theme;
	get('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}

function wire(history) {
	const dark = matchMedia('(prefers-color-scheme: dark)');
	let own = false;
	const follow = () => own || setTheme(dark.matches ? 'dark' : 'light');
	const theme = () => { own = true; setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'); };
	const keys = {d: theme, Escape: () => showWhole(history)};
	const chartKeys = {ArrowLeft: -1, ArrowRight: 1};
	dark.addEventListener('change', follow);
	follow();
	get('theme').addEventListener('click', theme);
	get('zoom').addEventListener('click', () => zoomIn(history));
	get('whole').addEventListener('click', () => showWhole(history));
	document.addEventListener('keydown', (event) => {
		const inChart = document.activeElement === get('load'), by = inChart && chartKeys[event.key];
		if (event.ctrlKey || event.metaKey || event.altKey || (!by && !keys[event.key] && !(inChart && event.key === 'Enter')))
			return;
		event.preventDefault();
		if (by)
			moveChosen(history, by, event.shiftKey);
		else
			(keys[event.key] ?? (() => zoomIn(history)))();
	});
}

function start() {
	const data = JSON.parse(get('profile').textContent), history = new History(data);
	const zone = Intl.DateTimeFormat().resolvedOptions().timeZone, gaps = data.recorded_ns.some((ns) => !ns);
	get('title').textContent = document.title;
	get('subtitle').textContent = data.guest.line ?? '';
	get('warning').textContent = data.warning ?? '';
	get('warning').hidden = !data.warning;
	get('note').textContent = `vCPUs that were busy, on average over ${lengthText(data.step_s)}; times are of ${zone}.` + (gaps ? ' Hatched: nothing was recorded.' : '');
	chart = new Chart(history, get('load'));
	wire(history);
	refresh(history);
}

start();
