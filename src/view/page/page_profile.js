// SPDX-License-Identifier: BSD-3-Clause
//
// The recording: from the bytes in the page to typed arrays. page.c says what is in them.
// Names come from the guest; nothing in these scripts makes markup of them.

class Bytes {
	constructor(data) {
		this.data = data;
		this.at = 0;
		this.decoder = new TextDecoder();
	}

	number() {
		let sum = 0;
		for (let unit = 1; ; unit *= 128) {
			const byte = this.data[this.at++];
			sum += (byte & 127) * unit;
			if (!(byte >= 128))
				return sum;
		}
	}

	text() {
		const length = this.number();
		return length === 0 ? '' : this.decoder.decode(this.data.subarray(this.at, this.at += length));
	}

	double() {
		const view = new DataView(this.data.buffer, this.data.byteOffset + this.at, 8);
		this.at += 8;
		return view.getFloat64(0, true);
	}

	color() {
		const {data} = this, at = this.at;
		this.at += 3;
		return `#${(1 << 24 | data[at] << 16 | data[at + 1] << 8 | data[at + 2]).toString(16).slice(1)}`;
	}
}

// Browsers of 2025 do it themselves.
function bytesOf(base64) {
	if (Uint8Array.fromBase64)
		return Uint8Array.fromBase64(base64);
	const binary = atob(base64), bytes = new Uint8Array(binary.length);
	for (let i = 0; i < bytes.length; i++)
		bytes[i] = binary.charCodeAt(i);
	return bytes;
}

async function unpack(element) {
	const packed = bytesOf(element.textContent.trim());
	element.textContent = '';
	const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
	return new Uint8Array(await new Response(stream).arrayBuffer());
}

const SLICE = 1 << 21;

// Nodes in preorder: node i's subtree is i to end[i] - 1, its parent before it.
function newTree(n, names = Infinity) {
	return {n, name: new (names > 0xffff ? Uint32Array : Uint16Array)(n), parent: new Int32Array(n), level: new Uint16Array(n), end: new Uint32Array(n),
		inlined: new Uint8Array(n), levels: 1};
}

// Computes levels and ends from the parents.
function finishTree(tree) {
	const {n, parent, level, end} = tree;
	for (let i = 1; i < n; i++) {
		level[i] = level[parent[i]] + 1;
		tree.levels = Math.max(tree.levels, level[i] + 1);
	}
	for (let i = n - 1; i >= 0; i--) {
		end[i] = Math.max(end[i], i + 1);
		if (i)
			end[parent[i]] = Math.max(end[parent[i]], end[i]);
	}
	return tree;
}

// Reads nodes in slices: the browser can show `tell`'s progress in between.
async function readTree(bytes, rootName, tell) {
	const tree = newTree(bytes.number() + 1, rootName);
	tree.name[0] = rootName;
	tree.parent[0] = -1;
	for (let i = 1; i < tree.n; i += SLICE) {
		if (i > 1)
			await tell(`Reading ${tree.n.toLocaleString('en-US')} boxes: ${Math.floor(100 * i / tree.n)} %`);
		readNodes(bytes, tree, i, Math.min(tree.n, i + SLICE));
	}
	for (let node = tree.n - 1; node >= 0; node = tree.parent[node])
		tree.end[node] = tree.n;
	tree.parent[0] = 0;
	return tree;
}

// A node ends where one that is not on it begins. There are millions: numbers of one byte are read without a call.
function readNodes(bytes, tree, begin, stop) {
	const {parent, level, end, inlined, name} = tree, {data} = bytes;
	for (let i = begin; i < stop; i++) {
		const word = data[bytes.at] < 128 ? data[bytes.at++] : bytes.number();
		let below = i - 1;
		for (let up = word >>> 1; up > 0; up--) {
			end[below] = i;
			below = parent[below];
		}
		parent[i] = below;
		level[i] = level[below] + 1;
		if (level[i] >= tree.levels)
			tree.levels = level[i] + 1;
		inlined[i] = word & 1;
		name[i] = data[bytes.at] < 128 ? data[bytes.at++] : bytes.number();
	}
}

// Nodes that stand within another of their name: these do not count once more for it. Found when they are asked for.
function nestedOf(profile) {
	const {tree: {n, name, level, levels}, names} = profile;
	if (profile.nested)
		return profile.nested;
	const nested = profile.nested = new Uint8Array(n), open = new Int32Array(names.length), path = new Uint32Array(levels);
	for (let i = 0, depth = 0; i < n; i++) {
		while (depth > level[i])
			open[path[--depth]]--;
		nested[i] = open[name[i]] > 0 ? 1 : 0;
		open[name[i]]++;
		path[depth++] = name[i];
	}
	return nested;
}

function readGroups(bytes) {
	const n = bytes.number(), most = Math.ceil((bytes.data.length - bytes.at) / 3);
	const groups = {n, bucket: new Uint32Array(n), vcpu: new Uint32Array(n), state: new Uint8Array(n),
		squares: new Float64Array(n), first: new Uint32Array(n + 1)};
	const node = new Uint32Array(most), samples = new Float64Array(most), weight = new Float64Array(most);
	let bucket = 0, row = 0;
	for (let i = 0; i < n; i++) {
		groups.bucket[i] = bucket += bytes.number();
		groups.vcpu[i] = bytes.number();
		groups.state[i] = bytes.number();
		groups.squares[i] = bytes.double();
		const end = row + bytes.number();
		for (let place = 0; row < end; row++) {
			node[row] = place += bytes.number();
			samples[row] = bytes.number();
			weight[row] = bytes.number();
		}
		groups.first[i + 1] = row;
	}
	return {groups, rows: {node: node.slice(0, row), samples: samples.slice(0, row), weight: weight.slice(0, row)}};
}

async function readProfile(data, tell) {
	const bytes = new Bytes(data), head = JSON.parse(bytes.text()), names = [], shorts = [], colors = [], packages = [], codes = [];
	for (let n = bytes.number(); n > 0; n--) {
		if (n % CHUNK === 0)
			await tell(`Reading names: ${n.toLocaleString('en-US')} more`);
		names.push(bytes.text());
		shorts.push(bytes.text() || names.at(-1));
		colors.push(bytes.color());
		packages.push(bytes.color());
		codes.push(bytes.number());
	}
	// The last two are no functions, even if one is called like them: what is too narrow, and the root.
	const rest = names.push('…') - 1;
	names.push('all');
	shorts.push('…', 'all');
	colors.push('#c6c7cc', '#d0d0d4');
	packages.push('#c6c7cc', '#d0d0d4');
	const tree = await readTree(bytes, names.length - 1, tell);
	const sides = head.sides.map((side) => ({...side, ...readGroups(bytes)}));
	return {...head, names, shorts, colors, packages, codes, rest, tree, sides, code: readCode(bytes)};
}

// Code of functions, with the rows that stacks pass: each node is one, on that of its caller. null: there is none.
function readCode(bytes) {
	const text = bytes.text();
	if (!text)
		return null;
	const n = bytes.number() + 1, parent = new Uint32Array(n), row = new Uint32Array(n);
	for (let i = 1; i < n; i++) {
		parent[i] = i - bytes.number();
		row[i] = bytes.number();
	}
	return {text, n, parent, row, bucket_ns: bytes.number(), ...readGroups(bytes)};
}
