/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/cmd.h"

#include <ctype.h>
#include <string.h>

/* Columns of --help: where texts begin, and where lines end. */
#define TEXT_AT 26
#define WIDTH	92

typedef void each_row(const struct verb *verb, const struct option_row *row, FILE *out);

static void for_each_row(const struct verb *verb, each_row *each, FILE *out)
{
	for (const struct option_group *group = verb->options; group->rows; group++)
		for (const struct option_row *row = group->rows; row->name; row++)
			if (row->text)
				each(verb, row, out);
}

/* Writes words until the line is full, and goes on below the first one's column. */
static void write_wrapped(const char *text, FILE *out)
{
	size_t column = TEXT_AT;

	while (*text) {
		size_t len = strcspn(text, " ");

		if (column > TEXT_AT && column + 1 + len > WIDTH) {
			fprintf(out, "\n%*s", TEXT_AT, "");
			column = TEXT_AT;
		} else if (column > TEXT_AT) {
			fputc(' ', out);
			column++;
		}
		fwrite(text, 1, len, out);
		column += len;
		text += len + strspn(text + len, " ");
	}
	fputc('\n', out);
}

static void write_help(const struct verb *verb, const struct option_row *row, FILE *out)
{
	char brief[] = {'-', row->brief, ',', 0};
	int column = fprintf(out, "  %-3s --%s", row->brief ? brief : "", row->name);

	/* An argument that may be left out stands behind an equals sign. */
	if (row->argument && *row->argument == '[')
		column += fprintf(out, "[=%s", row->argument + 1);
	else if (row->argument)
		column += fprintf(out, " %s", row->argument);
	if (column + 1 > TEXT_AT)
		column = fprintf(out, "\n") - 1;
	fprintf(out, "%*s", TEXT_AT - column, "");
	write_wrapped(row->text, out);
}

void manual_write_help(const struct verb *verb, FILE *out)
{
	fprintf(out, "usage: uniprof %s%s%s\n\n%s\n", verb->name, *verb->name ? " " : "",
		verb->arguments, verb->about);
	for_each_row(verb, write_help, out);
	if (verb->closing)
		fprintf(out, "\n%s", verb->closing);
}

/* Columns of a file of settings. */
#define SETTINGS_WIDTH 100

static void write_setting(const struct verb *verb, const struct option_row *row, FILE *out)
{
	size_t column = SETTINGS_WIDTH, len;

	for (const char *text = row->text; *text; text += len + strspn(text + len, " ")) {
		len = strcspn(text, " ");
		if (column + 1 + len > SETTINGS_WIDTH)
			column = (size_t)fprintf(out, text == row->text ? "#" : "\n#");
		column += 1 + len;
		fprintf(out, " %c%.*s", text == row->text ? toupper((unsigned char)*text) : *text,
			(int)len - 1, text + 1);
	}
	fprintf(out, ".\n#%s = %s\n\n", row->name, row->argument ?: "yes");
}

void manual_write_settings(const struct verb *verb, FILE *out)
{
	struct verb as_file = *verb;

	as_file.options = verb->settings;
	fprintf(out,
		"# Settings of `uniprof %s`: uniprof-%s(1) says more of each. What is commented "
		"out has its\n"
		"# default. `uniprof %s --check --config FILE` tells what is wrong with FILE.\n\n",
		verb->name, verb->name, verb->name);
	for_each_row(&as_file, write_setting, out);
}

/* A text line of roff: a leading dot and backslashes would be requests. */
static void write_roff(const char *text, FILE *out)
{
	fputc(toupper((unsigned char)*text), out);
	for (text++; *text; text++) {
		if (*text == '\\')
			fputs("\\e", out);
		else
			fputc(*text, out);
	}
	fputs(".\n", out);
}

