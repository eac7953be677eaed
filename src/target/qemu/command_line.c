/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/host/proc.h"
#include "target/kvm/vcpus.h"
#include "target/qemu/machine.h"

#define COMMAND_ROOM 65536

/* The n-th value that follows one of two spellings of an option; NULL: there are not so many. */
static const char *value_of(const char *text, size_t len, const char *option, unsigned n)
{
	const char *end = text + len, *word = text;

	while (word < end) {
		const char *next = word + strlen(word) + 1;

		if (*word == '-' && !strcmp(word + 1 + (word[1] == '-'), option) && next < end &&
		    n-- == 0)
			return next;
		word = next;
	}
	return NULL;
}

/* The value of KEY in "a,KEY=value,b"; "" if it is not there. */
static void part(const char *value, const char *key, char *out, size_t size)
{
	const size_t len = strlen(key);

	*out = '\0';
	while (value && *value) {
		if (!strncmp(value, key, len) && value[len] == '=') {
			snprintf(out, size, "%.*s", (int)strcspn(value + len + 1, ","),
				 value + len + 1);
			return;
		}
		value = strchr(value, ',');
		value += value ? 1 : 0;
	}
}

/* "-mon chardev=x,mode=control" with "-chardev socket,id=x,path=..." */
static void by_chardev(const char *text, size_t len, char *path, size_t size)
{
	char wanted[64], id[64], mode[16];
	const char *mon, *chardev;

	for (unsigned i = 0; (mon = value_of(text, len, "mon", i)); i++) {
		part(mon, "mode", mode, sizeof(mode));
		part(mon, "chardev", wanted, sizeof(wanted));
		if (strcmp(mode, "control"))
			continue;
		for (unsigned k = 0; (chardev = value_of(text, len, "chardev", k)); k++) {
			part(chardev, "id", id, sizeof(id));
			if (!strncmp(chardev, "socket,", 7) && !strcmp(id, wanted))
				part(chardev, "path", path, size);
		}
	}
}

static bool has_word(const char *text, size_t len, const char *wanted)
{
	for (const char *word = text; word < text + len; word += strlen(word) + 1)
		if (*word == '-' && !strcmp(word + 1 + (word[1] == '-'), wanted))
			return true;
	return false;
}

/* As the process sees it, if it is relative. */
static void make_absolute(pid_t pid, char *path, size_t size)
{
	char directory[2048], full[4096];

	if (!*path || *path == '/')
		return;
	proc_link(pid, "cwd", -1, directory, sizeof(directory));
	snprintf(full, sizeof(full), "%s/%s", directory, path);
	snprintf(path, size, "%s", full);
}

void qemu_qmp_path(pid_t pid, char *path, size_t size)
{
	char *text = malloc(COMMAND_ROOM);
	ssize_t len = text ? proc_read(pid, "cmdline", text, COMMAND_ROOM) : 0;
	const char *value = NULL;

	*path = '\0';
	if (len > 0)
		value = value_of(text, (size_t)len, "qmp", 0)
				?: value_of(text, (size_t)len, "qmp-pretty", 0);
	if (value && !strncmp(value, "unix:", 5))
		snprintf(path, size, "%.*s", (int)strcspn(value + 5, ","), value + 5);
	else if (len > 0)
		by_chardev(text, (size_t)len, path, size);
	free(text);
	make_absolute(pid, path, size);
}

/* "-s", "-gdb tcp::1234", "-gdb tcp:localhost:1234,...", "-gdb unix:PATH,server=on" */
void qemu_gdb_address(pid_t pid, char *address, size_t size)
{
	char *text = malloc(COMMAND_ROOM), path[128];
	ssize_t len = text ? proc_read(pid, "cmdline", text, COMMAND_ROOM) : 0;
	const char *value = len > 0 ? value_of(text, (size_t)len, "gdb", 0) : NULL;
	const char *port = value ? strrchr(value, ':') : NULL;

	*address = '\0';
	if (len > 0 && has_word(text, (size_t)len, "s"))
		snprintf(address, size, "tcp:1234");
	if (value && !strncmp(value, "unix:", 5)) {
		snprintf(path, sizeof(path), "%.*s", (int)strcspn(value + 5, ","), value + 5);
		make_absolute(pid, path, sizeof(path));
		snprintf(address, size, "unix:%s", path);
	} else if (port && !strncmp(value, "tcp:", 4)) {
		snprintf(address, size, "tcp:%.*s", (int)strcspn(port + 1, ","), port + 1);
	}
	free(text);
}

uint32_t qemu_vcpus(pid_t pid)
{
	char name[32], *text;
	const char *value;
	unsigned long n = 1;
	ssize_t len;

	proc_comm(pid, name, sizeof(name));
	if (strncmp(name, "qemu-system-", strlen("qemu-system-")) || kvm_vcpus_count(pid))
		return 0;
	text = malloc(COMMAND_ROOM);
	len = text ? proc_read(pid, "cmdline", text, COMMAND_ROOM) : 0;
	value = len > 0 ? value_of(text, (size_t)len, "smp", 0) : NULL;
	if (value && !strncmp(value, "cpus=", 5))
		value += 5;
	if (value)
		n = strtoul(value, NULL, 10);
	free(text);
	return n >= 1 && n <= QEMU_VCPUS_MAX ? (uint32_t)n : 1;
}
