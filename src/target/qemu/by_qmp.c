/* SPDX-License-Identifier: BSD-3-Clause */

/* By QMP alone: stop, what "info registers" says, and cont. */

#include <stdlib.h>
#include <unistd.h>

#include "target/qemu/registers_text.h"
#include "target/qemu/way.h"

struct error *qemu_qmp_open(struct qemu *qemu, const struct qemu_place *place,
			    struct qemu_machine *machine)
{
	struct error *err = qmp_open(place->qmp, &qemu->qmp);

	if (err)
		return err;
	qemu->pid = qmp_pid(qemu->qmp);
	err = qemu_machine_ask(qemu->qmp, machine);
	qemu->halted = !machine->running;
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

enum target_life qemu_qmp_life(struct qemu *qemu)
{
	bool running = false;
	char status[32];

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
	qemu->halted = !running;
	return running ? LIFE_RUNS : LIFE_PAUSED;
}

static struct error *start(struct qemu *qemu)
{
	qemu->undo = (struct stub_undo){.qmp = qmp_fd(qemu->qmp)};
	return guard_start(&stub_guard, &qemu->undo, &qemu->guard);
}

/* QEMU tells when it stops a guest; it does not when that has been stopped before. */
static bool stop(struct qemu *qemu, const struct sample *sample)
{
	const unsigned stops = qmp_stops(qemu->qmp);
	struct error *err = qmp_execute(qemu->qmp, "stop", NULL, NULL);
	const bool ours = !err && qmp_stops(qemu->qmp) != stops;

	error_free(err);
	return ours;
}

static bool ask(struct qemu *qemu, const struct sample *sample)
{
	return true;
}

static bool take(struct qemu *qemu, uint32_t vcpu, struct x86_regs *out)
{
	char *said = NULL;
	struct error *err = qmp_human_of(qemu->qmp, vcpu, "info registers", &said);
	const bool whole = !err && qemu_registers_text(said, out);

	error_free(err);
	free(said);
	return whole;
}

static bool go(struct qemu *qemu)
{
	struct error *err = qmp_execute(qemu->qmp, "cont", NULL, NULL);
	const bool gone = !err;

	error_free(err);
	return gone;
}

const struct qemu_way qemu_by_qmp = {
	.name = "qmp",
	.text = "QMP alone",
	.advice = "the guest stands still several times as long as with a gdb stub of ours, which "
		  "needs that nobody else uses QEMU's",
	.rest = GUARD_RUNNING,
	.open = qemu_qmp_open,
	.start = start,
	.console = qemu_qmp_console,
	.stop = stop,
	.ask = ask,
	.take = take,
	.go = go,
	.life = qemu_qmp_life,
};
