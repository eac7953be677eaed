/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/gdb.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* How long the stub may take for an answer. */
#define ANSWER_MS 2000

/* Descriptions of registers are some ten thousand bytes. */
#define FEATURES_MAX (1u << 20)

/* Reads what there is, waiting for it up to a time. False: nothing came. */
static bool fill(struct gdb *gdb, int wait_ms)
{
	struct pollfd ready = {.fd = gdb->fd, .events = POLLIN};
	ssize_t got = poll(&ready, 1, wait_ms) == 1 ? read(gdb->fd, gdb->in, sizeof(gdb->in)) : 0;

	gdb->got = got > 0 ? (size_t)got : 0;
	gdb->taken = 0;
	return got > 0;
}

static int next_byte(struct gdb *gdb, uint64_t until_ns)
{
	if (gdb->taken == gdb->got) {
		const uint64_t now = clock_now_ns();

		if (now >= until_ns || !fill(gdb, (int)((until_ns - now) / 1000000u) + 1))
			return -1;
	}
	return gdb->in[gdb->taken++];
}

/* "$text#xx": the text, with what is repeated written out ("0* " and the like). */
static bool take_packet(struct gdb *gdb, uint64_t until_ns)
{
	int byte;

	do
		byte = next_byte(gdb, until_ns);
	while (byte >= 0 && byte != '$');
	gdb->len = 0;
	while ((byte = next_byte(gdb, until_ns)) >= 0 && byte != '#') {
		int times = byte == '*' && gdb->len ? next_byte(gdb, until_ns) - 29 : 1;

		if (byte == '*' && gdb->len)
			byte = gdb->packet[gdb->len - 1];
		for (; times > 0 && gdb->len < GDB_PACKET_MAX; times--)
			gdb->packet[gdb->len++] = (char)byte;
	}
	gdb->packet[gdb->len] = '\0';
	if (byte < 0 || next_byte(gdb, until_ns) < 0 || next_byte(gdb, until_ns) < 0)
		return false;
	return write(gdb->fd, "+", 1) == 1;
}

static bool send_packet(struct gdb *gdb, const char *text)
{
	uint8_t sum = 0;
	char packet[256];
	int len;

	for (const char *c = text; *c; c++)
		sum = (uint8_t)(sum + (uint8_t)*c);
	len = snprintf(packet, sizeof(packet), "$%s#%02x", text, sum);
	return len < (int)sizeof(packet) && write(gdb->fd, packet, (size_t)len) == len;
}

bool gdb_ask(struct gdb *gdb, const char *text)
{
	return send_packet(gdb, text) &&
	       take_packet(gdb, clock_now_ns() + ANSWER_MS * UINT64_C(1000000));
}

bool gdb_continue(struct gdb *gdb)
{
	return send_packet(gdb, "vCont;c");
}

static bool says_stopped(const struct gdb *gdb)
{
	return gdb->packet[0] == 'T' || gdb->packet[0] == 'S';
}

/* Has the stub said, without being asked, that the guest has stopped? */
static bool was_halted(struct gdb *gdb)
{
	while (gdb->taken < gdb->got || fill(gdb, 0)) {
		/* Acknowledgements come, too. */
		if (gdb->in[gdb->taken] != '$')
			gdb->taken++;
		else if (!take_packet(gdb, clock_now_ns() + ANSWER_MS * UINT64_C(1000000)))
			break;
		else if (says_stopped(gdb))
			return true;
	}
	return false;
}

enum gdb_stopped gdb_stop(struct gdb *gdb, int wait_ms)
{
	const uint64_t until_ns = clock_now_ns() + (uint64_t)wait_ms * 1000000u;

	if (was_halted(gdb))
		return GDB_HALTED;
	if (write(gdb->fd, "\x03", 1) != 1)
		return GDB_NO_ANSWER;
	/* Anything else that comes is an answer too late. */
	do
		if (!take_packet(gdb, until_ns))
			return GDB_NO_ANSWER;
	while (!says_stopped(gdb));
	return GDB_STOPPED;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool gdb_bytes(const struct gdb *gdb, size_t at, void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		const size_t place = 2 * (at + i);
		int high, low;

		if (place + 2 > gdb->len)
			return false;
		high = digit(gdb->packet[place]);
		low = digit(gdb->packet[place + 1]);
		if (high < 0 || low < 0)
			return false;
		((uint8_t *)bytes)[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

char *gdb_features(struct gdb *gdb, const char *annex)
{
	char *all = NULL, request[160];
	size_t len = 0;

	do {
		char *more;

		snprintf(request, sizeof(request), "qXfer:features:read:%.100s:%zx,7fb", annex,
			 len);
		if (!gdb_ask(gdb, request) || (gdb->packet[0] != 'm' && gdb->packet[0] != 'l') ||
		    len > FEATURES_MAX)
			break;
		more = realloc(all, len + gdb->len);
		if (!more)
			break;
		all = more;
		memcpy(all + len, gdb->packet + 1, gdb->len);
		len += gdb->len - 1;
		if (gdb->packet[0] == 'l')
			return all;
	} while (gdb->len > 1);
	free(all);
	return NULL;
}

struct error *gdb_open(const char *path, bool halted, struct gdb **out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gdb *gdb = calloc(1, sizeof(*gdb));

	if (!gdb)
		return error_no_memory();
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	gdb->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (gdb->fd < 0 || connect(gdb->fd, (const struct sockaddr *)&address, sizeof(address))) {
		struct error *err =
			error_errno(ERR_DENIED, errno, "cannot connect to QEMU's gdb stub");

		gdb_close(gdb);
		return err;
	}
	*out = gdb;
	/* It says that the guest has stopped, without being asked; not of one that did not run. */
	if ((halted || take_packet(gdb, clock_now_ns() + ANSWER_MS * UINT64_C(1000000))) &&
	    gdb_ask(gdb, "qSupported:multiprocess+;xmlRegisters=i386;vContSupported+"))
		return NULL;
	return error_new(ERR_FAILED, "QEMU's gdb stub does not answer");
}

void gdb_close(struct gdb *gdb)
{
	if (!gdb)
		return;
	if (gdb->fd >= 0)
		close(gdb->fd);
	free(gdb);
}
