/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The transports through a gdb stub: one that is started through QMP and ended
 * afterwards, or the one that QEMU was started with (-s, -gdb), where there is
 * no QMP: QEMU's human monitor is reached through the stub then.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owned.h"
#include "target/host/proc.h"
#include "target/kvm/vcpus.h"
#include "target/qemu/qemu.h"

/*
 * Registers of a guest of KVM's from the pages that QEMU shares with KVM
 * (kvm/vcpus.h). When its gdb stub is asked for registers, QEMU reads all
 * state of a vCPU, by a dozen calls of KVM in the vCPU's thread, and writes it
 * all back before the vCPU runs again: most of the time that a sample takes.
 * KVM has left the registers in the page already, when the vCPU was stopped.
 * The page of a vCPU is believed once it was the same as the stub's answer.
 */
struct qemu_pages {
	struct kvm_vcpus vcpus;
	struct kvm_pages run;
	int memory;
	bool *believed; /* by vCPU */
};

void qemu_pages_free(struct qemu_pages *pages)
{
	if (!pages)
		return;
	guard_stop(pages->run.guard);
	kvm_vcpus_free(&pages->vcpus);
	free(pages->believed);
	free(pages);
}

/* NULL: there are no such pages, or none that we may write to; then the stub is used. */
static struct qemu_pages *pages_new(pid_t pid, int memory, uint32_t vcpus)
{
	struct qemu_pages *pages = calloc(1, sizeof(*pages));
	struct error *err;

	if (!pages)
		return NULL;
	pages->memory = memory;
	pages->believed = calloc(vcpus, sizeof(*pages->believed));
	err = pages->believed ? kvm_vcpus_find(pid, &pages->vcpus) : error_no_memory();
	/* QEMU numbers vCPUs in the order of KVM's numbers, which may leave some out. */
	if (!err && pages->vcpus.n == vcpus)
		err = kvm_pages_start(pid, &pages->vcpus, &pages->run);
	if (!err && pages->run.guard)
		return pages;
	error_free(err);
	qemu_pages_free(pages);
	return NULL;
}

/* All of these accept NULL: nothing is believed then. */
static bool pages_is_believed(const struct qemu_pages *pages, uint32_t vcpu)
{
	return pages && pages->believed[vcpu];
}

static bool read_page(const struct qemu_pages *pages, uint32_t vcpu, struct regs *out)
{
	struct x86_regs all;

	if (!kvm_page_read(pages->memory, pages->vcpus.at[vcpu].run, &all))
		return false;
	x86_regs_convert(&all, out);
	return true;
}

/* `told` is the stub's answer for a vCPU that is stopped. */
static void pages_compare(struct qemu_pages *pages, uint32_t vcpu, const struct regs *told)
{
	struct regs regs;

	/* vCPUs that have not begun are all the same. */
	if (pages && told->mmu.mode != MMU_OFF && read_page(pages, vcpu, &regs))
		pages->believed[vcpu] = !memcmp(&regs, told, sizeof(regs));
}

/* False: there are no registers, and the page is not believed any more. */
static bool pages_take(struct qemu_pages *pages, uint32_t vcpu, struct regs *out)
{
	pages->believed[vcpu] = read_page(pages, vcpu, out);
	return pages->believed[vcpu];
}

#define DIRECTORY "/tmp/uniprof-stub-XXXXXX"

/* Makes a directory in which QEMU can make a socket, whatever user it runs as. */
static struct error *make_directory(char *path, pid_t pid)
{
	char process[48];
	struct stat owner;

	if (!mkdtemp(path))
		return error_errno(ERR_FAILED, errno, "cannot make a directory in /tmp");
	snprintf(process, sizeof(process), "/proc/%d", (int)pid);
	if (stat(process, &owner) || owner.st_uid == geteuid() ||
	    !chown(path, owner.st_uid, owner.st_gid))
		return NULL;
	return error_errno(ERR_DENIED, errno, "cannot give %s to QEMU's user", path);
}

/*
 * Starts the stub and connects to it. The guest is stopped then; unless it was
 * `halted` before, the guard's phase must be GUARD_STOPPED.
 */
static struct error *make_stub(struct qmp *qmp, bool halted, struct gdb **out)
{
	char directory[] = DIRECTORY, path[sizeof(directory) + 8], line[128];
	FREED char *said = NULL;
	struct error *err = make_directory(directory, qmp->pid);

	snprintf(path, sizeof(path), "%s/gdb", directory);
	snprintf(line, sizeof(line), "gdbserver unix:%s,server=on,wait=off", path);
	if (!err)
		err = qmp_human(qmp, QMP_NO_VCPU, line, &said);
	if (!err)
		err = gdb_open(path, halted, qmp->deadline_ns, out);
	if (err && said && *said)
		err = error_prefix(err, "QEMU says \"%.*s\"", (int)strcspn(said, "\r\n"), said);
	unlink(path);
	rmdir(directory);
	return err;
}

/* Tries to start the stub: another one if the guest was resumed meanwhile. */
#define STARTS 3

