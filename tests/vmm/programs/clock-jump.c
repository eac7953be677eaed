/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * For LD_PRELOAD: the wall clock of one program, which goes wrong by as many
 * seconds as the file says that CLOCK_JUMP names. It is read by each look.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *wrong;
static int (*real)(clockid_t clock, struct timespec *now);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CLOCK_JUMP");
	const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = MAP_FAILED;

	*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	if (fd >= 0)
		page = mmap(NULL, sizeof(*wrong), PROT_READ, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (page != MAP_FAILED)
		wrong = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	const int failed = real(clock, now);

	if (!failed && clock == CLOCK_REALTIME && wrong)
		now->tv_sec += *wrong;
	return failed;
}
