/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/image_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/kernel/image.h"
#include "symbol/names/table.h"
#include "unwind/cfi_rows.h"
#include "unwind/tables/orc.h"

void image_file_free(struct image_file *file)
{
	if (!file)
		return;
	elf_code_free(file->code);
	rows_free(file->rows);
	symbols_free(file->symbols);
	free(file->path);
	free(file);
}

struct error *image_file_name(const struct image_spec *spec, struct image_file *file)
{
	file->path = strdup(spec->path);
	file->given = spec->given;
	file->names = spec->names;
	return file->path ? NULL : error_no_memory();
}

/* Is this code whose unwind tables somebody else has made? */
static bool tables_known(const struct image_spec *spec, const struct image_file *file)
{
	return spec->tables_known && !strcmp(spec->tables_known, file->code->build_id);
}

static struct error *load_plain(const struct image_spec *spec, struct image_file *file,
				bool *no_names)
{
	struct error *err = elf_code_load(file->path, &file->code);

	if (err)
		return err;
	/* Without a table callers are found in other ways. */
	if (file->code && !tables_known(spec, file))
		error_free(cfi_rows_load(file->path, &file->rows));
	err = symbols_load(file->path, &file->symbols);
	*no_names = err;
	return err;
}

/* A compressed kernel is unpacked once. */
static struct error *load_kernel(const struct image_spec *spec, struct image_file *file,
				 char *bytes, size_t len, bool *no_names)
{
	struct error *err;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_memory(bytes, len);
	err = elf_code_read(file->path, elf, &file->code);
	if (!err && file->code && !tables_known(spec, file))
		error_free(orc_rows_elf(elf, &file->rows));
	if (!err) {
		err = elf_read(file->path, elf, &file->symbols);
		*no_names = err;
	}
	elf_end(elf);
	return err;
}

struct error *image_file_load(const struct image_spec *spec, struct image_file *file)
{
	const char *id = NULL;
	bool no_names = false;
	struct error *err;
	char *kernel;
	size_t len;

	err = image_file_name(spec, file);
	if (!err)
		err = kernel_image_load(spec->path, &kernel, &len);
	if (err)
		return err;
	err = kernel ? load_kernel(spec, file, kernel, len, &no_names)
		     : load_plain(spec, file, &no_names);
	free(kernel);
	if (no_names && file->code && !spec->needs_names) {
		error_free(err);
		err = NULL;
	}
	if (err)
		return err;
	if (file->code)
		id = file->code->build_id;
	if ((!id || !*id) && file->symbols)
		id = symbols_build_id(file->symbols);
	if (id)
		snprintf(file->build_id, sizeof(file->build_id), "%s", id);
	return NULL;
}
