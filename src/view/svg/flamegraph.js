// SPDX-License-Identifier: BSD-3-Clause
//
// Interaction with the picture: zoom, search, hover, keyboard, and its state in the address.
// Without it the picture is complete, but still. Names are handled as text only.
'use strict';
(() => {

const svg = document.currentScript.closest('svg');
const group = svg.querySelector('.frames');
const alone = document.documentElement === svg; // not part of somebody's page
const {pad, row, cell, textPad, minCells, gap, gapFrom, narrow, bar: barY, foot: footY} = // as it was drawn
	Object.fromEntries(Object.entries(svg.dataset).map(([name, value]) => [name, Number(value)]));
const barHeight = 32, footHeight = 28;
const icicle = svg.dataset.order === 'icicle';

const maker = (namespace) => (tag, attributes = {}, ...children) => {
	const element = document.createElementNS(namespace, tag);
	for (const [name, value] of Object.entries(attributes))
		element.setAttribute(name, value);
	element.append(...children);
	return element;
};
const create = maker('http://www.w3.org/2000/svg');
const html = maker('http://www.w3.org/1999/xhtml');

const percent = (part, whole) => `${(whole ? 100 * part / whole : 0).toFixed(2)} %`;
const count = (n, what) => `${n.toLocaleString('en-US')} ${what}${n === 1 ? '' : 's'}`;

// ---- The frames, as the file lists them: each parent before its children, level by its row.

function readFrames() {
	const path = []; // the last frame of each level
	const frames = [];
	for (const g of group.children) {
		const rect = g.querySelector('rect');
		const y = Number(rect.getAttribute('y'));
		const level = Math.round(Math.abs(y - (frames[0] ?? {y}).y) / row);
		const parent = level ? path[level - 1] : null;
		const samples = Number(g.dataset.samples);
		const value = Number(g.dataset.weight ?? samples) || (parent ? 0 : 1);
		const frame = {g, rect, y, level, parent, samples, value, index: frames.length, end: frames.length + 1,
			name: g.dataset.short ?? g.dataset.name, full: g.dataset.name, label: g.querySelector('text'), shown: true};
		frame.offset = frame.next = parent ? parent.next : 0;
		if (parent)
			parent.next += value;
		path[level] = frame;
		frames.push(frame);
		g.setAttribute('role', 'treeitem');
		g.setAttribute('aria-level', level + 1);
	}
	for (let i = frames.length - 1; i > 0; i--)
		frames[i].parent.end = Math.max(frames[i].parent.end, frames[i].end);
	return frames;
}

const frames = readFrames();
const root = frames[0];
const byElement = new Map(frames.map((frame) => [frame.g, frame]));
const frameAt = (target) => byElement.get(target.closest('.frames > g'));
const below = (frame, above) => above.index <= frame.index && frame.index < above.end;

// ---- Positions of frames. `zoomed` fills the width; what it stands on is shown full and pale.

let width = Number(svg.getAttribute('width'));
let zoomed = root, focused = root;

function fit(name, cells) {
	let used = 0, text = '';
	if (cells < minCells)
		return '';
	if (name.length * 2 <= cells)
		return name;
	for (const char of name) {
		used += char.codePointAt(0) < 0x1100 ? 1 : 2;
		if (used > cells)
			return `${text}…`;
		if (used < cells)
			text += char;
	}
	return name;
}

function place(frame, x, size) {
	frame.shown = size >= 0.1;
	frame.g.classList.toggle('gone', !frame.shown);
	if (!frame.shown)
		return;
	frame.rect.setAttribute('x', (pad + x).toFixed(2));
	frame.rect.setAttribute('width', (size < gapFrom ? size : size - gap).toFixed(2));
	frame.g.classList.toggle('narrow', size < narrow);
	const text = fit(frame.name, Math.floor((size - 2 * textPad) / cell));
	if (text && !frame.label)
		frame.label = frame.g.appendChild(create('text', {y: frame.y + 13}));
	if (frame.label)
		frame.label.textContent = text;
	frame.label?.setAttribute('x', (pad + x + textPad).toFixed(2));
}

function layout() {
	const inner = width - 2 * pad, unit = inner / zoomed.value;
	for (const frame of frames) {
		const inside = below(frame, zoomed), up = !inside && below(zoomed, frame);
		frame.g.classList.toggle('up', up);
		if (inside)
			place(frame, (frame.offset - zoomed.offset) * unit, frame.value * unit);
		else
			place(frame, 0, up ? inner : 0);
	}
	moveRing();
}

// A picture that was not given a width is as wide as its window.
function fillWindow() {
	const room = Math.max(svg.clientWidth, 640);
	if (alone && svg.dataset.fluid === 'yes' && room !== width) {
		width = room;
		for (const element of [svg, bar, foot])
			element.setAttribute('width', width);
		svg.setAttribute('viewBox', `0 0 ${width} ${svg.getAttribute('height')}`);
		layout();
	}
	pin();
}

// ---- The warning, the bar and the line below the frames stay in sight when a tall picture scrolls.

const path = html('nav', {class: 'path', 'aria-label': 'Zoomed to'});
const found = html('output', {class: 'found'});
const field = html('input', {type: 'text', placeholder: 'Search: / or Ctrl-F', spellcheck: 'false',
	title: 'A regular expression. Enter: go to a match, then n and N',
	'aria-label': 'Search names by regular expression'});
const caseButton = html('button', {type: 'button', title: 'Ignore upper and lower case'}, 'a=A');
const resetButton = html('button', {type: 'button', title: 'Zoom out and clear the search (Esc)'}, 'Reset');
const details = html('div', {class: 'details', 'aria-live': 'polite'});
const bar = create('foreignObject', {x: 0, y: barY, width, height: barHeight});
const foot = create('foreignObject', {x: 0, y: footY, width, height: footHeight});
const [summary, leftOut] = Array.from(svg.querySelectorAll('.still'), (text) => text.textContent);
const ring = create('rect', {class: 'ring', hidden: ''});
const warning = svg.querySelector('g.warning') ?? create('g');
const topY = warning.dataset.y ? Number(warning.dataset.y) : barY;

function pin() {
	if (!alone)
		return;
	const down = Math.max(0, window.scrollY - topY);
	warning.setAttribute('transform', `translate(0 ${down})`);
	bar.setAttribute('y', barY + down);
	foot.setAttribute('y', Math.min(footY, window.scrollY + svg.clientHeight - footHeight));
}

// Scrolls a frame out from under the bar and the line.
function reveal(frame) {
	const above = frame.y - row - barHeight - (barY - topY);
	const beneath = frame.y + 2 * row + footHeight - svg.clientHeight;
	if (alone && window.scrollY > above)
		window.scrollTo(window.scrollX, above);
	else if (alone && window.scrollY < beneath)
		window.scrollTo(window.scrollX, beneath);
	pin();
}

function showDetails(frame) {
	const inside = frame && zoomed !== root && frame !== zoomed && below(frame, zoomed);
	details.textContent = (frame ? frame.g.querySelector('title').textContent : leftOut)
		+ (inside ? `, ${percent(frame.value, zoomed.value)} of what is shown` : '');
}

function moveRing() {
	const on = document.activeElement === focused.g && focused.shown;
	showDetails(on ? focused : null);
	ring.toggleAttribute('hidden', !on);
	for (const name of ['x', 'y', 'width', 'height'])
		ring.setAttribute(name, focused.rect.getAttribute(name));
}

// The tab key stops at one frame, the arrow keys go on from there.
function setTabStop(frame) {
	focused.g.setAttribute('tabindex', -1);
	focused = frame;
	frame.g.setAttribute('tabindex', 0);
}

function focus(frame) {
	setTabStop(frame);
	frame.g.focus({preventScroll: true});
	reveal(frame);
	moveRing();
}

// ---- Zoom.

function showPath() {
	const crumbs = [];
	for (let frame = zoomed; frame; frame = frame.parent)
		crumbs.unshift(frame);
	if (crumbs.length > 5)
		crumbs.splice(2, crumbs.length - 4, null);
	const parts = crumbs.flatMap((frame) => {
		const name = frame ? frame.name : '…';
		const button = frame && frame !== zoomed;
		const part = html(button ? 'button' : 'span', {title: frame ? frame.full : name, 'aria-current': frame === zoomed}, name);
		if (button)
			part.addEventListener('click', () => zoom(frame));
		return [part, html('span', {'aria-hidden': true}, '›')];
	});
	path.replaceChildren(...(zoomed === root ? [html('span', {}, summary)] : parts.slice(0, -1)));
}

function setZoom(frame) {
	zoomed = frame;
	layout();
	if (!focused.shown)
		setTabStop(frame);
	showPath();
	resetButton.disabled = zoomed === root && !pattern;
}

function zoom(frame) {
	if (frame !== zoomed) {
		setZoom(frame);
		writeState('pushState');
	}
	reveal(frame);
	showDetails(frame === root ? null : frame);
}

// One step out: to the next frame below that is wider.
function zoomOut() {
	let frame = zoomed;
	while (frame.parent && frame.value === zoomed.value)
		frame = frame.parent;
	zoom(frame);
}

// ---- Search. A match within a match counts once.

let pattern = '', anyCase = false, hits = [];

function compile() {
	try {
		return pattern ? new RegExp(pattern, anyCase ? 'i' : '') : null;
	} catch (error) {
		return null;
	}
}

function search() {
	const expression = compile();
	const bad = pattern !== '' && !expression;
	const shares = () => svg.dataset.unit === 'change' ? `${before.toFixed(2)} % before, ${after.toFixed(2)} % after`
		: percent(value, root.value);
	const names = expression ? [...new Set(frames.flatMap((frame) => [frame.name, frame.full]))] : [];
	const matching = new Set(names.filter((name) => expression.test(name)));
	let value = 0, samples = 0, end = 0;
	let before = 0, after = 0;
	hits = frames.filter((frame) => matching.has(frame.name) || matching.has(frame.full));
	for (const g of group.querySelectorAll('.hit'))
		g.classList.remove('hit');
	for (const frame of hits) {
		frame.g.classList.add('hit');
		if (frame.index >= end) {
			value += frame.value;
			samples += frame.samples;
			before += Number(frame.g.dataset.before);
			after += Number(frame.g.dataset.after);
			end = frame.end;
		}
	}
	group.classList.toggle('searched', hits.length > 0);
	caseButton.setAttribute('aria-pressed', anyCase);
	field.setAttribute('aria-invalid', bad);
	found.classList.toggle('bad', bad);
	found.textContent = !pattern ? '' : bad ? 'Not a regular expression'
		: `Matched ${shares()} (${count(samples, 'sample')} in ${count(hits.length, 'frame')})`;
	resetButton.disabled = zoomed === root && !pattern;
}

function setSearch(text, ignoreCase = anyCase) {
	pattern = text;
	anyCase = ignoreCase;
	if (field.value !== text)
		field.value = text;
	search();
}

function typed(text, ignoreCase) {
	setSearch(text, ignoreCase);
	writeState('replaceState');
}

function nextHit(step) {
	const shown = hits.filter((frame) => frame.shown);
	const ahead = step > 0 ? shown.find((frame) => frame.index > focused.index)
		: shown.findLast((frame) => frame.index < focused.index);
	return ahead ?? shown.at(step > 0 ? 0 : -1);
}

function reset() {
	setSearch('');
	if (zoomed !== root)
		zoom(root);
	else
		writeState('replaceState');
}

// ---- The state stands in the address: #s=PATTERN&i=1&x=FRAME.

function writeState(how) {
	const state = {s: pattern, i: anyCase ? '1' : '', x: zoomed.index || ''};
	const set = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== ''));
	try {
		if (alone)
			history[how](null, '', `#${set}`);
	} catch (error) {
		// Some viewers have no history to write to; the picture works without.
	}
}

