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

// ---- Trees of another shape, made of the whole one: only as far as there is room for them in a picture.

const WHOLE = 1 << 16; // steps; a tree that takes no more is made whole
const FINEST = 1 / 10000; // of the picture's width; narrower boxes are summed up as one
const CHUNK = 1 << 16; // steps between two rests for the browser
const FEW_PLACES = 1 << 13;

const roomFor = (n) => ({at: new Uint32Array(n), from: new Uint32Array(n), filled: 0});

function addSums(to, sums) {
	to.forEach((sum, side) => {
		sum.weights += sums[side].weights;
		sum.samples += sums[side].samples;
	});
}

// A node stands for places of the whole tree: `at` says what it is, `from` whose samples it has.
class Grown {
	// `places`: of the root's children; `follow` finds those of the children of places; `steps`: that it takes at most.
	constructor({tree, names, rest}, {rootName, sums, wholes, places, follow, steps}) {
		Object.assign(this, {tree, rest, sums, wholes, follow, n: 0});
		// By name, all 0 between two nodes: counting must not cost memory far away for each sample.
		this.counted = {size: new Uint32Array(names.length), group: new Uint32Array(names.length),
			sums: sums.map(() => ({weights: new Float64Array(names.length), samples: new Float64Array(names.length)}))};
		this.root = this.node(rootName, -1, sums.map(() => ({weights: 0, samples: 0})), places);
		this.root.fresh = false;
		this.limit = steps > WHOLE ? FINEST : 0;
	}

	node(name, inlined, sums, places) {
		return {id: this.n++, name, inlined: inlined > 0 ? 1 : 0, sums, places, fresh: true, children: [], narrow: 0, narrowSums: null};
	}

	add(sums, from) {
		for (let side = 0; side < sums.length; side++) {
			sums[side].weights += this.sums[side].weights[from];
			sums[side].samples += this.sums[side].samples[from];
		}
	}

	share(sums) {
		return sums.reduce((most, {weights}, side) => Math.max(most, this.wholes[side] ? weights / this.wholes[side] : 0), 0);
	}

	// Makes all boxes on `node` that are as wide as `limit`, a share of the whole; yields the levels that are done.
	// Row by row, to show something soon; of few places all rows at once, as their callers are near in memory.
	*grow(node, limit) {
		for (let row = [node], done = 0; row.length; done++) {
			const next = [];
			for (const one of row) {
				const few = one.places.at.length < FEW_PLACES, waiting = [one];
				while (waiting.length) {
					const at = waiting.pop();
					yield* this.split(at, limit, done);
					for (const child of at.children)
						(few ? waiting : next).push(child);
				}
			}
			row = next;
		}
	}

	// Makes children of the places that are in none yet.
	*split(node, limit, done) {
		if (node.fresh)
			node.places = this.follow(node.places);
		node.fresh = false;
		const {places} = node, n = places.at.length, names = new Uint32Array(n), found = [];
		for (let i = 0; i < n; i += CHUNK) {
			this.count(places, names, i, Math.min(n, i + CHUNK), found);
			yield done;
		}
		const groups = found.map((name) => this.takeCounts(name)), wide = groups.map((group) => this.share(group.sums) >= limit);
		const left = roomFor(groups.reduce((sum, {size}, i) => wide[i] ? sum : sum + size, 0));
		node.narrow = 0;
		node.narrowSums = this.sums.map(() => ({weights: 0, samples: 0}));
		groups.forEach((group, i) => {
			this.counted.group[group.name] = i;
			if (wide[i]) {
				group.places = roomFor(group.size);
			} else {
				group.places = left;
				node.narrow++;
				addSums(node.narrowSums, group.sums);
			}
		});
		for (let i = 0; i < n; i += CHUNK) {
			this.deal(places, names, i, Math.min(n, i + CHUNK), groups);
			yield done;
		}
		for (const group of groups)
			if (group.places !== left)
				node.children.push(this.node(group.name, group.inlined, group.sums, group.places));
		node.children.sort((a, b) => a.name - b.name);
		node.places = left;
	}

