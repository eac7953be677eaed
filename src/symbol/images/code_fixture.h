/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * For tests only: ELF files with code in them, and memory for it to be found
 * in. The code is noise; a function "f0", "f1", ... begins every 256 bytes.
 * Behind the code, in the same segment, stands the note with the build id.
 */

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbol/images/placement.h"

#define CODE_FILE_TEXT 0x1000 /* offset of the code in the file */
#define CODE_FUNCTION  0x100
#define CODE_NOTE_LEN  36

struct code_fixture {
	uint64_t va; /* of the code; a page's address */
	size_t len;  /* bytes of code, a multiple of CODE_FUNCTION */
	unsigned seed;
	uint8_t id;	  /* the build id is 20 times this byte; 0: no build id */
	bool no_sections; /* nor symbols */
	bool no_symbols;
	bool patched; /* has .altinstructions */
	bool fixed;   /* ET_EXEC, not ET_DYN */
};

static const char code_section_names[] = "\0.text\0.note.gnu.build-id\0.symtab\0.strtab\0"
					 ".altinstructions";

static inline void code_noise(const struct code_fixture *f, uint8_t *out)
{
	uint64_t state = f->seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < f->len; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		out[i] = (uint8_t)(state >> 56);
	}
}

/* The code and the note behind it, as they are in memory. */
static inline size_t code_image(const struct code_fixture *f, uint8_t *out)
{
	const uint32_t head[] = {4, 20, NT_GNU_BUILD_ID};

	code_noise(f, out);
	if (!f->id)
		return f->len;
	memcpy(out + f->len, head, sizeof(head));
	memcpy(out + f->len + 12, "GNU", 4);
	memset(out + f->len + 16, f->id, 20);
	return f->len + CODE_NOTE_LEN;
}

static inline void code_symbols(const struct code_fixture *f, Elf64_Sym *symbols, char *strings)
{
	size_t at = 1;

	for (size_t i = 0; i < f->len / CODE_FUNCTION; i++) {
		symbols[i + 1] = (Elf64_Sym){.st_name = (Elf64_Word)at,
					     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					     .st_shndx = 1,
					     .st_value = f->va + i * CODE_FUNCTION,
					     .st_size = CODE_FUNCTION};
		at += (size_t)sprintf(strings + at, "f%zu", i) + 1;
	}
}

/* File offsets of the parts behind the code. */
struct code_layout {
	size_t symbols, symbols_len, strings, strings_len, names, sections, end;
};

static inline struct code_layout code_layout(const struct code_fixture *f)
{
	struct code_layout l = {.symbols = CODE_FILE_TEXT + f->len + 64};

	l.symbols_len = (f->len / CODE_FUNCTION + 1) * sizeof(Elf64_Sym);
	l.strings = l.symbols + l.symbols_len;
	l.strings_len = f->len / CODE_FUNCTION * 12 + 16;
	l.names = l.strings + l.strings_len;
	l.sections = (l.names + sizeof(code_section_names) + 7) & ~7ul;
	l.end = l.sections + 6 * sizeof(Elf64_Shdr);
	return l;
}

static inline void code_sections(const struct code_fixture *f, const struct code_layout *l,
				 Elf64_Shdr *out)
{
	out[1] = (Elf64_Shdr){.sh_name = 1,
			      .sh_type = SHT_PROGBITS,
			      .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			      .sh_addr = f->va,
			      .sh_offset = CODE_FILE_TEXT,
			      .sh_size = f->len};
	out[2] = (Elf64_Shdr){.sh_name = 7,
			      .sh_type = f->id ? SHT_NOTE : SHT_PROGBITS,
			      .sh_flags = SHF_ALLOC,
			      .sh_addr = f->va + f->len,
			      .sh_offset = CODE_FILE_TEXT + f->len,
			      .sh_size = f->id ? CODE_NOTE_LEN : 0};
	out[3] = (Elf64_Shdr){.sh_name = f->patched ? 42 : 26,
			      .sh_type = f->no_symbols ? SHT_PROGBITS : SHT_SYMTAB,
			      .sh_link = 4,
			      .sh_entsize = sizeof(Elf64_Sym),
			      .sh_offset = l->symbols,
			      .sh_size = l->symbols_len};
	out[4] = (Elf64_Shdr){.sh_name = 34,
			      .sh_type = SHT_STRTAB,
			      .sh_offset = l->strings,
			      .sh_size = l->strings_len};
	out[5] = (Elf64_Shdr){.sh_name = 34,
			      .sh_type = SHT_STRTAB,
			      .sh_offset = l->names,
			      .sh_size = sizeof(code_section_names)};
}

