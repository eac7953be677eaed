/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest of QEMU's, emulated (TCG) or by KVM: stopped and asked for registers
 * through the gdb stub, while its memory is read from QEMU's process.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/host/memory.h"
#include "target/host/monitor.h"
#include "target/host/proc.h"
#include "target/host/thread_time.h"
#include "target/qemu/layout.h"
#include "target/qemu/machine.h"
#include "target/qemu/stub.h"
#include "target/vcpu_copy.h"
#include "target/vcpu_state.h"
#include "target/window.h"

/* A guest that does not stop in this time is stopped already, by somebody else. */
#define STOP_MS 2000

#define VCPU_NAME_MAX 24

struct qemu_vcpu {
	char name[VCPU_NAME_MAX]; /* the stub's: "p01.01" */
	struct thread thread;	  /* only looked at */
	bool runnable;
	struct thread_time time;
};

struct qemu {
	struct target base;
	struct qmp *qmp;
	struct gdb *gdb;
	struct gdb_layout layout;
	struct qemu_vcpu *vcpu;
	struct stub_undo undo;
	struct guard *guard;
	int memory;
	struct guest_ram *ram;
	bool halted;	   /* by its owner, as far as is known */
	bool found_halted; /* ... and has been since it was opened */
};

static void qemu_close(struct target *target)
{
	struct qemu *qemu = (struct qemu *)target;

	/* The guard ends the stub. */
	guard_stop(qemu->guard);
	gdb_close(qemu->gdb);
	qmp_close(qemu->qmp);
	for (uint32_t i = 0; qemu->vcpu && i < target->info.vcpus; i++)
		thread_unwatch(&qemu->vcpu[i].thread);
	free(qemu->vcpu);
	guest_ram_free(qemu->ram);
	if (qemu->memory >= 0)
		close(qemu->memory);
	free(qemu);
}

/* A socket's path, or a process by id or name and the socket that it was started with. */
static struct error *find_socket(const char *name, char *path, size_t size)
{
	struct error *err;
	pid_t pid;

	if (strchr(name, '/')) {
		snprintf(path, size, "%s", name);
		return NULL;
	}
	err = monitor_find(name, "qemu", qemu_vcpus, &pid);
	if (err)
		return err;
	if (!proc_group(pid))
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	qemu_qmp_path(pid, path, size);
	return *path ? NULL
		     : error_new(ERR_DENIED,
				 "process %d was started without a QMP socket: give it one (-qmp "
				 "unix:PATH,server=on,wait=off), or, if it uses KVM, try kvm:%d",
				 (int)pid, (int)pid);
}

static struct error *watch_vcpus(struct qemu *qemu, const struct qemu_machine *machine)
{
	qemu->vcpu = calloc(machine->vcpus, sizeof(*qemu->vcpu));
	if (!qemu->vcpu)
		return error_no_memory();
	qemu->base.info.vcpus = machine->vcpus;
	for (uint32_t i = 0; i < machine->vcpus; i++)
		thread_watch(&qemu->vcpu[i].thread, qmp_pid(qemu->qmp), machine->tid[i]);
	return NULL;
}

static void describe(struct qemu *qemu, const struct qemu_machine *machine)
{
	struct target_info *info = &qemu->base.info;
	const pid_t pid = qmp_pid(qemu->qmp);

	monitor_name(pid, info->name, sizeof(info->name));
	monitor_image(pid, info->image, sizeof(info->image));
	snprintf(info->id, sizeof(info->id), "%d", (int)pid);
	snprintf(info->type, sizeof(info->type), "%s", machine->kvm ? "kvm" : "tcg");
	snprintf(info->host, sizeof(info->host), "QEMU %s, gdb stub",
		 machine->kvm ? "with KVM" : "with TCG");
	info->arch = &arch_x86_64;
}

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
		       : error_new(ERR_FAILED, "QEMU's gdb stub tells of %u vCPUs, QMP of %u", n,
				   qemu->base.info.vcpus);
}

