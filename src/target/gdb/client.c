/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/gdb/client.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "target/host/proc.h"

/* Time in which the stub has to answer. */
#define ANSWER_MS 2000

/* Time in which it has to say that it has stopped a guest that ran. */
#define HALT_MS 1000

/* Wait for a report of the stop from stubs that need not send one. */
#define GREETING_MS 200

/*
 * Time in which the stub acknowledges a resume, after its other packets; and how
 * often the resume is sent.
 */
#define HEARD_MS      50
#define HEARD_MOST_MS 1000
#define AGAIN	      4

/* Longest wait for the stub to accept a connection or bytes. */
#define SEND_MS 1000

/* Longest time for reading stops that the stub reports unasked. */
#define STOPPED_MS 50

#define NS_PER_MS UINT64_C(1000000)

/*
 * Stops the guest: "+" acknowledges a stop by its owner, 0x03 interrupts, "+"
 * acknowledges the answer. The first "+" is sent only after a stop by the
 * owner: QEMU's stub waits for it then, and drops any other byte
 * (gdb_read_byte() in gdbstub.c).
 */
#define STOP	 "+\x03+"
#define STOP_LEN (sizeof(STOP) - 1)

#define HELLO_ANY "qSupported:xmlRegisters=i386;vContSupported+"
#define HELLO	  "qSupported:multiprocess+;xmlRegisters=i386;vContSupported+"

/* Longest answer of the human monitor, bytes. */
#define HUMAN_MAX (1u << 20)

/* Descriptions of registers are some ten thousand bytes. */
#define FEATURES_MAX (1u << 20)

/* Reads available bytes, waiting up to a time. False: nothing came. */
static bool fill(struct gdb *gdb, uint64_t until_ns)
{
	const bool ready = socket_wait(gdb->fd, until_ns);
	const ssize_t got = ready ? read(gdb->fd, gdb->in, sizeof(gdb->in)) : 0;

	gdb->gone |= ready && got <= 0;
	gdb->got = got > 0 ? (size_t)got : 0;
	gdb->taken = 0;
	return got > 0;
}

static int next_byte(struct gdb *gdb, uint64_t until_ns)
{
	if (gdb->taken == gdb->got && (clock_now_ns() >= until_ns || !fill(gdb, until_ns)))
		return -1;
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
			byte = (uint8_t)gdb->packet[gdb->len - 1];
		for (; times > 0 && gdb->len < GDB_PACKET_MAX; times--)
			gdb->packet[gdb->len++] = (char)byte;
	}
	gdb->packet[gdb->len] = '\0';
	gdb->gone |= gdb->packet[0] == 'W' || gdb->packet[0] == 'X';
	return byte >= 0 && next_byte(gdb, until_ns) >= 0 && next_byte(gdb, until_ns) >= 0;
}

/* Takes an answer and acknowledges it; the guest must stand still. */
static bool take_packet(struct gdb *gdb, uint64_t until_ns)
{
	if (!take_text(gdb, until_ns))
		return false;
	if (gdb->acknowledged) {
		gdb->acknowledged--;
		return true;
	}
	return write(gdb->fd, "+", 1) == 1;
}

/* Puts a text into its frame; returns the length, at most size - 1. */
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
	       take_packet(gdb, socket_deadline(gdb->deadline_ns, ANSWER_MS));
}

bool gdb_continue(struct gdb *gdb)
{
	return send_packet(gdb, gdb->plain_continue ? "c" : "vCont;c");
}

/*
 * The deadline of the conversation does not apply: the guest must run again even
 * after one that failed.
 */
bool gdb_heard(struct gdb *gdb)
{
	const uint64_t end_ns = clock_now_ns() + HEARD_MOST_MS * NS_PER_MS;

	for (int i = 0; i < AGAIN; i++) {
		uint64_t until_ns = end_ns;
		bool told = false;
		int byte;

		/*
		 * An unasked packet says that the guest was stopped. If others
		 * had resumed it and our own bytes stopped it, the stub took
		 * them for that stop, and did not hear the resume.
		 */
		do {
			byte = next_byte(gdb, until_ns);
			if (byte == '$') {
				gdb->taken--;
				take_text(gdb, until_ns);
				told = true;
				until_ns = clock_now_ns() + HEARD_MS * NS_PER_MS;
			}
		} while (byte >= 0 && byte != '+' && clock_now_ns() < end_ns);
		if (byte == '+')
			return true;
		if (!told || clock_now_ns() >= end_ns || !gdb_continue(gdb))
			return false;
	}
	return false;
}

void gdb_batch_begin(struct gdb *gdb)
{
	memcpy(gdb->batch, STOP, STOP_LEN);
	gdb->batch_len = STOP_LEN;
	gdb->acknowledged = 0;
}

void gdb_batch_add(struct gdb *gdb, const char *text)
{
	char *to = gdb->batch + gdb->batch_len;
	const size_t room = sizeof(gdb->batch) - gdb->batch_len;

	if (room < strlen(text) + sizeof("$#00+"))
		return;
	gdb->batch_len += frame(text, to, room);
	gdb->batch[gdb->batch_len++] = '+';
	gdb->acknowledged++;
}

