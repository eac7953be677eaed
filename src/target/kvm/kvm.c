/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest that any program of this host runs by KVM: the threads of its vCPUs
 * are stopped by ptrace, one by one, and registers and memory are read from
 * outside.
 */

#include "target/kvm/kvm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/host/proc.h"
#include "target/process/process.h"

/* Hotplug while a guest is sampled: memory, whose address KVM knows, and vCPUs. */

#define HOTPLUG_NS 500000000u

static void check_memory(struct kvm_target *kvm)
{
	struct ram_map *map = guest_ram_map(kvm->ram), now;
	uint64_t before = ram_map_size(map), after;

	if (!map->n || !bpf_reader_slots(kvm->bpf, &now) || ram_map_is_same(map, &now))
		return;
	after = ram_map_size(&now);
	/* Quiet if only the source changes: the mappings need not have been all of the memory. */
	if (kvm->has_slots && after != before)
		target_tell(&kvm->base,
			    after > before
				    ? "the guest has more memory than before, which is seen, too"
				    : "the guest has less memory than before");
	kvm->has_slots = true;
	*map = now;
	bpf_reader_map(kvm->bpf, map);
	guest_ram_forget(kvm->ram);
}

/* Without KVM's slots nothing proves where plugged-in memory is: tell the user. */
static void check_unknown_memory(struct kvm_target *kvm)
{
	struct ram_search *now = NULL;
	bool grown;

	if (kvm->told_of_unknown || !guest_ram_missed(kvm->ram))
		return;
	error_free(ram_search_new(kvm->maps, kvm_arch, &now));
	grown = now && ram_search_size(now) > ram_search_size(kvm->search);
	ram_search_free(now);
	if (!grown)
		return;
	kvm->told_of_unknown = true;
	target_tell(&kvm->base,
		    "the guest uses memory that seems to have been plugged in: stacks there "
		    "can be seen by BPF only");
}

static void check_vcpus(struct kvm_target *kvm)
{
	const uint32_t vcpus = kvm_vcpus_mapped(kvm->maps);

	if (vcpus <= kvm->vcpus_told)
		return;
	kvm->vcpus_told = vcpus;
	target_tell(&kvm->base,
		    "a vCPU was plugged in, which is not sampled: record the guest anew");
}

static void check_hotplug(struct kvm_target *kvm)
{
	const uint64_t now_ns = clock_now_ns();

	if (now_ns < kvm->hotplug_ns)
		return;
	kvm->hotplug_ns = now_ns + HOTPLUG_NS;
	if (kvm->bpf)
		check_memory(kvm);
	else
		check_unknown_memory(kvm);
	check_vcpus(kvm);
}

/* Searches for the guest's memory before giving up: how many, and the time between two. */
#define TRIES	   40
#define TRY_NS	   50000000u
#define AT_OPEN_NS 1000000000u
#define VCPUS_SEEN 64

/* Questions to KVM for its memory slots before mappings are tried. */
#define ASKS 4

static void kvm_close(struct target *target)
{
	struct kvm_target *kvm = (struct kvm_target *)target;

	bpf_reader_free(kvm->bpf);
	host_events_free(kvm->events);
	process_files_free((struct target_file *)target->host_files, target->n_host_files);
	sample_free(kvm->crosscheck);
	sample_free(kvm->opened);
	error_free(kvm->why_stopped);
	stops_free(&kvm->stops);
	guard_stop(kvm->pages.guard);
	if (kvm->pages.memory >= 0)
		close(kvm->pages.memory);
	kvm_vcpus_free(&kvm->vcpus);
	ram_search_free(kvm->search);
	guest_ram_free(kvm->ram);
	if (kvm->maps)
		fclose(kvm->maps);
	if (kvm->memory >= 0)
		close(kvm->memory);
	free(kvm);
}

bool kvm_read_stopped(struct kvm_target *kvm, uint32_t i, union vcpu_regs *all,
		      struct vcpu_sample *vcpu)
{
	if (!kvm_registers(kvm, i, all, &vcpu->regs))
		return false;
	guest_ram_forget(kvm->ram);
	paged_memory_copy_stacks(&kvm->base.memory, kvm_arch, vcpu);
	return true;
}

