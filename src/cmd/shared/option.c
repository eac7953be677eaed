/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/option.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/debug_file.h"
#include "base/preopen.h"
#include "cmd/cmd.h"
#include "capture/sampler.h"

#define TEN_YEARS_S (10 * 365.25 * 86400)

/* For the words of a row, and what stands between them. */
#define VALUES_ROOM 128

/* A plain decimal number, no sign, no hex, no "inf"; *unit points behind it. */
static bool parse_number(const char *text, double *value, const char **unit)
{
	size_t digits = strspn(text, "0123456789.");
	char plain[32], *end;

	/* strtod gets the digits only: it would take "0x10" or "1e9" for numbers, too. */
	if (!digits || digits >= sizeof(plain))
		return false;
	memcpy(plain, text, digits);
	plain[digits] = 0;
	*value = strtod(plain, &end);
	*unit = text + digits;
	return !*end && isfinite(*value);
}

/* Return values of getopt_long for rows, above those of brief options. */
#define FIRST_ROW 256

/* A verb's rows in the forms that getopt_long takes. */
struct parser {
	struct option longs[OPTIONS_MAX + 1];
	char briefs[2 + 3 * OPTIONS_MAX + 1];
	const struct option_row *row[OPTIONS_MAX];
	void *to[OPTIONS_MAX];
	int n;
};

static int has_argument(const struct option_row *row)
{
	if (!row->argument)
		return no_argument;
	return *row->argument == '[' ? optional_argument : required_argument;
}

static void add_row(struct parser *parser, const struct option_row *row, void *to)
{
	const int i = parser->n++, argument = has_argument(row);
	size_t len = strlen(parser->briefs);

	assert(i < OPTIONS_MAX);
	parser->row[i] = row;
	parser->to[i] = to;
	parser->longs[i] = (struct option){row->name, argument, NULL, FIRST_ROW + i};
	if (!row->brief)
		return;
	parser->briefs[len++] = row->brief;
	/* A brief option has its argument behind it, or none. */
	parser->briefs[len] = argument == required_argument ? ':' : 0;
}

/* The index of the row that getopt_long has found. */
static int row_of(const struct parser *parser, int found)
{
	int i = found - FIRST_ROW;

	for (i = i < 0 ? 0 : i; found < FIRST_ROW && parser->row[i]->brief != found; i++)
		assert(i + 1 < parser->n);
	return i;
}

struct error *options_parse(const struct verb *verb, int argc, char **argv, void *options,
			    int *first)
{
	/* '+': options behind a command's name are the command's. ':' tells a value that lacks. */
	struct parser parser = {.briefs = "+:"};

	if (verb->takes != TAKES_COMMAND)
		strcpy(parser.briefs, ":");
	for (const struct option_group *group = verb->options; group->rows; group++)
		for (const struct option_row *row = group->rows; row->name; row++)
			add_row(&parser, row, (char *)options + group->at);
	opterr = 0;
	/* glibc reads the sign before the options anew only at 0. */
	optind = 0;
	for (;;) {
		const int found = getopt_long(argc, argv, parser.briefs, parser.longs, NULL);
		const char brief[] = {'-', (char)optopt, 0};
		int i;

		*first = optind;
		if (found == -1)
			return NULL;
		if (found == '?' || found == ':')
			return cmd_usage_error(verb,
					       found == ':' ? "option %s lacks its value"
							    : "there is no option %s",
					       optopt && optopt < FIRST_ROW ? brief
									    : argv[optind - 1]);
		i = row_of(&parser, found);
		TRY(parser.row[i]->take(parser.row[i], optarg, parser.to[i]));
	}
}

struct error *options_parse_one(const struct verb *verb, int argc, char **argv, void *options,
				const char *lacks, const char **argument)
{
	int first;

	TRY(options_parse(verb, argc, argv, options, &first));
	*argument = argv[first];
	return first + 1 == argc ? NULL : cmd_usage_error(verb, "%s", lacks);
}

/* Files of options */

/* Cuts spaces off both ends. */
static char *trimmed(char *text)
{
	size_t len;

	text += strspn(text, " \t\r");
	len = strlen(text);
	while (len && strchr(" \t\r", text[len - 1]))
		text[--len] = '\0';
	return text;
}

/* The row of this name, and in *number which of all it is; NULL: there is none. */
static const struct option_row *find_row(const struct option_group *groups, const char *name,
					 const struct option_group **group, size_t *number)
{
	*number = 0;
	for (*group = groups; (*group)->rows; ++*group)
		for (const struct option_row *row = (*group)->rows; row->name; row++, ++*number)
			if (!strcmp(row->name, name))
				return row;
	return NULL;
}

