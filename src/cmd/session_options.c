/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "cmd/parse.h"
#include "cmd/session.h"
#include "unwind/tables/debug_file.h"

#define DEFAULT_RATE_HZ 101.0

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
		return image_args_add(&options->files, value, true);
	case SESSION_DEBUG_DIR:
		return debug_file_ahead(value);
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
	case SESSION_MAX_MEMORY:
		return parse_bytes("--max-memory", value, MEMORY_MIN, MEMORY_MAX,
				   &options->sampler.max_memory);
	case SESSION_MAX_OVERHEAD:
		return parse_percent("--max-overhead", value, &options->sampler.max_overhead);
	case SESSION_MAX_PAUSE:
		return parse_duration("--max-pause", value, &options->sampler.max_pause_ns);
	case SESSION_UNWIND:
		return parse_unwind("--unwind", value, &options->sampler.method);
	case SESSION_ALWAYS_PAUSE:
		options->always_pause = true;
		break;
	case SESSION_VIA:
		options->via = value;
		break;
	case SESSION_NO_JITTER:
		options->sampler.no_jitter = true;
		break;
	case SESSION_NO_SANDBOX:
		options->keep_rights = true;
		break;
	default:
		*known = false;
	}
	return err;
}