	count({at, from}, names, begin, end, found) {
		const {tree, counted, sums} = this;
		for (let i = begin; i < end; i++) {
			const name = names[i] = tree.name[at[i]];
			if (!counted.size[name]++) {
				found.push(name);
				counted.group[name] = tree.inlined[at[i]];
			}
		}
		for (let side = 0; side < sums.length; side++) {
			const {weights, samples} = sums[side], into = counted.sums[side];
			for (let i = begin; i < end; i++) {
				into.weights[names[i]] += weights[from[i]];
				into.samples[names[i]] += samples[from[i]];
			}
		}
	}

	takeCounts(name) {
		const {size, group, sums} = this.counted;
		const taken = {name, inlined: group[name], size: size[name],
			sums: sums.map(({weights, samples}) => ({weights: weights[name], samples: samples[name]}))};
		size[name] = 0;
		for (const {weights, samples} of sums)
			weights[name] = samples[name] = 0;
		return taken;
	}

	deal({at, from}, names, begin, end, groups) {
		const {group} = this.counted;
		for (let i = begin; i < end; i++) {
			const {places} = groups[group[names[i]]], place = places.filled++;
			places.at[place] = at[i];
			places.from[place] = from[i];
		}
	}

	// What has been made, in preorder, as one box more what is narrow; `id` and `node` lead back.
	finish() {
		const list = [], waiting = [{node: this.root, parent: 0}];
		while (waiting.length) {
			const {node, parent, rest} = waiting.pop(), place = list.push({node, parent, rest}) - 1;
			if (rest)
				continue;
			if (node.narrow)
				waiting.push({node, parent: place, rest: true});
			for (let i = node.children.length - 1; i >= 0; i--)
				waiting.push({node: node.children[i], parent: place});
		}
		const made = newTree(list.length), column = (what) => this.sums.map((_, side) => Float64Array.from(list,
			({node, rest}) => (rest ? node.narrowSums : node.sums)[side][what]));
		const weights = column('weights'), samples = column('samples');
		list.forEach(({node, parent, rest}, i) => {
			made.name[i] = rest ? this.rest : node.name;
			made.inlined[i] = rest ? 0 : node.inlined;
			made.parent[i] = parent;
		});
		made.rest = Uint32Array.from(list, ({node, rest}) => rest ? node.narrow : 0);
		made.grown = this;
		made.nodes = list.map(({node}) => node);
		return {tree: finishTree(made), sides: this.sums.map((_, side) => ({weights: weights[side], samples: samples[side]}))};
	}
}

// Callers of places: one each, if it has any. `collapsed`: calls of a function by itself are one.
function followCallers(tree, collapsed) {
	return ({at, from}) => {
		const callers = roomFor(at.length), {parent, name} = tree;
		let n = 0;
		for (let i = 0; i < at.length; i++) {
			let caller = parent[at[i]];
			while (collapsed && caller && name[caller] === name[at[i]])
				caller = parent[caller];
			if (!caller)
				continue;
			callers.at[n] = caller;
			callers.from[n++] = from[i];
		}
		return {at: callers.at.subarray(0, n), from: callers.from.subarray(0, n)};
	};
}

function followCallees(tree, totals, collapsed) {
	return ({at}) => {
		const callees = [];
		for (const place of at)
			for (let child = place + 1; child < tree.end[place];) {
				const inside = collapsed && tree.name[child] === tree.name[place];
				if (!inside && hasSamples(totals, child))
					callees.push(child);
				child = inside ? child + 1 : tree.end[child];
			}
		const places = new Uint32Array(callees);
		return {at: places, from: places};
	};
}

// Sums of some nodes alone, close together.
function pick(sums, nodes) {
	return sums.map(({weights, samples}) => {
		const some = {weights: new Float64Array(nodes.length), samples: new Float64Array(nodes.length)};
		for (let i = 0; i < nodes.length; i++) {
			some.weights[i] = weights[nodes[i]];
			some.samples[i] = samples[nodes[i]];
		}
		return some;
	});
}

function numbers(n) {
	const list = new Uint32Array(n);
	for (let i = 0; i < n; i++)
		list[i] = i;
	return list;
}

