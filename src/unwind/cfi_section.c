/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/cfi_section.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <string.h>

#define CIES 64 /* that are kept, each in one place; a power of two */

/* What a CIE says for its FDEs. */
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

/* The letters of the augmentation (LSB 10.6.1.1.1); false: one that is not known. */
static bool read_augmentation(const Dwarf_CIE *from, unsigned word, struct cie *cie)
{
	struct dwarf_bytes in = {from->augmentation_data,
				 from->augmentation_data + from->augmentation_data_size};
	uint64_t byte;

	cie->encoding = DW_EH_PE_absptr;
	for (const char *letter = from->augmentation; *letter; letter++) {
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
			break;
		case 'R':
			if (!dwarf_unsigned(&in, 1, &byte))
				return false;
			cie->encoding = (uint8_t)byte;
			break;
		case 'L':
			if (!dwarf_unsigned(&in, 1, &byte))
				return false;
			break;
		case 'P': {
			static const uint8_t size[] = {0, 0, 2, 4, 8};

			if (!dwarf_unsigned(&in, 1, &byte) || (byte & 7) == DW_EH_PE_uleb128 ||
			    (byte & 7) > DW_EH_PE_udata8 || (byte & 0x70) == DW_EH_PE_aligned ||
			    !dwarf_unsigned(&in, byte & 7 ? size[byte & 7] : word, &byte))
				return false;
			break;
		}
		default:
			return false;
		}
	}
	return true;
}

static void read_cie(const struct cfi_section *section, const Dwarf_CIE *from, struct cie *cie)
{
	struct dwarf_bytes in = {from->initial_instructions, from->initial_instructions_end};

	cie->program = (struct cfa_program){.machine = section->machine,
					    .code_factor = from->code_alignment_factor,
					    .data_factor = from->data_alignment_factor,
					    .ra = from->return_address_register};
	cie->state = cfa_state_at_first;
	if (!from->augmentation || in.at > in.end ||
	    !read_augmentation(from, section->machine->word, cie))
		return;
	cie->good = cfa_run_initial(&cie->program, in, &cie->state);
}

/* The CIE at this offset; NULL if there is none, or none to make use of. */
static const struct cie *cie_at(struct reading *reading, uint64_t offset)
{
	const struct cfi_section *section = reading->section;
	struct cie *cie = &reading->cie[(offset >> 2) % CIES];
	Dwarf_CFI_Entry entry;
	Dwarf_Off next;

	if (!cie->known || cie->offset != offset) {
		*cie = (struct cie){.known = true, .offset = offset};
		if (offset < section->data->d_size &&
		    !dwarf_next_cfi(section->ident, section->data, section->eh, offset, &next,
				    &entry) &&
		    dwarf_cfi_cie_p(&entry))
			read_cie(section, &entry.cie, cie);
	}
	return cie->good ? cie : NULL;
}

/* A number in one of the formats of LSB 10.5.1, as the linker has left it. */
static bool read_encoded(const struct cfi_section *section, uint8_t format, struct dwarf_bytes *in,
			 uint64_t *value)
{
	static const uint8_t size[] = {0, 0, 2, 4, 8};
	int64_t number;

	switch (format) {
	case DW_EH_PE_absptr:
		return dwarf_unsigned(in, section->machine->word, value);
	case DW_EH_PE_uleb128:
		return dwarf_uleb(in, value);
	case DW_EH_PE_sleb128:
		if (!dwarf_sleb(in, &number))
			return false;
		break;
	case DW_EH_PE_udata2:
	case DW_EH_PE_udata4:
	case DW_EH_PE_udata8:
		return dwarf_unsigned(in, size[format], value);
	case DW_EH_PE_sdata2:
	case DW_EH_PE_sdata4:
	case DW_EH_PE_sdata8:
		if (!dwarf_signed(in, size[format & 7], &number))
			return false;
		break;
	default:
		return false;
	}
	*value = (uint64_t)number;
	return true;
}

static bool read_range(const struct cfi_section *section, uint8_t encoding, struct dwarf_bytes *in,
		       uint64_t *start, uint64_t *end)
{
	uint64_t here = section->addr + (uint64_t)(in->at - (const uint8_t *)section->data->d_buf);
	uint64_t len;

	if (!read_encoded(section, encoding & 0x0f, in, start) ||
	    !read_encoded(section, encoding & 0x07, in, &len))
		return false;
	if ((encoding & 0xf0) == DW_EH_PE_pcrel)
		*start += here;
	else if (encoding & 0xf0)
		return false;
	if (section->machine->word == 4)
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
			      struct rows_builder *builder)
{
	const struct cfi_section *section = reading->section;
	const struct cie *cie = cie_at(reading, fde->CIE_pointer);
	struct dwarf_bytes in = {fde->start, fde->end};
	struct cfa_program program;
	uint64_t len;

	if (!cie || in.at > in.end)
		return NULL;
	program = cie->program;
	if (!read_range(section, cie->encoding, &in, &program.start, &program.end) ||
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

struct error *cfi_section_read(const struct cfi_section *section, struct rows_builder *builder)
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
		status = dwarf_next_cfi(section->ident, section->data, section->eh, offset, &next,
					&entry);
		if (status == 0 && !dwarf_cfi_cie_p(&entry))
			err = read_fde(&reading, &entry.fde, builder);
		if (status > 0 || next <= offset)
			break;
		offset = next;
	}
	return err;
}