static struct error *start_stub(struct qemu *qemu)
{
	struct guard_page *page;
	struct error *err;

	qemu->undo.qmp = qmp_fd(qemu->qmp);
	err = guard_start(&stub_guard, &qemu->undo, &qemu->guard);
	if (err)
		return err;
	page = guard_page(qemu->guard);
	guard_set(page, qemu->halted ? GUARD_MAYBE : GUARD_STOPPED);
	err = stub_start(qemu->qmp, qemu->halted, &qemu->gdb);
	if (!err)
		err = gdb_layout_ask(qemu->gdb, &qemu->layout);
	if (!err)
		err = name_vcpus(qemu);
	if (!err && !qemu->halted && gdb_continue(qemu->gdb))
		guard_set(page, GUARD_MAYBE);
	return err;
}

static struct error *attach(struct qemu *qemu, const char *path)
{
	struct qemu_machine machine;
	struct error *err = qmp_open(path, &qemu->qmp);

	if (!err)
		err = qemu_machine_ask(qemu->qmp, &machine);
	if (err)
		return err;
	qemu->halted = !machine.running;
	qemu->found_halted = qemu->halted;
	err = watch_vcpus(qemu, &machine);
	if (!err)
		err = host_memory_open(qmp_pid(qemu->qmp), false, &qemu->memory);
	if (!err)
		err = guest_ram_new(qemu->memory, &qemu->ram);
	if (!err)
		err = qemu_machine_ram(qemu->qmp, guest_ram_map(qemu->ram));
	if (err)
		return err;
	describe(qemu, &machine);
	return start_stub(qemu);
}

static struct error *qemu_open(const char *name, struct target **out)
{
	struct qemu *qemu = calloc(1, sizeof(*qemu));
	char path[4096];
	struct error *err;

	if (!qemu)
		return error_no_memory();
	qemu->base.ops = &target_qemu;
	qemu->memory = -1;
	err = find_socket(name, path, sizeof(path));
	if (!err)
		err = attach(qemu, path);
	if (err)
		qemu_close(&qemu->base);
	else
		*out = &qemu->base;
	return err;
}

/* While the guest is stopped: one vCPU's registers and stack. */
static bool read_vcpu(struct qemu *qemu, uint32_t i, struct vcpu_sample *vcpu)
{
	const struct physmem mem = {guest_ram_frame, qemu->ram};
	char request[VCPU_NAME_MAX + 4];
	struct x86_regs regs;

	snprintf(request, sizeof(request), "Hg%s", qemu->vcpu[i].name);
	/* The only one is the one that is meant. */
	if ((qemu->base.info.vcpus > 1 && !gdb_ask(qemu->gdb, request)) ||
	    !gdb_ask(qemu->gdb, "g") || !gdb_layout_take(qemu->gdb, &qemu->layout, &regs))
		return false;
	x86_regs_take(&regs, &vcpu->regs);
	vcpu_copy_stacks(qemu->base.info.arch, &mem, vcpu);
	return true;
}

/* Before the guest is stopped: who runs? False: nobody has since the last sample. */
static bool look_at_threads(struct qemu *qemu, struct sample *sample)
{
	bool any = false;

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct qemu_vcpu *own = &qemu->vcpu[i];
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		thread_time(&own->thread, &own->time);
		own->runnable = thread_letter(&own->thread) == 'R';
		vcpu->online = true;
		vcpu->given_up = false;
		vcpu->hurried = false;
		vcpu->same = vcpu->held && !vcpu->again && !own->runnable && own->time.known &&
			     own->time.cpu_ns == vcpu->cpu_ns;
		any |= !vcpu->same;
	}
	return any;
}

