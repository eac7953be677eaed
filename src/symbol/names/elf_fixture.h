/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * For tests only: writes small ELF files with symbols of any kind. Sections
 * are .text at 0x1000 (0x1000 bytes, code), .data at 0x8000 (data), .tls at 0
 * (TLS), the symbol table and its strings, and a build id.
 */

#include <fcntl.h>
#include <gelf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum fixture_section { IN_TEXT = 1, IN_DATA, IN_TLS, IN_SYMBOLS, IN_STRINGS, IN_NOTE, IN_NAMES };

struct fixture_symbol {
	const char *name;
	uint64_t value, size;
	int type, bind;
	int section; /* enum fixture_section or SHN_... */
};

struct fixture {
	int class, machine, type;
	uint32_t table; /* SHT_SYMTAB, SHT_DYNSYM, or 0: none */
	const struct fixture_symbol *symbols;
	size_t n;
};

#define FIXTURE_BUILD_ID "00010203fdfeff"

static Elf_Data *fixture_section(Elf *elf, const GElf_Shdr *head, Elf_Type type, void *bytes,
				 size_t size)
{
	Elf_Scn *scn = elf_newscn(elf);
	Elf_Data *data = elf_newdata(scn);
	GElf_Shdr shdr;

	assert_non_null(gelf_getshdr(scn, &shdr));
	shdr = *head;
	assert_true(gelf_update_shdr(scn, &shdr));
	data->d_buf = bytes;
	data->d_size = size;
	data->d_type = type;
	data->d_align = 8;
	data->d_version = EV_CURRENT;
	return data;
}

static void fixture_symbols(Elf *elf, const struct fixture *fixture, char **strings, void **symbols)
{
	size_t entry = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT), len = 1;
	Elf_Data *data;

	for (size_t i = 0; i < fixture->n; i++)
		len += strlen(fixture->symbols[i].name) + 1;
	*strings = calloc(1, len);
	*symbols = calloc(fixture->n + 1, entry);
	data = fixture_section(elf,
			       &(GElf_Shdr){.sh_name = 1,
					    .sh_type =
						    fixture->table ? fixture->table : SHT_PROGBITS,
					    .sh_link = fixture->table ? IN_STRINGS : 0,
					    .sh_entsize = entry},
			       ELF_T_SYM, *symbols, (fixture->n + 1) * entry);
	len = 1;
	for (size_t i = 0; i < fixture->n; i++) {
		const struct fixture_symbol *one = &fixture->symbols[i];
		GElf_Sym sym = {.st_name = (GElf_Word)len,
				.st_info = GELF_ST_INFO(one->bind, one->type),
				.st_shndx = (GElf_Section)one->section,
				.st_value = one->value,
				.st_size = one->size};

		strcpy(*strings + len, one->name);
		len += strlen(one->name) + 1;
		assert_true(gelf_update_sym(data, (int)i + 1, &sym));
	}
	fixture_section(elf, &(GElf_Shdr){.sh_name = 1, .sh_type = SHT_STRTAB}, ELF_T_BYTE,
			*strings, len);
}

static void fixture_write(const struct fixture *fixture, const char *path)
{
	static char text[0x1000], data[16], names[] = "\0.section";
	static uint8_t note[] = {4,   0,   0,	0, 7, 0, 0, 0, 3,    0,	   0,	 0,
				 'G', 'N', 'U', 0, 0, 1, 2, 3, 0xfd, 0xfe, 0xff, 0};
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	void *symbols;
	GElf_Ehdr head;
	char *strings;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_WRITE, NULL);
	assert_non_null(elf);
	assert_non_null(gelf_newehdr(elf, fixture->class ? fixture->class : ELFCLASS64));
	gelf_getehdr(elf, &head);
	head.e_ident[EI_DATA] = ELFDATA2LSB;
	head.e_machine = (GElf_Half)(fixture->machine ? fixture->machine : EM_X86_64);
	head.e_type = (GElf_Half)(fixture->type ? fixture->type : ET_EXEC);
	head.e_version = EV_CURRENT;
	head.e_shstrndx = IN_NAMES;
	gelf_update_ehdr(elf, &head);
	fixture_section(elf,
			&(GElf_Shdr){.sh_name = 1,
				     .sh_type = SHT_PROGBITS,
				     .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				     .sh_addr = 0x1000},
			ELF_T_BYTE, text, sizeof(text));
	fixture_section(elf,
			&(GElf_Shdr){.sh_name = 1,
				     .sh_type = SHT_PROGBITS,
				     .sh_flags = SHF_ALLOC | SHF_WRITE,
				     .sh_addr = 0x8000},
			ELF_T_BYTE, data, sizeof(data));
	fixture_section(elf,
			&(GElf_Shdr){.sh_name = 1,
				     .sh_type = SHT_PROGBITS,
				     .sh_flags = SHF_ALLOC | SHF_TLS},
			ELF_T_BYTE, data, sizeof(data));
	fixture_symbols(elf, fixture, &strings, &symbols);
	fixture_section(elf, &(GElf_Shdr){.sh_name = 1, .sh_type = SHT_NOTE}, ELF_T_BYTE, note,
			sizeof(note));
	fixture_section(elf, &(GElf_Shdr){.sh_name = 1, .sh_type = SHT_STRTAB}, ELF_T_BYTE, names,
			sizeof(names));
	assert_true(elf_update(elf, ELF_C_WRITE) > 0);
	elf_end(elf);
	close(fd);
	free(strings);
	free(symbols);
}

/* A file of the test's own, in memory: loading writes nothing to a disk. Close `fd`. */
struct fixture_file {
	int fd;
	char path[32];
};

static inline struct fixture_file fixture_file(void)
{
	struct fixture_file file = {.fd = memfd_create("fixture", 0)};

	assert_true(file.fd >= 0);
	snprintf(file.path, sizeof(file.path), "/proc/self/fd/%d", file.fd);
	return file;
}
