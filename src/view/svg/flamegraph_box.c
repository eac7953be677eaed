/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/intern.h"

/* One character of a name, escaped. */
struct glyph {
	char xml[12]; /* maybe not terminated by a 0 */
	uint8_t len;
	uint8_t cells;
};

/* Control and format characters, and code points that are no characters. */
static const struct {
	uint32_t first, last;
} hidden[] = {
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

static const char *const entities[256] = {
	['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;",
};

static void show_code(struct glyph *glyph, char kind, int digits, uint32_t c)
{
	glyph->cells = (uint8_t)sprintf(glyph->xml, "\\%c%0*" PRIx32, kind, digits, c);
	glyph->len = glyph->cells;
}

/* Prepares the character at `text` for display; returns its length in bytes. */
static size_t show(const char *text, struct glyph *glyph)
{
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c;
	size_t len = utf8_decode(s, 4, &c); /* a 0 byte ends the text: it is in no character */
	const char *xml = entities[s[0]];

	if (len == 0)
		show_code(glyph, 'x', 2, s[0]);
	else if (is_hidden(c) && len == 1)
		show_code(glyph, 'x', 2, c);
	else if (is_hidden(c) && len < 4)
		show_code(glyph, 'u', 4, c);
	else if (is_hidden(c))
		show_code(glyph, 'U', 8, c);
	if (len == 0 || is_hidden(c))
		return len ?: 1;
	glyph->cells = c < 0x1100 ? 1 : 2;
	glyph->len = (uint8_t)(xml ? strlen(xml) : len);
	memcpy(glyph->xml, xml ? xml : text, glyph->len);
	return len;
}

static bool fits(const char *text, size_t cells)
{
	struct glyph glyph;
	size_t used = 0;

	while (*text && used <= cells) {
		text += show(text, &glyph);
		used += glyph.cells;
	}
	return used <= cells;
}

void flamegraph_put_text(FILE *out, const char *text, size_t cells)
{
	bool whole = fits(text, cells);
	size_t room = whole || !cells ? cells : cells - 1;
	struct glyph glyph;

	while (*text) {
		text += show(text, &glyph);
		if (glyph.cells > room)
			break;
		room -= glyph.cells;
		fwrite(glyph.xml, 1, glyph.len, out);
	}
	if (!whole && cells)
		fputs("…", out);
}

void flamegraph_put_fixed(FILE *out, double value)
{
	uint64_t hundredths = value > 0 && value < 1e15 ? (uint64_t)(value * 100 + 0.5) : 0;

	fprintf(out, "%" PRIu64 ".%02u", hundredths / 100, (unsigned)(hundredths % 100));
}

void flamegraph_put_seconds(FILE *out, uint64_t ns, int decimals)
{
	const uint64_t unit = decimals == 3 ? 1000000 : 1000, whole = 1000000000 / unit;
	const uint64_t units = ns / unit + (ns % unit >= unit / 2);

	fprintf(out, "%" PRIu64 ".%0*" PRIu64 " s", units / whole, decimals, units % whole);
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

struct rgb {
	int r, g, b;
};

/* FNV-1a, and the end of MurmurHash3 to spread names that differ in a digit only. */
static uint64_t hash(const char *name)
{
	uint64_t h = hash_bytes(HASH_BEGIN, name, strlen(name));

	h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 33;
}

static int mix(int from, int to, int t)
{
	return from + (to - from) * t / 256;
}

uint32_t flamegraph_color(const char *name, bool unresolved, bool cold)
{
	static const struct rgb warm[] = {{243, 118, 96}, {249, 156, 70}, {252, 222, 112}};
	static const struct rgb blue[] = {{128, 164, 243}, {136, 190, 249}, {160, 222, 240}};
	const struct rgb *stops = cold ? blue : warm;
	uint64_t h = hash(name);
	int where = (int)(h & 511), light = (int)(h >> 16 & 31) - 16;
	const struct rgb *a = &stops[where >> 8], *b = a + 1;
	struct rgb c;

	if (unresolved)
		c = (struct rgb){190, 190, 194};
	else
		c = (struct rgb){mix(a->r, b->r, where & 255), mix(a->g, b->g, where & 255),
				 mix(a->b, b->b, where & 255)};
	if (cold)
		c = (struct rgb){c.r + light, c.g + light / 2, c.b + light / 4};
	else
		c = (struct rgb){c.r + light / 4, c.g + light / 2, c.b + light * 5 / 4};
	return (uint32_t)(c.r << 16 | c.g << 8 | c.b);
}

/* Part of 255, of a colour of this hue (degrees), saturation and lightness (percent). */
static uint32_t hsl_part(double hue, double saturation, double light, double shift)
{
	const double chroma = saturation / 100 * fmin(light / 100, 1 - light / 100);
	const double k = fmod(shift + hue / 30, 12);

	return (uint32_t)(255 * (light / 100 - chroma * fmax(-1, fmin(fmin(k - 3, 9 - k), 1))) +
			  0.5);
}

uint32_t flamegraph_text_color(const char *text, size_t len)
{
	uint32_t h = UINT32_C(2166136261);
	double hue, saturation, light;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)text[i]) * UINT32_C(16777619);
	hue = h % 360;
	saturation = 55 + (h >> 9) % 25;
	light = 66 + (h >> 17) % 14;
	return hsl_part(hue, saturation, light, 0) << 16 |
	       hsl_part(hue, saturation, light, 8) << 8 | hsl_part(hue, saturation, light, 4);
}

uint32_t flamegraph_kind_color(enum name_kind kind)
{
	static const uint32_t colors[NAME_KINDS] = {0xf6a15b, 0xf7d774, 0x8fbdf0, 0xd39be0,
						    0xa9cfa4};

	return colors[kind];
}

#define NOISE 0xdcdce0

static int blend(int from, int to, double t)
{
	return from + (int)((to - from) * t);
}

uint32_t flamegraph_change_color(const struct tree_change *change)
{
	bool more = change->after > change->before;
	double large = more ? change->after : change->before;
	double small = more ? change->before : change->after;
	double strength;

	if (!change->significant || !(large > 0))
		return NOISE;
	strength = (large - small) / large;
	return more ? (uint32_t)(255 << 16 | blend(205, 92, strength) << 8 |
				 blend(195, 72, strength))
		    : (uint32_t)(blend(195, 84, strength) << 16 | blend(218, 152, strength) << 8 |
				 255);
}

void flamegraph_put_change(FILE *out, const struct tree_change *change)
{
	double points = 100 * (change->after - change->before);
	const char *sign = points >= 0.005 ? "+" : points <= -0.005 ? "−" : "±";

	flamegraph_put_fixed(out, 100 * change->before);
	fputs(" % before, ", out);
	flamegraph_put_fixed(out, 100 * change->after);
	fprintf(out, " %% after: %s", sign);
	flamegraph_put_fixed(out, points < 0 ? -points : points);
	if (!change->significant)
		fputs(", may be chance", out);
}

void flamegraph_put_change_data(FILE *out, const struct tree_change *change)
{
	fputs(" data-before=\"", out);
	flamegraph_put_fixed(out, 100 * change->before);
	fputs("\" data-after=\"", out);
	flamegraph_put_fixed(out, 100 * change->after);
	fprintf(out, "\" data-significant=\"%s\"", change->significant ? "yes" : "no");
}