static void keep_account(struct qemu *qemu, struct sample *sample)
{
	const int64_t since_ns = (int64_t)(sample->time_ns - sample->noted_ns);

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct qemu_vcpu *own = &qemu->vcpu[i];
		struct vcpu_sample *vcpu = &sample->vcpu[i];
		const struct vcpu_load load = {.cpu_ns = own->time.cpu_ns,
					       .running = own->runnable,
					       .blocked = !own->runnable};

		vcpu->ran_ns = vcpu->held ? own->time.cpu_ns - vcpu->cpu_ns : 0;
		vcpu->state = vcpu_state_of(&load, vcpu, since_ns);
		vcpu->cpu_ns = own->time.cpu_ns;
		vcpu->held |= vcpu->online;
	}
	sample->noted_ns = sample->time_ns;
}

static void read_vcpus(struct qemu *qemu, struct sample *sample, bool *whole)
{
	*whole = true;
	guest_ram_forget(qemu->ram);
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (!sample->vcpu[i].same)
			*whole = read_vcpu(qemu, i, &sample->vcpu[i]) && *whole;
}

static struct error *no_registers(void)
{
	return error_new(ERR_FAILED, "QEMU's gdb stub does not tell registers");
}

/* As its owner has left it. */
static struct error *read_halted(struct qemu *qemu, struct sample *sample)
{
	bool whole;

	read_vcpus(qemu, sample, &whole);
	return whole ? NULL : no_registers();
}

static struct error *read_stopped(struct qemu *qemu, struct sample *sample)
{
	struct guard_page *page = guard_page(qemu->guard);
	const uint64_t began = clock_now_ns();
	enum gdb_stopped stopped;
	bool whole;

	guard_set(page, GUARD_STOPPED);
	stopped = gdb_stop(qemu->gdb, STOP_MS);
	if (stopped != GDB_STOPPED) {
		guard_set(page, GUARD_MAYBE);
		qemu->halted = true;
		return error_new(ERR_FAILED, "the guest has been stopped by its owner");
	}
	read_vcpus(qemu, sample, &whole);
	if (gdb_continue(qemu->gdb))
		guard_set(page, GUARD_MAYBE);
	sample->paused_ns = clock_now_ns() - began;
	return whole ? NULL : no_registers();
}

static struct error *qemu_sample(struct target *target, struct sample *sample)
{
	struct qemu *qemu = (struct qemu *)target;
	struct error *err = NULL;

	sample->retakes = 0;
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	sample->time_ns = clock_now_ns();
	if (qemu->found_halted && look_at_threads(qemu, sample))
		err = read_halted(qemu, sample);
	else if (qemu->halted)
		err = error_new(ERR_FAILED, "the guest has been stopped by its owner");
	else if (look_at_threads(qemu, sample))
		err = read_stopped(qemu, sample);
	if (!err)
		keep_account(qemu, sample);
	else if (qmp_ended(qemu->qmp) != QMP_LIVES) {
		error_free(err);
		err = error_new(ERR_ENDED, "QEMU has ended");
	}
	return err;
}

static bool guard_failed(struct qemu *qemu)
{
	struct error *err = guard_check(qemu->guard);
	bool failed = err != NULL;

	error_free(err);
	return failed;
}

static enum target_life qemu_life(struct target *target)
{
	struct qemu *qemu = (struct qemu *)target;
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
	if (guard_failed(qemu))
		return LIFE_UNGUARDED;
	qemu->halted = !running;
	qemu->found_halted &= !running;
	return running ? LIFE_RUNS : LIFE_PAUSED;
}

static size_t qemu_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			size_t len)
{
	struct qemu *qemu = (struct qemu *)target;
	const struct physmem mem = {guest_ram_frame, qemu->ram};

	guest_ram_forget(qemu->ram);
	return window_read(target->info.arch, &regs->mmu, &mem, va, buf, len);
}

static struct error *qemu_list(void (*each)(void *ctx, const struct target_listing *entry),
			       void *ctx)
{
	return monitor_list("qemu", qemu_vcpus, each, ctx);
}

const struct target_ops target_qemu = {
	.scheme = "qemu",
	.open = qemu_open,
	.close = qemu_close,
	.sample = qemu_sample,
	.life = qemu_life,
	.read = qemu_read,
	.list = qemu_list,
};
