/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/preopen.h"
#include "cmd/shared/guest_dump_take.h"

#define DEFAULT_LINES 8
#define DEFAULT_BYTES 32
#define BYTES_MOST    128
#define STACK_PAGE    4096u

struct stack_args {
	struct session_options session;
	struct guest_dump_wanted wanted;
	struct guest_dump_style style;
	const char *output;
	bool json;
};

static struct error *take_memory(const struct option_row *row, const char *value, void *to)
{
	struct guest_dump_wanted *wanted = &((struct stack_args *)to)->wanted;
	struct guest_dump_memory *memory = &wanted->memory[wanted->n_memory];
	const struct option_name name = option_name(row);
	uint64_t asked = GUEST_DUMP_MEMORY_BYTES;
	struct error *err = NULL;
	char *end;

	if (wanted->n_memory == GUEST_DUMP_MEMORY_MAX)
		return cmd_usage_error(&verb_stack, "at most %d stretches of memory",
				       GUEST_DUMP_MEMORY_MAX);
	*memory = (struct guest_dump_memory){.va = strtoull(value, &end, 16),
					     .as_stack = row->brief == 'd'};
	if (*end == ',')
		err = take_bytes(row, end + 1, &asked);
	else if (end == value || *end)
		err = cmd_usage_error(&verb_stack, "%s %s: an address in hex, please", name.text,
				      value);
	memory->asked = asked;
	wanted->n_memory++;
	return err;
}

static struct error *take_pages(const struct option_row *row, const char *value, void *to)
{
	struct stack_args *options = to;
	struct error *err = take_count32(row, value, to);

	options->session.sampler.first_stack *= STACK_PAGE;
	return err;
}

static struct error *take_lines(const struct option_row *row, const char *value, void *to)
{
	struct stack_args *options = to;

	if (strcmp(value, "max") && strcmp(value, "MAX"))
		return take_count(row, value, to);
	options->style.lines = UINT64_MAX;
	return NULL;
}

static struct error *take_line_bytes(const struct option_row *row, const char *value, void *to)
{
	struct stack_args *options = to;
	struct error *err = take_count32(row, value, to);

	if (options->style.bytes_per_line < 8)
		options->style.bytes_per_line = 8;
	return err;
}

static struct error *take_frame_pointers(const struct option_row *row, const char *value, void *to)
{
	struct stack_args *options = to;

	options->session.sampler.method = UNWIND_FP;
	return NULL;
}

static struct error *take_vcpu(const struct option_row *row, const char *value, void *to)
{
	struct stack_args *options = to;
	uint64_t number = 0;
	struct error *err = option_count("the vCPU", value, 0, UINT32_MAX, &number);

	options->wanted.vcpu = (int64_t)number;
	return err;
}

#define AT(field) offsetof(struct stack_args, field)

static const struct option_row own_options[] = {
	{"all", NULL, 'a', take_true, AT(style.all), .text = "debug and system registers as well",
	 .more = "The latter are those for entering the kernel."},
	{"stack-trace", NULL, 'S', take_true, AT(style.words),
	 .text = "all words of the stack that point into code, with their names",
	 .more = "Whatever is a return address is among them."},
	{"stack-pages", "N", 'n', take_pages, AT(session.sampler.first_stack), 1,
	 STACK_CAP_MAX / STACK_PAGE,
	 .text = "read N pages of each stack (default: as many as the trace needs)",
	 .more = "A page is 4 KiB; at least one is read."},
	{"lines", "N", 'l', take_lines, AT(style.lines), 0, UINT32_MAX,
	 .text = "lines of stack that are dumped (default 8; max: all that was read)"},
	{"bytes-per-line", "N", 'b', take_line_bytes, AT(style.bytes_per_line), 4, BYTES_MOST,
	 .text = "of that dump: 4 to 128 (default 32)"},
	{"decode-as-ascii", NULL, 'D', take_true, AT(style.ascii),
	 .text = "show that dump as characters, too"},
	{"memory", "ADDRESS[,BYTES]", 'm', take_memory, 0, 1, GUEST_DUMP_MEMORY_CAP,
	 .text = "dump memory at an address in hex (default: 256 bytes); may be repeated",
	 .more = "It is read as the first virtual CPU that is shown sees it."},
	{"dump-as-stack", "ADDRESS[,BYTES]", 'd', take_memory, 0, 1, GUEST_DUMP_MEMORY_CAP,
	 .text = "dump memory in words, with the names of what they point to"},
	{"all-threads", NULL, 0, take_true, AT(wanted.threads),
	 .text = "also the guest's threads that do not run, and where each waits",
	 .more = "Of guests that run Linux: their stacks in the kernel, read from its memory "
		 "while the guest runs; and by the file that is mapped there where the program "
		 "called it.\n"
		 "Of Unikraft, Mini-OS and FreeRTOS, whose file has to be at hand: all of their "
		 "stacks."},
	{"frame-pointers", NULL, 'f', take_frame_pointers,
	 .text = "find callers by frame pointers alone (--unwind=fp)"},
	{"full-names", NULL, 0, take_true, AT(wanted.full_names),
	 .text = "names with return types, arguments and all template arguments"},
	{"json", NULL, 0, take_true, AT(json),
	 .text = "one JSON object, with all registers and the whole stack",
	 .more = "Addresses and registers are strings in hex."},
	{"output", "FILE", 'o', take_text, AT(output),
	 .text = "where to (default: standard output)", .values = OPTION_FILE},
	/* xenctx's. */
	{"vcpu", "N", 0, take_vcpu, .text = NULL},
	{"symbol-table", "FILE", 0, take_symbols, AT(session.files), .text = NULL},
	{"display-stack-pages", "N", 0, take_pages, AT(session.sampler.first_stack), 1,
	 STACK_CAP_MAX / STACK_PAGE, .text = NULL},
	{0}};

