/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_PROC_H
#define UNIPROF_TARGET_HOST_PROC_H

/* Information from /proc on the processes of this host (proc(5)). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"

/* Reads /proc/PID/NAME into `text`, cut off and ended by a NUL; the bytes read, or -1 with errno. */
ssize_t proc_read(pid_t pid, const char *name, char *text, size_t size);

/*
 * The words of its command line, each ended by a NUL, up to *end; the caller
 * frees them. NULL: there are none, or they cannot be read.
 */
char *proc_words(pid_t pid, const char **end);

/* A number of /proc/PID/status: "TracerPid"; `otherwise` if it is not there. */
long proc_status(pid_t pid, const char *key, long otherwise);

/* False for zombies and kernel threads. */
bool proc_has_memory(pid_t pid);

/* As proc_has_memory(), by one system call. */
bool proc_has_program(pid_t pid);

/* The thread's name; "" if it is gone. */
void proc_comm(pid_t pid, char *name, size_t size);

/* One line of /proc/PID/maps. */
struct proc_map {
	uint64_t start, end;
	uint64_t offset; /* in the file */
	bool readable, writable, executable, shared;
	uint64_t inode;	  /* 0: no file */
	const char *path; /* "" for none; "[stack]" and the like as they are */
};

/*
 * Calls `each` for every mapping, in order of address, until it returns false.
 * ERR_DENIED when it cannot be read, ERR_GUEST when the process is gone.
 */
struct error *proc_maps(pid_t pid, bool (*each)(void *ctx, const struct proc_map *map), void *ctx);

/*
 * proc_maps in two steps: opened while we may, read again and again when the
 * right to open is gone.
 */
struct error *proc_maps_open(pid_t pid, FILE **out);
void proc_maps_read(FILE *maps, bool (*each)(void *ctx, const struct proc_map *map), void *ctx);

/*
 * Calls `each` for the numbers that name entries of /proc/PID/NAME ("task",
 * "fd"), of /proc itself for a pid of 0, until it returns false. False if it
 * cannot be read.
 */
bool proc_numbers(pid_t pid, const char *name, bool (*each)(void *ctx, int number), void *ctx);

/* Target of the link /proc/PID/NAME/N or /proc/PID/NAME; "" if it cannot be read. */
void proc_link(pid_t pid, const char *name, int number, char *to, size_t size);

/* "123" with nothing behind it, as a process id; 0 if it is none. */
pid_t proc_parse_pid(const char *text);

/* The process that traces a thread of this one, other than we; 0: none, -1: there is no such process. */
pid_t proc_tracer(pid_t pid);

/* The process that a thread belongs to; 0 if there is no such thread. */
pid_t proc_group(pid_t tid);

/*
 * The reason why the kernel does not let us trace the process, and what to do;
 * never NULL: the kernel says no more than EPERM.
 */
struct error *proc_cannot_trace(pid_t pid);

#endif
