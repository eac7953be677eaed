// SPDX-License-Identifier: BSD-3-Clause
//
// The panels: time line and heat map, which select a stretch, and the table of functions.

const LANE = 22, STATES = ['running', 'runnable', 'blocked'], MOST_LANES = 512, MOST_BINS = 2048;

const make = (tag, properties = {}, ...children) => {
	const element = Object.assign(document.createElement(tag), properties);
	element.append(...children);
	return element;
};

const seconds = (ns, unit) => {
	const digits = Math.max(0, Math.min(6, Math.round(-Math.log10(unit / 1e9))));
	return `${(ns / 1e9).toFixed(digits)} s`;
};

class Times {
	// `filter` has from, to (buckets) and without (vCPUs); `changed` is called when a person changes it.
	constructor(parent, side, filter, page, changed) {
		Object.assign(this, {side, filter, page, changed});
		this.vcpus = [...new Set(side.groups.vcpu)].sort((a, b) => a - b).slice(0, MOST_LANES);
		this.lanes = new Map(this.vcpus.map((vcpu, i) => [vcpu, i]));
		this.canvas = make('canvas', {tabIndex: 0});
		this.canvas.setAttribute('role', 'slider');
		this.canvas.setAttribute('aria-label', `${side.label} time line: left and right move the stretch that is shown, with Shift they change its end`);
		this.labels = make('div', {className: 'labels'}, ...this.vcpus.map((vcpu) => this.laneLabel(vcpu)));
		this.selected = make('span');
		this.grid = make('div', {className: 'times'}, this.labels, make('div', {className: 'canvas'}, this.canvas),
			make('div', {className: 'span'}, make('span', {textContent: `${side.label} 0 s`}), this.selected,
				make('span', {textContent: seconds(side.buckets * side.bucket_ns, side.bucket_ns)})));
		// Profiles of other tools may have no times.
		this.grid.style.display = side.timeless ? 'none' : '';
		parent.append(this.grid);
		this.sum();
		this.listen();
	}

	laneLabel(vcpu) {
		const box = make('input', {type: 'checkbox', checked: true});
		box.addEventListener('change', () => {
			this.filter.without[box.checked ? 'delete' : 'add'](vcpu);
			this.changed();
		});
		return make('label', {className: 'lane'}, box, `vCPU ${vcpu}`);
	}

	// Sums up the share of each bin, some buckets, that a vCPU was in each state: in 1/bin.
	sum() {
		const {groups, rows, buckets} = this.side, {bucket_ns: length, weighted} = this.side;
		const wide = Math.ceil(buckets / MOST_BINS);
		this.bins = buckets / wide;
		this.height = this.vcpus.length * LANE || LANE;
		this.parts = this.vcpus.map(() => STATES.map(() => new Float32Array(Math.ceil(this.bins))));
		let most = 0;
		for (let g = 0; g < groups.n; g++) {
			const lane = this.lanes.get(groups.vcpu[g]);
			let sum = 0;
			if (lane === undefined)
				continue;
			for (let row = groups.first[g]; row < groups.first[g + 1]; row++)
				sum += weighted ? rows.weight[row] : rows.samples[row];
			const parts = this.parts[lane][groups.state[g]], bin = Math.floor(groups.bucket[g] / wide);
			most = Math.max(most, parts[bin] += sum);
		}
		this.scale = weighted ? 1 / (length * wide) : 1 / (most || 1);
	}

	listen() {
		new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
		this.canvas.addEventListener('pointerdown', (event) => {
			this.canvas.setPointerCapture(event.pointerId);
			this.anchor = this.bucketAt(event.offsetX);
			this.brush(this.anchor, this.anchor + 1);
		});
		this.canvas.addEventListener('pointermove', (event) => {
			if (this.anchor === undefined)
				return;
			const bucket = this.bucketAt(event.offsetX);
			this.brush(Math.min(bucket, this.anchor), Math.max(bucket, this.anchor) + 1);
		});
		for (const name of ['pointerup', 'pointercancel'])
			this.canvas.addEventListener(name, (event) => {
				// A click selects nothing: it takes the brush away.
				if (this.anchor !== undefined && this.bucketAt(event.offsetX) === this.anchor)
					this.brush(0, this.side.buckets);
				this.anchor = undefined;
			});
		this.canvas.addEventListener('keydown', (event) => this.key(event));
	}

	bucketAt(x) {
		return Math.max(0, Math.min(this.side.buckets - 1, Math.floor(x / this.width * this.side.buckets)));
	}

