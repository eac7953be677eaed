// SPDX-License-Identifier: BSD-3-Clause
//
// The code of a function: instructions below their source lines, with their samples. page_annotate.c
// has put that of the functions that take most into the page; of the others it is said why there is none.

const baseName = (path) => path.slice(path.lastIndexOf('/') + 1) || path;

class Annotation {
	constructor(page, text) {
		Object.assign(this, {page, text, box: get('annotate'), body: get('annotate-code')});
		get('annotate-close').addEventListener('click', () => this.box.close());
	}

	// Read when it is first asked for.
	code() {
		this.data ??= this.text ? JSON.parse(this.text) : null;
		return this.data;
	}

	// Parts with the function's own code first, then those that it is inlined into.
	partsOf(name) {
		const parts = this.code()?.parts ?? [];
		return [...parts.filter((part) => part.name === name), ...parts.filter((part) => part.name !== name && part.functions.includes(name))];
	}

	open(name) {
		const full = this.page.names[name], parts = this.partsOf(full);
		get('annotate-title').textContent = this.page.shorts[name].slice(0, 1000);
		get('annotate-title').title = full.slice(0, 1000);
		get('annotate-note').textContent = this.note(parts);
		this.body.replaceChildren(...parts.flatMap((part) => this.part(part, full)));
		if (!this.box.open)
			this.box.showModal();
		this.body.scrollTop = this.body.scrollLeft = 0;
		const hottest = this.body.querySelector('.hottest');
		if (hottest)
			this.body.scrollTop = hottest.offsetTop - this.body.clientHeight / 3;
		this.body.focus();
	}

	note(parts) {
		if (!this.text)
			return 'A page of two recordings has no code. uniprof report --annotate shows that of each.';
		if (!parts.length) {
			const more = this.code().left_out ? ', or there was no room for its code' : '';
			return `The page has the code of functions with at least 0.5 % of the samples that it showed at first, and this one has less${more}. `
				+ 'uniprof report --annotate shows it.';
		}
		const texts = this.code().texts ? '' : ' Text of the sources is here only if the page was made with --source-dir.';
		return `Of the samples that the page showed at first, whatever is selected now. Self counts at the instruction that comes next, calls at the call.${texts}`;
	}

	part(part, asked) {
		const title = part.name === asked ? [] : [make('h3', {textContent: `Inlined into ${part.name.slice(0, 1000)}`})];
		const where = make('p', {className: 'where', textContent: `${part.path ?? 'no file'}${part.path ? ', its addresses' : ', addresses of the guest'}: `
			+ `${count(part.samples, 'sample')}, ${percent(part.self, 1)}; with callees ${percent(part.total, 1)}`});
		const notes = [part.lacks, part.patched && 'Code is as in the file: a kernel changes some of it when it starts.',
			part.misplaced && `${count(part.misplaced, 'sample')} not where an instruction begins: the file may not be what ran.`]
			.filter(Boolean).map((text) => make('p', {className: 'lacks', textContent: text}));
		return [...title, where, ...notes, this.table(part, asked)];
	}

	table(part, asked) {
		const heads = ['Self', 'Total', 'Address', 'Instruction'].map((textContent) => make('th', {scope: 'col', textContent}));
		const body = make('tbody'), most = part.rows.reduce((best, row) => Math.max(best, row[2]), 0);
		let line = -1, marked = false;
		for (const row of part.rows) {
			if (row[6])
				body.append(make('tr', {className: 'gap'}, make('td', {colSpan: 4, textContent: row[6] > 1 ? `… ${count(row[6], 'instruction')}` : '…'})));
			if (row[5] !== line)
				body.append(this.line(this.data.lines[line = row[5]], asked));
			const hottest = !marked && row[2] > 0 && row[2] === most;
			marked ||= hottest;
			body.append(this.row(row, most, hottest));
		}
		return make('table', {}, make('thead', {}, make('tr', {}, ...heads)), body);
	}

	row([address, text, self, total, samples], most, hottest) {
		const share = (value, none) => value > 0 || !none ? percent(value, 1) : '';
		const line = make('tr', {title: samples ? count(samples, 'sample') : ''}, make('td', {textContent: share(self, !total)}),
			make('td', {textContent: share(total, true)}), make('td', {textContent: address}), make('td', {textContent: text || '(no code)'}));
		line.className = `${hottest ? 'hottest ' : ''}${self > most / 2 && self > 0 ? 'hot' : self > most / 10 && self > 0 ? 'warm' : ''}`;
		return line;
	}

	// "util.h:7  x ^= x << 13;  (mix < main.c:32)"
	line([text, ...chain], asked) {
		const place = ([, file, number]) => file ? `${baseName(file)}:${number}` : '?';
		const [first] = chain, into = chain.slice(1).map((at, i) => `${this.short(chain[i][0])} < ${place(at)}`).join(' ');
		const cell = make('th', {colSpan: 4, scope: 'rowgroup', title: chain.map(([name, file, number]) => `${name} ${file ?? '?'}:${number}`).join('\n').slice(0, 2000)},
			make('span', {className: 'place', textContent: first?.[1] ? place(first) : 'no line is known'}),
			make('code', {textContent: text?.trimStart() ?? ''}), make('span', {className: 'chain', textContent: into ? `(${into})` : ''}));
		return make('tr', {className: chain.some(([name]) => name === asked) ? 'line' : 'line other'}, cell);
	}

	short(name) {
		this.numbers ??= new Map(this.page.names.map((full, i) => [full, i]));
		return (this.page.shorts[this.numbers.get(name)] ?? name).slice(0, 200);
	}
}

// Of the function of the box under the mouse or in focus; in the sandwich of the one in its middle.
function annotateFocus(page) {
	const flame = page.current(), node = flame.hovered > 0 ? flame.hovered : flame.focused;
	const name = node > 0 ? flame.view.name[node] : page.view === 'sandwich' ? page.chosen : -1;
	if (name < 0 || name >= page.profile.rest)
		return page.say('No function is in focus: choose a box, then annotate it');
	page.annotation.open(name);
}
