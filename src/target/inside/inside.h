/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Guests that sample themselves (inside/uniprof_inside.h): rings in their memory,
 * which is a process's of this host, or one that a target opens (target_ops.inside).
 * They are found by their signature, switched on for some seconds at a time, and
 * read while the guest runs; nothing is ever paused. All that a ring holds is the
 * guest's word.
 *
 * Samples come at the guest's pace: ready() of target_ops says when there is one,
 * and sample() hands it out.
 */

#include <signal.h>

#include "base/preopen.h"
#include "target/target.h"
#include "uniprof_inside.h"

/* Rings of one guest, at most: one for each vCPU. */
#define INSIDE_RINGS_MAX 64

/*
 * Opens "KIND:NAME", or a name or process id, as `list` tells them. Waits until
 * the rings tick, which takes 2 s at most, and switches them on for about
 * `rate_hz` samples a second: every tick, every second one, ... ERR_GUEST: no
 * such guest, or no ring in it that ticks; ERR_DENIED: its memory is not ours to read.
 */
struct error *inside_open(const char *spec, double rate_hz, const volatile sig_atomic_t *stop,
			  struct target **out);

/* The parts below are for ring_test.c, too. */

/* Numbers in a ring that change, behind its constant part. */
struct inside_dynamic {
	uint32_t ticks, head, every, lease;
};

/* One ring, as it was when it was found: what it says of its shape later is not listened to. */
struct inside_ring {
	uint64_t at;	  /* in the memory that is read */
	uint64_t address; /* ... and as the guest sees it */
	uint32_t first, slots, slot_bytes, vcpu, checksum;
	uint8_t isa, word;
	uint32_t ticks, next; /* ticks at the last sample; number of the next one */
	/* Samples that the last poll has found and that are not taken yet, and their times. */
	uint32_t left, found;
	uint64_t since_ns, span_ns;
	uint64_t usual_ns; /* between ticks, lately */
	uint64_t owed_ns;  /* weight of samples that were lost since the last good one */
	uint64_t lost;	   /* ... and how many, since they were last told */
	bool stood_still;  /* for a while: that time is nobody's */
	bool went_back;	   /* its numbers make no sense: what was between is lost */
};

/* Shown to a search: `head`, from the start of a page at `at`, of which `left` bytes can be read. */
typedef void inside_found(void *ctx, const void *head, uint64_t at, uint64_t left);

/*
 * Memory of a guest. Rings are at addresses of its own choice: those in a
 * process, the guest's own. Calls may be NULL where that is said.
 */
struct inside_memory {
	void *ctx;
	/* Bytes of a ring that were read, 0: none. */
	size_t (*read)(void *ctx, uint64_t at, void *buf, size_t len);
	/* Writes two words into a ring. */
	bool (*write)(void *ctx, uint64_t at, const uint32_t words[2]);
	/*
	 * Shows all pages of the guest that may begin a ring, until `stop`.
	 * Clears *whole if it ends at a bound before it has seen all.
	 */
	struct error *(*search)(void *ctx, const volatile sig_atomic_t *stop, inside_found *found,
				void *to, bool *whole);
	/* Makes a ring of so many bytes ready to be read; NULL: they all are. */
	bool (*hold)(void *ctx, const struct inside_ring *ring, uint64_t size);
	/* Learns from the first ring where the guest's code is; NULL: that is known. */
	struct error *(*locate)(void *ctx, const struct inside_ring *first);
	/* Reads code at the guest's addresses. */
	size_t (*code)(void *ctx, uint64_t va, void *buf, size_t len);
	/* Whether the guest is there at all; NULL: read() tells. */
	enum target_life (*life)(void *ctx);
	/* Descriptors with which a guard writes; NULL: it cannot. */
	void (*keeps)(void *ctx, struct descriptors *keep);
	/* Fills in name, id and image. */
	void (*describe)(void *ctx, struct target_info *info);
	void (*close)(void *ctx);
};

/* One sample of a ring. */
struct inside_taken {
	struct regs regs;
	enum vcpu_state state;
	uint64_t time_ns, weight_ns, lost;
	uint32_t stack_bytes;
	bool cut;
	uint8_t stack[UNIPROF_INSIDE_STACK_MAX];
};

/* The memory of a process; *out is to be closed after an error, too. */
struct error *inside_process(pid_t pid, struct inside_memory *out);

/* Bytes that a ring takes from its start. */
uint64_t inside_ring_size(const struct inside_ring *ring);

/* Checks a page that may be the first of a ring, of which `left` bytes can be read from there on. */
bool inside_ring_check(const void *page, uint64_t at, uint64_t left, struct inside_ring *out);

/*
 * Looks how far the ring is at `now_ns`; finds as many samples as are there and
 * may have been taken since the last time at RATE_MAX. *lease: as it stands.
 */
void inside_ring_poll(struct inside_ring *ring, const struct inside_memory *memory, uint64_t now_ns,
		      uint32_t *lease);

/* Time of the next sample, where one is left. */
uint64_t inside_ring_next_ns(const struct inside_ring *ring);

/* Takes the next of the samples that were found; false: it was overwritten, is damaged, or there is none. */
bool inside_ring_take(struct inside_ring *ring, const struct inside_memory *memory,
		      struct inside_taken *out);