	brush(from, to) {
		this.filter.from = from;
		this.filter.to = to;
		this.draw();
		this.changed();
	}

	key(event) {
		const {filter, side} = this, step = {ArrowLeft: -1, ArrowRight: 1}[event.key], all = side.buckets;
		if (event.altKey || event.ctrlKey || event.metaKey || !step && event.key !== 'Backspace')
			return;
		event.preventDefault();
		event.stopPropagation();
		if (!step)
			return this.brush(0, all);
		const by = step * Math.max(1, Math.round(all / 50)), whole = filter.to - filter.from === all;
		if (whole)
			return this.brush(step > 0 ? 0 : all - Math.ceil(all / 5), step > 0 ? Math.ceil(all / 5) : all);
		if (event.shiftKey)
			return this.brush(filter.from, Math.max(filter.from + 1, Math.min(all, filter.to + by)));
		const move = Math.max(-filter.from, Math.min(all - filter.to, by));
		this.brush(filter.from + move, filter.to + move);
	}

	draw() {
		const {canvas, side, filter} = this, ratio = window.devicePixelRatio || 1, theme = this.page.theme();
		this.width = canvas.parentElement.clientWidth;
		if (!this.width)
			return;
		canvas.style.width = `${this.width}px`;
		canvas.style.height = `${this.height}px`;
		canvas.width = Math.round(this.width * ratio);
		canvas.height = Math.round(this.height * ratio);
		const context = canvas.getContext('2d', {alpha: false});
		context.drawImage(this.lanesPicture(theme, canvas.width, ratio), 0, 0);
		context.scale(ratio, ratio);
		this.drawBrush(context, theme);
		const whole = filter.to - filter.from >= side.buckets, time = (bucket) => seconds(bucket * side.bucket_ns, side.bucket_ns);
		this.selected.textContent = whole ? 'all of the time; drag to select a stretch'
			: `${time(filter.from)} to ${time(filter.to)}`;
		canvas.setAttribute('aria-valuetext', this.selected.textContent);
		canvas.setAttribute('aria-valuemin', 0);
		canvas.setAttribute('aria-valuemax', side.buckets);
		canvas.setAttribute('aria-valuenow', filter.from);
	}

	// The lanes alone, kept until they would look different: a brush that moves does not draw them again.
	lanesPicture(theme, width, ratio) {
		const key = [theme.ground, width, this.page.states].join();
		if (this.pictureKey === key)
			return this.picture;
		this.pictureKey = key;
		this.picture = make('canvas', {width, height: Math.round(this.height * ratio)});
		const context = this.picture.getContext('2d', {alpha: false});
		context.fillStyle = theme.ground;
		context.fillRect(0, 0, width, this.picture.height);
		this.parts.forEach((parts, lane) => this.drawLane(context, parts, lane * LANE * ratio, theme, width, ratio));
		return this.picture;
	}

	// In pixels of the screen, a column each: the mean of the buckets that it stands for.
	drawLane(context, parts, top, theme, width, ratio) {
		const {bins} = this, height = (LANE - 4) * ratio, begin = top + 2 * ratio;
		context.globalAlpha = 1;
		context.fillStyle = theme.over;
		context.fillRect(0, begin, width, height);
		for (let x = 0; x < width; x++) {
			const from = Math.floor(x / width * bins), to = Math.max(from + 1, Math.floor((x + 1) / width * bins));
			let y = begin + height;
			STATES.forEach((name, state) => {
				let sum = 0;
				for (let bin = from; bin < to; bin++)
					sum += parts[state][bin];
				const part = Math.min(Math.round(sum / (to - from) * this.scale * height), y - begin);
				if (part <= 0)
					return;
				context.fillStyle = theme[name];
				context.globalAlpha = this.page.states >> state & 1 ? 1 : 0.35;
				context.fillRect(x, y - part, 1, part);
				y -= part;
			});
		}
	}

	drawBrush(context, theme) {
		const {filter, side} = this, x = (bucket) => bucket / side.buckets * this.width;
		if (filter.to - filter.from >= side.buckets)
			return;
		context.fillStyle = theme.ground;
		context.globalAlpha = 0.7;
		context.fillRect(0, 0, x(filter.from), this.height);
		context.fillRect(x(filter.to), 0, this.width, this.height);
		context.globalAlpha = 1;
		context.strokeStyle = theme.brush;
		context.lineWidth = 2;
		context.strokeRect(x(filter.from) + 1, 1, Math.max(x(filter.to) - x(filter.from) - 2, 1), this.height - 2);
	}
}

