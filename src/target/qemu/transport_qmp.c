/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The transport through QMP alone: stop, "info registers", and cont; and what
 * it shares with the other transport that has QMP.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/x86/x86.h"
#include "base/clock.h"
#include "base/owned.h"
#include "target/host/proc.h"
#include "target/qemu/qemu.h"

/* Flags L and D or B of a segment, as in the upper word of its descriptor (SDM vol. 3, 3.4.5). */
#define SEGMENT_LONG (1u << 21)
#define SEGMENT_BIG  (1u << 22)

/* "RAX=0123" or "R8 =0123" at the beginning of a word; NULL: it is not there. */
static const char *after(const char *text, const char *name)
{
	const size_t len = strlen(name);

	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
		const char *end = at + len;

		if (at != text && at[-1] != ' ' && at[-1] != '\n')
			continue;
		end += *end == ' ';
		if (*end == '=')
			return end + 1;
	}
	return NULL;
}

static bool number(const char *text, const char *name, uint64_t *out)
{
	const char *at = after(text, name);
	char *end = NULL;

	if (at)
		*out = strtoull(at, &end, 16);
	return at && end != at;
}

/* "CS =0008 0000000000000000 ffffffff 00af9b00 DPL=0 CS64 [-R-]": selector, base, limit, flags */
static bool segment(const char *text, const char *name, uint64_t *base, uint32_t *flags)
{
	const char *at = after(text, name);

	return at && sscanf(at, "%*x %" SCNx64 " %*x %" SCNx32, base, flags) == 2;
}

static bool general(const char *text, struct x86_regs *out)
{
	static const char wide[][4] = {"RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI",
				       "R8",  "R9",  "R10", "R11", "R12", "R13", "R14", "R15"};
	static const char narrow[][4] = {"EAX", "ECX", "EDX", "EBX", "ESP", "EBP", "ESI", "EDI"};
	const bool is_wide = after(text, "RIP");
	bool whole = true;

	for (size_t i = 0; i < (is_wide ? 16 : 8); i++)
		whole = number(text, is_wide ? wide[i] : narrow[i], &out->gp[i]) && whole;
	return number(text, is_wide ? "RIP" : "EIP", &out->rip) &&
	       number(text, is_wide ? "RFL" : "EFL", &out->rflags) && whole;
}

bool qemu_registers_text(const char *text, struct x86_regs *out)
{
	uint32_t cs = 0, ss = 0;
	uint64_t cpl = 0;
	bool whole;

	memset(out, 0, sizeof(*out));
	whole = general(text, out) && number(text, "CR0", &out->cr0) &&
		number(text, "CR3", &out->cr3) && number(text, "CR4", &out->cr4) &&
		number(text, "EFER", &out->efer) && number(text, "CPL", &cpl) &&
		segment(text, "CS", &out->cs_base, &cs) && segment(text, "SS", &out->ss_base, &ss);
	out->cs_long = cs & SEGMENT_LONG;
	out->cs_short = !(cs & SEGMENT_BIG);
	out->ss_short = !(ss & SEGMENT_BIG);
	out->cpl = cpl & 3;
	return whole;
}

/* The guard stays so long with a guest that we stopped: a QEMU that hangs may recover. */
#define GUARD_PATIENCE_NS (60 * NS_PER_S)

/* It waits so long to hear whether the guest has moved; a QEMU that lives tells within a millisecond. */
#define GUARD_ASKS_NS (NS_PER_S)

/* Ids of the guard's question and of its last command: tell their answers from others, and from each other's. */
#define ASKED "uniprof-asks"
#define LAST  "uniprof-guard"

#define END_STUB                                                \
	"{\"execute\":\"human-monitor-command\",\"arguments\":" \
	"{\"command-line\":\"gdbserver none\"},\"id\":\"uniprof\"}\n"
/* The guard asks whether the guest has moved; where nothing is left to be done, the answer ends its wait. */
#define STATUS(id) "{\"execute\":\"query-status\",\"id\":\"" id "\"}\n"
#define CONTINUE   "{\"execute\":\"cont\",\"id\":\"" LAST "\"}\n"

/* States of a guest that goes on elsewhere, or is about to (RunState in QEMU's run-state.json). */
#define MOVED  "postmigrate"
#define MOVING "finish-migrate"

static void guard_keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct qemu_qmp_undo *)ctx)->qmp);
}

