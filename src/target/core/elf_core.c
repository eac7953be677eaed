/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/core/elf_core.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ahead.h"

/* How compressed dumps begin, and those that were written without seeking (makedumpfile, QEMU). */
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

static bool read_wide(struct elf_core *core)
{
	Elf64_Ehdr head;

	if (!elf_core_read(core, 0, &head, sizeof(head)) || head.e_type != ET_CORE ||
	    (head.e_phnum && head.e_phentsize != sizeof(Elf64_Phdr)) ||
	    (head.e_shnum && head.e_shentsize != sizeof(Elf64_Shdr)))
		return false;
	core->machine = head.e_machine;
	core->segments_at = head.e_phoff;
	core->segments = head.e_phnum;
	core->sections_at = head.e_shoff;
	core->sections = head.e_shnum;
	core->names = head.e_shstrndx;
	return true;
}

static bool read_narrow(struct elf_core *core)
{
	Elf32_Ehdr head;

	if (!elf_core_read(core, 0, &head, sizeof(head)) || head.e_type != ET_CORE ||
	    (head.e_phnum && head.e_phentsize != sizeof(Elf32_Phdr)) ||
	    (head.e_shnum && head.e_shentsize != sizeof(Elf32_Shdr)))
		return false;
	core->machine = head.e_machine;
	core->segments_at = head.e_phoff;
	core->segments = head.e_phnum;
	core->sections_at = head.e_shoff;
	core->sections = head.e_shnum;
	core->names = head.e_shstrndx;
	return true;
}

/* A number of segments that does not fit is in the first section (ELF-64, 5). */
static void count_segments(struct elf_core *core)
{
	Elf64_Shdr wide;
	Elf32_Shdr narrow;

	if (core->segments != PN_XNUM)
		return;
	if (core->wide && elf_core_read(core, core->sections_at, &wide, sizeof(wide)))
		core->segments = wide.sh_info;
	if (!core->wide && elf_core_read(core, core->sections_at, &narrow, sizeof(narrow)))
		core->segments = narrow.sh_info;
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
	    !(core->wide ? read_wide(core) : read_narrow(core)))
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

static bool within(const struct elf_core *core, const struct elf_part *part)
{
	return part->at <= core->size && part->size <= core->size - part->at;
}

bool elf_core_segment(const struct elf_core *core, uint32_t i, struct elf_part *out)
{
	Elf64_Phdr wide;
	Elf32_Phdr narrow;

	if (core->segments_at > core->size || i >= core->segments)
		return false;
	if (core->wide &&
	    elf_core_read(core, core->segments_at + i * sizeof(wide), &wide, sizeof(wide)))
		*out = (struct elf_part){.type = wide.p_type,
					 .at = wide.p_offset,
					 .size = wide.p_filesz,
					 .physical = wide.p_paddr};
	else if (!core->wide && elf_core_read(core, core->segments_at + i * sizeof(narrow), &narrow,
					      sizeof(narrow)))
		*out = (struct elf_part){.type = narrow.p_type,
					 .at = narrow.p_offset,
					 .size = narrow.p_filesz,
					 .physical = narrow.p_paddr};
	else
		return false;
	return within(core, out);
}

/* Xen writes wide ones only. */
static bool section(const struct elf_core *core, uint32_t i, struct elf_part *out)
{
	Elf64_Shdr head;

	if (!core->wide || core->sections_at > core->size || i >= core->sections ||
	    !elf_core_read(core, core->sections_at + i * sizeof(head), &head, sizeof(head)))
		return false;
	*out = (struct elf_part){.type = head.sh_type,
				 .at = head.sh_offset,
				 .size = head.sh_size,
				 .name = head.sh_name,
				 .entry_size = head.sh_entsize};
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
