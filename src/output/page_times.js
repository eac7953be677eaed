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
	// `filter` has from, to (slices) and without (vCPUs); `changed` is called when a person changes it.
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
				make('span', {textContent: seconds(side.slices * side.slice_ns, side.slice_ns)})));
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

	// How much of each slice a vCPU was in each state: in 1/slice.
	sum() {
		const {groups, rows, slices} = this.side, {slice_ns: length, weighted} = this.side;
		this.height = this.vcpus.length * LANE || LANE;
		this.parts = this.vcpus.map(() => STATES.map(() => new Float32Array(slices)));
		let most = 0;
		for (let g = 0; g < groups.n; g++) {
			const lane = this.lanes.get(groups.vcpu[g]);
			let sum = 0;
			if (lane === undefined)
				continue;
			for (let row = groups.first[g]; row < groups.first[g + 1]; row++)
				sum += weighted ? rows.weight[row] : rows.samples[row];
			this.parts[lane][groups.state[g]][groups.slice[g]] += sum;
			most = Math.max(most, sum);
		}
		this.scale = weighted ? 1 / length : 1 / (most || 1);
	}

	listen() {
		new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
		this.canvas.addEventListener('pointerdown', (event) => {
			this.canvas.setPointerCapture(event.pointerId);
			this.anchor = this.sliceAt(event.offsetX);
			this.brush(this.anchor, this.anchor + 1);
		});
		this.canvas.addEventListener('pointermove', (event) => {
			if (this.anchor === undefined)
				return;
			const slice = this.sliceAt(event.offsetX);
			this.brush(Math.min(slice, this.anchor), Math.max(slice, this.anchor) + 1);
		});
		for (const name of ['pointerup', 'pointercancel'])
			this.canvas.addEventListener(name, (event) => {
				// A click selects nothing: it takes the brush away.
				if (this.anchor !== undefined && this.sliceAt(event.offsetX) === this.anchor)
					this.brush(0, this.side.slices);
				this.anchor = undefined;
			});
		this.canvas.addEventListener('keydown', (event) => this.key(event));
	}

	sliceAt(x) {
		return Math.max(0, Math.min(this.side.slices - 1, Math.floor(x / this.width * this.side.slices)));
	}

	brush(from, to) {
		this.filter.from = from;
		this.filter.to = to;
		this.draw();
		this.changed();
	}

	key(event) {
		const {filter, side} = this, step = {ArrowLeft: -1, ArrowRight: 1}[event.key], all = side.slices;
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
		const whole = filter.to - filter.from >= side.slices, time = (slice) => seconds(slice * side.slice_ns, side.slice_ns);
		this.selected.textContent = whole ? 'all of the time; drag to select a stretch'
			: `${time(filter.from)} to ${time(filter.to)}`;
		canvas.setAttribute('aria-valuetext', this.selected.textContent);
		canvas.setAttribute('aria-valuemin', 0);
		canvas.setAttribute('aria-valuemax', side.slices);
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

	// In pixels of the screen, a column each: the mean of the slices that it stands for.
	drawLane(context, parts, top, theme, width, ratio) {
		const {slices} = this.side, height = (LANE - 4) * ratio, begin = top + 2 * ratio;
		context.globalAlpha = 1;
		context.fillStyle = theme.over;
		context.fillRect(0, begin, width, height);
		for (let x = 0; x < width; x++) {
			const from = Math.floor(x / width * slices), to = Math.max(from + 1, Math.floor((x + 1) / width * slices));
			let y = begin + height;
			STATES.forEach((name, state) => {
				let sum = 0;
				for (let slice = from; slice < to; slice++)
					sum += parts[state][slice];
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
		const {filter, side} = this, x = (slice) => slice / side.slices * this.width;
		if (filter.to - filter.from >= side.slices)
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
