// SPDX-License-Identifier: BSD-3-Clause
//
// The stack chart: stacks in order of time, as view/svg/chart.c draws them. Time goes to the right, calls go down, and
// each vCPU has a lane, or each thread of a page that has these around its functions.

const CHART_BOXES = 1 << 17, CHART_LANES = 64, CHART_LEVELS = 256, DRAG = 4; // pixels that a click may move
const CHART_STEPS = [1, 2, 5];

class Chart extends Flame {
	// As for Times: `changed` is called when a person has chosen another stretch.
	constructor(parent, side, filter, page, changed) {
		const box = make('div', {className: 'flame'});
		super(box, page, `${side.label} stack chart: left and right go on in time, up and down along the stack, Enter selects the stretch of a box, Backspace all of the time`.trim(), true);
		Object.assign(this, {side, filter, changed, legend: make('p', {className: 'chart-legend'})});
		parent.append(make('section', {className: 'chart', ariaLabel: `${side.label} stack chart`.trim()}, box, this.legend));
		this.listenForDrags();
	}

	// ---- Which box is where.

	// Makes the boxes of the selected stretch; yields, so that the page answers.
	*build() {
		const {filter} = this, most = Math.max(1, Math.floor(this.box.clientWidth));
		this.asked = most;
		this.columns = Math.max(1, Math.min(most, filter.to - filter.from));
		for (;;) {
			const cells = yield* this.collect();
			if (yield* this.place(cells) || this.columns === 1)
				return;
			this.columns = Math.ceil(this.columns / 2);
		}
	}

	// The outermost function of each node: a thread or process, where the page has these.
	tops() {
		const {profile} = this.page, {n, parent} = profile.tree;
		if (!profile.tops) {
			profile.tops = new Uint32Array(n);
			for (let node = 1; node < n; node++)
				profile.tops[node] = parent[node] ? profile.tops[parent[node]] : node;
		}
		return profile.tops;
	}

	// By lane: its weight, and the rows of each column.
	*collect() {
		const {side, filter, columns, page} = this, {groups, rows} = side, lanes = new Map(), tops = page.profile.outer ? this.tops() : null;
		const span = filter.to - filter.from;
		for (let g = 0; g < groups.n; g++) {
			const bucket = groups.bucket[g], vcpu = groups.vcpu[g];
			if (bucket < filter.from || bucket >= filter.to || !(page.states >> groups.state[g] & 1) || filter.without.has(vcpu))
				continue;
			const column = Math.floor((bucket - filter.from) * columns / span);
			for (let row = groups.first[g]; row < groups.first[g + 1]; row++) {
				const key = tops ? tops[rows.node[row]] : vcpu;
				const lane = lanes.get(key) ?? lanes.set(key, {key, weight: 0, cells: new Map()}).get(key);
				lane.weight += side.weighted ? rows.weight[row] : rows.samples[row];
				(lane.cells.get(column) ?? lane.cells.set(column, []).get(column)).push(row);
			}
			if (g % (1 << 12) === 0)
				yield `Building the chart: ${Math.floor(100 * g / groups.n)} % read`;
		}
		const found = [...lanes.values()].filter(({key}) => !tops || key).sort((a, b) => b.weight - a.weight);
		this.lanesLeftOut = Math.max(0, found.length - CHART_LANES);
		return tops ? found.slice(0, CHART_LANES) : found.slice(0, CHART_LANES).sort((a, b) => a.key - b.key);
	}

	// What took most of a cell: from the root on to the heaviest that each function called, until that is itself.
	pick(cell, root) {
		const {side, page} = this, {rows} = side, {parent, end} = page.profile.tree, value = side.weighted ? rows.weight : rows.samples;
		cell.sort((a, b) => rows.node[a] - rows.node[b]);
		for (let at = root, low = 0, high = cell.length; ;) {
			let self = 0, best = -1, most = -1, bestLow = 0, bestHigh = 0;
			for (; low < high && rows.node[cell[low]] <= at; low++)
				self += value[cell[low]];
			for (let i = low; i < high;) {
				let child = rows.node[cell[i]], sum = 0;
				const first = i;
				while (parent[child] !== at)
					child = parent[child];
				for (; i < high && rows.node[cell[i]] < end[child]; i++)
					sum += value[cell[i]];
				if (sum > most)
					[best, most, bestLow, bestHigh] = [child, sum, first, i];
			}
			if (best < 0 || at && most < self)
				return at;
			[at, low, high] = [best, bestLow, bestHigh];
		}
	}

	// The functions on a lane, the outermost first.
	pathOf(node, root) {
		const {tree: {parent, name}} = this.page.profile, path = [];
		for (; node !== root && node; node = parent[node])
			if (!this.page.collapsed || parent[node] === root || name[node] !== name[parent[node]])
				path.unshift(node);
		this.tooDeep ||= path.length > CHART_LEVELS;
		return path.slice(0, CHART_LEVELS);
	}

