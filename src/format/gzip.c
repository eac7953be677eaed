/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/gzip.h"

#include <stdlib.h>
#include <zlib.h>

/* zlib.h: 16 more than the window's bits asks for gzip's head and tail. */
#define GZIP_WINDOW (MAX_WBITS + 16)
#define GZIP_MEMORY 8

struct gzip {
	z_stream stream;
	FILE *out;
	unsigned char buffer[64 << 10];
};

struct error *gzip_new(FILE *out, struct gzip **gzip)
{
	struct gzip *new = calloc(1, sizeof(*new));

	if (!new || deflateInit2(&new->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW,
				 GZIP_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(new);
		return error_no_memory();
	}
	new->out = out;
	*gzip = new;
	return NULL;
}

static void deflate_pending(struct gzip *gzip, int how)
{
	do {
		gzip->stream.next_out = gzip->buffer;
		gzip->stream.avail_out = sizeof(gzip->buffer);
		deflate(&gzip->stream, how);
		fwrite(gzip->buffer, 1, sizeof(gzip->buffer) - gzip->stream.avail_out, gzip->out);
	} while (!gzip->stream.avail_out);
}

void gzip_put(struct gzip *gzip, const void *data, size_t len)
{
	while (len) {
		uInt piece = len > 1u << 30 ? 1u << 30 : (uInt)len;

		gzip->stream.next_in = (z_const Bytef *)data;
		gzip->stream.avail_in = piece;
		deflate_pending(gzip, Z_NO_FLUSH);
		data = (const char *)data + piece;
		len -= piece;
	}
}

void gzip_end(struct gzip *gzip)
{
	deflate_pending(gzip, Z_FINISH);
	deflateEnd(&gzip->stream);
	free(gzip);
}

static ssize_t put_cookie(void *cookie, const char *data, size_t len)
{
	gzip_put(cookie, data, len);
	return (ssize_t)len;
}

static int end_cookie(void *cookie)
{
	gzip_end(cookie);
	return 0;
}

struct error *gzip_open(FILE *out, FILE **packed)
{
	const cookie_io_functions_t functions = {.write = put_cookie, .close = end_cookie};
	struct gzip *gzip;
	struct error *err = gzip_new(out, &gzip);

	if (err)
		return err;
	*packed = fopencookie(gzip, "w", functions);
	if (*packed)
		return NULL;
	gzip_end(gzip);
	return error_no_memory();
}
