/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/json_text.h"

#include <string.h>

void json_put_text(const char *text, FILE *out)
{
	putc('"', out);
	while (*text) {
		size_t plain = strcspn(text, "\"\\<>&");

		fwrite(text, 1, plain, out);
		text += plain;
		if (*text)
			fprintf(out, "\\u%04x", (unsigned char)*text++);
	}
	putc('"', out);
}

void json_put_ms(unsigned long long ns, FILE *out)
{
	fprintf(out, "%llu.%06llu", ns / 1000000, ns % 1000000);
}
