/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Inside of the reader by BPF: shared by bpf_reader.c and bpf_program.c alone. */

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"
#include "vcpu.skel.h"

/* Tracepoints of the kernel that the host's side takes. */
#define HOST_LINKS 3

/* Questions until all pages of a stack are there. */
#define ROUNDS 8

struct watched_vcpu {
	int tick, change; /* perf events; -1: none */
	struct bpf_link *links[2];
	unsigned same[2];     /* how often compared: enum check_when */
	uint64_t compared;    /* ... and the exit that was compared last */
	uint32_t want;	      /* bytes of stack in the last sample; 0: none yet */
	bool wanted;	      /* that it runs was seen, and not believed: not checked yet */
	union vcpu_regs last; /* what ptrace told */
};

struct bpf_reader {
	struct vcpu_bpf *program;
	struct ring_buffer *answers;
	struct bpf_vcpu *vcpus;
	struct bpf_memory *map;
	struct bpf_told *told;
	struct bpf_exits *exits; /* NULL: the host's side is not wanted, nor are the links: */
	struct bpf_link *host_links[HOST_LINKS];
	uint64_t sleeps_until_ns; /* bpf_reader_host_sleeps */
	int memory;
	uint32_t n;
	struct watched_vcpu at[]; /* [n] */
};

/*
 * Sets *out to the program, with room for so many vCPUs, and with what --host takes; vcpu_bpf__destroy()
 * frees it, after an error, too (NULL then is nothing to free). ERR_DENIED: a
 * right is missing, or the kernel's verifier refuses the program; its reason is
 * part of the sentence.
 */
struct error *bpf_program_load(uint32_t vcpus, bool host, struct vcpu_bpf **out);

/* The error of an operation on BPF that failed with errno `number`. */
struct error *bpf_refused(const char *what, int number);

/* Memory of a map that the program shares; NULL with errno. */
void *bpf_map_in(const struct bpf_map *map);
void bpf_map_out(void *at, const struct bpf_map *map);

/* Copies registers that the program may be writing; false if it was. */
bool bpf_regs_copy(const struct bpf_regs *from, struct bpf_regs *to);

/*
 * Takes the registers that the program has seen; false if they were incomplete,
 * or in another mode.
 */
bool bpf_regs_take(const struct watched_vcpu *at, const struct bpf_regs *seen, struct regs *regs);

/* The sentence for a lack (enum bpf_lack) because of which this host's vCPUs cannot be read; NULL: none. */
const char *bpf_lack_text(uint32_t lack);

/* True if registers that were seen in such a moment were compared before. */
bool bpf_regs_believed(struct bpf_reader *bpf, uint32_t i, const struct bpf_regs *seen);

/* Writes down which stacks are wanted, and takes what was copied of them. */
void bpf_want_stacks(struct bpf_vcpu *shared, const struct vcpu_sample *vcpu);
void bpf_take_stacks(const struct bpf_vcpu *shared, struct vcpu_sample *vcpu);

/* Takes what was copied of the guest's thread. */
void bpf_take_thread(const struct bpf_thread *thread, struct thread_copy *out);

/* Brings a page that was missing; false: there is none. */
bool bpf_bring_page(const struct bpf_reader *bpf, const struct bpf_vcpu *shared);

/* Attaches what the host's side takes, once the program is loaded. */
struct error *bpf_host_attach(struct bpf_reader *bpf);
void bpf_host_detach(struct bpf_reader *bpf);
