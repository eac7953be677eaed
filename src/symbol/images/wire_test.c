/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "symbol/images/file.h"

/* Damaged messages, each with the next of a fixed row of random numbers. */
#define DAMAGES 1000

/* This program: an ELF file with symbols, code and unwind tables. */
static struct image_file *load_self(void)
{
	const struct image_spec spec = {.path = "/proc/self/exe", .names = true};
	struct image_file *file = calloc(1, sizeof(*file));

	assert_non_null(file);
	assert_null(image_file_load(&spec, file));
	assert_non_null(file->symbols);
	assert_non_null(file->code);
	assert_non_null(file->table);
	/* As a file for 32-bit Arm has them. */
	assert_int_equal(file->code->n_marks, 0);
	file->code->mark = calloc(3, sizeof(*file->code->mark));
	assert_non_null(file->code->mark);
	file->code->n_marks = 3;
	for (size_t i = 0; i < 3; i++)
		file->code->mark[i] = (struct code_mark){file->code->start + 4 * i, i};
	return file;
}

static FILE *open_bytes(const char *bytes, size_t len)
{
	FILE *in = fmemopen((void *)bytes, len, "r");

	assert_non_null(in);
	return in;
}

struct message {
	char *bytes;
	size_t len;
};

static struct message send(struct error *err, const struct image_file *file)
{
	struct message message;
	FILE *out = open_memstream(&message.bytes, &message.len);

	assert_non_null(out);
	image_wire_send(err, file, out);
	assert_int_equal(fclose(out), 0);
	return message;
}

/* Answers at the edges of a symbol, and in its middle. */
static void same_answers(const struct symbols *a, const struct symbols *b,
			 const struct symbol *symbol)
{
	const uint64_t site[] = {symbol->start - 1, symbol->start,
				 symbol->start + (symbol->end - symbol->start) / 2, symbol->end - 1,
				 symbol->end};

	for (size_t i = 0; i < sizeof(site) / sizeof(site[0]); i++) {
		struct symbol x, y;
		bool found = symbols_find(a, site[i], &x);

		assert_int_equal(found, symbols_find(b, site[i], &y));
		if (found)
			assert_string_equal(x.name, y.name);
	}
}

static void same_symbols(const struct symbols *a, const struct symbols *b)
{
	assert_int_equal(symbols_count(a), symbols_count(b));
	assert_string_equal(symbols_build_id(a) ? symbols_build_id(a) : "",
			    symbols_build_id(b) ? symbols_build_id(b) : "");
	for (size_t i = 0; i < symbols_count(a); i++) {
		struct symbol x, y;

		symbols_get(a, i, &x);
		symbols_get(b, i, &y);
		assert_int_equal(x.start, y.start);
		assert_int_equal(x.end, y.end);
		assert_string_equal(x.name, y.name);
		same_answers(a, b, &x);
	}
}

static void same_code(const struct elf_code *a, const struct elf_code *b)
{
	assert_int_equal(a->start, b->start);
	assert_int_equal(a->end, b->end);
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->n_marks, b->n_marks);
	if (a->n_marks)
		assert_memory_equal(a->mark, b->mark, a->n_marks * sizeof(*a->mark));
	assert_int_equal(a->patched, b->patched);
	assert_int_equal(a->machine, b->machine);
	assert_int_equal(a->note_va, b->note_va);
	assert_int_equal(a->note_len, b->note_len);
	assert_memory_equal(a->note, b->note, sizeof(a->note));
	assert_string_equal(a->build_id, b->build_id);
	for (size_t i = 0; i < a->n; i++) {
		assert_int_equal(a->piece[i].va, b->piece[i].va);
		assert_int_equal(a->piece[i].len, b->piece[i].len);
		assert_memory_equal(a->piece[i].bytes, b->piece[i].bytes, a->piece[i].len);
	}
}

static void same_rows(const struct unwind_table *a, const struct unwind_table *b)
{
	assert_int_equal(a->base, b->base);
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->n_rare, b->n_rare);
	assert_int_equal(a->n_expressions, b->n_expressions);
	assert_memory_equal(a->row, b->row, a->n * sizeof(*a->row));
	for (uint32_t i = 0; i < a->n_rare; i++)
		assert_int_equal(a->rare[i].cfa.value, b->rare[i].cfa.value);
	if (a->n_expressions)
		assert_memory_equal(a->expressions, b->expressions, a->n_expressions);
	assert_int_equal(a->n_kept, b->n_kept);
	if (a->n_kept)
		assert_memory_equal(a->kept, b->kept, a->n_kept * sizeof(*a->kept));
}

/* A mark is the one at the address, or the last before it. */
static void marks_tell_the_kind_of_code_from_them_on(void **state)
{
	struct image_file *file = load_self();
	const struct elf_code *code = file->code;

	assert_null(elf_code_mark(code, code->start - 1));
	assert_int_equal(elf_code_next_mark(code, 0), code->start);
	assert_int_equal(elf_code_mark(code, code->start)->kind, CODE_PLAIN);
	assert_int_equal(elf_code_mark(code, code->start + 3)->kind, CODE_PLAIN);
	assert_int_equal(elf_code_next_mark(code, code->start), code->start + 4);
	assert_int_equal(elf_code_mark(code, code->start + 4)->kind, CODE_THUMB);
	assert_int_equal(elf_code_mark(code, UINT64_MAX)->kind, CODE_DATA);
	assert_true(elf_code_next_mark(code, code->start + 8) == UINT64_MAX);
	image_file_free(file);
}

