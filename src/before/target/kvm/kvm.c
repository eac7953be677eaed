/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest that a program of this host runs by KVM, whatever program: the
 * threads of its vCPUs are stopped by ptrace, one by one, and registers and
 * memory are read from outside.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/host/memory.h"
#include "target/host/monitor.h"
#include "target/host/proc.h"
#include "target/kvm/kvm.h"
#include "target/vcpu_copy.h"
#include "target/window.h"

/* As long as the guest's memory has not been found: how often, and after what time again. */
#define TRIES	   40
#define TRY_NS	   50000000u
#define AT_OPEN_NS 1000000000u
#define VCPUS_SEEN 64

/* How often KVM is asked where it is before mappings are tried. */
#define ASKS 4

static void kvm_close(struct target *target)
{
	struct kvm *kvm = (struct kvm *)target;

	unpaused_free(kvm->unpaused);
	sample_free(kvm->proving);
	error_free(kvm->why_stopped);
	stops_free(&kvm->stops);
	guard_stop(kvm->guard);
	kvm_vcpus_free(&kvm->vcpus);
	layout_free(kvm->layout);
	guest_ram_free(kvm->ram);
	if (kvm->pages.memory >= 0)
		close(kvm->pages.memory);
	if (kvm->maps)
		fclose(kvm->maps);
	if (kvm->memory >= 0)
		close(kvm->memory);
	free(kvm);
}

bool kvm_read_stopped(struct kvm *kvm, uint32_t i, struct x86_regs *all, struct vcpu_sample *vcpu)
{
	const struct physmem mem = {guest_ram_frame, kvm->ram};

	if (!kvm_page_read(kvm->memory, kvm->vcpus.at[i].run, all))
		return false;
	x86_regs_take(all, &vcpu->regs);
	guest_ram_forget(kvm->ram);
	vcpu_copy_stacks(&arch_x86_64, &mem, vcpu);
	return true;
}

/* The bound on a pause is kept by the number of frames: there is no clock in a page walk. */
static bool read_vcpu(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	struct kvm *kvm = ctx;
	struct x86_regs all;

	if (!kvm_read_stopped(kvm, i, &all, vcpu))
		return false;
	if (kvm->unpaused)
		unpaused_told(kvm->unpaused, i, &all);
	return true;
}

enum { BY_BPF, BY_PTRACE };

static const struct target_way ways[] = {
	[BY_BPF] = {"bpf", "0 us", "a program in the kernel (BPF): no vCPU is ever stopped"},
	[BY_PTRACE] = {"ptrace", "15 us", "one vCPU after the other is stopped by ptrace"},
	{0},
};

static bool is_asked_for(const struct kvm *kvm, const struct target_way *way)
{
	return kvm->via && !strcmp(kvm->via, way->name);
}

static void describe_way(struct kvm *kvm)
{
	const struct error *why = is_asked_for(kvm, &ways[BY_PTRACE]) ? NULL : kvm->why_stopped;
	struct target_info *info = &kvm->base.info;
	struct utsname kernel = {0};

	uname(&kernel);
	snprintf(info->host, sizeof(info->host), "KVM on Linux %s, %s%s%s%s", kernel.release,
		 kvm->why_stopped ? "ptrace" : "BPF", why ? " (not BPF: " : "",
		 why ? why->text : "", why ? ")" : "");
	kvm->base.way = ways[kvm->why_stopped ? BY_PTRACE : BY_BPF].name;
	if (why) {
		snprintf(kvm->advice, sizeof(kvm->advice),
			 "vCPUs are stopped for samples, which BPF would not do: %s", why->text);
		kvm->base.advice = kvm->advice;
	}
}

/*
 * Without stopping vCPUs, where that can be and proves right; once the guest's
 * memory is known. An error if it cannot, though it was asked for.
 */
static struct error *choose_way(struct kvm *kvm)
{
	if (!guest_ram_map(kvm->ram)->n)
		return NULL;
	if (!kvm->why_stopped)
		kvm->why_stopped = kvm_prove(kvm);
	describe_way(kvm);
	return kvm->why_stopped && is_asked_for(kvm, &ways[BY_BPF])
		       ? error_new(ERR_DENIED, "--via bpf: %s", kvm->why_stopped->text)
		       : NULL;
}

