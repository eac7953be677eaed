/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_FILES_H
#define UNIPROF_TARGET_PROCESS_FILES_H

#include <sys/types.h>

#include "target/target.h"

/* More files with code than this are not looked at. */
#define PROCESS_FILES_MAX 256

/*
 * The files whose code a process has mapped, its program first. The caller
 * frees each path, and the list, by process_files_free.
 */
struct error *process_files(pid_t pid, struct target_file **files, size_t *n);
void process_files_free(struct target_file *files, size_t n);

#endif
