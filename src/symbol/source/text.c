/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/names/display_name.h"

/* A larger file is no source, more of them are not read, and no path has more parts. */
#define SOURCE_MAX  (16u << 20)
#define SOURCES_MAX 256
#define PARTS_MAX   64

struct source_text {
	const char *path; /* as the compiler was told */
	char *found;	  /* the file that was read; NULL: none */
	char *text;
	size_t len;
	const char **line; /* their beginnings, and the end */
	size_t n;
};

struct source_texts {
	struct source_text_options options;
	struct source_text at[SOURCES_MAX];
	size_t n;
};

struct source_texts *source_texts_new(const struct source_text_options *options)
{
	struct source_texts *texts = calloc(1, sizeof(*texts));

	if (texts)
		texts->options = *options;
	return texts;
}

void source_texts_free(struct source_texts *texts)
{
	for (size_t i = 0; texts && i < texts->n; i++) {
		free(texts->at[i].found);
		free(texts->at[i].text);
		free(texts->at[i].line);
	}
	free(texts);
}

/* Reads a regular file; one that grows meanwhile is cut, and /proc has nothing of a size. */
static void read_text(struct source_text *source)
{
	CLOSED const int fd = open_to_read(source->found);
	struct stat st;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= SOURCE_MAX)
		source->text = malloc((size_t)st.st_size);
	while (source->text && source->len < (size_t)st.st_size) {
		ssize_t got =
			read(fd, source->text + source->len, (size_t)st.st_size - source->len);

		if (got <= 0)
			break;
		source->len += (size_t)got;
	}
}

static void find_lines(struct source_text *source)
{
	const char *end = source->text + source->len;
	size_t n = 1;

	for (const char *c = source->text; c && c < end; c++)
		n += *c == '\n';
	source->line = source->text ? calloc(n + 1, sizeof(*source->line)) : NULL;
	if (!source->line)
		return;
	for (const char *c = source->text; c < end; c++)
		if (c == source->text || c[-1] == '\n')
			source->line[source->n++] = c;
	source->line[source->n] = end;
}

/* True if a part of the path leads upwards: out of the directory, perhaps. */
static bool climbs(const char *path)
{
	for (const char *at = path; at; at = strchr(at, '/')) {
		at += *at == '/';
		if (!strncmp(at, "..", 2) && (!at[2] || at[2] == '/'))
			return true;
	}
	return false;
}

/* The file below the directory whose path ends as this one, with as many parts as possible. */
static char *find_below(const char *directory, const char *path)
{
	unsigned parts = 0;

	for (const char *at = path; at && parts < PARTS_MAX; at = strchr(at, '/'), parts++) {
		char *found = NULL;

		at += strspn(at, "/");
		if (!*at)
			break;
		if (climbs(at) || asprintf(&found, "%s/%s", directory, at) < 0)
			continue;
		if (is_regular_file(found))
			return found;
		free(found);
	}
	return NULL;
}

static void load(const struct source_text_options *options, struct source_text *source)
{
	if (options->directory)
		source->found = find_below(options->directory, source->path);
	if (!source->found && !options->only_directory && *source->path == '/' &&
	    is_regular_file(source->path))
		source->found = strdup(source->path);
	if (!source->found)
		return;
	read_text(source);
	find_lines(source);
}

static struct source_text *find(struct source_texts *texts, const char *path)
{
	struct source_text *source;
	size_t i;

	for (i = 0; i < texts->n && strcmp(texts->at[i].path, path) != 0; i++)
		;
	if (i == SOURCES_MAX)
		return NULL;
	source = &texts->at[i];
	if (i == texts->n) {
		texts->n++;
		source->path = path;
		load(&texts->options, source);
	}
	return source->line ? source : NULL;
}

char *source_texts_line(struct source_texts *texts, const char *path, uint32_t number)
{
	const struct source_text *source = find(texts, path);
	FREED char *copy = NULL;
	size_t len;

	if (!source || !number || number > source->n)
		return NULL;
	len = (size_t)(source->line[number] - source->line[number - 1]);
	while (len && strchr("\r\n", source->line[number - 1][len - 1]))
		len--;
	if (len)
		copy = strndup(source->line[number - 1], len);
	for (char *c = copy; c && *c; c++)
		*c = *c == '\t' ? ' ' : *c;
	return copy ? sanitize_new(copy) : NULL;
}

const char *source_texts_file(struct source_texts *texts, const char *path)
{
	const struct source_text *source = find(texts, path);

	return source ? source->found : NULL;
}
