/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_MONITOR_H
#define UNIPROF_TARGET_HOST_MONITOR_H

/* Virtual machine monitors among the processes of this host. */

#include <stddef.h>
#include <sys/types.h>

#include "target/target.h"

/* Number of vCPUs that a process runs for a guest of this kind; 0: it is no such monitor. */
typedef uint32_t monitor_vcpus(pid_t pid);

/* The guest's name as the command line gives it (-name), or its kernel's file, or the program's name. */
void monitor_name(pid_t pid, char *name, size_t size);

/* The last of the files on the command line that is an ELF file, as an absolute path; "": none. */
void monitor_image(pid_t pid, char *path, size_t size);

/* Finds a process by id, or by the guest's name. ERR_GUEST with a sentence if there is none. */
struct error *monitor_find(const char *name, const char *scheme, monitor_vcpus *vcpus, pid_t *pid);

/* A kind of guests that are processes, or whose monitors are. */
struct monitor_kind {
	const char *scheme;
	monitor_vcpus *vcpus;
	void (*name)(pid_t pid, char *name, size_t size);
	/* Sets `way` and `missing`, and whatever else is not as of all kinds. */
	void (*way)(pid_t pid, struct target_listing *entry);
};

/* `list` of target_ops. */
struct error *monitor_list(const struct monitor_kind *kind,
			   void (*each)(void *ctx, const struct target_listing *entry), void *ctx);

#endif
