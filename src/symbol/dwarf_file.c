/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/dwarf.h"

#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/preopen.h"
#include "symbol/images/code.h"
#include "unwind/tables/debug_file.h"

static bool has_debug_info(Elf *elf)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return false;
	while ((scn = elf_nextscn(elf, scn))) {
		GElf_Shdr shdr;
		const char *name;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type == SHT_NOBITS)
			continue;
		name = elf_strptr(elf, names, shdr.sh_name);
		if (name && (!strcmp(name, ".debug_info") || !strcmp(name, ".zdebug_info")))
			return true;
	}
	return false;
}

static void build_id_of(Elf *elf, char *hex)
{
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);

	*hex = '\0';
	for (ssize_t i = 0; i < len && i < CODE_BUILD_ID_MAX; i++)
		sprintf(hex + 2 * i, "%02x", ((const unsigned char *)id)[i]);
}

static bool has_build_id(Elf *elf, const char *hex)
{
	char own[2 * CODE_BUILD_ID_MAX + 1];

	build_id_of(elf, own);
	return !*hex || !strcmp(own, hex);
}

static bool open_elf(int fd, struct dwarf_file *file)
{
	file->fd = fd;
	file->elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ, NULL);
	return file->elf && elf_kind(file->elf) == ELF_K_ELF;
}

/* From the file itself to what was stripped from it. */
static bool go_to_debug_file(const char *path, struct dwarf_file *file)
{
	struct dwarf_file stripped = *file;
	int fd = debug_file_open(path, stripped.elf);

	*file = (struct dwarf_file){.fd = -1};
	dwarf_file_close(&stripped);
	return open_elf(fd, file) && has_debug_info(file->elf);
}

bool dwarf_file_open(const char *path, const char *build_id, struct dwarf_file *file)
{
	*file = (struct dwarf_file){.fd = -1};
	elf_version(EV_CURRENT);
	if (!open_elf(open_to_read(path), file) || !has_build_id(file->elf, build_id))
		return false;
	if (!has_debug_info(file->elf) && !go_to_debug_file(path, file))
		return false;
	/* By its descriptor, for then libdw knows where to look for what belongs to it. */
	file->dwarf = dwarf_begin(file->fd, DWARF_C_READ);
	return file->dwarf;
}

bool dwarf_file_lacks(const char *path, char *hex)
{
	struct dwarf_file file = {.fd = -1};
	bool lacks = false;

	elf_version(EV_CURRENT);
	*hex = '\0';
	if (open_elf(open_to_read(path), &file)) {
		build_id_of(file.elf, hex);
		lacks = *hex && !has_debug_info(file.elf) && !go_to_debug_file(path, &file);
	}
	dwarf_file_close(&file);
	return lacks;
}

void dwarf_file_close(struct dwarf_file *file)
{
	dwarf_end(file->dwarf);
	elf_end(file->elf);
	if (file->fd > 0)
		close(file->fd);
}
