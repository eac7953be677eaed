/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A process of this host: a unikernel that was built as one, or any other. Its
 * threads are the vCPUs; its virtual memory is all the memory that there is.
 */

#include "target/process/process.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/owned.h"
#include "target/host/memory.h"
#include "target/host/proc.h"

struct process {
	struct target base;
	struct stops stops;
	int memory;
	struct perf *perf;	   /* NULL: threads are stopped by ptrace */
	struct error *why_stopped; /* ... because; NULL: they are not */
	struct runtime *runtime;   /* of the sample's request */
	char advice[256];
};

/* Threads that may be added while it is sampled. */
#define SPARE_THREADS 16u
#define THREADS_MAX   1024u

static void process_close(struct target *target)
{
	struct process *process = (struct process *)target;

	perf_free(process->perf);
	error_free(process->why_stopped);
	stops_free(&process->stops);
	process_files_free((struct target_file *)target->files, target->n_files);
	free((char *)target->jit_names);
	if (process->memory >= 0)
		close(process->memory);
	free(process);
}

/* Stacks of a thread that stands still, by its registers; `until_ns` as of `read` of struct stops. */
static void copy_stacks(struct process *process, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	struct host_memory memory = {process->memory, until_ns};

	virtual_memory_copy_stacks(host_memory_window, &memory, vcpu);
}

static size_t read_memory(void *ctx, uint64_t va, void *buf, size_t len)
{
	return host_memory_read(((struct process *)ctx)->memory, va, buf, len);
}

/* Frames of the interpreter that a thread runs, which stands still. */
static void copy_frames(struct process *process, uint32_t i, struct vcpu_sample *vcpu)
{
	const struct runtime_view view = {.tid = (uint32_t)process->stops.threads.at[i].tid,
					  .stack = &vcpu->stack,
					  .ctx = process,
					  .read = read_memory};

	if (process->runtime && vcpu->runtime)
		runtime_copy_frames(process->runtime, &view, vcpu->runtime);
}

static bool read_thread(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	struct process *process = ctx;

	if (!process_regs(process->stops.threads.at[i].tid, &vcpu->regs))
		return false;
	copy_stacks(process, vcpu, until_ns);
	copy_frames(process, i, vcpu);
	return true;
}

/* The thread may come and go meanwhile. */
#define NOSTOP_ROUNDS 3

/*
 * A thread that is on a CPU is read by a perf event. One that waits, for a CPU
 * or for something else, stands still anyway: it is read as it left its CPU,
 * and if it has not run meanwhile, that holds. An interpreter's frames are no part
 * of what an event copies: for these, a thread that is on a CPU has to be stopped.
 */
static bool read_nostop(void *ctx, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
			bool *on_cpu)
{
	struct process *process = ctx;
	const struct thread *thread = &process->stops.threads.at[i];
	uint64_t moment;

	if (!perf_watches(process->perf, i, thread->tid))
		return false;
	for (int round = 0; round < NOSTOP_ROUNDS; round++) {
		*on_cpu = !perf_waits(process->perf, i, &vcpu->regs, &moment);
		if (*on_cpu && process->runtime)
			break;
		if (!*on_cpu) {
			copy_stacks(process, vcpu, 0);
			copy_frames(process, i, vcpu);
		} else if (!perf_read(process->perf, i, process->memory, vcpu)) {
			continue;
		}
		thread_time(thread, time);
		if (*on_cpu || perf_still_waits(process->perf, i, moment))
			return true;
	}
	/* It may never have left a CPU since it is watched. */
	*on_cpu = false;
	return false;
}

static uint32_t is_other_program(pid_t pid)
{
	return pid != getpid() && proc_has_memory(pid);
}

static struct error *find_process(const char *name, pid_t *pid)
{
	const unsigned matches = proc_find(name, is_other_program, proc_comm, pid);

	if (matches == 1)
		return NULL;
	if (!matches)
		return error_new(ERR_GUEST, "there is no process called \"%s\"", name);
	return error_new(ERR_GUEST,
			 "%u processes are called \"%s\"; say which by its id, as process:%d",
			 matches, name, (int)*pid);
}

