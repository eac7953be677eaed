/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest behind any gdb stub: all of it is stopped, asked for registers and
 * stacks, and let go. The stub may be a monitor's (a machine) or a program's.
 */

#include "target/gdb/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/host/memory.h"

#define STOP_MS 2000

/*
 * Bounds of all exchanges of one pause, and of those that open the guest, which
 * stands still meanwhile.
 */
#define PAUSE_NS (2 * NS_PER_S)
#define OPEN_NS	 (5 * NS_PER_S / 2)

/*
 * Time in which a stub that has told too little is asked to detach; the guard
 * goes on after that.
 */
#define GIVE_UP_NS (NS_PER_S / 2)

/* Spare slots for threads that begin while a program is sampled, and the bound on all. */
#define SPARE_THREADS 16u
#define THREADS_MAX   256u

/* Bytes of memory in one request. A stub that gives no packet size takes 400 characters. */
#define PIECE_LEAST 128u
#define PIECE_MOST  2048u

static struct error *not_stopped(const struct remote *remote)
{
	return error_new(ERR_FAILED, remote->halted
					     ? "the guest was stopped by others, or by a signal"
					     : "the gdb stub does not stop the guest in time");
}

struct error *remote_pause(struct remote *remote, uint64_t *began_ns)
{
	struct guard_page *guard = guard_page(remote->guard);

	*began_ns = clock_now_ns();
	remote->gdb->deadline_ns = *began_ns + PAUSE_NS;
	guard_set(guard, GUARD_STOPPED);
	gdb_batch_begin(remote->gdb);
	switch (gdb_stop(remote->gdb, STOP_MS)) {
	case GDB_STOPPED:
		return NULL;
	case GDB_HALTED:
		guard_set(guard, GUARD_RUNNING);
		remote->halted = true;
		break;
	case GDB_NO_ANSWER:
		remote->late = true;
		break;
	}
	remote->gdb->deadline_ns = 0;
	return not_stopped(remote);
}

uint64_t remote_resume(struct remote *remote, uint64_t began_ns)
{
	const bool goes = gdb_continue(remote->gdb);
	const uint64_t paused_ns = clock_now_ns() - began_ns;

	if (goes && gdb_heard(remote->gdb))
		guard_set(guard_page(remote->guard), GUARD_RUNNING);
	remote->gdb->deadline_ns = 0;
	return paused_ns;
}

/* Detaches: after a mere hang-up, gdbserver would keep the program, and answer nobody any more. */
static void detach(struct remote *remote)
{
	struct error *err;
	uint64_t began_ns;

	if (!remote->attached || remote->halted || remote->late || remote->gdb->gone)
		return;
	err = remote_pause(remote, &began_ns);
	if (!err && gdb_ask(remote->gdb, "D"))
		guard_set(guard_page(remote->guard), GUARD_RUNNING);
	error_free(err);
}

static void remote_close(struct target *target)
{
	struct remote *remote = (struct remote *)target;

	detach(remote);
	/* The guard holds a guest that is still stopped. */
	guard_stop(remote->guard);
	gdb_close(remote->gdb);
	free(remote->thread);
	free(remote->page);
	free(remote);
}

static uint32_t take_names(char *list, char (*names)[GDB_THREAD_MAX], uint32_t max)
{
	char *save = NULL;
	uint32_t n = 0;

	for (char *name = strtok_r(list, ",", &save); name && n < max;
	     name = strtok_r(NULL, ",", &save))
		if (strlen(name) < GDB_THREAD_MAX)
			strcpy(names[n++], name);
	return n;
}

static struct error *list_threads(struct remote *remote)
{
	char names[THREADS_MAX][GDB_THREAD_MAX];
	const char *request = "qfThreadInfo";
	uint32_t n = 0;

	for (; n < THREADS_MAX && gdb_ask(remote->gdb, request) && remote->gdb->packet[0] == 'm';
	     request = "qsThreadInfo")
		n += take_names(remote->gdb->packet + 1, names + n, THREADS_MAX - n);
	if (!n)
		return error_new(ERR_GUEST, "the gdb stub tells of no threads (qfThreadInfo)");
	remote->base.info.spare = remote->process ? SPARE_THREADS : 0;
	remote->base.info.vcpus = n + remote->base.info.spare;
	TRY(ARRAY_NEW(&remote->thread, remote->base.info.vcpus));
	for (uint32_t i = 0; i < n; i++)
		strcpy(remote->thread[i].name, names[i]);
	return NULL;
}

