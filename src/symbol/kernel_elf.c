/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel_elf.h"

#include <gelf.h>
#include <string.h>

#include "symbol/kernel/kallsyms.h"

/* The file as memory, by its program headers. */
static size_t read_loaded(void *ctx, uint64_t va, void *buf, size_t len)
{
	Elf *elf = ctx;
	size_t n, size;
	const char *file = elf_rawfile(elf, &size);

	if (!file || elf_getphdrnum(elf, &n))
		return 0;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr phdr;
		uint64_t at;

		if (!gelf_getphdr(elf, (int)i, &phdr) || phdr.p_type != PT_LOAD)
			continue;
		at = va - phdr.p_vaddr;
		if (at >= phdr.p_filesz || phdr.p_offset > size || at >= size - phdr.p_offset)
			continue;
		if (len > phdr.p_filesz - at)
			len = phdr.p_filesz - at;
		if (len > size - phdr.p_offset - at)
			len = size - phdr.p_offset - at;
		memcpy(buf, file + phdr.p_offset + at, len);
		return len;
	}
	return 0;
}

struct error *kernel_elf_symbols(const char *path, Elf *elf, struct symbols **out)
{
	const struct guest_memory memory = {elf, read_loaded};
	struct kallsyms *kallsyms = NULL;
	struct error *err = NULL;
	size_t n;

	*out = NULL;
	if (elf_getphdrnum(elf, &n))
		n = 0;
	for (size_t i = 0; i < n && !err && !kallsyms; i++) {
		GElf_Phdr phdr;

		/* Linux's own addresses; what is for one CPU each is linked to 0. */
		if (gelf_getphdr(elf, (int)i, &phdr) && phdr.p_type == PT_LOAD &&
		    phdr.p_vaddr >> 63 && phdr.p_filesz <= UINT64_MAX - phdr.p_vaddr)
			err = kallsyms_find(&memory, phdr.p_vaddr, phdr.p_vaddr + phdr.p_filesz,
					    &kallsyms);
	}
	if (!err && kallsyms)
		err = kallsyms_symbols(kallsyms, path, out);
	kallsyms_free(kallsyms);
	return err;
}