static struct error *check_process(pid_t *pid)
{
	const pid_t group = proc_group(*pid);
	char exe[64];

	if (!group)
		return error_new(ERR_GUEST, "there is no process %d", (int)*pid);
	/* The id of a thread means its process. */
	*pid = group;
	if (group == getpid())
		return error_new(ERR_GUEST, "process %d is uniprof itself", (int)group);
	proc_link(group, "exe", -1, exe, sizeof(exe));
	if (!*exe && proc_read(group, "cmdline", exe, sizeof(exe)) == 0)
		return error_new(ERR_GUEST,
				 "process %d is one of the kernel's own, or has ended: it has no "
				 "memory of its own",
				 (int)group);
	return NULL;
}

static struct error *find_arch(pid_t pid, struct target_info *info)
{
	CLOSED int fd = proc_open(pid, "exe", O_RDONLY);
	Elf64_Ehdr head = {0};

	if (fd < 0)
		return proc_cannot_trace(pid);
	/* e_machine is at the same place in both classes. */
	if (read(fd, &head, sizeof(head)) == sizeof(head))
		info->arch = arch_by_machine(head.e_machine);
	return info->arch ? NULL
			  : error_new(ERR_GUEST,
				      "process %d runs a program for another instruction set "
				      "than x86",
				      (int)pid);
}

static void describe(pid_t pid, struct target_info *info)
{
	proc_comm(pid, info->name, sizeof(info->name));
	snprintf(info->id, sizeof(info->id), "%d", (int)pid);
	snprintf(info->type, sizeof(info->type), "process");
	proc_link(pid, "exe", -1, info->image, sizeof(info->image));
}

enum { VIA_PERF, VIA_PTRACE };

static const struct target_way ways[] = {
	[VIA_PERF] = {"perf", "0 us", "perf events copy registers and stack: no thread is stopped"},
	[VIA_PTRACE] = {"ptrace", "15 us", "one thread after the other is stopped by ptrace"},
	{0},
};

static void describe_way(struct process *process, const char *via)
{
	const struct error *why = via ? NULL : process->why_stopped;
	struct target_info *info = &process->base.info;
	struct utsname kernel = {0};

	uname(&kernel);
	process->base.way = ways[process->why_stopped ? VIA_PTRACE : VIA_PERF].name;
	snprintf(info->host, sizeof(info->host), "Linux %s, %s%s%s%s", kernel.release,
		 process->why_stopped ? "ptrace" : "perf events", why ? " (not perf events: " : "",
		 why ? why->text : "", why ? ")" : "");
	if (why) {
		snprintf(process->advice, sizeof(process->advice),
			 "threads are stopped for samples, which perf events would not do: %s",
			 why->text);
		process->base.advice = process->advice;
	}
}

/* Threads that begin later are stopped: the right to watch them has been given up by then. */
static struct error *watch_threads(struct process *process)
{
	const struct threads *threads = &process->stops.threads;

	TRY(perf_new(threads->n, &process->perf));
	for (uint32_t i = 0; i < threads->n; i++)
		if (threads->at[i].tid)
			TRY(perf_watch(process->perf, i, threads->at[i].tid));
	return NULL;
}

static struct error *choose_way(struct process *process, const char *via)
{
	process->why_stopped = via && !strcmp(via, ways[VIA_PTRACE].name)
				       ? error_new(ERR_DENIED, "ptrace was asked for")
				       : watch_threads(process);
	describe_way(process, via);
	process->base.copies_frames = process->why_stopped || !via;
	return process->why_stopped && via && !strcmp(via, ways[VIA_PERF].name)
		       ? error_new(ERR_DENIED, "--via perf: %s", process->why_stopped->text)
		       : NULL;
}

static bool count(void *ctx, int tid)
{
	++*(unsigned *)ctx;
	return true;
}

static uint32_t count_threads(pid_t pid)
{
	unsigned n = 0;

	proc_numbers(pid, "task", count, &n);
	return n;
}

struct seizing {
	struct threads *threads;
	struct error *err;
	bool any; /* a new one was found in this round */
};