/* Writes the file into memory; close *fd. */
static inline void code_file(const struct code_fixture *f, int *fd, char path[32])
{
	struct code_layout l = code_layout(f);
	uint8_t *file = calloc(1, l.end);
	size_t loaded = code_image(f, file + CODE_FILE_TEXT);
	Elf64_Ehdr *head = (Elf64_Ehdr *)file;

	*head = (Elf64_Ehdr){.e_type = f->fixed ? ET_EXEC : ET_DYN,
			     .e_machine = EM_X86_64,
			     .e_version = EV_CURRENT,
			     .e_phoff = sizeof(*head),
			     .e_ehsize = sizeof(*head),
			     .e_phentsize = sizeof(Elf64_Phdr),
			     .e_phnum = 1,
			     .e_shentsize = sizeof(Elf64_Shdr)};
	memcpy(head->e_ident, ELFMAG "\2\1\1", 7);
	if (!f->no_sections) {
		head->e_shoff = l.sections;
		head->e_shnum = 6;
		head->e_shstrndx = 5;
		code_sections(f, &l, (Elf64_Shdr *)(file + l.sections));
	}
	*(Elf64_Phdr *)(file + sizeof(*head)) = (Elf64_Phdr){.p_type = PT_LOAD,
							     .p_flags = PF_R | PF_X,
							     .p_offset = CODE_FILE_TEXT,
							     .p_vaddr = f->va,
							     .p_filesz = loaded,
							     .p_memsz = loaded,
							     .p_align = 0x1000};
	code_symbols(f, (Elf64_Sym *)(file + l.symbols), (char *)file + l.strings);
	memcpy(file + l.names, code_section_names, sizeof(code_section_names));
	*fd = memfd_create("code", 0);
	assert_true(*fd >= 0 && write(*fd, file, l.end) == (ssize_t)l.end);
	snprintf(path, 32, "/proc/self/fd/%d", *fd);
	free(file);
}

/* A guest's memory: whole pages. */
struct fake_memory {
	struct {
		uint64_t va;
		size_t len;
		uint8_t *bytes;
	} part[8];
	size_t n;
	size_t reads;
};

static inline size_t fake_read(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct fake_memory *memory = ctx;

	memory->reads++;
	for (size_t i = 0; i < memory->n; i++) {
		uint64_t offset = va - memory->part[i].va;

		if (offset >= memory->part[i].len)
			continue;
		if (len > memory->part[i].len - offset)
			len = memory->part[i].len - offset;
		memcpy(buf, memory->part[i].bytes + offset, len);
		return len;
	}
	return 0;
}

/* `len` bytes of zeros at `va`, to be filled. */
static inline uint8_t *fake_part(struct fake_memory *memory, uint64_t va, size_t len)
{
	size_t whole = (len + 4095) & ~4095ul;
	uint8_t *bytes = calloc(1, whole);

	assert_true(memory->n < 8);
	memory->part[memory->n].va = va;
	memory->part[memory->n].len = whole;
	memory->part[memory->n++].bytes = bytes;
	return bytes;
}

/* The file's code, loaded with this slide. */
static inline uint8_t *fake_load(struct fake_memory *memory, const struct code_fixture *f,
				 uint64_t slide)
{
	uint8_t *bytes = fake_part(memory, f->va + slide, f->len + CODE_NOTE_LEN);

	code_image(f, bytes);
	return bytes;
}

static inline void fake_end(struct fake_memory *memory)
{
	for (size_t i = 0; i < memory->n; i++)
		free(memory->part[i].bytes);
	memory->n = 0;
}
