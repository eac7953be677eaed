/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/cfi.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/debug_file.h"
#include "base/preopen.h"

/* Columns of the return address. */
#define RA_32 8	 /* x86-32 */
#define RA_64 16 /* x86-64 */

#define CIES 64 /* that are kept, each in one slot; a power of two */

/* Settings in a CIE for its FDEs. */
struct cie {
	uint64_t offset;
	bool known, good;
	bool sized; /* FDEs have augmentation data with a size before it */
	uint8_t encoding;
	struct cfa_program program;
	struct cfa_state state;
};

struct reading {
	const struct cfi_section *section;
	struct cie cie[CIES];
};

/*
 * The machine whose code a CIE is for: of x86's two, the column of the return
 * address tells which (System V ABI: 16 of 64 bits, 8 of 32). The file's class
 * does not: a boot loader may want 64-bit code in a file of 32 bits.
 */
static const struct cfa_machine *machine_of(const struct cfi_section *section,
					    const Dwarf_CIE *from)
{
	const uint16_t file = section->machine->machine;

	if (file == EM_386 && from->return_address_register == RA_64)
		return cfa_machine(EM_X86_64);
	if (file == EM_X86_64 && from->return_address_register == RA_32)
		return cfa_machine(EM_386);
	return section->machine;
}

/* A number in one of the formats of LSB 10.5.1, as the linker has left it. */
static bool read_encoded(unsigned word, uint8_t format, struct dwarf_bytes *in, uint64_t *value)
{
	const uint8_t sizes[8] = {(uint8_t)word, 0, 2, 4, 8};
	const uint8_t size = sizes[format & 7];

	if (format == DW_EH_PE_uleb128)
		return dwarf_uleb(in, value);
	if (format == DW_EH_PE_sleb128)
		return dwarf_sleb(in, (int64_t *)value);
	return size && (format & DW_EH_PE_signed ? dwarf_signed(in, size, (int64_t *)value)
						 : dwarf_unsigned(in, size, value));
}

/* The letters of the augmentation (LSB 10.6.1.1.1); false: one that is not known. */
static bool read_augmentation(const Dwarf_CIE *from, unsigned word, struct cie *cie)
{
	struct dwarf_bytes in = {from->augmentation_data,
				 from->augmentation_data + from->augmentation_data_size};
	uint64_t byte;

	cie->encoding = DW_EH_PE_absptr;
	for (const char *letter = from->augmentation; *letter; letter++) {
		if (strchr("LPR", *letter) && !dwarf_unsigned(&in, 1, &byte))
			return false;
		switch (*letter) {
		case 'z':
			cie->sized = letter == from->augmentation;
			if (!cie->sized)
				return false;
			break;
		case 'S':
			cie->program.trap = true;
			break;
		case 'B': /* aarch64: which key signs return addresses */
		case 'L':
			break;
		case 'R':
			cie->encoding = (uint8_t)byte;
			break;
		case 'P':
			if ((byte & 0x70) == DW_EH_PE_aligned ||
			    !read_encoded(word, byte & 7, &in, &byte))
				return false;
			break;
		default:
			return false;
		}
	}
	return true;
}

static void read_cie(const struct cfi_section *section, const Dwarf_CIE *from, struct cie *cie)
{
	struct dwarf_bytes in = {from->initial_instructions, from->initial_instructions_end};
	const struct cfa_machine *machine = machine_of(section, from);

	cie->program = (struct cfa_program){.machine = machine,
					    .code_factor = from->code_alignment_factor,
					    .data_factor = from->data_alignment_factor,
					    .ra = from->return_address_register};
	if (!from->augmentation || in.at > in.end || !read_augmentation(from, machine->word, cie))
		return;
	cie->good = cfa_run_initial(&cie->program, in, &cie->state);
}

/*
 * As dwarf_next_cfi(), which refuses a CIE (DWARF 4 and later) whose addresses are not as wide as
 * those of the file: 64-bit code may be in a file of 32 bits.
 */
