// SPDX-License-Identifier: BSD-3-Clause
//
// The page itself: holds the user's choices, and tells the views that show them.

const get = (id) => document.getElementById(id);
const VIEWS = ['flame', 'leaf', 'sandwich', 'heat', 'chart'];
const TIMED = ['heat', 'chart'];
const SLICE_MS = 30, SHOW_MS = 300, LEAST_WIDTH = 600, MOST_IMAGES = 12, GREY = '#bebec2';
// Lets the browser draw and take input; a timer would wait for some milliseconds more.
const pause = () => new Promise((done) => {
	const {port1, port2} = new MessageChannel();
	port1.onmessage = () => { port1.close(); done(); };
	port2.postMessage(0);
});
const count = (n, what) => `${n.toLocaleString('en-US')} ${what}${n === 1 ? '' : 's'}`;

class Page {
	constructor(profile) {
		Object.assign(this, {profile, names: profile.names, shorts: profile.shorts, view: 'flame', chosen: -1, pattern: '', anyCase: false, hits: null});
		const two = profile.sides.length === 2;
		profile.sides.forEach((side, i) => { side.label = two ? ['before', 'after'][i] : ''; });
		this.filters = profile.sides.map((side) => ({from: 0, to: side.buckets, without: new Set()}));
		this.states = profile.states;
		this.timed = profile.sides.every((side) => !side.timeless);
		this.counted = profile.sides[0].exits ? 'exit' : 'sample';
		this.widths = 'both';
		this.collapsed = false;
		this.colorBy = profile.color;
		this.colorsBy = {};
		this.icicle = profile.icicle;
		this.flame = new Flame(get('flame'), this, 'Flame graph: arrow keys move, Enter zooms', this.icicle);
		this.callers = new Flame(get('callers'), this, 'Callers', false);
		this.callers.rootBelow = true;
		this.callees = new Flame(get('callees'), this, 'Callees', true);
		this.functionTable = new Functions(get('functions'), this);
		this.times = profile.sides.map((side, i) => new Times(get('times'), side, this.filters[i], this, () => this.refilter()));
		this.heats = profile.sides.map((side, i) => new Heat(get('heat'), side, this.filters[i], this, () => this.refilter()));
		this.charts = profile.sides.map((side, i) => new Chart(get('chart'), side, this.filters[i], this, () => this.refilter()));
		this.annotation = new Annotation(this, profile.code);
		this.readTheme();
		showTexts(this);
		wire(this);
		this.update(profile.reverse ? 'leaf' : 'flame');
	}

	// ---- Questions of boxes.

	readTheme() {
		const style = getComputedStyle(document.documentElement);
		const color = (name) => style.getPropertyValue(`--${name}`).trim();
		this.colors = {};
		for (const name of ['ground', 'text', 'over', 'hit', 'hit-text', 'box-text', 'ring', 'running', 'runnable', 'blocked', 'brush',
			'heat-low', 'heat-middle', 'heat-high'])
			this.colors[name.replace(/-(.)/, (_, letter) => letter.toUpperCase())] = color(name);
	}

	theme() {
		return this.colors;
	}

	color(view, node) {
		return view.marks && !view.rest?.[node] ? changeColor(view.share[0][node], view.share[1][node], view.marks[node]) : this.colorsOf()[view.name[node]];
	}

	// By name. Of what is no function the usual ones.
	colorsOf() {
		const {profile, colorBy} = this, {rest, images, kinds, codes, colors, packages} = profile;
		const of = {
			function: (i) => colors[i],
			package: (i) => packages[i],
			image: (i) => codes[i] > 7 ? images[(codes[i] >> 3) - 1][1] : GREY,
			kind: (i) => kinds[codes[i] & 7][1],
		}[colorBy];
		return this.colorsBy[colorBy] ??= colors.map((color, i) => i < rest ? of(i) : color);
	}

