/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_QMP_H
#define UNIPROF_TARGET_QEMU_QMP_H

/* QEMU's machine protocol (docs/interop/qmp-spec.txt in QEMU): commands and their answers. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "target/target.h"

/* Answers and events that are longer are not QEMU's, bytes. */
#define QMP_LINE_MAX (1u << 20)

/* Read-only for callers, but for deadline_ns. */
struct qmp {
	int fd;
	pid_t pid;  /* of the process at the other end */
	char *line; /* `room` bytes, QMP_LINE_MAX at most, of which `len` have come */
	size_t len, room;
	/*
	 * No exchange lasts beyond this (CLOCK_MONOTONIC), whatever the other end
	 * sends; 0: each has its own bound only.
	 */
	uint64_t deadline_ns;
	/* As far as events have come: */
	enum target_life end; /* LIFE_RUNS: it has not; LIFE_GONE: nobody is at the other end */
	unsigned stops;	      /* of the guest, by anyone, while it ran */
	unsigned resumes;
	bool reset;
	bool migrates; /* a migration is under way, or through */
	/*
	 * It is through. QEMU says so for ever: also where the guest came to, and
	 * where it was let go on. Only if it is seen to run after that may it be
	 * forgotten.
	 */
	bool migrated;
};

/*
 * Connects to a socket and says hello, until `until_ns` (deadline_ns). ERR_DENIED
 * with a sentence, also when somebody else uses it.
 */
struct error *qmp_open(const char *path, uint64_t until_ns, struct qmp **out);
void qmp_close(struct qmp *qmp);

/*
 * Executes a command and waits for its answer, QMP_WAIT_MS at most; events that
 * come before it are remembered (qmp_ended). *answer, if not NULL, is what it
 * returned: the caller drops it (json_decref). Takes `arguments`, which may be
 * NULL.
 */
#define QMP_WAIT_MS 2000
struct error *qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **answer);

/* A command of the human monitor, of one vCPU or of none; the caller frees the answer. */
#define QMP_NO_VCPU (-1)
struct error *qmp_human(struct qmp *qmp, int vcpu, const char *line, char **said);

/* True if the guest has been reset since the last call. */
bool qmp_was_reset(struct qmp *qmp);

/*
 * Asks for events of migrations. If a guest is resumed that QEMU has just
 * stopped for the last step of a migration, QEMU aborts; and a guest that is
 * stopped then stays stopped at its destination.
 */
void qmp_watch_migration(struct qmp *qmp);

/* Forgets one that is through. */
void qmp_forget_migration(struct qmp *qmp);

/* Reads pending events; returns how the guest has ended, by those; LIFE_RUNS: it has not. */
enum target_life qmp_ended(struct qmp *qmp);

#endif
