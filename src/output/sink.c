/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct error *sink_new(struct sink *sink, int fd, const char *name)
{
	*sink = (struct sink){.fd = fd, .name = name, .bytes = malloc(SINK_SIZE)};
	return sink->bytes ? NULL : error_no_memory();
}

void sink_free(struct sink *sink)
{
	free(sink->bytes);
}

static struct error *write_all(const struct sink *sink, const char *bytes, size_t len)
{
	while (len) {
		ssize_t done = write(sink->fd, bytes, len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return error_errno(ERR_OUTPUT, errno, "%s: cannot write", sink->name);
		bytes += done;
		len -= (size_t)done;
	}
	return NULL;
}

struct error *sink_flush(struct sink *sink)
{
	size_t len = sink->len;

	sink->len = 0;
	sink->flushes++;
	return write_all(sink, sink->bytes, len);
}

struct error *sink_put_slowly(struct sink *sink, const char *bytes, size_t len)
{
	struct error *err = sink_flush(sink);

	if (!err && len > SINK_SIZE) {
		err = write_all(sink, bytes, len - 1);
		bytes += len - 1;
		len = 1;
	}
	return err ? err : sink_put(sink, bytes, len);
}

void sink_take_back(struct sink *sink)
{
	sink->len--;
}
