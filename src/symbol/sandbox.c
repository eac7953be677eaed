/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/sandbox.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/preopen.h"
#include "base/privilege.h"

/* The name in lists of processes. */
#define READER_NAME "uniprof-reader"

/* The largest kernels take a few; a damaged file could take for ever. */
#define CPU_SECONDS 120

void sandbox_enter(const int *fds, size_t n)
{
	const struct rlimit time = {CPU_SECONDS, CPU_SECONDS};
	struct descriptors keep = {0};
	struct privilege rights;

	prctl(PR_SET_NAME, READER_NAME);
	for (size_t i = 0; i < n; i++)
		descriptors_add(&keep, fds[i]);
	descriptors_add(&keep, STDERR_FILENO);
	preopen_add(&keep);
	descriptors_close_others(&keep);
	setrlimit(RLIMIT_CPU, &time);
	privilege_drop(SECCOMP_READER, &rights);
	/* Behind what changes users, which takes it away again. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}
