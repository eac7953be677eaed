/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/file.h"

#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "symbol/images/images.h"
#include "symbol/names/table.h"

/*
 * Wire format of parsed image files: the head; symbols, then their names, NUL
 * behind each; code, each piece followed by its bytes, then its marks; rows, rare rows, expressions, kept
 * registers as they are in memory.
 */

struct wire_symbol {
	uint64_t start, end, name; /* name: offset in the strings */
};

struct wire_code {
	uint64_t start, end, note_va, note_len, n;
	uint64_t patched, machine, marks;
	uint8_t note[CODE_NOTE_MAX];
	char build_id[2 * BUILD_ID_MAX + 1];
};

struct wire_piece {
	uint64_t va, len;
};

/* Sizes of all parts that follow; a missing part has 0 entries. */
struct wire_head {
	uint64_t error_kind, error_len; /* not 0: the error's text is all that follows */
	uint64_t symbols, strings;
	uint64_t has_code;
	uint64_t rows, rows_base, rare, expressions, kept;
	struct thread_layout threads;
	char build_id[2 * BUILD_ID_MAX + 1], symbols_id[2 * BUILD_ID_MAX + 1];
};

static void put(const void *data, size_t size, size_t n, FILE *out)
{
	if (n)
		fwrite(data, size, n, out);
}

static void send_symbols(const struct symbols *symbols, FILE *out)
{
	uint64_t name = 0;
	struct symbol symbol;

	for (size_t i = 0; i < symbols_count(symbols); i++) {
		struct wire_symbol wire;

		symbols_get(symbols, i, &symbol);
		wire = (struct wire_symbol){symbol.start, symbol.end, name};
		put(&wire, sizeof(wire), 1, out);
		name += strlen(symbol.name) + 1;
	}
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_get(symbols, i, &symbol);
		put(symbol.name, 1, strlen(symbol.name) + 1, out);
	}
}

static void send_code(const struct elf_code *code, FILE *out)
{
	struct wire_code wire = {.start = code->start,
				 .end = code->end,
				 .note_va = code->note_va,
				 .note_len = code->note_len,
				 .n = code->n,
				 .patched = code->patched,
				 .machine = code->machine,
				 .marks = code->n_marks};

	memcpy(wire.note, code->note, sizeof(wire.note));
	memcpy(wire.build_id, code->build_id, sizeof(wire.build_id));
	put(&wire, sizeof(wire), 1, out);
	for (size_t i = 0; i < code->n; i++) {
		const struct wire_piece piece = {code->piece[i].va, code->piece[i].len};

		put(&piece, sizeof(piece), 1, out);
		put(code->piece[i].bytes, 1, code->piece[i].len, out);
	}
	put(code->mark, sizeof(*code->mark), code->n_marks, out);
}

static uint64_t all_strings(const struct symbols *symbols)
{
	struct symbol symbol;
	uint64_t len = 0;

	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_get(symbols, i, &symbol);
		len += strlen(symbol.name) + 1;
	}
	return len;
}

void image_wire_send(struct error *err, const struct image_file *file, FILE *out)
{
	struct wire_head head = {0};

	if (err) {
		head.error_kind = err->kind;
		head.error_len = strlen(err->text);
		put(&head, sizeof(head), 1, out);
		put(err->text, 1, head.error_len, out);
		error_free(err);
		return;
	}
	if (file->symbols) {
		const char *id = symbols_build_id(file->symbols);

		head.symbols = symbols_count(file->symbols);
		head.strings = all_strings(file->symbols);
		strncpy(head.symbols_id, id ? id : "", sizeof(head.symbols_id) - 1);
	}
	if (file->table) {
		head.rows = file->table->n;
		head.rows_base = file->table->base;
		head.rare = file->table->n_rare;
		head.expressions = file->table->n_expressions;
		head.kept = file->table->n_kept;
	}
	head.has_code = file->code != NULL;
	head.threads = file->threads;
	memcpy(head.build_id, file->build_id, sizeof(head.build_id));
	put(&head, sizeof(head), 1, out);
	if (file->symbols)
		send_symbols(file->symbols, out);
	if (file->code)
		send_code(file->code, out);
	if (file->table) {
		put(file->table->row, sizeof(*file->table->row), head.rows, out);
		put(file->table->rare, sizeof(*file->table->rare), head.rare, out);
		put(file->table->expressions, 1, head.expressions, out);
		put(file->table->kept, sizeof(*file->table->kept), head.kept, out);
	}
}