	// Makes boxes: neighbours that are the same function with the same callers are one. False: too many.
	*place(lanes) {
		const {tree: {name, inlined}, rest} = this.page.profile, outer = this.page.profile.outer, boxes = [{node: 0, name: rest + 1, parent: 0, level: 0, from: 0, to: this.columns, lane: -1}];
		let row = 0;
		this.lanes = [];
		this.tooDeep = false;
		for (const {key, cells} of lanes) {
			const root = outer ? key : 0, open = [];
			let levels = 1;
			for (let column = 0; column <= this.columns; column++) {
				const cell = cells.get(column), path = cell ? this.pathOf(this.pick(cell, root), root) : [];
				let same = 0;
				while (same < path.length && same < open.length && boxes[open[same]].node === path[same])
					same++;
				while (open.length > same)
					boxes[open.pop()].to = column;
				for (let level = same; level < path.length; level++)
					open.push(boxes.push({node: path[level], name: name[path[level]], parent: level ? open[level - 1] : 0,
						level: row + 1 + level, from: column, to: 0, lane: this.lanes.length}) - 1);
				levels = Math.max(levels, path.length);
				if (boxes.length > CHART_BOXES && this.columns > 1)
					return false;
				if (column % 64 === 0)
					yield `Building the chart: ${boxes.length.toLocaleString('en-US')} boxes`;
			}
			this.lanes.push({row, label: outer ? this.page.names[name[key]] : `vCPU ${key}`});
			row += levels + 1;
		}
		this.makeView(boxes, row, inlined);
		return true;
	}

	// As of a tree, so that focus, search, copy and annotate are those of flame graphs.
	makeView(boxes, levels, inlined) {
		const n = boxes.length, end = new Uint32Array(n), value = new Uint32Array(n);
		for (let i = n - 1; i >= 0; i--) {
			end[i] = Math.max(end[i], i + 1);
			value[i] = boxes[i].to - boxes[i].from;
			if (i)
				end[boxes[i].parent] = Math.max(end[boxes[i].parent], end[i]);
		}
		const column = (key, Type) => Type.from(boxes, (box) => box[key]);
		this.made = {n, levels, end, value, boxes, columns: this.columns, from: this.filter.from, to: this.filter.to, lanes: this.lanes, name: column('name', Uint32Array), parent: column('parent', Int32Array),
			level: column('level', Uint32Array), inlined: Uint8Array.from(boxes, ({node}) => inlined[node]), tell: (node) => this.textOf(node)};
	}

	// ---- Drawing.

	showBuilt() {
		this.show(this.made, false);
		const {page, columns, filter, side} = this, length = (filter.to - filter.from) / columns * side.bucket_ns;
		const cut = this.tooDeep ? `; stacks are cut above ${CHART_LEVELS} levels` : '';
		const left = this.lanesLeftOut ? `; ${count(this.lanesLeftOut, 'more lane')} of less weight left out` : '';
		this.legend.textContent = this.made.n > 1 ? `A column is ${seconds(length, Math.min(length, 1e6))}, and shows what took most of it${left}${cut}; drag to select a stretch`
			: page.summary();
	}

	begin() {
		return ROW;
	}

	left(node) {
		return this.view.boxes[node].from / this.view.columns * this.width;
	}

	size(node) {
		return this.view.value[node] / this.view.columns * this.width;
	}

	isShown(node) {
		return node > 0;
	}

	resize() {
		super.resize();
		if (!this.view || !this.width)
			return;
		this.spacer.style.height = `${Math.max(0, (this.view.levels + 1) * ROW - this.height)}px`;
		if (this.asked !== Math.max(1, Math.floor(this.box.clientWidth)))
			this.page.growCharts();
	}

	draw() {
		if (!this.view || !this.width)
			return;
		const {view, context} = this, scrolled = this.box.scrollTop;
		this.clear();
		for (const {row, label} of view.lanes) {
			const y = this.top(row, scrolled);
			context.fillStyle = this.theme.text;
			context.fillText(this.fit(label, this.width - 2 * TEXT_PAD, Math.floor(this.width / this.cell)), TEXT_PAD, y + ROW / 2);
		}
		for (let box = 1; box < view.n; box++) {
			const y = this.top(view.level[box], scrolled);
			if (y >= 0 && y <= this.height)
				this.drawBox(box, this.left(box), this.size(box), y, false);
		}
		this.drawRing();
		this.drawAxis();
		if (this.drag)
			this.drawDrag();
	}

	timeAt(x) {
		const {view, side} = this;
		return (view.from + x / this.width * (view.to - view.from)) * side.bucket_ns;
	}