/* Loads the program, unless it is not wanted. */
static struct error *prepare_bpf(struct kvm *kvm)
{
	kvm->why_stopped = is_asked_for(kvm, &ways[BY_PTRACE])
				   ? error_new(ERR_DENIED, "ptrace was asked for")
				   : unpaused_new(&kvm->vcpus, kvm->memory, &kvm->unpaused);
	return kvm->why_stopped && is_asked_for(kvm, &ways[BY_BPF])
		       ? error_new(ERR_DENIED, "--via bpf: %s", kvm->why_stopped->text)
		       : NULL;
}

static void describe(pid_t pid, struct kvm *kvm)
{
	struct target_info *info = &kvm->base.info;

	monitor_name(pid, info->name, sizeof(info->name));
	monitor_image(pid, info->image, sizeof(info->image));
	snprintf(info->id, sizeof(info->id), "%d", (int)pid);
	snprintf(info->type, sizeof(info->type), "kvm");
	info->arch = &arch_x86_64;
	info->vcpus = kvm->vcpus.n;
	kvm->vcpus_told = kvm->vcpus.n;
}

/* Tells KVM to leave registers, and starts who will tell it back. */
static struct error *tell(struct kvm *kvm, pid_t pid)
{
	struct error *err = host_memory_open(pid, true, &kvm->pages.memory);

	for (uint32_t i = 0; i < kvm->vcpus.n && !err; i++)
		err = kvm_pages_add(&kvm->pages, kvm->vcpus.at[i].run);
	if (!err)
		err = guard_start(&kvm_pages_guard, &kvm->pages, &kvm->guard);
	if (!err) {
		guard_set(guard_page(kvm->guard), GUARD_STOPPED);
		err = kvm_pages_tell(&kvm->pages);
	}
	/* What could write to the monitor is not kept by who reads what guests wrote. */
	if (kvm->pages.memory >= 0)
		close(kvm->pages.memory);
	kvm->pages.memory = -1;
	return err;
}

static struct error *attach(struct kvm *kvm, pid_t pid)
{
	struct error *err = kvm_vcpus_find(pid, &kvm->vcpus);

	if (!err)
		err = threads_new(&kvm->stops.threads, pid, kvm->vcpus.n);
	if (!err)
		err = stops_new(&kvm->stops);
	if (!err)
		err = host_memory_open(pid, false, &kvm->memory);
	if (!err)
		err = proc_maps_open(pid, &kvm->maps);
	if (!err)
		err = layout_new(kvm->maps, &kvm->layout);
	if (!err)
		err = guest_ram_new(kvm->memory, &kvm->ram);
	if (!err)
		err = kvm_vcpus_seize(&kvm->vcpus, &kvm->stops.threads);
	if (!err)
		err = tell(kvm, pid);
	kvm->stops.read = read_vcpu;
	kvm->stops.ctx = kvm;
	if (!err)
		describe(pid, kvm);
	return err;
}

/*
 * The registers are here, the guest runs. A guest that has just begun may have
 * nothing yet that could prove anything: so it is tried again for a while.
 */
static void find_memory(struct kvm *kvm, const struct sample *sample)
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
	kvm->by_slots = kvm->unpaused && unpaused_slots(kvm->unpaused, guest_ram_map(kvm->ram));
	if (kvm->by_slots)
		return;
	/* KVM's own answer comes with the next stop. */
	if (!kvm->unpaused || kvm->tries > ASKS)
		layout_find(kvm->layout, kvm->ram, regs, n);
}

/* Samples until the memory is found; what is sampled is thrown away. */
static struct error *find_memory_now(struct kvm *kvm)
{
	const uint64_t until_ns = clock_now_ns() + AT_OPEN_NS;
	struct sample *sample;
	struct error *err = sample_new(kvm->vcpus.n, FRAME_SIZE, &sample);

