/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_QMP_H
#define UNIPROF_TARGET_QEMU_QMP_H

/* QEMU's machine protocol (docs/interop/qmp-spec.txt in QEMU): commands and their answers. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Answers and events that are longer are not QEMU's, bytes. */
#define QMP_LINE_MAX (1u << 20)

struct qmp;

/* Connects to a socket and says hello. ERR_DENIED with a sentence, also when somebody else uses it. */
struct error *qmp_open(const char *path, struct qmp **out);
void qmp_close(struct qmp *qmp);

/* The process at the other end. */
pid_t qmp_pid(const struct qmp *qmp);
int qmp_fd(const struct qmp *qmp);

/*
 * Executes a command and waits for its answer, QMP_WAIT_MS at most; events that
 * come before it are remembered (qmp_ended). *answer, if not NULL, is what it
 * returned: the caller drops it (json_decref). Takes `arguments`, which may be
 * NULL.
 */
#define QMP_WAIT_MS 5000
struct error *qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **answer);

/* A command of the human monitor; the caller frees what it said. The second: of one vCPU. */
struct error *qmp_human(struct qmp *qmp, const char *line, char **said);
struct error *qmp_human_of(struct qmp *qmp, uint32_t vcpu, const char *line, char **said);

/* Has the guest been reset since this was asked last? */
bool qmp_was_reset(struct qmp *qmp);

/* How often the guest has been stopped, by whomever, while it ran: as far as answers have come. */
unsigned qmp_stops(const struct qmp *qmp);

/* ... and let go on. */
unsigned qmp_resumes(const struct qmp *qmp);

/*
 * Asks to be told of migrations. Whoever lets a guest run that QEMU has just
 * stopped for the last step of one makes QEMU abort, and a guest that stands
 * still then stays so at its destination.
 */
void qmp_watch_migration(struct qmp *qmp);

/* Is one under way, or through? As of the last qmp_ended(). */
bool qmp_migrates(const struct qmp *qmp);

/*
 * Is one through? QEMU says so for ever: also where the guest came to, and
 * where it was let go on. Only if it is seen to run after that may it be forgotten.
 */
bool qmp_migrated(const struct qmp *qmp);
void qmp_forget_migration(struct qmp *qmp);

enum qmp_end {
	QMP_LIVES,
	QMP_SHUT_DOWN,
	QMP_PANICKED,
	QMP_GONE, /* nobody is at the other end any more */
};

/* Takes in what has come without being asked for; how the guest stands by that. */
enum qmp_end qmp_ended(struct qmp *qmp);

#endif
