/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Prints where the kernel notes of each guest of KVM that it is protected: a line "NAME ADDRESS" for each flag that this
 * kernel has. tests/rig/kvm_protected_test.py writes there. `bpftool iter pin` loads it.
 */

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define IN_KERNEL __attribute__((preserve_access_index))

char terms[] SEC("license") = "Dual BSD/GPL";

struct kvm_arch {
	bool has_private_mem, has_protected_state;
} IN_KERNEL;

struct kvm {
	struct kvm_arch arch;
} IN_KERNEL;

struct kvm_vcpu_arch {
	bool guest_state_protected;
} IN_KERNEL;

struct kvm_vcpu {
	struct kvm *kvm;
	struct kvm_vcpu_arch arch;
} IN_KERNEL;

struct kvm_sev_info {
	bool active;
} IN_KERNEL;

struct kvm_svm {
	struct kvm_sev_info sev_info;
} IN_KERNEL;

struct qstr {
	const unsigned char *name;
} IN_KERNEL;

struct dentry {
	struct qstr d_name;
} IN_KERNEL;

struct path {
	struct dentry *dentry;
} IN_KERNEL;

struct file {
	struct path f_path;
	void *private_data;
} IN_KERNEL;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} IN_KERNEL;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct file *file;
} IN_KERNEL;

/* ... of this guest or vCPU. */
#define TELL(type, member, at)                                                             \
	do {                                                                               \
		if (bpf_core_field_exists(((type *)0)->member))                            \
			BPF_SEQ_PRINTF(ctx->meta->seq, #member " %lx\n",                   \
				       (__u64)(at) + bpf_core_field_offset(type, member)); \
	} while (0)

static bool is_vcpu(const struct file *file)
{
	char name[9] = {0};

	bpf_probe_read_kernel_str(name, sizeof(name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	return name[0] == 'k' && name[3] == '-' && name[4] == 'v' && name[5] == 'c';
}

SEC("iter/task_file")
int print(struct bpf_iter__task_file *ctx)
{
	const struct file *file = ctx->file;
	const struct kvm_vcpu *vcpu;
	const struct kvm *kvm;

	if (!file || !is_vcpu(file))
		return 0;
	vcpu = BPF_CORE_READ(file, private_data);
	kvm = BPF_CORE_READ(vcpu, kvm);
	TELL(struct kvm_vcpu, arch.guest_state_protected, vcpu);
	TELL(struct kvm, arch.has_protected_state, kvm);
	TELL(struct kvm, arch.has_private_mem, kvm);
	TELL(struct kvm_svm, sev_info.active, kvm);
	return 0;
}
