/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/cells.h"

enum style style_of_share(double share)
{
	return share >= 0.05 ? STYLE_HOT : share >= 0.005 ? STYLE_WARM : STYLE_PLAIN;
}

/* Of the character that begins with this byte; 0 for bytes within one. */
static size_t cells_of_lead(unsigned char lead)
{
	if ((lead & 0xc0) == 0x80)
		return 0;
	return lead < 0xe1 ? 1 : 2; /* 0xe1: U+1000 */
}

size_t cells_of(const char *text, size_t len)
{
	size_t cells = 0;

	for (size_t i = 0; i < len; i++)
		cells += cells_of_lead((unsigned char)text[i]);
	return cells;
}

size_t cells_fit(const char *text, size_t len, size_t cells)
{
	size_t n = 0;

	for (; n < len; n++) {
		size_t more = cells_of_lead((unsigned char)text[n]);

		if (more > cells)
			break;
		cells -= more;
	}
	return n;
}
