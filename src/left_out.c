/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Answers for the parts that a build was made without (meson_options.txt). The
 * meson.build of such a part adds its name to `left_out` instead of its sources.
 */

#include <errno.h>
#include <stddef.h>

#include "agent/push.h"
#include "arch/arch.h"
#include "base/privilege.h"
#include "symbol/images/file.h"
#include "symbol/names/display_name.h"
#include "target/kvm/kvm.h"
#include "target/kvm/vcpus.h"
#include "target/target.h"
#include "top/top.h"

#ifdef LEFT_OUT_SECCOMP
const char seccomp_feature[] = "without a filter on system calls";

int seccomp_enter(enum seccomp_role role)
{
	return -ENOTSUP;
}
#endif

#ifdef LEFT_OUT_DISASSEMBLER
const char disassembler_feature[] = "without a disassembler";

struct disassembler *disassembler_open(void)
{
	return NULL;
}

void disassembler_close(struct disassembler *disassembler)
{
}

size_t disassemble(struct disassembler *disassembler, const struct regs *regs,
		   const struct window *code, struct code_line *lines, size_t room)
{
	return 0;
}
#endif

#ifdef LEFT_OUT_IBERTY
const char demangle_feature[] = "demangles OCaml only";

char *demangle_by_library(const char *name)
{
	return NULL;
}
#endif

#ifdef LEFT_OUT_DEBUGINFOD
const char debuginfod_feature[] = "without debuginfod";

struct error *debuginfod_preopen(const char *path)
{
	return NULL;
}
#endif

#ifdef LEFT_OUT_XEN
const char target_features[] =
	"without Xen (its libraries were not there, or left out, when it was built)";

static struct error *open_without_xen(const char *name, const char *via, struct target **out)
{
	return error_new(ERR_DENIED,
			 "this uniprof was built without Xen's libraries (see uniprof -V)");
}

const struct target_ops target_xen = {
	.scheme = "xen",
	.open = open_without_xen,
};
#endif

#ifdef LEFT_OUT_PUSH
const char push_feature[] = "without push";

struct error *push_open(const struct push_target *target, struct push **out)
{
	*out = NULL;
	return error_new(ERR_FAILED, "this uniprof was built without libcurl: it cannot push");
}

void push_send(struct push *push, const struct push_request *request, struct push_answer *answer)
{
	*answer = (struct push_answer){.outcome = PUSH_BLOCKED};
}

void push_close(struct push *push)
{
}
#endif

#ifdef LEFT_OUT_SCREEN
const char screen_feature[] = "without a live screen";

struct error *screen_prepare(void)
{
	return error_new(ERR_USAGE, "this uniprof was built without ncurses: only top -b works");
}

void screen_begin(void)
{
}

void screen_end(void)
{
}

void screen_rescue(void)
{
}

void screen_size(size_t *width, size_t *height)
{
	*width = *height = 0;
}

int screen_key(void)
{
	return 0;
}

void screen_show(const struct text_buffer *buffer)
{
}
#endif

#ifdef LEFT_OUT_KVM
uint32_t kvm_vcpus_count(pid_t pid)
{
	return 0;
}

struct error *kvm_vcpus_find(pid_t pid, struct kvm_vcpus *out)
{
	return error_new(ERR_GUEST, "guests of KVM can be profiled on x86-64 and arm64 hosts only");
}

const char *kvm_protection(pid_t pid)
{
	return NULL;
}

void kvm_vcpus_free(struct kvm_vcpus *vcpus)
{
}

struct error *kvm_pages_start(pid_t pid, const struct kvm_vcpus *vcpus, struct kvm_pages *pages)
{
	return NULL;
}

bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs)
{
	return false;
}

static struct error *open_without_kvm(const char *name, const char *via, struct target **out)
{
	return error_new(ERR_DENIED,
			 "guests of KVM can be profiled on x86-64 and arm64 hosts only");
}

const struct target_ops target_kvm = {
	.scheme = "kvm",
	.open = open_without_kvm,
};
#endif

#ifdef LEFT_OUT_BPF
/* vCPUs are stopped instead. */
#define WITHOUT_BPF "this uniprof was built without BPF"

const char bpf_feature[] = "without BPF";

const char *bpf_missing(void)
{
	return "BPF would not stop it, but " WITHOUT_BPF;
}

struct error *bpf_try(void)
{
	return error_new(ERR_DENIED, WITHOUT_BPF);
}

bool bpf_examine(pid_t pid, uint32_t *protection, uint32_t *lack)
{
	return false;
}

struct error *bpf_reader_new(const struct kvm_vcpus *vcpus, int memory, bool host,
			     struct bpf_reader **out)
{
	return error_new(ERR_DENIED, WITHOUT_BPF);
}

void bpf_reader_free(struct bpf_reader *bpf)
{
}

void bpf_reader_map(struct bpf_reader *bpf, const struct ram_map *map)
{
}

bool bpf_reader_slots(struct bpf_reader *bpf, struct ram_map *map)
{
	return false;
}

uint64_t bpf_reader_gdt(const struct bpf_reader *bpf, uint32_t i)
{
	return 0;
}

void bpf_reader_note_ptrace(struct bpf_reader *bpf, uint32_t i, const union vcpu_regs *all)
{
}

struct error *kvm_crosscheck(struct kvm_target *kvm)
{
	return NULL;
}

bool kvm_crosscheck_is_done(const struct kvm_target *kvm)
{
	return false;
}

struct error *kvm_crosscheck_more(struct kvm_target *kvm)
{
	return NULL;
}

bool kvm_read_nostop(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		     bool *on_cpu)
{
	return false;
}

bool kvm_wants_cpu(void *kvm, uint32_t i, const struct thread_time *time)
{
	return false;
}

bool kvm_read_host(void *kvm, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		   bool *on_cpu)
{
	return false;
}

void bpf_reader_host_sleeps(struct bpf_reader *bpf, uint64_t until_ns)
{
}

void bpf_reader_sleeps(struct bpf_reader *bpf, uint64_t until_ns)
{
}

void bpf_reader_exits(const struct bpf_reader *bpf,
		      void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
}
#endif

#ifdef LEFT_OUT_HOST_EVENTS
struct error *host_events_new(const struct kvm_vcpus *vcpus, struct host_events **out)
{
	return error_new(ERR_DENIED, "on arm64, the kernel does not tell a guest from its host");
}

void host_events_free(struct host_events *events)
{
}

void host_events_exits(struct host_events *events,
		       void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
}

bool kvm_events_read_nostop(void *kvm, uint32_t i, struct vcpu_sample *vcpu,
			    struct thread_time *time, bool *on_cpu)
{
	return false;
}

bool kvm_events_read(void *kvm, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	return false;
}
#endif
