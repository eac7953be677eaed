/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbols.h"

#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/debug_file.h"
#include "base/owned.h"
#include "symbol/images/code.h"
#include "symbol/kernel/kernel.h"
#include "symbol/names/table.h"
#include "symbol/source/source.h"

/* Steps to search a file; a kernel's own takes a tenth. */
#define FILE_STEPS (1ull << 29)

/* The file as memory, by its program headers. */
static size_t read_loaded(void *ctx, uint64_t va, void *buf, size_t len)
{
	Elf *elf = ctx;
	GElf_Phdr part;
	uint64_t at;
	size_t size;
	const char *file = elf_rawfile(elf, &size);

	if (!file || !elf_segment(elf, va, false, &part))
		return 0;
	at = va - part.p_vaddr;
	if (part.p_offset > size || at >= size - part.p_offset)
		return 0;
	if (len > part.p_filesz - at)
		len = part.p_filesz - at;
	if (len > size - part.p_offset - at)
		len = size - part.p_offset - at;
	memcpy(buf, file + part.p_offset + at, len);
	return len;
}

/*
 * The functions of a Linux kernel's ELF file that has no symbol table, as it
 * is inside of a vmlinuz: from kallsyms in its data. *out is NULL if there is
 * no such table.
 */
static struct error *kernel_elf_symbols(const char *path, Elf *elf, struct symbols **out)
{
	struct budget budget = {.left = FILE_STEPS};
	const struct guest_memory memory = {elf, read_loaded, &budget};
	ENDED_BY(kallsyms_end) struct kallsyms *kallsyms = NULL;
	size_t n;

	*out = NULL;
	if (elf_getphdrnum(elf, &n))
		n = 0;
	for (size_t i = 0; i < n && !kallsyms; i++) {
		GElf_Phdr phdr;

		/* Linux's own addresses; per-CPU data is linked to 0. */
		if (gelf_getphdr(elf, (int)i, &phdr) && phdr.p_type == PT_LOAD &&
		    phdr.p_vaddr >> 63 && phdr.p_filesz <= UINT64_MAX - phdr.p_vaddr)
			TRY(kallsyms_find(&memory, phdr.p_vaddr, phdr.p_vaddr + phdr.p_filesz,
					  &kallsyms));
	}
	return kallsyms ? kallsyms_symbols(kallsyms, path, out) : NULL;
}

struct section {
	uint64_t start, end; /* as linked */
	bool alloc, code;
};

struct elf_image {
	const char *path;
	Elf *elf;
	GElf_Ehdr head;
	struct section *sections;
	size_t n_sections;
};

/* A symbol table, with its strings and indices. */
struct symtab {
	Elf_Data *symbols;
	Elf_Data *indices; /* section indices that do not fit 16 bits; or NULL */
	char *strings;	   /* a copy with a NUL at its end */
	size_t strings_len;
	size_t n;
};

static struct error *damaged(const struct elf_image *image)
{
	int code = elf_errno();

	return error_new(ERR_INPUT, "%s: damaged or truncated ELF file%s%s", image->path,
			 code ? ": " : "", code ? elf_errmsg(code) : "");
}

/* An address that wraps around does not belong to any section. */
static uint64_t section_end(const GElf_Shdr *shdr)
{
	return shdr->sh_size > UINT64_MAX - shdr->sh_addr ? UINT64_MAX
							  : shdr->sh_addr + shdr->sh_size;
}

static struct error *read_sections(struct elf_image *image)
{
	size_t n;

	if (elf_getshdrnum(image->elf, &n) || (!n && image->head.e_shoff))
		return damaged(image);
	TRY(ARRAY_NEW(&image->sections, n + 1));
	image->n_sections = n;
	for (size_t i = 1; i < n; i++) {
		Elf_Scn *scn = elf_getscn(image->elf, i);
		GElf_Shdr shdr;

		if (!scn || !gelf_getshdr(scn, &shdr))
			return damaged(image);
		image->sections[i] = (struct section){
			.start = shdr.sh_addr,
			.end = section_end(&shdr),
			.alloc = shdr.sh_flags & SHF_ALLOC,
			.code = shdr.sh_flags & SHF_EXECINSTR,
		};
	}
	return NULL;
}

