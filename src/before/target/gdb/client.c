/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/gdb/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

/* ... and for saying that it has stopped the guest, if that ran. */
#define HALT_MS 1000

/* ... and that it was told something, behind what else it says; and how often it is told. */
#define HEARD_MS 50
#define AGAIN	 4

#define HELLO "qSupported:multiprocess+;xmlRegisters=i386;vContSupported+"

/* The most that the human monitor says, bytes. */
#define HUMAN_MAX (1u << 20)

/* Descriptions of registers are some ten thousand bytes. */
#define FEATURES_MAX (1u << 20)

/* Reads what there is, waiting for it up to a time. False: nothing came. */
static bool fill(struct gdb *gdb, int wait_ms)
{
	struct pollfd ready = {.fd = gdb->fd, .events = POLLIN};
	ssize_t got = poll(&ready, 1, wait_ms) == 1 ? read(gdb->fd, gdb->in, sizeof(gdb->in)) : 0;

	gdb->gone |= ready.revents && got <= 0;
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

/*
 * "$text#xx": the text, with what is repeated written out ("0* " and the like).
 * It is not acknowledged: whatever comes to a stub while the guest runs stops it.
 */
static bool take_text(struct gdb *gdb, uint64_t until_ns)
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
	return byte >= 0 && next_byte(gdb, until_ns) >= 0 && next_byte(gdb, until_ns) >= 0;
}

/* While the guest stands still. */
static bool take_packet(struct gdb *gdb, uint64_t until_ns)
{
	if (!take_text(gdb, until_ns))
		return false;
	if (gdb->ahead) {
		gdb->ahead--;
		return true;
	}
	return write(gdb->fd, "+", 1) == 1;
}

/* Puts a text into its frame; the length, at most size - 1. */
static size_t frame(const char *text, char *packet, size_t size)
{
	uint8_t sum = 0;
	int len;

	for (const char *c = text; *c; c++)
		sum = (uint8_t)(sum + (uint8_t)*c);
	len = snprintf(packet, size, "$%s#%02x", text, sum);
	return len < (int)size ? (size_t)len : size - 1;
}

static bool send_bytes(struct gdb *gdb, const char *bytes, size_t len)
{
	return write(gdb->fd, bytes, len) == (ssize_t)len;
}

