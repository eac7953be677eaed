/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "capture/sampler.h"

#define TEN_YEARS_S (10 * 365.25 * 86400)

/* A plain decimal number, no sign, no hex, no "inf"; *rest points behind it. */
static bool parse_number(const char *text, double *value, const char **rest)
{
	size_t digits = strspn(text, "0123456789.");
	char plain[32], *end;

	/* Only the digits: strtod would take "0x10" or "1e9" for numbers, too. */
	if (!digits || digits >= sizeof(plain))
		return false;
	memcpy(plain, text, digits);
	plain[digits] = 0;
	*value = strtod(plain, &end);
	*rest = text + digits;
	return !*end && isfinite(*value);
}

struct error *parse_rate(const char *option, const char *text, double *hz)
{
	const char *rest;

	if (!parse_number(text, hz, &rest) || *rest)
		return error_new(ERR_USAGE, "%s %s: not a number of samples per second", option,
				 text);
	if (*hz < RATE_MIN || *hz > RATE_MAX)
		return error_new(ERR_USAGE,
				 "%s %s: the rate must be from %g to %g samples per second", option,
				 text, RATE_MIN, RATE_MAX);
	return NULL;
}

struct error *parse_duration(const char *option, const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1},	{"s", 1},    {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
		     {"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400}};
	const char *rest;
	double value;

	if (!parse_number(text, &value, &rest))
		return error_new(ERR_USAGE, "%s %s: not a time", option, text);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcmp(rest, units[i].name))
			continue;
		value *= units[i].seconds;
		if (value * 1e9 < 1 || value > TEN_YEARS_S)
			return error_new(ERR_USAGE,
					 "%s %s: must be more than 0 and at most ten years", option,
					 text);
		*ns = (uint64_t)(value * 1e9);
		return NULL;
	}
	return error_new(ERR_USAGE, "%s %s: the unit \"%s\" is none of us, ms, s, m, h, d", option,
			 text, rest);
}

struct error *parse_moment(const char *option, const char *text, uint64_t *ns)
{
	*ns = 0;
	return strspn(text, "0.") == strlen(text) && strchr(text, '0')
		       ? NULL
		       : parse_duration(option, text, ns);
}

struct error *parse_count(const char *option, const char *text, uint64_t min, uint64_t max,
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

struct error *parse_bytes(const char *option, const char *text, uint64_t min, uint64_t max,
			  uint64_t *value)
{
	const char *rest;
	double number;

	if (!parse_number(text, &number, &rest))
		return error_new(ERR_USAGE, "%s %s: not a size", option, text);
	if (!strcasecmp(rest, "k") || !strcasecmp(rest, "KiB"))
		number *= 1024;
	else if (!strcasecmp(rest, "M") || !strcasecmp(rest, "MiB"))
		number *= 1024 * 1024;
	else if (*rest)
		return error_new(ERR_USAGE, "%s %s: the unit \"%s\" is none of k, M", option, text,
				 rest);
	if (number < (double)min || number > (double)max)
		return error_new(ERR_USAGE, "%s %s: must be from %llu to %llu bytes", option, text,
				 (unsigned long long)min, (unsigned long long)max);
	*value = (uint64_t)number;
	return NULL;
}

struct error *parse_percent(const char *option, const char *text, double *share)
{
	const char *rest;

	if (!parse_number(text, share, &rest) || (*rest && strcmp(rest, "%")))
		return error_new(ERR_USAGE, "%s %s: not a percentage", option, text);
	if (*share <= 0 || *share > 100)
		return error_new(ERR_USAGE, "%s %s: must be more than 0 and at most 100", option,
				 text);
	*share /= 100;
	return NULL;
}

struct error *parse_unwind(const char *option, const char *text, enum unwind_method *method)
{
	for (int i = 0; i < UNWIND_METHODS; i++) {
		if (!strcmp(text, unwind_method_text((enum unwind_method)i))) {
			*method = (enum unwind_method)i;
			return NULL;
		}
	}
	return error_new(ERR_USAGE, "%s %s: callers are found by auto, fp, cfi or scan", option,
			 text);
}

static bool state_by_name(const char *name, size_t len, unsigned *states)
{
	for (unsigned i = 0; i < VCPU_STATES; i++) {
		const char *text = vcpu_state_text((enum vcpu_state)i);

		if (strlen(text) == len && !strncmp(text, name, len)) {
			*states |= 1u << i;
			return true;
		}
	}
	return false;
}

struct error *parse_states(const char *option, const char *text, unsigned *states)
{
	const char *part = text;

	*states = 0;
	if (!strcmp(text, "all"))
		return NULL;
	if (!strcmp(text, "on-cpu"))
		part = "running";
	for (;;) {
		size_t len = strcspn(part, ",");

		if (!state_by_name(part, len, states))
			return error_new(ERR_USAGE,
					 "%s %s: the states are running, runnable, blocked, or all",
					 option, text);
		if (!part[len])
			return NULL;
		part += len + 1;
	}
}

/* "7" or "2-3" at *text, which is moved behind it. */
static bool parse_range(const char **text, uint64_t *first, uint64_t *last)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	*first = *last = strtoull(*text, &end, 10);
	if (*end == '-') {
		if (end[1] < '0' || end[1] > '9')
			return false;
		*last = strtoull(end + 1, &end, 10);
	}
	*text = end;
	return *first <= *last && *last < RECORDING_MAX_VCPUS;
}

struct error *parse_vcpus(const char *option, const char *text, bool *vcpus)
{
	const char *at = text;

	memset(vcpus, 0, RECORDING_MAX_VCPUS * sizeof(*vcpus));
	for (;;) {
		uint64_t first, last;

		if (!parse_range(&at, &first, &last) || (*at && *at != ','))
			return error_new(ERR_USAGE, "%s %s: vCPUs are named like 0,2-3, up to %d",
					 option, text, RECORDING_MAX_VCPUS - 1);
		for (uint64_t i = first; i <= last; i++)
			vcpus[i] = true;
		if (!*at++)
			return NULL;
	}
}