static int next_entry(const struct cfi_section *section, Dwarf_Off offset, Dwarf_Off *next,
		      Dwarf_CFI_Entry *entry)
{
	unsigned char other[EI_NIDENT];
	int status =
		dwarf_next_cfi(section->ident, section->data, section->eh, offset, next, entry);

	if (status >= 0)
		return status;
	memcpy(other, section->ident, sizeof(other));
	other[EI_CLASS] = other[EI_CLASS] == ELFCLASS64 ? ELFCLASS32 : ELFCLASS64;
	return dwarf_next_cfi(other, section->data, section->eh, offset, next, entry);
}

/* The CIE at this offset; NULL if there is none, or none that is usable. */
static const struct cie *cie_at(struct reading *reading, uint64_t offset)
{
	const struct cfi_section *section = reading->section;
	struct cie *cie = &reading->cie[(offset >> 2) % CIES];
	Dwarf_CFI_Entry entry;
	Dwarf_Off next;

	if (!cie->known || cie->offset != offset) {
		*cie = (struct cie){.known = true, .offset = offset};
		if (offset < section->data->d_size && !next_entry(section, offset, &next, &entry) &&
		    dwarf_cfi_cie_p(&entry))
			read_cie(section, &entry.cie, cie);
	}
	return cie->good ? cie : NULL;
}

static bool read_range(const struct cfi_section *section, const struct cie *cie,
		       struct dwarf_bytes *in, uint64_t *start, uint64_t *end)
{
	const unsigned word = cie->program.machine->word;
	const uint8_t encoding = cie->encoding;
	uint64_t here = section->addr + (uint64_t)(in->at - (const uint8_t *)section->data->d_buf);
	uint64_t len;

	if (!read_encoded(word, encoding & 0x0f, in, start) ||
	    !read_encoded(word, encoding & 0x07, in, &len))
		return false;
	if ((encoding & 0xf0) == DW_EH_PE_pcrel)
		*start += here;
	else if (encoding & 0xf0)
		return false;
	if (word == 4)
		*start &= UINT32_MAX;
	*end = *start + len;
	return *end > *start;
}

static bool is_text(const struct cfi_section *section, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < section->n_text; i++)
		if (start >= section->text[i].start && end <= section->text[i].end)
			return true;
	return false;
}

static struct error *read_fde(struct reading *reading, const Dwarf_FDE *fde,
			      struct table_builder *builder)
{
	const struct cfi_section *section = reading->section;
	const struct cie *cie = cie_at(reading, fde->CIE_pointer);
	struct dwarf_bytes in = {fde->start, fde->end};
	struct cfa_program program;
	uint64_t len;

	if (!cie || in.at > in.end)
		return NULL;
	program = cie->program;
	if (!read_range(section, cie, &in, &program.start, &program.end) ||
	    !is_text(section, program.start, program.end))
		return NULL;
	if (cie->sized) {
		if (!dwarf_uleb(&in, &len) || len > (uint64_t)(in.end - in.at))
			return NULL;
		in.at += len;
	}
	return cfa_run(&program, in, &cie->state, section->rank, builder);
}

/* Terminators stand between the entries too, where linkers have joined sections. */
static bool skip_terminator(const Elf_Data *data, Dwarf_Off *offset)
{
	static const uint8_t terminator[4];

	if (data->d_size - *offset < sizeof(terminator) ||
	    memcmp((const uint8_t *)data->d_buf + *offset, terminator, sizeof(terminator)))
		return false;
	*offset += sizeof(terminator);
	return true;
}

struct error *cfi_section_read(const struct cfi_section *section, struct table_builder *builder)
{
	struct reading reading = {.section = section};
	struct error *err = NULL;
	Dwarf_Off offset = 0;

	while (!err && offset < section->data->d_size) {
		Dwarf_CFI_Entry entry;
		Dwarf_Off next = offset;
		int status;

		if (skip_terminator(section->data, &offset))
			continue;
		status = next_entry(section, offset, &next, &entry);
		if (status == 0 && !dwarf_cfi_cie_p(&entry))
			err = read_fde(&reading, &entry.fde, builder);
		if (status > 0 || next <= offset)
			break;
		offset = next;
	}
	return err;
}

/* Nothing is unpacked to more than this, whatever it says of itself. */
#define UNPACKED_MAX (UINT64_C(1) << 30)
/* Highest compression factor of zlib. */
#define ZLIB_FACTOR 1032

