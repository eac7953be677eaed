/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/sandbox.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/owned.h"
#include "base/preopen.h"
#include "base/privilege.h"

/* The build says so: address sanitizers reserve terabytes. */
#ifdef UNIPROF_KEEP_RIGHTS
#define LIMIT_MEMORY false
#else
#define LIMIT_MEMORY true
#endif

/* Bytes beside those that the process has already: for itself, for each byte of a file, and in all. */
#define MEMORY_BASE   (192ull << 20)
#define MEMORY_FACTOR 8
#define MEMORY_MAX    (16ull << 30)

/*
 * Large kernels take a second, on emulated machines a minute: some seconds for
 * each MiB on the disk. A file waits for nothing but a disk; a pipe, for
 * whoever writes to it.
 */
#define SECONDS_BASE	 10
#define SECONDS_MAX	 120
#define BYTES_PER_SECOND (256u << 10)

static rlim_t smaller(rlim_t a, rlim_t b)
{
	return a < b ? a : b;
}

static void set(int which, rlim_t soft, rlim_t hard)
{
	struct rlimit limit;

	if (getrlimit(which, &limit))
		return;
	limit.rlim_max = smaller(limit.rlim_max, hard);
	limit.rlim_cur = smaller(limit.rlim_max, soft);
	setrlimit(which, &limit);
}

static void raise_by(int which, rlim_t by)
{
	struct rlimit limit;

	if (getrlimit(which, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return;
	limit.rlim_cur =
		by < limit.rlim_max - limit.rlim_cur ? limit.rlim_cur + by : limit.rlim_max;
	setrlimit(which, &limit);
}

/* Bytes of address space that are taken already; 0: it cannot be told (proc_pid_statm(5)). */
static uint64_t address_space(void)
{
	FILE *in = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (!in)
		return 0;
	if (fscanf(in, "%lu", &pages) != 1)
		pages = 0;
	fclose(in);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void sandbox_limit(void)
{
	const uint64_t used = address_space();

	/* The hard limit is above the soft one: SIGXCPU tells why the process has ended. */
	set(RLIMIT_CPU, SECONDS_BASE, SECONDS_MAX + 1);
	if (LIMIT_MEMORY && used)
		set(RLIMIT_AS, used + MEMORY_BASE, used + MEMORY_MAX);
}

/* Holes do not count; a file system that tells of no blocks is believed the size. */
static uint64_t bytes_on_disk(const struct stat *st)
{
	const uint64_t size = (uint64_t)st->st_size, blocks = (uint64_t)st->st_blocks * 512;

	return blocks && blocks < size ? blocks : size;
}

/* Bytes of memory for what a file holds. */
static uint64_t memory_for(const struct stat *st)
{
	return S_ISREG(st->st_mode) ? smaller(bytes_on_disk(st), MEMORY_MAX) * MEMORY_FACTOR : 0;
}

/* Seconds for what a file holds, beside the first ones. */
static unsigned seconds_for(const struct stat *st)
{
	const uint64_t bytes = S_ISREG(st->st_mode) ? bytes_on_disk(st) : 0;

	return (unsigned)smaller(bytes / BYTES_PER_SECOND, SECONDS_MAX - SECONDS_BASE);
}

void sandbox_raise(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return;
	if (LIMIT_MEMORY)
		raise_by(RLIMIT_AS, memory_for(&st));
	raise_by(RLIMIT_CPU, seconds_for(&st));
}

unsigned sandbox_seconds(const char *path)
{
	return is_regular_file(path) ? SECONDS_MAX : SECONDS_BASE;
}

void sandbox_serve(void)
{
	set(RLIMIT_CPU, SECONDS_MAX, SECONDS_MAX + 1);
}

/* A pipe is not opened, for that may wait. */
static int open_regular(const char *path)
{
	return is_regular_file(path) ? open_to_read(path) : -1;
}

uint64_t sandbox_memory(const char *path)
{
	CLOSED const int fd = open_regular(path);
	struct stat st;

	return MEMORY_BASE + (fd >= 0 && !fstat(fd, &st) ? memory_for(&st) : 0);
}

/* The name in lists of processes. */
#define READER_NAME "uniprof-reader"

/* Signals that end a process over its limits, whatever its parent made of them. */
static void end_by_signals(void)
{
	const struct sigaction end = {.sa_handler = SIG_DFL};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGXCPU);
	sigaction(SIGALRM, &end, NULL);
	sigaction(SIGXCPU, &end, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void limit_for(const char *path)
{
	CLOSED const int fd = open_regular(path);

	sandbox_limit();
	sandbox_raise(fd);
}

void sandbox_enter(const char *path, const int *fds, size_t n)
{
	struct descriptors keep = {0};
	struct privilege rights;

	prctl(PR_SET_NAME, READER_NAME);
	end_by_signals();
	for (size_t i = 0; i < n; i++)
		descriptors_add(&keep, fds[i]);
	descriptors_add(&keep, STDERR_FILENO);
	preopen_add(&keep);
	descriptors_close_others(&keep);
	limit_for(path);
	privilege_drop(SECCOMP_PARSER, &rights);
	/* Behind what changes users, which takes it away again. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

struct error *sandbox_crashed(const char *path, int status)
{
	if (!WIFSIGNALED(status))
		return error_new(ERR_FAILED, "%s: what reads it has failed", path);
	if (WTERMSIG(status) == SIGXCPU)
		return error_new(ERR_INPUT, "%s: a damaged file: reading it takes too long", path);
	if (WTERMSIG(status) == SIGALRM)
		return error_new(ERR_INPUT, "%s: it could not be read within %u s", path,
				 sandbox_seconds(path));
	return error_new(ERR_INPUT, "%s: a damaged file: what reads it was ended by signal %d (%s)",
			 path, WTERMSIG(status), strsignal(WTERMSIG(status)));
}