/* Sends commands, and waits for one of `answers`: QEMU forgets commands of clients that hang up before it. */
static const char *guard_says(int fd, const char *commands, const char *const *answers,
			      uint64_t until_ns)
{
	const size_t len = strlen(commands);
	bool open;

	if (write(fd, commands, len) != (ssize_t)len)
		return NULL;
	return socket_wait_for(fd, answers, until_ns, &open);
}

/* False without an answer, too: a guest left stopped is what a guard prevents before all else. */
static bool guard_finds_it_moved(int fd)
{
	static const char *const answers[] = {MOVED, MOVING, ASKED, NULL};
	uint64_t until_ns = clock_now_ns() + GUARD_ASKS_NS;
	const char *answer = guard_says(fd, "\n" STATUS(ASKED), answers, until_ns);

	until_ns = clock_now_ns() + GUARD_PATIENCE_NS;
	while (answer && !strcmp(answer, MOVING) && clock_now_ns() < until_ns)
		answer = guard_says(fd, STATUS(ASKED), answers, until_ns);
	return answer && strcmp(answer, ASKED);
}

/*
 * Ends the stub before it resumes: what we sent to it last could still stop the
 * guest. A guest that was migrated meanwhile must not go on here; in the last
 * step of a migration, which may yet fail, QEMU would abort. A blank line ends
 * what we may have left half-written.
 */
static struct error *guard_undo(void *ctx, enum guard_phase phase)
{
	static const char *const answers[] = {LAST, NULL};
	const struct qemu_qmp_undo *stub = ctx;
	const bool moved = guard_finds_it_moved(stub->qmp);
	char commands[256];

	snprintf(commands, sizeof(commands), "\n%s%s", stub->started ? END_STUB : "",
		 phase == GUARD_STOPPED && !moved ? CONTINUE : STATUS(LAST));
	guard_says(stub->qmp, commands, answers, clock_now_ns() + GUARD_PATIENCE_NS);
	return NULL;
}

const struct guard_ops qemu_qmp_guard = {.holds = GUARD_STOPPED,
					 .keeps = guard_keeps,
					 .undo = guard_undo};

/* vCPUs are counted about once a second. */
#define LIVES_PER_COUNT 10

/* Counts between two searches for the memory's addresses that found no change, at most. */
#define RAM_WAIT_MAX 63u

struct error *qemu_qmp_connect(const struct qemu_address *address, struct qmp **qmp)
{
	struct error *err = qmp_open(address->qmp, address->until_ns, qmp);

	if (err || !address->pid || (*qmp)->pid == address->pid)
		return err;
	err = error_new(ERR_GUEST, "%s is the QMP socket of process %d, not of process %d",
			address->qmp, (int)(*qmp)->pid, (int)address->pid);
	qmp_close(*qmp);
	*qmp = NULL;
	return err;
}

struct error *qemu_qmp_open(struct qemu *qemu, const struct qemu_address *address,
			    struct qemu_machine *machine)
{
	struct error *err = qemu_qmp_connect(address, &qemu->qmp);
	bool migrated;

	if (err)
		return err;
	qemu->pid = qemu->qmp->pid;
	qmp_watch_migration(qemu->qmp);
	migrated = qemu->qmp->migrated;
	err = qemu_machine_ask(qemu->qmp, machine);
	if (!err && migrated && machine->running)
		qmp_forget_migration(qemu->qmp);
	qemu->halted = !machine->running;
	qemu->vcpus_told = qemu_machine_count(qemu->qmp);
	return err;
}

/*
 * A frame that the guest has no memory for may be in memory that was plugged in
 * since; or it never is, and the guest's registers are nonsense: so it is looked
 * for less and less often.
 */
static void update_memory(struct qemu *qemu)
{
	struct ram_map *map = guest_ram_map(qemu->ram), now;
	struct error *err;

	if (!guest_ram_missed(qemu->ram))
		return;
	if (qemu->ram_waits) {
		qemu->ram_waits--;
		return;
	}
	err = qemu_machine_ram(qemu, &now);
	if (!err && !ram_map_is_same(map, &now)) {
		*map = now;
		guest_ram_forget(qemu->ram);
		qemu->ram_wait = 0;
	} else {
		qemu->ram_wait =
			qemu->ram_wait < RAM_WAIT_MAX ? 2 * qemu->ram_wait + 1 : RAM_WAIT_MAX;
	}
	qemu->ram_waits = qemu->ram_wait;
	error_free(err);
}

