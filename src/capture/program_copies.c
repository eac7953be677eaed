/* SPDX-License-Identifier: BSD-3-Clause */

/* Files of programs as they are on this machine, below the user's directory. */

#include "capture/image_locator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/preopen.h"
#include "symbol/images/file.h"
#include "symbol/images/placement.h"

/* Time that reading them may take in all: the guest says which, and goes on meanwhile. */
#define READING_MAX_NS 30000000000ull

/* True if the code at `va`, and around, is the copy's. */
static bool has_code(const struct program_file *file, const struct guest_mapping *mapping,
		     const struct guest_memory *memory, uint64_t va, const struct elf_code *code)
{
	const uint64_t slide = mapping->start - mapping->offset - file->less;
	struct placement_finding finding;

	return placement_check(code, slide, memory, &va, 1, &finding) == PLACEMENT_SAME &&
	       !budget_over(memory->budget);
}

/* Is it the file that the program has mapped? */
static bool is_same(const struct programs *programs, const struct program_file *file,
		    const struct guest_mapping *mapping, const struct guest_memory *memory,
		    uint64_t va, const struct image_file *copy)
{
	const char *id = images_file(programs->images, file->image)->build_id;
	const struct elf_code *code = copy->code;

	if (!code || code->start < file->start || code->end > file->end)
		return false;
	return *id || *copy->build_id ? !strcmp(copy->build_id, id)
				      : has_code(file, mapping, memory, va, code);
}

/* Reads what was opened; NULL: it cannot be. */
static struct error *read_copy(const struct programs *programs, const char *name,
			       struct image_file **out)
{
	const struct image_spec spec = {.path = name, .names = true};
	struct error *err = images_read(programs->images, &spec, out);

	if (!err || err == error_no_memory())
		return err;
	image_locator_say(&programs->notes, false, "%s", err->text);
	error_free(err);
	return NULL;
}

static struct error *find_copy(struct programs *programs, struct program_file *file,
			       const struct guest_mapping *mapping,
			       const struct guest_memory *memory, uint64_t va)
{
	struct image_file *copy = NULL;
	char *name;
	struct error *err = sysroot_adopt(mapping->path, &name);

	if (!err && name)
		err = read_copy(programs, name, &copy);
	else if (!err && errno == EACCES && !programs->denied) {
		programs->denied = true;
		image_locator_say(&programs->notes, true,
				  "%s cannot be read below --sysroot: without rights of root only "
				  "files that all users may read can",
				  mapping->path);
	}
	if (copy && is_same(programs, file, mapping, memory, va, copy)) {
		file->named = file->named || copy->symbols;
		file->copied = true;
		images_take_copy(programs->images, file->image, copy);
	} else if (copy) {
		/* A build id that is not in memory yet may come. */
		image_locator_say(
			&programs->notes, file->head,
			"%s (build id %s) is not what the guest runs there, as far as its memory "
			"tells, and is not used",
			name, *copy->build_id ? copy->build_id : "none");
		image_file_free(copy);
	}
	free(name);
	return err;
}

struct error *programs_find_copy(struct programs *programs, struct program_file *file,
				 const struct guest_mapping *mapping,
				 const struct guest_memory *memory, uint64_t va)
{
	struct error *err;
	uint64_t began_ns;

	if (file->sought || mapping->deleted || !sysroot_is_given() ||
	    programs->reading_ns > READING_MAX_NS)
		return NULL;
	file->sought = true;
	began_ns = clock_now_ns();
	err = find_copy(programs, file, mapping, memory, va);
	programs->reading_ns += clock_now_ns() - began_ns;
	if (programs->reading_ns > READING_MAX_NS)
		image_locator_say(
			&programs->notes, true,
			"no more files of the guest's programs are read: those so far took %llu s",
			READING_MAX_NS / 1000000000);
	return err;
}