// The heat map: seconds across, the offset in a second down (B. Gregg's FlameScope). A sample's cell is that of
// its bucket's beginning; as the time line does, it selects a stretch from one bucket to another.

const NS_PER_S = 1e9, HEAT_ROWS = 64, HEAT_AXIS = 52, HEAT_FOOT = 18, HEAT_COLUMN = 3, HEAT_WIDEST = 48;
const HEAT_STEPS = 32; // shades

class Heat {
	// As for Times; `label` tells two sides apart.
	constructor(parent, side, filter, page, changed) {
		Object.assign(this, {side, filter, page, changed, at: 0});
		this.canvas = make('canvas', {tabIndex: 0});
		this.canvas.setAttribute('role', 'application');
		this.canvas.setAttribute('aria-label', `${side.label} heat map of time, seconds across, the offset in a second down: arrow keys move, with Shift they select a stretch, Enter shows its flame graph`.trim());
		this.canvas.setAttribute('aria-describedby', 'details');
		this.legend = make('p', {className: 'heat-legend'});
		this.box = make('div', {className: 'heat-box'}, this.canvas);
		parent.append(make('section', {className: 'heat', ariaLabel: `${side.label} heat map`.trim()}, this.box, this.legend));
		this.rows = Math.max(1, Math.min(HEAT_ROWS, Math.floor(NS_PER_S / side.bucket_ns)));
		this.seconds = Math.max(1, Math.ceil(side.buckets * side.bucket_ns / NS_PER_S));
		this.listen();
	}

	listen() {
		const {canvas} = this, cell = (event) => this.cellAt(event.offsetX, event.offsetY);
		new ResizeObserver(() => this.draw()).observe(this.box);
		canvas.addEventListener('pointerdown', (event) => {
			canvas.setPointerCapture(event.pointerId);
			this.at = this.anchor = cell(event);
			this.moved = false;
			this.draw();
			this.tell();
		});
		canvas.addEventListener('pointermove', (event) => {
			if (this.anchor === undefined)
				return this.tell(cell(event));
			this.moved ||= cell(event) !== this.anchor;
			this.at = cell(event);
			if (this.moved)
				this.brush(this.anchor, this.at);
		});
		canvas.addEventListener('pointerleave', () => this.tell(-1));
		for (const name of ['pointerup', 'pointercancel'])
			canvas.addEventListener(name, () => {
				// A click selects nothing: it takes the selection away.
				if (this.anchor !== undefined && !this.moved)
					this.select(0, this.side.buckets);
				this.anchor = undefined;
			});
		for (const name of ['focus', 'blur'])
			canvas.addEventListener(name, () => { this.draw(); this.tell(); });
		canvas.addEventListener('keydown', (event) => this.key(event));
	}

	key(event) {
		const {rows, columns} = this, step = {ArrowLeft: -rows, ArrowRight: rows, ArrowUp: -1, ArrowDown: 1}[event.key];
		if (event.altKey || event.ctrlKey || event.metaKey || !step && !['Backspace', 'Enter', ' ', 'Home'].includes(event.key))
			return;
		event.preventDefault();
		event.stopPropagation();
		if (event.key === 'Backspace')
			return this.select(0, this.side.buckets);
		if (!step && event.key !== 'Home')
			return this.page.showStretch();
		const to = step ? this.at + step : 0;
		if (event.shiftKey)
			this.from ??= this.at;
		else
			this.from = undefined;
		if (to >= 0 && to < rows * columns)
			this.at = to;
		if (event.shiftKey)
			this.brush(this.from, this.at);
		this.draw();
		this.tell();
	}

	// Begin and end of a cell's first and last second's stretch, in ns.
	beginOf(cell) {
		return (Math.floor(cell / this.rows) * this.columnSeconds + cell % this.rows / this.rows) * NS_PER_S;
	}

	endOf(cell) {
		return this.beginOf(cell) + ((this.columnSeconds - 1) + 1 / this.rows) * NS_PER_S;
	}

	bucketFrom(ns) {
		return Math.max(0, Math.min(this.side.buckets, Math.ceil(ns / this.side.bucket_ns - 1e-6)));
	}

	// Selects from one cell to another, in order of time.
	brush(one, other) {
		const from = this.bucketFrom(this.beginOf(Math.min(one, other))), to = this.bucketFrom(this.endOf(Math.max(one, other)));
		this.select(Math.min(from, this.side.buckets - 1), Math.max(from + 1, to));
	}