static void write_item(const struct verb *verb, const struct option_row *row, FILE *out)
{
	fputs(".It", out);
	if (row->brief)
		fprintf(out, " Fl %c ,", row->brief);
	fprintf(out, " Fl -%s", row->name);
	if (row->argument && *row->argument == '[')
		fprintf(out, " Ns Op = Ns Ar %.*s", (int)strcspn(row->argument + 1, "]"),
			row->argument + 1);
	else if (row->argument)
		fprintf(out, " Ar %s", row->argument);
	fputc('\n', out);
	write_roff(row->text, out);
	if (row->more)
		fprintf(out, "%s\n", row->more);
}

void manual_write_options(const struct verb *verb, FILE *out)
{
	fputs(".Bl -tag -width indent\n", out);
	for_each_row(verb, write_item, out);
	fputs(".El\n", out);
}

/* Completions of shells. A guest's name completes by `uniprof list`. */

/* True if its value is an OPTION_FILE, or an OPTION_DIRECTORY. */
static bool is_path(const struct option_row *row, const char *kind)
{
	return row->values && !strcmp(row->values, kind);
}

/* The names of guests, a line each. */
#define GUESTS "uniprof list 2>/dev/null | sed -n 's/.*uniprof record \\([^ ]*\\).*/\\1/p'"

static void bash_option(const struct verb *verb, const struct option_row *row, FILE *out)
{
	if (row->brief)
		fprintf(out, " -%c", row->brief);
	fprintf(out, " --%s", row->name);
}

static void bash_value(const struct verb *verb, const struct option_row *row, FILE *out)
{
	if (!row->argument || *row->argument == '[')
		return;
	fprintf(out, "\t%s:--%s", verb->name, row->name);
	if (row->brief)
		fprintf(out, "|%s:-%c", verb->name, row->brief);
	if (is_path(row, OPTION_FILE))
		fputs(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", out);
	else if (is_path(row, OPTION_DIRECTORY))
		fputs(") COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n", out);
	else
		fprintf(out, ") COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n",
			row->values ?: "");
}

static const char *const bash_arguments[] = {
	[TAKES_NOTHING] = "COMPREPLY=()",
	[TAKES_GUESTS] = "COMPREPLY=($(compgen -W \"$(" GUESTS ")\" -- \"$word\"))",
	[TAKES_FILES] = "COMPREPLY=($(compgen -f -- \"$word\"))",
	[TAKES_COMMAND] = "COMPREPLY=($(compgen -c -- \"$word\"))",
};

static void bash_write(const struct verb *const *verbs, size_t n, FILE *out)
{
	fputs("# bash completion of uniprof\n"
	      "_uniprof() {\n"
	      "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
	      "verb=${COMP_WORDS[1]}\n"
	      /* Readline cuts --option=value into three words. */
	      "\t[ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}\n"
	      "\t[ \"$word\" != = ] || word=\n"
	      "\t[ \"$COMP_CWORD\" -gt 1 ] || { COMPREPLY=($(compgen -W '",
	      out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s ", verbs[i]->name);
	fputs("--help --version' -- \"$word\")); return; }\n"
	      "\tcase $verb:$before in\n",
	      out);
	for (size_t i = 0; i < n; i++)
		for_each_row(verbs[i], bash_value, out);
	fputs("\tesac\n\tcase $verb:$word in\n", out);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "\t%s:-*) COMPREPLY=($(compgen -W '--help", verbs[i]->name);
		for_each_row(verbs[i], bash_option, out);
		fprintf(out, "' -- \"$word\")) ;;\n\t%s:*) %s ;;\n", verbs[i]->name,
			bash_arguments[verbs[i]->takes]);
	}
	fputs("\tesac\n}\ncomplete -o filenames -F _uniprof uniprof\n", out);
}

/* In single quotes of a shell, without what zsh's _arguments would read as its own. */
static void write_quoted(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", out);
		else if (strchr("[]:\\", *text))
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
}

