/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/image_wire.h"

#include <string.h>

#include "symbol/image_wire_format.h"

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
				 .patched = code->patched};

	memcpy(wire.note, code->note, sizeof(wire.note));
	memcpy(wire.build_id, code->build_id, sizeof(wire.build_id));
	put(&wire, sizeof(wire), 1, out);
	for (size_t i = 0; i < code->n; i++) {
		const struct wire_piece piece = {code->piece[i].va, code->piece[i].len};

		put(&piece, sizeof(piece), 1, out);
		put(code->piece[i].bytes, 1, code->piece[i].len, out);
	}
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
	if (file->rows) {
		head.rows = file->rows->n;
		head.rows_base = file->rows->base;
		head.rare = file->rows->n_rare;
		head.expressions = file->rows->n_expressions;
		head.kept = file->rows->n_kept;
	}
	head.has_code = file->code != NULL;
	memcpy(head.build_id, file->build_id, sizeof(head.build_id));
	put(&head, sizeof(head), 1, out);
	if (file->symbols)
		send_symbols(file->symbols, out);
	if (file->code)
		send_code(file->code, out);
	if (file->rows) {
		put(file->rows->row, sizeof(*file->rows->row), head.rows, out);
		put(file->rows->rare, sizeof(*file->rows->rare), head.rare, out);
		put(file->rows->expressions, 1, head.expressions, out);
		put(file->rows->kept, sizeof(*file->rows->kept), head.kept, out);
	}
}
