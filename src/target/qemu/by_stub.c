/* SPDX-License-Identifier: BSD-3-Clause */

/* By a gdb stub: one that is started through QMP, and ended afterwards. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/qemu/way.h"

/* How often the stub is started anew because the guest was let go while that was done. */
#define STARTS 3

/* Which of the stub's threads is which vCPU: they are in the same order. */
static struct error *name_vcpus(struct qemu *qemu)
{
	const char *request = "qfThreadInfo";
	uint32_t n = 0;

	for (; gdb_ask(qemu->gdb, request) && qemu->gdb->packet[0] == 'm';
	     request = "qsThreadInfo") {
		char *rest = NULL, *name = strtok_r(qemu->gdb->packet + 1, ",", &rest);

		for (; name && n < qemu->base.info.vcpus; name = strtok_r(NULL, ",", &rest), n++)
			snprintf(qemu->vcpu[n].name, VCPU_NAME_MAX, "%s", name);
	}
	return n == qemu->base.info.vcpus
		       ? NULL
		       : error_new(ERR_FAILED, "QEMU's gdb stub tells of %u vCPUs, QEMU of %u", n,
				   qemu->base.info.vcpus);
}

struct error *qemu_stub_prepare(struct qemu *qemu)
{
	struct error *err = gdb_layout_ask(qemu->gdb, &qemu->layout);

	if (err)
		return err;
	qemu->base.info.arch = qemu->layout.machine->arch;
	qemu->shared = shared_new(qemu->pid, qemu->memory, qemu->base.info.vcpus);
	return name_vcpus(qemu);
}

/* All that is to be asked, so that it can be sent at once. */
static void collect(struct qemu *qemu, const struct sample *sample)
{
	char request[VCPU_NAME_MAX + 4];

	gdb_batch_begin(qemu->gdb);
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		if (sample->vcpu[i].same || shared_is_believed(qemu->shared, i))
			continue;
		snprintf(request, sizeof(request), "Hg%s", qemu->vcpu[i].name);
		/* The only one is the one that is meant. */
		if (qemu->base.info.vcpus > 1)
			gdb_batch_add(qemu->gdb, request);
		gdb_layout_request(&qemu->layout, qemu->gdb);
	}
}

enum gdb_stopped qemu_stub_stop(struct qemu *qemu, const struct sample *sample)
{
	collect(qemu, sample);
	return gdb_stop(qemu->gdb, QEMU_STOP_MS);
}

bool qemu_stub_go_after_all(struct qemu *qemu)
{
	return gdb_was_stopped(qemu->gdb) && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb);
}

bool qemu_stub_ask(struct qemu *qemu, const struct sample *sample)
{
	collect(qemu, sample);
	return gdb_batch_send(qemu->gdb);
}

bool qemu_stub_take(struct qemu *qemu, uint32_t vcpu, struct regs *out)
{
	if (shared_is_believed(qemu->shared, vcpu))
		return shared_take(qemu->shared, vcpu, out);
	if ((qemu->base.info.vcpus > 1 && !gdb_batch_next(qemu->gdb)) ||
	    !gdb_layout_take(&qemu->layout, qemu->gdb, out))
		return false;
	shared_compare(qemu->shared, vcpu, out);
	return true;
}

bool qemu_stub_go(struct qemu *qemu)
{
	return gdb_continue(qemu->gdb);
}

bool qemu_stub_gone(struct qemu *qemu)
{
	return gdb_heard(qemu->gdb);
}

static struct error *is_halted(struct qemu *qemu)
{
	char status[32];
	bool running = false;
	struct error *err = qemu_machine_status(qemu->qmp, &running, status, sizeof(status));

	qemu->halted = !running;
	return err;
}

/* Ends the stub, and lets the guest go on that it has stopped. */
static struct error *give_up(struct qemu *qemu)
{
	struct error *err;
	char *said = NULL;

	guard_set(guard_page(qemu->guard), GUARD_STOPPED);
	gdb_close(qemu->gdb);
	qemu->gdb = NULL;
	shared_free(qemu->shared);
	qemu->shared = NULL;
	err = qmp_human(qemu->qmp, "gdbserver none", &said);
	free(said);
	return error_first(err, qmp_execute(qemu->qmp, "cont", NULL, NULL));
}

/*
 * A stub whose guest runs takes the first thing that it is asked for no
 * question, but stops the guest. *again: of a guest that did not run, its owner
 * has let it go meanwhile, and by that it may stand still.
 */
static struct error *try_to_start(struct qemu *qemu, bool *again)
{
	struct error *err = is_halted(qemu);
	const bool was_halted = qemu->halted;
	const unsigned resumes = qmp_resumes(qemu->qmp);

	*again = false;
	if (err)
		return err;
	guard_set(guard_page(qemu->guard), was_halted ? GUARD_MAYBE : GUARD_STOPPED);
	err = stub_start(qemu->qmp, was_halted, &qemu->gdb);
	if (!err)
		err = qemu_stub_prepare(qemu);
	if (!was_halted)
		return err;
	/* Events have come before the answer to this. */
	error_free(is_halted(qemu));
	qemu->halted = true;
	*again = qmp_resumes(qemu->qmp) != resumes;
	if (!*again)
		return err;
	error_free(err);
	return give_up(qemu);
}

static struct error *start(struct qemu *qemu)
{
	struct error *err;
	bool again = true;

	qemu->undo = (struct stub_undo){.qmp = qmp_fd(qemu->qmp), .started = true};
	err = guard_start(&stub_guard, &qemu->undo, &qemu->guard);
	for (int k = 0; k < STARTS && again && !err; k++)
		err = try_to_start(qemu, &again);
	if (!err && again)
		err = error_new(ERR_FAILED, "the guest is stopped and let go all the time");
	qemu->found_halted = qemu->halted;
	if (!err && !qemu->halted && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb))
		guard_set(guard_page(qemu->guard), GUARD_MAYBE);
	return err;
}

const struct qemu_way qemu_by_stub = {
	.name = "stub",
	.text = "gdb stub",
	.rest = GUARD_MAYBE,
	.open = qemu_qmp_open,
	.start = start,
	.console = qemu_qmp_console,
	.stop = qemu_stub_stop,
	.go_after_all = qemu_stub_go_after_all,
	.ask = qemu_stub_ask,
	.take = qemu_stub_take,
	.go = qemu_stub_go,
	.gone = qemu_stub_gone,
	.life = qemu_qmp_life,
};
