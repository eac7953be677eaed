/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/session.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/parse.h"
#include "symbol/namer.h"

#define DEFAULT_RATE_HZ 101.0

struct session {
	const struct session_options *options;
	struct recording_writer *writer;
	uint64_t paused_ns;
	uint64_t told_ns; /* when a line of progress was last printed */
	bool terminal;
};

void session_defaults(struct session_options *options)
{
	memset(options, 0, sizeof(*options));
	options->sampler.rate_hz = DEFAULT_RATE_HZ;
}

struct error *session_option(struct session_options *options, int option, const char *value,
			     bool *known)
{
	struct error *err = NULL;
	uint64_t number;

	*known = true;
	switch (option) {
	case 'F':
		return parse_rate("-F", value, &options->sampler.rate_hz);
	case 'T':
		return parse_duration("-T", value, &options->sampler.duration_ns);
	case 'o':
		options->output = value;
		break;
	case 's':
		options->symbols = value;
		break;
	case 'M':
		options->print_missed = true;
		break;
	case 'v':
		options->verbose = true;
		break;
	case 'q':
		options->quiet = true;
		break;
	case SESSION_MAX_FRAMES:
		err = parse_count("--max-frames", value, 1, FRAMES_MAX, &number);
		if (!err)
			options->sampler.max_frames = (uint32_t)number;
		break;
	case SESSION_MAX_STACK:
		err = parse_bytes("--max-stack", value, 256, STACK_CAP_MAX, &number);
		if (!err)
			options->sampler.max_stack = (uint32_t)number;
		break;
	case SESSION_MAX_OVERHEAD:
		return parse_percent("--max-overhead", value, &options->sampler.max_overhead);
	case SESSION_NO_JITTER:
		options->sampler.no_jitter = true;
		break;
	default:
		*known = false;
	}
	return err;
}

char *session_default_path(const struct target *target, const char *ending)
{
	const char *name = *target->info.name ? target->info.name : target->info.id;
	char *path;

	if (asprintf(&path, "%s%s", *name ? name : "guest", ending) < 0)
		return NULL;
	for (char *c = path; *c; c++)
		if (*c == '/' || (unsigned char)*c < ' ')
			*c = '_';
	if (*path == '.' || *path == '-')
		*path = '_';
	return path;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct session *session = ctx;

	session->paused_ns += tick->paused_ns;
	return recording_tick(session->writer, tick);
}

static void on_missed(void *ctx, uint64_t periods, uint64_t late_ns)
{
	say("%" PRIu64 " deadline%s missed, %.6f s behind", periods, periods == 1 ? "" : "s",
	    (double)late_ns / 1e9);
}

/* On a terminal one line that changes; elsewhere, when asked to say more, a line a second. */
static void on_progress(void *ctx, uint64_t elapsed_ns, uint64_t ticks)
{
	struct session *session = ctx;
	uint64_t all = session->options->sampler.duration_ns;
	char of[32] = "";

	if (all)
		snprintf(of, sizeof(of), " of %g s", (double)all / 1e9);
	if (session->terminal) {
		fprintf(stderr, "\r\033[K%.1f s%s, %" PRIu64 " samples", (double)elapsed_ns / 1e9,
			of, ticks);
		fflush(stderr);
	} else if (elapsed_ns >= session->told_ns + NS_PER_S) {
		session->told_ns = elapsed_ns;
		say("%.0f s%s, %" PRIu64 " samples", (double)elapsed_ns / 1e9, of, ticks);
	}
}

static void describe(const struct target *target, const struct session_options *options,
		     const struct symbols *symbols, struct recording_info *info)
{
	const struct target_info *guest = &target->info;

	*info = (struct recording_info){
		.tool = "uniprof " UNIPROF_VERSION,
		.target = (char *)target->ops->scheme,
		.guest_name = (char *)guest->name,
		.guest_id = (char *)guest->id,
		.guest_type = (char *)guest->type,
		.host = (char *)guest->host,
		.arch = (char *)guest->arch->name,
		.unwind = "fp",
		.vcpus = guest->vcpus,
		.rate_hz = options->sampler.rate_hz,
		.duration_ns = options->sampler.duration_ns,
		.start_unix_ns = clock_unix_ns(),
		.jitter = !options->sampler.no_jitter,
	};
	if (options->symbols)
		info->image = (char *)options->symbols;
	else if (*guest->image)
		info->image = (char *)guest->image;
	if (symbols)
		info->build_id = (char *)symbols_build_id(symbols);
}

struct error *session_load_symbols(const struct target *target,
				   const struct session_options *options, struct symbols **symbols)
{
	struct error *err;

	*symbols = NULL;
	if (options->symbols)
		return symbols_load(options->symbols, symbols);
	if (!*target->info.image)
		return NULL;
	err = symbols_load(target->info.image, symbols);
	if (err && !options->quiet)
		say("no names for now: %s (-s FILE gives them, also afterwards)", err->text);
	error_free(err);
	return NULL;
}