const hasSamples = (sums, node) => sums[0].samples[node] > 0 || sums.length > 1 && sums[1].samples[node] > 0;

// Each function that was at work is a box on the root, with its callers on it.
function leafFirst(profile, selfs, wholes, collapsed) {
	const {tree} = profile, leaves = [];
	for (let i = 1; i < tree.n; i++)
		if (hasSamples(selfs, i))
			leaves.push(i);
	const at = new Uint32Array(leaves);
	const grown = new Grown(profile, {rootName: tree.name[0], sums: pick(selfs, at), wholes, follow: followCallers(tree, collapsed),
		places: {at, from: numbers(leaves.length)}, steps: at.reduce((steps, leaf) => steps + tree.level[leaf], 0)});
	leaves.forEach((_, i) => grown.add(grown.root.sums, i));
	addSums(grown.root.sums, selfs.map(({weights, samples}) => ({weights: weights[0], samples: samples[0]})));
	return grown;
}

// A function's outermost frames, which no frame of the same name calls: all that it does, once.
function outermost({tree, nested}, name, totals) {
	const found = [];
	for (let i = 1; i < tree.n; i++)
		if (tree.name[i] === name && !nested[i] && hasSamples(totals, i))
			found.push(i);
	return new Uint32Array(found);
}

// Boxes are as wide as their share of the function, not of the whole.
function halfOf(profile, name, nodes, {places, sums, wholes, follow, steps}) {
	const grown = new Grown(profile, {rootName: name, sums, wholes, places, follow, steps});
	for (const node of nodes)
		grown.add(grown.root.sums, node);
	grown.limit *= grown.share(grown.root.sums);
	return grown;
}

function callersOf(profile, totals, wholes, name, collapsed) {
	const {tree} = profile, nodes = outermost(profile, name, totals), follow = followCallers(tree, collapsed), from = numbers(nodes.length);
	return halfOf(profile, name, from, {places: follow({at: nodes, from}), sums: pick(totals, nodes), wholes, follow,
		steps: nodes.reduce((steps, node) => steps + tree.level[node], 0)});
}

function calleesOf(profile, totals, wholes, name, collapsed) {
	const {tree} = profile, nodes = outermost(profile, name, totals), follow = followCallees(tree, totals, collapsed);
	return halfOf(profile, name, nodes, {places: follow({at: nodes}), sums: totals, wholes, follow,
		steps: nodes.reduce((steps, node) => steps + tree.end[node] - node, 0)});
}

// All stacks, without calls of a function by itself.
function collapsedTree(profile, totals, wholes) {
	const {tree} = profile, root = new Uint32Array(1), follow = followCallees(tree, totals, true);
	return halfOf(profile, tree.name[0], root, {places: follow({at: root}), sums: totals, wholes, follow, steps: tree.n});
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

// Package, module or prefix of a name: std of std::vector, net/http of net/http.(*conn).serve, tcp of tcp_input.
function packageOf(name) {
	const plain = name.replace(/^[<&*\s]+/, ''), [, parts] = /^([\w$]+)::/.exec(plain) ?? /^([\w./-]+?)\.(?:\(|\w+(?:\.func\d+)*$)/.exec(plain)
		?? /^caml([A-Z]\w*?)__/.exec(plain) ?? /^\[([^\]]+)\]/.exec(plain) ?? /^_*([A-Za-z0-9]+)_/.exec(plain) ?? [];
	return parts ?? plain;
}

// One hue for each package; light enough for black text.
function packageColor(name) {
	let hash = 2166136261;
	for (const letter of packageOf(name))
		hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
	return `hsl(${hash % 360},${55 + (hash >>> 9) % 25}%,${66 + (hash >>> 17) % 14}%)`;
}

const percent = (part, whole) => `${(whole ? 100 * part / whole : 0).toFixed(2)} %`;

function changeText(before, after, marked) {
	const points = 100 * (after - before), sign = points >= 0.005 ? '+' : points <= -0.005 ? '−' : '±';
	return `${percent(before, 1)} before, ${percent(after, 1)} after: ${sign}${Math.abs(points).toFixed(2)}${marked ? '' : ', may be chance'}`;
}
