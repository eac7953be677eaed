/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * By the gdb stub that QEMU was started with (-s, -gdb), where there is no QMP:
 * QEMU's human monitor is reached through the stub.
 */

#include "target/host/proc.h"
#include "target/qemu/way.h"

static struct error *say(void *ctx, const char *line, char **said)
{
	struct qemu *qemu = ctx;

	return gdb_human(qemu->gdb, line, said);
}

static struct qemu_console console(struct qemu *qemu)
{
	return (struct qemu_console){say, qemu};
}

/* From connecting on the guest stands still, until start() is through. */
static struct error *open(struct qemu *qemu, const struct qemu_place *place,
			  struct qemu_machine *machine)
{
	const struct qemu_console monitor = console(qemu);
	struct error *err = gdb_prepare(place->gdb, &qemu->gdb);

	qemu->pid = place->pid;
	if (err)
		return err;
	qemu->undo = (struct stub_undo){.gdb = gdb_fd(qemu->gdb)};
	err = guard_start(&own_stub_guard, &qemu->undo, &qemu->guard);
	if (err)
		return err;
	guard_set(guard_page(qemu->guard), GUARD_STOPPED);
	err = gdb_connect(qemu->gdb, &qemu->halted);
	if (qemu->halted)
		guard_set(guard_page(qemu->guard), GUARD_RUNNING);
	return err ? err : qemu_machine_read(&monitor, machine);
}

static struct error *start(struct qemu *qemu)
{
	struct error *err = qemu_stub_prepare(qemu);

	if (!err && !qemu->halted && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb))
		guard_set(guard_page(qemu->guard), GUARD_RUNNING);
	return err;
}

/* The stub says when the guest is stopped by others, not when it goes on: then its threads run. */
static bool runs_again(struct qemu *qemu)
{
	bool runs = false;

	for (uint32_t i = 0; i < qemu->base.info.vcpus; i++) {
		struct thread_time now;

		thread_time(&qemu->vcpu[i].thread, &now);
		runs |= now.known && now.cpu_ns != qemu->vcpu[i].time.cpu_ns;
		qemu->vcpu[i].time = now;
	}
	return runs;
}

static enum target_life life(struct qemu *qemu)
{
	if (!proc_group(qemu->pid) || gdb_is_gone(qemu->gdb))
		return LIFE_GONE;
	if (qemu->halted && runs_again(qemu))
		qemu->halted = false;
	return qemu->halted ? LIFE_PAUSED : LIFE_RUNS;
}

const struct qemu_way qemu_by_own_stub = {
	.name = "own-stub",
	.text = "its own gdb stub",
	.advice = "it has no QMP socket, so that it is stopped while it is connected to, and its "
		  "end cannot be told from its death",
	.rest = GUARD_RUNNING,
	.open = open,
	.start = start,
	.console = console,
	.stop = qemu_stub_stop,
	.go_after_all = qemu_stub_go_after_all,
	.ask = qemu_stub_ask,
	.take = qemu_stub_take,
	.go = qemu_stub_go,
	.gone = qemu_stub_gone,
	.life = life,
};