/* Signals of a program are passed on; only those that stop it for us are not. */
static void pass_signals(struct gdb *gdb)
{
	char request[512] = "QPassSignals:";
	size_t len = strlen(request);

	for (unsigned i = 1; i < 0x98; i++)
		if (i != 2 && i != 5 && i != 17)
			len += (size_t)snprintf(request + len, sizeof(request) - len, "%s%x",
						i == 1 ? "" : ";", i);
	(void)gdb_ask(gdb, request);
}

static void note_features(struct remote *remote)
{
	const char *size = strstr(remote->gdb->packet, "PacketSize=");
	const size_t packet = size ? strtoul(size + strlen("PacketSize="), NULL, 16) : 0;
	const size_t room = packet > 16 ? (packet - 16) / 2 : 0;
	const bool signals = strstr(remote->gdb->packet, "QPassSignals+");

	remote->piece = room < PIECE_LEAST  ? PIECE_LEAST
			: room > PIECE_MOST ? PIECE_MOST
					    : room & ~(size_t)7;
	/* Only programs have an auxiliary vector. */
	remote->process = strstr(remote->gdb->packet, "qXfer:auxv:read+");
	/* gdbserver aborts when registers are asked for before a thread is selected. */
	(void)gdb_ask(remote->gdb, "Hg0");
	if (signals)
		pass_signals(remote->gdb);
	remote->gdb->plain_continue =
		!gdb_ask(remote->gdb, "vCont?") || !strstr(remote->gdb->packet, ";c");
}

/* The program's file is used if this host has it. */
static void find_image(struct remote *remote)
{
	struct target_info *info = &remote->base.info;

	if (remote->process && gdb_ask(remote->gdb, "qXfer:exec-file:read::0,3ff") &&
	    remote->gdb->packet[0] == 'l' && !access(remote->gdb->packet + 1, R_OK))
		snprintf(info->image, sizeof(info->image), "%s", remote->gdb->packet + 1);
}

static void describe(struct remote *remote, const char *address)
{
	struct target_info *info = &remote->base.info;
	const char *slash = strrchr(*info->image ? info->image : address, '/');

	snprintf(info->name, sizeof(info->name), "%s", slash ? slash + 1 : address);
	snprintf(info->id, sizeof(info->id), "%s", slash ? slash + 1 : address);
	snprintf(info->type, sizeof(info->type), "%s", remote->process ? "process" : "machine");
	snprintf(info->host, sizeof(info->host), "a gdb stub at %s", address);
	info->arch = remote->layout.machine->arch;
}

static struct error *start_guard(struct remote *remote)
{
	TRY(guard_start(&gdb_detach_guard, &remote->detach, &remote->guard));
	guard_set(guard_page(remote->guard), GUARD_STOPPED);
	return NULL;
}

/* A running guard cannot be told anything new: another one replaces it. */
static struct error *tell_guard_to_repeat(struct remote *remote)
{
	struct guard *first = remote->guard;
	struct error *err;

	remote->detach.repeats = true;
	err = start_guard(remote);
	if (err) {
		remote->guard = first;
		return err;
	}
	guard_set(guard_page(first), GUARD_RUNNING);
	guard_replace(first, remote->guard);
	return NULL;
}

/* Answers that came too late may be missing without a sign: threads, above all. */
static struct error *check_time(const struct remote *remote)
{
	if (clock_now_ns() < remote->gdb->deadline_ns)
		return NULL;
	return error_new(ERR_FAILED,
			 "the gdb stub takes more than 2.5 seconds to tell of its guest, which "
			 "stands still meanwhile");
}

/* Asks for everything that has to be known of the guest. */
static struct error *ask(struct remote *remote, const char *address)
{
	struct error *err = NULL, *late;

	note_features(remote);
	if (remote->process)
		err = tell_guard_to_repeat(remote);
	if (!err)
		err = gdb_layout_ask(remote->gdb, &remote->layout);
	if (!err)
		err = list_threads(remote);
	if (!err)
		find_image(remote);
	if (!err)
		describe(remote, address);
	late = check_time(remote);
	if (!late)
		return err;
	error_free(err);
	return late;
}

/* Detaches from a guest that stands still since it was opened. */
static void give_up(struct remote *remote)
{
	remote->gdb->deadline_ns = clock_now_ns() + GIVE_UP_NS;
	if (gdb_ask(remote->gdb, "D"))
		guard_set(guard_page(remote->guard), GUARD_RUNNING);
}

static struct error *attach(struct remote *remote, const char *address)
{
	struct error *err = gdb_prepare(address, "the gdb stub", &remote->gdb);

	if (err)
		return err;
	TRY(ARRAY_NEW(&remote->page, REMOTE_PAGES));
	remote->detach = (struct gdb_detach){.fd = remote->gdb->fd, .packet = "$D#44"};
	err = start_guard(remote);
	remote->gdb->deadline_ns = clock_now_ns() + OPEN_NS;
	if (!err)
		err = gdb_greet(remote->gdb);
	if (err)
		return err;
	err = ask(remote, address);
	if (err) {
		give_up(remote);
		return err;
	}
	(void)remote_resume(remote, clock_now_ns());
	remote->attached = true;
	return NULL;
}

