/* SPDX-License-Identifier: BSD-3-Clause */

/* The verbs, a row each; whatever is no verb is the classic command line. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/privilege.h"
#include "cmd/cmd.h"
#include "view/disassemble.h"
#include "symbol/images/debuginfod.h"
#include "symbol/names/demangle.h"
#include "target/kvm/unpaused.h"
#include "target/target.h"
#include "top/screen.h"

static const struct verb *const verbs[] = {
	&verb_record, &verb_run,    &verb_top,	 &verb_report, &verb_flamegraph,
	&verb_diff,   &verb_export, &verb_merge, &verb_list,   &verb_stack,
};

#define N_VERBS (sizeof(verbs) / sizeof(*verbs))

static void print_version(void)
{
	printf("uniprof %s, %s, %s, %s, %s, %s, %s, %s, %s\n", UNIPROF_VERSION, target_features,
	       unpaused_feature, privilege_feature, seccomp_feature, demangle_feature,
	       disassembler_feature, screen_feature, debuginfod_feature);
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
	      "\n"
	      "a guest is named xen:NAME, xen:ID, kvm:PID, qemu:PID, process:PID, replay:FILE, or "
	      "by its"
	      " name alone\n"
	      "\n"
	      "the classic command line works as ever:\n",
	      out);
	fputs(verb_classic.help, out);
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
	struct error *err;
	int status = 0;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(verb->help, stdout);
		return 0;
	}
	err = verb->run(argc, argv, &status);
	if (!err)
		return status;
	say("%s", err->text);
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

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return ERR_USAGE;
	}
	for (size_t i = 0; i < N_VERBS; i++)
		if (!strcmp(argv[1], verbs[i]->name))
			return run_verb(verbs[i], argc - 1, argv + 1);
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
