/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The files that a guest's code comes from (a kernel and its programs, a
 * unikernel and nothing else), and where in the guest each of them is. A file
 * may be loaded elsewhere than it was linked for (PIE, KASLR); the difference
 * is its slide: address in the guest = address in the file + slide, modulo 2^64.
 * It may also be there more than once (a kernel that moves when it starts, a
 * program that runs in several address spaces).
 *
 * A file is mapped when it is found in the guest's memory (placement.h), or
 * when somebody says where it is. Until then it names nothing.
 */

#include "base/owned.h"
#include "base/sample_types.h"
#include "symbol/images/code.h"
#include "symbol/names/symbols.h"
#include "unwind/tables/unwind_table.h"

/* A file to load, as the user names it. */
struct image_spec {
	const char *path;
	/* "FILE@0xADDRESS": the page of the guest with the first byte of the file's code. */
	bool has_address;
	uint64_t address;
	bool given;	  /* by the user: it must be what runs in the guest */
	bool names;	  /* frames get names from it; else it only helps to find callers */
	bool needs_names; /* it is an error if it has none */
	bool names_only;  /* nobody unwinds by it, or compares it with memory */
	bool keeps_code;  /* ... but its code is shown */
	/* No unwind tables are made if this is its build id; NULL: they are. */
	const char *tables_known;
};

/* Unikernels whose threads can be told from outside, FreeRTOS among them. */
enum unikernel {
	UNIKERNEL_NONE,
	UNIKERNEL_UNIKRAFT,
	UNIKERNEL_MINIOS,
	UNIKERNEL_FREERTOS,
	UNIKERNELS
};

/* Members of a unikernel's structures: of a thread, and of what schedules it. */
enum thread_member {
	MEMBER_IP,
	MEMBER_SP,
	MEMBER_LINK, /* in the list of all threads: of the next, of the pointer to this one; FreeRTOS: in that of its state */
	MEMBER_FLAGS,
	MEMBER_NAME,
	MEMBER_STACK,
	MEMBER_SCHEDULER, /* Unikraft's alone */
	MEMBER_CPU_TIME,
	/* FreeRTOS: */
	MEMBER_EVENT, /* the item that stands in a list of what it waits for */
	MEMBER_PRIORITY,
	MEMBER_STACK_END, /* 0 of this, the next three, or MEMBER_CPU_TIME: not configured */
	MEMBER_NUMBER,
	MEMBER_NOTIFIED,     /* numbers of 4 bytes */
	MEMBER_NOTIFICATION, /* a byte for each of them: whether the task waits for it */
	ITEM_NEXT,	     /* and behind it the one before */
	ITEM_OWNER,	     /* and behind it the list that it is in */
	LIST_END,	     /* an item that is always there */
	/* Unikraft: */
	SCHEDULER_LIST, /* of its threads */
	SCHEDULER_NEXT,
	SCHEDULER_IDLE, /* the thread that runs when there is no other, within it */
	THREAD_MEMBERS
};

/* Functions in which the next thread is chosen, and switched to. */
#define THREAD_SWITCHES 2

/* Variables of FreeRTOS beside the lists of tasks that are ready, one for each priority. */
enum task_variable {
	TASKS_DELAYED, /* pointers to lists */
	TASKS_OVERFLOW,
	TASKS_PENDING, /* lists */
	TASKS_SUSPENDED,
	TASKS_ENDED,
	TASKS_COUNT, /* of all tasks */
	TASKS_IDLE,  /* pointers to the tasks of CPUs without work */
	TASK_VARIABLES
};

/* Where a unikernel's threads are, as its file tells; by the file's addresses. */
struct thread_layout {
	uint32_t system; /* enum unikernel; if UNIKERNEL_NONE, the rest says nothing */
	uint32_t typed;	 /* offsets are of the file's own DWARF, else of a version that is known */
	/* Unikraft: a pointer to the first scheduler; Mini-OS: the list itself; FreeRTOS: the first list of ready tasks. */
	uint64_t head;
	uint64_t current; /* pointers to the threads that run, of each CPU; Mini-OS: 0 */
	uint64_t cpus;	  /* how many of them there are */
	uint64_t starter; /* Mini-OS: the code that each thread begins with */
	uint64_t switches[THREAD_SWITCHES]; /* 0: there is none */
	uint64_t variables[TASK_VARIABLES]; /* 0: there is none */
	uint32_t priorities, list_size; /* FreeRTOS: lists of ready tasks, and bytes of a list */
	uint32_t at[THREAD_MEMBERS];
};

/* Offsets, CPUs, priorities and bytes of a list are less than that in any layout, or as many. */
#define THREAD_LAYOUT_SPAN	 4096u
#define THREAD_LAYOUT_CPUS	 1024u
#define THREAD_LAYOUT_PRIORITIES 256u
#define THREAD_LAYOUT_LIST	 128u

struct image_file {
	char *path;
	char *opened; /* what it is opened by (base/preopen.h); NULL: its path */
	char build_id[2 * BUILD_ID_MAX + 1]; /* "": none */
	struct symbols *symbols;	     /* by the file's addresses; NULL: none */
	struct unwind_table *table;	     /* by the file's addresses; NULL: none */
	struct elf_code *code; /* NULL: cannot be compared with memory (nm, kallsyms) */
	uint64_t size;	       /* of the file itself, bytes; 0: not known */
	struct thread_layout threads;
	bool given, names, names_only; /* as in the spec */
	unsigned mappings;	       /* how many it has */
};