	select(from, to) {
		Object.assign(this.filter, {from, to: Math.min(to, this.side.buckets)});
		this.draw();
		this.changed();
	}

	cellAt(x, y) {
		const column = Math.floor((x - HEAT_AXIS) / this.cellWidth), row = Math.floor(y / this.cellHeight);
		return Math.max(0, Math.min(this.columns - 1, column)) * this.rows + Math.max(0, Math.min(this.rows - 1, row));
	}

	resize() {
		const {canvas, box} = this, ratio = window.devicePixelRatio || 1;
		this.width = box.clientWidth;
		this.height = box.clientHeight;
		canvas.style.width = `${this.width}px`;
		canvas.style.height = `${this.height}px`;
		canvas.width = Math.round(this.width * ratio);
		canvas.height = Math.round(this.height * ratio);
		const room = Math.max(HEAT_COLUMN, this.width - HEAT_AXIS), {bucket_ns: length} = this.side;
		// Buckets may be longer than a second.
		this.columnSeconds = Math.max(Math.ceil(this.seconds / Math.floor(room / HEAT_COLUMN)), Math.ceil(length / NS_PER_S));
		this.columns = Math.ceil(this.seconds / this.columnSeconds);
		this.cellWidth = Math.min(HEAT_WIDEST, room / this.columns);
		this.cellHeight = Math.max(1, (this.height - HEAT_FOOT) / this.rows);
		this.at = Math.min(this.at, this.columns * this.rows - 1);
	}

	// What lies in each cell of what states, vCPUs and the search leave, whatever stretch is selected.
	sum() {
		const {side, filter, page, rows, columns, columnSeconds} = this, {groups, weighted} = side, inside = page.hitsInside();
		const key = [page.states, [...filter.without], inside ? page.pattern : '', page.anyCase, columns, columnSeconds].join();
		if (key === this.summed)
			return;
		Object.assign(this, {summed: key, most: 0, mostSamples: 0, values: new Float64Array(columns * rows), samples: new Float64Array(columns * rows)});
		for (let g = 0; g < groups.n; g++) {
			if (!(page.states >> groups.state[g] & 1) || filter.without.has(groups.vcpu[g]))
				continue;
			const ns = groups.bucket[g] * side.bucket_ns, second = Math.floor(ns / NS_PER_S);
			const row = Math.min(rows - 1, Math.floor((ns - second * NS_PER_S) * rows / NS_PER_S));
			const cell = Math.floor(second / columnSeconds) * rows + row;
			for (let at = groups.first[g]; at < groups.first[g + 1]; at++) {
				if (inside && !inside[side.rows.node[at]])
					continue;
				this.values[cell] += weighted ? side.rows.weight[at] : side.rows.samples[at];
				this.samples[cell] += side.rows.samples[at];
			}
			this.most = Math.max(this.most, this.values[cell]);
			this.mostSamples = Math.max(this.mostSamples, this.samples[cell]);
		}
	}

	draw() {
		if (!this.box.clientWidth)
			return;
		this.resize();
		this.sum();
		const {canvas, page} = this, ratio = canvas.width / this.width, theme = page.theme();
		const context = canvas.getContext('2d', {alpha: false});
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.fillStyle = theme.ground;
		context.fillRect(0, 0, this.width, this.height);
		context.fillStyle = theme.over;
		context.fillRect(HEAT_AXIS, 0, this.columns * this.cellWidth, this.rows * this.cellHeight);
		this.drawCells(context, heatShades(theme), ratio);
		this.drawAxes(context, theme);
		this.drawSelected(context, theme);
		this.tellLegend(theme);
	}

	// Cells begin and end with pixels of the screen, or they would have seams.
	drawCells(context, shades, ratio) {
		const {rows, columns, samples, most} = this, pixel = (value) => Math.round(value * ratio) / ratio;
		for (let column = 0; column < columns; column++) {
			const x = pixel(HEAT_AXIS + column * this.cellWidth), width = pixel(HEAT_AXIS + (column + 1) * this.cellWidth) - x;
			for (let row = 0; row < rows; row++) {
				const cell = column * rows + row, y = pixel(row * this.cellHeight);
				if (!samples[cell])
					continue;
				context.fillStyle = shades[most ? Math.round(this.values[cell] / most * HEAT_STEPS) : HEAT_STEPS];
				context.fillRect(x, y, width, pixel((row + 1) * this.cellHeight) - y);
			}
		}
	}