function readState() {
	const state = new URLSearchParams(alone ? location.hash.slice(1) : '');
	setSearch(state.get('s') ?? '', state.get('i') === '1');
	setZoom(frames[Number(state.get('x'))] ?? root);
	reveal(zoomed);
}

// ---- Keys. What a function returns gets the focus.

// The next frame to the left (-1) or right (1) in the same row.
function neighbour(step) {
	let i = focused.index + step;
	while (frames[i] && !(frames[i].level === focused.level && frames[i].shown))
		i += step;
	return frames[i];
}

// The widest frame on top of the focused one.
function child() {
	let widest;
	for (let i = focused.index + 1; i < focused.end; i = frames[i].end)
		if (frames[i].shown && !(widest?.value >= frames[i].value))
			widest = frames[i];
	return widest;
}

const openField = () => { field.focus(); field.select(); };

const keys = {
	ArrowUp: () => icicle ? focused.parent : child(),
	ArrowDown: () => icicle ? child() : focused.parent,
	ArrowLeft: () => neighbour(-1),
	ArrowRight: () => neighbour(1),
	Home: () => zoomed,
	Enter: () => zoom(focused),
	' ': () => zoom(focused),
	Backspace: zoomOut,
	Escape: reset,
	n: () => nextHit(1),
	N: () => nextHit(-1),
	'/': openField,
	'Ctrl-f': openField, // pressed again in the field it is the browser's own
};
const fieldKeys = {
	Enter: () => nextHit(1) ?? focused,
	Escape: () => { typed(''); return focused; },
};