void gdb_batch_select(struct gdb *gdb, const char *thread)
{
	char request[GDB_THREAD_MAX + 2];

	snprintf(request, sizeof(request), "Hg%s", thread);
	gdb_batch_add(gdb, request);
}

bool gdb_batch_send(struct gdb *gdb)
{
	return send_bytes(gdb, gdb->batch + STOP_LEN, gdb->batch_len - STOP_LEN);
}

bool gdb_batch_next(struct gdb *gdb)
{
	return take_packet(gdb, socket_deadline(gdb->deadline_ns, ANSWER_MS));
}

static bool says_stopped(const struct gdb *gdb)
{
	return gdb->packet[0] == 'T' || gdb->packet[0] == 'S';
}

bool gdb_was_stopped(struct gdb *gdb)
{
	const uint64_t until_ns = clock_now_ns() + STOPPED_MS * NS_PER_MS;
	bool stopped = false;

	while (clock_now_ns() < until_ns && (gdb->taken < gdb->got || fill(gdb, 0))) {
		/* Acknowledgements are skipped. */
		if (gdb->in[gdb->taken] != '$')
			gdb->taken++;
		/* Others stopped the guest, and may have resumed it since. */
		else if (!take_text(gdb, socket_deadline(gdb->deadline_ns, ANSWER_MS)))
			break;
		else
			stopped |= says_stopped(gdb);
	}
	gdb->owner_stopped |= stopped;
	return stopped;
}

enum gdb_stopped gdb_stop(struct gdb *gdb, int wait_ms)
{
	const uint64_t until_ns = socket_deadline(gdb->deadline_ns, (unsigned)wait_ms);
	const unsigned requests = gdb->acknowledged;
	size_t skipped;

	gdb->acknowledged = 0;
	if (gdb_was_stopped(gdb))
		return GDB_HALTED;
	skipped = gdb->owner_stopped ? 0 : 1;
	gdb->owner_stopped = false;
	gdb->acknowledged = requests + 1;
	if (!send_bytes(gdb, gdb->batch + skipped, gdb->batch_len - skipped))
		return GDB_NO_ANSWER;
	if (gdb->on_stop_sent)
		gdb->on_stop_sent(gdb->on_stop_sent_ctx);
	/* Other packets are answers that came late. */
	do
		if (!take_packet(gdb, until_ns))
			return GDB_NO_ANSWER;
	while (!says_stopped(gdb) && !gdb->gone);
	return gdb->gone ? GDB_NO_ANSWER : GDB_STOPPED;
}

