/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Processes of this host: what /proc tells of them (proc(5)), and the virtual
 * machine monitors among them, with sockets to talk to these.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"
#include "target/target.h"

/* Opens /proc/PID/NAME, with O_CLOEXEC; -1 with errno. */
int proc_open(pid_t pid, const char *name, int flags);

/* Reads /proc/PID/NAME into `text`, cut off and ended by a NUL; the bytes read, or -1 with errno. */
ssize_t proc_read(pid_t pid, const char *name, char *text, size_t size);

/*
 * The words of its command line, each ended by a NUL, up to *end; the caller
 * frees them. NULL: there are none, or they cannot be read.
 */
char *proc_words(pid_t pid, const char **end);

/* State of a process or a thread: a letter in the text of its "stat" (proc(5)); NUL: it has none. */
char proc_letter(const char *stat);

/* A number of /proc/PID/status: "TracerPid"; `otherwise` if it is not there. */
long proc_status(pid_t pid, const char *key, long otherwise);

/* False for zombies and kernel threads. */
bool proc_has_memory(pid_t pid);

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

/* The process that a thread belongs to; 0 if there is no such thread. */
pid_t proc_group(pid_t tid);

/*
 * The reason why the kernel does not let us trace the process, and what to do;
 * never NULL: the kernel says no more than EPERM.
 */
struct error *proc_cannot_trace(pid_t pid);

/* Number of vCPUs that a process runs for a guest of this kind; 0: it is no such monitor. */
typedef uint32_t monitor_vcpus(pid_t pid);

/* A process's name, "" if it has none. */
typedef void process_name(pid_t pid, char *name, size_t size);

/*
 * Finds a process by id, or by name among those that run vCPUs. Returns how many have that name,
 * of which *pid is one.
 */
unsigned proc_find(const char *name, monitor_vcpus *vcpus, process_name *name_of, pid_t *pid);

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
	process_name *name;
	/* Sets `way` and `missing`, and whatever else is not as of all kinds. */
	void (*way)(pid_t pid, struct target_listing *entry);
	/* True where a process that was none may become one and run the same program; NULL: nowhere. */
	bool (*becomes)(void);
};

/* `list` of target_ops with a `monitor`. */
struct error *monitor_list(const struct target_ops *ops, target_each *each, void *ctx);

/* The same of one process; true if it is such a guest. */
bool monitor_list_process(const struct monitor_kind *kind, pid_t pid, target_each *each, void *ctx);

/*
 * Bounds each connect(2), write and read of a socket, with EAGAIN after so many
 * milliseconds. To be called before connect(2): a listener with a full backlog
 * would hold us for ever. The bound is the socket's, and so the guard's as well.
 */
void socket_bound(int fd, unsigned ms);

/* True once something can be read, or the other end has hung up; signals do not end the wait. */
bool socket_wait(int fd, uint64_t until_ns);

/*
 * Reads a bounded socket until one of some short texts has come, the last of
 * which is NULL; what was read is lost. Returns which one, by its first byte;
 * NULL: none has by then, or *open is false: the other end has hung up.
 */
const char *socket_wait_for(int fd, const char *const *texts, uint64_t until_ns, bool *open);

/* Deadline of an exchange that may take `ms`, within that of its conversation; 0: that has none. */
uint64_t socket_deadline(uint64_t conversation_ns, unsigned ms);