static bool read_kernel(struct kvm_target *kvm, const struct regs *regs, uint64_t va, uint64_t *out)
{
	struct regs kernel = *regs;

	mmu_use_kernel(&kernel.mmu, kernel.kernel_root);
	return target_read(&kvm->base, regs, va, out, sizeof(*out)) == sizeof(*out) ||
	       target_read(&kvm->base, &kernel, va, out, sizeof(*out)) == sizeof(*out);
}

/* On x86, where the registers that are read here do not tell. */
static void find_own_by_gdt(struct kvm_target *kvm, uint32_t i, const struct regs *regs)
{
	struct kvm_thread *vcpu = &kvm->vcpus.at[i];
	const uint64_t gdt = kvm->bpf ? bpf_reader_gdt(kvm->bpf, i) : vcpu->gdt;
	uint64_t segment;
	uint32_t cpu;

	if (!vcpu->own && gdt && kvm->thread && kvm->thread->cpus &&
	    read_kernel(kvm, regs, gdt + X86_LINUX_CPU_SEGMENT, &segment) &&
	    x86_linux_cpu(segment, &cpu))
		(void)read_kernel(kvm, regs, kvm->thread->cpus + cpu * sizeof(vcpu->own),
				  &vcpu->own);
}

void kvm_find_own(struct kvm_target *kvm, uint32_t i, const struct regs *regs)
{
	if (regs->isa != ISA_ARM)
		find_own_by_gdt(kvm, i, regs);
	else if (regs->own[0])
		kvm->vcpus.at[i].own = regs->own[0];
}

void kvm_copy_thread(struct kvm_target *kvm, uint32_t i, struct vcpu_sample *vcpu)
{
	vcpu->thread.there = false;
	if (!kvm->thread)
		return;
	kvm_find_own(kvm, i, &vcpu->regs);
	vcpu->regs.own[0] = vcpu->regs.own[1] = kvm->vcpus.at[i].own;
	if (kvm->thread->cpus)
		guest_ram_copy_thread(kvm->ram, kvm_arch, &vcpu->regs, kvm->thread, &vcpu->thread);
	else
		paged_memory_copy_thread(&kvm->base.memory, kvm_arch, vcpu, kvm->thread);
}

/* The number of frames bounds the length of a pause: there is no clock in a page walk. */
static bool read_vcpu(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	struct kvm_target *kvm = ctx;
	union vcpu_regs all;

	if (!kvm_read_stopped(kvm, i, &all, vcpu))
		return false;
	if (kvm->bpf)
		bpf_reader_note_ptrace(kvm->bpf, i, &all);
	kvm_copy_thread(kvm, i, vcpu);
	return true;
}

enum { VIA_BPF, VIA_PTRACE, VIA_HOST, VIA_HOST_EVENTS };

static const struct target_way ways[] = {
	[VIA_BPF] = {"bpf", "0 us", "a program in the kernel (BPF): no vCPU is ever stopped"},
	[VIA_PTRACE] = {"ptrace", KVM_STOP, "one vCPU after the other is stopped by ptrace"},
	[VIA_HOST] = {"host", "0 us", "as bpf, and the host's side of each vCPU (record --host)"},
	[VIA_HOST_EVENTS] =
		{"host-perf", KVM_STOP,
		 "the same by perf events: a vCPU is stopped by ptrace where it has a CPU"},
	{0},
};

static bool is_asked_for(const struct kvm_target *kvm, const struct target_way *way)
{
	return kvm->via && !strcmp(kvm->via, way->name);
}

/* The option that asks for more than ptrace, and for nothing else; NULL: none. */
static const char *asks_for_more(const struct kvm_target *kvm)
{
	if (is_asked_for(kvm, &ways[VIA_HOST]))
		return "--host";
	return is_asked_for(kvm, &ways[VIA_BPF]) ? "--via bpf" : NULL;
}

static struct error *without_bpf(const struct kvm_target *kvm)
{
	return error_new(ERR_DENIED, "%s: %s", asks_for_more(kvm), kvm->why_stopped->text);
}

/* What is done where BPF cannot be used: an error if it was asked for. */
static struct error *instead_of_bpf(struct kvm_target *kvm)
{
	struct error *err;

