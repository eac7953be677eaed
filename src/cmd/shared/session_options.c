/* SPDX-License-Identifier: BSD-3-Clause */

/* What a session may be told, the files that it begins with, and the rights that it keeps. */

#include <string.h>

#include "base/debug_file.h"
#include "base/preopen.h"
#include "base/privilege.h"
#include "cmd/cmd.h"
#include "cmd/shared/session.h"
#include "symbol/images/file.h"
#include "symbol/images/images.h"
#include "symbol/kernel/kernel.h"

#define DEFAULT_RATE_HZ 101.0

#define AT(field) offsetof(struct session_options, field)

const struct option_row session_sampling_options[] = {
	{"frequency", "N", 'F', take_rate, AT(sampler.rate_hz),
	 .text = "samples per second, 0.1 to 10000 (default 101)"},
	{"time", "T", 'T', take_duration, AT(sampler.duration_ns),
	 .text = "how long: seconds, or 500ms, 2m, 1h (default: until Ctrl-C or the guest's end)"},
	{"missed-deadlines", NULL, 'M', take_true, AT(print_missed),
	 .text = "print each deadline that was missed"},
	{"max-stack", "SIZE", 0, take_bytes32, AT(sampler.max_stack), 256, STACK_CAP_MAX,
	 .text = "bytes of a stack that are copied at most (default 256k)",
	 .more = "Only as much is copied as stacks have been deep so far."},
	{"max-memory", "SIZE", 0, take_bytes, AT(sampler.max_memory), MEMORY_MIN, MEMORY_MAX,
	 .text = "memory of this machine that different stacks may take (default 64M)",
	 .more = "The default is enough for two million frames that differ in who called them.\n"
		 "A guest can make all of its stacks different.\n"
		 "When there is no room for more, stacks are kept without their innermost frames, "
		 "and the summary and every report say so."},
	{"max-overhead", "PERCENT", 0, take_percent, AT(sampler.max_overhead),
	 .text = "pause the guest for at most so much of the time, by sampling less often",
	 .more = "The default is 5 for guests behind a gdb stub or QMP, whose stops take long, and "
		 "no bound (100) for others.\n"
		 "Whatever is asked for,\n.Nm uniprof\nrests after each sample at least as long as "
		 "the sample took."},
	{"max-pause", "T", 0, take_duration, AT(sampler.max_pause_ns),
	 .text = "hold the guest no longer than T (50us, ...) in one piece; give stacks up instead",
	 .more = "This goes as far as the hypervisor's own calls allow: of several virtual CPUs "
		 "fewer are read at a time, in turns, and a stack that takes too long to copy is "
		 "cut.\n"
		 "What was given up is counted and told."},
	{"threads", NULL, 0, take_true, AT(waits),
	 .text = "also sample the guest's threads that do not run (Linux, Unikraft, Mini-OS, "
		 "FreeRTOS): where each waits, and for how long",
	 .more = "They are read while the guest runs, so many a tick as\n.Fl -thread-budget\nsays, "
		 "by turns.\nEach sample stands for the time since its thread was looked at last.\n"
		 "The readers of recordings show them by\n.Fl -state Ns = Ns Li off-cpu ."},
	{"thread-budget", "N", 0, take_count32, AT(thread_budget), 1, TICK_WAITS_MAX,
	 .text = "threads that are looked at in each tick for --threads (default 32)",
	 .more = "All threads have their turn, so that a guest with very many costs no more than "
		 "one with few, but each is seen more rarely."},
	{"thread-cost", "PERCENT", 0, take_percent, AT(sampler.waits_cost),
	 .text = "CPU time for --threads, as a share of one CPU at most (default 3)",
	 .more = "Where a look takes longer, fewer threads are looked at in a tick.\n"
		 "Intervals behind the shares tell how much that leaves open."},
	{"always-pause", NULL, 0, take_true, AT(always_pause),
	 .text = "stop the guest for each sample, even where it could be read without that",
	 .more = "By default only a virtual CPU that is on a CPU has to be stopped; one that waits "
		 "for a CPU or for an event is read while the guest runs on, and the sample is "
		 "repeated with a pause should it have begun to run meanwhile.\n"
		 "A virtual CPU that has not run since the last sample is not read at all."},
	{"no-jitter", NULL, 0, take_true, AT(sampler.no_jitter),
	 .text = "sample strictly periodically",
	 .more = "By default each period has its sample at a random moment, so that a guest that "
		 "does something periodically is seen in all its phases."},
	{0}};

