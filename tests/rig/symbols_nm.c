/* SPDX-License-Identifier: BSD-3-Clause */

/* For tests: the functions of any file that uniprof takes names from, as `nm -n` would list them. */

#include "symbol/names/symbols.h"

int main(int argc, char **argv)
{
	struct symbols *symbols = NULL;
	struct error *err;

	if (argc != 2) {
		fprintf(stderr, "usage: symbols_nm FILE\n");
		return 2;
	}
	err = symbols_load(argv[1], &symbols);
	if (!err)
		err = symbols_write_nm(symbols, 0, stdout);
	if (err)
		fprintf(stderr, "%s\n", err->text);
	symbols_free(symbols);
	return err ? 1 : 0;
}
