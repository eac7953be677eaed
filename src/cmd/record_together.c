/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/record_together.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/merge.h"
#include "cmd/several.h"

struct parts {
	char *directory;
	char **path;
	size_t n;
};

static int is_part(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static struct error *find_parts(struct parts *parts)
{
	struct dirent **found;
	int n = scandir(parts->directory, &found, is_part, alphasort);
	bool failed = false;

	if (n < 0)
		return error_errno(ERR_FAILED, errno, "cannot read %s", parts->directory);
	parts->path = calloc((size_t)n + 1, sizeof(*parts->path));
	for (int i = 0; i < n; i++) {
		if (parts->path && !failed)
			failed = asprintf(&parts->path[parts->n], "%s/%s", parts->directory,
					  found[i]->d_name) < 0;
		parts->n += parts->path && !failed;
		free(found[i]);
	}
	free(found);
	return parts->path && !failed ? NULL : error_no_memory();
}

static void remove_parts(struct parts *parts)
{
	for (size_t i = 0; i < parts->n; i++) {
		unlink(parts->path[i]);
		free(parts->path[i]);
	}
	free(parts->path);
	rmdir(parts->directory);
	free(parts->directory);
}

/* In a process of its own: what is root's here has to be removed afterwards. */
static struct error *merge_parts(void *ctx, const char *output)
{
	const struct parts *parts = ctx;

	return merge_confined(parts->path, parts->n, output);
}

struct error *record_together(struct session_options *options, char **guests, size_t n,
			      struct error *(*each)(void *ctx, const char *guest), int *status)
{
	char *output = (char *)options->output;
	struct parts parts = {0};
	struct error *err;
	int merged = 0;

	if (asprintf(&parts.directory, "%s.XXXXXX", output) < 0)
		return error_no_memory();
	if (!mkdtemp(parts.directory)) {
		err = error_errno(ERR_OUTPUT, errno, "cannot make directory %s", parts.directory);
		free(parts.directory);
		return err;
	}
	options->output = parts.directory;
	err = several(guests, n, each, options, status);
	options->output = output;
	if (!err)
		err = find_parts(&parts);
	if (!err && parts.n)
		err = several(&output, 1, merge_parts, &parts, &merged);
	*status = merged ?: *status;
	remove_parts(&parts);
	return err;
}
