/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest of QEMU's, emulated (TCG) or by KVM: stopped and asked for registers
 * in one of several ways, while its memory is read from QEMU's process.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/host/memory.h"
#include "target/host/proc.h"
#include "target/kvm/vcpus.h"
#include "target/qemu/qemu.h"

#define STOPS 3 /* of an owner's that are over, in one sample */

static void qemu_close(struct target *target)
{
	struct qemu *qemu = (struct qemu *)target;

	qemu_hold_free(qemu->hold);
	/* The guard ends the stub. */
	guard_stop(qemu->guard);
	qemu_pages_free(qemu->pages);
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

/* Bound on the time for all further questions. */
static void converse(struct qemu *qemu, uint64_t ms)
{
	const uint64_t until_ns = clock_now_ns() + ms * UINT64_C(1000000);

	if (qemu->qmp)
		qemu->qmp->deadline_ns = until_ns;
	if (qemu->gdb)
		qemu->gdb->deadline_ns = until_ns;
}

static bool is_socket(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISSOCK(st.st_mode);
}

/* Takes a socket's path, or finds a process by id or name and the sockets it was started with. */
static struct error *find_address(const char *name, struct qemu_address *address)
{
	if (strchr(name, '/') || is_socket(name)) {
		snprintf(address->qmp, sizeof(address->qmp), "%s", name);
		return NULL;
	}
	TRY(monitor_find(name, "qemu", qemu_is, &address->pid));
	if (!proc_group(address->pid))
		return error_new(ERR_GUEST, "there is no process %d", (int)address->pid);
	qemu_find_sockets(address->pid, address);
	return *address->qmp || *address->gdb
		       ? NULL
		       : error_new(ERR_DENIED,
				   "process %d was started with neither a QMP socket nor a gdb "
				   "stub: give it one (-qmp unix:PATH,server=on,wait=off), or, if "
				   "it uses KVM, try kvm:%d",
				   (int)address->pid, (int)address->pid);
}

static struct error *watch_vcpus(struct qemu *qemu, const struct qemu_machine *machine)
{
	TRY(ARRAY_NEW(&qemu->vcpu, machine->vcpus));
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
	snprintf(info->host, sizeof(info->host), "QEMU %s, %s%s",
		 machine->kvm ? "with KVM" : "with TCG", qemu->transport->text,
		 qemu->hold ? ", " TARGET_HOLDS_VCPUS : "");
	qemu->base.way = qemu->transport->text;
}

/* A guest whose vCPUs cannot be held is sampled as well; its owner is told what that costs. */
static void hold_vcpus(struct qemu *qemu, const struct qemu_machine *machine)
{
	struct error *err = qemu_hold_new(qemu->pid, machine, &qemu->hold);

	if (!err) {
		qemu->base.role = SECCOMP_TRACER;
		return;
	}
	snprintf(
		qemu->advice, sizeof(qemu->advice),
		"code that runs in the 10 us after a device access gets too small a share, because "
		"vCPUs cannot be held: %s",
		err->text);
	qemu->base.advice = qemu->advice;
	error_free(err);
}

static struct error *attach(struct qemu *qemu, const struct qemu_address *address)
{
	struct qemu_machine machine;
	struct error *err = qemu->transport->open(qemu, address, &machine);
	const char *why;

	if (err)
		return err;
	qemu->found_halted = qemu->halted;
	why = machine.kvm ? kvm_protection(qemu->pid) : NULL;
	err = why ? error_new(ERR_GUEST, "%s", why) : watch_vcpus(qemu, &machine);
	if (!err)
		err = host_memory_open(qemu->pid, false, &qemu->memory);
	if (!err)
		err = guest_ram_new(qemu->memory, &qemu->ram);
	qemu->base.memory = guest_ram_memory(qemu->ram);
	if (!err)
		err = qemu_machine_ram(qemu, guest_ram_map(qemu->ram));
	if (err)
		return err;
	qemu->base.advice = *address->qmp && qemu->transport->advice_with_qmp
				    ? qemu->transport->advice_with_qmp
				    : qemu->transport->advice;
	err = qemu->transport->start(qemu);
	if (!err && qemu->gdb && !machine.kvm)
		hold_vcpus(qemu, &machine);
	describe(qemu, &machine);
	return err;
}

static struct error *open_with(const struct qemu_transport *transport,
			       const struct qemu_address *address, struct target **out)
{
	struct qemu *qemu;
	struct error *err;

	TRY(ARRAY_NEW(&qemu, 1));
	qemu->base.ops = &target_qemu;
	qemu->base.usual_overhead = LONG_STOPS_OVERHEAD;
	qemu->transport = transport;
	qemu->memory = -1;
	err = attach(qemu, address);
	if (err)
		qemu_close(&qemu->base);
	else
		*out = &qemu->base;
	return err;
}

enum { VIA_STUB, VIA_OWN_STUB, VIA_QMP };

static const struct target_way ways[] = {
	[VIA_STUB] = {"stub", "150 us", "a gdb stub that is started for this and ended afterwards"},
	[VIA_OWN_STUB] = {"own-stub", "150 us", "the gdb stub that QEMU was started with"},
	[VIA_QMP] = {"qmp", "500 us", "QMP's stop, info registers and cont"},
	{0},
};

/* A stub that others have started must stay theirs: QEMU has one at most. */
static struct error *open_with_qmp(const struct qemu_address *address, struct target **out)
{
	struct qmp *qmp = NULL;
	struct error *err = qemu_qmp_connect(address, &qmp);
	const bool has_stub = !err && qemu_machine_has_stub(qmp);

	qmp_close(qmp);
	return err ? err
		   : open_with(has_stub ? &qemu_transport_qmp : &qemu_transport_stub, address, out);
}

static struct error *open_via(const char *via, const struct qemu_address *address,
			      struct target **out)
{
	if (!strcmp(via, ways[VIA_OWN_STUB].name))
		return *address->gdb ? open_with(&qemu_transport_own_stub, address, out)
				     : error_new(ERR_GUEST, "this QEMU was started without a gdb "
							    "stub (-s, -gdb), or is known by its "
							    "socket alone");
	if (!*address->qmp)
		return error_new(ERR_GUEST, "this QEMU was started without a QMP socket");
	return open_with(strcmp(via, ways[VIA_QMP].name) ? &qemu_transport_stub
							 : &qemu_transport_qmp,
			 address, out);
}

static struct error *qemu_open(const char *name, const char *via, struct target **out)
{
	struct qemu_address address = {0};

	TRY(find_address(name, &address));
	address.until_ns = clock_now_ns() + QEMU_OPEN_MS * UINT64_C(1000000);
	if (via)
		return open_via(via, &address, out);
	return *address.qmp ? open_with_qmp(&address, out)
			    : open_with(&qemu_transport_own_stub, &address, out);
}

/* Runs while the guest is stopped, after its registers were asked for. */
static bool read_vcpu(struct qemu *qemu, uint32_t i, struct sample *sample)
{
	struct vcpu_sample *vcpu = &sample->vcpu[i];

	if (!qemu->transport->take(qemu, i, &vcpu->regs))
		return false;
	paged_memory_copy_stacks(&qemu->base.memory, qemu->base.info.arch, vcpu);
	paged_memory_copy_thread(&qemu->base.memory, qemu->base.info.arch, vcpu,
				 sample->request.thread);
	paged_memory_copy_frames(&qemu->base.memory, qemu->base.info.arch, vcpu,
				 sample->request.frames);
	return true;
}

/*
 * Reads the threads' times before the guest is stopped; false: none has run
 * since the last sample.
 */
static bool read_thread_times(struct qemu *qemu, struct sample *sample)
{
	bool any = false;

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct qemu_vcpu *own = &qemu->vcpu[i];
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		thread_time(&own->thread, &own->time);
		own->runnable = thread_letter(&own->thread) == 'R';
		vcpu->online = true;
		vcpu->same = vcpu->account.held && !vcpu->request.again && !own->runnable &&
			     own->time.known && own->time.cpu_ns == vcpu->account.cpu_ns;
		any |= !vcpu->same;
	}
	return any;
}