static struct error *take_line(struct option_file *file, const struct option_group *groups,
			       char *line, void *options)
{
	char *value = strchr(line, '=');
	const struct option_group *group;
	const struct option_row *row;
	struct option_row as_written;
	size_t number;

	if (!value)
		return error_new(ERR_USAGE, "there is no \"=\": a line is NAME = VALUE");
	*value = '\0';
	line = trimmed(line);
	value = trimmed(value + 1);
	row = find_row(groups, line, &group, &number);
	if (!row)
		return error_new(ERR_USAGE, "there is no setting \"%s\"", line);
	if (file->set_in[number] && !row->repeats)
		return error_new(ERR_USAGE, "%s is set in line %u already", line,
				 file->set_in[number]);
	file->set_in[number] = file->line;
	if (!*value)
		return error_new(ERR_USAGE, "%s lacks its value", line);
	if (!row->argument && strcmp(value, "yes") && strcmp(value, "no"))
		return error_new(ERR_USAGE, "%s %s: it is yes or no", line, value);
	if (!row->argument && *value == 'n')
		return NULL;
	as_written = *row;
	as_written.brief = 0;
	return row->take(&as_written, value, (char *)options + group->at);
}

struct error *option_file_next(struct option_file *file, const struct option_group *groups,
			       void *options, bool *more)
{
	struct error *err, *at_line;
	char *line;

	do {
		line = strsep(&file->rest, "\n");
		file->line += line != NULL;
		line = line ? trimmed(line) : NULL;
	} while (line && (!*line || *line == '#'));
	*more = line;
	err = line ? take_line(file, groups, line, options) : NULL;
	if (!err)
		return NULL;
	/* Rows name themselves as on a command line. */
	at_line = error_new(err->kind, "%s:%u: %s", file->path, file->line,
			    err->text + (strncmp(err->text, "--", 2) ? 0 : 2));
	error_free(err);
	return at_line;
}

unsigned option_file_line(const struct option_file *file, const struct option_group *groups,
			  const char *name)
{
	const struct option_group *group;
	size_t number;

	return find_row(groups, name, &group, &number) ? file->set_in[number] : 0;
}

struct option_name option_name(const struct option_row *row)
{
	struct option_name name;

	if (row->brief)
		snprintf(name.text, sizeof(name.text), "-%c", row->brief);
	else
		snprintf(name.text, sizeof(name.text), "--%s", row->name);
	return name;
}

static void *field(const struct option_row *row, void *options)
{
	return (char *)options + row->at;
}

struct error *take_true(const struct option_row *row, const char *value, void *options)
{
	*(bool *)field(row, options) = true;
	return NULL;
}

struct error *take_text(const struct option_row *row, const char *value, void *options)
{
	*(const char **)field(row, options) = value;
	return NULL;
}

struct error *option_error(const struct option_row *row, const char *value, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return error_new(ERR_USAGE, "%s %s: %s", option_name(row).text, value, text);
}

struct error *option_count(const char *option, const char *text, uint64_t min, uint64_t max,
			   uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno)
		return error_new(ERR_USAGE, "%s %s: not a whole number", option, text);
	if (*value < min || *value > max)
		return error_new(ERR_USAGE, "%s %s: must be from %llu to %llu", option, text,
				 (unsigned long long)min, (unsigned long long)max);
	return NULL;
}

struct error *take_count(const struct option_row *row, const char *value, void *options)
{
	return option_count(option_name(row).text, value, row->least, row->most,
			    field(row, options));
}

struct error *take_bytes(const struct option_row *row, const char *value, void *options)
{
	const char *unit;
	double number;

	if (!parse_number(value, &number, &unit))
		return option_error(row, value, "not a size");
	if (!strcasecmp(unit, "k") || !strcasecmp(unit, "KiB"))
		number *= 1024;
	else if (!strcasecmp(unit, "M") || !strcasecmp(unit, "MiB"))
		number *= 1024 * 1024;
	else if (!strcasecmp(unit, "G") || !strcasecmp(unit, "GiB"))
		number *= 1024 * 1024 * 1024;
	else if (*unit)
		return option_error(row, value, "the unit \"%s\" is none of k, M, G", unit);
	if (number < (double)row->least || number > (double)row->most)
		return option_error(row, value, "must be from %llu to %llu bytes",
				    (unsigned long long)row->least, (unsigned long long)row->most);
	*(uint64_t *)field(row, options) = (uint64_t)number;
	return NULL;
}

/* Takes a number of 64 bits into a field of 32. */
static struct error *take_narrow(option_take *take, const struct option_row *row, const char *value,
				 void *options)
{
	struct option_row wide = *row;
	uint64_t number = 0;

	wide.at = 0;
	TRY(take(&wide, value, &number));
	*(uint32_t *)field(row, options) = (uint32_t)number;
	return NULL;
}

struct error *take_count32(const struct option_row *row, const char *value, void *options)
{
	return take_narrow(take_count, row, value, options);
}

struct error *take_bytes32(const struct option_row *row, const char *value, void *options)
{
	return take_narrow(take_bytes, row, value, options);
}

struct error *take_duration(const struct option_row *row, const char *value, void *options)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1},	{"s", 1},    {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
		     {"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400}};
	const char *unit;
	double number;
	size_t i = 0;

