/* SPDX-License-Identifier: BSD-3-Clause */

/* By a gdb stub: one that is started through QMP, and ended afterwards. */

#include <stdio.h>
#include <string.h>

#include "target/qemu/way.h"

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

static struct error *start(struct qemu *qemu)
{
	struct guard_page *page;
	struct error *err;

	qemu->undo = (struct stub_undo){.qmp = qmp_fd(qemu->qmp), .started = true};
	err = guard_start(&stub_guard, &qemu->undo, &qemu->guard);
	if (err)
		return err;
	page = guard_page(qemu->guard);
	guard_set(page, qemu->halted ? GUARD_MAYBE : GUARD_STOPPED);
	err = stub_start(qemu->qmp, qemu->halted, &qemu->gdb);
	if (!err)
		err = qemu_stub_prepare(qemu);
	if (!err && !qemu->halted && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb))
		guard_set(page, GUARD_MAYBE);
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
