/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_MACHINE_H
#define UNIPROF_TARGET_QEMU_MACHINE_H

/* What QEMU tells of a machine through QMP, and what its command line tells of QEMU. */

#include "target/host/guest_ram.h"
#include "target/qemu/qmp.h"

#define QEMU_VCPUS_MAX 512

struct qemu_machine {
	uint32_t vcpus;
	pid_t tid[QEMU_VCPUS_MAX]; /* by vCPU */
	bool x86, kvm;
	bool running;
	char status[32]; /* "running", "paused", ... */
};

/* QEMU's human monitor, however it is reached. */
struct qemu_console {
	/* The caller frees what it said. */
	struct error *(*say)(void *ctx, const char *line, char **said);
	void *ctx;
};

struct error *qemu_machine_ask(struct qmp *qmp, struct qemu_machine *machine);

/* How many vCPUs there are now; 0: it cannot be told. */
uint32_t qemu_machine_count(struct qmp *qmp);

/* Of a machine that runs, by its human monitor alone, which does not tell what it emulates. */
struct error *qemu_machine_read(const struct qemu_console *console, struct qemu_machine *machine);

/* Has it a gdb stub already? */
bool qemu_machine_has_stub(struct qmp *qmp);

/* Is it running? Other words for how it stands are in `status`. */
struct error *qemu_machine_status(struct qmp *qmp, bool *running, char *status, size_t size);

/* Where the guest's memory is in the process. ERR_GUEST if none of it is there. */
struct error *qemu_machine_ram(const struct qemu_console *console, struct ram_map *map);

/*
 * Private to machine.c and its test: the ranges of memory in what "info mtree
 * -f" says, of the address space "memory"; any text does no harm. Returns how
 * many there are, of which `max` are filled in (hva: 0).
 */
size_t qemu_mtree_ranges(const char *text, struct ram_slot *slots, size_t max);

/*
 * How many vCPUs a process runs that is a QEMU without KVM, by its command
 * line (-smp); 0: it is none.
 */
uint32_t qemu_vcpus(pid_t pid);

/* The gdb stub that it was started with on this host: "unix:PATH" or "tcp:PORT"; "": none. */
void qemu_gdb_address(pid_t pid, char *address, size_t size);

/* The path of a QMP socket that a QEMU was started with; "": none. */
void qemu_qmp_path(pid_t pid, char *path, size_t size);

#endif
