// SPDX-License-Identifier: BSD-3-Clause
//
// A tree as boxes on a canvas. Only what is in sight is drawn, and no more than a box for each
// pixel of a row, so that a picture costs what its window has room for, whatever is in the tree.

const ROW = 18, TEXT_PAD = 4, MIN_CHARS = 3;
const LEAST = 0.2; // pixels; what is narrower is not drawn, nor what stands on it
const FONT = '12px "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace';

class Flame {
	// `page` tells names, colours and what is found; `icicle`: root at the top.
	constructor(box, page, label, icicle) {
		this.box = box;
		this.page = page;
		this.icicle = icicle;
		this.canvas = document.createElement('canvas');
		this.canvas.tabIndex = 0;
		this.canvas.setAttribute('role', 'application');
		this.canvas.setAttribute('aria-label', label);
		this.canvas.setAttribute('aria-describedby', 'details');
		this.spacer = document.createElement('div');
		box.append(this.canvas, this.spacer);
		this.context = this.canvas.getContext('2d', {alpha: false});
		this.zoomed = this.focused = 0;
		this.hovered = -1;
		this.drawn = this.narrow = 0; // boxes, in the last picture; too narrow ones, at least
		this.listen();
	}

	listen() {
		this.box.addEventListener('scroll', () => this.redraw(), {passive: true});
		new ResizeObserver(() => this.resize()).observe(this.box);
		this.canvas.addEventListener('mousemove', (event) => this.hover(this.at(event.offsetX, event.offsetY)));
		this.canvas.addEventListener('mouseleave', () => this.hover(-1));
		this.canvas.addEventListener('click', (event) => {
			const node = this.at(event.offsetX, event.offsetY);
			if (node >= 0)
				this.zoom(node);
		});
		this.canvas.addEventListener('dblclick', (event) => {
			const node = this.at(event.offsetX, event.offsetY);
			if (node > 0)
				this.page.openFunction(this.view.name[node]);
		});
		for (const event of ['focus', 'blur'])
			this.canvas.addEventListener(event, () => this.tell());
		this.canvas.addEventListener('keydown', (event) => this.key(event));
	}

	// Another tree, or the same with other numbers: then places are kept.
	show(view, keep) {
		this.view = view;
		if (!keep)
			this.zoomed = this.focused = 0;
		this.hovered = -1;
		this.resize();
		if (!keep)
			this.reveal(0);
	}

	setIcicle(icicle) {
		this.icicle = icicle;
		this.resize();
		this.reveal(this.zoomed);
	}

	resize() {
		if (!this.view || !this.box.clientWidth)
			return;
		const height = this.box.clientHeight, ratio = window.devicePixelRatio || 1;
		this.width = this.box.clientWidth;
		this.height = height;
		this.canvas.style.width = `${this.width}px`;
		this.canvas.style.height = `${height}px`;
		this.canvas.width = Math.round(this.width * ratio);
		this.canvas.height = Math.round(height * ratio);
		this.spacer.style.height = `${Math.max(0, this.view.levels * ROW - height)}px`;
		this.redraw();
		this.page.refine(this);
	}

	redraw() {
		if (!this.waiting)
			this.waiting = requestAnimationFrame(() => {
				this.waiting = 0;
				this.draw();
			});
	}

	// Top of a level's row in the canvas.
	top(level, scrolled = this.box.scrollTop) {
		return this.begin() + (this.icicle ? level : this.view.levels - 1 - level) * ROW - scrolled;
	}

	// Top of the highest row: callers stand on the picture below theirs.
	begin() {
		return this.rootBelow ? Math.max(0, this.height - this.view.levels * ROW) : 0;
	}

	unit() {
		return this.width / (this.view.value[this.zoomed] || 1);
	}

	// Boxes stand side by side from their parent's left edge on, in order.
	left(node) {
		const {view, zoomed} = this;
		let before = 0;
		for (let at = node; at > zoomed && at < view.end[zoomed]; at = view.parent[at])
			for (let beside = view.parent[at] + 1; beside < at; beside = view.end[beside])
				before += view.value[beside];
		return before * this.unit();
	}

	size(node) {
		return this.isAbove(node) ? this.width : this.view.value[node] * this.unit();
	}

	// Does the box that is zoomed to stand on this one?
	isAbove(node) {
		return node < this.zoomed && this.zoomed < this.view.end[node];
	}