static const struct option_group options_of_stack[] = {{own_options, 0},
						       {session_reading_options, AT(session)},
						       {0}};

static struct error *parse(int argc, char **argv, struct stack_args *options, int *first)
{
	*options = (struct stack_args){.wanted = {.vcpu = -1},
				       .style = {.lines = DEFAULT_LINES,
						 .bytes_per_line = DEFAULT_BYTES},
				       .output = "-"};
	session_defaults(&options->session);
	TRY(options_parse(&verb_stack, argc, argv, options, first));
	options->wanted.mappings = options->wanted.threads;
	if (*first == argc)
		return cmd_usage_error(&verb_stack, "which guest?");
	if (*first + 2 < argc)
		return cmd_usage_error(&verb_stack, "one guest, and at most one vCPU, please");
	return *first + 2 == argc ? take_vcpu(NULL, argv[*first + 1], options) : NULL;
}

static struct error *check_vcpu(const struct target *target, const struct stack_args *options)
{
	const uint32_t vcpus = target->info.vcpus - target->info.spare;

	if (options->wanted.vcpu < (int64_t)vcpus)
		return NULL;
	return error_new(ERR_USAGE, "the guest has %" PRIu32 " vCPU%s, numbered from 0", vcpus,
			 vcpus == 1 ? "" : "s");
}

static struct error *print(const struct guest_dump *dump, const struct stack_args *options)
{
	FILE *out;

	TRY(cmd_open_output(options->output, &out));
	return cmd_close_output(options->output, out,
				options->json ? guest_dump_write_json(dump, out)
					      : guest_dump_write_text(dump, &options->style, out));
}

static struct error *dump_and_print(struct target *target, const struct stack_args *options)
{
	/* A library: to be loaded while that is still possible. */
	struct disassembler *disassembler = disassembler_open();
	struct guest_dump_taken *taken = NULL;
	struct error *err = preopen_output(options->output);

	if (!err)
		err = session_confine(target, &options->session);
	if (!err)
		err = guest_dump_take(target, &options->session, &options->wanted, disassembler,
				      &taken);
	if (!err)
		err = print(guest_dump_of(taken), options);
	if (!err && guest_dump_of(taken)->trouble)
		cmd_say("warning: %s", guest_dump_of(taken)->trouble);
	if (taken)
		guest_dump_free(taken);
	disassembler_close(disassembler);
	return err;
}

static struct error *stack(int argc, char **argv, int *status)
{
	ENDED_BY(target_end) struct target *target = NULL;
	struct stack_args options;
	int first;

	TRY(parse(argc, argv, &options, &first));
	TRY(target_open(argv[first], options.session.via, &target));
	TRY(check_vcpu(target, &options));
	return dump_and_print(target, &options);
}

const struct verb verb_stack = {
	.name = "stack",
	.summary = "one dump of a guest: registers, code and call trace of each vCPU",
	.arguments = "[options] GUEST [VCPU]",
	.about = "One dump of a guest: registers, code, stack and call trace of each vCPU (or of "
		 "VCPU). A\n"
		 "guest that runs is stopped for some microseconds; one that is paused or has "
		 "crashed stays\n"
		 "as it is.\n",
	.options = options_of_stack,
	.takes = TAKES_GUESTS,
	.run = stack,
};