	if (!kvm->why_stopped || kvm->events || !(asks_for_more(kvm) || kvm->base.sees_host))
		return NULL;
	if (!kvm->base.sees_host)
		return without_bpf(kvm);
	err = host_events_new(&kvm->vcpus, &kvm->events);
	return err ? error_prefix(err, "--host: not by BPF (%s), nor by perf events",
				  kvm->why_stopped->text)
		   : NULL;
}

static const struct target_way *way_of(const struct kvm_target *kvm)
{
	if (kvm->events)
		return &ways[VIA_HOST_EVENTS];
	if (kvm->why_stopped)
		return &ways[VIA_PTRACE];
	return &ways[kvm->base.sees_host ? VIA_HOST : VIA_BPF];
}

static void describe_way(struct kvm_target *kvm)
{
	const bool asked =
		is_asked_for(kvm, &ways[VIA_PTRACE]) || is_asked_for(kvm, &ways[VIA_HOST_EVENTS]);
	const struct error *why = asked ? NULL : kvm->why_stopped;
	struct target_info *info = &kvm->base.info;
	struct utsname kernel = {0};

	uname(&kernel);
	snprintf(info->host, sizeof(info->host), "KVM on Linux %s, %s%s%s%s", kernel.release,
		 kvm->events	    ? "perf events and ptrace"
		 : kvm->why_stopped ? "ptrace"
				    : "BPF",
		 why ? " (not BPF: " : "", why ? why->text : "", why ? ")" : "");
	kvm->base.way = way_of(kvm)->name;
	if (why) {
		snprintf(kvm->advice, sizeof(kvm->advice),
			 "vCPUs are stopped for samples, which BPF would not do: %s", why->text);
		kvm->base.advice = kvm->advice;
	}
}

/*
 * Chooses BPF where it loads and passes the crosscheck, once the guest's memory
 * is known. An error if BPF was asked for and cannot be used.
 */
static struct error *choose_way(struct kvm_target *kvm)
{
	if (!guest_ram_map(kvm->ram)->n)
		return NULL;
	if (!kvm->why_stopped)
		kvm->why_stopped = kvm_crosscheck(kvm);
	TRY(instead_of_bpf(kvm));
	describe_way(kvm);
	return NULL;
}

/* Loads the program, unless it is not wanted. */
static struct error *prepare_bpf(struct kvm_target *kvm)
{
	if (is_asked_for(kvm, &ways[VIA_PTRACE]) || is_asked_for(kvm, &ways[VIA_HOST_EVENTS]))
		kvm->why_stopped = error_new(ERR_DENIED, "%s was asked for", kvm->via);
	else
		kvm->why_stopped =
			bpf_reader_new(&kvm->vcpus, kvm->memory, kvm->base.sees_host, &kvm->bpf);
	return instead_of_bpf(kvm);
}

static void describe(pid_t pid, struct kvm_target *kvm)
{
	struct target_info *info = &kvm->base.info;

	monitor_name(pid, info->name, sizeof(info->name));
	monitor_image(pid, info->image, sizeof(info->image));
	snprintf(info->id, sizeof(info->id), "%d", (int)pid);
	snprintf(info->type, sizeof(info->type), "kvm");
	info->arch = kvm_arch;
	info->vcpus = kvm->vcpus.n;
	kvm->vcpus_told = kvm->vcpus.n;
}

static struct error *attach(struct kvm_target *kvm, pid_t pid)
{
	TRY(kvm_vcpus_find(pid, &kvm->vcpus));
	TRY(threads_new(&kvm->stops.threads, pid, kvm->vcpus.n));
	TRY(stops_new(&kvm->stops));
	TRY(host_memory_open(pid, false, &kvm->memory));
	TRY(proc_maps_open(pid, &kvm->maps));
	TRY(ram_search_new(kvm->maps, kvm_arch, &kvm->search));
	TRY(guest_ram_new(kvm->memory, &kvm->ram));
	kvm->base.memory = guest_ram_memory(kvm->ram);
	kvm->base.copies_threads = true;
	TRY(kvm_vcpus_seize(&kvm->vcpus, &kvm->stops.threads));
	TRY(kvm_pages_start(pid, &kvm->vcpus, &kvm->pages));
	kvm->stops.read = read_vcpu;
	kvm->stops.ctx = kvm;
	describe(pid, kvm);
	return NULL;
}

