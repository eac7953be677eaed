/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* For tests: an ELF file whose unwind tables are random expressions. */

#include <dwarf.h>
#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define FIXTURE_FUNCTIONS 100
#define FIXTURE_FUNCTION  16 /* bytes of code */
#define FIXTURE_AT	  0x400000

static inline uint64_t fixture_mix(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

struct fixture_bytes {
	uint64_t seed;
	bool cfa; /* the expression is one for the CFA */
	size_t len;
	uint8_t byte[1 << 17];
};

static inline unsigned fixture_random(struct fixture_bytes *out, unsigned n)
{
	out->seed += 0x9e3779b97f4a7c15;
	return (unsigned)(fixture_mix(out->seed) % n);
}

static inline void fixture_put(struct fixture_bytes *out, uint64_t value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		out->byte[out->len++] = (uint8_t)(value >> 8 * i);
}

static inline void fixture_leb(struct fixture_bytes *out)
{
	fixture_put(out, 0x80 | fixture_random(out, 128), 1);
	fixture_put(out, fixture_random(out, 128), 1);
}

static inline void fixture_push(struct fixture_bytes *out)
{
	static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 8, 8};
	unsigned kind = fixture_random(out, 8);

	switch (fixture_random(out, 5)) {
	case 0:
		fixture_put(out, DW_OP_lit0 + fixture_random(out, 32), 1);
		return;
	case 1:
		fixture_put(out, DW_OP_breg0 + fixture_random(out, 17), 1);
		break;
	case 2:
		fixture_put(out, DW_OP_bregx, 1);
		fixture_put(out, fixture_random(out, 17), 1);
		break;
	case 3:
		fixture_put(out, DW_OP_const1u + kind, 1);
		fixture_put(out, fixture_mix(out->seed), size[kind]);
		return;
	case 4:
		fixture_put(out, fixture_random(out, 2) ? DW_OP_constu : DW_OP_consts, 1);
		break;
	}
	fixture_leb(out);
}

/* Takes one and leaves one. */
static inline void fixture_one(struct fixture_bytes *out)
{
	static const uint8_t op[] = {DW_OP_neg, DW_OP_not,	   DW_OP_abs,	    DW_OP_deref,
				     DW_OP_nop, DW_OP_plus_uconst, DW_OP_deref_size};
	/* There, libdw 0.188 crashes on the last one. */
	uint8_t chosen = op[fixture_random(out, sizeof(op) - out->cfa)];

	fixture_put(out, chosen, 1);
	if (chosen == DW_OP_plus_uconst)
		fixture_leb(out);
	else if (chosen == DW_OP_deref_size)
		fixture_put(out, 1u << fixture_random(out, 4), 1);
}

/* Takes two and leaves one. */
static inline void fixture_two(struct fixture_bytes *out)
{
	static const uint8_t op[] = {DW_OP_and, DW_OP_or,  DW_OP_xor, DW_OP_plus, DW_OP_minus,
				     DW_OP_mul, DW_OP_div, DW_OP_mod, DW_OP_eq,	  DW_OP_ge,
				     DW_OP_gt,	DW_OP_le,  DW_OP_lt,  DW_OP_ne,	  DW_OP_shl,
				     DW_OP_shr, DW_OP_shra};
	uint8_t chosen = op[fixture_random(out, sizeof(op))];

	/* Only by as many bits as a number has: the rest is not defined. */
	if (chosen == DW_OP_shl || chosen == DW_OP_shr || chosen == DW_OP_shra) {
		fixture_put(out, DW_OP_const1u, 1);
		fixture_put(out, 63, 1);
		fixture_put(out, DW_OP_and, 1);
	}
	fixture_put(out, chosen, 1);
}