static void zsh_form(const struct option_row *row, bool brief, FILE *out)
{
	const bool optional = row->argument && *row->argument == '[';

	fputs(" \\\n\t\t'*", out);
	if (brief)
		fprintf(out, "-%c%s", row->brief, row->argument && !optional ? "+" : "");
	else
		fprintf(out, "--%s%s", row->name, optional ? "=-" : row->argument ? "=" : "");
	fputc('[', out);
	write_quoted(row->text, out);
	fputc(']', out);
	if (row->argument)
		fputs(optional ? "::value:" : ":value:", out);
	if (is_path(row, OPTION_FILE))
		fputs("_files", out);
	else if (is_path(row, OPTION_DIRECTORY))
		fputs("_files -/", out);
	else if (row->argument && row->values)
		fprintf(out, "(%s)", row->values);
	fputc('\'', out);
}

static void zsh_option(const struct verb *verb, const struct option_row *row, FILE *out)
{
	zsh_form(row, false, out);
	if (row->brief)
		zsh_form(row, true, out);
}

static const char *const zsh_arguments[] = {
	[TAKES_NOTHING] = "",
	[TAKES_GUESTS] = "'*:guest:_uniprof_guests'",
	[TAKES_FILES] = "'*:file:_files'",
	[TAKES_COMMAND] = "'*::command:_normal'",
};

static void zsh_write(const struct verb *const *verbs, size_t n, FILE *out)
{
	fputs("#compdef uniprof\n"
	      "_uniprof_guests() {\n\tlocal -a guests\n\tguests=(${(f)\"$(" GUESTS ")\"})\n"
	      "\tcompadd -a guests\n}\n"
	      "_uniprof() {\n"
	      "\tlocal -a verbs\n\tverbs=(\n",
	      out);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "\t\t'%s:", verbs[i]->name);
		write_quoted(verbs[i]->summary, out);
		fputs("'\n", out);
	}
	fputs("\t)\n\tif ((CURRENT == 2)); then _describe verb verbs; return; fi\n"
	      "\tlocal verb=$words[2]\n\tshift words\n\t((CURRENT--))\n\tcase $verb in\n",
	      out);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "\t%s) _arguments -s", verbs[i]->name);
		for_each_row(verbs[i], zsh_option, out);
		fprintf(out, " \\\n\t\t%s ;;\n", zsh_arguments[verbs[i]->takes]);
	}
	fputs("\tesac\n}\n_uniprof \"$@\"\n", out);
}

static void fish_option(const struct verb *verb, const struct option_row *row, FILE *out)
{
	const bool required = row->argument && *row->argument != '[';

	fprintf(out, "complete -c uniprof -n '__fish_seen_subcommand_from %s' -l %s", verb->name,
		row->name);
	if (row->brief)
		fprintf(out, " -s %c", row->brief);
	if (required)
		fputs(row->values && *row->values == '<' ? " -r -F" : " -x", out);
	if (required && row->values && *row->values != '<')
		fprintf(out, " -a '%s'", row->values);
	fputs(" -d '", out);
	for (const char *c = row->text; *c; c++)
		fprintf(out, strchr("'\\", *c) ? "\\%c" : "%c", *c);
	fputs("'\n", out);
}

static void fish_write(const struct verb *const *verbs, size_t n, FILE *out)
{
	fputs("# fish completion of uniprof\n", out);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "complete -c uniprof -n __fish_use_subcommand -f -a %s -d '%s'\n",
			verbs[i]->name, verbs[i]->summary);
		if (verbs[i]->takes == TAKES_GUESTS)
			fprintf(out,
				"complete -c uniprof -n '__fish_seen_subcommand_from %s' -f -a "
				"\"(%s)\"\n",
				verbs[i]->name, GUESTS);
		for_each_row(verbs[i], fish_option, out);
	}
}

bool manual_write_completions(const char *shell, const struct verb *const *verbs, size_t n,
			      FILE *out)
{
	if (!strcmp(shell, "bash"))
		bash_write(verbs, n, out);
	else if (!strcmp(shell, "zsh"))
		zsh_write(verbs, n, out);
	else if (!strcmp(shell, "fish"))
		fish_write(verbs, n, out);
	else
		return false;
	return true;
}
