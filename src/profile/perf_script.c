/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/perf_script.h"

#include <string.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The next word from *at on; empty at the end. */
static struct perf_piece next_word(const char **at)
{
	struct perf_piece word;

	while (is_blank(**at))
		++*at;
	word.at = *at;
	while (**at && !is_blank(**at))
		++*at;
	word.len = (size_t)(*at - word.at);
	return word;
}

static size_t digits(const char *text)
{
	return strspn(text, "0123456789");
}

/* "4711.123456:" as nanoseconds. */
static bool read_time(struct perf_piece word, uint64_t *ns)
{
	size_t whole = digits(word.at), part;
	uint64_t seconds = 0, rest = 0;

	if (!whole || whole > 10 || word.at[whole] != '.')
		return false;
	part = digits(word.at + whole + 1);
	if (!part || part > 9 || whole + part + 2 != word.len || word.at[word.len - 1] != ':')
		return false;
	for (size_t i = 0; i < whole; i++)
		seconds = seconds * 10 + (uint64_t)(word.at[i] - '0');
	for (size_t i = 0; i < 9; i++)
		rest = rest * 10 + (i < part ? (uint64_t)(word.at[whole + 1 + i] - '0') : 0);
	*ns = seconds * 1000000000 + rest;
	return true;
}

static bool read_number(struct perf_piece word, uint64_t *value)
{
	*value = 0;
	if (!word.len || word.len > 18 || digits(word.at) < word.len)
		return false;
	for (size_t i = 0; i < word.len; i++)
		*value = *value * 10 + (uint64_t)(word.at[i] - '0');
	return true;
}

/* "[003]" */
static bool read_cpu(struct perf_piece word, uint64_t *cpu)
{
	return word.len > 2 && word.at[0] == '[' && word.at[word.len - 1] == ']' &&
	       read_number((struct perf_piece){word.at + 1, word.len - 2}, cpu);
}

/* "815" or "815/816" */
static bool is_pid(struct perf_piece word)
{
	size_t pid = digits(word.at);

	if (!pid || pid == word.len)
		return pid > 0;
	return pid < word.len && word.at[pid] == '/' &&
	       pid + 1 + digits(word.at + pid + 1) >= word.len && pid + 1 < word.len;
}

/* The words before the time: the command with all its blanks, pid, CPU. */
static bool read_who(const char *line, const char *time, struct perf_header *header)
{
	struct perf_piece last = {line, 0}, before = {line, 0};
	const char *at = line;

	for (;;) {
		struct perf_piece word = next_word(&at);

		if (!word.len || word.at >= time)
			break;
		before = last;
		last = word;
	}
	if (read_cpu(last, &header->cpu))
		last = before;
	while (is_blank(*line))
		line++;
	if (!last.len || !is_pid(last) || last.at <= line)
		return false;
	header->comm = (struct perf_piece){line, (size_t)(last.at - line)};
	while (header->comm.len && is_blank(header->comm.at[header->comm.len - 1]))
		header->comm.len--;
	return header->comm.len > 0;
}

bool perf_read_header(const char *line, struct perf_header *header)
{
	const char *at = line;
	struct perf_piece word;

	*header = (struct perf_header){.period = 1};
	do {
		word = next_word(&at);
		if (!word.len)
			return false;
	} while (!read_time(word, &header->time_ns));
	if (!read_who(line, word.at, header))
		return false;
	word = next_word(&at);
	header->has_period = read_number(word, &header->period);
	if (header->has_period)
		word = next_word(&at);
	else
		header->period = 1;
	/* "cycles:u:" ends with a colon. */
	if (word.len < 2 || word.at[word.len - 1] != ':')
		return false;
	header->event = (struct perf_piece){word.at, word.len - 1};
	while (is_blank(*at))
		at++;
	header->rest = (struct perf_piece){at, strlen(at)};
	return true;
}

/*
 * Where the parenthesis of the file opens, 0 if there is none: names and files
 * may have blanks and parentheses, too ("/lib/x (deleted)").
 */
static size_t find_file(struct perf_piece text)
{
	size_t any = 0;

	if (!text.len || text.at[text.len - 1] != ')')
		return 0;
	for (size_t i = text.len - 1; i > 0; i--) {
		if (text.at[i] != '(' || !is_blank(text.at[i - 1]))
			continue;
		if (text.at[i + 1] == '/' || text.at[i + 1] == '[')
			return i;
		any = any ? any : i;
	}
	return any;
}

/* "name+0x12 (file)" becomes "name", "[unknown] (/lib/file.so)" "[file.so]". */
static struct perf_piece name_of(struct perf_piece text, bool *is_file)
{
	struct perf_piece name = text, file = {text.at, 0};
	size_t open;

	open = find_file(text);
	if (open) {
		name.len = open - 1;
		file = (struct perf_piece){text.at + open + 1, text.len - open - 2};
	}
	for (size_t i = name.len; i > 3; i--) {
		if (strncmp(name.at + i - 3, "+0x", 3))
			continue;
		if (i + strspn(name.at + i, "0123456789abcdef") >= name.len)
			name.len = i - 3;
		break;
	}
	while (name.len && is_blank(name.at[name.len - 1]))
		name.len--;
	*is_file = name.len == strlen("[unknown]") && !strncmp(name.at, "[unknown]", name.len);
	if (!*is_file)
		return name;
	for (size_t i = file.len; i > 0; i--)
		if (file.at[i - 1] == '/')
			return (struct perf_piece){file.at + i, file.len - i};
	return file.len == name.len && !strncmp(file.at, name.at, name.len) ? (struct perf_piece){0}
									    : file;
}

bool perf_read_frame(const char *line, uint64_t *addr, struct perf_piece *name, bool *is_file)
{
	size_t n;

	while (is_blank(*line))
		line++;
	n = strspn(line, "0123456789abcdef");
	if (!n || n > 16 || (line[n] && !is_blank(line[n])))
		return false;
	*addr = 0;
	for (size_t i = 0; i < n; i++)
		*addr = *addr << 4 |
			(uint64_t)(line[i] <= '9' ? line[i] - '0' : line[i] - 'a' + 10);
	line += n;
	while (is_blank(*line))
		line++;
	*name = name_of((struct perf_piece){line, strlen(line)}, is_file);
	return true;
}