static void what_is_sent_arrives(void **state)
{
	struct image_file *file = load_self(), *got = calloc(1, sizeof(*got));
	struct message message = send(NULL, file);
	FILE *in = open_bytes(message.bytes, message.len);

	assert_null(image_wire_receive(in, UINT64_MAX, got));
	assert_int_equal(fgetc(in), EOF);
	assert_string_equal(file->build_id, got->build_id);
	same_symbols(file->symbols, got->symbols);
	same_code(file->code, got->code);
	same_rows(file->table, got->table);
	fclose(in);
	free(message.bytes);
	image_file_free(file);
	image_file_free(got);
}

static void more_than_there_is_room_for_is_refused(void **state)
{
	struct image_file *file = load_self();
	struct message message = send(NULL, file);

	for (int fits = 0; fits <= 1; fits++) {
		struct image_file *got = calloc(1, sizeof(*got));
		FILE *in = open_bytes(message.bytes, message.len);
		/* Heads are not counted. */
		struct error *err =
			image_wire_receive(in, fits ? message.len : message.len / 2, got);

		assert_int_equal(err == NULL, fits);
		error_free(err);
		fclose(in);
		image_file_free(got);
	}
	free(message.bytes);
	image_file_free(file);
}

/* Tables of 32-bit Arm. */
static void rows_with_kept_registers_arrive_if_they_are_sound(void **state)
{
	struct row row[] = {{.start = 0, .kind = ROW_CALL, .begins = 1},
			    {.start = 8, .kind = ROW_BODY, .kept = 1, .begins = 1}};
	struct row_kept kept[] = {{{-8, ROW_SAME}}, {{ROW_LOST, -4}}};
	struct unwind_table table = {.n = 2, .row = row, .n_kept = 2, .kept = kept};
	struct image_file *whole = load_self(), file = *whole;

	file.table = &table;
	for (unsigned i = 0; i < 3; i++) {
		struct image_file *got = calloc(1, sizeof(*got));
		struct message message;
		FILE *in;
		struct error *err;

		/* A kept row that does not exist; and one of a kind that only other tables have. */
		row[1].kept = i == 1 ? 2 : 1;
		row[0].kind = i == 2 ? ROW_RARE : ROW_CALL;
		message = send(NULL, &file);
		in = open_bytes(message.bytes, message.len);
		err = image_wire_receive(in, UINT64_MAX, got);
		assert_int_equal(err != NULL, i > 0);
		if (!err)
			same_rows(&table, got->table);
		error_free(err);
		fclose(in);
		free(message.bytes);
		image_file_free(got);
	}
	image_file_free(whole);
}

static void errors_arrive_and_cannot_hurt_a_terminal(void **state)
{
	struct image_file file = {0};
	struct message message = send(error_new(ERR_INPUT, "f: \033[2J\n"), &file);
	FILE *in = open_bytes(message.bytes, message.len);
	struct error *err = image_wire_receive(in, UINT64_MAX, &file);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_string_equal(err->text, "f: ?[2J?");
	error_free(err);
	fclose(in);
	free(message.bytes);
}

static void use(const struct image_file *file)
{
	struct symbol symbol;

	for (uint64_t va = 0; va < 4096; va++) {
		if (file->symbols && symbols_find(file->symbols, va * 16, &symbol))
			assert_true(strlen(symbol.name) < 1u << 20);
		if (file->table)
			(void)unwind_table_find(file->table, file->table->base + va * 16);
	}
}

/* True if the message was taken for a whole one. */
static bool take(const char *bytes, size_t len)
{
	struct image_file *got = calloc(1, sizeof(*got));
	FILE *in = open_bytes(bytes, len);
	struct error *err;

	assert_non_null(got);
	/* A damaged length may ask for no more than twice the message. */
	err = image_wire_receive(in, 2 * len, got);
	if (!err)
		use(got);
	fclose(in);
	image_file_free(got);
	error_free(err);
	return !err;
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static void half_a_message_is_an_error(void **state)
{
	struct image_file *file = load_self();
	struct message message = send(NULL, file);
	uint64_t seed = 1;

	for (int i = 0; i < 100; i++)
		assert_false(take(message.bytes, 1 + next_random(&seed) % (message.len - 1)));
	free(message.bytes);
	image_file_free(file);
}

/* Nothing but a crash, or a sanitizer, makes this fail: changed names are names as well. */
static void damage_does_no_harm(void **state)
{
	struct image_file *file = load_self();
	struct message message = send(NULL, file);
	uint64_t seed = 2;
	int errors = 0;

	for (int i = 0; i < DAMAGES; i++) {
		/* Every second time in the head, where the lengths are. */
		size_t at = next_random(&seed) % (i % 2 ? 400 : message.len);
		char was = message.bytes[at];

		message.bytes[at] = (char)(was ^ (1 << next_random(&seed) % 8));
		errors += !take(message.bytes, message.len);
		message.bytes[at] = was;
	}
	assert_in_range(errors, DAMAGES / 20, DAMAGES);
	free(message.bytes);
	image_file_free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sent_arrives),
		cmocka_unit_test(marks_tell_the_kind_of_code_from_them_on),
		cmocka_unit_test(more_than_there_is_room_for_is_refused),
		cmocka_unit_test(rows_with_kept_registers_arrive_if_they_are_sound),
		cmocka_unit_test(errors_arrive_and_cannot_hurt_a_terminal),
		cmocka_unit_test(half_a_message_is_an_error),
		cmocka_unit_test(damage_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