static Elf_Scn *find_section(const struct elf_image *image, uint32_t type, uint32_t link)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(image->elf, scn)))
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == type &&
		    (!link || shdr.sh_link == link))
			return scn;
	return NULL;
}

static struct error *read_strings(const struct elf_image *image, size_t index, struct symtab *tab)
{
	Elf_Scn *scn = elf_getscn(image->elf, index);
	GElf_Shdr shdr;
	Elf_Data *data;

	if (!scn || !gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_STRTAB ||
	    shdr.sh_flags & SHF_COMPRESSED)
		return damaged(image);
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf)
		return damaged(image);
	tab->strings = malloc(data->d_size + 1);
	if (!tab->strings)
		return error_no_memory();
	memcpy(tab->strings, data->d_buf, data->d_size);
	tab->strings[data->d_size] = '\0';
	tab->strings_len = data->d_size;
	return NULL;
}

/* tab->symbols stays NULL when there is no table of this type. */
static struct error *open_symtab(const struct elf_image *image, uint32_t type, struct symtab *tab)
{
	Elf_Scn *scn = find_section(image, type, 0), *indices;
	size_t entry = gelf_fsize(image->elf, ELF_T_SYM, 1, EV_CURRENT);
	GElf_Shdr shdr;

	*tab = (struct symtab){0};
	if (!scn)
		return NULL;
	if (!gelf_getshdr(scn, &shdr) || shdr.sh_flags & SHF_COMPRESSED || !entry)
		return damaged(image);
	tab->symbols = elf_getdata(scn, NULL);
	if (!tab->symbols || (tab->symbols->d_size && !tab->symbols->d_buf) ||
	    tab->symbols->d_type != ELF_T_SYM)
		return damaged(image);
	tab->n = shdr.sh_size / entry;
	indices = find_section(image, SHT_SYMTAB_SHNDX, (uint32_t)elf_ndxscn(scn));
	if (indices)
		tab->indices = elf_getdata(indices, NULL);
	return read_strings(image, shdr.sh_link, tab);
}

static uint8_t bind_of(const GElf_Sym *sym)
{
	switch (GELF_ST_BIND(sym->st_info)) {
	case STB_LOCAL:
		return BIND_LOCAL;
	case STB_WEAK:
		return BIND_WEAK;
	}
	return BIND_GLOBAL;
}

/* Fills `one` if the symbol is a function, or a label in code, of this image. */
static bool is_function(const struct elf_image *image, const struct symtab *tab,
			const GElf_Sym *sym, size_t index, struct symbol_candidate *one)
{
	int type = GELF_ST_TYPE(sym->st_info);
	const struct section *section;

	if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
		return false;
	/* Section 0 is "undefined"; reserved indices (absolute, common) lie beyond all sections. */
	if (!index || index >= image->n_sections || sym->st_name >= tab->strings_len)
		return false;
	section = &image->sections[index];
	if (type == STT_NOTYPE ? !section->code : !section->alloc)
		return false;
	*one = (struct symbol_candidate){
		.start = sym->st_value,
		.size = sym->st_size,
		.limit = section->end,
		.name = tab->strings + sym->st_name,
		.bind = bind_of(sym),
		.untyped = type == STT_NOTYPE,
	};
	/* The lowest bit of a function's address says Thumb on ARM. */
	if (image->head.e_machine == EM_ARM && type != STT_NOTYPE)
		one->start &= ~1ull;
	if (one->start < section->start || one->start >= section->end)
		return false;
	return one->name[0] && !is_mapping_symbol(one->name);
}

static struct error *collect(const struct elf_image *image, const struct symtab *tab,
			     struct symbol_candidates *list)
{
	for (size_t i = 1; i < tab->n; i++) {
		struct symbol_candidate one;
		Elf32_Word wide = 0;
		GElf_Sym sym;
		size_t index;

		if (!gelf_getsymshndx(tab->symbols, tab->indices, (int)i, &sym, &wide))
			return damaged(image);
		index = sym.st_shndx;
		if (index == SHN_XINDEX)
			index = wide;
		else if (index >= SHN_LORESERVE)
			continue;
		if (is_function(image, tab, &sym, index, &one))
			TRY(symbol_candidates_add(list, &one));
	}
	return NULL;
}

