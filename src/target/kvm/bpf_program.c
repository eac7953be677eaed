/* SPDX-License-Identifier: BSD-3-Clause */

/* The BPF program that reads vCPUs (vcpu.bpf.c): loads it, or says why it cannot be loaded. */

#include "target/kvm/bpf_reader.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "target/kvm/bpf_shared.h"
#include "vcpu.skel.h"

const char bpf_feature[] = "with BPF";

struct error *bpf_refused(const char *what, int number)
{
	if (number == EPERM || number == EACCES)
		return error_new(ERR_DENIED,
				 "%s is refused (it takes root, or CAP_BPF, CAP_PERFMON)", what);
	return error_errno(ERR_DENIED, number, "%s", what);
}

/* The verifier's reason: its last line before the statistics. */
static char *reason_in(char *log)
{
	char *end = strstr(log, "\nprocessed ");
	char *line;

	if (end)
		*end = 0;
	line = strrchr(log, '\n');
	return line ? line + 1 : log;
}

/* Rights are EPERM; with EACCES and EINVAL the verifier has refused the program, and said why. */
static struct error *not_loaded(char *log, int number)
{
	const char *reason = reason_in(log);

	return number == EPERM || !*reason
		       ? bpf_refused("loading the program into the kernel", number)
		       : error_new(ERR_DENIED, "this kernel refuses the program for it: %s",
				   reason);
}

/*
 * Capabilities for loading such programs (capabilities(7)); older kernels had
 * one for everything.
 */
static bool may_load(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
	uint64_t has;

	if (syscall(SYS_capget, &head, sets))
		return false;
	has = (uint64_t)sets[1].effective << 32 | sets[0].effective;
	return has >> CAP_SYS_ADMIN & 1 || (has >> CAP_BPF & 1 && has >> CAP_PERFMON & 1);
}

const char *bpf_missing(void)
{
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return "BPF would not stop it, but this kernel does not tell its types "
		       "(CONFIG_DEBUG_INFO_BTF)";
	return may_load() ? NULL
			  : "BPF would not stop it, but takes root, or CAP_BPF and CAP_PERFMON";
}

/* Asked for only when the program does not load; the last of it counts. */
#define LOG_BYTES (4u << 20)

struct error *bpf_program_load(uint32_t vcpus, struct vcpu_bpf **out)
{
	char *log = calloc(1, LOG_BYTES);
	LIBBPF_OPTS(bpf_object_open_opts, options, .kernel_log_buf = log,
		    .kernel_log_size = LOG_BYTES);
	struct error *err = NULL;
	int rc;

	*out = NULL;
	if (!log)
		return error_no_memory();
	libbpf_set_print(NULL);
	*out = vcpu_bpf__open_opts(&options);
	if (*out) {
		bpf_map__set_max_entries((*out)->maps.vcpus, vcpus);
		rc = vcpu_bpf__load(*out);
		err = rc ? not_loaded(log, -rc) : NULL;
	} else {
		err = bpf_refused("opening the program for the kernel", errno);
	}
	free(log);
	return err;
}

struct error *bpf_try(void)
{
	struct vcpu_bpf *program;
	struct error *err = bpf_program_load(1, &program);

	vcpu_bpf__destroy(program);
	return err;
}
