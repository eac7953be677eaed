/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Inside of the target "gdb": shared by its files alone. */

#include "target/gdb/client.h"
#include "target/target.h"

#define REMOTE_PAGES 256u /* a power of two; direct-mapped */

struct remote_thread {
	char name[GDB_THREAD_MAX]; /* "": a slot for a thread to come */
	struct regs regs;	   /* of the last sample */
	bool known;		   /* regs were read */
};

struct remote_page {
	uint64_t va, root;
	uint64_t until_ns; /* the page has to be read again after that time; 0: the slot is empty */
	size_t len;
	uint8_t bytes[FRAME_SIZE];
};

struct remote {
	struct target base;
	struct gdb *gdb;
	struct gdb_layout layout;
	struct gdb_detach detach;
	struct guard *guard;
	struct remote_thread *thread; /* info.vcpus of them */
	size_t piece;		      /* bytes of memory that one request asks for */
	bool process;		      /* the stub serves a program, not a machine */
	bool attached;		      /* the guest runs, by us */
	bool halted;		      /* by others */
	bool late;		      /* told to stop, has not answered */
	uint64_t stolen_ns;	      /* pauses for pages of memory since the last sample */
	uint64_t second_ns; /* start of the second in which pauses for pages are counted */
	unsigned pauses;    /* pauses in that second */
	struct remote_page *page;
};

/* Pauses the guest, until remote_resume(). Until then, all exchanges together have a deadline. */
struct error *remote_pause(struct remote *remote, uint64_t *began_ns);

/* Lets the guest run; returns how long it was paused, ns. */
uint64_t remote_resume(struct remote *remote, uint64_t began_ns);

/* Reads memory of the selected thread, while the guest is paused. Returns bytes read. */
size_t remote_memory(struct remote *remote, uint64_t va, void *buf, size_t len);

/* A window_reader (host/memory.h) of the selected thread's memory, while the guest is paused. */
bool remote_window(void *remote, uint64_t va, uint32_t want, uint8_t *buffer, struct window *out);

/*
 * As ops->read: page by page, each by a pause of its own, which are bounded in
 * number; pages are kept for some seconds.
 */
size_t remote_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
		   size_t len);
