// SPDX-License-Identifier: BSD-3-Clause
//
// What is shown: the samples that filters leave, summed up over a tree of stacks.

// Samples and weights of one side that end in each node of the whole tree.
function sumSide(profile, side, filter) {
	const {groups, rows} = side, n = profile.tree.n, perVcpu = new Map();
	const sum = {weights: new Float64Array(n), samples: new Float64Array(n), draws: 0};
	for (let g = 0; g < groups.n; g++) {
		const vcpu = groups.vcpu[g];
		if (groups.slice[g] < filter.from || groups.slice[g] >= filter.to || !(filter.states >> groups.state[g] & 1)
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

// Where boxes begin: side by side from their parent's left edge on, in order.
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

// Where a function is called by none of its own name: everything that it does, once.
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