	drawAxes(context, theme) {
		context.fillStyle = theme.text;
		context.font = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
		context.textBaseline = 'top';
		context.textAlign = 'right';
		const high = this.rows * this.cellHeight, parts = high >= 200 ? 10 : 4;
		for (let part = 0; part < parts; part++)
			context.fillText(`${1000 * part / parts} ms`, HEAT_AXIS - 5, Math.max(3, high * part / parts));
		context.textAlign = 'left';
		let free = 0;
		for (let column = 0; column < this.columns; column++) {
			const text = `${column * this.columnSeconds} s`, x = HEAT_AXIS + column * this.cellWidth, {width} = context.measureText(text);
			if (x < free || column && x + width > this.width)
				continue;
			context.fillText(text, x, high + 4);
			free = x + Math.max(width + 12, 60);
		}
	}

	// What is not selected is pale; the cell in focus has a ring.
	drawSelected(context, theme) {
		const {filter, side, rows, columns, columnSeconds} = this, high = rows * this.cellHeight, ratio = this.canvas.width / this.width;
		const first = filter.from * side.bucket_ns / NS_PER_S, last = filter.to * side.bucket_ns / NS_PER_S;
		const pixel = (value) => Math.round(value * ratio) / ratio, left = (column) => pixel(HEAT_AXIS + column * this.cellWidth);
		// Row that a time lies at, in a column of which `second` is the one that counts.
		const y = (time, second) => pixel(Math.max(0, Math.min(rows, Math.round((time - second) * rows))) * this.cellHeight);
		context.fillStyle = theme.ground;
		context.globalAlpha = 0.72;
		for (let column = 0; column < columns && filter.to - filter.from < side.buckets; column++) {
			const begin = column * columnSeconds, end = begin + columnSeconds, outside = first >= end || last <= begin;
			const above = outside ? high : first > begin ? y(first, Math.floor(first)) : 0;
			const below = outside || last >= end ? high : y(last, Math.ceil(last) - 1);
			context.fillRect(left(column), 0, left(column + 1) - left(column), above);
			if (below < high)
				context.fillRect(left(column), Math.max(above, below), left(column + 1) - left(column), high - Math.max(above, below));
		}
		context.globalAlpha = 1;
		if (document.activeElement !== this.canvas)
			return;
		context.strokeStyle = theme.ring;
		context.lineWidth = 2;
		context.strokeRect(HEAT_AXIS + Math.floor(this.at / rows) * this.cellWidth - 1, this.at % rows * this.cellHeight - 1, this.cellWidth + 2, this.cellHeight + 2);
	}

	tellLegend(theme) {
		const {side, most, columnSeconds} = this, cell = (1000 / this.rows).toFixed(this.rows > 100 || 1000 % this.rows === 0 ? 0 : 1);
		const shades = heatShades(theme), whole = this.filter.to - this.filter.from >= side.buckets, time = (bucket) => seconds(bucket * side.bucket_ns, 1e6);
		const patches = [0, 0.25, 0.5, 0.75, 1].map((part) => {
			const patch = make('i');
			patch.style.background = shades[Math.round(part * HEAT_STEPS)];
			return patch;
		});
		const label = side.label ? `${side.label[0].toUpperCase()}${side.label.slice(1)}: ` : '';
		const weight = side.weighted ? `, ${(most / 1e9).toFixed(3)} s` : '';
		const chosen = whole ? 'all of the time; drag to select a stretch' : `${time(this.filter.from)} to ${time(this.filter.to)}`;
		this.legend.replaceChildren(make('span', {}, ...patches),
			`${label}up to ${count(this.mostSamples, 'sample')}${weight} in a cell of ${cell} ms${columnSeconds > 1 ? ` of ${columnSeconds} seconds` : ''}${this.page.hits ? ', of stacks that match' : ''}`,
			make('b', {textContent: chosen}));
	}

	// What a cell has: the one under the mouse, or in focus.
	tell(cell = document.activeElement === this.canvas ? this.at : -1) {
		if (this.page.view !== 'heat')
			return;
		if (cell < 0 && document.activeElement === this.canvas)
			cell = this.at;
		if (cell < 0 || !this.values) {
			get('details').textContent = '';
			return;
		}
		const {side} = this, begin = this.beginOf(cell), row = NS_PER_S / this.rows, time = (ns) => seconds(ns, 1e6);
		const weight = side.weighted ? `, ${(this.values[cell] / 1e9).toFixed(3)} s` : '';
		const merged = this.columnSeconds > 1 ? ` and the same offset of the ${count(this.columnSeconds - 1, 'second')} behind` : '';
		get('details').textContent = `${side.label ? `${side.label}, ` : ''}${time(begin)} to ${time(begin + row)}${merged}: ${count(this.samples[cell], 'sample')}${weight}`;
	}
}

