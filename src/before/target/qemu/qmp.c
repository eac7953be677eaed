/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/qmp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* Who is connected first keeps others waiting, without a word. */
#define HELLO_MS 5000

struct qmp {
	int fd;
	pid_t pid;
	char *line; /* QMP_LINE_MAX bytes */
	size_t len;
	enum qmp_end end;
	unsigned stops, resumes;
	bool reset;
	bool migrates, migrated;
};

/* The states (MigrationStatus in QEMU's migration.json) in which the guest is not touched. */
static bool is_under_way(const char *status)
{
	return strcmp(status, "none") && strcmp(status, "failed") && strcmp(status, "cancelled");
}

static void note_migration(struct qmp *qmp, const json_t *data)
{
	const char *status = json_string_value(json_object_get(data, "status")) ?: "none";

	qmp->migrates = is_under_way(status);
	qmp->migrated = !strcmp(status, "completed");
}

static void note_event(struct qmp *qmp, const char *event, const json_t *data)
{
	if (!strcmp(event, "SHUTDOWN") && qmp->end == QMP_LIVES)
		qmp->end = QMP_SHUT_DOWN;
	else if (!strcmp(event, "GUEST_PANICKED"))
		qmp->end = QMP_PANICKED;
	else if (!strcmp(event, "STOP"))
		qmp->stops++;
	else if (!strcmp(event, "RESUME"))
		qmp->resumes++;
	else if (!strcmp(event, "RESET"))
		qmp->reset = true;
	else if (!strcmp(event, "MIGRATION"))
		note_migration(qmp, data);
}

/* The next whole line, without its end; NULL: there is none yet. The caller frees it. */
static char *take_line(struct qmp *qmp)
{
	char *end = memchr(qmp->line, '\n', qmp->len), *line;
	size_t len;

	if (!end)
		return NULL;
	len = (size_t)(end - qmp->line) + 1;
	line = strndup(qmp->line, len);
	qmp->len -= len;
	memmove(qmp->line, end + 1, qmp->len);
	return line;
}

/* Reads what there is, waiting for it up to a time. False: nothing came, or nobody is there. */
static bool fill(struct qmp *qmp, int wait_ms)
{
	struct pollfd ready = {.fd = qmp->fd, .events = POLLIN};
	ssize_t got;

	if (qmp->len == QMP_LINE_MAX || poll(&ready, 1, wait_ms) < 1)
		return false;
	got = read(qmp->fd, qmp->line + qmp->len, QMP_LINE_MAX - qmp->len);
	if (got <= 0 && qmp->end == QMP_LIVES)
		qmp->end = QMP_GONE;
	if (got > 0)
		qmp->len += (size_t)got;
	return got > 0;
}

/* The next answer; events are noted. NULL: none came in time. */
static json_t *next_answer(struct qmp *qmp, int wait_ms)
{
	const uint64_t until = clock_now_ns() + (uint64_t)wait_ms * 1000000u;

	do {
		char *line;

		while ((line = take_line(qmp))) {
			json_t *all = json_loads(line, 0, NULL);
			const char *event = json_string_value(json_object_get(all, "event"));

			free(line);
			if (all && !event)
				return all;
			if (event)
				note_event(qmp, event, json_object_get(all, "data"));
			json_decref(all);
		}
	} while (wait_ms && clock_now_ns() < until && fill(qmp, wait_ms));
	return NULL;
}

static struct error *send_line(struct qmp *qmp, const char *text)
{
	const size_t len = strlen(text);

	if (write(qmp->fd, text, len) != (ssize_t)len)
		return error_errno(ERR_FAILED, errno, "cannot write to QEMU's QMP socket");
	return NULL;
}

struct error *qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **answer)
{
	json_t *request = json_pack("{s:s}", "execute", command), *reply, *value;
	struct error *err = NULL;
	char *text;

	if (arguments)
		json_object_set_new(request, "arguments", arguments);
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	err = text ? send_line(qmp, text) : error_no_memory();
	free(text);
	if (err)
		return err;
	reply = next_answer(qmp, QMP_WAIT_MS);
	value = json_object_get(reply, "return");
	if (!reply)
		err = error_new(ERR_FAILED, "QEMU does not answer to %s", command);
	else if (!value)
		err = error_new(ERR_FAILED, "QEMU refuses %s: %s", command,
				json_string_value(
					json_object_get(json_object_get(reply, "error"), "desc"))
					?: "?");
	else if (answer)
		*answer = json_incref(value);
	json_decref(reply);
	return err;
}