	// What the colours stand for, where there are few.
	showColorLegend() {
		const {images, kinds, codes} = this.profile, patch = ([text, color]) => {
			const square = make('i');
			square.style.background = color;
			return make('span', {}, square, ` ${text.slice(0, 60)}`);
		};
		this.codes ??= new Set(codes);
		const seen = new Set([...this.codes].map((code) => code & 7)), shown = {
			kind: () => kinds.filter((_, kind) => seen.has(kind)).map(patch),
			image: () => [...images.slice(0, MOST_IMAGES).map(patch),
				...images.length > MOST_IMAGES ? [`${images.length - MOST_IMAGES} more`] : [],
				...[...this.codes].some((code) => code < 8) ? [patch(['image not known', GREY])] : []],
		}[this.colorBy]?.() ?? [];
		get('color-legend').replaceChildren(...shown);
		get('color-legend').hidden = !shown.length || this.view === 'heat' || this.profile.sides.length > 1;
	}

	text(view, node) {
		if (view.tell)
			return view.tell(node);
		const rest = view.rest?.[node], inlined = view.inlined[node] ? ', inlined' : '';
		const name = rest ? `${count(rest, 'function')}, too narrow to be drawn one by one` : this.names[view.name[node]].slice(0, 1000);
		if (view.marks)
			return `${name} (${changeText(view.share[0][node], view.share[1][node], view.marks[node])}${inlined})`;
		const {samples, weights} = view.sides[0];
		return `${name} (${count(samples[node], this.counted)}, ${percent(weights[node], view.wholes[0])}${inlined})`;
	}

	describe(flame, node) {
		const {view, zoomed} = flame;
		const part = node > zoomed && zoomed && node < view.end[zoomed];
		get('details').textContent = node < 0 || !view ? '' : this.text(view, node)
			+ (part ? `, ${percent(view.value[node], view.value[zoomed])} of what is shown` : '');
	}

	// ---- Updates. Numbers first, then the pictures that are in sight.

	refilter() {
		if (!this.pending)
			this.pending = requestAnimationFrame(() => {
				this.pending = 0;
				this.update();
			});
	}

	update(asked = this.view) {
		const view = TIMED.includes(asked) && !this.timed ? TIMED.includes(this.view) ? 'flame' : this.view : asked;
		const keep = view === this.view && this.shown;
		this.sumUp();
		this.view = view;
		this.shown = true;
		if (!keep)
			get('details').textContent = '';
		this.job = null;
		this.end();
		if (view === 'sandwich')
			this.showSandwich();
		else if (view === 'leaf')
			this.growAll([[this.flame, leafFirst(this.profile, this, this.collapsed)]]);
		else if (TIMED.includes(view))
			this.flame.hovered = -1;
		else if (this.collapsed)
			this.growAll([[this.flame, collapsedTree(this.profile, this)]]);
		else
			this.flame.show(this.makeView({tree: this.profile.tree, sides: this.totals}), keep && !this.flame.view?.grown);
		this.search();
		this.showChoices();
		this.growCharts();
		for (const times of [...this.times, ...this.heats])
			times.draw();
		this.zoomed(this.flame);
		this.tellLeftOut();
		this.annotation.refresh();
		saveState(this);
	}

	// Sums do not change with the view.
	sumUp() {
		const {profile} = this, key = JSON.stringify([this.states, this.filters.map(({from, to, without}) => [from, to, [...without]])]);
		if (key === this.summed)
			return;
		this.summed = key;
		this.totals = profile.sides.map((side, i) => sumSide(profile, side, {...this.filters[i], states: this.states}));
		this.draws = this.totals.map((total) => total.draws);
		// Memory that is touched the first time takes most of the time: sums of leaves alone stay, the others become totals.
		this.leaves = leavesOf(profile.tree, this.totals);
		this.selfs = pick(this.totals, this.leaves);
		for (const total of this.totals)
			addTotals(profile.tree, total);
		this.wholes = this.totals.map((total) => total.weights[0]);
		this.functions = null;
	}

	// The part of the whole that is a pixel of the screen wide.
	finest() {
		return 1 / (Math.max(innerWidth, LEAST_WIDTH) * (devicePixelRatio || 1));
	}

