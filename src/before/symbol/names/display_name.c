/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/display_name.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * Decodes one character (RFC 3629: shortest form, no surrogates, nothing above
 * U+10FFFF). Returns its length in bytes, 0 if there is none.
 */
static size_t decode(const unsigned char *s, size_t left, uint32_t *c)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = s[0] < 0x80	     ? 1
		     : (s[0] & 0xe0) == 0xc0 ? 2
		     : (s[0] & 0xf0) == 0xe0 ? 3
		     : (s[0] & 0xf8) == 0xf0 ? 4
					     : 0;

	if (!len || len > left)
		return 0;
	*c = len == 1 ? s[0] : s[0] & (0x7f >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (s[i] & 0x3f);
	}
	if (*c < smallest[len] || *c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff))
		return 0;
	return len;
}

static bool harmful(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c <= 0x9f) ||	    /* C0, DEL, C1 */
	       c == 0x061c || c == 0x200e || c == 0x200f || /* direction marks */
	       (c >= 0x2028 && c <= 0x202e) ||		    /* separators, embeddings, overrides */
	       (c >= 0x2066 && c <= 0x2069) ||		    /* isolates */
	       c == 0xfeff || (c & 0xfffe) == 0xfffe;	    /* byte order mark, no characters */
}

static bool is_blank(uint32_t c)
{
	return c == 0x20 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	       c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Most names are: visible ASCII, which needs no second look. */
static bool plain(const unsigned char *s, size_t len)
{
	unsigned char odd = 0;

	for (size_t i = 0; i < len; i++)
		odd |= s[i] <= 0x20 || s[i] >= 0x7f;
	return len && !odd;
}

size_t clean_name(const char *name, size_t len, char *out)
{
	const unsigned char *s = (const unsigned char *)name;
	size_t n = 0;

	if (plain(s, len)) {
		memcpy(out, name, len);
		out[len] = '\0';
		return len;
	}

	while (len) {
		uint32_t c = 0;
		size_t step = decode(s, len, &c);

		if (step && is_blank(c)) {
			if (n)
				out[n++] = ' ';
		} else if (!step || harmful(c)) {
			memcpy(out + n, "\xef\xbf\xbd", 3);
			n += 3;
			step = step ? step : 1;
		} else {
			memcpy(out + n, s, step);
			n += step;
		}
		s += step;
		len -= step;
	}
	while (n && out[n - 1] == ' ')
		n--;
	if (!n)
		out[n++] = '-';
	out[n] = '\0';
	return n;
}

size_t clean_cut(const char *text, size_t max)
{
	size_t len = strnlen(text, max + 1);

	if (len <= max)
		return len;
	for (len = max; len && ((unsigned char)text[len] & 0xc0) == 0x80; len--)
		;
	return len;
}

char *clean_name_new(const char *name)
{
	size_t len = strlen(name);
	char *out = malloc(CLEAN_ROOM(len));

	if (out)
		clean_name(name, len, out);
	return out;
}

void put_clean(const char *text, FILE *out)
{
	char *clean = *text ? clean_name_new(text) : NULL;

	if (clean)
		fputs(clean, out);
	free(clean);
}
