/* SPDX-License-Identifier: BSD-3-Clause */

/* The classic offline resolver: names for the addresses in a trace file. */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/owned.h"
#include "base/privilege.h"
#include "classic/resolve.h"
#include "cmd/cmd.h"
#include "cmd/shared/image_args.h"

static const char usage[] =
	"usage: symbolize SYMS TRACE\n"
	"\n"
	"Writes TRACE to standard output with function names for its addresses.\n"
	"\n"
	"  SYMS           an ELF file, the output of nm -n, System.map or kallsyms;\n"
	"                 FILE@0xADDRESS if its code begins there, and not where it was\n"
	"                 linked\n"
	"  TRACE          a stack trace that uniprof wrote, one frame a line; - for\n"
	"                 standard input\n"
	"  -h, --help     show this and exit\n"
	"  -V, --version  show the version and exit\n";

/* Drops special rights before anything is parsed that others wrote. */
static void give_up_rights(void)
{
	struct privilege got;
	char lacks[256];

	if (!privilege_is_special())
		return;
	privilege_drop(SECCOMP_READER, &got);
	privilege_lacks(&got, lacks, sizeof(lacks));
	if (*lacks)
		fprintf(stderr, "symbolize: warning: %s\n", lacks);
}

/* A trace does not tell where files were: they are where they were linked, if nobody knows better. */
static struct error *load(const struct image_args *args, struct images **images)
{
	TRY(images_new(images));
	images_sandbox(*images);
	images_names_only(*images);
	TRY(image_args_load(args, *images));
	return images_count(*images) ? NULL : images_map(*images, 0, 0, false);
}

static struct error *symbolize(const char *syms, const char *trace, struct resolve_result *result)
{
	const char *name = strcmp(trace, "-") ? trace : "standard input";
	struct image_args args = {0};
	ENDED_BY(images_end) struct images *images = NULL;
	struct progress_line progress_line;
	CLOSED int fd = -1;

	/* Names and progress on the same terminal would be mixed up. */
	progress_line_init(&progress_line, "symbolize");
	progress_line.progress.silent = isatty(STDOUT_FILENO);
	TRY(image_args_add(&args, syms, true));
	fd = strcmp(trace, "-") ? open(trace, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "%s: cannot open the trace", trace);
	give_up_rights();
	TRY(load(&args, &images));
	TRY(resolve_trace(images, fd, name, STDOUT_FILENO, &progress_line.progress, result));
	/* Some file systems tell only when a file is closed that it has no room. */
	if (close(STDOUT_FILENO))
		return error_errno(ERR_OUTPUT, errno, "standard output: cannot write");
	return NULL;
}

static int print(const char *text)
{
	if (fputs(text, stdout) < 0 || fflush(stdout)) {
		fprintf(stderr, "symbolize: standard output: cannot write: %s\n", strerror(errno));
		return ERR_OUTPUT;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"version", no_argument, NULL, 'V'},
						{0}};
	struct resolve_result result = {0};
	struct error *err;
	int option;

	while ((option = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
		if (option == 'h')
			return print(usage);
		if (option == 'V')
			return print("symbolize (uniprof " UNIPROF_VERSION ")\n");
		fputs("symbolize: see symbolize --help\n", stderr);
		return ERR_USAGE;
	}
	if (argc - optind != 2) {
		fprintf(stderr, "symbolize: needs a symbol file and a trace, got %d arguments\n%s",
			argc - optind, usage);
		return ERR_USAGE;
	}
	/* A closed pipe is an error of writing like others, with a sentence and a number. */
	signal(SIGPIPE, SIG_IGN);
	err = symbolize(argv[optind], argv[optind + 1], &result);
	if (err) {
		int code = err->kind;

		fprintf(stderr, "symbolize: %s\n", err->text);
		error_free(err);
		return code;
	}
	if (result.unresolved)
		fprintf(stderr,
			"symbolize: %llu of %llu addresses (%.1f %%) are in no function of %s and "
			"stay as they are\n",
			(unsigned long long)result.unresolved, (unsigned long long)result.addresses,
			100.0 * (double)result.unresolved / (double)result.addresses, argv[optind]);
	return 0;
}