/*
 * The registers are known, the guest runs. A guest that has just begun may have
 * nothing that could prove where its memory is: the search is repeated for a
 * while.
 */
static void find_memory(struct kvm_target *kvm, const struct sample *sample)
{
	struct regs regs[VCPUS_SEEN];
	size_t n = 0;

	if (guest_ram_map(kvm->ram)->n || kvm->tries == TRIES || sample->time_ns < kvm->try_ns)
		return;
	for (uint32_t i = 0; i < sample->vcpus && n < VCPUS_SEEN; i++)
		if (sample->vcpu[i].online && !sample->vcpu[i].same)
			regs[n++] = sample->vcpu[i].regs;
	if (!n)
		return;
	kvm->tries++;
	kvm->try_ns = sample->time_ns + TRY_NS;
	kvm->has_slots = kvm->bpf && bpf_reader_slots(kvm->bpf, guest_ram_map(kvm->ram));
	if (kvm->has_slots)
		return;
	/* KVM's own answer comes with the next stop of a vCPU. */
	if (!kvm->bpf || kvm->tries > ASKS)
		ram_search_run(kvm->search, kvm->ram, regs, n);
}

/* Samples until the memory is found; drops these samples. */
static struct error *find_memory_now(struct kvm_target *kvm)
{
	const uint64_t until_ns = clock_now_ns() + AT_OPEN_NS;

	TRY(sample_new(kvm->vcpus.n, FRAME_SIZE, &kvm->opened));
	while (!guest_ram_map(kvm->ram)->n && clock_now_ns() < until_ns) {
		TRY(stops_sample(&kvm->stops, kvm->opened));
		find_memory(kvm, kvm->opened);
		threads_wait(&kvm->stops.threads, clock_now_ns() + TRY_NS);
	}
	return NULL;
}

static struct error *open_guest(struct kvm_target *kvm, const char *name)
{
	pid_t pid;

	TRY(monitor_find(name, "kvm", kvm_vcpus_count, &pid));
	TRY(attach(kvm, pid));
	kvm->base.sees_host =
		is_asked_for(kvm, &ways[VIA_HOST]) || is_asked_for(kvm, &ways[VIA_HOST_EVENTS]);
	if (kvm->base.sees_host)
		TRY(process_files(pid, (struct target_file **)&kvm->base.host_files,
				  &kvm->base.n_host_files));
	TRY(prepare_bpf(kvm));
	TRY(find_memory_now(kvm));
	return choose_way(kvm);
}

static struct error *kvm_open(const char *name, const char *via, struct target **out)
{
	struct kvm_target *kvm;
	struct error *err;

	TRY(ARRAY_NEW(&kvm, 1));
	kvm->base.ops = &target_kvm;
	kvm->base.role = kvm_role;
	kvm->via = via;
	kvm->memory = -1;
	kvm->pages.memory = -1;
	err = open_guest(kvm, name);
	if (err)
		kvm_close(&kvm->base);
	else
		*out = &kvm->base;
	return err;
}

/* Without the guest's memory, a profile would be of program counters alone. */
static struct error *without_memory(const struct kvm_target *kvm)
{
	const unsigned kind = kvm->tries == TRIES ? ERR_GUEST : ERR_FAILED;

	return error_new((enum error_kind)kind,
			 "the guest's memory was not found in process %s: none of its mappings "
			 "proves to be it (does the guest execute anything?)",
			 kvm->base.info.id);
}

/* How the vCPUs are read in this sample. */
static void choose_readers(struct kvm_target *kvm, bool host)
{
	struct stops *stops = &kvm->stops;

	stops->read = host && kvm->events ? kvm_events_read : read_vcpu;
	stops->never = host && !kvm->events;
	if (host)
		stops->read_nostop = kvm->events ? kvm_events_read_nostop : kvm_read_host;
	else
		stops->read_nostop =
			kvm->why_stopped || kvm->base.always_pause ? NULL : kvm_read_nostop;
	stops->wants_cpu = stops->read_nostop && !kvm->events ? kvm_wants_cpu : NULL;
}

