/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/qemu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"
#include "target/host/proc.h"

/* QEMU serves one client at a time, and lets others wait without a word. */
#define HELLO_MS 2000

/* Longest time for QEMU to accept a connection, or sent bytes. */
#define SEND_MS 1000

/* Longest time for reading pending events. */
#define EVENTS_MS 50

/* Room for a line at first, and at most: longer answers and events are not QEMU's. Bytes. */
#define LINE_FIRST ((size_t)16 << 10)
#define LINE_MOST  ((size_t)1 << 20)

#define NS_PER_MS UINT64_C(1000000)

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
	if (!strcmp(event, "SHUTDOWN") && qmp->end == LIFE_RUNS)
		qmp->end = LIFE_SHUT_DOWN;
	else if (!strcmp(event, "GUEST_PANICKED"))
		qmp->end = LIFE_CRASHED;
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

/* Most lines are short, and the guard's copy of this memory is locked. */
static bool make_room(struct qmp *qmp)
{
	const size_t room = qmp->room ? 2 * qmp->room : LINE_FIRST;
	char *line;

	if (qmp->len < qmp->room)
		return true;
	line = room <= LINE_MOST ? realloc(qmp->line, room) : NULL;
	if (!line)
		return false;
	qmp->line = line;
	qmp->room = room;
	return true;
}

/* Reads available bytes, waiting up to a time. False: nothing came, or the other end is gone. */
static bool fill(struct qmp *qmp, uint64_t until_ns)
{
	ssize_t got;

	if (!make_room(qmp) || !socket_wait(qmp->fd, until_ns))
		return false;
	got = read(qmp->fd, qmp->line + qmp->len, qmp->room - qmp->len);
	if (got <= 0 && qmp->end == LIFE_RUNS)
		qmp->end = LIFE_GONE;
	if (got > 0)
		qmp->len += (size_t)got;
	return got > 0;
}

/* An answer among the lines that have come; events are noted. */
static json_t *take_answer(struct qmp *qmp, uint64_t until_ns)
{
	char *line;

	while (clock_now_ns() < until_ns && (line = take_line(qmp))) {
		json_t *all = json_loads(line, 0, NULL);
		const char *event = json_string_value(json_object_get(all, "event"));

		free(line);
		if (all && !event)
			return all;
		if (event)
			note_event(qmp, event, json_object_get(all, "data"));
		json_decref(all);
	}
	return NULL;
}

/* The next answer; NULL: none came in time, whatever else has come. */
static json_t *next_answer(struct qmp *qmp, uint64_t until_ns)
{
	json_t *answer;

	do
		answer = take_answer(qmp, until_ns);
	while (!answer && clock_now_ns() < until_ns && fill(qmp, until_ns));
	return answer;
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
	json_auto_t *request = json_pack("{s:s}", "execute", command);
	json_auto_t *reply = NULL;
	FREED char *text = NULL;
	json_t *value;

	if (arguments)
		json_object_set_new(request, "arguments", arguments);
	text = json_dumps(request, JSON_COMPACT);
	TRY(text ? send_line(qmp, text) : error_no_memory());
	reply = next_answer(qmp, socket_deadline(qmp->deadline_ns, QMP_WAIT_MS));
	if (!reply)
		return error_new(ERR_FAILED, "QEMU does not answer to %s", command);
	value = json_object_get(reply, "return");
	if (!value)
		return error_new(ERR_FAILED, "QEMU refuses %s: %s", command,
				 json_string_value(
					 json_object_get(json_object_get(reply, "error"), "desc"))
					 ?: "?");
	if (answer)
		*answer = json_incref(value);
	return NULL;
}

struct error *qmp_human(struct qmp *qmp, int vcpu, const char *line, char **said)
{
	json_t *arguments = json_pack("{s:s}", "command-line", line);
	json_auto_t *answer = NULL;

	*said = NULL;
	if (vcpu != QMP_NO_VCPU)
		json_object_set_new(arguments, "cpu-index", json_integer(vcpu));
	TRY(qmp_execute(qmp, "human-monitor-command", arguments, &answer));
	*said = strdup(json_string_value(answer) ?: "");
	return *said ? NULL : error_no_memory();
}

bool qmp_was_reset(struct qmp *qmp)
{
	const bool was = qmp->reset;

	qmp->reset = false;
	return was;
}

void qmp_watch_migration(struct qmp *qmp)
{
	json_auto_t *answer = NULL;

	error_free(qmp_execute(qmp, "migrate-set-capabilities",
			       json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "events",
					 "state", true),
			       NULL));
	error_free(qmp_execute(qmp, "query-migrate", NULL, &answer));
	note_migration(qmp, answer);
}

void qmp_forget_migration(struct qmp *qmp)
{
	qmp->migrates = false;
	qmp->migrated = false;
}

enum target_life qmp_ended(struct qmp *qmp)
{
	const uint64_t until_ns = clock_now_ns() + EVENTS_MS * NS_PER_MS;

	do
		json_decref(take_answer(qmp, until_ns));
	while (clock_now_ns() < until_ns && fill(qmp, 0));
	return qmp->end;
}

static struct error *say_hello(struct qmp *qmp, const char *path)
{
	json_auto_t *hello = next_answer(qmp, socket_deadline(qmp->deadline_ns, HELLO_MS));

	if (!json_object_get(hello, "QMP"))
		return error_new(ERR_DENIED,
				 "%s does not answer as QMP does: either it is another kind of "
				 "socket, or another program (libvirt?) is connected to it; start "
				 "QEMU with one more -qmp",
				 path);
	return qmp_execute(qmp, "qmp_capabilities", NULL, NULL);
}

static struct error *reach(struct qmp *qmp, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return error_new(ERR_USAGE, "%s is too long a name for a socket", path);
	strcpy(address.sun_path, path);
	socket_bound(qmp->fd, SEND_MS);
	if (!connect(qmp->fd, (const struct sockaddr *)&address, sizeof(address)))
		return NULL;
	if (errno == EAGAIN)
		return error_new(ERR_DENIED,
				 "QEMU takes no connections at %s: it hangs, or too many others "
				 "wait for it",
				 path);
	return error_errno(ERR_DENIED, errno, "cannot connect to QEMU's socket %s", path);
}

struct error *qmp_open(const char *path, uint64_t until_ns, struct qmp **out)
{
	struct qmp *qmp;
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	struct error *err;

	TRY(ARRAY_NEW(&qmp, 1));
	qmp->deadline_ns = until_ns;
	qmp->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	err = make_room(qmp) && qmp->fd >= 0 ? reach(qmp, path) : error_no_memory();
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