	// Round times, over what is scrolled below them.
	drawAxis() {
		const {context, theme, width} = this, from = this.timeAt(0), span = this.timeAt(width) - from;
		const least = span * 80 / width, power = 10 ** Math.floor(Math.log10(least)), step = power * ([...CHART_STEPS, 10].find((one) => power * one >= least) ?? 10);
		context.fillStyle = theme.ground;
		context.fillRect(0, 0, width, ROW);
		context.fillStyle = theme.text;
		for (let at = Math.ceil(from / step) * step; at < from + span; at += step) {
			const x = (at - from) / span * width, text = seconds(at, power), room = context.measureText(text).width;
			context.fillRect(Math.round(x), 0, 1, ROW - 3);
			if (x + room + 4 <= width)
				context.fillText(text, x + 4, ROW / 2 - 1);
		}
	}

	drawDrag() {
		const {context, drag} = this;
		context.strokeStyle = this.theme.brush;
		context.lineWidth = 2;
		context.strokeRect(Math.min(drag.from, drag.to), 1, Math.abs(drag.to - drag.from), this.height - 2);
	}

	// ---- What a person does.

	at(x, y) {
		const {view} = this, level = Math.floor((y - this.begin() + this.box.scrollTop) / ROW);
		if (!view || y < ROW)
			return -1;
		const column = x / this.width * view.columns;
		for (let box = 1; box < view.n; box++)
			if (view.level[box] === level && view.boxes[box].from <= column && column < view.boxes[box].to)
				return box;
		return -1;
	}

	textOf(node) {
		if (node <= 0)
			return '';
		const {page, view, side} = this, {from, to, lane} = view.boxes[node], scale = (view.to - view.from) / view.columns;
		const time = (column) => (view.from + column * scale) * side.bucket_ns, say = (ns) => seconds(ns, Math.min(side.bucket_ns, 1e6));
		return `${page.names[view.name[node]].slice(0, 1000)} (${view.lanes[lane].label}, ${say(time(from))} to ${say(time(to))}: `
			+ `${say(time(to) - time(from))}${view.inlined[node] ? ', inlined' : ''})`;
	}

	listenForDrags() {
		const {canvas} = this;
		canvas.style.touchAction = 'pan-y';
		canvas.addEventListener('pointerdown', (event) => {
			this.drag = null;
			this.anchor = event.button ? undefined : event.offsetX;
		});
		canvas.addEventListener('pointermove', (event) => {
			if (this.anchor === undefined || !this.drag && Math.abs(event.offsetX - this.anchor) < DRAG)
				return;
			canvas.setPointerCapture(event.pointerId);
			this.drag = {from: this.anchor, to: Math.max(0, Math.min(this.width, event.offsetX))};
			this.redraw();
		});
		canvas.addEventListener('pointercancel', () => {
			this.anchor = undefined;
			this.drag = null;
			this.redraw();
		});
		canvas.addEventListener('pointerup', () => {
			const {drag} = this;
			this.anchor = undefined;
			this.drag = null;
			if (!drag)
				return;
			// The click that follows is none.
			this.dragged = true;
			setTimeout(() => { this.dragged = false; });
			this.select(...[drag.from, drag.to].sort((a, b) => a - b).map((x) => x / this.width * this.view.columns));
		});
	}

	// From one column to another.
	select(from, to) {
		const {view} = this, scale = (view.to - view.from) / view.columns;
		const first = Math.min(view.to - 1, view.from + Math.floor(from * scale + 1e-6)), last = Math.min(view.to, view.from + Math.ceil(to * scale - 1e-6));
		Object.assign(this.filter, {from: first, to: Math.max(first + 1, last)});
		this.changed();
	}

	zoom(node) {
		if (this.dragged || node <= 0)
			return;
		this.select(this.view.boxes[node].from, this.view.boxes[node].to);
	}

	zoomOut() {
		Object.assign(this.filter, {from: 0, to: this.side.buckets});
		this.changed();
	}

	focus(node) {
		super.focus(node || (this.view.n > 1 ? 1 : 0));
	}

	// Between lanes, too.
	key(event) {
		const {view, focused} = this, step = {ArrowUp: -1, ArrowDown: 1}[event.key];
		if (step && focused > 0 && (step < 0 ? !view.parent[focused] : this.widestChild() < 0)) {
			const lane = view.boxes[focused].lane + step, middle = (view.boxes[focused].from + view.boxes[focused].to) / 2;
			const inLane = view.boxes.map((box, i) => ({...box, i})).filter((box) => box.lane === lane && !box.parent);
			const next = inLane.find(({from, to}) => from <= middle && middle < to) ?? inLane[0];
			event.preventDefault();
			event.stopPropagation();
			if (next)
				this.focus(next.i);
			return;
		}
		super.key(event);
	}
}
