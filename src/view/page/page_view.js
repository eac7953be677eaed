// SPDX-License-Identifier: BSD-3-Clause
//
// The view: the samples that filters leave, summed up over a tree of stacks.

// Samples and weights of one side that end in each node of the whole tree.
function sumSide(profile, side, filter) {
	const {groups, rows} = side, n = profile.tree.n, perVcpu = new Map();
	const sum = {weights: new Float64Array(n), samples: new Float64Array(n), draws: 0};
	for (let g = 0; g < groups.n; g++) {
		const vcpu = groups.vcpu[g];
		if (groups.bucket[g] < filter.from || groups.bucket[g] >= filter.to || !(filter.states >> groups.state[g] & 1)
			|| filter.without.has(vcpu))
			continue;
		let weights = 0;
		for (let row = groups.first[g]; row < groups.first[g + 1]; row++) {
			const node = rows.node[row], weight = side.weighted ? rows.weight[row] : rows.samples[row];
			sum.weights[node] += weight;
			sum.samples[node] += rows.samples[row];
			weights += weight;
		}
		const seen = perVcpu.get(vcpu) ?? perVcpu.set(vcpu, {weights: 0, squares: 0}).get(vcpu);
		seen.weights += weights;
		seen.squares += side.weighted ? groups.squares[g] : weights;
	}
	// All vCPUs may do the same at the same time: what one of them says is what is sure.
	for (const {weights, squares} of perVcpu.values())
		sum.draws = Math.max(sum.draws, squares ? weights * weights / squares : 0);
	return sum;
}

function addToParents(tree, values) {
	const totals = values.slice();
	for (let i = tree.n - 1; i > 0; i--)
		totals[tree.parent[i]] += totals[i];
	return totals;
}

// Left edges of boxes: side by side from their parent's left edge on, in order.
function placeBoxes(tree, value) {
	const x = new Float64Array(tree.n), next = new Float64Array(tree.n);
	for (let i = 1; i < tree.n; i++) {
		const parent = tree.parent[i];
		x[i] = next[i] = next[parent];
		next[parent] = x[i] + value[i];
	}
	return x;
}

// A tree with totals for each side ({weights, samples}), ready to be drawn. `whole` is what 100 % are.
function makeView(tree, sides, wholes, widths) {
	const share = sides.map((side, i) => side.weights.map((weight) => wholes[i] ? weight / wholes[i] : 0));
	const view = {...tree, sides, wholes, share};
	if (sides.length === 1)
		view.value = sides[0].weights;
	else if (widths === 'both')
		view.value = share[0].map((before, i) => (before + share[1][i]) / 2);
	else
		view.value = share[widths === 'before' ? 0 : 1];
	view.x = placeBoxes(tree, view.value);
	return view;
}

// ---- Trees of another shape, made of the whole one.

class Builder {
	constructor(rootName, nNames, nSides) {
		this.nNames = nNames;
		this.name = [rootName];
		this.parent = [0];
		this.inlined = [0];
		this.children = new Map();
		this.sides = Array.from({length: nSides}, () => ({weights: [0], samples: [0]}));
	}

	child(parent, name, inlined) {
		const key = parent * this.nNames + name;
		let node = this.children.get(key);
		if (node === undefined) {
			node = this.name.length;
			this.children.set(key, node);
			this.name.push(name);
			this.parent.push(parent);
			this.inlined.push(inlined);
			for (const side of this.sides) {
				side.weights.push(0);
				side.samples.push(0);
			}
		}
		return node;
	}

	add(node, sums, from) {
		this.sides.forEach((side, i) => {
			side.weights[node] += sums[i].weights[from];
			side.samples[node] += sums[i].samples[from];
		});
	}

	// The nodes that were added, in preorder, children by name.
	order() {
		const n = this.name.length, first = new Int32Array(n), next = new Int32Array(n), order = [0];
		const sorted = Array.from({length: n - 1}, (_, i) => i + 1).sort((a, b) => this.name[b] - this.name[a]);
		for (const node of sorted) {
			next[node] = first[this.parent[node]];
			first[this.parent[node]] = node;
		}
		for (let at = 0; ;) {
			if (first[at]) {
				at = first[at];
			} else {
				while (at && !next[at])
					at = this.parent[at];
				if (!at)
					return order;
				at = next[at];
			}
			order.push(at);
		}
	}

	finish() {
		const order = this.order(), tree = newTree(order.length), place = new Int32Array(order.length);
		order.forEach((node, i) => {
			place[node] = i;
			tree.name[i] = this.name[node];
			tree.parent[i] = i ? place[this.parent[node]] : 0;
			tree.inlined[i] = this.inlined[node];
		});
		const sides = this.sides.map(({weights, samples}) => ({
			weights: Float64Array.from(order, (node) => weights[node]),
			samples: Float64Array.from(order, (node) => samples[node])}));
		return {tree: finishTree(tree), sides};
	}
}

function addCallers(builder, tree, node, sums, from) {
	for (let at = tree.parent[from]; at; at = tree.parent[at]) {
		node = builder.child(node, tree.name[at], tree.inlined[at]);
		builder.add(node, sums, from);
	}
}

// Each function that was at work is a box on the root, with its callers on it.
function leafFirst({tree, names}, selfs) {
	const builder = new Builder(tree.name[0], names.length, selfs.length);
	for (let i = 0; i < tree.n; i++) {
		if (!selfs.some((self) => self.samples[i]))
			continue;
		builder.add(0, selfs, i);
		if (!i)
			continue;
		const node = builder.child(0, tree.name[i], tree.inlined[i]);
		builder.add(node, selfs, i);
		addCallers(builder, tree, node, selfs, i);
	}
	return builder.finish();
}