/*
 * The host's side alone shows no registers of a vCPU that does not run; those that it had when it was
 * opened lead to its code, which names exits.
 */
static void tell_opened(const struct kvm_target *kvm, struct sample *sample)
{
	for (uint32_t i = 0; i < sample->vcpus && i < kvm->opened->vcpus; i++)
		if (!sample->vcpu[i].regs.word && kvm->opened->vcpu[i].online)
			sample->vcpu[i].regs = kvm->opened->vcpu[i].regs;
}

static struct error *sample_now(struct kvm_target *kvm, struct sample *sample)
{
	const bool host = kvm->base.sees_host && guest_ram_map(kvm->ram)->n && sample->vcpu->host;

	kvm->thread = sample->request.thread;
	if (host && kvm->why_stopped && !kvm->events)
		return without_bpf(kvm);
	choose_readers(kvm, host);
	if (host)
		tell_opened(kvm, sample);
	return stops_sample(&kvm->stops, sample);
}

static struct error *kvm_sample(struct target *target, struct sample *sample)
{
	struct kvm_target *kvm = (struct kvm_target *)target;

	TRY(sample_now(kvm, sample));
	if (guest_ram_map(kvm->ram)->n)
		return NULL;
	find_memory(kvm, sample);
	if (!guest_ram_map(kvm->ram)->n)
		return without_memory(kvm);
	TRY(choose_way(kvm));
	/* The samples before had no stacks. */
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].account.held = false;
	return sample_now(kvm, sample);
}

/* Leaves the vCPUs to other tracers, another uniprof among them. */
static void let_go(struct kvm_target *kvm)
{
	if (!kvm->let_go && !kvm->why_stopped && kvm->stops.read_nostop &&
	    kvm_crosscheck_is_done(kvm))
		kvm->let_go = threads_let_go(&kvm->stops.threads);
}

static enum target_life kvm_life(struct target *target)
{
	struct kvm_target *kvm = (struct kvm_target *)target;

	if (!kvm->why_stopped && guest_ram_map(kvm->ram)->n)
		kvm->why_stopped = kvm_crosscheck_more(kvm);
	let_go(kvm);
	check_hotplug(kvm);
	return threads_life(&kvm->stops.threads);
}

static void kvm_wait(struct target *target, uint64_t until_ns)
{
	struct kvm_target *kvm = (struct kvm_target *)target;

	kvm->sleeps_until_ns = until_ns;
	if (kvm->stops.never)
		bpf_reader_host_sleeps(kvm->bpf, until_ns);
	else if (kvm->stops.read_nostop && !kvm->events)
		bpf_reader_sleeps(kvm->bpf, until_ns);
	threads_wait(&kvm->stops.threads, until_ns);
}

static void kvm_exits(struct target *target,
		      void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
	struct kvm_target *kvm = (struct kvm_target *)target;

	if (kvm->events)
		host_events_exits(kvm->events, each, ctx);
	else if (kvm->bpf)
		bpf_reader_exits(kvm->bpf, each, ctx);
}

static void likely_way(pid_t pid, struct target_listing *entry)
{
	entry->missing = bpf_missing();
	entry->way = &ways[entry->missing ? VIA_PTRACE : VIA_BPF];
}

static struct error *kvm_try_way(const struct target_way *way)
{
	struct error *err = way == &ways[VIA_BPF] ? bpf_try() : NULL;

	return err ? error_prefix(err, "BPF would not stop it, but cannot be had") : NULL;
}

static const char *kvm_protection_of(const char *id)
{
	return kvm_protection((pid_t)strtol(id, NULL, 10));
}

static const struct monitor_kind monitor_kind = {.scheme = "kvm",
						 .vcpus = kvm_vcpus_count,
						 .name = monitor_name,
						 .way = likely_way,
						 .becomes = kvm_is_there};

const struct target_ops target_kvm = {
	.scheme = "kvm",
	.ways = ways,
	.open = kvm_open,
	.close = kvm_close,
	.sample = kvm_sample,
	.life = kvm_life,
	.wait = kvm_wait,
	.exits = kvm_exits,
	.list = monitor_list,
	.monitor = &monitor_kind,
	.try_way = kvm_try_way,
	.protection = kvm_protection_of,
};