	makeView({tree, sides}) {
		const view = makeView(tree, sides, this.wholes, this.widths);
		if (sides.length === 2)
			view.marks = markChanges(view.share[0], view.share[1], this.draws);
		return view;
	}

	// Runs a generator in slices, so that the page answers; a later job ends an earlier one.
	async work(steps) {
		const job = this.job = {};
		document.body.dataset.busy = 'yes';
		for (let step = {}; !step.done;) {
			const until = performance.now() + SLICE_MS;
			do
				step = steps.next();
			while (!step.done && performance.now() < until);
			if (!step.done) {
				get('progress').textContent = step.value;
				await pause();
			}
			if (this.job !== job)
				return;
		}
		this.end();
		// A person may have zoomed meanwhile.
		for (const flame of this.flames())
			this.refine(flame);
	}

	end() {
		get('progress').textContent = '';
		delete document.body.dataset.busy;
		this.tellLeftOut();
	}

	// The first levels are shown soon, the others when they are made.
	growAll(parts) {
		const {tree} = this.profile, page = this;
		return this.work(function* () {
			for (const [flame, grown] of parts) {
				let next = performance.now() + SHOW_MS;
				for (const level of grown.grow(grown.root, page.limitOf(grown, grown.root))) {
					yield `Building the picture: level ${level + 1} of at most ${tree.levels}`;
					if (performance.now() > next) {
						page.showGrown(flame, grown);
						next = performance.now() + 2 * SHOW_MS;
					}
				}
				page.showGrown(flame, grown);
			}
		}());
	}

	growCharts() {
		const page = this;
		return this.view !== 'chart' ? null : this.work(function* () {
			for (const chart of page.charts) {
				yield* chart.build();
				chart.showBuilt();
			}
		}());
	}

	// Boxes on `node` that are narrower, as a share of the whole, are not made, where it is as wide as the picture.
	limitOf(grown, node) {
		return grown.whole ? 0 : this.finest() * grown.share(node.sums);
	}

	// More of the same tree keeps its place.
	showGrown(flame, grown) {
		const same = flame.view?.grown === grown, node = same && flame.view.nodes[flame.zoomed], view = this.makeView(grown.finish());
		flame.show(view, same);
		if (same)
			flame.zoomed = flame.focused = Math.max(0, view.nodes.indexOf(node));
		if (same && flame.zoomed)
			flame.reveal(flame.zoomed);
		this.zoomed(flame);
	}

	// Boxes on one that is zoomed to, or in a window that grew, are made finer: at once, or when the others are made.
	refine(flame) {
		const {view} = flame, grown = view?.grown, page = this;
		if (!grown || document.body.dataset.busy)
			return;
		const node = view.nodes[flame.zoomed], limit = this.limitOf(grown, node);
		let made = node.limit;
		for (let at = flame.zoomed; at; at = view.parent[at])
			made = Math.min(made, view.nodes[view.parent[at]].limit);
		if (made <= limit * 1.01)
			return;
		this.work(function* () {
			for (const level of grown.grow(node, limit))
				yield `Building the picture: level ${level + 1} above the one that is zoomed to`;
			page.showGrown(flame, grown);
		}());
	}

	// All that are drawn as boxes, in sight or not.
	pictures() {
		return [this.flame, this.callers, this.callees, ...this.charts];
	}

	// The trees in sight.
	flames() {
		return this.view === 'sandwich' ? [this.callers, this.callees] : TIMED.includes(this.view) ? [] : [this.flame];
	}

	showSandwich() {
		this.functions ??= {sums: sumFunctions(this.profile, this), wholes: this.wholes, draws: this.draws, names: this.names};
		const {sums} = this.functions;
		if (this.chosen < 0)
			this.chosen = sums.list.reduce((best, name) => best < 0 || sums.self[0][name] > sums.self[0][best] ? name : best, -1);
		this.functionTable.show();
		if (this.chosen < 0)
			return;
		const {profile, chosen, collapsed} = this, callers = callersOf(profile, this, chosen, collapsed);
		get('pivot').textContent = this.text({...this.makeView(callers.finish()), rest: null}, 0);
		this.growAll([[this.callers, callers], [this.callees, calleesOf(profile, this, chosen, collapsed)]]);
	}

