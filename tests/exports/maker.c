/* SPDX-License-Identifier: BSD-3-Clause */
#include "maker.h"

#include <stdio.h>
#include <stdlib.h>

void check(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "example: %s\n", err->text);
	exit(1);
}

void maker_create(struct maker *m, const char *path, uint32_t vcpus, const char *guest,
		  const struct recorded_images *images)
{
	const struct recording_info info = {.target = "xen",
					    .guest_name = (char *)guest,
					    .guest_id = "7",
					    .guest_type = "pvh",
					    .arch = "x86_64",
					    .vcpus = vcpus,
					    .rate_hz = 1e9 / TICK_NS,
					    .start_unix_ns = UINT64_C(1790000000000000000),
					    .images = *images};

	check(stacks_new(&m->stacks));
	check(recording_create(path, &info, m->stacks, &m->writer));
}

void maker_close(struct maker *m)
{
	const struct recording_end end = {.reason = "time", .elapsed_ns = m->time_ns};

	check(recording_close(m->writer, &end));
	stacks_free(m->stacks);
}

void maker_sample(struct maker *m, uint32_t vcpu, uint8_t state, const uint64_t *addrs, size_t n)
{
	struct tick_entry entry = {.vcpu = vcpu, .state = state, .thread = m->thread};
	struct frame frames[16];
	bool whole;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){addrs[i], i ? FRAME_RETURN : FRAME_PC, TRUST_SURE};
	check(stacks_intern(m->stacks, frames, n, &entry.stack, &whole));
	m->time_ns += m->tick_ns;
	check(recording_tick(m->writer, &(struct tick){.time_ns = m->time_ns,
						       .weight_ns = m->tick_ns,
						       .paused_ns = m->paused_ns,
						       .n = 1,
						       .entries = &entry}));
}

void maker_thread(struct maker *m, uint32_t pid, uint32_t tid, const char *process,
		  const char *name)
{
	check(recording_thread(m->writer, &(struct recorded_thread){.pid = pid,
								    .tid = tid,
								    .idle = !tid,
								    .process = process,
								    .name = name,
								    .container = m->container}));
}

void maker_name(struct maker *m, uint64_t addr, const char *text)
{
	check(recording_name(m->writer, addr, FRAME_PC, text, 0));
	check(recording_name(m->writer, addr, FRAME_RETURN, text, 0));
}
