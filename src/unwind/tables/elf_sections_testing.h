/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* For tests only: ELF files in memory, of some sections, for those that read them. */

#include <gelf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct elf_section {
	const char *name;
	uint32_t type;
	uint64_t addr;
	const void *bytes;
	size_t size; /* 0: there is no such section */
};

static inline void elf_section_add(Elf *elf, const struct elf_section *section, size_t name)
{
	Elf_Scn *scn = elf_newscn(elf);
	Elf_Data *data = elf_newdata(scn);
	GElf_Shdr head;

	gelf_getshdr(scn, &head);
	head.sh_name = (GElf_Word)name;
	head.sh_type = section->type;
	head.sh_addr = section->addr;
	head.sh_flags = section->addr ? SHF_ALLOC : 0;
	gelf_update_shdr(scn, &head);
	*data = (Elf_Data){.d_buf = (void *)section->bytes,
			   .d_size = section->size,
			   .d_align = 1,
			   .d_type = ELF_T_BYTE,
			   .d_version = EV_CURRENT};
}

/* Returns the descriptor of a file with them. */
static inline int elf_sections_write(const struct elf_section *section, size_t n, int class,
				     int machine)
{
	const int fd = memfd_create("elf", MFD_CLOEXEC);
	char names[256] = "";
	const struct elf_section strings = {"", SHT_STRTAB, 0, names, sizeof(names)};
	size_t at = 1, count = 1;
	GElf_Ehdr head;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_WRITE, NULL);
	if (!elf || !gelf_newehdr(elf, class))
		abort();
	for (size_t i = 0; i < n; i++) {
		if (!section[i].size)
			continue;
		strcpy(names + at, section[i].name);
		elf_section_add(elf, &section[i], at);
		at += strlen(section[i].name) + 1;
		count++;
	}
	elf_section_add(elf, &strings, 0);
	gelf_getehdr(elf, &head);
	head.e_ident[EI_DATA] = ELFDATA2LSB;
	head.e_type = ET_EXEC;
	head.e_machine = (GElf_Half)machine;
	head.e_version = EV_CURRENT;
	head.e_shstrndx = (GElf_Half)count;
	gelf_update_ehdr(elf, &head);
	if (elf_update(elf, ELF_C_WRITE) < 0)
		abort();
	elf_end(elf);
	return fd;
}
