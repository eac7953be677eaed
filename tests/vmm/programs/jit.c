/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Processes that make code of their own, all of them at the same address: two functions, of which one
 * turns three times as often as the other, and a file of further code beside them. Each but the last
 * writes their names for perf(1), and all of that to the console: "map PID LINE". A line
 * names the file's code, too, which is not the process's to name.
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CODE	  0x500000000000ul
#define SECOND	  0x100u
#define BESIDE	  0x10000u
#define SIZE	  4096u
#define TURNS	  20000ul
#define PROCESSES 3u
#define USER	  1007u

typedef void turn(unsigned long n);

/* Turns rdi times: dec %rdi; jnz; ret */
static const unsigned char loop[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};

static const struct {
	const char *first, *second;
	unsigned long first_turns, second_turns;
} kinds[PROCESSES] = {{"red", "pink", 3, 1}, {"green", "lime", 1, 3}, {NULL, NULL, 1, 1}};

static void *map_code(unsigned long at, int file)
{
	return mmap((void *)at, SIZE,
		    file < 0 ? PROT_READ | PROT_WRITE | PROT_EXEC : PROT_READ | PROT_EXEC,
		    MAP_PRIVATE | MAP_FIXED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
}

static void make_file(void)
{
	const int file = open("/tmp/code", O_WRONLY | O_CREAT | O_TRUNC, 0755);

	if (write(file, loop, sizeof(loop)) != sizeof(loop))
		_exit(1);
	close(file);
}

static void tell_names(const char *first, const char *second)
{
	char path[32], map[128], told[512];
	int len, file;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	len = snprintf(map, sizeof(map), "%lx %zx %s\n%lx %zx %s\n%lx %x lie\n", CODE, sizeof(loop),
		       first, CODE + SECOND, sizeof(loop), second, CODE + BESIDE, SIZE);
	file = open(path, O_WRONLY | O_CREAT, 0644);
	if (write(file, map, (size_t)len) != len)
		_exit(1);
	close(file);
	len = 0;
	for (char *line = strtok(map, "\n"); line; line = strtok(NULL, "\n"))
		len += snprintf(told + len, sizeof(told) - (size_t)len, "map %d %s\n",
				(int)getpid(), line);
	if (write(1, told, (size_t)len) != len)
		_exit(1);
}

static __attribute__((noreturn)) void work(unsigned kind)
{
	turn *first = (turn *)CODE, *second = (turn *)(CODE + SECOND),
	     *beside = (turn *)(CODE + BESIDE);

	for (;;) {
		first(TURNS * kinds[kind].first_turns);
		second(TURNS * kinds[kind].second_turns);
		beside(TURNS);
	}
}

static void begin(unsigned kind)
{
	char *code = map_code(CODE, -1);

	memcpy(code, loop, sizeof(loop));
	memcpy(code + SECOND, loop, sizeof(loop));
	if (map_code(CODE + BESIDE, open("/tmp/code", O_RDONLY)) == MAP_FAILED)
		_exit(1);
	/* The process is of a user of its own, and so is its map. */
	if (kind == 1 && setuid(USER))
		_exit(1);
	if (kinds[kind].first)
		tell_names(kinds[kind].first, kinds[kind].second);
	work(kind);
}

int main(void)
{
	mkdir("/tmp", 0777);
	chmod("/tmp", 01777);
	make_file();
	for (unsigned kind = 0; kind < PROCESSES; kind++)
		if (!fork())
			begin(kind);
	for (;;)
		wait(NULL);
}
