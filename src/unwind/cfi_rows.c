/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/cfi_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/preopen.h"
#include "unwind/cfi_section.h"
#include "unwind/tables/debug_file.h"
#include "unwind/exidx.h"
#include "unwind/tables/orc.h"

/* Nothing is unpacked to more than this, whatever it says of itself. */
#define UNPACKED_MAX (UINT64_C(1) << 30)
/* No byte of zlib stands for more than so many. */
#define ZLIB_FACTOR 1032

/* What says the most comes first. */
enum { RANK_EH, RANK_DEBUG, RANK_EXIDX };

struct file {
	const struct cfa_machine *machine;
	unsigned char ident[EI_NIDENT];
	struct cfi_text *text;
	size_t n_text;
};

/* False: no ELF file of a kind that there are rows for. */
static bool read_head(Elf *elf, struct file *file)
{
	GElf_Ehdr head;

	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &head) ||
	    head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type == ET_REL)
		return false;
	memcpy(file->ident, head.e_ident, EI_NIDENT);
	file->machine = cfa_machine(head.e_machine);
	return file->machine &&
	       (head.e_ident[EI_CLASS] == ELFCLASS64) == (file->machine->word == 8);
}

static struct error *read_text(Elf *elf, struct file *file)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	size_t n;

	if (elf_getshdrnum(elf, &n))
		return NULL;
	file->text = calloc(n + 1, sizeof(*file->text));
	if (!file->text)
		return error_no_memory();
	while ((scn = elf_nextscn(elf, scn)) && file->n_text < n)
		if (gelf_getshdr(scn, &shdr) && shdr.sh_flags & SHF_EXECINSTR &&
		    shdr.sh_flags & SHF_ALLOC && shdr.sh_size <= UINT64_MAX - shdr.sh_addr)
			file->text[file->n_text++] =
				(struct cfi_text){shdr.sh_addr, shdr.sh_addr + shdr.sh_size};
	return NULL;
}

static Elf_Scn *find_section(Elf *elf, const char *wanted, GElf_Shdr *shdr)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name;

		if (!gelf_getshdr(scn, shdr) || shdr->sh_type == SHT_NOBITS)
			continue;
		name = elf_strptr(elf, names, shdr->sh_name);
		if (name && !strcmp(name, wanted))
			return scn;
	}
	return NULL;
}

/* Does it say of itself that it unpacks to what can be? */
static bool unpacks_to(uint64_t size, uint64_t packed)
{
	return size <= UNPACKED_MAX && size / ZLIB_FACTOR <= packed;
}

/* "ZLIB" and the size, highest byte first: how sections were packed before there was a flag. */
static bool unpack_old(Elf_Scn *scn)
{
	Elf_Data *data = elf_rawdata(scn, NULL);
	const uint8_t *bytes = data ? data->d_buf : NULL;
	uint64_t size = 0;

	if (!bytes || data->d_size < 12 || memcmp(bytes, "ZLIB", 4))
		return false;
	for (int i = 4; i < 12; i++)
		size = size << 8 | bytes[i];
	return unpacks_to(size, data->d_size) && elf_compress_gnu(scn, 0, 0) >= 0;
}

static bool unpack(Elf_Scn *scn, const GElf_Shdr *shdr)
{
	GElf_Chdr chdr;

	return !(shdr->sh_flags & SHF_COMPRESSED) ||
	       (gelf_getchdr(scn, &chdr) && chdr.ch_type == ELFCOMPRESS_ZLIB &&
		unpacks_to(chdr.ch_size, shdr->sh_size) && elf_compress(scn, 0, 0) >= 0);
}

/* *there: the section is in this file, damaged or not. */
static struct error *read_section(Elf *elf, const struct file *file, bool eh,
				  struct rows_builder *builder, bool *there)
{
	struct cfi_section section = {.machine = file->machine,
				      .ident = file->ident,
				      .text = file->text,
				      .n_text = file->n_text,
				      .eh = eh,
				      .rank = eh ? RANK_EH : RANK_DEBUG};
	GElf_Shdr shdr;
	Elf_Scn *scn = find_section(elf, eh ? ".eh_frame" : ".debug_frame", &shdr);
	bool good;

	if (scn) {
		good = unpack(scn, &shdr);
	} else {
		scn = eh ? NULL : find_section(elf, ".zdebug_frame", &shdr);
		good = scn && unpack_old(scn);
	}
	*there = scn;
	section.addr = shdr.sh_addr;
	section.data = good ? elf_rawdata(scn, NULL) : NULL;
	if (!section.data || !section.data->d_buf || !section.data->d_size)
		return NULL;
	return cfi_section_read(&section, builder);
}

/* The .debug_frame that was taken out of the file. */
static struct error *read_debug_file(const char *path, Elf *elf, const struct file *file,
				     struct rows_builder *builder)
{
	struct file other = {0};
	struct error *err = NULL;
	Elf *debug;
	bool there;
	int fd = debug_file_open(path, elf);

	if (fd < 0)
		return NULL;
	debug = elf_begin(fd, ELF_C_READ, NULL);
	if (debug && read_head(debug, &other) && other.machine == file->machine)
		err = read_section(debug, file, false, builder, &there);
	elf_end(debug);
	close(fd);
	return err;
}

static struct error *read_all(const char *path, Elf *elf, struct rows_builder *builder)
{
	struct file file = {0};
	struct error *err;
	bool there;

	if (!read_head(elf, &file))
		return NULL;
	err = read_text(elf, &file);
	if (!err)
		err = read_section(elf, &file, true, builder, &there);
	if (!err)
		err = read_section(elf, &file, false, builder, &there);
	if (!err && !there)
		err = read_debug_file(path, elf, &file, builder);
	if (!err && file.machine->machine == EM_ARM)
		err = exidx_read(elf, file.text, file.n_text, RANK_EXIDX, builder);
	free(file.text);
	return err;
}

static struct error *read_cfi(const char *path, Elf *elf, struct rows **out)
{
	struct rows_builder *builder;
	struct error *err = rows_builder_new(&builder);

	if (!err)
		err = read_all(path, elf, builder);
	if (!err)
		err = rows_finish(builder, out);
	rows_builder_free(builder);
	return err;
}

struct error *cfi_rows_load(const char *path, struct rows **out)
{
	int fd = open_to_read(path);
	struct error *err;
	Elf *elf;

	*out = NULL;
	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "%s: cannot open the file", path);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF)
		err = error_new(ERR_INPUT, "%s: no ELF file", path);
	else
		err = orc_rows_elf(elf, out);
	if (!err && !*out)
		err = read_cfi(path, elf, out);
	elf_end(elf);
	close(fd);
	return err;
}
