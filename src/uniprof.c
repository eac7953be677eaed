/* SPDX-License-Identifier: BSD-3-Clause */

/* The verbs, a row each; a word that is no verb begins the classic command line. */

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/push.h"
#include "arch/arch.h"
#include "base/privilege.h"
#include "cmd/cmd.h"
#include "symbol/images/file.h"
#include "symbol/names/display_name.h"
#include "target/kvm/kvm.h"
#include "target/target.h"
#include "top/top.h"

static const struct verb *const verbs[] = {
	&verb_record,  &verb_run,   &verb_top,	  &verb_report, &verb_flamegraph,
	&verb_history, &verb_diff,  &verb_export, &verb_push,	&verb_merge,
	&verb_list,    &verb_stack, &verb_ps,	  &verb_agent,
};

#define N_VERBS (sizeof(verbs) / sizeof(*verbs))

static void print_version(void)
{
	printf("uniprof %s, %s, %s, %s, %s, %s, %s, %s, %s, %s\n", UNIPROF_VERSION, target_features,
	       bpf_feature, privilege_feature, seccomp_feature, demangle_feature,
	       disassembler_feature, screen_feature, debuginfod_feature, push_feature);
}

static void print_help(FILE *out)
{
	fputs("uniprof looks into a running virtual machine from outside and shows where its time "
	      "goes.\n"
	      "\n"
	      "usage: uniprof VERB [options] ...        (uniprof VERB --help tells more)\n"
	      "\n",
	      out);
	for (size_t i = 0; i < N_VERBS; i++)
		fprintf(out, "  %-11s %s\n", verbs[i]->name, verbs[i]->summary);
	fputs("\n"
	      "  -V, --version   version, and what was built in\n"
	      "  -h, --help      this text\n"
	      "  --completions bash|zsh|fish   completions for that shell\n"
	      "\n"
	      "a guest is named xen:NAME, xen:ID, kvm:PID, qemu:PID, process:PID, replay:FILE, or "
	      "by its name alone\n"
	      "\n"
	      "the classic command line works as ever:\n",
	      out);
	manual_write_help(&verb_classic, out);
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
	struct error *err;
	int status = 0;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		manual_write_help(verb, stdout);
		return 0;
	}
	err = verb->run(argc, argv, &status);
	if (!err)
		return status;
	cmd_say("%s", err->text);
	status = (int)err->kind;
	error_free(err);
	return status;
}

/* Anywhere among the options of the classic command line. */
static bool is_given(int argc, char **argv, const char *brief, const char *full)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], brief) || !strcmp(argv[i], full))
			return true;
	return false;
}

/* Fills closed standard streams: no file opened later may take their numbers. */
static void keep_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Arrays of so many bytes lie outside of the heap, whatever was freed before: they grow without a copy, and leave no holes. As much stays when it was freed: to clear pages anew takes longer than most that is done with them. */
#define LARGE_ARRAY (1 << 20)
#ifdef M_MMAP_THRESHOLD
static void keep_arrays_apart(void)
{
	mallopt(M_MMAP_THRESHOLD, LARGE_ARRAY);
	mallopt(M_TRIM_THRESHOLD, LARGE_ARRAY);
}
#else
static void keep_arrays_apart(void)
{
}
#endif

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < N_VERBS; i++)
		if (!strcmp(name, verbs[i]->name))
			return verbs[i];
	return NULL;
}

/* Prints texts that builds and shells take from the tables of options; false: no such text. */
static bool write_tables(const char *what, const char *of)
{
	const struct verb *verb = find_verb(of);

	if (!strcmp(what, "--completions"))
		return manual_write_completions(of, verbs, N_VERBS, stdout);
	if (verb && !strcmp(what, "--options-in-mdoc"))
		manual_write_options(verb, stdout);
	else if (verb && verb->settings && !strcmp(what, "--settings"))
		manual_write_settings(verb, stdout);
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	keep_standard_streams();
	keep_arrays_apart();
	if (argc < 2) {
		print_help(stderr);
		return ERR_USAGE;
	}
	if (find_verb(argv[1]))
		return run_verb(find_verb(argv[1]), argc - 1, argv + 1);
	if (argc == 3 && write_tables(argv[1], argv[2]))
		return 0;
	if (!strcmp(argv[1], "help") || is_given(argc, argv, "-h", "--help")) {
		print_help(stdout);
		return 0;
	}
	if (is_given(argc, argv, "-V", "--version")) {
		print_version();
		return 0;
	}
	return run_verb(&verb_classic, argc, argv);
}
