/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Locates images while a guest is sampled, and checks that they are the code
 * that runs. Searches at the first sample, and again later, ever more rarely
 * and only so often, as long as an image has not been found or the guest
 * executes code of none of them. The guest runs meanwhile. Each search has a
 * budget of steps, since the memory that it reads is the guest's.
 */

#include <signal.h>
#include <time.h>

#include "symbol/images/images.h"
#include "symbol/kernel/kernel.h"
#include "target/target.h"
#include "threads/threads.h"

struct image_locator;
struct program_of;

struct image_locator_notes {
	void *ctx;
	/* A sentence for the user; `warning`: the profile is worth less than it could be. */
	void (*note)(void *ctx, bool warning, const char *text);
};

void image_locator_say(const struct image_locator_notes *notes, bool warning, const char *format,
		       ...) PRINTF_LIKE(3, 4);

/* All must outlive it; `notes` may be NULL. */
struct error *image_locator_new(struct target *target, struct images *images,
				const struct image_locator_notes *notes,
				struct image_locator **out);
void image_locator_free(struct image_locator *locator);

/*
 * To be called with every sample, before it is unwound; hardly ever does more
 * than look at the time. Begins a search if there is something to be found. The
 * first ones are run to their end, unless *stop is set (NULL: never); later
 * ones for a millisecond, and then by image_locator_work. *took_ns: how long, 0 if it
 * did no more than look at the time. ERR_INPUT, naming file and guest, when a
 * file that the user gave is not what runs in the guest; other files are
 * dropped then.
 */
struct error *image_locator_sample(struct image_locator *locator, const struct sample *sample,
				   const volatile sig_atomic_t *stop, uint64_t *took_ns);

/* To be called before the first sample: the guest's threads are wanted, too. */
void image_locator_want_threads(struct image_locator *locator);

/* The guest's threads, once they are found; else NULL. */
const struct guest_threads *image_locator_threads(const struct image_locator *locator);

/*
 * Adds the view of a program that waits, with its own page tables, to the next search: no vCPU may
 * ever be seen in it. Does nothing if no file is missing.
 */
void image_locator_offer(struct image_locator *locator, const struct regs *regs,
			 const struct window *stack);

/* True while a search has begun and not ended. */
bool image_locator_busy(const struct image_locator *locator);

/* Continues the search that has begun until `until_ns` (CLOCK_MONOTONIC); errors like image_locator_sample. */
struct error *image_locator_work(struct image_locator *locator, uint64_t until_ns);

/* The files of programs that the guest's system tells of (capture/capture.h). */
struct programs *image_locator_programs(struct image_locator *locator);

/*
 * The build id of a file that runs in the guest but is not at hand, in hex, and
 * the address of its note, if one was met; else NULL.
 */
const char *image_locator_seen(const struct image_locator *locator, uint64_t *note_va);

/*
 * Ends image location after the last sample: cancels a search that has not ended, and warns of
 * files that were not found or could not be checked. ERR_INPUT if none of the user's files was
 * found in a guest whose memory could be read.
 */
struct error *image_locator_end(struct image_locator *locator);

/* The parts below are the locator's own. */

/* True if the file has been found: at this slide, or (NULL) at all. */
bool image_locator_found(const struct images *images, const struct image_file *file,
			 const uint64_t *slide);

/*
 * Takes a Linux kernel's names and unwind tables from the guest's own memory
 * (symbol/kernel/kernel.h), once a vCPU is seen to execute one or, on x86-64, a
 * program; and those of its modules; of modules that are loaded later, once a
 * vCPU executes them. The user's files come first where they cover the same
 * code. With `with_threads` also finds where its threads are.
 */
struct kernel_locator {
	unsigned tries; /* for the kernel, then for modules that have come */
	uint64_t next_ns;
	unsigned program_tries; /* searches from a program, which may be one of another system */
	uint64_t next_program_ns;
	bool done; /* with the kernel */
	bool with_threads;
	struct kernel_modules modules;
	struct guest_threads
		*threads; /* of a kernel or a unikernel; NULL: not found, or not wanted */
};