function onKey(event) {
	const key = event.altKey ? '' : (event.ctrlKey || event.metaKey ? 'Ctrl-' : '') + event.key;
	const pressesButton = event.target.closest?.('button') && (key === 'Enter' || key === ' ');
	const action = event.target === field ? fieldKeys[key] : !pressesButton && keys[key];
	if (!action)
		return;
	event.preventDefault();
	const frame = action();
	if (frame)
		focus(frame);
}

// ---- Start.

bar.append(html('div', {class: 'bar'}, path, found, field, caseButton, resetButton));
foot.append(html('div', {class: 'foot'}, details));
svg.append(ring, warning, bar, foot);
svg.classList.add('live');
group.setAttribute('role', 'tree');
group.setAttribute('aria-label', svg.querySelector('title').textContent);
root.g.setAttribute('tabindex', 0);
group.addEventListener('click', (event) => {
	zoom(frameAt(event.target));
	focus(zoomed);
});
group.addEventListener('mouseover', (event) => showDetails(frameAt(event.target)));
group.addEventListener('mouseleave', () => showDetails(null));
for (const event of ['focusin', 'focusout']) // not at the group, which would become a tab stop
	document.addEventListener(event, moveRing);
field.addEventListener('input', () => typed(field.value));
caseButton.addEventListener('click', () => typed(pattern, !anyCase));
resetButton.addEventListener('click', reset);
(alone ? document : svg).addEventListener('keydown', onKey);
window.addEventListener('hashchange', readState);
window.addEventListener('scroll', pin, {passive: true});
window.addEventListener('resize', () => requestAnimationFrame(fillWindow));
fillWindow();
readState();

})();