/* Limits beyond any real file; memory that is announced but not sent is never touched. */
#define TEXT_MAX  4096u
#define ARRAY_MAX (1u << 30) /* bytes */

/* What comes, and how many bytes of it are kept. */
struct incoming {
	FILE *in;
	uint64_t left;
};

static struct error *nonsense(void)
{
	return error_new(ERR_FAILED, "what was read of the file makes no sense");
}

/* An array that the caller frees; NULL, and *err set, if it did not come, or if *err was set. */
static void *get(struct incoming *in, size_t size, uint64_t n, struct error **err)
{
	void *data = NULL;

	if (*err)
		return NULL;
	if (n <= ARRAY_MAX / size && n * size <= in->left)
		data = malloc(n * size + 1);
	if (data && fread(data, size, n, in->in) == n) {
		in->left -= n * size;
		return data;
	}
	free(data);
	*err = nonsense();
	return NULL;
}

static bool is_hex(const char *text, size_t size)
{
	const size_t len = strnlen(text, size);

	return len < size && strspn(text, "0123456789abcdef") == len;
}

/* The text was made in a process that may have been taken over, and is for a terminal. */
static struct error *receive_error(FILE *in, const struct wire_head *head)
{
	char text[TEXT_MAX + 1];

	if (head->error_kind > ERR_OUTPUT || head->error_len > TEXT_MAX ||
	    fread(text, 1, head->error_len, in) != head->error_len)
		return nonsense();
	text[head->error_len] = '\0';
	for (size_t i = 0; i < head->error_len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';
	return error_new((enum error_kind)head->error_kind, "%s", text);
}

static struct error *add_symbols(const struct wire_symbol *wire, uint64_t n, const char *strings,
				 uint64_t len, struct symbol_candidates *list)
{
	for (uint64_t i = 0; i < n; i++) {
		struct symbol_candidate one;

		if (wire[i].name >= len || wire[i].end <= wire[i].start)
			return nonsense();
		one = (struct symbol_candidate){.start = wire[i].start,
						.size = wire[i].end - wire[i].start,
						.name = strings + wire[i].name};
		TRY(symbol_candidates_add(list, &one));
	}
	return NULL;
}

static struct error *receive_symbols(struct incoming *in, const struct wire_head *head,
				     struct symbols **symbols)
{
	ENDED_BY(symbol_candidates_free) struct symbol_candidates list = {0};
	struct error *err = NULL;
	FREED struct wire_symbol *wire = get(in, sizeof(*wire), head->symbols, &err);
	FREED char *strings = get(in, 1, head->strings, &err);

	if (!err && (!head->strings || strings[head->strings - 1]))
		err = nonsense();
	if (err)
		return err;
	TRY(add_symbols(wire, head->symbols, strings, head->strings, &list));
	TRY(symbols_build(&list, &strings, symbols));
	symbols_set_build_id(*symbols, head->symbols_id);
	return NULL;
}

/* Receives pieces; checks that they are in order, without overlaps, and within bounds. */
static struct error *receive_pieces(struct incoming *in, uint64_t n, struct elf_code *code)
{
	uint64_t total = 0, free_from = 0;
	struct error *err = NULL;

	for (uint64_t i = 0; i < n && !err; i++) {
		struct code_piece *piece = &code->piece[code->n];
		struct wire_piece wire;

		if (fread(&wire, sizeof(wire), 1, in->in) != 1 || wire.va < free_from ||
		    !wire.len || wire.len > ELF_CODE_MAX - total || wire.va > UINT64_MAX - wire.len)
			return nonsense();
		total += wire.len;
		free_from = wire.va + wire.len;
		*piece = (struct code_piece){.va = wire.va, .len = wire.len};
		piece->bytes = get(in, 1, wire.len, &err);
		code->n++;
	}
	return err;
}

/* Receives marks; checks that they are in order, and of a kind that there is. */
static struct error *receive_marks(struct incoming *in, uint64_t n, struct elf_code *code)
{
	struct error *err = NULL;

	code->mark = get(in, sizeof(*code->mark), n, &err);
	for (uint64_t i = 0; i < n && !err; i++)
		if (code->mark[i].kind >= CODE_KINDS ||
		    (i && code->mark[i].va < code->mark[i - 1].va))
			err = nonsense();
	code->n_marks = err ? 0 : n;
	return err;
}

static struct error *receive_code(struct incoming *in, struct elf_code **out)
{
	struct elf_code *code = *out = calloc(1, sizeof(*code));
	struct wire_code wire;

