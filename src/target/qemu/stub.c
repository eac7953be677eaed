/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/stub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "/tmp/uniprof-stub-XXXXXX"

/* By this the guard knows the answer to its last command from others. */
#define LAST "uniprof-guard"

#define END_STUB                                                \
	"{\"execute\":\"human-monitor-command\",\"arguments\":" \
	"{\"command-line\":\"gdbserver none\"},\"id\":\"uniprof\"}\n"
/* Has no effect but to be answered. */
#define NOTHING	 "{\"execute\":\"query-name\",\"id\":\"" LAST "\"}\n"
#define CONTINUE "{\"execute\":\"cont\",\"id\":\"" LAST "\"}\n"

static void keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct stub_undo *)ctx)->qmp);
}

static bool prepare(void *ctx)
{
	return true;
}

/* QEMU forgets commands of who hangs up before they were answered. */
static void wait_for_last(int fd)
{
	char text[4096 + 1];
	size_t kept = 0;
	ssize_t got;

	while ((got = read(fd, text + kept, sizeof(text) - 1 - kept)) > 0 ||
	       (got < 0 && errno == EINTR)) {
		size_t len = kept + (size_t)(got > 0 ? got : 0);

		text[len] = '\0';
		if (memmem(text, len, LAST, strlen(LAST)))
			return;
		/* What could be the beginning of it. */
		kept = len < sizeof(LAST) ? len : sizeof(LAST);
		memmove(text, text + len - kept, kept);
	}
}

/* First the stub: it could still stop the guest, of what we sent to it last. */
static void undo(void *ctx, enum guard_phase phase)
{
	const struct stub_undo *stub = ctx;
	const int fd = stub->qmp;
	char text[256];
	int len = snprintf(text, sizeof(text), "%s%s", stub->started ? END_STUB : "",
			   phase == GUARD_STOPPED ? CONTINUE : NOTHING);

	/* A blank line ends what we may have left half-written. */
	if (write(fd, "\n", 1) == 1 && write(fd, text, (size_t)len) == len)
		wait_for_last(fd);
}

static void keeps_gdb(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct stub_undo *)ctx)->gdb);
}

/*
 * First what ends a packet that was left half-written, and what acknowledges
 * the last answer; then detach, after which nothing may be sent.
 */
static void detach(void *ctx, enum guard_phase phase)
{
	static const char packets[] = "+#00#00+$D;1#b0", done[] = "$OK#9a";
	const int fd = ((struct stub_undo *)ctx)->gdb;
	char text[4096];
	size_t kept = 0;
	ssize_t got;

	if (write(fd, packets, strlen(packets)) != (ssize_t)strlen(packets))
		return;
	while ((got = read(fd, text + kept, sizeof(text) - kept)) > 0) {
		const size_t len = kept + (size_t)got;

		if (memmem(text, len, done, strlen(done)))
			return;
		kept = len < strlen(done) ? len : strlen(done);
		memmove(text, text + len - kept, kept);
	}
}

const struct guard_ops own_stub_guard = {.keeps = keeps_gdb, .prepare = prepare, .undo = detach};

const struct guard_ops stub_guard = {.keeps = keeps, .prepare = prepare, .undo = undo};

/* Where QEMU can make a socket, whatever user it runs as. */
static struct error *make_directory(char *path, pid_t pid)
{
	char process[48];
	struct stat owner;

	if (!mkdtemp(path))
		return error_errno(ERR_FAILED, errno, "cannot make a directory in /tmp");
	snprintf(process, sizeof(process), "/proc/%d", (int)pid);
	if (stat(process, &owner) || owner.st_uid == geteuid() ||
	    !chown(path, owner.st_uid, owner.st_gid))
		return NULL;
	return error_errno(ERR_DENIED, errno, "cannot give %s to QEMU's user", path);
}

struct error *stub_start(struct qmp *qmp, bool halted, struct gdb **out)
{
	char directory[] = DIRECTORY, path[sizeof(directory) + 8], line[128], *said = NULL;
	struct error *err = make_directory(directory, qmp_pid(qmp));

	snprintf(path, sizeof(path), "%s/gdb", directory);
	snprintf(line, sizeof(line), "gdbserver unix:%s,server=on,wait=off", path);
	if (!err)
		err = qmp_human(qmp, line, &said);
	if (!err)
		err = gdb_open(path, halted, out);
	if (err && said && *said)
		err = error_prefix(err, "QEMU says \"%.*s\"", (int)strcspn(said, "\r\n"), said);
	free(said);
	unlink(path);
	rmdir(directory);
	return err;
}