	// What the pictures in sight do not show, said once they are drawn.
	tellLeftOut() {
		const narrow = this.flames().reduce((sum, flame) => sum + flame.narrow, 0);
		get('left-out').textContent = narrow && !document.body.dataset.busy
			? `Grey: ${narrow.toLocaleString('en-US')} boxes or more are too narrow to be drawn; zoom in or search` : '';
	}

	showChoices() {
		for (const view of VIEWS)
			get(`view-${view}`).setAttribute('aria-pressed', view === this.view);
		get('graph').hidden = this.view !== 'flame' && this.view !== 'leaf';
		get('sandwich').hidden = this.view !== 'sandwich';
		for (const view of TIMED) {
			get(view).hidden = this.view !== view;
			get(`view-${view}`).hidden = !this.timed;
		}
		get('icicle').hidden = get('graph').hidden;
		for (const id of ['collapse', 'colors-label', 'copy', 'annotate-button'])
			get(id).hidden = this.view === 'heat';
		get('icicle').setAttribute('aria-pressed', this.icicle);
		get('collapse').setAttribute('aria-pressed', this.collapsed);
		get('colors').value = this.colorBy;
		this.showColorLegend();
		get('widths').value = this.widths;
		for (const box of get('states').querySelectorAll('input'))
			box.checked = this.states >> box.value & 1;
		for (const flame of this.pictures())
			flame.resize();
	}

	setView(view) {
		this.update(view);
	}

	// From the heat map's keys to those of the flame graph.
	showStretch() {
		this.update('flame');
		this.flame.focus(0);
	}

	openFunction(name) {
		if (name >= this.profile.rest)
			return;
		this.chosen = name;
		this.update('sandwich');
	}

	setCollapsed(collapsed) {
		this.collapsed = collapsed;
		this.update();
	}

	setColors(by) {
		this.colorBy = by;
		for (const flame of this.pictures())
			flame.redraw();
		this.showChoices();
		saveState(this);
	}

	// The stack of the box under the mouse or in focus, from the root on, as one line.
	async copyStack() {
		const flame = this.current(), {view} = flame, names = [];
		for (let node = flame.hovered > 0 ? flame.hovered : flame.focused; node > 0; node = view.parent[node])
			names.unshift(this.names[view.name[node]]);
		const text = names.join(';');
		if (!text)
			return this.say('No box is in focus: choose one, then copy its stack');
		try {
			await navigator.clipboard.writeText(text);
			this.say(`Copied ${count(names.length, 'frame')}`);
		} catch (error) {
			this.say(`This browser does not let the page copy: ${error.message}`);
		}
	}

	say(text) {
		get('progress').textContent = text;
	}

	setIcicle(icicle) {
		this.icicle = icicle;
		this.flame.setIcicle(icicle);
		this.showChoices();
		saveState(this);
	}

	// ---- The path to what is zoomed to.

	zoomed(flame) {
		const {view} = flame, crumbs = [];
		if (flame !== this.flame || !view)
			return;
		for (let node = flame.zoomed; ; node = view.parent[node]) {
			crumbs.unshift(node);
			if (!node)
				break;
		}
		if (crumbs.length > 6)
			crumbs.splice(2, crumbs.length - 5, -1);
		const parts = crumbs.flatMap((node) => [this.crumb(flame, node), make('span', {className: 'step', textContent: '›', ariaHidden: true})]);
		get('path').replaceChildren(...flame.zoomed && (this.view === 'flame' || this.view === 'leaf') ? parts.slice(0, -1) : [make('span', {textContent: this.summary()})]);
	}

	crumb(flame, node) {
		const name = node < 0 ? '…' : this.shorts[flame.view.name[node]].slice(0, 200);
		if (node < 0 || node === flame.zoomed)
			return make('span', {textContent: name, ariaCurrent: String(node === flame.zoomed)});
		const button = make('button', {type: 'button', textContent: name, title: this.names[flame.view.name[node]]?.slice(0, 1000) ?? name});
		button.addEventListener('click', () => flame.zoom(node));
		return button;
	}