// A function's outermost frames, which no frame of the same name calls: all that it does, once.
function outermost({tree, nested}, name) {
	const found = [];
	for (let i = 1; i < tree.n; i++)
		if (tree.name[i] === name && !nested[i])
			found.push(i);
	return found;
}

function callersOf(profile, totals, name) {
	const {tree, names} = profile, builder = new Builder(name, names.length, totals.length);
	for (const node of outermost(profile, name)) {
		builder.add(0, totals, node);
		addCallers(builder, tree, 0, totals, node);
	}
	return builder.finish();
}

function calleesOf(profile, totals, name) {
	const {tree, names} = profile, builder = new Builder(name, names.length, totals.length);
	for (const top of outermost(profile, name)) {
		const merged = new Int32Array(tree.end[top] - top);
		builder.add(0, totals, top);
		for (let i = top + 1; i < tree.end[top]; i++) {
			if (!totals.some((total) => total.samples[i]))
				continue;
			merged[i - top] = builder.child(merged[tree.parent[i] - top], tree.name[i], tree.inlined[i]);
			builder.add(merged[i - top], totals, i);
		}
	}
	return builder.finish();
}

// Self and total of each function that has samples: the sums of one side a column.
function sumFunctions({tree, nested, names}, selfs, totals) {
	const column = () => new Float64Array(names.length);
	const self = selfs.map(column), total = selfs.map(column), seen = new Uint8Array(names.length);
	for (let i = 1; i < tree.n; i++) {
		for (let side = 0; side < selfs.length; side++) {
			self[side][tree.name[i]] += selfs[side].weights[i];
			if (!nested[i])
				total[side][tree.name[i]] += totals[side].weights[i];
			seen[tree.name[i]] |= totals[side].samples[i] > 0;
		}
	}
	return {self, total, list: Array.from(seen.keys()).filter((name) => seen[name])};
}

// ---- Differences: which are more than chance, and their colours. The same as uniprof diff has it (analysis/interval.h).

const FALSE_RATE = 0.05, MIN_DRAWS = 10, FEW = 5;

// The complementary error function, to 1.2e-7 of its value (W. H. Press et al., Numerical Recipes, erfcc).
function erfc(x) {
	const t = 1 / (1 + 0.5 * x); // x is not negative here
	return t * Math.exp(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
		+ t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
}

// The logarithm of n!, by Stirling's series.
function logFactorial(n) {
	let x = n + 1, shift = 0;
	for (; x < 10; x++)
		shift -= Math.log(x);
	return shift + (x - 0.5) * Math.log(x) - x + 0.91893853320467 + 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5);
}

const logChoose = (n, k) => logFactorial(n) - logFactorial(k) - logFactorial(n - k);

// Fisher's exact test of whole counts: `a` of `before` draws, `b` of `after`.
function fisher(a, before, b, after) {
	const all = logChoose(before + after, a + b);
	const log = (k) => logChoose(before, k) + logChoose(after, a + b - k) - all;
	const seen = log(a) + 1e-7;
	let sum = 0;
	for (let k = Math.max(0, a + b - after); k <= Math.min(a + b, before); k++)
		if (log(k) <= seen)
			sum += Math.exp(log(k));
	return Math.min(1, sum);
}

// Probability that chance alone makes two shares so different.
function chance(before, drawsBefore, after, drawsAfter) {
	const all = drawsBefore + drawsAfter, inside = before * drawsBefore + after * drawsAfter, outside = all - inside;
	if (Math.min(drawsBefore, drawsAfter) * Math.min(inside, outside) / all < FEW) {
		const [n, m] = [Math.round(drawsBefore), Math.round(drawsAfter)];
		return fisher(Math.round(before * n), n, Math.round(after * m), m);
	}
	const z = Math.abs(before - after) * Math.sqrt((all - 1) * drawsBefore * drawsAfter / (inside * outside));
	return erfc(z / Math.SQRT2);
}

// Marks significant differences of the sides' shares with 1, corrected for all of them (Benjamini and Hochberg, 1995).
function markChanges(before, after, draws) {
	const marks = new Uint8Array(before.length), judged = [];
	if (!draws[0] || !draws[1])
		return marks;
	for (let i = 0; i < before.length; i++)
		if (before[i] * draws[0] + after[i] * draws[1] >= MIN_DRAWS)
			judged.push({i, p: chance(before[i], draws[0], after[i], draws[1])});
	judged.sort((a, b) => a.p - b.p);
	let last = judged.length - 1;
	while (last >= 0 && judged[last].p > FALSE_RATE * (last + 1) / judged.length)
		last--;
	for (; last >= 0; last--)
		marks[judged[last].i] = 1;
	return marks;
}

// As in the SVG (flamegraph_change.c).
function changeColor(before, after, marked) {
	const large = Math.max(before, after), strength = large ? Math.abs(after - before) / large : 0;
	const mix = (from, to) => Math.round(from + (to - from) * strength);
	if (!marked || !strength)
		return '#dcdce0';
	return after > before ? `rgb(255,${mix(205, 92)},${mix(195, 72)})` : `rgb(${mix(195, 84)},${mix(218, 152)},255)`;
}

const percent = (part, whole) => `${(whole ? 100 * part / whole : 0).toFixed(2)} %`;

function changeText(before, after, marked) {
	const points = 100 * (after - before), sign = points >= 0.005 ? '+' : points <= -0.005 ? '−' : '±';
	return `${percent(before, 1)} before, ${percent(after, 1)} after: ${sign}${Math.abs(points).toFixed(2)}${marked ? '' : ', may be chance'}`;
}