static struct error *remote_open(const char *name, const char *via, struct target **out)
{
	struct remote *remote;
	struct error *err;

	TRY(ARRAY_NEW(&remote, 1));
	remote->base.ops = &target_gdb;
	remote->base.usual_overhead = LONG_STOPS_OVERHEAD;
	err = attach(remote, name);
	if (err)
		remote_close(&remote->base);
	else
		*out = &remote->base;
	return err;
}

static bool is_listed(const struct remote *remote, const char *name)
{
	for (uint32_t i = 0; i < remote->base.info.vcpus; i++)
		if (!strcmp(remote->thread[i].name, name))
			return true;
	return false;
}

/* Puts new threads into free slots; they are read from the next sample on. */
static void add_threads(struct remote *remote, char (*names)[GDB_THREAD_MAX], uint32_t n)
{
	uint32_t slot = 0;

	for (uint32_t k = 0; k < n; k++) {
		if (is_listed(remote, names[k]))
			continue;
		while (slot < remote->base.info.vcpus && *remote->thread[slot].name)
			slot++;
		if (slot == remote->base.info.vcpus)
			return;
		strcpy(remote->thread[slot].name, names[k]);
	}
}

static uint32_t known_threads(const struct remote *remote)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < remote->base.info.vcpus; i++)
		n += *remote->thread[i].name != '\0';
	return n;
}

/* Stubs name one thread in each answer: asks for the known ones, and for a new one. */
static void request_threads(struct remote *remote, uint32_t known)
{
	gdb_batch_add(remote->gdb, "qfThreadInfo");
	for (uint32_t i = 0; i < known; i++)
		gdb_batch_add(remote->gdb, "qsThreadInfo");
}

static bool take_threads(struct remote *remote, uint32_t known)
{
	char names[THREADS_MAX][GDB_THREAD_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i <= known; i++) {
		if (!gdb_batch_next(remote->gdb))
			return false;
		if (remote->gdb->packet[0] == 'm')
			n += take_names(remote->gdb->packet + 1, names + n, THREADS_MAX - n);
	}
	add_threads(remote, names, n);
	return true;
}

static void request_registers(struct remote *remote, uint32_t vcpus)
{
	for (uint32_t i = 0; i < vcpus; i++) {
		if (!*remote->thread[i].name)
			continue;
		gdb_batch_select(remote->gdb, remote->thread[i].name);
		gdb_layout_request(&remote->layout, remote->gdb);
	}
}

/* Threads that have ended are off-line. */
static void take_registers(struct remote *remote, uint32_t i, struct vcpu_sample *vcpu)
{
	struct remote_thread *thread = &remote->thread[i];
	bool there;

	vcpu->online = false;
	if (!*thread->name)
		return;
	there = gdb_batch_next(remote->gdb) && !strcmp(remote->gdb->packet, "OK");
	vcpu->online = gdb_layout_take(&remote->layout, remote->gdb, &vcpu->regs) && there;
	if (remote->process)
		vcpu->regs.user = false;
	if (!there)
		*thread = (struct remote_thread){0};
}

/* The registers of all threads, in one exchange. */
static bool read_registers(struct remote *remote, struct sample *sample)
{
	const uint32_t known = known_threads(remote);

	gdb_batch_begin(remote->gdb);
	request_registers(remote, sample->vcpus);
	if (remote->process)
		request_threads(remote, known);
	if (!gdb_batch_send(remote->gdb))
		return false;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		take_registers(remote, i, &sample->vcpu[i]);
	return (!remote->process || take_threads(remote, known)) && !remote->gdb->gone;
}

/* Instructions in front of the pc, as the last bytes of four. */
struct wait_instruction {
	uint8_t len;
	bool halts; /* by itself; else it is a system call, which may wait */
	uint8_t bytes[4];
};

static const struct wait_instruction x86_waits[] = {
	{1, true, {0xf4}},	  /* hlt */
	{2, false, {0x0f, 0x05}}, /* syscall */
	{2, false, {0x0f, 0x34}}, /* sysenter */
	{2, false, {0xcd, 0x80}}, /* int $0x80 */
	{0},
};
static const struct wait_instruction arm64_waits[] = {
	{4, true, {0x7f, 0x20, 0x03, 0xd5}},  /* wfi */
	{4, true, {0x5f, 0x20, 0x03, 0xd5}},  /* wfe */
	{4, false, {0x01, 0x00, 0x00, 0xd4}}, /* svc #0 */
	{0},
};
static const struct wait_instruction riscv_waits[] = {
	{4, true, {0x73, 0x00, 0x50, 0x10}},  /* wfi */
	{4, false, {0x73, 0x00, 0x00, 0x00}}, /* ecall */
	{0},
};
static const struct wait_instruction no_waits[] = {{0}};

