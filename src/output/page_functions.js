// SPDX-License-Identifier: BSD-3-Clause
//
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
		const {page} = this, button = make('button', {type: 'button', textContent: page.names[row.name], title: page.names[row.name].slice(0, 1000)});
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