static bool seize(void *ctx, int tid)
{
	struct seizing *seizing = ctx;
	struct threads *threads = seizing->threads;

	for (uint32_t i = 0; i < threads->n; i++)
		if (threads->at[i].tid == tid)
			return true;
	seizing->err = threads_seize(threads, tid);
	if (seizing->err && seizing->err->kind == ERR_GUEST) {
		error_free(seizing->err);
		seizing->err = NULL;
		return true;
	}
	seizing->any = true;
	return !seizing->err && !threads->lost;
}

/* Repeats until a round finds no new thread: one that was not seized yet may have begun others. */
static struct error *seize_all(struct threads *threads)
{
	struct seizing seizing = {.threads = threads};

	do {
		seizing.any = false;
		proc_numbers(threads->pid, "task", seize, &seizing);
	} while (seizing.any && !seizing.err && !threads->lost);
	return seizing.err;
}

static struct error *attach(struct process *process, pid_t pid)
{
	struct target_info *info = &process->base.info;
	const uint32_t n = count_threads(pid);
	struct error *err;

	info->vcpus = n + SPARE_THREADS;
	if (info->vcpus > THREADS_MAX)
		info->vcpus = THREADS_MAX;
	if (info->vcpus > n)
		info->spare = info->vcpus - n;
	process->stops.read = read_thread;
	process->stops.ctx = process;
	err = threads_new(&process->stops.threads, pid, info->vcpus);
	process->stops.threads.follow = true;
	if (!err)
		err = stops_new(&process->stops);
	if (!err)
		err = host_memory_open(pid, false, &process->memory);
	if (!err)
		err = seize_all(&process->stops.threads);
	if (!err)
		err = process_files(pid, (struct target_file **)&process->base.files,
				    &process->base.n_files);
	return err ? err : process_jit_names(pid, (char **)&process->base.jit_names);
}

static struct error *process_open(const char *name, const char *via, struct target **out)
{
	struct process *process;
	struct error *err;
	pid_t pid;

	TRY(ARRAY_NEW(&process, 1));
	process->base.ops = &target_process;
	process->base.role = SECCOMP_TRACER;
	process->memory = -1;
	err = find_process(name, &pid);
	if (!err)
		err = check_process(&pid);
	if (!err)
		err = find_arch(pid, &process->base.info);
	if (!err)
		describe(pid, &process->base.info);
	if (!err)
		err = attach(process, pid);
	if (!err)
		err = choose_way(process, via);
	if (err)
		process_close(&process->base);
	else
		*out = &process->base;
	return err;
}

static struct error *process_sample(struct target *target, struct sample *sample)
{
	struct process *process = (struct process *)target;

	process->stops.read_nostop =
		process->why_stopped || process->base.always_pause ? NULL : read_nostop;
	process->runtime = sample->request.runtime;
	return stops_sample(&process->stops, sample);
}

static enum target_life process_life(struct target *target)
{
	struct threads *threads = &((struct process *)target)->stops.threads;
	const enum target_life life = threads_life(threads);

	if (threads->executed)
		target_tell(target, "the process has become another program (execve)");
	return life;
}

static void process_wait(struct target *target, uint64_t until_ns)
{
	threads_wait(&((struct process *)target)->stops.threads, until_ns);
}

static size_t process_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			   size_t len)
{
	return host_memory_read(((struct process *)target)->memory, va, buf, len);
}

/* Processes that are guests are listed, not all. */
static uint32_t count_unikernel(pid_t pid)
{
	return process_unikernel(pid) ? count_threads(pid) : 0;
}

static void likely_way(pid_t pid, struct target_listing *entry)
{
	entry->type = process_unikernel(pid);
	entry->missing = perf_missing();
	entry->way = &ways[entry->missing ? VIA_PTRACE : VIA_PERF];
}

static const struct monitor_kind monitor_kind = {.scheme = "process",
						 .vcpus = count_unikernel,
						 .name = proc_comm,
						 .way = likely_way};

const struct target_ops target_process = {
	.scheme = "process",
	.ways = ways,
	.open = process_open,
	.close = process_close,
	.sample = process_sample,
	.life = process_life,
	.wait = process_wait,
	.read = process_read,
	.list = monitor_list,
	.monitor = &monitor_kind,
};