static struct error *human(struct qmp *qmp, json_t *arguments, char **said)
{
	json_t *answer = NULL;
	struct error *err = qmp_execute(qmp, "human-monitor-command", arguments, &answer);

	*said = NULL;
	if (err)
		return err;
	*said = strdup(json_string_value(answer) ?: "");
	json_decref(answer);
	return *said ? NULL : error_no_memory();
}

struct error *qmp_human(struct qmp *qmp, const char *line, char **said)
{
	return human(qmp, json_pack("{s:s}", "command-line", line), said);
}

struct error *qmp_human_of(struct qmp *qmp, uint32_t vcpu, const char *line, char **said)
{
	return human(qmp,
		     json_pack("{s:s, s:I}", "command-line", line, "cpu-index", (json_int_t)vcpu),
		     said);
}

bool qmp_was_reset(struct qmp *qmp)
{
	const bool was = qmp->reset;

	qmp->reset = false;
	return was;
}

unsigned qmp_stops(const struct qmp *qmp)
{
	return qmp->stops;
}

unsigned qmp_resumes(const struct qmp *qmp)
{
	return qmp->resumes;
}

void qmp_watch_migration(struct qmp *qmp)
{
	json_t *answer = NULL;

	error_free(qmp_execute(qmp, "migrate-set-capabilities",
			       json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "events",
					 "state", true),
			       NULL));
	error_free(qmp_execute(qmp, "query-migrate", NULL, &answer));
	note_migration(qmp, answer);
	json_decref(answer);
}

bool qmp_migrates(const struct qmp *qmp)
{
	return qmp->migrates;
}

bool qmp_migrated(const struct qmp *qmp)
{
	return qmp->migrated;
}

void qmp_forget_migration(struct qmp *qmp)
{
	qmp->migrates = false;
	qmp->migrated = false;
}

enum qmp_end qmp_ended(struct qmp *qmp)
{
	while (fill(qmp, 0))
		json_decref(next_answer(qmp, 0));
	json_decref(next_answer(qmp, 0));
	return qmp->end;
}

static struct error *say_hello(struct qmp *qmp, const char *path)
{
	json_t *hello = next_answer(qmp, HELLO_MS);
	const bool is_qmp = json_object_get(hello, "QMP");

	json_decref(hello);
	if (!is_qmp)
		return error_new(ERR_DENIED,
				 "%s does not answer as QMP does: either it is another kind of "
				 "socket, or another program (libvirt?) is connected to it; start "
				 "QEMU with one more -qmp",
				 path);
	return qmp_execute(qmp, "qmp_capabilities", NULL, NULL);
}

struct error *qmp_open(const char *path, struct qmp **out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct qmp *qmp = calloc(1, sizeof(*qmp));
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	struct error *err = NULL;

	if (!qmp)
		return error_no_memory();
	qmp->line = malloc(QMP_LINE_MAX);
	qmp->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!qmp->line || qmp->fd < 0)
		err = error_no_memory();
	else if (strlen(path) >= sizeof(address.sun_path))
		err = error_new(ERR_USAGE, "%s is too long a name for a socket", path);
	if (!err) {
		strcpy(address.sun_path, path);
		if (connect(qmp->fd, (const struct sockaddr *)&address, sizeof(address)))
			err = error_errno(ERR_DENIED, errno, "cannot connect to QEMU's socket %s",
					  path);
	}
	if (!err)
		err = say_hello(qmp, path);
	if (err) {
		qmp_close(qmp);
		return err;
	}
	if (!getsockopt(qmp->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		qmp->pid = peer.pid;
	*out = qmp;
	return NULL;
}

void qmp_close(struct qmp *qmp)
{
	if (!qmp)
		return;
	if (qmp->fd >= 0)
		close(qmp->fd);
	free(qmp->line);
	free(qmp);
}

pid_t qmp_pid(const struct qmp *qmp)
{
	return qmp->pid;
}

int qmp_fd(const struct qmp *qmp)
{
	return qmp->fd;
}