/* Maps the stub's threads to vCPUs: both are in the same order. */
static struct error *name_vcpus(struct qemu *qemu)
{
	const char *request = "qfThreadInfo";
	uint32_t n = 0;

	for (; gdb_ask(qemu->gdb, request) && qemu->gdb->packet[0] == 'm';
	     request = "qsThreadInfo") {
		char *save = NULL, *name = strtok_r(qemu->gdb->packet + 1, ",", &save);

		for (; name && n < qemu->base.info.vcpus; name = strtok_r(NULL, ",", &save), n++)
			snprintf(qemu->vcpu[n].name, GDB_THREAD_MAX, "%s", name);
	}
	return n == qemu->base.info.vcpus
		       ? NULL
		       : error_new(ERR_FAILED, "QEMU's gdb stub tells of %u vCPUs, QEMU of %u", n,
				   qemu->base.info.vcpus);
}

/* Names the vCPUs as the stub does, and finds out the instruction set. */
static struct error *stub_prepare(struct qemu *qemu)
{
	TRY(gdb_layout_ask(qemu->gdb, &qemu->layout));
	if (qemu->layout.plain)
		return error_new(ERR_GUEST, "QEMU's gdb stub tells no system registers");
	qemu->base.info.arch = qemu->layout.machine->arch;
	qemu->base.copies_threads =
		qemu->base.info.arch == &arch_x86_64 || qemu->base.info.arch == &arch_arm64;
	qemu->base.copies_program_frames = qemu->base.info.arch == &arch_x86_64;
	qemu->pages = pages_new(qemu->pid, qemu->memory, qemu->base.info.vcpus);
	return name_vcpus(qemu);
}

/* Collects all requests for registers, to be sent at once. */
static void collect(struct qemu *qemu, const struct sample *sample)
{
	qemu->layout.threads = sample->request.thread;
	gdb_batch_begin(qemu->gdb);
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		if (sample->vcpu[i].same || pages_is_believed(qemu->pages, i))
			continue;
		/* A single vCPU need not be selected. */
		if (qemu->base.info.vcpus > 1)
			gdb_batch_select(qemu->gdb, qemu->vcpu[i].name);
		gdb_layout_request(&qemu->layout, qemu->gdb);
	}
}

static void hold_until_told(void *ctx)
{
	const struct qemu *qemu = ctx;

	qemu_hold_until_told(qemu->hold, qemu->gdb->fd);
}

static enum gdb_stopped stub_stop(struct qemu *qemu, const struct sample *sample)
{
	collect(qemu, sample);
	qemu->gdb->on_stop_sent = qemu->hold ? hold_until_told : NULL;
	qemu->gdb->on_stop_sent_ctx = qemu;
	return gdb_stop(qemu->gdb, QEMU_SAMPLE_MS);
}

static bool stub_go_after_all(struct qemu *qemu)
{
	return gdb_was_stopped(qemu->gdb) && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb);
}

static bool stub_ask(struct qemu *qemu, const struct sample *sample)
{
	collect(qemu, sample);
	return gdb_batch_send(qemu->gdb);
}

static bool stub_take(struct qemu *qemu, uint32_t vcpu, struct regs *out)
{
	if (pages_is_believed(qemu->pages, vcpu))
		return pages_take(qemu->pages, vcpu, out);
	if ((qemu->base.info.vcpus > 1 && !gdb_batch_next(qemu->gdb)) ||
	    !gdb_layout_take(&qemu->layout, qemu->gdb, out))
		return false;
	pages_compare(qemu->pages, vcpu, out);
	return true;
}

static bool wants_trap(const struct qemu *qemu, const struct sample *sample, uint32_t i)
{
	const struct vcpu_sample *vcpu = &sample->vcpu[i];

	return vcpu->online && !vcpu->same && !pages_is_believed(qemu->pages, i) &&
	       gdb_layout_wants_trap(&qemu->layout, &vcpu->regs);
}

/* An exchange of its own, which makes the stop longer: few samples need one. */
static bool stub_take_traps(struct qemu *qemu, struct sample *sample)
{
	const bool several = qemu->base.info.vcpus > 1;
	bool whole = true;

	gdb_batch_begin(qemu->gdb);
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		if (!wants_trap(qemu, sample, i))
			continue;
		if (several)
			gdb_batch_select(qemu->gdb, qemu->vcpu[i].name);
		gdb_layout_request_trap(&qemu->layout, qemu->gdb);
	}
	if (qemu->gdb->acknowledged && !gdb_batch_send(qemu->gdb))
		return false;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (wants_trap(qemu, sample, i))
			whole = (!several || gdb_batch_next(qemu->gdb)) &&
				gdb_layout_take_trap(&qemu->layout, qemu->gdb,
						     &sample->vcpu[i].regs) &&
				whole;
	return whole;
}

static bool stub_go(struct qemu *qemu)
{
	return gdb_continue(qemu->gdb);
}

static bool stub_gone(struct qemu *qemu)
{
	return gdb_heard(qemu->gdb);
}

static struct error *is_halted(struct qemu *qemu)
{
	char status[QEMU_STATUS_MAX];
	bool running = false;
	struct error *err = qemu_machine_status(qemu->qmp, &running, status);