static void keep_account(struct qemu *qemu, struct sample *sample)
{
	const int64_t since_ns = (int64_t)(sample->time_ns - sample->account.noted_ns);

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct qemu_vcpu *own = &qemu->vcpu[i];
		struct vcpu_sample *vcpu = &sample->vcpu[i];
		const struct vcpu_load load = {.cpu_ns = own->time.cpu_ns,
					       .running = own->runnable,
					       .blocked = !own->runnable};

		vcpu->ran_ns = vcpu->account.held ? own->time.cpu_ns - vcpu->account.cpu_ns : 0;
		vcpu->state = vcpu_state_of(&load, vcpu, since_ns);
		vcpu->account.cpu_ns = own->time.cpu_ns;
		vcpu->account.held |= vcpu->online;
	}
	sample->account.noted_ns = sample->time_ns;
}

static bool read_vcpus(struct qemu *qemu, struct sample *sample)
{
	const struct qemu_transport *transport = qemu->transport;
	bool whole = true;

	guest_ram_forget(qemu->ram);
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (!sample->vcpu[i].same)
			whole = read_vcpu(qemu, i, sample) && whole;
	return whole && (!transport->take_traps || transport->take_traps(qemu, sample));
}

static struct error *no_registers(const struct qemu *qemu)
{
	return error_new(ERR_FAILED, "QEMU does not tell registers (%s)", qemu->transport->text);
}