/* On three numbers: leaves one more, as many, or one less. */
static inline int fixture_rearrange(struct fixture_bytes *out)
{
	static const uint8_t op[] = {DW_OP_dup,	 DW_OP_over, DW_OP_pick,
				     DW_OP_swap, DW_OP_rot,  DW_OP_drop};
	static const int change[] = {1, 1, 1, 0, 0, -1};
	unsigned i = fixture_random(out, sizeof(op));

	fixture_put(out, op[i], 1);
	if (op[i] == DW_OP_pick)
		fixture_put(out, fixture_random(out, 3), 1);
	return change[i];
}

/* Jumps over code that leaves as many numbers as it found: always, or if the last number is not 0. */
static inline void fixture_jump(struct fixture_bytes *out)
{
	bool always = fixture_random(out, 2);
	size_t from;

	if (!always)
		fixture_put(out, DW_OP_dup, 1);
	fixture_put(out, always ? DW_OP_skip : DW_OP_bra, 1);
	from = out->len;
	fixture_put(out, 0, 2);
	for (unsigned n = fixture_random(out, 4); n; n--)
		fixture_one(out);
	out->byte[from] = (uint8_t)(out->len - from - 2);
}

/* Counts down to 0, and doubles a number as often. */
static inline void fixture_loop(struct fixture_bytes *out)
{
	static const uint8_t body[] = {DW_OP_swap, DW_OP_dup,	DW_OP_plus, DW_OP_swap,
				       DW_OP_lit1, DW_OP_minus, DW_OP_dup,  DW_OP_bra,
				       0xf6,	   0xff,	DW_OP_drop};

	fixture_put(out, DW_OP_lit1 + fixture_random(out, 9), 1);
	for (size_t i = 0; i < sizeof(body); i++)
		fixture_put(out, body[i], 1);
}

static inline void fixture_expression(struct fixture_bytes *out)
{
	size_t at = out->len, len;
	unsigned loops = 2; /* more would be more steps than are taken */
	int depth = 0;

	fixture_put(out, 0, 2);
	for (unsigned n = 1 + fixture_random(out, 16); n || depth<1; n -= n> 0) {
		unsigned what = fixture_random(out, 8);

		if (depth >= 1 && what == 0)
			fixture_one(out);
		else if (depth >= 2 && what <= 3)
			fixture_two(out), depth--;
		else if (depth >= 3 && what == 4)
			depth += fixture_rearrange(out);
		else if (depth >= 1 && what == 5)
			fixture_jump(out);
		else if (depth >= 1 && what == 6 && loops)
			fixture_loop(out), loops--;
		else
			fixture_push(out), depth++;
	}
	fixture_put(out, DW_OP_nop, 1); /* a target for jumps */
	len = out->len - at - 2;
	out->byte[at] = (uint8_t)(0x80 | len);
	out->byte[at + 1] = (uint8_t)(len >> 7);
}

static inline void fixture_rule(struct fixture_bytes *out, unsigned reg)
{
	fixture_put(out, fixture_random(out, 2) ? DW_CFA_expression : DW_CFA_val_expression, 1);
	fixture_put(out, reg, 1);
	fixture_expression(out);
}

static inline void fixture_fde(struct fixture_bytes *out, uint64_t pc)
{
	size_t start = out->len;
	size_t len;

	fixture_put(out, 0, 4);
	fixture_put(out, out->len, 4); /* back to the CIE at 0 */
	fixture_put(out, pc, 8);
	fixture_put(out, FIXTURE_FUNCTION, 8);
	for (unsigned half = 0; half < 2; half++) {
		fixture_put(out, DW_CFA_def_cfa_expression, 1);
		out->cfa = true;
		fixture_expression(out);
		out->cfa = false;
		for (unsigned reg = 0; reg < 17; reg++)
			if (fixture_random(out, 2) && (reg == 6 || reg == 7 || reg == 16))
				fixture_rule(out, reg);
		if (!half)
			fixture_put(out, DW_CFA_advance_loc | FIXTURE_FUNCTION / 2, 1);
	}
	while (out->len % 8)
		fixture_put(out, DW_CFA_nop, 1);
	len = out->len - start - 4;
	memcpy(out->byte + start, &(uint32_t){(uint32_t)len}, 4);
}