static bool send_packet(struct gdb *gdb, const char *text)
{
	char packet[512];

	return send_bytes(gdb, packet, frame(text, packet, sizeof(packet)));
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

bool gdb_heard(struct gdb *gdb)
{
	for (int i = 0; i < AGAIN; i++) {
		uint64_t wait_ms = ANSWER_MS;
		int byte;

		/*
		 * A packet that nobody has asked for: the guest was stopped. If that was by what we
		 * sent, because others had let it go before, what we sent was not heard.
		 */
		do {
			const uint64_t until_ns = clock_now_ns() + wait_ms * UINT64_C(1000000);

			byte = next_byte(gdb, until_ns);
			if (byte == '$') {
				gdb->taken--;
				take_text(gdb, until_ns);
				wait_ms = HEARD_MS;
			}
		} while (byte >= 0 && byte != '+');
		if (byte == '+')
			return true;
		if (wait_ms == ANSWER_MS || !gdb_continue(gdb))
			return false;
	}
	return false;
}

/* Room for what stops the guest, and for the acknowledgement of its answer. */
void gdb_batch_begin(struct gdb *gdb)
{
	gdb->batch[0] = '\x03';
	gdb->batch[1] = '+';
	gdb->batch_len = 2;
	gdb->ahead = 0;
}

void gdb_batch_add(struct gdb *gdb, const char *text)
{
	char *to = gdb->batch + gdb->batch_len;
	const size_t room = sizeof(gdb->batch) - gdb->batch_len;

	if (room < strlen(text) + sizeof("$#00+"))
		return;
	gdb->batch_len += frame(text, to, room);
	gdb->batch[gdb->batch_len++] = '+';
	gdb->ahead++;
}

bool gdb_batch_send(struct gdb *gdb)
{
	return send_bytes(gdb, gdb->batch + 2, gdb->batch_len - 2);
}

bool gdb_batch_next(struct gdb *gdb)
{
	return take_packet(gdb, clock_now_ns() + ANSWER_MS * UINT64_C(1000000));
}

static bool says_stopped(const struct gdb *gdb)
{
	return gdb->packet[0] == 'T' || gdb->packet[0] == 'S';
}

bool gdb_was_stopped(struct gdb *gdb)
{
	while (gdb->taken < gdb->got || fill(gdb, 0)) {
		/* Acknowledgements come, too. */
		if (gdb->in[gdb->taken] != '$')
			gdb->taken++;
		/* Stopped it was, but by others, who may have let it go since. */
		else if (!take_text(gdb, clock_now_ns() + ANSWER_MS * UINT64_C(1000000)))
			break;
		else if (says_stopped(gdb))
			return true;
	}
	return false;
}

enum gdb_stopped gdb_stop(struct gdb *gdb, int wait_ms)
{
	const uint64_t until_ns = clock_now_ns() + (uint64_t)wait_ms * 1000000u;
	const unsigned requests = gdb->ahead;

	gdb->ahead = 0;
	if (gdb_was_stopped(gdb))
		return GDB_HALTED;
	gdb->ahead = requests + 1;
	if (!send_bytes(gdb, gdb->batch, gdb->batch_len))
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

static struct error *new_client(int family, struct gdb **out)
{
	struct gdb *gdb = calloc(1, sizeof(*gdb));

	if (!gdb)
		return error_no_memory();
	gdb->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	gdb_batch_begin(gdb);
	*out = gdb;
	return NULL;
}

static struct error *prepare_unix(const char *path, struct gdb **out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct error *err = new_client(AF_UNIX, out);

	if (err)
		return err;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	memcpy(&(*out)->address, &address, sizeof(address));
	(*out)->address_size = sizeof(address);
	return NULL;
}

static struct error *prepare_tcp(const char *port, struct gdb **out)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
	struct error *err = new_client(AF_INET, out);
	const int on = 1;

	if (err)
		return err;
	setsockopt((*out)->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	memcpy(&(*out)->address, &address, sizeof(address));
	(*out)->address_size = sizeof(address);
	return NULL;
}

struct error *gdb_prepare(const char *address, struct gdb **out)
{
	const char *rest = strchr(address, ':') + 1;

	return *address == 'u' ? prepare_unix(rest, out) : prepare_tcp(rest, out);
}

static struct error *reach(struct gdb *gdb)
{
	if (gdb->fd >= 0 &&
	    !connect(gdb->fd, (const struct sockaddr *)&gdb->address, gdb->address_size))
		return NULL;
	return error_errno(ERR_DENIED, errno, "cannot connect to QEMU's gdb stub");
}

static struct error *no_answer(void)
{
	return error_new(ERR_FAILED, "QEMU's gdb stub does not answer: somebody else may use it");
}

struct error *gdb_connect(struct gdb *gdb, bool *halted)
{
	struct error *err = reach(gdb);

	if (err)
		return err;
	/* It says that the guest has stopped, without being asked; not of one that did not run. */
	*halted = !take_packet(gdb, clock_now_ns() + HALT_MS * UINT64_C(1000000));
	return gdb_ask(gdb, HELLO) ? NULL : no_answer();
}

struct error *gdb_open(const char *path, bool halted, struct gdb **out)
{
	struct error *err = prepare_unix(path, out);

	if (!err)
		err = reach(*out);
	if (err)
		return err;
	if ((halted || take_packet(*out, clock_now_ns() + ANSWER_MS * UINT64_C(1000000))) &&
	    gdb_ask(*out, HELLO))
		return NULL;
	return no_answer();
}

int gdb_fd(const struct gdb *gdb)
{
	return gdb->fd;
}

bool gdb_is_gone(const struct gdb *gdb)
{
	return gdb->gone;
}

/* "qRcmd,<hex>": answers "O<hex>" with pieces of what it says, then "OK". */
struct error *gdb_human(struct gdb *gdb, const char *line, char **said)
{
	char request[512] = "qRcmd,";
	size_t len = strlen(request), said_len = 0;
	bool more;

	for (const char *c = line; *c && len + 3 < sizeof(request); c++)
		len += (size_t)snprintf(request + len, sizeof(request) - len, "%02x", (uint8_t)*c);
	*said = calloc(1, HUMAN_MAX);
	if (!*said)
		return error_no_memory();
	for (more = gdb_ask(gdb, request); more && gdb->packet[0] == 'O' && gdb->packet[1] != 'K';
	     more = gdb_batch_next(gdb)) {
		const size_t bytes = (gdb->len - 1) / 2;

		memmove(gdb->packet, gdb->packet + 1, gdb->len--);
		if (said_len + bytes < HUMAN_MAX && gdb_bytes(gdb, 0, *said + said_len, bytes))
			said_len += bytes;
	}
	return more ? NULL : no_answer();
}

void gdb_close(struct gdb *gdb)
{
	if (!gdb)
		return;
	if (gdb->fd >= 0)
		close(gdb->fd);
	free(gdb);
}