	if (!parse_number(value, &number, &unit))
		return option_error(row, value, "not a time");
	while (i < sizeof(units) / sizeof(*units) && strcmp(unit, units[i].name))
		i++;
	if (i == sizeof(units) / sizeof(*units))
		return option_error(row, value, "the unit \"%s\" is none of us, ms, s, m, h, d",
				    unit);
	number *= units[i].seconds;
	if (number * 1e9 < 1 || number > TEN_YEARS_S)
		return option_error(row, value, "must be more than 0 and at most ten years");
	*(uint64_t *)field(row, options) = (uint64_t)(number * 1e9);
	return NULL;
}

struct error *take_moment(const struct option_row *row, const char *value, void *options)
{
	*(uint64_t *)field(row, options) = 0;
	return strspn(value, "0.") == strlen(value) && strchr(value, '0')
		       ? NULL
		       : take_duration(row, value, options);
}

/* The beginning of the day in which `at_s` is, so many days later. */
static struct tm day_of(int64_t at_s, int days, bool utc)
{
	const time_t at = (time_t)at_s;
	struct tm day = {0};

	if (utc)
		gmtime_r(&at, &day);
	else
		localtime_r(&at, &day);
	day.tm_mday += days;
	day.tm_hour = day.tm_min = day.tm_sec = 0;
	day.tm_isdst = -1;
	return day;
}

/* "14:00" or "14:00:30" at *text, which is moved behind it. */
static bool parse_time(const char **text, struct tm *tm)
{
	const char *end = strptime(*text, "%H:%M:%S", tm);

	if (!end)
		end = strptime(*text, "%H:%M", tm);
	*text = end ? end : *text;
	return end;
}

static int64_t to_unix(struct tm tm, bool utc)
{
	return (int64_t)(utc ? timegm(&tm) : mktime(&tm));
}

bool option_wall_clock(const char *text, int64_t after_s, int64_t *unix_s)
{
	const int64_t now_s = (int64_t)time(NULL);
	const size_t len = strlen(text);
	const bool utc = len && text[len - 1] == 'Z';
	struct tm day = {0}, tm = day_of(after_s ? after_s : now_s, 0, utc);
	const char *end = strptime(text, "%Y-%m-%d", &day);
	const bool has_day = end;

	if (!strcmp(text, "today") || !strcmp(text, "yesterday")) {
		*unix_s = to_unix(day_of(now_s, *text == 't' ? 0 : -1, false), false);
		return true;
	}
	if (has_day)
		tm = day;
	if (has_day && (*end == 'T' || *end == ' ') && (end++, !parse_time(&end, &tm)))
		return false;
	if (!has_day && (end = text, !parse_time(&end, &tm)))
		return false;
	if (*end && strcmp(end, "Z"))
		return false;
	tm.tm_isdst = -1;
	*unix_s = to_unix(tm, utc);
	if (!has_day && after_s && *unix_s <= after_s)
		*unix_s += 86400;
	if (!has_day && !after_s && *unix_s > now_s)
		*unix_s -= 86400;
	return *unix_s >= 0;
}

struct error *take_percent(const struct option_row *row, const char *value, void *options)
{
	double *share = field(row, options);
	const char *unit;

	if (!parse_number(value, share, &unit) || (*unit && strcmp(unit, "%")))
		return option_error(row, value, "not a percentage");
	if (*share <= 0 || *share > 100)
		return option_error(row, value, "must be more than 0 and at most 100");
	*share /= 100;
	return NULL;
}

struct error *take_rate(const struct option_row *row, const char *value, void *options)
{
	double *hz = field(row, options);
	const char *unit;

	if (!parse_number(value, hz, &unit) || *unit)
		return option_error(row, value, "not a number of samples per second");
	if (*hz < RATE_MIN || *hz > RATE_MAX)
		return option_error(row, value, "the rate must be from %g to %g samples per second",
				    RATE_MIN, RATE_MAX);
	return NULL;
}

int option_word(const struct option_row *row, const char *value)
{
	const char *word = row->values;

	for (int i = 0; *word; i++) {
		size_t len = strcspn(word, " ");

		if (strlen(value) == len && !strncmp(value, word, len))
			return i;
		word += len + strspn(word + len, " ");
	}
	return -1;
}

/* "a, b or c": the words of row->values. */
static void list_words(const struct option_row *row, char text[VALUES_ROOM])
{
	char *to = text;

	assert(2 * strlen(row->values) < VALUES_ROOM - sizeof(" or "));
	for (const char *at = row->values; *at;) {
		const size_t len = strcspn(at, " ");
		const char *next = at + len + strspn(at + len, " ");

		to += sprintf(to, "%s%.*s",
			      at == row->values ? ""
			      : *next		? ", "
						: " or ",
			      (int)len, at);
		at = next;
	}
}

struct error *take_word(const struct option_row *row, const char *value, void *options)
{
	const int word = option_word(row, value);
	char words[VALUES_ROOM];

	if (word >= 0) {
		*(unsigned *)field(row, options) = (unsigned)row->least + (unsigned)word;
		return NULL;
	}
	list_words(row, words);
	return option_error(row, value, "it is %s", words);
}

struct error *take_debug_dir(const struct option_row *row, const char *value, void *options)
{
	return debug_file_preopen(value);
}

struct error *take_sysroot(const struct option_row *row, const char *value, void *options)
{
	return sysroot_preopen(value);
}
