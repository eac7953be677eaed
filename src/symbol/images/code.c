/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/code.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/names/table.h"

#define MARKS_MAX (1u << 22)

struct code_loading {
	const char *path;
	Elf *elf;
	struct elf_code *code;
	size_t total; /* bytes of all pieces */
	size_t room, marks_room;
	size_t names; /* section with the sections' names */
};

static struct error *damaged(const struct code_loading *l)
{
	return error_new(ERR_INPUT, "%s: damaged or truncated ELF file", l->path);
}

size_t build_id_note(const uint8_t *bytes, size_t len, char *hex)
{
	GElf_Nhdr head;

	if (len < CODE_NOTE_HEAD)
		return 0;
	memcpy(&head, bytes, sizeof(head));
	if (head.n_namesz != sizeof("GNU") || head.n_type != NT_GNU_BUILD_ID ||
	    memcmp(bytes + sizeof(head), "GNU", sizeof("GNU")) != 0 || !head.n_descsz ||
	    head.n_descsz > BUILD_ID_MAX || head.n_descsz > len - CODE_NOTE_HEAD)
		return 0;
	for (size_t i = 0; i < head.n_descsz; i++)
		sprintf(hex + 2 * i, "%02x", bytes[CODE_NOTE_HEAD + i]);
	return CODE_NOTE_HEAD + head.n_descsz;
}

static struct error *add_piece(struct code_loading *l, uint64_t va, const void *bytes, size_t len)
{
	struct elf_code *code = l->code;
	uint8_t *copy;

	if (!len)
		return NULL;
	if (va > UINT64_MAX - len || code->n == ELF_PIECES_MAX || len > ELF_CODE_MAX - l->total)
		return damaged(l);
	TRY(ARRAY_RESERVE(&code->piece, &l->room, code->n + 1));
	copy = malloc(len);
	if (!copy)
		return error_no_memory();
	memcpy(copy, bytes, len);
	code->piece[code->n++] = (struct code_piece){va, len, copy};
	l->total += len;
	return NULL;
}

/* The bytes of a part of the file; NULL if it is not all there. */
static const Elf_Data *chunk(const struct code_loading *l, uint64_t offset, uint64_t len)
{
	return len && offset <= INT64_MAX && len <= ELF_CODE_MAX
		       ? elf_getdata_rawchunk(l->elf, (int64_t)offset, len, ELF_T_BYTE)
		       : NULL;
}

/* Keeps the build id if one is among the notes of this part, which is loaded at `va`. */
static void find_note(struct code_loading *l, uint64_t offset, uint64_t size, uint64_t va)
{
	struct elf_code *code = l->code;
	const Elf_Data *data = chunk(l, offset, size);
	const size_t len = data ? data->d_size : 0;

	for (size_t at = 0; at < len && !code->note_len; at += 4) {
		const uint8_t *bytes = (const uint8_t *)data->d_buf + at;

		code->note_len = build_id_note(bytes, len - at, code->build_id);
		if (!code->note_len)
			continue;
		memcpy(code->note, bytes, code->note_len);
		code->note_va = va + at;
	}
}

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

/* Sections whose memory the kernel reuses once it has started. */
static bool is_passing(const char *name)
{
	return begins(name, ".init.") || begins(name, ".exit.") || begins(name, ".altinstr");
}

/* What a mapping symbol says: "$t", "$t.3"; CODE_KINDS: it is none. */
static enum code_kind kind_of_mark(const char *name)
{
	if (!is_mapping_symbol(name))
		return CODE_KINDS;
	if (name[1] == 't')
		return CODE_THUMB;
	return name[1] == 'd' ? CODE_DATA : CODE_PLAIN;
}

/* Keeps the mapping symbols of a table; a damaged one has none. */
static struct error *take_marks(struct code_loading *l, Elf_Scn *scn, const GElf_Shdr *shdr)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	struct elf_code *code = l->code;
	GElf_Sym sym;

	for (int i = 1; data && gelf_getsym(data, i, &sym); i++) {
		const char *name = elf_strptr(l->elf, shdr->sh_link, sym.st_name);
		const struct code_mark mark = {sym.st_value, name && sym.st_shndx != SHN_UNDEF
								     ? kind_of_mark(name)
								     : CODE_KINDS};

		if (mark.kind == CODE_KINDS)
			continue;
		if (code->n_marks == MARKS_MAX)
			break;
		TRY(ARRAY_ADD(&code->mark, &l->marks_room, &code->n_marks, &mark));
	}
	return NULL;
}

static struct error *take_section(struct code_loading *l, Elf_Scn *scn)
{
	const Elf_Data *data;
	const char *name;
	GElf_Shdr shdr;

