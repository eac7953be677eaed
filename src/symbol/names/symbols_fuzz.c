/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for files of symbols: ELF files, output of nm, System.map and
 * kallsyms; their code, too. The input is such a file.
 */

#include "base/fuzz_testing.h"
#include "symbol/images/code.h"
#include "symbol/names/symbols.h"

static void use(const struct symbols *symbols)
{
	struct symbol symbol, found;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	need(out != NULL);
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_get(symbols, i, &symbol);
		need(symbol.start <= symbol.end);
		if (symbols_find(symbols, symbol.start, &found))
			need(found.start <= symbol.start && found.end > symbol.start);
	}
	done(symbols_write_nm(symbols, 0x1000, out));
	fclose(out);
	free(text);
	need(!symbols_build_id(symbols) || strlen(symbols_build_id(symbols)) <= 2 * BUILD_ID_MAX);
}

static void read_code(const char *path)
{
	struct elf_code *code = NULL;
	uint8_t bytes[64];
	struct error *err = elf_code_load(path, &code);

	need(!err || err->kind == ERR_INPUT);
	for (size_t i = 0; code && i < code->n; i++) {
		need(!i || code->piece[i].va >= code->piece[i - 1].va + code->piece[i - 1].len);
		need(elf_code_copy(code, code->piece[i].va, bytes, sizeof(bytes)) <= sizeof(bytes));
		(void)elf_offset(path, code->piece[i].va);
	}
	error_free(err);
	elf_code_free(code);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct fuzz_file file = fuzz_file_new(data, size);
	struct symbols *symbols = NULL;
	struct error *err = symbols_load(file.path, &symbols);

	need(!err || err->kind == ERR_INPUT);
	if (!err)
		use(symbols);
	symbols_free(symbols);
	error_free(err);
	if (size >= 4 && !memcmp(data,
				 "\x7f"
				 "ELF",
				 4))
		read_code(file.path);
	close(file.fd);
}
