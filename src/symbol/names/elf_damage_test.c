/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Damaged ELF files: whatever happens to the bytes, loading ends with a table
 * or with a sentence. Most worth running under the sanitizers.
 */

#include "symbol/names/symbols.h"

#include "symbol/names/elf_fixture.h"

struct bytes {
	uint8_t *at;
	size_t len;
};

static struct bytes read_file(const char *path)
{
	FILE *in = fopen(path, "r");
	struct bytes bytes = {malloc(1u << 24), 0};

	assert_non_null(in);
	bytes.len = fread(bytes.at, 1, 1u << 24, in);
	fclose(in);
	return bytes;
}

static struct bytes small_elf(int class)
{
	static const struct fixture_symbol symbols[] = {
		{"first", 0x1000, 0x10, STT_FUNC, STB_GLOBAL, IN_TEXT},
		{"second", 0x1010, 0, STT_NOTYPE, STB_LOCAL, IN_TEXT},
		{"third", 0x1100, 0x40, STT_FUNC, STB_WEAK, IN_TEXT},
	};
	struct fixture_file file = fixture_file();
	struct bytes bytes;

	fixture_write(&(struct fixture){.class = class,
					.machine = class == ELFCLASS32 ? EM_386 : EM_X86_64,
					.table = SHT_SYMTAB,
					.symbols = symbols,
					.n = 3},
		      file.path);
	bytes = read_file(file.path);
	close(file.fd);
	return bytes;
}

/* Loads the bytes and uses the result; true if there was a table. */
static bool survive(const char *path, const uint8_t *bytes, size_t len)
{
	struct symbols *symbols = NULL;
	struct symbol one, found;
	struct error *err;
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, len, out), len);
	assert_int_equal(fclose(out), 0);
	err = symbols_load(path, &symbols);
	if (err) {
		assert_int_equal(err->kind, ERR_INPUT);
		assert_non_null(strstr(err->text, path));
		error_free(err);
		return false;
	}
	assert_true(symbols_count(symbols) > 0);
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_get(symbols, i, &one);
		assert_true(one.end > one.start);
		assert_true(strlen(one.name) > 0);
		assert_true(symbols_find(symbols, one.start, &found));
	}
	symbols_free(symbols);
	return true;
}

static void truncated_at(struct bytes elf, size_t step)
{
	struct fixture_file file = fixture_file();

	assert_true(survive(file.path, elf.at, elf.len));
	for (size_t len = 0; len < elf.len; len += step)
		survive(file.path, elf.at, len);
	/* Section headers are the last thing in the file. */
	assert_false(survive(file.path, elf.at, elf.len - 1));
	close(file.fd);
}

static void a_small_file_cut_at_every_seventh_byte(void **state)
{
	struct bytes elf = small_elf(ELFCLASS64);

	truncated_at(elf, 7);
	free(elf.at);
}

static void a_real_program_cut_at_a_hundred_places(void **state)
{
	struct bytes elf = read_file("/proc/self/exe");

	truncated_at(elf, elf.len / 100 + 1);
	free(elf.at);
}

/* The 4 KiB of code are never read: flips every bit but theirs. */
static void every_bit_flipped(int class)
{
	struct bytes elf = small_elf(class);
	struct fixture_file file = fixture_file();

	for (size_t i = 0; i < elf.len; i++) {
		if (i >= 64 && i + 1600 < elf.len)
			continue;
		for (int bit = 0; bit < 8; bit++) {
			elf.at[i] ^= (uint8_t)(1 << bit);
			survive(file.path, elf.at, elf.len);
			elf.at[i] ^= (uint8_t)(1 << bit);
		}
	}
	close(file.fd);
	free(elf.at);
}

static void every_bit_flipped_in_64_bits(void **state)
{
	every_bit_flipped(ELFCLASS64);
}

static void every_bit_flipped_in_32_bits(void **state)
{
	every_bit_flipped(ELFCLASS32);
}

/* Bytes set to extremes in the headers and tables, many at a time. */
static void random_damage_to_a_real_program(void **state)
{
	struct bytes elf = read_file("/proc/self/exe"), copy = {malloc(elf.len), elf.len};
	static const uint8_t extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	struct fixture_file file = fixture_file();
	uint32_t seed = 12345;

	for (int round = 0; round < 300; round++) {
		memcpy(copy.at, elf.at, elf.len);
		for (int hit = 0; hit < 20; hit++) {
			size_t where;

			seed = seed * 1103515245 + 12345;
			where = hit % 2 ? seed >> 8 & 63 : elf.len - 1 - (seed >> 4) % 8192;
			copy.at[where] = extremes[(seed >> 24) % sizeof(extremes)];
		}
		memcpy(copy.at, ELFMAG, SELFMAG);
		survive(file.path, copy.at, copy.len);
	}
	close(file.fd);
	free(copy.at);
	free(elf.at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_file_cut_at_every_seventh_byte),
		cmocka_unit_test(a_real_program_cut_at_a_hundred_places),
		cmocka_unit_test(every_bit_flipped_in_64_bits),
		cmocka_unit_test(every_bit_flipped_in_32_bits),
		cmocka_unit_test(random_damage_to_a_real_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