	isShown(node) {
		const inside = node >= this.zoomed && node < this.view.end[this.zoomed];
		return this.isAbove(node) || node === this.zoomed || inside && this.size(node) >= LEAST;
	}

	// An empty picture, in pixels of the page.
	clear() {
		const {context} = this, ratio = this.canvas.width / this.width;
		this.theme = this.page.theme();
		this.drawn = this.narrow = 0;
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.fillStyle = this.theme.ground;
		context.fillRect(0, 0, this.width, this.height);
		context.font = FONT;
		context.textBaseline = 'middle';
		context.direction = 'ltr';
		this.cell ??= context.measureText('m'.repeat(64)).width / 64;
	}

	draw() {
		if (!this.view || !this.width)
			return;
		const {view} = this, ratio = this.canvas.width / this.width, unit = this.unit();
		const scrolled = this.box.scrollTop; // asking costs more than a box
		this.clear();
		for (let node = this.zoomed; node; node = view.parent[node])
			this.drawBox(view.parent[node], 0, this.width, this.top(view.level[view.parent[node]], scrolled), true);
		const last = new Int32Array(view.levels).fill(-1), runs = new Map(), end = view.end[this.zoomed], next = new Float64Array(view.levels + 1);
		for (let node = this.zoomed; node < end;) {
			const size = node === this.zoomed ? this.width : view.value[node] * unit, level = view.level[node];
			const y = this.top(level, scrolled), x = next[level] * unit;
			next[level + 1] = next[level];
			next[level] += view.value[node];
			if (size < LEAST || (this.icicle ? y > this.height : y < -ROW)) {
				if (size < LEAST && size > 0)
					this.leaveOut(runs, node, x, size);
				node = view.end[node];
				continue;
			}
			const pixel = Math.floor(x * ratio);
			if (y >= -ROW && y <= this.height && (size >= 1 || pixel !== last[level])) {
				this.drawBox(node, x, size, y, false);
				last[level] = pixel;
			}
			node++;
		}
		for (const [level, run] of runs)
			this.drawRun(run, level);
		this.drawRing();
		this.page.tellLeftOut();
	}

	// Boxes side by side that are too narrow to be drawn, as one grey stretch.
	leaveOut(runs, node, x, size) {
		const level = this.view.level[node], run = runs.get(level);
		this.narrow += this.view.rest?.[node] || this.view.end[node] - node;
		if (run && x - run.to < LEAST) {
			run.to = x + size;
			return;
		}
		if (run)
			this.drawRun(run, level);
		runs.set(level, {from: x, to: x + size});
	}

	drawRun({from, to}, level) {
		const y = this.top(level);
		if (to - from < 1 || y < -ROW || y > this.height)
			return;
		this.context.fillStyle = this.theme.over;
		this.context.fillRect(from, y, to - from, ROW - 1);
	}

	drawBox(node, x, size, y, pale) {
		const {context, view, theme, page} = this;
		const hit = page.hits?.[view.name[node]], dim = pale || page.hits && !hit;
		if (y < -ROW || y > this.height)
			return;
		this.drawn++;
		this.narrow += view.rest?.[node] ?? 0;
		context.globalAlpha = dim && !hit ? 0.35 : 1;
		context.fillStyle = hit ? theme.hit : page.color(view, node);
		context.fillRect(x, y, size >= 3 ? size - 0.5 : Math.max(size, 1 / (window.devicePixelRatio || 1)), ROW - 1);
		if (view.inlined[node] && size >= 6) { // inlined: a light bar at its left edge
			context.fillStyle = theme.ground;
			for (let dash = 2; dash < ROW - 2; dash += 5)
				context.fillRect(x + 1, y + dash, 2, 3);
		}
		context.globalAlpha = 1;
		const chars = Math.floor((size - 2 * TEXT_PAD) / this.cell);
		if (chars >= MIN_CHARS) {
			context.fillStyle = hit ? theme.hitText : dim ? theme.text : theme.boxText;
			context.fillText(this.fit(page.shorts[view.name[node]], size - 2 * TEXT_PAD, chars), x + TEXT_PAD, y + ROW / 2);
		}
	}

	// As much of a name as there is room for.
	fit(name, room, chars) {
		if (name.length <= chars && (/^[\x20-\x7e]*$/.test(name) || this.context.measureText(name).width <= room))
			return name;
		const text = Array.from(name.slice(0, 2 * chars)).slice(0, chars - 1);
		while (text.length && this.context.measureText(`${text.join('')}…`).width > room)
			text.pop();
		return `${text.join('')}…`;
	}