// From nearly the ground to the hottest colour of the theme.
function heatShades(theme) {
	const stops = [theme.heatLow, theme.heatMiddle, theme.heatHigh].map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
	return Array.from({length: HEAT_STEPS + 1}, (_, step) => {
		const place = step / HEAT_STEPS * 2, from = stops[Math.min(1, Math.floor(place))], to = stops[Math.min(1, Math.floor(place)) + 1], part = place - Math.min(1, Math.floor(place));
		return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * part)).join()})`;
	});
}

// The table of functions beside the sandwich: a real table, for whoever cannot see the picture, too.

const MOST_ROWS = 300;

class Functions {
	constructor(parent, page) {
		this.parent = parent;
		this.page = page;
		this.sortBy = 'total';
	}

	columns() {
		if (this.page.profile.sides.length === 1)
			return [['self', 'Self'], ['total', 'Total']];
		return [['self', 'Self ±'], ['total', 'Total ±']];
	}

	// [{name, self, total, changed}]: shares, or their changes
	rows() {
		const {sums, wholes, draws, names} = this.page.functions, two = wholes.length === 2;
		const shares = (column, side) => sums.list.map((name) => wholes[side] ? column[side][name] / wholes[side] : 0);
		const before = {self: shares(sums.self, 0), total: shares(sums.total, 0)};
		const after = two && {self: shares(sums.self, 1), total: shares(sums.total, 1)};
		const marks = two && {self: markChanges(before.self, after.self, draws), total: markChanges(before.total, after.total, draws)};
		return sums.list.map((name, i) => ({name, text: names[name],
			self: two ? after.self[i] - before.self[i] : before.self[i],
			total: two ? after.total[i] - before.total[i] : before.total[i],
			marks: two && {self: marks.self[i], total: marks.total[i]},
			title: two ? changeText(before.total[i], after.total[i], marks.total[i]) : ''}));
	}

	show() {
		const {hits} = this.page, by = this.sortBy, rows = this.rows().filter((row) => !hits || hits[row.name]);
		const sign = (row) => row.marks ? Math.abs(row[by]) * (row.marks[by] ? 1 : 1e-6) : row[by];
		rows.sort((a, b) => sign(b) - sign(a) || b.self - a.self || (a.text < b.text ? -1 : 1));
		const head = this.columns().map(([key, title]) => this.heading(key, title));
		const body = rows.slice(0, MOST_ROWS).map((row) => this.row(row));
		const table = make('table', {}, make('thead', {}, make('tr', {}, ...head, make('th', {scope: 'col', textContent: 'Function'}))),
			make('tbody', {}, ...body));
		const more = rows.length - MOST_ROWS;
		this.parent.replaceChildren(table, ...more > 0 ? [make('p', {textContent: `${more.toLocaleString('en-US')} more: search for them`})] : []);
	}

	heading(key, title) {
		const button = make('button', {type: 'button', textContent: title, title: 'Sort by this column'});
		const cell = make('th', {scope: 'col'}, button);
		if (this.sortBy === key)
			cell.setAttribute('aria-sort', 'descending');
		button.addEventListener('click', () => {
			this.sortBy = key;
			this.show();
		});
		return cell;
	}

	row(row) {
		const {page} = this, button = make('button', {type: 'button', textContent: page.shorts[row.name], title: page.names[row.name].slice(0, 1000)});
		const cells = this.columns().map(([key]) => make('td', {title: row.title,
			className: row.marks && !row.marks[key] ? 'noise' : '',
			textContent: row.marks ? `${row[key] > 0 ? '+' : row[key] < 0 ? '−' : ''}${(100 * Math.abs(row[key])).toFixed(2)}${row.marks[key] ? ' *' : ''}`
				: percent(row[key], 1)}));
		const line = make('tr', {}, ...cells, make('td', {className: page.hits ? 'hit' : ''}, button));
		line.setAttribute('aria-current', row.name === page.chosen);
		button.addEventListener('click', () => page.openFunction(row.name));
		return line;
	}
}
