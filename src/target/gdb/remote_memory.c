/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of a guest behind a gdb stub: by "m" packets, while the guest is paused. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "target/gdb/remote.h"

/* Requests on the way at once: their answers fit into a socket's buffer. */
#define REQUESTS 8u

/* Code hardly ever changes, and each page costs a pause. */
#define KEEP_NS (30 * NS_PER_S)

/* The most pauses for pages in a second. */
#define PAUSES 200u

/* Of all processors, the smallest. */
#define PAGE 4096u

/*
 * Bytes that the next request asks for. None crosses into another page: stubs
 * answer with an error alone where one of them is not mapped.
 */
static size_t part_of(const struct remote *remote, uint64_t va, size_t left)
{
	const size_t page = PAGE - (size_t)(va % PAGE);
	const size_t most = page < remote->piece ? page : remote->piece;

	return left < most ? left : most;
}

/* Takes the answer to one request; returns the bytes that it has. */
static size_t take_piece(struct gdb *gdb, uint8_t *to, size_t len)
{
	if (!gdb_batch_next(gdb))
		return 0;
	if (len > gdb->len / 2)
		len = gdb->len / 2;
	return gdb_bytes(gdb, 0, to, len) ? len : 0;
}

/* One round of requests; fewer bytes than asked for: there are no more. */
static size_t read_some(struct remote *remote, uint64_t va, uint8_t *to, size_t len)
{
	char request[48];
	size_t done = 0, part;
	bool whole = true;

	gdb_batch_begin(remote->gdb);
	for (size_t at = 0; at < len; at += part) {
		part = part_of(remote, va + at, len - at);
		snprintf(request, sizeof(request), "m%" PRIx64 ",%zx", va + at, part);
		gdb_batch_add(remote->gdb, request);
	}
	if (!gdb_batch_send(remote->gdb))
		return 0;
	/* All answers are taken, those behind a gap for nothing. */
	for (size_t at = 0; at < len; at += part) {
		size_t got;

		part = part_of(remote, va + at, len - at);
		got = take_piece(remote->gdb, to + at, part);
		if (whole)
			done += got;
		whole = whole && got == part;
	}
	return done;
}

size_t remote_memory(struct remote *remote, uint64_t va, void *buf, size_t len)
{
	const size_t round = REQUESTS * remote->piece;
	size_t done = 0;

	if (len > UINT64_MAX - va)
		len = (size_t)(UINT64_MAX - va);
	while (done < len) {
		const size_t want = len - done < round ? len - done : round;
		const size_t got = read_some(remote, va + done, (uint8_t *)buf + done, want);

		done += got;
		if (got < want)
			break;
	}
	return done;
}

bool remote_window(void *remote, uint64_t va, uint32_t want, uint8_t *buffer, struct window *out)
{
	*out = (struct window){.va = va, .bytes = buffer};
	out->len = (uint32_t)remote_memory(remote, va, buffer, want);
	out->cut = out->len == want;
	return true;
}

/* A thread in the address space of these registers, as far as is known. */
static const struct remote_thread *thread_of(const struct remote *remote, const struct regs *regs)
{
	const struct remote_thread *any = NULL;

	/* User programs of a machine: which one runs cannot be told without system registers. */
	if (remote->layout.plain && !remote->process && regs->user)
		return NULL;
	for (uint32_t i = 0; i < remote->base.info.vcpus; i++) {
		const struct remote_thread *thread = &remote->thread[i];

		if (!*thread->name || !thread->known)
			continue;
		if (thread->regs.mmu.root == regs->mmu.root && thread->regs.pc == regs->pc)
			return thread;
		if (thread->regs.mmu.root == regs->mmu.root)
			any = thread;
	}
	return any;
}

/* Selects a thread; false if it is in another address space by now. */
static bool enter_space(struct remote *remote, const struct remote_thread *thread, uint64_t root)
{
	struct regs now;

	gdb_batch_begin(remote->gdb);
	gdb_batch_select(remote->gdb, thread->name);
	gdb_layout_request(&remote->layout, remote->gdb);
	return gdb_batch_send(remote->gdb) && gdb_batch_next(remote->gdb) &&
	       gdb_layout_take(&remote->layout, remote->gdb, &now) && now.mmu.root == root;
}

/* Pauses for pages are rare: what is not read now is asked for again later. */
static bool may_pause(struct remote *remote)
{
	const uint64_t now = clock_now_ns();

	if (remote->halted || remote->late || remote->gdb->gone)
		return false;
	if (now - remote->second_ns >= NS_PER_S) {
		remote->second_ns = now;
		remote->pauses = 0;
	}
	return remote->pauses++ < PAUSES;
}

static bool fetch(struct remote *remote, const struct regs *regs, uint64_t va,
		  struct remote_page *page)
{
	const struct remote_thread *thread = thread_of(remote, regs);
	struct error *err;
	uint64_t began_ns;
	bool entered;

	page->until_ns = 0;
	if (!thread || !may_pause(remote))
		return false;
	err = remote_pause(remote, &began_ns);
	if (err) {
		error_free(err);
		return false;
	}
	entered = enter_space(remote, thread, regs->mmu.root);
	if (entered) {
		page->va = va;
		page->root = regs->mmu.root;
		page->len = remote_memory(remote, va, page->bytes, FRAME_SIZE);
		page->until_ns = clock_now_ns() + KEEP_NS;
	}
	remote->stolen_ns += remote_resume(remote, began_ns);
	return entered;
}

static struct remote_page *page_at(struct remote *remote, const struct regs *regs, uint64_t va)
{
	const size_t slot = (va >> FRAME_SHIFT) & (REMOTE_PAGES - 1);
	struct remote_page *page = &remote->page[slot];

	if (page->va == va && page->root == regs->mmu.root && clock_now_ns() < page->until_ns)
		return page;
	return fetch(remote, regs, va, page) ? page : NULL;
}

size_t remote_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
		   size_t len)
{
	struct remote *remote = (struct remote *)target;
	size_t done = 0;

	while (done < len) {
		const size_t offset = (va + done) & (FRAME_SIZE - 1);
		const struct remote_page *page = page_at(remote, regs, va + done - offset);
		size_t part;

		if (!page || page->len <= offset)
			break;
		part = page->len - offset < len - done ? page->len - offset : len - done;
		memcpy((uint8_t *)buf + done, page->bytes + offset, part);
		done += part;
		if (offset + part < FRAME_SIZE && done < len)
			break;
	}
	return done;
}
