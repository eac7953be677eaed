/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_CORE_DUMP_H
#define UNIPROF_TARGET_CORE_DUMP_H

/* What a core file tells of a guest, whoever wrote it: one function for each writer. */

#include "arch/x86_regs.h"
#include "target/core/core.h"
#include "target/core/frame_map.h"

struct dump {
	struct elf_core elf;
	const struct arch *arch;
	const char *type;   /* "pv", "hvm", "qemu" */
	const char *writer; /* "xl dump-core" */
	uint32_t vcpus;
	struct x86_regs *vcpu;
	struct frame_map frames;
};

/* Reads all but memory. ERR_INPUT with a sentence; to be freed in any case. */
struct error *dump_open(const char *path, struct dump *dump);
void dump_free(struct dump *dump);

/* FRAME_SIZE bytes; false if the frame is not in the file. */
bool dump_frame(const struct dump *dump, uint64_t gfn, void *bytes);

/* Private to dump.c and these: false if it is not of this writer. */
bool dump_is_xen(const struct dump *dump);
struct error *dump_read_xen(struct dump *dump);
struct error *dump_read_qemu(struct dump *dump);

/* Zeroed registers for so many vCPUs. */
struct error *dump_new_vcpus(struct dump *dump, uint64_t vcpus);

#endif