/* A mapping: a file, and where it is in the guest. */
struct image {
	const struct image_file *file;
	uint64_t start, end; /* of its code, in the guest */
	uint64_t slide;
	bool checked;	/* compared with the guest's memory */
	bool compared;	/* ... in this run, and in the address space with this top table: */
	uint64_t space; /* as mmu.root */
	bool program;	/* ... of one program: other address spaces may have other code there */
};

/* End of the addresses of programs on all 64-bit architectures; kernels are in the upper half. */
#define LOWER_HALF (UINT64_C(1) << 63)

/* More mappings than this are of no use to anybody. */
#define IMAGE_MAPPINGS_MAX 16

struct images;

struct error *images_new(struct images **out);
void images_free(struct images *images);
OWNED_POINTER(images)

/*
 * From now on files are parsed in a process of their own, which has nothing but
 * the file (base/sandbox.h): a parser that is taken over gets nothing that we
 * hold.
 */
void images_sandbox(struct images *images);

/* From now on files are loaded without unwind tables and code: to name addresses is all they are for. */
void images_names_only(struct images *images);

/* As images_names_only, but the code is kept, to be shown. */
void images_names_and_code(struct images *images);

/*
 * Loads a file; *out, if not NULL, is its number. Not mapped yet, unless
 * the spec gives one or the file is a mere table of symbols (nm, kallsyms),
 * whose addresses are taken for the guest's. Unwind tables are made once for
 * files of one build id and size: one is the other, given once more, or a copy
 * of it. A stripped file does not know as much as the one it was.
 */
struct error *images_load(struct images *images, const struct image_spec *spec, size_t *out);

/*
 * As above, a file of the guest's, at a path there, by its copy on this machine, which is opened by
 * spec->path.
 */
struct error *images_load_copy(struct images *images, const struct image_spec *spec,
			       const char *path, size_t *out);

/* Reads a file and adds it nowhere. The caller frees it (symbol/images/file.h). */
struct error *images_read(const struct images *images, const struct image_spec *spec,
			  struct image_file **out);

/*
 * The file with this build id from what is kept of files (file.h), for
 * names; *found is whether there is one. `path` is what it was called.
 */
struct error *images_load_kept(struct images *images, const char *build_id, const char *path,
			       size_t *out, bool *found);

/*
 * Adds tables that come from no file of their own, with addresses of the
 * guest, and takes them over, also when it fails; `table` may be NULL.
 */
struct error *images_add_tables(struct images *images, const char *name, struct symbols *symbols,
				struct unwind_table *table);

/* A file of which the guest's memory tells; addresses are the file's. */
struct mapped_file {
	const char *path;
	const char *build_id; /* "": not known */
	uint64_t start, end;  /* of its code, between two multiples of MAPPED_FILE_SIZE */
};

/* Adds such a file. *base: from addresses in it to its own ones. */
struct error *images_add_mapped(struct images *images, const struct mapped_file *file,
				uint64_t *base);

/* Tells more of a file that was added so, but its path. */
void images_tell_mapped(struct images *images, size_t i, const struct mapped_file *file);

/* Takes over the names of a file that was added so, by its addresses, in place of those that it has. */
void images_name_mapped(struct images *images, size_t i, struct symbols *symbols);

/*
 * Takes over all that the copy on this machine tells of a file that was added so: code, unwind tables, and
 * names, if it has any.
 */
void images_take_copy(struct images *images, size_t i, struct image_file *copy);

size_t images_files(const struct images *images);
struct image_file *images_file(struct images *images, size_t i);

/* Maps file `i`; once more with the same slide only adds what is known of the mapping. */
struct error *images_map(struct images *images, size_t i, uint64_t slide, bool checked);

/*
 * Says in which address space file `i` was found with this slide, at the first time. `program`:
 * there it is a program's, of a system that has other programs.
 */
void images_compared(struct images *images, size_t i, uint64_t slide, uint64_t space, bool program);

/*
 * Copies code at `va` from the file that was compared with the guest's memory
 * there, in the same address space; returns how many bytes, 0 if there is none.
 * Pages that the guest works in were compared, and some others, not all: these
 * bytes are what was loaded there. They stand in for memory that cannot be read
 * any more, never for memory with other code in it.
 */
size_t images_code(const struct images *images, uint64_t va, uint64_t space, void *buf, size_t len);

/* The slide that an address of the spec's kind means for this file. */
uint64_t image_slide_for(const struct image_file *file, uint64_t address);

/* Removes all mappings of file `i`. */
void images_unmap(struct images *images, size_t i);

/* True if there are, or have been, images of programs. */
bool images_have_programs(const struct images *images);

/* True if a file with code has no mapping: it was not found yet, or is not in the guest. */
bool images_have_unmapped(const struct images *images);

/* As images_at, of images of programs alone. */
const struct image *images_program_at(const struct images *images, uint64_t va);

/* The image whose code holds this guest address, the one loaded first if several; NULL if none. */
const struct image *images_at(const struct images *images, uint64_t va);

/*
 * The function at a guest address, with guest addresses; only from files for names if so asked.
 * Returns the image that the function is of, or NULL.
 */
const struct image *images_find(const struct images *images, uint64_t va, bool names,
				struct symbol *out);

/* The unwind table for a guest address, and the slide between the two; NULL: none. */
const struct unwind_table *images_unwind_table(const struct images *images, uint64_t va,
					       uint64_t *slide);

/* All mappings, in the order of their files. */
size_t images_count(const struct images *images);
const struct image *images_get(const struct images *images, size_t i);

/* Grows with every change of mappings: what was found before may not hold any more. */
unsigned images_changes(const struct images *images);

/* Like symbols_write_nm, of all images, with guest addresses. */
struct error *images_write_nm(const struct images *images, FILE *out);