static inline void fixture_frames(struct fixture_bytes *out)
{
	static const uint8_t cie[] = {1,
				      0,
				      1,
				      0x78,
				      16, /* no augmentation; code 1, data -8; column 16 */
				      DW_CFA_def_cfa,
				      7,
				      8,
				      DW_CFA_offset | 16,
				      1,
				      0,
				      0};

	fixture_put(out, 4 + sizeof(cie), 4);
	fixture_put(out, 0, 4);
	for (size_t i = 0; i < sizeof(cie); i++)
		fixture_put(out, cie[i], 1);
	for (unsigned i = 0; i < FIXTURE_FUNCTIONS; i++)
		fixture_fde(out, FIXTURE_AT + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) +
					 i * FIXTURE_FUNCTION);
	fixture_put(out, 0, 4);
}

/* Replaces the contents of `fd` by the file. */
static inline bool fixture_write(int fd, uint64_t seed)
{
	static const char names[] = "\0.text\0.eh_frame\0.shstrtab";
	static const uint8_t code[FIXTURE_FUNCTIONS * FIXTURE_FUNCTION];
	static struct fixture_bytes frames;
	const size_t head = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr load;
	} file = {0};
	Elf64_Shdr section[4] = {0};
	size_t at = head + sizeof(code);

	frames.seed = seed;
	frames.len = 0;
	fixture_frames(&frames);
	memcpy(file.head.e_ident, ELFMAG, SELFMAG);
	file.head.e_ident[EI_CLASS] = ELFCLASS64;
	file.head.e_ident[EI_DATA] = ELFDATA2LSB;
	file.head.e_ident[EI_VERSION] = EV_CURRENT;
	file.head.e_type = ET_EXEC;
	file.head.e_machine = EM_X86_64;
	file.head.e_version = EV_CURRENT;
	file.head.e_ehsize = sizeof(Elf64_Ehdr);
	file.head.e_phoff = sizeof(Elf64_Ehdr);
	file.head.e_phentsize = sizeof(Elf64_Phdr);
	file.head.e_phnum = 1;
	file.head.e_shentsize = sizeof(Elf64_Shdr);
	file.head.e_shnum = 4;
	file.head.e_shstrndx = 3;
	file.head.e_shoff = at + frames.len + sizeof(names);
	file.load = (Elf64_Phdr){.p_type = PT_LOAD,
				 .p_flags = PF_R | PF_X,
				 .p_vaddr = FIXTURE_AT,
				 .p_filesz = at + frames.len,
				 .p_memsz = at + frames.len,
				 .p_align = 0x1000};
	section[1] = (Elf64_Shdr){.sh_name = 1,
				  .sh_type = SHT_PROGBITS,
				  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
				  .sh_addr = FIXTURE_AT + head,
				  .sh_offset = head,
				  .sh_size = sizeof(code)};
	section[2] = (Elf64_Shdr){.sh_name = 7,
				  .sh_type = SHT_PROGBITS,
				  .sh_flags = SHF_ALLOC,
				  .sh_addr = FIXTURE_AT + at,
				  .sh_offset = at,
				  .sh_size = frames.len};
	section[3] = (Elf64_Shdr){.sh_name = 17,
				  .sh_type = SHT_STRTAB,
				  .sh_offset = at + frames.len,
				  .sh_size = sizeof(names)};
	return !ftruncate(fd, 0) && !lseek(fd, 0, SEEK_SET) &&
	       write(fd, &file, sizeof(file)) == sizeof(file) &&
	       write(fd, code, sizeof(code)) == sizeof(code) &&
	       write(fd, frames.byte, frames.len) == (ssize_t)frames.len &&
	       write(fd, names, sizeof(names)) == sizeof(names) &&
	       write(fd, section, sizeof(section)) == sizeof(section);
}
