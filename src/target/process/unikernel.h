/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_UNIKERNEL_H
#define UNIPROF_TARGET_PROCESS_UNIKERNEL_H

#include <sys/types.h>

/*
 * What kind of unikernel a process is: "linuxu" (Unikraft), "mirage" (MirageOS
 * for Unix), "spt" (a guest of Solo5's); NULL: none, or its program may not be read.
 */
const char *unikernel_type(pid_t pid);

#endif
