/* SPDX-License-Identifier: BSD-3-Clause */

#include <dlfcn.h>
#include <elfutils/debuginfod.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/debug_file.h"
#include "base/preopen.h"
#include "symbol/images/file.h"

const char debuginfod_feature[] = "asks debuginfod";

/*
 * Loaded on demand and unloaded again: it brings an HTTP client with many
 * libraries, which hardly anybody needs.
 */
#define LIBRARY "libdebuginfod.so.1"

struct client {
	void *library;
	__typeof__(debuginfod_begin) *begin;
	__typeof__(debuginfod_end) *end;
	__typeof__(debuginfod_find_debuginfo) *find;
};

static bool load(struct client *client)
{
	client->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!client->library)
		return false;
	client->begin = (__typeof__(client->begin))dlsym(client->library, "debuginfod_begin");
	client->end = (__typeof__(client->end))dlsym(client->library, "debuginfod_end");
	client->find =
		(__typeof__(client->find))dlsym(client->library, "debuginfod_find_debuginfo");
	return client->begin && client->end && client->find;
}

/* Seconds for one file, if the user has not said how many: the library has no bound of its own. */
#define MAXTIME "300"

/* A descriptor, negative if there is no such thing anywhere. */
static int fetch(const char *hex)
{
	const bool bounded = getenv(DEBUGINFOD_MAXTIME_ENV_VAR);
	struct client client;
	debuginfod_client *connection = load(&client) ? client.begin() : NULL;
	int fd = -1;

	if (!bounded)
		setenv(DEBUGINFOD_MAXTIME_ENV_VAR, MAXTIME, true);
	if (connection) {
		/* Length 0: the id is a string in hex. */
		fd = client.find(connection, (const unsigned char *)hex, 0, NULL);
		client.end(connection);
	}
	if (!bounded)
		unsetenv(DEBUGINFOD_MAXTIME_ENV_VAR);
	return fd;
}

struct error *debuginfod_preopen(const char *path)
{
	const char *servers = getenv(DEBUGINFOD_URLS_ENV_VAR);
	char hex[2 * BUILD_ID_MAX + 1];
	char name[sizeof(DEBUG_FILE_FETCHED) + sizeof(hex)];
	bool lacks;
	int fd;

	if (!servers || !*servers)
		return NULL;
	image_file_build_id(path, hex, &lacks);
	fd = *hex && lacks ? fetch(hex) : -1;
	if (fd < 0)
		return NULL;
	snprintf(name, sizeof(name), DEBUG_FILE_FETCHED "%s", hex);
	return preopen_adopt(name, fd);
}
