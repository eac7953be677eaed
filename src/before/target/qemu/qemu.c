/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest of QEMU's, emulated (TCG) or by KVM: stopped and asked for registers
 * in one of several ways, while its memory is read from QEMU's process.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/host/memory.h"
#include "target/host/monitor.h"
#include "target/host/proc.h"
#include "target/qemu/way.h"
#include "target/vcpu_copy.h"
#include "target/vcpu_state.h"
#include "target/window.h"

static void qemu_close(struct target *target)
{
	struct qemu *qemu = (struct qemu *)target;

	/* The guard ends the stub. */
	guard_stop(qemu->guard);
	shared_free(qemu->shared);
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

/* A socket's path, or a process by id or name and what that was started with. */
static struct error *find_place(const char *name, struct qemu_place *place)
{
	struct error *err;

	if (strchr(name, '/')) {
		snprintf(place->qmp, sizeof(place->qmp), "%s", name);
		return NULL;
	}
	err = monitor_find(name, "qemu", qemu_vcpus, &place->pid);
	if (err)
		return err;
	if (!proc_group(place->pid))
		return error_new(ERR_GUEST, "there is no process %d", (int)place->pid);
	qemu_qmp_path(place->pid, place->qmp, sizeof(place->qmp));
	qemu_gdb_address(place->pid, place->gdb, sizeof(place->gdb));
	return *place->qmp || *place->gdb
		       ? NULL
		       : error_new(ERR_DENIED,
				   "process %d was started with neither a QMP socket nor a gdb "
				   "stub: give it one (-qmp unix:PATH,server=on,wait=off), or, if "
				   "it uses KVM, try kvm:%d",
				   (int)place->pid, (int)place->pid);
}

static struct error *watch_vcpus(struct qemu *qemu, const struct qemu_machine *machine)
{
	qemu->vcpu = calloc(machine->vcpus, sizeof(*qemu->vcpu));
	if (!qemu->vcpu)
		return error_no_memory();
	qemu->base.info.vcpus = machine->vcpus;
	for (uint32_t i = 0; i < machine->vcpus; i++)
		thread_watch(&qemu->vcpu[i].thread, qemu->pid, machine->tid[i]);
	return NULL;
}

static void describe(struct qemu *qemu, const struct qemu_machine *machine)
{
	struct target_info *info = &qemu->base.info;
	const pid_t pid = qemu->pid;

	monitor_name(pid, info->name, sizeof(info->name));
	monitor_image(pid, info->image, sizeof(info->image));
	snprintf(info->id, sizeof(info->id), "%d", (int)pid);
	snprintf(info->type, sizeof(info->type), "%s", machine->kvm ? "kvm" : "tcg");
	snprintf(info->host, sizeof(info->host), "QEMU %s, %s",
		 machine->kvm ? "with KVM" : "with TCG", qemu->way->text);
	qemu->base.way = qemu->way->text;
	qemu->base.advice = qemu->way->advice;
}

static struct error *attach(struct qemu *qemu, const struct qemu_place *place)
{
	struct qemu_machine machine;
	struct qemu_console console;
	struct error *err = qemu->way->open(qemu, place, &machine);

	if (err)
		return err;
	qemu->found_halted = qemu->halted;
	console = qemu->way->console(qemu);
	err = watch_vcpus(qemu, &machine);
	if (!err)
		err = host_memory_open(qemu->pid, false, &qemu->memory);
	if (!err)
		err = guest_ram_new(qemu->memory, &qemu->ram);
	if (!err)
		err = qemu_machine_ram(&console, guest_ram_map(qemu->ram));
	if (err)
		return err;
	describe(qemu, &machine);
	return qemu->way->start(qemu);
}

static struct error *open_by(const struct qemu_way *way, const struct qemu_place *place,
			     struct target **out)
{
	struct qemu *qemu = calloc(1, sizeof(*qemu));
	struct error *err;

	if (!qemu)
		return error_no_memory();
	qemu->base.ops = &target_qemu;
	qemu->way = way;
	qemu->memory = -1;
	err = attach(qemu, place);
	if (err)
		qemu_close(&qemu->base);
	else
		*out = &qemu->base;
	return err;
}

/* A stub that others have started would be theirs no more. */
static struct error *open_by_qmp(const struct qemu_place *place, struct target **out)
{
	struct qmp *qmp = NULL;
	struct error *err = qmp_open(place->qmp, &qmp);
	const bool has_stub = !err && qemu_machine_has_stub(qmp);

	qmp_close(qmp);
	return err ? err : open_by(has_stub ? &qemu_by_qmp : &qemu_by_stub, place, out);
}

static struct error *open_via(const char *via, const struct qemu_place *place, struct target **out)
{
	if (!strcmp(via, qemu_by_own_stub.name))
		return *place->gdb ? open_by(&qemu_by_own_stub, place, out)
				   : error_new(ERR_GUEST, "this QEMU was started without a gdb "
							  "stub (-s, -gdb), or is known by its "
							  "socket alone");
	if (!*place->qmp)
		return error_new(ERR_GUEST, "this QEMU was started without a QMP socket");
	return open_by(strcmp(via, qemu_by_qmp.name) ? &qemu_by_stub : &qemu_by_qmp, place, out);
}

static struct error *qemu_open_via(const char *name, const char *via, struct target **out)
{
	struct qemu_place place = {0};
	struct error *err = find_place(name, &place);

	if (err)
		return err;
	if (via)
		return open_via(via, &place, out);
	return *place.qmp ? open_by_qmp(&place, out) : open_by(&qemu_by_own_stub, &place, out);
}

static struct error *qemu_open(const char *name, struct target **out)
{
	return qemu_open_via(name, NULL, out);
}

/* While the guest is stopped, and its registers have been asked for. */
static bool read_vcpu(struct qemu *qemu, uint32_t i, struct vcpu_sample *vcpu)
{
	const struct physmem mem = {guest_ram_frame, qemu->ram};

	if (!qemu->way->take(qemu, i, &vcpu->regs))
		return false;
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

static bool read_vcpus(struct qemu *qemu, struct sample *sample)
{
	bool whole = true;

	guest_ram_forget(qemu->ram);
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (!sample->vcpu[i].same)
			whole = read_vcpu(qemu, i, &sample->vcpu[i]) && whole;
	return whole;
}

static struct error *no_registers(const struct qemu *qemu)
{
	return error_new(ERR_FAILED, "QEMU does not tell registers (%s)", qemu->way->text);
}

/* As its owner has left it. */
static struct error *read_halted(struct qemu *qemu, struct sample *sample)
{
	return qemu->way->ask(qemu, sample) && read_vcpus(qemu, sample) ? NULL : no_registers(qemu);
}

static struct error *halted(void)
{
	return error_new(ERR_FAILED, "the guest has been stopped by its owner");
}

static struct error *late(void)
{
	return error_new(ERR_FAILED, "QEMU does not stop the guest in time");
}

static struct error *read_stopped(struct qemu *qemu, struct sample *sample)
{
	struct guard_page *page = guard_page(qemu->guard);
	const uint64_t began = clock_now_ns();
	bool whole, goes;

	guard_set(page, GUARD_STOPPED);
	switch (qemu->way->stop(qemu, sample)) {
	case GDB_STOPPED:
		break;
	case GDB_HALTED:
		guard_set(page, qemu->way->rest);
		qemu->halted = true;
		return halted();
	case GDB_NO_ANSWER:
		qemu->late = true;
		return late();
	}
	whole = read_vcpus(qemu, sample);
	goes = qemu->way->go(qemu);
	sample->paused_ns = clock_now_ns() - began;
	if (goes && qemu->way->gone(qemu))
		guard_set(page, qemu->way->rest);
	return whole ? NULL : no_registers(qemu);
}

static bool has_ended(struct qemu *qemu)
{
	return qemu->qmp ? qmp_ended(qemu->qmp) != QMP_LIVES : gdb_is_gone(qemu->gdb);
}

/* To be known before the guest is stopped. */
static bool is_migrating(struct qemu *qemu)
{
	return qemu->qmp && qmp_ended(qemu->qmp) == QMP_LIVES && qmp_migrates(qemu->qmp);
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
		err = halted();
	else if (qemu->late)
		err = late();
	else if (is_migrating(qemu))
		err = error_new(ERR_FAILED, "the guest is being migrated");
	else if (look_at_threads(qemu, sample))
		err = read_stopped(qemu, sample);
	if (!err)
		keep_account(qemu, sample);
	else if (has_ended(qemu)) {
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

/* What was told to stop in vain may have done so since. */
static void let_late_one_go(struct qemu *qemu)
{
	if (!qemu->late || !qemu->way->go_after_all(qemu))
		return;
	qemu->late = false;
	guard_set(guard_page(qemu->guard), qemu->way->rest);
}

static enum target_life qemu_life(struct target *target)
{
	struct qemu *qemu = (struct qemu *)target;
	enum target_life life;

	let_late_one_go(qemu);
	life = qemu->way->life(qemu);
	qemu->found_halted &= life == LIFE_PAUSED;
	if ((life == LIFE_RUNS || life == LIFE_PAUSED) && guard_failed(qemu))
		return LIFE_UNGUARDED;
	return life;
}

static size_t qemu_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			size_t len)
{
	struct qemu *qemu = (struct qemu *)target;
	const struct physmem mem = {guest_ram_frame, qemu->ram};

	guest_ram_forget(qemu->ram);
	return window_read(target->info.arch, &regs->mmu, &mem, va, buf, len);
}

enum { BY_STUB, BY_OWN_STUB, BY_QMP };

static const struct target_way ways[] = {
	[BY_STUB] = {"stub", "80 us", "a gdb stub that is started for this and ended afterwards"},
	[BY_OWN_STUB] = {"own-stub", "80 us", "the gdb stub that QEMU was started with"},
	[BY_QMP] = {"qmp", "500 us", "QMP's stop, info registers and cont"},
	{0},
};

static void likely_way(pid_t pid, struct target_listing *entry)
{
	struct qemu_place place = {0};

	qemu_qmp_path(pid, place.qmp, sizeof(place.qmp));
	qemu_gdb_address(pid, place.gdb, sizeof(place.gdb));
	if (*place.qmp && *place.gdb) {
		entry->way = &ways[BY_QMP];
		entry->missing = "a gdb stub of ours would take the place of QEMU's own";
	} else if (*place.qmp) {
		entry->way = &ways[BY_STUB];
	} else if (*place.gdb) {
		entry->way = &ways[BY_OWN_STUB];
	} else {
		entry->missing = "give it a QMP socket: -qmp unix:PATH,server=on,wait=off";
	}
}

static struct error *qemu_list(void (*each)(void *ctx, const struct target_listing *entry),
			       void *ctx)
{
	return monitor_list("qemu", qemu_vcpus, likely_way, each, ctx);
}

const struct target_ops target_qemu = {
	.scheme = "qemu",
	.ways = ways,
	.open = qemu_open,
	.open_via = qemu_open_via,
	.close = qemu_close,
	.sample = qemu_sample,
	.life = qemu_life,
	.read = qemu_read,
	.list = qemu_list,
};