/* The most detailed source comes first. */
enum { RANK_EH, RANK_DEBUG, RANK_EXIDX };

/* False: no ELF file of a kind that there are rows for. */
static bool read_head(Elf *elf, struct cfi_section *file)
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

static struct error *read_text(Elf *elf, struct cfi_section *file)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	size_t n;

	if (elf_getshdrnum(elf, &n))
		return NULL;
	TRY(ARRAY_NEW(&file->text, n + 1));
	while ((scn = elf_nextscn(elf, scn)) && file->n_text < n)
		if (gelf_getshdr(scn, &shdr) && shdr.sh_flags & SHF_EXECINSTR &&
		    shdr.sh_flags & SHF_ALLOC && shdr.sh_size <= UINT64_MAX - shdr.sh_addr)
			file->text[file->n_text++] =
				(struct cfi_text){shdr.sh_addr, shdr.sh_addr + shdr.sh_size};
	return NULL;
}

/* True if the size that a section claims to unpack to is possible. */
static bool unpacks_to(uint64_t size, uint64_t packed)
{
	return size <= UNPACKED_MAX && size / ZLIB_FACTOR <= packed;
}

/* "ZLIB" and the size, highest byte first: how sections were packed before there was a flag. */
static bool unpack_old(Elf_Scn *scn)
{
	const Elf_Data *data = elf_rawdata(scn, NULL);
	uint64_t size;

	if (!data || !data->d_buf || data->d_size < 12 || memcmp(data->d_buf, "ZLIB", 4))
		return false;
	memcpy(&size, (const char *)data->d_buf + 4, sizeof(size));
	return unpacks_to(be64toh(size), data->d_size) && elf_compress_gnu(scn, 0, 0) >= 0;
}

static bool unpack(Elf_Scn *scn, const GElf_Shdr *shdr)
{
	GElf_Chdr chdr;

	return !(shdr->sh_flags & SHF_COMPRESSED) ||
	       (gelf_getchdr(scn, &chdr) && chdr.ch_type == ELFCOMPRESS_ZLIB &&
		unpacks_to(chdr.ch_size, shdr->sh_size) && elf_compress(scn, 0, 0) >= 0);
}

/* *there: the section is in this file, damaged or not. */
static struct error *read_section(Elf *elf, const struct cfi_section *file, bool eh,
				  struct table_builder *builder, bool *there)
{
	struct cfi_section section = *file;
	GElf_Shdr shdr;
	Elf_Scn *scn = elf_find_section(elf, eh ? ".eh_frame" : ".debug_frame", &shdr);
	bool good = scn && unpack(scn, &shdr);

	if (!scn && !eh) {
		scn = elf_find_section(elf, ".zdebug_frame", &shdr);
		good = scn && unpack_old(scn);
	}
	*there = scn;
	section.eh = eh;
	section.rank = eh ? RANK_EH : RANK_DEBUG;
	section.addr = shdr.sh_addr;
	section.data = good ? elf_rawdata(scn, NULL) : NULL;
	if (!section.data || !section.data->d_buf || !section.data->d_size)
		return NULL;
	return cfi_section_read(&section, builder);
}

/* The .debug_frame that was taken out of the file. */
static struct error *read_debug_file(const char *path, Elf *elf, const struct cfi_section *file,
				     struct table_builder *builder)
{
	struct cfi_section other = {0};
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

static struct error *read_all(const char *path, Elf *elf, struct table_builder *builder)
{
	struct cfi_section file = {0};
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
		err = exidx_read(elf, &file, RANK_EXIDX, builder);
	free(file.text);
	return err;
}

struct error *cfi_elf(const char *path, Elf *elf, struct unwind_table **out)
{
	struct table_builder *builder;
	struct error *err = orc_table_elf(elf, out);

	if (err || *out)
		return err;
	err = table_builder_new(&builder);
	if (!err)
		err = read_all(path, elf, builder);
	if (!err)
		err = table_builder_finish(builder, out);
	table_builder_free(builder);
	return err;
}

struct error *cfi_load(const char *path, struct unwind_table **out)
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
		err = cfi_elf(path, elf, out);
	elf_end(elf);
	close(fd);
	return err;
}