	qemu->halted = !running;
	return err;
}

/* Ends the stub, and lets the guest go on that it has stopped. */
static struct error *give_up(struct qemu *qemu)
{
	FREED char *said = NULL;
	struct error *err;

	guard_set(guard_page(qemu->guard), GUARD_STOPPED);
	gdb_close(qemu->gdb);
	qemu->gdb = NULL;
	qemu_pages_free(qemu->pages);
	qemu->pages = NULL;
	err = qmp_human(qemu->qmp, QMP_NO_VCPU, "gdbserver none", &said);
	return error_first(err, qmp_execute(qemu->qmp, "cont", NULL, NULL));
}

/*
 * While the guest runs, any first packet only stops it. *again: the owner of a
 * guest that did not run has resumed it meanwhile, so that our first packet may
 * have stopped it.
 */
static struct error *try_to_start(struct qemu *qemu, bool *again)
{
	struct error *err = is_halted(qemu);
	const bool was_halted = qemu->halted;
	const unsigned resumes = qemu->qmp->resumes;

	*again = false;
	if (err)
		return err;
	guard_set(guard_page(qemu->guard), was_halted ? GUARD_MAYBE : GUARD_STOPPED);
	err = make_stub(qemu->qmp, was_halted, &qemu->gdb);
	if (!err)
		err = stub_prepare(qemu);
	if (!was_halted)
		return err;
	/* QEMU sends events before the answer to this. */
	error_free(is_halted(qemu));
	qemu->halted = true;
	*again = qemu->qmp->resumes != resumes;
	if (!*again)
		return err;
	error_free(err);
	return give_up(qemu);
}

static struct error *start_stub(struct qemu *qemu)
{
	struct error *err;
	bool again = true;

	qemu->undo = (struct qemu_qmp_undo){.qmp = qemu->qmp->fd, .started = true};
	err = guard_start(&qemu_qmp_guard, &qemu->undo, &qemu->guard);
	for (int k = 0; k < STARTS && again && !err; k++)
		err = try_to_start(qemu, &again);
	if (!err && again)
		err = error_new(ERR_FAILED, "the guest is stopped and let go all the time");
	qemu->found_halted = qemu->halted;
	if (!err && !qemu->halted && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb))
		guard_set(guard_page(qemu->guard), GUARD_MAYBE);
	return err;
}

const struct qemu_transport qemu_transport_stub = {
	.text = "gdb stub",
	.running = GUARD_MAYBE,
	.open = qemu_qmp_open,
	.start = start_stub,
	.stop = stub_stop,
	.go_after_all = stub_go_after_all,
	.ask = stub_ask,
	.take = stub_take,
	.take_traps = stub_take_traps,
	.go = stub_go,
	.gone = stub_gone,
	.life = qemu_qmp_life,
};

/* The transport through the gdb stub that QEMU was started with. */

/* From connecting on the guest stands still, until own_start() is through. */
static struct error *own_open(struct qemu *qemu, const struct qemu_address *address,
			      struct qemu_machine *machine)
{
	struct error *err = gdb_prepare(address->gdb, "QEMU's gdb stub", &qemu->gdb);

	qemu->pid = address->pid;
	if (err)
		return err;
	qemu->gdb->deadline_ns = address->until_ns;
	qemu->detach = (struct gdb_detach){.fd = qemu->gdb->fd, .packet = "$D;1#b0"};
	TRY(guard_start(&gdb_detach_guard, &qemu->detach, &qemu->guard));
	guard_set(guard_page(qemu->guard), GUARD_STOPPED);
	err = gdb_connect(qemu->gdb, &qemu->halted);
	if (qemu->halted)
		guard_set(guard_page(qemu->guard), GUARD_RUNNING);
	return err ? err : qemu_machine_read(qemu, machine);
}

static struct error *own_start(struct qemu *qemu)
{
	TRY(stub_prepare(qemu));
	if (!qemu->halted && gdb_continue(qemu->gdb) && gdb_heard(qemu->gdb))
		guard_set(guard_page(qemu->guard), GUARD_RUNNING);
	return NULL;
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

static enum target_life own_life(struct qemu *qemu)
{
	if (!proc_group(qemu->pid) || qemu->gdb->gone)
		return LIFE_GONE;
	if (qemu->halted && runs_again(qemu))
		qemu->halted = false;
	return qemu->halted ? LIFE_PAUSED : LIFE_RUNS;
}

const struct qemu_transport qemu_transport_own_stub = {
	.text = "its own gdb stub",
	.advice = "it has no QMP socket, so that it is stopped while it is connected to, and its "
		  "end cannot be told from its death",
	.advice_with_qmp =
		"it is stopped while it is connected to, and its end cannot be told from its "
		"death; --via qmp tells them apart",
	.running = GUARD_RUNNING,
	.open = own_open,
	.start = own_start,
	.stop = stub_stop,
	.go_after_all = stub_go_after_all,
	.ask = stub_ask,
	.take = stub_take,
	.take_traps = stub_take_traps,
	.go = stub_go,
	.gone = stub_gone,
	.life = own_life,
};
