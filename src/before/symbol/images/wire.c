/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/image_wire.h"

#include <stdlib.h>
#include <string.h>

#include "symbol/image_wire_format.h"
#include "symbol/names/table.h"

/* More of anything than a file has; what is claimed beyond what comes is never touched. */
#define TEXT_MAX   4096u
#define ARRAY_MAX  (1u << 30) /* bytes */
#define CODE_MAX   (512u << 20)
#define PIECES_MAX (1u << 16)

static struct error *nonsense(void)
{
	return error_new(ERR_FAILED, "what was read of the file makes no sense");
}

/* An array that the caller frees; NULL, and *err set, if it did not come, or if *err was set. */
static void *get(FILE *in, size_t size, uint64_t n, struct error **err)
{
	void *data = NULL;

	if (*err)
		return NULL;
	if (n <= ARRAY_MAX / size)
		data = malloc(n * size + 1);
	if (data && fread(data, size, n, in) == n)
		return data;
	free(data);
	*err = nonsense();
	return NULL;
}

static bool is_hex(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (!text[i])
			return true;
		if (!strchr("0123456789abcdef", text[i]))
			return false;
	}
	return false;
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
				 uint64_t len, struct candidates *list)
{
	struct error *err = NULL;

	for (uint64_t i = 0; i < n && !err; i++) {
		struct candidate one;

		if (wire[i].name >= len || wire[i].end <= wire[i].start)
			return nonsense();
		one = (struct candidate){.start = wire[i].start,
					 .size = wire[i].end - wire[i].start,
					 .name = strings + wire[i].name};
		err = candidates_add(list, &one);
	}
	return err;
}

static struct error *receive_symbols(FILE *in, const struct wire_head *head,
				     struct symbols **symbols)
{
	struct candidates list = {0};
	struct error *err = NULL;
	struct wire_symbol *wire = get(in, sizeof(*wire), head->symbols, &err);
	char *strings = get(in, 1, head->strings, &err);

	if (!err && (!head->strings || strings[head->strings - 1]))
		err = nonsense();
	if (!err)
		err = add_symbols(wire, head->symbols, strings, head->strings, &list);
	if (err)
		free(strings);
	else
		err = symbols_build(&list, strings, symbols);
	if (!err)
		symbols_set_build_id(*symbols, head->symbols_id);
	candidates_free(&list);
	free(wire);
	return err;
}

/* In order, without overlaps, within bounds. */
static struct error *receive_pieces(FILE *in, uint64_t n, struct elf_code *code)
{
	uint64_t total = 0, free_from = 0;
	struct error *err = NULL;

	for (uint64_t i = 0; i < n && !err; i++) {
		struct code_piece *piece = &code->piece[code->n];
		struct wire_piece wire;

		if (fread(&wire, sizeof(wire), 1, in) != 1 || wire.va < free_from || !wire.len ||
		    wire.len > CODE_MAX - total || wire.va > UINT64_MAX - wire.len)
			return nonsense();
		total += wire.len;
		free_from = wire.va + wire.len;
		*piece = (struct code_piece){.va = wire.va, .len = wire.len};
		piece->bytes = get(in, 1, wire.len, &err);
		code->n++;
	}
	return err;
}

static struct error *receive_code(FILE *in, struct elf_code **out)
{
	struct elf_code *code = *out = calloc(1, sizeof(*code));
	struct wire_code wire;

	if (!code)
		return error_no_memory();
	if (fread(&wire, sizeof(wire), 1, in) != 1 || wire.note_len > CODE_NOTE_MAX ||
	    !is_hex(wire.build_id, sizeof(wire.build_id)) || wire.n > PIECES_MAX)
		return nonsense();
	*code = (struct elf_code){.start = wire.start,
				  .end = wire.end,
				  .patched = wire.patched != 0,
				  .note_len = wire.note_len,
				  .note_va = wire.note_va};
	memcpy(code->note, wire.note, sizeof(code->note));
	memcpy(code->build_id, wire.build_id, sizeof(code->build_id));
	code->piece = calloc(wire.n + 1, sizeof(*code->piece));
	return code->piece ? receive_pieces(in, wire.n, code) : error_no_memory();
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

static bool row_is_sound(const struct rows *rows, const struct row *row)
{
	switch (row->kind) {
	case ROW_NONE:
	case ROW_END:
		return true;
	case ROW_RARE:
		return !rows->n_kept && row->cfa_offset >= 0 &&
		       (uint32_t)row->cfa_offset < rows->n_rare;
	case ROW_CALL:
	case ROW_TRAP:
		return row->base <= ROW_DEREF_PLUS && (!rows->n_kept || row->kept < rows->n_kept);
	case ROW_BODY:
		return row->base <= ROW_DEREF_PLUS && row->kept < rows->n_kept;
	}
	return false;
}

static bool rows_are_sound(const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->n; i++)
		if ((i && rows->row[i].start <= rows->row[i - 1].start) ||
		    !row_is_sound(rows, &rows->row[i]))
			return false;
	for (uint32_t i = 0; i < rows->n_rare; i++)
		if (!rare_is_sound(&rows->rare[i], rows->n_expressions))
			return false;
	return true;
}

static struct error *receive_rows(FILE *in, const struct wire_head *head, struct rows **out)
{
	struct rows *rows = *out = calloc(1, sizeof(*rows));
	struct error *err = NULL;

	if (!rows)
		return error_no_memory();
	if (head->rows > ARRAY_MAX || head->rare > ARRAY_MAX || head->expressions > ARRAY_MAX ||
	    head->kept > ARRAY_MAX)
		return nonsense();
	*rows = (struct rows){.base = head->rows_base,
			      .n = (uint32_t)head->rows,
			      .n_rare = (uint32_t)head->rare,
			      .n_expressions = (uint32_t)head->expressions,
			      .n_kept = (uint32_t)head->kept};
	rows->row = get(in, sizeof(*rows->row), head->rows, &err);
	rows->rare = get(in, sizeof(*rows->rare), head->rare, &err);
	rows->expressions = get(in, 1, head->expressions, &err);
	rows->kept = get(in, sizeof(*rows->kept), head->kept, &err);
	return err || rows_are_sound(rows) ? err : nonsense();
}

struct error *image_wire_receive(FILE *in, struct image_file *file)
{
	struct wire_head head;
	struct error *err = NULL;

	if (fread(&head, sizeof(head), 1, in) != 1)
		return nonsense();
	if (head.error_kind)
		return receive_error(in, &head);
	if (!is_hex(head.build_id, sizeof(head.build_id)) ||
	    !is_hex(head.symbols_id, sizeof(head.symbols_id)))
		return nonsense();
	memcpy(file->build_id, head.build_id, sizeof(file->build_id));
	if (head.symbols)
		err = receive_symbols(in, &head, &file->symbols);
	if (!err && head.has_code)
		err = receive_code(in, &file->code);
	if (!err && head.rows)
		err = receive_rows(in, &head, &file->rows);
	if (!err && !file->code && !file->symbols)
		err = nonsense();
	return err;
}
