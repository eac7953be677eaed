/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "way.h"

/* Hundreds of times as slow as the others. */
#define EVERY 50

struct xenctx {
	char domid[16];
	const char *argv[6];
	posix_spawn_file_actions_t actions;
};

static struct error *open_xenctx(const struct bench_guest *guest, void **state)
{
	struct xenctx *xenctx = calloc(1, sizeof(*xenctx));
	bool one = guest->vcpus == 1;
	int rc;

	if (!xenctx)
		return error_no_memory();
	*state = xenctx;
	snprintf(xenctx->domid, sizeof(xenctx->domid), "%u", guest->domid);
	xenctx->argv[0] = "xenctx";
	xenctx->argv[1] = "-S";
	xenctx->argv[2] = one ? xenctx->domid : "-C";
	xenctx->argv[3] = one ? "0" : xenctx->domid;
	rc = posix_spawn_file_actions_init(&xenctx->actions);
	for (int fd = 1; fd <= 2 && !rc; fd++)
		rc = posix_spawn_file_actions_addopen(&xenctx->actions, fd, "/dev/null", O_WRONLY,
						      0);
	return rc ? error_errno(ERR_FAILED, rc, "cannot prepare xenctx") : NULL;
}

static struct error *take(void *state, struct taken *out)
{
	struct xenctx *xenctx = state;
	uint64_t start = clock_now_ns();
	int status = -1;
	pid_t pid;
	int rc = posix_spawnp(&pid, "xenctx", &xenctx->actions, NULL, (char **)xenctx->argv,
			      environ);

	if (rc)
		return error_errno(ERR_FAILED, rc, "cannot start xenctx");
	waitpid(pid, &status, 0);
	out->whole_ns = clock_now_ns() - start;
	out->paused_ns = 0;
	return status ? error_new(ERR_FAILED, "xenctx failed") : NULL;
}

static void close_xenctx(void *state)
{
	struct xenctx *xenctx = state;

	if (!xenctx)
		return;
	posix_spawn_file_actions_destroy(&xenctx->actions);
	free(xenctx);
}

const struct way way_xenctx = {
	.name = "xenctx", .every = EVERY, .open = open_xenctx, .take = take, .close = close_xenctx};