static int by_address(const void *a, const void *b)
{
	const struct frame *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->kind - y->kind;
}

/* Puts the names of all addresses into the recording, each once. */
static struct error *record_names(struct recording_writer *writer, const struct stacks *stacks,
				  const struct symbols *symbols)
{
	uint32_t n = stacks_count(stacks) - 1;
	struct frame *frames = calloc(n ? n : 1, sizeof(*frames));
	struct namer *namer = NULL;
	struct error *err;

	if (!frames)
		return error_no_memory();
	for (uint32_t i = 0; i < n; i++) {
		const struct stack_node *node = stacks_node(stacks, i + 1);

		frames[i].addr = node->addr;
		frames[i].kind = node->kind;
	}
	qsort(frames, n, sizeof(*frames), by_address);
	err = namer_new(symbols, NULL, &namer);
	for (uint32_t i = 0; i < n && !err; i++) {
		struct named named;

		if (i && !by_address(&frames[i], &frames[i - 1]))
			continue;
		err = namer_name(namer, frames[i].addr, frames[i].kind, &named);
		if (!err && named.resolved)
			err = recording_name(writer, frames[i].addr, frames[i].kind, named.name,
					     named.offset);
	}
	namer_free(namer);
	free(frames);
	return err;
}

static struct error *finish(struct session *session, const struct stacks *stacks,
			    const struct symbols *symbols, const struct sampler_result *result,
			    struct error *err)
{
	const struct recording_end end = {
		.elapsed_ns = result->elapsed_ns,
		.missed = result->missed,
		.retakes = result->retakes,
		.failed = result->failed,
		.reason = (char *)(err ? err->text : sampler_outcome_text(result->outcome)),
	};

	if (err && err->kind == ERR_OUTPUT) {
		recording_abandon(session->writer);
		return err;
	}
	if (symbols)
		err = error_first(err, record_names(session->writer, stacks, symbols));
	return error_first(err, recording_close(session->writer, &end));
}

static void summary(const struct session *session, const char *path,
		    const struct sampler_result *result)
{
	double seconds = (double)result->elapsed_ns / 1e9;

	say("%s: %" PRIu64 " samples in %.1f s, guest paused for %.3f %% of the time, %" PRIu64
	    " deadline%s missed%s",
	    strcmp(path, "-") ? path : "standard output", result->ticks, seconds,
	    result->elapsed_ns ? 100.0 * (double)session->paused_ns / (double)result->elapsed_ns
			       : 0,
	    result->missed, result->missed == 1 ? "" : "s",
	    result->failed ? ", some samples failed" : "");
	if (result->slowed)
		say("%" PRIu64
		    " samples were put off so as not to pause the guest for more than %g %% of "
		    "the time",
		    result->slowed, 100 * session->options->sampler.max_overhead);
}

static struct error *record_into(struct session *session, struct target *target, const char *path,
				 struct stacks *stacks, const struct symbols *symbols,
				 struct sampler_result *result)
{
	const struct session_options *options = session->options;
	struct sampler_options sampler = options->sampler;
	const struct sampler_sink sink = {
		.ctx = session,
		.tick = on_tick,
		.missed = options->print_missed ? on_missed : NULL,
		.progress = session->terminal || options->verbose ? on_progress : NULL,
	};
	struct recording_info info;
	struct error *err;

	describe(target, options, symbols, &info);
	err = recording_create(path, &info, stacks, &session->writer);
	if (err)
		return err;
	sampler.symbols = symbols;
	err = sampler_run(target, stacks, &sampler, &sink, result);
	err = finish(session, stacks, symbols, result, err);
	if (session->terminal)
		fputs("\r\033[K", stderr);
	if (!options->quiet)
		summary(session, path, result);
	return err;
}

struct error *session_record(struct target *target, const struct session_options *options,
			     const char *path, struct sampler_result *result)
{
	struct session session = {.options = options,
				  .terminal = !options->quiet && isatty(STDERR_FILENO)};
	struct symbols *symbols = NULL;
	struct stacks *stacks = NULL;
	struct error *err;

	memset(result, 0, sizeof(*result));
	if (options->verbose)
		say("%s guest %s \"%s\" with %u vCPUs on %s%s%s", target->info.type,
		    target->info.id, target->info.name, target->info.vcpus, target->info.host,
		    *target->info.image ? ", started from " : "", target->info.image);
	err = session_load_symbols(target, options, &symbols);
	if (!err)
		err = stacks_new(&stacks);
	if (!err)
		err = record_into(&session, target, path, stacks, symbols, result);
	stacks_free(stacks);
	symbols_free(symbols);
	return err;
}