const struct option_row session_reading_options[] = {
	{"symbols", "FILE", 's', take_symbols, AT(files),
	 .text = "names of functions: the guest's ELF, vmlinuz, nm -n, kallsyms or System.map "
		 "(default: the file that the guest was started from); more than one if need be; "
		 "FILE@0xADDRESS tells where its code is",
	 .more = "See\n.Sx FILES OF THE GUEST\nof\n.Xr uniprof 1 .\n"
		 "Names can be given afterwards as well, but callers in code without frame "
		 "pointers are found better when it is known where functions begin.",
	 .values = OPTION_FILE},
	{"debug-dir", "DIR", 0, take_debug_dir,
	 .text = "where debug files are that were taken out of those that follow",
	 .more = "It is looked into before\n.Pa /usr/lib/debug .", .values = OPTION_DIRECTORY},
	{"sysroot", "DIR", 0, take_sysroot,
	 .text = "the root directory of a Linux guest, as a mounted image or a copy: programs get "
		 "names and unwind tables from the files below it",
	 .more = "A file is looked for at the path that a program has mapped it from, and is used "
		 "if it is the same, by its build id; of files without one the code is "
		 "compared.\nSymbolic links are the guest's, too: none leads out of\n.Ar DIR .\n"
		 "Code that process PID of the guest makes itself has the names in\n"
		 ".Pa DIR/tmp/perf-PID.map .",
	 .values = OPTION_DIRECTORY},
	{"unwind", "HOW", 0, take_word, AT(sampler.method),
	 .text = "how to find callers: auto (default), fp, cfi, scan",
	 .more = ".Li auto\ntakes for each frame what serves there: the unwind tables of its "
		 "image\n"
		 ".Pq Pa .eh_frame , .debug_frame , No Linux's ORC, or Pa .ARM.exidx No of 32-bit "
		 "Arm ,\n"
		 "the code itself, which is followed from the start of the function, and frame "
		 "records.\n.Li fp\nleaves the tables out.\n.Li cfi\ntakes nothing but tables; "
		 "code without is bridged by a frame record or a search of the stack.\n"
		 "On 32-bit Arm tables do not tell how functions begin and end: for the innermost "
		 "frame the code has to confirm them.\n.Li scan\n"
		 "takes everything on the stack that follows a call for a return address.\n"
		 "Frames that may be wrong are marked as guesses in the recording.",
	 .values = "auto fp cfi scan"},
	{"max-frames", "N", 0, take_count32, AT(sampler.max_frames), 1, FRAMES_MAX,
	 .text = "frames of a stack that are kept, counted from its leaf (default 4096)"},
	{"via", "WAY", 0, take_text, AT(via),
	 .text = "read the guest that way (`uniprof list --ways` names them), not by the cheapest "
		 "that works"},
	{"no-python", NULL, 0, take_true, AT(no_python),
	 .text = "show the C functions of a Python interpreter, not the functions that it runs",
	 .more = "By default threads of processes that run CPython 3.11 to 3.13 have Python's "
		 "functions and lines in their stacks.\nA thread that is on a CPU is stopped for "
		 "that, even where perf events would do otherwise; with this, or with\n.Fl -via Ns "
		 "= Ns Li perf ,\nit is not."},
	{"no-sandbox", NULL, 0, take_true, AT(keep_rights),
	 .text = "keep root's rights, and filter no system calls (for debugging)",
	 .more = "See\n.Sx PRIVILEGES\nof\n.Xr uniprof 1 ."},
	{"verbose", NULL, 'v', take_true, AT(verbose), .text = "say what is done"},
	{"quiet", NULL, 'q', take_true, AT(quiet), .text = "no progress, no summary, no warnings"},
	{0}};

void session_defaults(struct session_options *options)
{
	memset(options, 0, sizeof(*options));
	options->sampler.rate_hz = DEFAULT_RATE_HZ;
	options->thread_budget = WAITS_DEFAULT;
	options->sampler.waits_cost = WAITS_COST_DEFAULT;
}

void session_note(void *ctx, bool warning, const char *text)
{
	const struct session_options *options = ctx;

	if (warning ? !options->quiet : options->verbose)
		cmd_say("%s%s", warning ? "warning: " : "", text);
}

/* Loads files that are mapped in a process; skips those that cannot be read. */
static void load_mapped_files(const struct target_file *files, size_t n,
			      const struct session_options *options, struct images *images)
{
	for (size_t i = 0; i < n; i++) {
		const struct image_spec spec = {.path = files[i].path,
						.has_address = true,
						.address = files[i].address,
						.names = true};
		struct error *err = images_load(images, &spec, NULL);

		if (err && options->verbose)
			cmd_say("without %s: %s", spec.path, err->text);
		error_free(err);
	}
}

