// SPDX-License-Identifier: BSD-3-Clause
//
// The time line: what each vCPU did when, and the brush that selects a stretch.

const LANE = 22, STATES = ['running', 'runnable', 'blocked'], MOST_LANES = 512;

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

	// Sums up the share of each bucket that a vCPU was in each state: in 1/bucket.
	sum() {
		const {groups, rows, buckets} = this.side, {bucket_ns: length, weighted} = this.side;
		this.height = this.vcpus.length * LANE || LANE;
		this.parts = this.vcpus.map(() => STATES.map(() => new Float32Array(buckets)));
		let most = 0;
		for (let g = 0; g < groups.n; g++) {
			const lane = this.lanes.get(groups.vcpu[g]);
			let sum = 0;
			if (lane === undefined)
				continue;
			for (let row = groups.first[g]; row < groups.first[g + 1]; row++)
				sum += weighted ? rows.weight[row] : rows.samples[row];
			this.parts[lane][groups.state[g]][groups.bucket[g]] += sum;
			most = Math.max(most, sum);
		}
		this.scale = weighted ? 1 / length : 1 / (most || 1);
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
		const {buckets} = this.side, height = (LANE - 4) * ratio, begin = top + 2 * ratio;
		context.globalAlpha = 1;
		context.fillStyle = theme.over;
		context.fillRect(0, begin, width, height);
		for (let x = 0; x < width; x++) {
			const from = Math.floor(x / width * buckets), to = Math.max(from + 1, Math.floor((x + 1) / width * buckets));
			let y = begin + height;
			STATES.forEach((name, state) => {
				let sum = 0;
				for (let bucket = from; bucket < to; bucket++)
					sum += parts[state][bucket];
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
