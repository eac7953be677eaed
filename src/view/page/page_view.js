// SPDX-License-Identifier: BSD-3-Clause
//
// The view: the samples that filters leave, summed up over a tree of stacks.

const samplesOf = ({rows}) => rows.samples.reduce((sum, one) => sum + one, 0);

// Samples and weights of one side that end in each node of the whole tree.
function sumSide(profile, side, filter) {
	const {groups, rows} = side, n = profile.tree.n, perVcpu = new Map();
	const sum = {weights: new Float64Array(n), samples: new (samplesOf(side) <= 0xffffffff ? Uint32Array : Float64Array)(n), draws: 0};
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

// Adds to what ends in a node what ends in those that stand on it.
function addTotals({n, parent}, {weights, samples}) {
	for (let i = n - 1; i > 0; i--) {
		weights[parent[i]] += weights[i];
		samples[parent[i]] += samples[i];
	}
}

// A tree with totals for each side ({weights, samples}), ready to be drawn. `whole` is what 100 % are.
function makeView(tree, sides, wholes, widths) {
	if (sides.length === 1)
		return {...tree, sides, wholes, value: sides[0].weights};
	const share = sides.map((side, i) => side.weights.map((weight) => wholes[i] ? weight / wholes[i] : 0));
	const value = widths === 'both' ? share[0].map((before, i) => (before + share[1][i]) / 2) : share[widths === 'before' ? 0 : 1];
	return {...tree, sides, wholes, share, value};
}

// ---- Trees of another shape, made of the whole one: only as far as there is room for them in a picture.

const WHOLE = 1 << 16; // steps; a tree that takes no more is made whole
const CHUNK = 1 << 16; // steps between two rests for the browser
const STEPS = 8; // of a place's path that are kept together: half a line of the processor's cache
const END = 0xffffffff, INLINED = 0x80000000;

function addSums(to, sums) {
	to.forEach((sum, side) => {
		sum.weights += sums[side].weights;
		sum.samples += sums[side].samples;
	});
}

const noSums = (sums) => sums.map(() => ({weights: 0, samples: 0}));

// Nodes of the whole tree are places: each has samples, and goes a path of names, which `fill` knows. Paths that
// begin alike are a node of the new tree. Places keep their order: those side by side have callers side by side, so that
// memory is read in order, and each knows the last node of its path that has been made.
class Grown {
	// `sums`: of the places, a column each; `fill(place, step, steps)`: writes the names of STEPS steps; `work`: steps of all.
	constructor({rest}, {rootName, rootSums, sums, wholes, fill, work}) {
		const n = sums[0].weights.length;
		Object.assign(this, {rest, wholes, fill, whole: work <= WHOLE, sums, made: [], at: new Uint32Array(n), read: new Uint16Array(n),
			steps: new Uint32Array(n * STEPS)});
		this.root = this.node({name: rootName, inlined: 0, sums: rootSums}, 0);
	}

	node({name, inlined, sums}, step) {
		const node = {id: this.made.length, name, inlined, sums, step, children: [], narrow: 0, narrowSums: null, limit: Infinity};
		this.made.push(node);
		return node;
	}

	share(sums) {
		return sums.reduce((most, {weights}, side) => Math.max(most, this.wholes[side] ? weights / this.wholes[side] : 0), 0);
	}

	// Makes all boxes on `node` that are as wide as `limit`, a share of the whole; yields the levels that are done.
	// Level by level, to show something soon.
	*grow(node, limit) {
		let nodes = this.coarser(node, limit), places = yield* this.placesOf(nodes);
		for (let done = 0; nodes.length; done++) {
			const groups = new Groups(this.sums.length), group = new Uint32Array(places.length);
			for (let i = 0; i < places.length; i += CHUNK) {
				this.count(places, i, Math.min(places.length, i + CHUNK), groups, group);
				yield done;
			}
			const children = this.addChildren(nodes, groups, limit);
			nodes = children.filter(Boolean);
			places = this.advance(places, group, children);
		}
	}

	// Nodes of a subtree that have not been made as fine.
	coarser(node, limit) {
		const found = [], waiting = [node];
		while (waiting.length) {
			const one = waiting.pop();
			if (one.limit > limit)
				found.push(one);
			waiting.push(...one.children);
		}
		return found;
	}

	// Places whose path goes on from one of the nodes.
	*placesOf(nodes) {
		const {made, at} = this, asked = new Uint8Array(made.length), found = new Uint32Array(at.length);
		let n = 0;
		for (const {id} of nodes)
			asked[id] = 1;
		for (let begin = 0; begin < at.length; begin += 4 * CHUNK) {
			for (let place = begin, end = Math.min(at.length, begin + 4 * CHUNK); place < end; place++)
				if (asked[at[place]])
					found[n++] = place;
			yield 0;
		}
		return found.subarray(0, n);
	}

	// Adds places to the group of their next step; END: their path ends.
	count(places, begin, end, groups, group) {
		const {at, read, steps, fill, sums, made} = this;
		let last = -1, step = 0, block = 0, lastWord = END, one = END;
		for (let i = begin; i < end; i++) {
			const place = places[i], id = at[place], other = id !== last;
			if (other) {
				({step} = made[last = id]);
				block = Math.floor(step / STEPS);
			}
			if (block >= read[place]) {
				fill(place, step, steps);
				read[place] = block + 1;
			}
			const word = steps[place * STEPS + step % STEPS];
			if (other || word !== lastWord)
				one = word === END ? END : groups.number(id, word);
			lastWord = word;
			group[i] = one;
		}
		for (let side = 0; side < sums.length; side++) {
			const {weights, samples} = sums[side], toWeights = groups.weights[side], toSamples = groups.samples[side];
			for (let i = begin; i < end; i++) {
				if (group[i] === END)
					continue;
				toWeights[group[i]] += weights[places[i]];
				toSamples[group[i]] += samples[places[i]];
			}
		}
	}

	// Makes nodes of the groups that are wide enough: by group, undefined for the others.
	addChildren(nodes, groups, limit) {
		const children = new Array(groups.n);
		for (const node of nodes)
			Object.assign(node, {limit, narrow: 0, narrowSums: noSums(this.sums)});
		for (let i = 0; i < groups.n; i++) {
			const parent = this.made[groups.parent[i]], sums = groups.sumsOf(i);
			if (this.share(sums) >= limit) {
				parent.children.push(children[i] = this.node({name: groups.name[i], inlined: groups.inlined[i], sums}, parent.step + 1));
				continue;
			}
			parent.narrow++;
			addSums(parent.narrowSums, sums);
		}
		for (const node of nodes)
			node.children.sort((a, b) => a.name - b.name);
		return children;
	}

	// Places that came to a new node; the others stay.
	advance(places, group, children) {
		const ids = Int32Array.from(children, (child) => child?.id ?? -1), {at} = this;
		let n = 0;
		for (let i = 0; i < places.length; i++) {
			const id = group[i] === END ? -1 : ids[group[i]];
			if (id < 0)
				continue;
			at[places[i]] = id;
			places[n++] = places[i];
		}
		return places.subarray(0, n);
	}

	// What has been made, in preorder, as one box more what is narrow; `nodes` leads back.
	finish() {
		const list = [], waiting = [{node: this.root, parent: 0, rest: false}];
		while (waiting.length) {
			const one = waiting.pop(), {node} = one, place = list.push(one) - 1;
			if (one.rest)
				continue;
			if (node.narrow)
				waiting.push({node, parent: place, rest: true});
			for (let i = node.children.length - 1; i >= 0; i--)
				waiting.push({node: node.children[i], parent: place, rest: false});
		}
		const made = newTree(list.length), sides = this.sums.map(() => ({weights: new Float64Array(made.n), samples: new Float64Array(made.n)}));
		made.rest = new Uint32Array(made.n);
		list.forEach(({node, parent, rest}, i) => {
			made.name[i] = rest ? this.rest : node.name;
			made.inlined[i] = rest ? 0 : node.inlined;
			made.parent[i] = parent;
			made.rest[i] = rest ? node.narrow : 0;
			for (let side = 0; side < sides.length; side++) {
				const {weights, samples} = (rest ? node.narrowSums : node.sums)[side];
				sides[side].weights[i] = weights;
				sides[side].samples[i] = samples;
			}
		});
		made.grown = this;
		made.nodes = list.map(({node}) => node);
		return {tree: finishTree(made), sides};
	}
}

// Sums by node and name, numbered as they come: a hash table of typed arrays.
class Groups {
	constructor(sides) {
		Object.assign(this, {n: 0, sides, weights: [], samples: []});
		for (let side = 0; side < sides; side++)
			this.weights[side] = this.samples[side] = new Float64Array(0);
		this.resize(1 << 9);
	}

	// Room for so many groups, with as many free places in the table.
	resize(room) {
		const longer = (column, Type) => {
			const to = new Type(room);
			to.set(column ?? []);
			return to;
		};
		this.room = room;
		this.table = new Uint32Array(2 * room);
		for (const [key, Type] of [['parent', Uint32Array], ['name', Uint32Array], ['inlined', Uint8Array]])
			this[key] = longer(this[key], Type);
		for (let side = 0; side < this.sides; side++) {
			this.weights[side] = longer(this.weights[side], Float64Array);
			this.samples[side] = longer(this.samples[side], Float64Array);
		}
		for (let i = 0; i < this.n; i++)
			this.table[this.find(this.parent[i], this.name[i])] = i + 1;
	}

	// Where the table has the pair, or would have it.
	find(parent, name) {
		const {table, parent: parents, name: names} = this, mask = table.length - 1;
		let at = Math.imul(Math.imul(parent, 0x9e3779b1) ^ name, 0x85ebca6b);
		at = (at ^ at >>> 15) & mask;
		for (let i; (i = table[at]) && (parents[i - 1] !== parent || names[i - 1] !== name);)
			at = at + 1 & mask;
		return at;
	}

	number(parent, word) {
		const name = word & ~INLINED;
		let at = this.find(parent, name);
		if (this.table[at])
			return this.table[at] - 1;
		if (this.n === this.room) {
			this.resize(2 * this.room);
			at = this.find(parent, name);
		}
		this.parent[this.n] = parent;
		this.name[this.n] = name;
		this.inlined[this.n] = word >>> 31;
		this.table[at] = ++this.n;
		return this.n - 1;
	}

	sumsOf(i) {
		return this.weights.map((weights, side) => ({weights: weights[i], samples: this.samples[side][i]}));
	}
}

// The path of a place to its callers, from `first` on: that too, if it is its `own`. It goes on with the node that
// it ended with before. `collapsed`: calls of a function by itself are one.
function pathUp({parent, name, inlined}, first, own, collapsed) {
	const next = first.slice();
	return (place, step, steps) => {
		const stop = (place + 1) * STEPS;
		let node = next[place], at = place * STEPS;
		if (own && !step)
			steps[at++] = name[node] | inlined[node] << 31;
		for (; at < stop; at++) {
			let caller = node && parent[node];
			while (collapsed && caller && name[caller] === name[node])
				caller = parent[caller];
			node = caller;
			steps[at] = node ? name[node] | inlined[node] << 31 : END;
		}
		next[place] = node;
	};
}

// The path of a place down to its leaf, from what is on `from[place]`.
function pathDown({parent, name, inlined, levels}, leaves, from, collapsed) {
	const path = new Uint32Array(levels);
	return (place, step, steps) => {
		let at = levels, end = place * STEPS;
		for (let node = leaves[place]; node !== from[place]; node = parent[node])
			if (!collapsed || name[node] !== name[parent[node]])
				path[--at] = node;
		at += step;
		for (const stop = end + STEPS; end < stop; end++, at++)
			steps[end] = at < levels ? name[path[at]] | inlined[path[at]] << 31 : END;
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

// Nodes with samples of their own, but the root.
function leavesOf({n}, sums) {
	const found = new Uint32Array(n), one = sums[0].samples, other = sums.at(-1).samples;
	let count = 0;
	for (let i = 1; i < n; i++)
		if (one[i] > 0 || other[i] > 0)
			found[count++] = i;
	return found.slice(0, count);
}

const addLevels = ({level}, nodes) => nodes.reduce((sum, node) => sum + level[node], 0);

// Each function that was at work is a box on the root, with its callers on it.
function leafFirst(profile, {selfs, totals, wholes, leaves}, collapsed) {
	const {tree} = profile;
	return new Grown(profile, {rootName: tree.name[0], rootSums: totals.map(({weights, samples}) => ({weights: weights[0], samples: samples[0]})),
		sums: selfs, wholes, fill: pathUp(tree, leaves, true, collapsed), work: addLevels(tree, leaves)});
}

// A function's outermost frames, which no frame of the same name calls: all that it does, once.
function outermost(profile, name, totals) {
	const {tree} = profile, nested = nestedOf(profile), found = [], one = totals[0].samples, other = totals.at(-1).samples;
	for (let i = 1; i < tree.n; i++)
		if (tree.name[i] === name && !nested[i] && (one[i] > 0 || other[i] > 0))
			found.push(i);
	return Uint32Array.from(found);
}

function sumOf(sums) {
	return sums.map(({weights, samples}) => ({weights: weights.reduce((sum, one) => sum + one, 0), samples: samples.reduce((sum, one) => sum + one, 0)}));
}

// Callers and callees of a function; its name is the root of both.
function callersOf(profile, {totals, wholes}, name, collapsed) {
	const {tree} = profile, nodes = outermost(profile, name, totals), sums = pick(totals, nodes);
	return new Grown(profile, {rootName: name, rootSums: sumOf(sums), sums, wholes, fill: pathUp(tree, nodes, false, collapsed),
		work: addLevels(tree, nodes)});
}

function calleesOf(profile, {selfs, totals, wholes, leaves}, name, collapsed) {
	const {tree} = profile, nodes = outermost(profile, name, totals), inside = new Uint32Array(leaves.length), from = new Uint32Array(leaves.length);
	let n = 0, leaf = 0;
	for (const node of nodes) {
		while (leaf < leaves.length && leaves[leaf] < node)
			leaf++;
		for (; leaf < leaves.length && leaves[leaf] < tree.end[node]; leaf++) {
			inside[n] = leaf;
			from[n++] = node;
		}
	}
	const own = inside.slice(0, n), places = own.map((leaf) => leaves[leaf]);
	return new Grown(profile, {rootName: name, rootSums: sumOf(pick(totals, nodes)), sums: pick(selfs, own), wholes,
		fill: pathDown(tree, places, from, collapsed), work: addLevels(tree, places)});
}

// All stacks, without calls of a function by itself.
function collapsedTree(profile, {selfs, totals, wholes, leaves}) {
	const {tree} = profile;
	return new Grown(profile, {rootName: tree.name[0], rootSums: totals.map(({weights, samples}) => ({weights: weights[0], samples: samples[0]})),
		sums: selfs, wholes, fill: pathDown(tree, leaves, new Uint32Array(leaves.length), true), work: addLevels(tree, leaves)});
}

// Self and total of each function that has samples: the sums of one side a column.
function sumFunctions(profile, {selfs, totals, leaves}) {
	const {tree: {n, name}, names} = profile, nested = nestedOf(profile), column = () => new Float64Array(names.length);
	const self = selfs.map(column), total = selfs.map(column), seen = new Uint8Array(names.length);
	for (let side = 0; side < selfs.length; side++) {
		const {weights, samples} = totals[side], own = selfs[side].weights, toSelf = self[side], toTotal = total[side];
		for (let leaf = 0; leaf < leaves.length; leaf++)
			toSelf[name[leaves[leaf]]] += own[leaf];
		for (let i = 1; i < n; i++) {
			if (!(samples[i] > 0))
				continue;
			seen[name[i]] = 1;
			if (!nested[i])
				toTotal[name[i]] += weights[i];
		}
	}
	return {self, total, list: Array.from(seen.keys()).filter((name) => seen[name])};
}

// ---- Differences: which are more than chance, and their colours. The same as uniprof diff has it (analysis/diff.h).

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