static const struct wait_instruction *instructions(const struct regs *regs)
{
	switch (regs->isa) {
	case ISA_X86:
		return x86_waits;
	case ISA_ARM:
		return regs->word == 8 ? arm64_waits : no_waits;
	case ISA_RISCV:
		return riscv_waits;
	}
	return no_waits;
}

static bool is_unmoved(const struct regs *regs, const struct regs *before)
{
	return before && before->pc == regs->pc && before->sp == regs->sp &&
	       !memcmp(before->gp, regs->gp, sizeof(regs->gp));
}

/*
 * True of a vCPU that waits: it halted in the instruction before `pc`, the last
 * four bytes of which are `code`, or made a system call there and has the
 * registers of the sample `before` (NULL: there was none).
 */
static bool waits(const struct regs *regs, const struct regs *before, const uint8_t code[4])
{
	for (const struct wait_instruction *i = instructions(regs); i->len; i++)
		if (!memcmp(code + 4 - i->len, i->bytes, i->len))
			return i->halts || is_unmoved(regs, before);
	return false;
}

static void read_vcpu(struct remote *remote, uint32_t i, struct vcpu_sample *vcpu)
{
	struct remote_thread *thread = &remote->thread[i];
	char request[GDB_THREAD_MAX + 4];
	uint8_t code[4] = {0};

	snprintf(request, sizeof(request), "Hg%s", thread->name);
	if (!gdb_ask(remote->gdb, request))
		return;
	virtual_memory_copy_stacks(remote_window, remote, vcpu);
	(void)remote_memory(remote, vcpu->regs.pc - sizeof(code), code, sizeof(code));
	vcpu->state = waits(&vcpu->regs, thread->known ? &thread->regs : NULL, code) ? VCPU_BLOCKED
										     : VCPU_RUNNING;
	thread->regs = vcpu->regs;
	thread->known = true;
}

static void read_vcpus(struct remote *remote, struct sample *sample, uint64_t began_ns)
{
	const uint64_t most_ns = sample->request.max_pause_ns;

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->same = false;
		vcpu->hurried = false;
		vcpu->ran_ns = 0;
		vcpu->stack.len = 0;
		vcpu->given_up = vcpu->online && most_ns && clock_now_ns() - began_ns > most_ns;
		if (vcpu->online && !vcpu->given_up)
			read_vcpu(remote, i, vcpu);
	}
}

static struct error *read_paused(struct remote *remote, struct sample *sample)
{
	uint64_t began_ns;
	bool read;

	TRY(remote_pause(remote, &began_ns));
	read = read_registers(remote, sample);
	if (read)
		read_vcpus(remote, sample, began_ns);
	sample->paused_ns = remote_resume(remote, began_ns);
	return read ? NULL : error_new(ERR_FAILED, "the gdb stub does not tell registers");
}

static struct error *remote_sample(struct target *target, struct sample *sample)
{
	struct remote *remote = (struct remote *)target;
	struct error *err;

	sample->paused_ns = 0;
	sample->stolen_ns = remote->stolen_ns;
	remote->stolen_ns = 0;
	sample->time_ns = clock_now_ns();
	if (remote->halted || remote->late)
		err = not_stopped(remote);
	else
		err = read_paused(remote, sample);
	if (err && remote->gdb->gone) {
		error_free(err);
		err = error_new(ERR_ENDED, "the gdb stub's guest has ended, or the stub has");
	}
	return err;
}

/* A guest that did not stop in time may have stopped since. */
static void resume_late(struct remote *remote)
{
	if (!remote->late || !gdb_was_stopped(remote->gdb) || !gdb_continue(remote->gdb) ||
	    !gdb_heard(remote->gdb))
		return;
	remote->late = false;
	guard_set(guard_page(remote->guard), GUARD_RUNNING);
}

static enum target_life remote_life(struct target *target)
{
	struct remote *remote = (struct remote *)target;

	resume_late(remote);
	if (remote->gdb->gone)
		return LIFE_GONE;
	if (!guard_check(remote->guard))
		return LIFE_UNGUARDED;
	return remote->halted ? LIFE_PAUSED : LIFE_RUNS;
}

const struct target_ops target_gdb = {
	.scheme = "gdb",
	.open = remote_open,
	.close = remote_close,
	.sample = remote_sample,
	.life = remote_life,
	.read = remote_read,
};