	if (!gelf_getshdr(scn, &shdr))
		return damaged(l);
	name = elf_strptr(l->elf, l->names, shdr.sh_name);
	if (!name)
		name = "";
	l->code->patched = l->code->patched || !strcmp(name, ".altinstructions");
	if (shdr.sh_type == SHT_SYMTAB && !(shdr.sh_flags & SHF_COMPRESSED) &&
	    (l->code->machine == EM_ARM || l->code->machine == EM_AARCH64))
		return take_marks(l, scn, &shdr);
	if (shdr.sh_type == SHT_NOBITS || !shdr.sh_size || shdr.sh_flags & SHF_COMPRESSED)
		return NULL;
	if (shdr.sh_type == SHT_NOTE && !l->code->note_len) {
		find_note(l, shdr.sh_offset, shdr.sh_size, shdr.sh_addr);
		if (!(shdr.sh_flags & SHF_ALLOC))
			l->code->note_len = 0;
	}
	if (!(shdr.sh_flags & SHF_ALLOC) || !(shdr.sh_flags & SHF_EXECINSTR) || is_passing(name))
		return NULL;
	data = chunk(l, shdr.sh_offset, shdr.sh_size);
	return data ? add_piece(l, shdr.sh_addr, data->d_buf, data->d_size) : damaged(l);
}

static void widen(struct elf_code *code, uint64_t start, uint64_t len)
{
	uint64_t end = len > UINT64_MAX - start ? UINT64_MAX : start + len;

	if (!len)
		return;
	if (code->start == code->end || start < code->start)
		code->start = start;
	if (end > code->end)
		code->end = end;
}

/* Reads bytes only if the file has no sections, which tell code from data. */
static struct error *take_segment(struct code_loading *l, const GElf_Phdr *phdr, bool has_sections)
{
	const Elf_Data *data;

	if (phdr->p_type == PT_NOTE && !has_sections && !l->code->note_len)
		find_note(l, phdr->p_offset, phdr->p_filesz, phdr->p_vaddr);
	if (phdr->p_type != PT_LOAD || !(phdr->p_flags & PF_X))
		return NULL;
	widen(l->code, phdr->p_vaddr, phdr->p_memsz);
	if (has_sections)
		return NULL;
	data = chunk(l, phdr->p_offset, phdr->p_filesz);
	if (!data)
		return phdr->p_filesz ? damaged(l) : NULL;
	return add_piece(l, phdr->p_vaddr, data->d_buf, data->d_size);
}

static int by_address(const void *left, const void *right)
{
	const struct code_piece *a = left, *b = right;

	return COMPARE(a->va, b->va);
}

static int by_mark(const void *left, const void *right)
{
	const struct code_mark *a = left, *b = right;

	return COMPARE(a->va, b->va) ?: COMPARE(a->kind, b->kind);
}

/* Sorts by address; of overlapping pieces only the first is kept. */
static void sort_pieces(struct elf_code *code)
{
	size_t kept = 0;

	if (code->n)
		qsort(code->piece, code->n, sizeof(*code->piece), by_address);
	for (size_t i = 0; i < code->n; i++) {
		const struct code_piece *last = kept ? &code->piece[kept - 1] : NULL;

		if (last && code->piece[i].va - last->va < last->len)
			free((void *)code->piece[i].bytes);
		else
			code->piece[kept++] = code->piece[i];
	}
	code->n = kept;
}

static struct error *take_all(struct code_loading *l)
{
	size_t sections, segments;
	Elf_Scn *scn = NULL;

	if (elf_getshdrnum(l->elf, &sections) || elf_getphdrnum(l->elf, &segments) ||
	    (sections && elf_getshdrstrndx(l->elf, &l->names)))
		return damaged(l);
	while ((scn = elf_nextscn(l->elf, scn)))
		TRY(take_section(l, scn));
	for (size_t i = 0; i < segments; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(l->elf, (int)i, &phdr))
			return damaged(l);
		TRY(take_segment(l, &phdr, sections > 1));
	}
	sort_pieces(l->code);
	if (l->code->n_marks)
		qsort(l->code->mark, l->code->n_marks, sizeof(*l->code->mark), by_mark);
	for (size_t i = 0; i < l->code->n && !segments; i++)
		widen(l->code, l->code->piece[i].va, l->code->piece[i].len);
	return NULL;
}

struct error *elf_code_read(const char *path, Elf *elf, struct elf_code **out)
{
	struct code_loading l = {.path = path, .elf = elf};
	struct error *err;
	GElf_Ehdr head;

