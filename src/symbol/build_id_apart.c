/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/build_id_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symbol/sandbox.h"
#include "symbol/source/dwarf.h"
#include "symbol/images/code.h"

/* The first byte that is told. */
#define LACKS 'l'
#define HAS   'h'

/* The process's whole life. */
static void __attribute__((noreturn)) tell(const char *path, int fd)
{
	char told[1 + 2 * CODE_BUILD_ID_MAX + 1];

	apart_begin(&fd, 1);
	*told = dwarf_file_lacks(path, told + 1) ? LACKS : HAS;
	if (write(fd, told, strlen(told)) < 0)
		_exit(1);
	_exit(0);
}

void build_id_apart(const char *path, char *hex, bool *lacks)
{
	char told[1 + 2 * CODE_BUILD_ID_MAX + 1] = "";
	ssize_t len = 0;
	struct stat st;
	int fds[2];
	pid_t pid;

	*hex = '\0';
	*lacks = false;
	/* A pipe can be read but once, and not here. */
	if (stat(path, &st) || !S_ISREG(st.st_mode) || pipe2(fds, O_CLOEXEC))
		return;
	pid = fork();
	if (pid == 0)
		tell(path, fds[1]);
	close(fds[1]);
	/* So few bytes come at once, or never. */
	if (pid > 0)
		len = read(fds[0], told, sizeof(told) - 1);
	close(fds[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	/* What told it may have been taken over, and it becomes a part of paths and addresses. */
	if (len < 2 || strspn(told + 1, "0123456789abcdef") != (size_t)len - 1)
		return;
	*lacks = *told == LACKS;
	strcpy(hex, told + 1);
}
