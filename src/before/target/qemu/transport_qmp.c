/* SPDX-License-Identifier: BSD-3-Clause */

/* By QMP alone: stop, what "info registers" says, and cont. */

#include <stdlib.h>
#include <string.h>

#include "arch/x86_regs.h"
#include "target/qemu/registers_text.h"
#include "target/qemu/way.h"

/* vCPUs are counted about once a second. */
#define LIVES_PER_COUNT 10

/* Counts between looks where memory is that found it unchanged, at most. */
#define RAM_WAIT_MAX 63u

struct error *qemu_qmp_open(struct qemu *qemu, const struct qemu_place *place,
			    struct qemu_machine *machine)
{
	struct error *err = qmp_open(place->qmp, &qemu->qmp);
	bool migrated;

	if (err)
		return err;
	qemu->pid = qmp_pid(qemu->qmp);
	qmp_watch_migration(qemu->qmp);
	migrated = qmp_migrated(qemu->qmp);
	err = qemu_machine_ask(qemu->qmp, machine);
	if (!err && migrated && machine->running)
		qmp_forget_migration(qemu->qmp);
	qemu->halted = !machine->running;
	qemu->vcpus_told = qemu_machine_count(qemu->qmp);
	return err;
}

static struct error *say(void *ctx, const char *line, char **said)
{
	struct qemu *qemu = ctx;

	return qmp_human(qemu->qmp, line, said);
}

struct qemu_console qemu_qmp_console(struct qemu *qemu)
{
	return (struct qemu_console){say, qemu};
}

/*
 * A frame that the guest has no memory for may be in memory that was plugged in
 * since; or it never is, and the guest's registers are nonsense: so it is looked
 * for less and less often.
 */
static void look_for_memory(struct qemu *qemu)
{
	const struct qemu_console console = qemu_qmp_console(qemu);
	struct ram_map *map = guest_ram_map(qemu->ram), now;
	struct error *err;

	if (!guest_ram_missed(qemu->ram))
		return;
	if (qemu->ram_waits) {
		qemu->ram_waits--;
		return;
	}
	err = qemu_machine_ram(&console, &now);
	if (!err && !ram_map_is_same(map, &now)) {
		qemu->base.news = "the guest's memory has changed; it is seen where it is now";
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

/* QEMU tells of resets, and of vCPUs only when asked. */
static void look_for_news(struct qemu *qemu)
{
	uint32_t vcpus;

	if (qmp_was_reset(qemu->qmp))
		qemu->base.news = "the guest was reset; the recording goes on";
	if (qemu->lives++ % LIVES_PER_COUNT)
		return;
	look_for_memory(qemu);
	vcpus = qemu_machine_count(qemu->qmp);
	if (vcpus && vcpus != qemu->vcpus_told)
		qemu->base.news = vcpus > qemu->vcpus_told
					  ? "a vCPU was plugged in, which is not sampled: record "
					    "the guest anew"
					  : "a vCPU was unplugged";
	qemu->vcpus_told = vcpus;
}

/* The states of a guest that goes on elsewhere (RunState in QEMU's run-state.json). */
static bool has_moved(const char *status)
{
	return !strcmp(status, "postmigrate") || !strcmp(status, "finish-migrate");
}

enum target_life qemu_qmp_life(struct qemu *qemu)
{
	const bool migrated = qmp_migrated(qemu->qmp);
	bool running = false;
	char status[32] = "";

	error_free(qemu_machine_status(qemu->qmp, &running, status, sizeof(status)));
	switch (qmp_ended(qemu->qmp)) {
	case QMP_LIVES:
		break;
	case QMP_SHUT_DOWN:
		return LIFE_SHUT_DOWN;
	case QMP_PANICKED:
		return LIFE_CRASHED;
	case QMP_GONE:
		return LIFE_GONE;
	}
	if (has_moved(status)) {
		qemu->base.news = "the guest was migrated: it does not run here any more";
		return LIFE_GONE;
	}
	look_for_news(qemu);
	qemu->halted = !running;
	if (migrated && running)
		qmp_forget_migration(qemu->qmp);
	if (qmp_migrates(qemu->qmp)) {
		if (!qemu->migrates)
			qemu->base.news =
				"a migration of the guest began, during which it is left alone";
		qemu->migrates = true;
		return LIFE_PAUSED;
	}
	qemu->migrates = false;
	return running ? LIFE_RUNS : LIFE_PAUSED;
}

/* "info registers" does not tell where page tables are on other processors. */
static struct error *open(struct qemu *qemu, const struct qemu_place *place,
			  struct qemu_machine *machine)
{
	struct error *err = qemu_qmp_open(qemu, place, machine);

	if (err || machine->x86)
		return err;
	return error_new(ERR_GUEST, "of guests of this instruction set, QMP alone does not tell "
				    "enough: they are read by a gdb stub of ours, which needs that "
				    "QEMU was started without one");
}

static struct error *start(struct qemu *qemu)
{
	qemu->base.info.arch = &arch_x86_64;
	qemu->undo = (struct stub_undo){.qmp = qmp_fd(qemu->qmp)};
	return guard_start(&stub_guard, &qemu->undo, &qemu->guard);
}

/* QEMU tells when it stops a guest; it does not when that has been stopped before. */
static enum gdb_stopped stop(struct qemu *qemu, const struct sample *sample)
{
	const unsigned stops = qmp_stops(qemu->qmp);
	struct error *err = qmp_execute(qemu->qmp, "stop", NULL, NULL);
	const bool answered = !err;

	error_free(err);
	if (!answered)
		return GDB_NO_ANSWER;
	return qmp_stops(qemu->qmp) != stops ? GDB_STOPPED : GDB_HALTED;
}

static bool ask(struct qemu *qemu, const struct sample *sample)
{
	return true;
}

static bool take(struct qemu *qemu, uint32_t vcpu, struct regs *out)
{
	struct x86_regs regs;
	char *said = NULL;
	struct error *err = qmp_human_of(qemu->qmp, vcpu, "info registers", &said);
	const bool whole = !err && qemu_registers_text(said, &regs);

	if (whole)
		x86_regs_take(&regs, out);
	error_free(err);
	free(said);
	return whole;
}

static bool go(struct qemu *qemu)
{
	struct error *err = qmp_execute(qemu->qmp, "cont", NULL, NULL);
	const bool goes = !err;

	error_free(err);
	return goes;
}

/* It has answered. */
static bool gone(struct qemu *qemu)
{
	return true;
}

const struct qemu_way qemu_by_qmp = {
	.name = "qmp",
	.text = "QMP alone",
	.advice = "the guest stands still several times as long as with a gdb stub of ours, which "
		  "needs that nobody else uses QEMU's",
	.rest = GUARD_RUNNING,
	.open = open,
	.start = start,
	.console = qemu_qmp_console,
	.stop = stop,
	.ask = ask,
	.take = take,
	.go = go,
	.go_after_all = go,
	.gone = gone,
	.life = qemu_qmp_life,
};