	*out = NULL;
	if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &head) ||
	    (head.e_type != ET_EXEC && head.e_type != ET_DYN))
		return NULL;
	TRY(ARRAY_NEW(&l.code, 1));
	l.code->machine = head.e_machine;
	err = take_all(&l);
	if (err || l.code->start == l.code->end)
		elf_code_free(l.code);
	else
		*out = l.code;
	return err;
}

struct error *elf_code_load(const char *path, struct elf_code **out)
{
	CLOSED const int fd = open_to_read(path);
	ENDED_BY(end_elf) Elf *elf = NULL;

	*out = NULL;
	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "%s: cannot open the symbol file", path);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	return elf_code_read(path, elf, out);
}

size_t elf_code_piece(const struct elf_code *code, uint64_t va)
{
	const size_t behind = ARRAY_UPTO(code->piece, code->n, va, va);
	const struct code_piece *last = behind ? &code->piece[behind - 1] : NULL;

	return last && va - last->va < last->len ? behind - 1 : behind;
}

size_t elf_code_copy(const struct elf_code *code, uint64_t va, void *buf, size_t len)
{
	const struct code_piece *piece = code->piece + elf_code_piece(code, va);

	if (piece == code->piece + code->n || va < piece->va)
		return 0;
	if (len > piece->len - (va - piece->va))
		len = piece->len - (va - piece->va);
	memcpy(buf, piece->bytes + (va - piece->va), len);
	return len;
}

/* The first mark behind `va`. */
static size_t mark_behind(const struct elf_code *code, uint64_t va)
{
	return ARRAY_UPTO(code->mark, code->n_marks, va, va);
}

const struct code_mark *elf_code_mark(const struct elf_code *code, uint64_t va)
{
	const size_t behind = mark_behind(code, va);

	return behind ? &code->mark[behind - 1] : NULL;
}

uint64_t elf_code_next_mark(const struct elf_code *code, uint64_t va)
{
	const size_t behind = mark_behind(code, va);

	return behind < code->n_marks ? code->mark[behind].va : UINT64_MAX;
}

void elf_code_drop_pieces(struct elf_code *code)
{
	free(code->mark);
	code->mark = NULL;
	code->n_marks = 0;
	for (size_t i = 0; i < code->n; i++)
		free((void *)code->piece[i].bytes);
	free(code->piece);
	code->piece = NULL;
	code->n = 0;
}

void elf_code_free(struct elf_code *code)
{
	if (!code)
		return;
	elf_code_drop_pieces(code);
	free(code);
}

bool elf_segment(Elf *elf, uint64_t value, bool by_offset, GElf_Phdr *segment)
{
	size_t n = 0;

	if (!elf || elf_kind(elf) != ELF_K_ELF || elf_getphdrnum(elf, &n))
		return false;
	for (size_t i = 0; i < n; i++)
		if (gelf_getphdr(elf, (int)i, segment) && segment->p_type == PT_LOAD &&
		    value - (by_offset ? segment->p_offset : segment->p_vaddr) < segment->p_filesz)
			return true;
	return false;
}

/* Program headers are among these bytes of a file, where linkers put them. */
#define HEADERS_MAX (64u << 10)

/* What libelf allocates follows from these, whatever the size of the file. */
static void forget_sections(char *head)
{
	Elf64_Ehdr *wide = (Elf64_Ehdr *)head;
	Elf32_Ehdr *narrow = (Elf32_Ehdr *)head;

	if (head[EI_CLASS] == ELFCLASS64)
		wide->e_shoff = wide->e_shnum = wide->e_shstrndx = 0;
	else
		narrow->e_shoff = narrow->e_shnum = narrow->e_shstrndx = 0;
}

static bool segment_at(const char *path, uint64_t value, bool by_offset, GElf_Phdr *segment)
{
	CLOSED const int fd = is_regular_file(path) ? open_to_read(path) : -1;
	FREED char *head = fd < 0 ? NULL : malloc(HEADERS_MAX);
	const ssize_t len = head ? pread(fd, head, HEADERS_MAX, 0) : -1;
	ENDED_BY(end_elf) Elf *elf = NULL;

	if (len < (ssize_t)sizeof(Elf64_Ehdr))
		return false;
	forget_sections(head);
	elf_version(EV_CURRENT);
	elf = elf_memory(head, (size_t)len);
	return elf_segment(elf, value, by_offset, segment);
}

uint64_t elf_offset(const char *path, uint64_t va)
{
	GElf_Phdr segment;

	return segment_at(path, va, false, &segment) ? segment.p_offset + (va - segment.p_vaddr)
						     : 0;
}

bool elf_address(const char *path, uint64_t offset, uint64_t *va)
{
	GElf_Phdr segment;

	if (!segment_at(path, offset, true, &segment))
		return false;
	*va = segment.p_vaddr + (offset - segment.p_offset);
	return true;
}