/* Reads a guest that its owner has stopped. */
static struct error *read_halted(struct qemu *qemu, struct sample *sample)
{
	const struct qemu_transport *transport = qemu->transport;

	return (!transport->ask || transport->ask(qemu, sample)) && read_vcpus(qemu, sample)
		       ? NULL
		       : no_registers(qemu);
}

static struct error *halted(void)
{
	return error_new(ERR_FAILED, "the guest has been stopped by its owner");
}

static struct error *late(void)
{
	return error_new(ERR_FAILED, "QEMU does not stop the guest in time");
}

/*
 * Stops the guest. A stop by its owner that we hear of now may be over: so QEMU
 * is asked. An owner who stops and resumes it again and again is believed after
 * STOPS times. *began_ns: when it was stopped.
 */
static enum gdb_stopped stop(struct qemu *qemu, struct sample *sample, uint64_t *began_ns)
{
	struct guard_page *page = guard_page(qemu->guard);
	enum gdb_stopped stopped;

	for (int k = 0; k < STOPS; k++) {
		*began_ns = clock_now_ns();
		guard_set(page, GUARD_STOPPED);
		qemu_hold_begin(qemu->hold);
		stopped = qemu->transport->stop(qemu, sample);
		qemu_hold_end(qemu->hold);
		if (stopped != GDB_HALTED)
			return stopped;
		guard_set(page, qemu->transport->running);
		qemu->halted = true;
		if (qemu->transport->life(qemu) != LIFE_RUNS)
			break;
	}
	return GDB_HALTED;
}

static bool has_ended(struct qemu *qemu)
{
	return qemu->qmp ? qmp_ended(qemu->qmp) != LIFE_RUNS : qemu->gdb->gone;
}

/* Asked before the guest is stopped, which it must not be during a migration. */
static bool is_migrating(struct qemu *qemu)
{
	return qemu->qmp && qmp_ended(qemu->qmp) == LIFE_RUNS && qemu->qmp->migrates;
}

/*
 * A guest that was migrated while it was stopped for a sample goes on elsewhere.
 * The guard lets it go on here if that fails. Only a migration's events, which
 * cost nothing, let us ask for its state.
 */
static bool has_moved(struct qemu *qemu)
{
	char status[QEMU_STATUS_MAX] = "";
	bool running;

	if (!is_migrating(qemu))
		return false;
	error_free(qemu_machine_status(qemu->qmp, &running, status));
	qemu->moved_stopped |= qemu_qmp_has_moved(status);
	return qemu->moved_stopped;
}

