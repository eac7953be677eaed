/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/preopen.h"
#include "cmd/glance_take.h"
#include "cmd/parse.h"

enum { JSON = LONG_ONLY, UNWIND, MAX_FRAMES, VCPU, NO_SANDBOX, VIA, DEBUG_DIR };

#define DEFAULT_LINES 8
#define DEFAULT_BYTES 32
#define BYTES_MOST    128
#define STACK_PAGE    4096u

static const char help[] =
	"usage: uniprof stack [options] GUEST [VCPU]\n"
	"\n"
	"One look at a guest: registers, code, stack and call trace of each vCPU (or of VCPU). A\n"
	"guest that runs is stopped for some microseconds; one that is paused or has crashed "
	"stays\n"
	"as it is.\n"
	"\n"
	"  -s, --symbols FILE    names of functions, as for record; may be repeated\n"
	"      --debug-dir DIR   where debug files are that were taken out of those that follow\n"
	"  -a, --all             debug and system registers as well\n"
	"  -S, --stack-trace     all words of the stack that point into code, with their names\n"
	"  -n, --stack-pages N   read N pages of each stack (default: as many as the trace needs)\n"
	"  -l, --lines N         lines of stack that are dumped (default 8; max: all that was "
	"read)\n"
	"  -b, --bytes-per-line N  of that dump: 4 to 128 (default 32)\n"
	"  -D, --decode-as-ascii show that dump as characters, too\n"
	"  -m, --memory ADDRESS[,BYTES]  dump memory (default: 256 bytes); may be repeated\n"
	"  -d, --dump-as-stack ADDRESS[,BYTES]  ... in words, with the names of what they point "
	"to\n"
	"  -f, --frame-pointers  find callers by frame pointers alone (--unwind=fp)\n"
	"      --unwind HOW      how to find callers: auto (default), fp, cfi, scan\n"
	"      --max-frames N    frames of a stack that are shown (default 4096)\n"
	"      --json            one JSON object, with all registers and the whole stack\n"
	"      --via WAY         read the guest that way (`uniprof list --ways` names them)\n"
	"  -o, --output FILE     where to (default: standard output)\n"
	"      --no-sandbox      keep root's rights, and filter no system calls (for debugging)\n"
	"  -v, --verbose         say what is done;  -q, --quiet: no warnings\n";

struct options {
	struct session_options session;
	struct glance_wanted wanted;
	struct glance_style style;
	const char *output;
	bool json;
};

static struct error *parse_memory(const char *option, const char *text, bool as_stack,
				  struct glance_wanted *wanted)
{
	struct glance_memory *memory = &wanted->memory[wanted->n_memory];
	uint64_t asked = GLANCE_MEMORY_BYTES;
	struct error *err = NULL;
	char *end;

	if (wanted->n_memory == GLANCE_MEMORY_MAX)
		return usage_error(&verb_stack, "at most %d stretches of memory",
				   GLANCE_MEMORY_MAX);
	*memory = (struct glance_memory){.va = strtoull(text, &end, 16), .as_stack = as_stack};
	if (*end == ',')
		err = parse_bytes(option, end + 1, 1, GLANCE_MEMORY_CAP, &asked);
	else if (end == text || *end)
		err = usage_error(&verb_stack, "%s %s: an address in hex, please", option, text);
	memory->asked = asked;
	wanted->n_memory++;
	return err;
}

static struct error *take_dump_option(struct options *options, int option)
{
	struct glance_style *style = &options->style;
	uint64_t number = 0;
	struct error *err = NULL;

	switch (option) {
	case 'a':
		style->all = true;
		break;
	case 'S':
		style->words = true;
		break;
	case 'D':
		style->ascii = true;
		break;
	case 'n':
		err = parse_count("-n", optarg, 1, STACK_CAP_MAX / STACK_PAGE, &number);
		options->session.sampler.first_stack = (uint32_t)number * STACK_PAGE;
		break;
	case 'l':
		style->lines = UINT64_MAX;
		if (strcmp(optarg, "max") && strcmp(optarg, "MAX"))
			err = parse_count("-l", optarg, 0, UINT32_MAX, &style->lines);
		break;
	case 'b':
		err = parse_count("-b", optarg, 4, BYTES_MOST, &number);
		style->bytes_per_line = number < 8 ? 8 : (unsigned)number;
		break;
	case 'm':
	case 'd':
		err = parse_memory(option == 'm' ? "-m" : "-d", optarg, option == 'd',
				   &options->wanted);
		break;
	}
	return err;
}

static struct error *parse_vcpu(const char *text, struct options *options)
{
	uint64_t number = 0;
	struct error *err = parse_count("the vCPU", text, 0, UINT32_MAX, &number);

	options->wanted.vcpu = (int64_t)number;
	return err;
}

static struct error *take_option(struct options *options, int option, char **argv)
{
	struct session_options *session = &options->session;
	bool known;