/* Tells of resets, and of vCPUs that came or went: QEMU has events for resets alone. */
static void update_news(struct qemu *qemu)
{
	uint32_t vcpus;

	if (qmp_was_reset(qemu->qmp))
		target_tell(&qemu->base, "the guest was reset; the recording goes on");
	if (qemu->lives++ % LIVES_PER_COUNT)
		return;
	update_memory(qemu);
	vcpus = qemu_machine_count(qemu->qmp);
	if (vcpus && vcpus != qemu->vcpus_told)
		target_tell(&qemu->base,
			    vcpus > qemu->vcpus_told
				    ? "a vCPU was plugged in, which is not sampled: record "
				      "the guest anew"
				    : "a vCPU was unplugged");
	qemu->vcpus_told = vcpus;
}

bool qemu_qmp_has_moved(const char *status)
{
	return !strcmp(status, MOVED) || !strcmp(status, MOVING);
}

enum target_life qemu_qmp_life(struct qemu *qemu)
{
	const bool migrated = qemu->qmp->migrated;
	char status[QEMU_STATUS_MAX] = "";
	bool running = false;
	enum target_life end;

	error_free(qemu_machine_status(qemu->qmp, &running, status));
	end = qmp_ended(qemu->qmp);
	if (end != LIFE_RUNS)
		return end;
	if (qemu_qmp_has_moved(status)) {
		target_tell(&qemu->base,
			    qemu->moved_stopped
				    ? "the guest was migrated while it was stopped for a sample: "
				      "where it went, let it go on (cont) if it stands still"
				    : "the guest was migrated: it does not run here any more");
		return LIFE_GONE;
	}
	update_news(qemu);
	qemu->halted = !running;
	if (migrated && running)
		qmp_forget_migration(qemu->qmp);
	if (qemu->qmp->migrates) {
		if (!qemu->migrates)
			target_tell(
				&qemu->base,
				"a migration of the guest began, during which it is left alone");
		qemu->migrates = true;
		return LIFE_PAUSED;
	}
	qemu->migrates = false;
	return running ? LIFE_RUNS : LIFE_PAUSED;
}

/* "info registers" does not tell where page tables are on other processors. */
static struct error *open(struct qemu *qemu, const struct qemu_address *address,
			  struct qemu_machine *machine)
{
	TRY(qemu_qmp_open(qemu, address, machine));
	if (machine->x86)
		return NULL;
	return error_new(ERR_GUEST, "of guests of this instruction set, QMP alone does not tell "
				    "enough: they are read by a gdb stub of ours, which needs that "
				    "QEMU was started without one");
}

static struct error *start(struct qemu *qemu)
{
	qemu->base.info.arch = &arch_x86_64;
	qemu->undo = (struct qemu_qmp_undo){.qmp = qemu->qmp->fd};
	return guard_start(&qemu_qmp_guard, &qemu->undo, &qemu->guard);
}

/* True if QEMU has answered that it has done so. */
static bool obeys(struct qemu *qemu, const char *command)
{
	struct error *err = qmp_execute(qemu->qmp, command, NULL, NULL);
	const bool done = !err;

	error_free(err);
	return done;
}

/* QEMU tells when it stops a guest; it does not when that has been stopped before. */
static enum gdb_stopped stop(struct qemu *qemu, const struct sample *sample)
{
	const unsigned stops = qemu->qmp->stops;

	if (!obeys(qemu, "stop"))
		return GDB_NO_ANSWER;
	return qemu->qmp->stops != stops ? GDB_STOPPED : GDB_HALTED;
}

static bool take(struct qemu *qemu, uint32_t vcpu, struct regs *out)
{
	FREED char *said = NULL;
	struct x86_regs regs;

	error_free(qmp_human(qemu->qmp, (int)vcpu, "info registers", &said));
	if (!said || !qemu_registers_text(said, &regs))
		return false;
	x86_regs_convert(&regs, out);
	return true;
}

static bool go(struct qemu *qemu)
{
	return obeys(qemu, "cont");
}

const struct qemu_transport qemu_transport_qmp = {
	.text = "QMP alone",
	.advice = "the guest stands still several times as long as with a gdb stub of ours, which "
		  "needs that nobody else uses QEMU's",
	.running = GUARD_RUNNING,
	.open = open,
	.start = start,
	.stop = stop,
	.take = take,
	.go = go,
	.go_after_all = go,
	.life = qemu_qmp_life,
};