	if (!code)
		return error_no_memory();
	if (fread(&wire, sizeof(wire), 1, in->in) != 1 || wire.note_len > CODE_NOTE_MAX ||
	    !is_hex(wire.build_id, sizeof(wire.build_id)) || wire.n > ELF_PIECES_MAX)
		return nonsense();
	*code = (struct elf_code){.start = wire.start,
				  .end = wire.end,
				  .patched = wire.patched != 0,
				  .machine = (uint16_t)wire.machine,
				  .note_len = wire.note_len,
				  .note_va = wire.note_va};
	memcpy(code->note, wire.note, sizeof(code->note));
	memcpy(code->build_id, wire.build_id, sizeof(code->build_id));
	code->piece = calloc(wire.n + 1, sizeof(*code->piece));
	TRY(code->piece ? receive_pieces(in, wire.n, code) : error_no_memory());
	return receive_marks(in, wire.marks, code);
}

static bool rule_is_sound(const struct row_rule *rule, uint32_t expressions)
{
	return rule->how <= RULE_IS_EXPRESSION && rule->offset <= expressions &&
	       rule->len <= expressions - rule->offset;
}

static bool rare_is_sound(const struct row_rare *rare, uint32_t expressions)
{
	uint8_t trap; /* a bool that is neither must not be read as one */

	memcpy(&trap, &rare->trap, 1);
	return trap <= 1 && rule_is_sound(&rare->cfa, expressions) &&
	       rule_is_sound(&rare->ra, expressions) && rule_is_sound(&rare->fp, expressions) &&
	       rule_is_sound(&rare->sp, expressions);
}

static bool row_is_sound(const struct unwind_table *table, const struct row *row)
{
	switch (row->kind) {
	case ROW_NONE:
	case ROW_END:
		return true;
	case ROW_RARE:
		return !table->n_kept && row->cfa_offset >= 0 &&
		       (uint32_t)row->cfa_offset < table->n_rare;
	case ROW_CALL:
	case ROW_TRAP:
		return row->base <= ROW_DEREF_PLUS && (!table->n_kept || row->kept < table->n_kept);
	case ROW_BODY:
		return row->base <= ROW_DEREF_PLUS && row->kept < table->n_kept;
	}
	return false;
}

static bool is_sound_table(const struct unwind_table *table)
{
	for (uint32_t i = 0; i < table->n; i++)
		if ((i && table->row[i].start <= table->row[i - 1].start) ||
		    !row_is_sound(table, &table->row[i]))
			return false;
	for (uint32_t i = 0; i < table->n_rare; i++)
		if (!rare_is_sound(&table->rare[i], table->n_expressions))
			return false;
	return true;
}

static struct error *receive_rows(struct incoming *in, const struct wire_head *head,
				  struct unwind_table **out)
{
	struct unwind_table *table = *out = calloc(1, sizeof(*table));
	struct error *err = NULL;

	if (!table)
		return error_no_memory();
	if (head->rows > ARRAY_MAX || head->rare > ARRAY_MAX || head->expressions > ARRAY_MAX ||
	    head->kept > ARRAY_MAX)
		return nonsense();
	*table = (struct unwind_table){.base = head->rows_base,
				       .n = (uint32_t)head->rows,
				       .n_rare = (uint32_t)head->rare,
				       .n_expressions = (uint32_t)head->expressions,
				       .n_kept = (uint32_t)head->kept};
	table->row = get(in, sizeof(*table->row), head->rows, &err);
	table->rare = get(in, sizeof(*table->rare), head->rare, &err);
	table->expressions = get(in, 1, head->expressions, &err);
	table->kept = get(in, sizeof(*table->kept), head->kept, &err);
	return err || is_sound_table(table) ? err : nonsense();
}

struct error *image_wire_receive(FILE *in, uint64_t max, struct image_file *file)
{
	struct incoming incoming = {in, max};
	struct wire_head head;

	if (fread(&head, sizeof(head), 1, in) != 1)
		return nonsense();
	if (head.error_kind)
		return receive_error(in, &head);
	if (!is_hex(head.build_id, sizeof(head.build_id)) ||
	    !is_hex(head.symbols_id, sizeof(head.symbols_id)) ||
	    !thread_layout_is_sound(&head.threads))
		return nonsense();
	file->threads = head.threads;
	memcpy(file->build_id, head.build_id, sizeof(file->build_id));
	if (head.symbols)
		TRY(receive_symbols(&incoming, &head, &file->symbols));
	if (head.has_code)
		TRY(receive_code(&incoming, &file->code));
	if (head.rows)
		TRY(receive_rows(&incoming, &head, &file->table));
	return file->code || file->symbols ? NULL : nonsense();
}