	switch (option) {
	case 'o':
		options->output = optarg;
		return NULL;
	case JSON:
		options->json = true;
		return NULL;
	case 'f':
		session->sampler.method = UNWIND_FP;
		return NULL;
	case VCPU:
		return parse_vcpu(optarg, options);
	case UNWIND:
		return session_option(session, SESSION_UNWIND, optarg, &known);
	case MAX_FRAMES:
		return session_option(session, SESSION_MAX_FRAMES, optarg, &known);
	case DEBUG_DIR:
		return session_option(session, SESSION_DEBUG_DIR, optarg, &known);
	case NO_SANDBOX:
		return session_option(session, SESSION_NO_SANDBOX, optarg, &known);
	case VIA:
		return session_option(session, SESSION_VIA, optarg, &known);
	case 's':
	case 'v':
	case 'q':
		return session_option(session, option, optarg, &known);
	case '?':
		return usage_error(&verb_stack, "option %s is not known or lacks its value",
				   argv[optind - 1]);
	}
	return take_dump_option(options, option);
}

static struct error *parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {{"symbols", required_argument, NULL, 's'},
					      {"symbol-table", required_argument, NULL, 's'},
					      {"debug-dir", required_argument, NULL, DEBUG_DIR},
					      {"all", no_argument, NULL, 'a'},
					      {"stack-trace", no_argument, NULL, 'S'},
					      {"stack-pages", required_argument, NULL, 'n'},
					      {"display-stack-pages", required_argument, NULL, 'n'},
					      {"lines", required_argument, NULL, 'l'},
					      {"bytes-per-line", required_argument, NULL, 'b'},
					      {"decode-as-ascii", no_argument, NULL, 'D'},
					      {"memory", required_argument, NULL, 'm'},
					      {"dump-as-stack", required_argument, NULL, 'd'},
					      {"frame-pointers", no_argument, NULL, 'f'},
					      {"unwind", required_argument, NULL, UNWIND},
					      {"max-frames", required_argument, NULL, MAX_FRAMES},
					      {"vcpu", required_argument, NULL, VCPU},
					      {"json", no_argument, NULL, JSON},
					      {"output", required_argument, NULL, 'o'},
					      {"no-sandbox", no_argument, NULL, NO_SANDBOX},
					      {"via", required_argument, NULL, VIA},
					      {"verbose", no_argument, NULL, 'v'},
					      {"quiet", no_argument, NULL, 'q'},
					      {0}};
	struct error *err = NULL;
	int option;

	*options =
		(struct options){.wanted = {.vcpu = -1},
				 .style = {.lines = DEFAULT_LINES, .bytes_per_line = DEFAULT_BYTES},
				 .output = "-"};
	session_defaults(&options->session);
	opterr = 0;
	optind = 1;
	while (!err &&
	       (option = getopt_long(argc, argv, "s:aSn:l:b:Dm:d:fo:vq", longs, NULL)) != -1)
		err = take_option(options, option, argv);
	if (!err && optind == argc)
		err = usage_error(&verb_stack, "which guest?");
	if (!err && optind + 2 < argc)
		err = usage_error(&verb_stack, "one guest, and at most one vCPU, please");
	if (!err && optind + 2 == argc)
		err = parse_vcpu(argv[optind + 1], options);
	return err;
}

static struct error *check_vcpu(const struct target *target, const struct options *options)
{
	const uint32_t vcpus = target->info.vcpus - target->info.spare;

	if (options->wanted.vcpu < (int64_t)vcpus)
		return NULL;
	return error_new(ERR_USAGE, "the guest has %" PRIu32 " vCPU%s, numbered from 0", vcpus,
			 vcpus == 1 ? "" : "s");
}

static struct error *print(const struct glance *glance, const struct options *options)
{
	FILE *out;
	struct error *err = open_output(options->output, &out);

	if (err)
		return err;
	err = options->json ? glance_write_json(glance, out)
			    : glance_write_text(glance, &options->style, out);
	return close_output(options->output, out, err);
}

static struct error *look_and_print(struct target *target, const struct options *options)
{
	/* A library: to be loaded while that is still possible. */
	struct disassembler *disassembler = disassembler_open();
	struct glance_taken *taken = NULL;
	struct error *err = ahead_output(options->output);

	if (!err)
		err = session_confine(target, &options->session);
	if (!err)
		err = glance_take(target, &options->session, &options->wanted, disassembler,
				  &taken);
	if (!err)
		err = print(glance_of(taken), options);
	if (taken)
		glance_free(taken);
	disassembler_close(disassembler);
	return err;
}

static struct error *stack(int argc, char **argv, int *status)
{
	struct target *target = NULL;
	struct options options;
	struct error *err = parse(argc, argv, &options);

	if (!err)
		err = target_open_via(argv[optind], options.session.via, &target);
	if (err)
		return err;
	err = check_vcpu(target, &options);
	if (!err)
		err = look_and_print(target, &options);
	target_close(target);
	return err;
}

const struct verb verb_stack = {
	.name = "stack",
	.summary = "one look at a guest: registers, code and call trace of each vCPU",
	.help = help,
	.run = stack,
};
