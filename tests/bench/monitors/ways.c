/* SPDX-License-Identifier: BSD-3-Clause */
#include "ways.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/gdb/client.h"
#include "target/host/memory.h"
#include "target/qemu/qemu.h"
#include "target/target.h"

#define STACK	   4096u
#define FRAMES_MAX 64
#define STOP_MS	   2000

/* Ours: the sample of a target. */
struct ours {
	struct target *target;
	struct sample *sample;
};

static struct error *open_ours(const char *scheme, const char *name, const char *via, void **state)
{
	struct ours *ours = calloc(1, sizeof(*ours));
	char spec[4200];
	struct error *err;

	if (!ours)
		return error_no_memory();
	*state = ours;
	snprintf(spec, sizeof(spec), "%s:%s", scheme, name);
	err = target_open(spec, via, &ours->target);
	return err ? err : sample_new(ours->target->info.vcpus, STACK, &ours->sample);
}

static struct error *open_bpf(const char *qmp, const char *pid, void **state)
{
	return open_ours("kvm", pid, "bpf", state);
}

static struct error *open_ptrace(const char *qmp, const char *pid, void **state)
{
	return open_ours("kvm", pid, "ptrace", state);
}

static struct error *open_stub(const char *qmp, const char *pid, void **state)
{
	return open_ours("qemu", qmp, "stub", state);
}

static struct error *take_ours(void *state, uint64_t *stopped_ns)
{
	struct ours *ours = state;
	struct error *err;

	ours->sample->vcpu[0].request.again = true;
	err = ours->target->ops->sample(ours->target, ours->sample);
	*stopped_ns = ours->sample->paused_ns;
	return err;
}

static void close_ours(void *state)
{
	struct ours *ours = state;

	sample_free(ours->sample);
	target_close(ours->target);
	free(ours);
}

/* Those of scripts. */
struct script {
	struct qmp *qmp;
	struct gdb *gdb;
	struct gdb_layout layout;
	int memory;
	uint64_t hva; /* of guest-physical address 0; the guest maps its memory as it is */
};

static struct error *say(void *ctx, const char *line, char **said)
{
	return qmp_human(ctx, QMP_NO_VCPU, line, said);
}

static struct error *open_qmp(const char *qmp, const char *pid, void **state)
{
	struct script *script = calloc(1, sizeof(*script));
	struct qemu_console console;
	struct ram_map map;
	struct error *err;

	if (!script)
		return error_no_memory();
	*state = script;
	script->memory = -1;
	err = qmp_open(qmp, 0, &script->qmp);
	console = (struct qemu_console){say, script->qmp};
	if (!err)
		err = qemu_machine_ram(&console, &map);
	if (!err && !ram_map_find(&map, 0, &script->hva))
		err = error_new(ERR_GUEST, "no memory at 0");
	return err ? err : host_memory_open((pid_t)atoi(pid), false, &script->memory);
}

static struct error *take_qmp(void *state, uint64_t *stopped_ns)
{
	struct script *script = state;
	const uint64_t began = clock_now_ns();
	struct error *err = qmp_execute(script->qmp, "stop", NULL, NULL);
	uint8_t stack[STACK];
	char *said = NULL, *rsp;

	if (!err)
		err = qmp_human(script->qmp, QMP_NO_VCPU, "info registers -a", &said);
	rsp = said ? strstr(said, "RSP=") : NULL;
	if (rsp)
		(void)host_memory_read(script->memory, script->hva + strtoull(rsp + 4, NULL, 16),
				       stack, sizeof(stack));
	free(said);
	err = error_first(err, qmp_execute(script->qmp, "cont", NULL, NULL));
	*stopped_ns = clock_now_ns() - began;
	return err;
}

static void close_script(void *state)
{
	struct script *script = state;
	char *said = NULL;

	if (script->gdb)
		error_free(qmp_human(script->qmp, QMP_NO_VCPU, "gdbserver none", &said));
	free(said);
	gdb_close(script->gdb);
	qmp_close(script->qmp);
	if (script->memory >= 0)
		close(script->memory);
	free(script);
}

static struct error *open_frames(const char *qmp, const char *pid, void **state)
{
	struct error *err = open_qmp(qmp, pid, state);
	struct script *script = *state;

	if (!err)
		err = qemu_stub_start(script->qmp, false, 0, &script->gdb);
	if (!err)
		err = gdb_layout_ask(script->gdb, &script->layout);
	if (!err && !gdb_continue(script->gdb))
		err = error_new(ERR_FAILED, "the stub is gone");
	return err;
}

/* A frame record at a time, each by a question to the stub. */
static void walk(struct script *script, uint64_t rbp)
{
	for (int i = 0; i < FRAMES_MAX && rbp; i++) {
		uint64_t record[2];
		char request[48];

		snprintf(request, sizeof(request), "m%" PRIx64 ",10", rbp);
		if (!gdb_ask(script->gdb, request) ||
		    !gdb_bytes(script->gdb, 0, record, sizeof(record)) || record[0] <= rbp)
			break;
		rbp = record[0];
	}
}

static struct error *take_frames(void *state, uint64_t *stopped_ns)
{
	struct script *script = state;
	const uint64_t began = clock_now_ns();
	struct regs regs;

	gdb_batch_begin(script->gdb);
	if (gdb_stop(script->gdb, STOP_MS) != GDB_STOPPED)
		return error_new(ERR_FAILED, "the guest does not stop");
	gdb_batch_begin(script->gdb);
	gdb_layout_request(&script->layout, script->gdb);
	if (gdb_batch_send(script->gdb) && gdb_layout_take(&script->layout, script->gdb, &regs))
		walk(script, regs.fp);
	gdb_continue(script->gdb);
	*stopped_ns = clock_now_ns() - began;
	return NULL;
}

const struct way ways[WAYS] = {
	{"bpf", open_bpf, take_ours, close_ours},
	{"ptrace", open_ptrace, take_ours, close_ours},
	{"stub", open_stub, take_ours, close_ours},
	{"stub-per-frame", open_frames, take_frames, close_script},
	{"qmp", open_qmp, take_qmp, close_script},
};

_Static_assert(sizeof(ways) / sizeof(*ways) == WAYS, "all that there are");