static struct error *read_stopped(struct qemu *qemu, struct sample *sample)
{
	struct guard_page *page = guard_page(qemu->guard);
	uint64_t began_ns;
	bool whole, goes;

	switch (stop(qemu, sample, &began_ns)) {
	case GDB_STOPPED:
		break;
	case GDB_HALTED:
		return halted();
	case GDB_NO_ANSWER:
		qemu->late = true;
		target_tell(&qemu->base,
			    "QEMU did not stop the guest in time; it is told to let it go, "
			    "and sampled again once it has");
		return late();
	}
	whole = read_vcpus(qemu, sample);
	converse(qemu, QEMU_GO_MS);
	goes = !has_moved(qemu) && qemu->transport->go(qemu);
	sample->paused_ns = clock_now_ns() - began_ns;
	if (goes && (!qemu->transport->gone || qemu->transport->gone(qemu)))
		guard_set(page, qemu->transport->running);
	return whole ? NULL : no_registers(qemu);
}

static struct error *qemu_sample(struct target *target, struct sample *sample)
{
	struct qemu *qemu = (struct qemu *)target;
	struct error *err = NULL;

	sample->paused_ns = 0;
	sample->time_ns = clock_now_ns();
	converse(qemu, QEMU_SAMPLE_MS);
	if (qemu->found_halted && read_thread_times(qemu, sample))
		err = read_halted(qemu, sample);
	else if (qemu->halted)
		err = halted();
	else if (qemu->late)
		err = late();
	else if (is_migrating(qemu))
		err = error_new(ERR_FAILED, "the guest is being migrated");
	else if (read_thread_times(qemu, sample))
		err = read_stopped(qemu, sample);
	if (!err)
		keep_account(qemu, sample);
	else if (has_ended(qemu)) {
		error_free(err);
		err = error_new(ERR_ENDED, "QEMU has ended");
	}
	return err;
}

/* Resumes a guest whose stop timed out, once it has taken effect. */
static void let_late_one_go(struct qemu *qemu)
{
	if (!qemu->late || has_moved(qemu) || !qemu->transport->go_after_all(qemu))
		return;
	qemu->late = false;
	guard_set(guard_page(qemu->guard), qemu->transport->running);
}

static enum target_life qemu_life(struct target *target)
{
	struct qemu *qemu = (struct qemu *)target;
	enum target_life life;

	converse(qemu, QEMU_LIFE_MS);
	let_late_one_go(qemu);
	life = qemu->transport->life(qemu);
	qemu->found_halted &= life == LIFE_PAUSED;
	if ((life == LIFE_RUNS || life == LIFE_PAUSED) && !guard_check(qemu->guard))
		return LIFE_UNGUARDED;
	return life;
}

static void qemu_wait(struct target *target, uint64_t until_ns)
{
	qemu_hold_wait(((struct qemu *)target)->hold, until_ns);
}

static void likely_way(pid_t pid, struct target_listing *entry)
{
	struct qemu_address address = {0};

	qemu_find_sockets(pid, &address);
	entry->paused = qemu_waits_for_kvm(pid);
	if (entry->paused) {
		entry->way = &ways[VIA_STUB];
	} else if (*address.qmp && *address.gdb) {
		entry->way = &ways[VIA_QMP];
		entry->missing = "a gdb stub of ours would take the place of QEMU's own";
	} else if (*address.qmp) {
		entry->way = &ways[VIA_STUB];
	} else if (*address.gdb) {
		entry->way = &ways[VIA_OWN_STUB];
	} else {
		entry->missing = "give it a QMP socket: -qmp unix:PATH,server=on,wait=off";
	}
}

static const struct monitor_kind monitor_kind = {.scheme = "qemu",
						 .vcpus = qemu_vcpus,
						 .name = monitor_name,
						 .way = likely_way};

const struct target_ops target_qemu = {
	.scheme = "qemu",
	.ways = ways,
	.open = qemu_open,
	.close = qemu_close,
	.sample = qemu_sample,
	.life = qemu_life,
	.wait = qemu_wait,
	.list = monitor_list,
	.monitor = &monitor_kind,
};