	if (err)
		return err;
	while (!err && !guest_ram_map(kvm->ram)->n && clock_now_ns() < until_ns) {
		err = stops_sample(&kvm->stops, sample);
		if (!err)
			find_memory(kvm, sample);
		threads_wait(&kvm->stops.threads, clock_now_ns() + TRY_NS);
	}
	sample_free(sample);
	return err;
}

static struct error *kvm_open_via(const char *name, const char *via, struct target **out)
{
	struct kvm *kvm = calloc(1, sizeof(*kvm));
	struct error *err;
	pid_t pid;

	if (!kvm)
		return error_no_memory();
	kvm->base.ops = &target_kvm;
	kvm->base.role = SECCOMP_TRACER;
	kvm->via = via;
	kvm->memory = -1;
	kvm->pages.memory = -1;
	err = monitor_find(name, "kvm", kvm_vcpus_count, &pid);
	if (!err)
		err = attach(kvm, pid);
	if (!err)
		err = prepare_bpf(kvm);
	if (!err)
		err = find_memory_now(kvm);
	if (!err)
		err = choose_way(kvm);
	if (err)
		kvm_close(&kvm->base);
	else
		*out = &kvm->base;
	return err;
}

static struct error *kvm_open(const char *name, struct target **out)
{
	return kvm_open_via(name, NULL, out);
}

/* Without the guest's memory, a profile would be of program counters alone. */
static struct error *without_memory(const struct kvm *kvm)
{
	const unsigned kind = kvm->tries == TRIES ? ERR_GUEST : ERR_FAILED;

	return error_new((enum error_kind)kind,
			 "the guest's memory was not found in process %s: none of its mappings "
			 "proves to be it (does the guest execute anything?)",
			 kvm->base.info.id);
}

static struct error *sample_now(struct kvm *kvm, struct sample *sample)
{
	kvm->stops.peek = kvm->why_stopped || kvm->base.always_pause ? NULL : kvm_peek;
	return stops_sample(&kvm->stops, sample);
}

static struct error *kvm_sample(struct target *target, struct sample *sample)
{
	struct kvm *kvm = (struct kvm *)target;
	struct error *err = sample_now(kvm, sample);

	if (err || guest_ram_map(kvm->ram)->n)
		return err;
	find_memory(kvm, sample);
	if (!guest_ram_map(kvm->ram)->n)
		return without_memory(kvm);
	err = choose_way(kvm);
	if (err)
		return err;
	/* What was read before had no stacks. */
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].held = false;
	return sample_now(kvm, sample);
}

static enum target_life kvm_life(struct target *target)
{
	struct kvm *kvm = (struct kvm *)target;

	if (!kvm->why_stopped && guest_ram_map(kvm->ram)->n)
		kvm->why_stopped = kvm_prove_more(kvm);
	kvm_look_for_changes(kvm);
	return threads_life(&kvm->stops.threads);
}

static void kvm_wait(struct target *target, uint64_t until_ns)
{
	threads_wait(&((struct kvm *)target)->stops.threads, until_ns);
}

static size_t kvm_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
		       size_t len)
{
	struct kvm *kvm = (struct kvm *)target;
	const struct physmem mem = {guest_ram_frame, kvm->ram};

	guest_ram_forget(kvm->ram);
	return window_read(target->info.arch, &regs->mmu, &mem, va, buf, len);
}

static void likely_way(pid_t pid, struct target_listing *entry)
{
	entry->missing = unpaused_missing();
	entry->way = &ways[entry->missing ? BY_PTRACE : BY_BPF];
}

static struct error *kvm_list(void (*each)(void *ctx, const struct target_listing *entry),
			      void *ctx)
{
	return monitor_list("kvm", kvm_vcpus_count, likely_way, each, ctx);
}

const struct target_ops target_kvm = {
	.scheme = "kvm",
	.ways = ways,
	.open = kvm_open,
	.open_via = kvm_open_via,
	.close = kvm_close,
	.sample = kvm_sample,
	.life = kvm_life,
	.wait = kvm_wait,
	.read = kvm_read,
	.list = kvm_list,
};