bool gdb_bytes(const struct gdb *gdb, size_t at, void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		const size_t at_digit = 2 * (at + i);
		const int byte = at_digit + 2 <= gdb->len ? hex_byte(gdb->packet + at_digit) : -1;

		if (byte < 0)
			return false;
		((uint8_t *)bytes)[i] = (uint8_t)byte;
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

static struct error *new_client(const struct sockaddr *address, socklen_t size, struct gdb **out)
{
	struct gdb *gdb;
	const int on = 1;

	TRY(ARRAY_NEW(&gdb, 1));
	gdb->stub = "QEMU's gdb stub";
	gdb->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socket_bound(gdb->fd, SEND_MS);
	if (address->sa_family != AF_UNIX)
		setsockopt(gdb->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	memcpy(&gdb->address, address, size);
	gdb->address_size = size;
	gdb_batch_begin(gdb);
	*out = gdb;
	return NULL;
}

static struct error *prepare_unix(const char *path, struct gdb **out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return new_client((const struct sockaddr *)&address, sizeof(address), out);
}

static struct error *prepare_host(const char *address, struct gdb **out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const char *port = strrchr(address, ':') + 1;
	struct addrinfo *found = NULL;
	struct error *err;
	char host[256];
	int rc;

	snprintf(host, sizeof(host), "%.*s", (int)(port - 1 - address), address);
	rc = getaddrinfo(*host ? host : NULL, port, &hints, &found);
	if (rc)
		return error_new(ERR_GUEST, "no address is known of \"%s\": %s", address,
				 gai_strerror(rc));
	err = new_client(found->ai_addr, found->ai_addrlen, out);
	freeaddrinfo(found);
	return err;
}

struct error *gdb_prepare(const char *address, const char *stub, struct gdb **out)
{
	struct error *err;

	if (!strncmp(address, "unix:", 5) &&
	    strlen(address + 5) < sizeof(((struct sockaddr_un *)0)->sun_path))
		err = prepare_unix(address + 5, out);
	else if (strncmp(address, "unix:", 5) && strchr(address, ':'))
		err = prepare_host(address, out);
	else
		err = error_new(ERR_USAGE,
				"\"%s\" is no address of a gdb stub: give gdb:unix:PATH "
				"or gdb:HOST:PORT",
				address);
	if (!err)
		(*out)->stub = stub;
	return err;
}

static struct error *reach(struct gdb *gdb)
{
	if (gdb->fd >= 0 &&
	    !connect(gdb->fd, (const struct sockaddr *)&gdb->address, gdb->address_size))
		return NULL;
	if (errno == EAGAIN || errno == EINPROGRESS)
		return error_new(ERR_DENIED,
				 "%s takes no connections: it hangs, or too many others wait for "
				 "it",
				 gdb->stub);
	return error_errno(ERR_DENIED, errno, "cannot connect to %s", gdb->stub);
}

static struct error *no_answer(const struct gdb *gdb)
{
	return error_new(ERR_FAILED, "%s does not answer: somebody else may use it", gdb->stub);
}

struct error *gdb_connect(struct gdb *gdb, bool *halted)
{
	TRY(reach(gdb));
	/* The stub reports unasked that it has stopped a guest that ran. */
	*halted = !take_packet(gdb, socket_deadline(gdb->deadline_ns, HALT_MS));
	return gdb_ask(gdb, HELLO) ? NULL : no_answer(gdb);
}

struct error *gdb_greet(struct gdb *gdb)
{
	const uint64_t until_ns = clock_now_ns() + ANSWER_MS * NS_PER_MS;
	bool answered;

	TRY(reach(gdb));
	/* QEMU reports that it has stopped the guest, gdbserver does not. */
	(void)take_packet(gdb, socket_deadline(gdb->deadline_ns, GREETING_MS));
	answered = gdb_ask(gdb, HELLO_ANY);
	while (answered && says_stopped(gdb) && clock_now_ns() < until_ns)
		answered = take_packet(gdb, until_ns);
	return answered ? NULL : no_answer(gdb);
}

struct error *gdb_open(const char *path, bool halted, uint64_t until_ns, struct gdb **out)
{
	TRY(prepare_unix(path, out));
	(*out)->deadline_ns = until_ns;
	TRY(reach(*out));
	if ((halted || take_packet(*out, socket_deadline((*out)->deadline_ns, ANSWER_MS))) &&
	    gdb_ask(*out, HELLO))
		return NULL;
	return no_answer(*out);
}

/* "qRcmd,<hex>": answers "O<hex>" with pieces of what it says, then "OK". */
struct error *gdb_human(struct gdb *gdb, const char *line, char **said)
{
	char request[512] = "qRcmd,";
	const uint64_t until_ns = socket_deadline(gdb->deadline_ns, ANSWER_MS);
	size_t len = strlen(request), said_len = 0;
	bool more;

	for (const char *c = line; *c && len + 3 < sizeof(request); c++)
		len += (size_t)snprintf(request + len, sizeof(request) - len, "%02x", (uint8_t)*c);
	*said = calloc(1, HUMAN_MAX);
	if (!*said)
		return error_no_memory();
	for (more = gdb_ask(gdb, request); more && gdb->packet[0] == 'O' && gdb->packet[1] != 'K';
	     more = take_packet(gdb, until_ns)) {
		const size_t bytes = (gdb->len - 1) / 2;

		memmove(gdb->packet, gdb->packet + 1, gdb->len--);
		if (said_len + bytes < HUMAN_MAX && gdb_bytes(gdb, 0, *said + said_len, bytes))
			said_len += bytes;
	}
	return more ? NULL : no_answer(gdb);
}

void gdb_close(struct gdb *gdb)
{
	if (!gdb)
		return;
	if (gdb->fd >= 0)
		close(gdb->fd);
	free(gdb);
}

/* Longest stay of the guard with a guest that we stopped: a hanging stub may recover. */
#define GUARD_PATIENCE_NS (60 * NS_PER_S)

/* Wait before each further attempt: the stub may have dropped the last one. */
#define GUARD_ATTEMPT_NS (2 * NS_PER_S)

/* Ends a packet that was left half-written, and acknowledges the last answer. */
static const char guard_hello[] = "+#00#00+";

static void guard_keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct gdb_detach *)ctx)->fd);
}

static struct error *guard_detach(void *ctx, enum guard_phase phase)
{
	static const char *const answers[] = {"$OK#9a", NULL};
	const struct gdb_detach *undo = ctx;
	const uint64_t end_ns = clock_now_ns() + GUARD_PATIENCE_NS;
	const ssize_t len = (ssize_t)strlen(undo->packet);
	bool open =
		write(undo->fd, guard_hello, strlen(guard_hello)) == (ssize_t)strlen(guard_hello);

	/* Nothing may be sent after the answer. */
	while (open && clock_now_ns() < end_ns) {
		const uint64_t next_ns = clock_now_ns() + GUARD_ATTEMPT_NS;

		if (write(undo->fd, undo->packet, (size_t)len) != len)
			break;
		if (socket_wait_for(undo->fd, answers, undo->repeats ? next_ns : end_ns, &open))
			break;
	}
	return NULL;
}

const struct guard_ops gdb_detach_guard = {.holds = GUARD_STOPPED,
					   .keeps = guard_keeps,
					   .undo = guard_detach};
