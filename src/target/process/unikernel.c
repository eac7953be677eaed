/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/unikernel.h"

#include <fcntl.h>
#include <gelf.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "target/host/proc.h"

/* The tables that Unikraft's linker script makes of what its libraries register. */
#define UNIKRAFT_SECTION ".uk_"

/* OCaml's symbols begin with "caml" and the module: this one is in every MirageOS unikernel. */
#define MIRAGE_SYMBOL "camlMirage_runtime"

/* Solo5's tender for guests that are processes has the guest in its own address space. */
#define SPT_NAME "solo5-spt"

static bool names_mirage(Elf_Scn *section)
{
	const Elf_Data *data = elf_rawdata(section, NULL);

	return data && data->d_buf &&
	       memmem(data->d_buf, data->d_size, MIRAGE_SYMBOL, strlen(MIRAGE_SYMBOL));
}

static const char *type_of_file(Elf *elf)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_kind(elf) != ELF_K_ELF || elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr head;
		const char *name =
			gelf_getshdr(section, &head) ? elf_strptr(elf, names, head.sh_name) : NULL;

		if (name && !strncmp(name, UNIKRAFT_SECTION, strlen(UNIKRAFT_SECTION)))
			return "linuxu";
		if (name && !strcmp(name, ".strtab") && names_mirage(section))
			return "mirage";
	}
	return NULL;
}

const char *unikernel_type(pid_t pid)
{
	char path[48], name[32];
	const char *type;
	Elf *elf;
	int fd;

	proc_comm(pid, name, sizeof(name));
	if (!strncmp(name, SPT_NAME, strlen(SPT_NAME)) && proc_has_memory(pid))
		return "spt";
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	type = elf ? type_of_file(elf) : NULL;
	elf_end(elf);
	close(fd);
	return type;
}