/* Files of programs, and mappings of them, that are remembered. */
#define PROGRAM_FILES_MAX 256u
#define PROGRAM_PLACES	  64u

struct program_file {
	size_t image;	     /* its number in the images */
	uint64_t key;	     /* guest_mapping.file */
	uint64_t base;	     /* the file's address among them */
	uint64_t start, end; /* of its code, in the file */
	uint64_t less;	     /* addresses in the file, less offsets there */
	bool head;	     /* its first page was read; else all is offsets */
	unsigned tries;	     /* to read its names */
	bool named;
	bool sought; /* below the user's directory (base/preopen.h), */
	bool copied; /* and found there */
};

struct program_place {
	uint64_t root; /* of the page tables */
	uint64_t start, end;
	uint64_t shift; /* from addresses in the program to those of the file; 0: there is none */
	uint64_t until_ns;
	uint32_t pid;
};

/* Stretches of processes in which they make code themselves, that are remembered. */
#define PROGRAM_MADE_MAX 64u

/*
 * Such a stretch, of MAPPED_FILE_SIZE: its code has the names that the process writes for perf(1), to
 * perf-PID.map below the user's directory. They are the process's own, and name nothing else.
 */
struct program_made {
	size_t image;  /* its number in the images */
	uint64_t root; /* of the page tables of the process */
	uint64_t from;
	uint64_t base; /* from addresses there to the image's */
	uint32_t pid;
	uint32_t owner;	      /* user of the process */
	struct timespec time; /* of the map that was read, and its size */
	int64_t size;
};

struct programs {
	/*
	 * Callers may find out themselves where one is, also in the middle of a search: it keeps no
	 * pointer to a mapping from one slice to the next.
	 */
	struct images *images;
	struct image_locator_notes notes;
	/* Set for a dump of one moment: code keeps its addresses, and only the user's files name it. */
	bool unmoved;
	uint64_t reading_ns; /* that files on this machine took */
	bool denied;	     /* it was said that some cannot be read */
	struct program_file file[PROGRAM_FILES_MAX];
	size_t n;
	struct program_place place[PROGRAM_PLACES]; /* a ring */
	unsigned next;
	struct program_made made[PROGRAM_MADE_MAX];
	size_t n_made;
};

/*
 * Looks once for the copy of a program's file below the user's directory, at the path that it has in the
 * guest. It has to have the same build id; or, where neither is known to have one, the same code at `va`,
 * which is in the mapping, and around. The only error is a lack of memory.
 */
struct error *programs_find_copy(struct programs *programs, struct program_file *file,
				 const struct guest_mapping *mapping,
				 const struct guest_memory *memory, uint64_t va);

/*
 * Puts code at `va`, in a mapping of no file, to the names that its process writes, if there are any: *kept is
 * of the mapping, and tells that then. `root`: of the process's page tables. The only error is a lack of memory.
 */
struct error *programs_find_made(struct programs *programs, const struct program_of *of,
				 const struct guest_memory *kernel, uint64_t root, uint64_t va,
				 struct program_place *kept);

/*
 * Reads the names that processes of the guest have written by now, where they have changed. The only error is a
 * lack of memory.
 */
struct error *programs_name_made(struct programs *programs);

/*
 * To be asked with every sample, before it is unwound: whether it is worth
 * looking for a kernel, and from where; NULL if it is not.
 */
const struct regs *kernel_locator_regs(const struct kernel_locator *kernel, struct target *target,
				       const struct images *images, const struct sample *sample);

/* To be called when a search begins: the next from a kernel, or from a program, begins some time later. */
void kernel_locator_defer(struct kernel_locator *kernel, const struct regs *from, uint64_t now_ns);

/* Steps of a search for a kernel's names, or for its modules;
 * Debian's 6.1 with random addresses takes between 2^26 and 2^27. */
#define KERNEL_LOCATOR_STEPS (1ull << 28)

/* Searches for one, while the guest runs. *added: a kernel was found. */
struct error *kernel_locator_search(struct kernel_locator *kernel, struct target *target,
				    struct images *images, const struct regs *from,
				    struct budget *budget, bool *added);