	summary() {
		const {totals, wholes, profile} = this, samples = totals.map((total) => total.samples[0]);
		if (samples.length === 2)
			return `${count(samples[0], this.counted)} before, ${count(samples[1], this.counted)} after`;
		const time = profile.sides[0].weighted ? `, ${(wholes[0] / 1e9).toFixed(2)} s` : '';
		return samples[0] ? `${count(samples[0], this.counted)}${time}` : 'no samples: choose other states, vCPUs or another stretch of time';
	}

	// ---- Search. A match within a match counts once.

	search() {
		const {pattern, names} = this;
		let expression = null;
		try {
			expression = pattern ? new RegExp(pattern, this.anyCase ? 'i' : '') : null;
		} catch (error) {
			// Told below.
		}
		const bad = pattern !== '' && !expression;
		this.hits = expression ? Uint8Array.from(names, (name, i) => i < this.profile.rest && (expression.test(name) || expression.test(this.shorts[i])) ? 1 : 0) : null;
		get('search').setAttribute('aria-invalid', bad);
		get('case').setAttribute('aria-pressed', this.anyCase);
		get('found').classList.toggle('bad', bad);
		get('found').textContent = bad ? 'Not a regular expression' : expression ? this.found() : '';
		for (const flame of this.pictures())
			flame.redraw();
		for (const heat of this.heats)
			heat.draw();
		if (this.view === 'sandwich' && this.functions)
			this.functionTable.show();
	}

	// Nodes that match or stand on one that does; null: no search.
	hitsInside() {
		const {hits, profile: {tree}} = this;
		if (!hits)
			return null;
		if (this.insideOf !== hits) {
			this.insideOf = hits;
			this.inside = new Uint8Array(tree.n);
			for (let node = 1; node < tree.n; node++)
				this.inside[node] = hits[tree.name[node]] | this.inside[tree.parent[node]];
		}
		return this.inside;
	}

	found() {
		const {tree} = this.profile, parts = this.totals.map(() => 0);
		let samples = 0, boxes = 0;
		for (let node = 1, end = 0; node < tree.n; node++) {
			if (!this.hits[tree.name[node]] || !this.totals.some((total) => total.samples[node]))
				continue;
			boxes++;
			if (node < end)
				continue;
			end = tree.end[node];
			this.totals.forEach((total, side) => {
				parts[side] += total.weights[node];
				samples += total.samples[node];
			});
		}
		const share = (side) => percent(parts[side], this.wholes[side]);
		const shares = parts.length === 2 ? `${share(0)} before, ${share(1)} after` : share(0);
		return `Matched ${shares} (${count(samples, this.counted)} in ${count(boxes, 'frame')})`;
	}

	setSearch(pattern, anyCase = this.anyCase) {
		this.pattern = pattern;
		this.anyCase = anyCase;
		if (get('search').value !== pattern)
			get('search').value = pattern;
		this.search();
		saveState(this);
	}

	// The picture that keys go to.
	current() {
		const inside = this.pictures().find((flame) => flame.canvas === document.activeElement && flame.box.clientWidth);
		return inside ?? {sandwich: this.callees, chart: this.charts[0]}[this.view] ?? this.flame;
	}

	nextHit(step) {
		const flame = this.current(), node = flame.view ? flame.nextHit(step) : -1;
		if (node >= 0)
			flame.focus(node);
	}

	reset() {
		this.pattern = get('search').value = '';
		this.collapsed = false;
		this.colorBy = this.profile.color;
		this.states = this.profile.states;
		this.profile.sides.forEach((side, i) => {
			Object.assign(this.filters[i], {from: 0, to: side.buckets});
			this.filters[i].without.clear();
		});
		for (const box of document.querySelectorAll('.lane input'))
			box.checked = true;
		this.flame.zoomed = this.flame.focused = 0;
		this.update();
		this.flame.reveal(0);
	}
}
