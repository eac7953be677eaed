/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/flamegraph_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* One character of a name as it is shown. */
struct shown {
	char xml[12]; /* not terminated by a 0 */
	uint8_t len;
	uint8_t cells;
};

struct range {
	uint32_t first, last;
};

/* Control and format characters, and code points that are no characters. */
static const struct range hidden[] = {
	{0x0000, 0x001f}, {0x007f, 0x009f}, {0x00ad, 0x00ad},	{0x061c, 0x061c}, {0x180e, 0x180e},
	{0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},	{0x2060, 0x206f}, {0xfdd0, 0xfdef},
	{0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

static bool is_hidden(uint32_t c)
{
	if ((c & 0xfffe) == 0xfffe)
		return true;
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (c >= hidden[i].first && c <= hidden[i].last)
			return true;
	return false;
}

/* The bytes of the UTF-8 character at `s` (0: there is none), which ends with a 0 byte. */
static size_t decode(const unsigned char *s, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (len == 0 || s[0] >= 0xf8)
		return 0;
	*c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (s[i] & 0x3f);
	}
	if (*c < least[len] || *c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff))
		return 0;
	return len;
}

static void show_code(struct shown *shown, char kind, unsigned digits, uint32_t c)
{
	shown->len = shown->cells = (uint8_t)(digits + 2);
	shown->xml[0] = '\\';
	shown->xml[1] = kind;
	for (unsigned i = 0; i < digits; i++)
		shown->xml[2 + i] = "0123456789abcdef"[c >> (4 * (digits - 1 - i)) & 15];
}

static const char *entity(unsigned char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return NULL;
	}
}

/* How the character at `text` is shown; returns how many bytes it takes there. */
static size_t show(const char *text, struct shown *shown)
{
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c;
	size_t len = decode(s, &c);
	const char *xml = entity(s[0]);

	if (len == 0) {
		show_code(shown, 'x', 2, s[0]);
		return 1;
	}
	if (is_hidden(c)) {
		show_code(shown,
			  len == 1  ? 'x'
			  : len < 4 ? 'u'
				    : 'U',
			  len == 1  ? 2
			  : len < 4 ? 4
				    : 8,
			  c);
		return len;
	}
	shown->cells = c < 0x1100 ? 1 : 2;
	shown->len = (uint8_t)(xml ? strlen(xml) : len);
	memcpy(shown->xml, xml ? xml : text, shown->len);
	return len;
}

static bool fits(const char *text, size_t cells)
{
	struct shown shown;
	size_t used = 0;

	while (*text && used <= cells) {
		text += show(text, &shown);
		used += shown.cells;
	}
	return used <= cells;
}

void flamegraph_put_text(FILE *out, const char *text, size_t cells)
{
	bool whole = fits(text, cells);
	size_t room = whole || !cells ? cells : cells - 1;
	struct shown shown;

	while (*text) {
		text += show(text, &shown);
		if (shown.cells > room)
			break;
		room -= shown.cells;
		fwrite(shown.xml, 1, shown.len, out);
	}
	if (!whole && cells)
		fputs("…", out);
}

void flamegraph_put_fixed(FILE *out, double value)
{
	uint64_t hundredths = value > 0 && value < 1e15 ? (uint64_t)(value * 100 + 0.5) : 0;

	fprintf(out, "%" PRIu64 ".%02u", hundredths / 100, (unsigned)(hundredths % 100));
}

void flamegraph_put_count(FILE *out, uint64_t value)
{
	char text[32];
	size_t at = sizeof(text), digits = 0;

	do {
		if (digits && digits % 3 == 0)
			text[--at] = ',';
		text[--at] = (char)('0' + value % 10);
		digits++;
	} while (value /= 10);
	fwrite(text + at, 1, sizeof(text) - at, out);
}
