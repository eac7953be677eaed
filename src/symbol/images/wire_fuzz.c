/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for what a process that parses files tells of one. The first
 * byte of the input selects: the rest is a message, or damage to a good one.
 */

#include "base/fuzz_testing.h"
#include "symbol/images/file.h"
#include "symbol/names/table.h"

/* As the reader may have (base/sandbox.h). */
#define MOST (1u << 20)

struct message {
	char *bytes;
	size_t len;
};

static struct unwind_table *make_table(bool kept)
{
	struct table_builder *builder;
	struct unwind_table *table;
	const uint8_t ops[] = {0x77, 8};
	const uint8_t *const bytes[4] = {ops};
	const struct row_rare rare = {.cfa = {.how = RULE_IS_EXPRESSION, .len = 2},
				      .ra = {.how = RULE_AT_CFA, .value = -8}};
	struct row row = {.kind = ROW_CALL, .cfa_reg = 7, .cfa_offset = 8, .ra_at = -8};
	const struct row_kept slots = {{-8}};

	done(table_builder_new(&builder));
	done(table_builder_begin(builder, 0x1000, 0x1100, 0));
	if (!kept)
		done(table_builder_put_rare(builder, 0x1000, &rare, bytes));
	else
		done(table_builder_keep(builder, &slots, &row));
	done(table_builder_put(builder, 0x1010, &row));
	done(table_builder_finish(builder, &table));
	table_builder_free(builder);
	return table;
}

static struct message send(unsigned how)
{
	static uint8_t code[64];
	struct code_piece pieces[] = {{0x1000, 32, code}, {0x1020, 16, code + 32}};
	struct elf_code text = {.start = 0x1000,
				.end = 0x1100,
				.piece = pieces,
				.n = 2,
				.note_len = 24,
				.note_va = 0x800,
				.build_id = "0123456789abcdef"};
	struct image_file file = {.build_id = "0123456789abcdef",
				  .code = how & 1 ? &text : NULL,
				  .table = how & 2 ? make_table(how & 8) : NULL};
	char *nm = strdup("0000000000001000 T first\n0000000000001040 t second\n");
	struct message message;
	FILE *out = open_memstream(&message.bytes, &message.len);

	done(nm_read("nm", nm, strlen(nm), &file.symbols));
	if (how & 4)
		symbols_set_build_id(file.symbols, file.build_id);
	image_wire_send(how & 0x10 ? error_new(ERR_INPUT, "a sentence") : NULL, &file, out);
	fclose(out);
	symbols_free(file.symbols);
	unwind_table_free(file.table);
	return message;
}

/* Whatever has come is safe to be searched. */
static void use(const struct image_file *file)
{
	struct symbol symbol;
	uint8_t bytes[16];

	for (size_t i = 0; file->symbols && i < symbols_count(file->symbols); i++) {
		symbols_get(file->symbols, i, &symbol);
		need(strlen(symbol.name) < MOST);
		(void)symbols_find(file->symbols, symbol.start, &symbol);
	}
	for (size_t i = 0; file->code && i < file->code->n; i++)
		(void)elf_code_copy(file->code, file->code->piece[i].va, bytes, sizeof(bytes));
	for (uint32_t i = 0; file->table && i < file->table->n; i++)
		(void)unwind_table_find(file->table, file->table->base + file->table->row[i].start);
}

static void receive(const char *bytes, size_t len)
{
	struct image_file *file = calloc(1, sizeof(*file));
	FILE *in = fmemopen((void *)bytes, len, "r");
	struct error *err;

	need(file && in);
	err = image_wire_receive(in, MOST, file);
	if (!err)
		use(file);
	error_free(err);
	fclose(in);
	image_file_free(file);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);
	struct message message;

	if (how & 0x80) {
		if (fuzz_left(&in))
			receive((const char *)in.at, fuzz_left(&in));
		return;
	}
	message = send(how);
	fuzz_damage(&in, (uint8_t *)message.bytes, message.len);
	receive(message.bytes, message.len);
	free(message.bytes);
}