/* All that a Linux kernel's file tells is in the guest's memory, too, and unpacked. */
static bool is_linux(const struct target_info *info)
{
	if (info->arch == &arch_arm64)
		return kernel_image_arm64_at(info->image);
	return info->arch == &arch_x86_64 &&
	       (kernel_image_at(info->image) || image_file_packs_linux(info->image));
}

/* The kernel's ELF file comes without names: those are in the guest's memory, too. */
static bool is_stripped_linux(const struct target_info *info, const struct image_file *file)
{
	return file->code && file->code->patched &&
	       (info->arch == &arch_arm64 || info->arch == &arch_x86_64);
}

/* Says which names are missing, if any are. */
static void tell_names(const struct target_info *info, const struct image_file *file)
{
	if (!file->symbols && !is_stripped_linux(info, file))
		cmd_say("no names for now: %s was stripped, its unwind tables are used (-s FILE "
			"gives names, also afterwards)",
			file->path);
}

struct error *session_load_images(const struct target *target,
				  const struct session_options *options, struct images **images)
{
	const struct image_spec own = {.path = target->info.image, .names = true};
	struct error *err;

	TRY(images_new(images));
	if (!options->keep_rights)
		images_sandbox(*images);
	err = image_args_load(&options->files, *images);
	if (err) {
		images_free(*images);
		*images = NULL;
	}
	if (err || options->files.n)
		return err;
	load_mapped_files(target->files, target->n_files, options, *images);
	if (target->n_files || !*target->info.image || is_linux(&target->info))
		return NULL;
	err = images_load(*images, &own, NULL);
	if (err && !options->quiet)
		cmd_say("no names for now: %s (-s FILE gives them, also afterwards)", err->text);
	else if (!err && !options->quiet)
		tell_names(&target->info, images_file(*images, 0));
	error_free(err);
	return NULL;
}

struct error *session_load_jit_names(const struct target *target,
				     const struct session_options *options, struct images *images,
				     struct image_locator *locator)
{
	const struct image_spec spec = {.path = target->jit_names,
					.names = true,
					.names_only = true};
	struct error *err = locator ? programs_name_made(image_locator_programs(locator)) : NULL;

	if (err || !spec.path)
		return err;
	err = images_load(images, &spec, NULL);
	if (err == error_no_memory())
		return err;
	if (err && options->verbose)
		cmd_say("%s", err->text);
	error_free(err);
	return NULL;
}

/* Symbols of the host's kernel and of its modules, at their addresses (proc(5)). */
#define HOST_SYMBOLS "/proc/kallsyms"

struct error *session_load_host_images(const struct target *target,
				       const struct session_options *options,
				       struct images **images)
{
	const struct image_spec kernel = {.path = HOST_SYMBOLS, .names = true, .names_only = true};
	struct error *err;

	if (!target->sees_host)
		return NULL;
	TRY(images_new(images));
	images_names_and_code(*images);
	if (!options->keep_rights)
		images_sandbox(*images);
	err = images_load(*images, &kernel, NULL);
	if (err && !options->quiet)
		cmd_say("no names of the host's kernel: %s", err->text);
	error_free(err);
	load_mapped_files(target->host_files, target->n_host_files, options, *images);
	return NULL;
}

void session_drop_rights(const struct target *target, const struct session_options *options)
{
	struct privilege got = {.kept = true};
	char text[256];

	if (!options->keep_rights)
		privilege_drop((target->role ? target->role : SECCOMP_SAMPLER) |
				       (options->screen ? SECCOMP_SCREEN : 0),
			       &got);
	privilege_lacks(&got, text, sizeof(text));
	if (*text && !options->quiet)
		cmd_say("warning: %s", text);
	privilege_describe(&got, text, sizeof(text));
	if (options->verbose)
		cmd_say("%s", text);
}

struct error *session_confine(const struct target *target, const struct session_options *options)
{
	TRY(preopen_input(target->info.image));
	if (*target->info.image)
		TRY(debug_file_preopen_beside(target->info.image));
	for (size_t i = 0; i < target->n_files; i++)
		TRY(preopen_input(target->files[i].path));
	for (size_t i = 0; i < target->n_host_files; i++)
		TRY(preopen_input(target->host_files[i].path));
	if (target->sees_host)
		TRY(preopen_input(HOST_SYMBOLS));
	if (!options->files.n && *target->info.image)
		TRY(debuginfod_preopen(target->info.image));
	session_drop_rights(target, options);
	return NULL;
}