	drawRing() {
		for (const [node, wide] of [[this.hovered, 1], [document.activeElement === this.canvas ? this.focused : -1, 2.5]]) {
			if (node < 0 || !this.isShown(node))
				continue;
			this.context.strokeStyle = this.theme.ring;
			this.context.lineWidth = wide;
			this.context.strokeRect(this.left(node) + wide / 2, this.top(this.view.level[node]) + wide / 2,
				Math.max(this.size(node) - wide, 1), ROW - 1 - wide);
		}
	}

	// The node at a place of the canvas; -1: none.
	at(x, y) {
		const {view} = this;
		if (!view)
			return -1;
		const row = Math.floor((y - this.begin() + this.box.scrollTop) / ROW), level = this.icicle ? row : view.levels - 1 - row;
		if (level < 0 || level >= view.levels)
			return -1;
		let node = this.zoomed;
		if (level <= view.level[node]) {
			while (view.level[node] > level)
				node = view.parent[node];
			return node;
		}
		let where = x / this.unit();
		while (view.level[node] < level) {
			let child = node + 1;
			const end = view.end[node];
			for (; child < end && where >= view.value[child]; child = view.end[child])
				where -= view.value[child];
			if (child >= end)
				return -1;
			node = child;
		}
		return this.size(node) >= LEAST ? node : -1;
	}

	hover(node) {
		if (node === this.hovered)
			return;
		this.hovered = node;
		this.tell();
	}

	tell() {
		const on = document.activeElement === this.canvas;
		this.page.describe(this, this.hovered >= 0 ? this.hovered : on ? this.focused : -1);
		this.redraw();
	}

	zoom(node) {
		if (this.view.rest?.[node])
			node = this.view.parent[node];
		this.zoomed = this.focused = node;
		this.reveal(node);
		this.page.zoomed(this);
		this.page.refine(this);
		this.tell();
	}

	// Scrolls a box into sight, and the one it stands on.
	reveal(node) {
		if (!this.view || !this.height)
			return;
		const y = this.top(this.view.level[node]);
		if (y < ROW)
			this.box.scrollTop += y - ROW;
		else if (y > this.height - 2 * ROW)
			this.box.scrollTop += y - this.height + 2 * ROW;
	}

	focus(node) {
		this.focused = node;
		this.canvas.focus({preventScroll: true});
		this.reveal(node);
		this.tell();
	}

	// One step out: to the next box below that is wider.
	zoomOut() {
		let node = this.zoomed;
		while (node && this.view.value[node] === this.view.value[this.zoomed])
			node = this.view.parent[node];
		this.zoom(node);
	}

	widestChild() {
		const {view, focused} = this;
		let widest = -1;
		for (let child = focused + 1; child < view.end[focused]; child = view.end[child])
			if (this.isShown(child) && !(widest >= 0 && view.value[widest] >= view.value[child]))
				widest = child;
		return widest;
	}

	neighbour(step) {
		const {view} = this;
		for (let node = this.focused + step; node >= 0 && node < view.n; node += step)
			if (view.level[node] === view.level[this.focused] && this.isShown(node))
				return node;
		return -1;
	}

	// The next box that a search has found.
	nextHit(step) {
		const {view, page} = this, begin = this.zoomed, end = view.end[this.zoomed];
		for (let i = 1, node = this.focused; i <= view.n; i++) {
			node += step;
			node = node >= end ? begin : node < begin ? end - 1 : node;
			if (page.hits?.[view.name[node]] && this.isShown(node) && node)
				return node;
		}
		return -1;
	}

	key(event) {
		const up = () => this.icicle ? this.view.parent[this.focused] : this.widestChild();
		const down = () => this.icicle ? this.widestChild() : this.view.parent[this.focused];
		const moves = {ArrowUp: up, ArrowDown: down, ArrowLeft: () => this.neighbour(-1), ArrowRight: () => this.neighbour(1),
			Home: () => this.zoomed};
		if (event.altKey || event.ctrlKey || event.metaKey)
			return;
		if (event.key === 'Enter' || event.key === ' ')
			this.zoom(this.focused);
		else if (event.key === 'Backspace')
			this.zoomOut();
		else if (moves[event.key]) {
			const node = moves[event.key]();
			if (node >= 0)
				this.focus(node);
		} else {
			return;
		}
		event.preventDefault();
		event.stopPropagation();
	}
}