static uint64_t code_bytes(const struct elf_image *image)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < image->n_sections; i++)
		if (image->sections[i].alloc && image->sections[i].code)
			bytes += image->sections[i].end - image->sections[i].start;
	return bytes;
}

static const struct section *code_section(const struct elf_image *image, uint64_t start)
{
	for (size_t i = 0; i < image->n_sections; i++) {
		const struct section *section = &image->sections[i];

		if (section->alloc && section->code && start >= section->start &&
		    start < section->end)
			return section;
	}
	return NULL;
}

/* Adds functions of this image from its debugging information. */
static struct error *add_debug_functions(const struct elf_image *image, struct symtab *tab,
					 struct symbol_candidates *list)
{
	size_t kept = list->n;
	struct error *err = dwarf_functions(image->path, list, &tab->strings, tab->strings_len);

	for (size_t i = kept; i < list->n; i++) {
		const struct section *section = code_section(image, list->at[i].start);

		if (!section)
			continue;
		list->at[i].limit = section->end;
		list->at[kept++] = list->at[i];
	}
	list->n = kept;
	return err;
}

/* Tries one type of table; *out stays NULL when it has no functions. */
static struct error *try_table(const struct elf_image *image, uint32_t type, struct symbols **out)
{
	ENDED_BY(symbol_candidates_free) struct symbol_candidates list = {0};
	struct symtab tab;
	struct error *err;

	err = open_symtab(image, type, &tab);
	if (!err)
		err = collect(image, &tab, &list);
	/* A full table may still be found in the separate debug file. */
	if (!err && (list.n || type == SHT_DYNSYM) &&
	    symbol_candidates_are_poor(&list, code_bytes(image)))
		err = add_debug_functions(image, &tab, &list);
	if (!err && list.n)
		err = symbols_build(&list, &tab.strings, out);
	free(tab.strings);
	return err;
}

/* Loaders that take files of 32 bits only are given 64-bit code in such a file. */
static bool is_same_machine(GElf_Half a, GElf_Half b)
{
	return a == b || (a == EM_386 && b == EM_X86_64) || (a == EM_X86_64 && b == EM_386);
}

/* Tries the separate debug file of a stripped one; a damaged one counts as none. */
static void try_debug_file(const struct elf_image *stripped, struct symbols **out)
{
	CLOSED const int fd = debug_file_open(stripped->path, stripped->elf);
	struct elf_image image = {.path = stripped->path};

	if (fd < 0)
		return;
	image.elf = elf_begin(fd, ELF_C_READ, NULL);
	if (image.elf && gelf_getehdr(image.elf, &image.head) &&
	    is_same_machine(image.head.e_machine, stripped->head.e_machine)) {
		struct error *err = read_sections(&image);

		if (!err)
			err = try_table(&image, SHT_SYMTAB, out);
		error_free(err);
	}
	free(image.sections);
	elf_end(image.elf);
}

static struct error *read_image(struct elf_image *image, struct symbols **out)
{
	char build_id[2 * BUILD_ID_MAX + 1];

	if (!gelf_getehdr(image->elf, &image->head))
		return damaged(image);
	if (image->head.e_type == ET_REL)
		return error_new(
			ERR_INPUT,
			"%s: an object file that is not linked, its addresses mean nothing; "
			"give the linked image",
			image->path);
	TRY(read_sections(image));
	TRY(try_table(image, SHT_SYMTAB, out));
	if (!*out)
		try_debug_file(image, out);
	if (!*out)
		TRY(try_table(image, SHT_DYNSYM, out));
	if (!*out)
		TRY(kernel_elf_symbols(image->path, image->elf, out));
	if (!*out)
		return error_new(ERR_INPUT,
				 "%s: no function symbols in this ELF file (stripped?); give the "
				 "image as the linker wrote it, or the output of nm -n",
				 image->path);
	elf_build_id(image->elf, build_id);
	symbols_set_build_id(*out, build_id);
	return NULL;
}

struct error *elf_read(const char *path, Elf *elf, struct symbols **out)
{
	struct elf_image image = {.path = path, .elf = elf};
	struct error *err;

	*out = NULL;
	err = read_image(&image, out);
	free(image.sections);
	return err;
}
