/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/core/elf_core.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "arch/arch.h"
#include "base/preopen.h"

/* Magic numbers of compressed dumps, and of those written to a pipe (makedumpfile, QEMU). */
static const char compressed[][9] = {"KDUMP   ", "makedump"};

static struct error *no_core(const char *path, const char *why)
{
	return error_new(ERR_INPUT, "%s is no core file of a guest: %s", path, why);
}

bool elf_core_read(const struct elf_core *core, uint64_t at, void *buf, size_t len)
{
	size_t done = 0;

	if (at > core->size || len > core->size - at)
		return false;
	while (done < len) {
		const ssize_t got =
			pread(core->fd, (uint8_t *)buf + done, len - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

/* Offset and size of a member in a header of either class, bytes. */
struct elf_field {
	uint8_t at, size;
};

struct shape {
	uint8_t head, segment, section; /* bytes of each */
	struct elf_field e_type, e_machine, e_phoff, e_phentsize, e_phnum, e_shoff, e_shentsize,
		e_shnum, e_shstrndx;
	struct elf_field p_type, p_offset, p_filesz, p_paddr;
	struct elf_field sh_name, sh_offset, sh_size, sh_info, sh_entsize;
};

#define FIELD(type, member) .member = {offsetof(type, member), sizeof(((type *)0)->member)}
#define SHAPE(ehdr, phdr, shdr)                                                          \
	{                                                                                \
		.head = sizeof(ehdr), .segment = sizeof(phdr), .section = sizeof(shdr),  \
		FIELD(ehdr, e_type), FIELD(ehdr, e_machine), FIELD(ehdr, e_phoff),       \
		FIELD(ehdr, e_phentsize), FIELD(ehdr, e_phnum), FIELD(ehdr, e_shoff),    \
		FIELD(ehdr, e_shentsize), FIELD(ehdr, e_shnum), FIELD(ehdr, e_shstrndx), \
		FIELD(phdr, p_type), FIELD(phdr, p_offset), FIELD(phdr, p_filesz),       \
		FIELD(phdr, p_paddr), FIELD(shdr, sh_name), FIELD(shdr, sh_offset),      \
		FIELD(shdr, sh_size), FIELD(shdr, sh_info), FIELD(shdr, sh_entsize),     \
	}

static const struct shape narrow = SHAPE(Elf32_Ehdr, Elf32_Phdr, Elf32_Shdr);
static const struct shape wide = SHAPE(Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr);

static const struct shape *shape_of(const struct elf_core *core)
{
	return core->wide ? &wide : &narrow;
}

/* Little-endian, as the hosts are. */
static uint64_t get(const uint8_t *bytes, struct elf_field field)
{
	uint64_t value = 0;

	memcpy(&value, bytes + field.at, field.size);
	return value;
}

static bool read_numbers(struct elf_core *core)
{
	const struct shape *shape = shape_of(core);
	uint8_t head[sizeof(Elf64_Ehdr)];

	if (!elf_core_read(core, 0, head, shape->head) || get(head, shape->e_type) != ET_CORE)
		return false;
	core->machine = (uint16_t)get(head, shape->e_machine);
	core->segments_at = get(head, shape->e_phoff);
	core->segments = (uint32_t)get(head, shape->e_phnum);
	core->sections_at = get(head, shape->e_shoff);
	core->sections = (uint32_t)get(head, shape->e_shnum);
	core->names = (uint32_t)get(head, shape->e_shstrndx);
	return (!core->segments || get(head, shape->e_phentsize) == shape->segment) &&
	       (!core->sections || get(head, shape->e_shentsize) == shape->section);
}

/* A number of segments that does not fit is in the first section (ELF-64, 5). */
static void count_segments(struct elf_core *core)
{
	const struct shape *shape = shape_of(core);
	uint8_t first[sizeof(Elf64_Shdr)];

	if (core->segments == PN_XNUM &&
	    elf_core_read(core, core->sections_at, first, shape->section))
		core->segments = (uint32_t)get(first, shape->sh_info);
}

static struct error *read_head(struct elf_core *core, const char *path)
{
	unsigned char ident[EI_NIDENT];

	if (!elf_core_read(core, 0, ident, sizeof(ident)))
		return no_core(path, "it is too short");
	for (size_t i = 0; i < sizeof(compressed) / sizeof(*compressed); i++)
		if (!memcmp(ident, compressed[i], strlen(compressed[i])))
			return no_core(path, "compressed dumps cannot be read, only ELF files");
	if (memcmp(ident, ELFMAG, SELFMAG))
		return no_core(path, "it is no ELF file");
	core->wide = ident[EI_CLASS] == ELFCLASS64;
	if ((!core->wide && ident[EI_CLASS] != ELFCLASS32) || ident[EI_DATA] != ELFDATA2LSB ||
	    !read_numbers(core))
		return no_core(path, "it is another kind of ELF file, or a damaged one");
	count_segments(core);
	return NULL;
}

struct error *elf_core_open(const char *path, struct elf_core *core)
{
	struct stat stat;

	*core = (struct elf_core){.fd = open_to_read(path)};
	if (core->fd < 0 || fstat(core->fd, &stat))
		return error_errno(ERR_INPUT, errno, "cannot open %s", path);
	core->size = stat.st_size > 0 ? (uint64_t)stat.st_size : 0;
	return read_head(core, path);
}

void elf_core_close(struct elf_core *core)
{
	if (core->fd >= 0)
		close(core->fd);
	core->fd = -1;
}

/* The header with this number in a table of `n` headers of `size` bytes each. */
static bool read_header(const struct elf_core *core, uint64_t table, uint32_t n, uint32_t i,
			uint8_t *head, size_t size)
{
	return table <= core->size && i < n &&
	       elf_core_read(core, table + (uint64_t)i * size, head, size);
}

static bool within(const struct elf_core *core, const struct elf_part *part)
{
	return part->at <= core->size && part->size <= core->size - part->at;
}

bool elf_core_segment(const struct elf_core *core, uint32_t i, struct elf_part *out)
{
	const struct shape *shape = shape_of(core);
	uint8_t head[sizeof(Elf64_Phdr)];

	if (!read_header(core, core->segments_at, core->segments, i, head, shape->segment))
		return false;
	*out = (struct elf_part){.type = (uint32_t)get(head, shape->p_type),
				 .at = get(head, shape->p_offset),
				 .size = get(head, shape->p_filesz),
				 .physical = get(head, shape->p_paddr)};
	return within(core, out);
}

static bool section(const struct elf_core *core, uint32_t i, struct elf_part *out)
{
	const struct shape *shape = shape_of(core);
	uint8_t head[sizeof(Elf64_Shdr)];

	if (!read_header(core, core->sections_at, core->sections, i, head, shape->section))
		return false;
	*out = (struct elf_part){.at = get(head, shape->sh_offset),
				 .size = get(head, shape->sh_size),
				 .name = (uint32_t)get(head, shape->sh_name),
				 .entry_size = get(head, shape->sh_entsize)};
	return within(core, out);
}

bool elf_core_section(const struct elf_core *core, const char *name, struct elf_part *out)
{
	const size_t len = strlen(name) + 1;
	struct elf_part names;
	char is[32];

	if (len > sizeof(is) || !section(core, core->names, &names))
		return false;
	for (uint32_t i = 0; i < core->sections; i++)
		if (section(core, i, out) && out->name <= names.size &&
		    len <= names.size - out->name &&
		    elf_core_read(core, names.at + out->name, is, len) && !memcmp(is, name, len))
			return true;
	return false;
}

static size_t padded(size_t len)
{
	return (len + 3) & ~(size_t)3;
}

bool elf_note_next(const uint8_t *bytes, size_t len, size_t *at, struct elf_note *out)
{
	Elf64_Nhdr head; /* the narrow one is the same */
	const size_t left = len - *at;
	size_t name, desc;

	if (left < sizeof(head))
		return false;
	memcpy(&head, bytes + *at, sizeof(head));
	name = padded(head.n_namesz);
	desc = padded(head.n_descsz);
	if (name > left - sizeof(head) || head.n_descsz > left - sizeof(head) - name)
		return false;
	*out = (struct elf_note){.type = head.n_type,
				 .desc = bytes + *at + sizeof(head) + name,
				 .len = head.n_descsz};
	memcpy(out->name, bytes + *at + sizeof(head),
	       head.n_namesz < sizeof(out->name) ? head.n_namesz : sizeof(out->name) - 1);
	*at = desc > left - sizeof(head) - name ? len : *at + sizeof(head) + name + desc;
	return true;
}

struct error *frame_map_add(struct frame_map *map, uint64_t gfn, uint64_t n, uint64_t at)
{
	struct frame_run *last = map->n ? &map->run[map->n - 1] : NULL;

	if (last && last->gfn + last->n == gfn && last->at + (last->n << FRAME_SHIFT) == at) {
		last->n += n;
		return NULL;
	}
	if (map->n == FRAME_RUNS_MAX)
		return error_new(ERR_INPUT, "the file's memory is in more than %u pieces",
				 FRAME_RUNS_MAX);
	TRY(ARRAY_RESERVE(&map->run, &map->room, map->n + 1));
	map->run[map->n++] = (struct frame_run){gfn, n, at};
	return NULL;
}

static int compare_runs(const void *a, const void *b)
{
	const struct frame_run *left = a, *right = b;

	return COMPARE(left->gfn, right->gfn);
}

void frame_map_sort(struct frame_map *map)
{
	uint64_t end = 0;
	size_t kept = 0;

	if (map->n)
		qsort(map->run, map->n, sizeof(*map->run), compare_runs);
	for (size_t i = 0; i < map->n; i++) {
		struct frame_run run = map->run[i];
		const uint64_t twice = run.gfn < end ? end - run.gfn : 0;

		if (twice >= run.n)
			continue;
		run.gfn += twice;
		run.n -= twice;
		run.at += twice << FRAME_SHIFT;
		end = run.gfn + run.n;
		map->run[kept++] = run;
	}
	map->n = kept;
}

bool frame_map_find(const struct frame_map *map, uint64_t gfn, uint64_t *at)
{
	const size_t behind = ARRAY_UPTO(map->run, map->n, gfn, gfn);
	const struct frame_run *run = behind ? &map->run[behind - 1] : NULL;

	if (!run || gfn - run->gfn >= run->n)
		return false;
	*at = run->at + ((gfn - run->gfn) << FRAME_SHIFT);
	return true;
}

void frame_map_free(struct frame_map *map)
{
	free(map->run);
	*map = (struct frame_map){0};
}
