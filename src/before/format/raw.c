/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/raw.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "symbol/names/display_name.h"

/* The interface stands behind the comma: "Xen 4.17, libxencall". */
static void write_interface(const struct recording_info *info, FILE *out)
{
	const char *host = info->host ? info->host : "an unknown interface";
	const char *comma = strrchr(host, ',');
	bool xen = info->target && !strcmp(info->target, "xen");

	fputs("#unikernel stack tracer using ", out);
	if (comma)
		put_clean(comma + 1 + strspn(comma + 1, " "), out);
	else
		put_clean(host, out);
	fputs(xen ? " hypercall interface\n" : "\n", out);
}

void trace_write_head(const struct recording_info *info, FILE *out)
{
	time_t start = (time_t)(info->start_unix_ns / 1000000000u);
	char text[128];
	struct tm when;
	bool xen = info->target && !strcmp(info->target, "xen");

	write_interface(info, out);
	fputs(xen ? "#tracing domid " : "#tracing guest ", out);
	put_clean(info->guest_id ? info->guest_id : "?", out);
	if (!localtime_r(&start, &when) ||
	    !strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %Z (%z)", &when))
		strcpy(text, "an unknown day");
	fprintf(out, " on %s\n\n", text);
}

static bool misread_without_offset(const char *name)
{
	if (name[0] == '#' || strchr(name, '+'))
		return true;
	if (name[0] == '0' && (name[1] | 0x20) == 'x')
		return !name[2 + strspn(name + 2, "0123456789abcdefABCDEF")];
	return !name[strspn(name, "0123456789")];
}

/* "0x1f" */
static size_t format_hex(uint64_t value, char *out)
{
	size_t digits = 1;

	for (uint64_t rest = value >> 4; rest; rest >>= 4)
		digits++;
	out[0] = '0';
	out[1] = 'x';
	for (size_t i = digits; i > 0; i--, value >>= 4)
		out[1 + i] = "0123456789abcdef"[value & 15];
	return 2 + digits;
}

size_t trace_offset(const char *name, uint64_t offset, char out[TRACE_OFFSET_MAX])
{
	if (!offset && !misread_without_offset(name))
		return 0;
	out[0] = '+';
	return 1 + format_hex(offset, out + 1);
}

void trace_write_frame(uint64_t addr, const struct named *named, FILE *out)
{
	char text[TRACE_OFFSET_MAX];
	size_t len;

	if (named && named->resolved) {
		fputs(named->symbol, out);
		len = trace_offset(named->symbol, named->offset, text);
	} else {
		len = format_hex(addr, text);
	}
	fwrite(text, 1, len, out);
	putc('\n', out);
}

void trace_write_end(size_t n_frames, uint64_t times, FILE *out)
{
	if (!n_frames)
		fputs(TRACE_NO_STACK "\n", out);
	fprintf(out, "%" PRIu64 "\n\n", times);
}
