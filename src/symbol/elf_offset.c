/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/elf_offset.h"

#include <gelf.h>
#include <unistd.h>

#include "base/preopen.h"

static uint64_t find(Elf *elf, uint64_t va)
{
	size_t n = 0;

	if (!elf || elf_kind(elf) != ELF_K_ELF || elf_getphdrnum(elf, &n))
		return 0;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr segment;

		if (gelf_getphdr(elf, (int)i, &segment) && segment.p_type == PT_LOAD &&
		    va - segment.p_vaddr < segment.p_filesz)
			return segment.p_offset + (va - segment.p_vaddr);
	}
	return 0;
}

uint64_t elf_offset(const char *path, uint64_t va)
{
	int fd = is_regular_file(path) ? open_to_read(path) : -1;
	uint64_t offset;
	Elf *elf;

	if (fd < 0)
		return 0;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	offset = find(elf, va);
	elf_end(elf);
	close(fd);
	return offset;
}
