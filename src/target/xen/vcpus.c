/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/xen.h"

#include <stdlib.h>
#include <string.h>

static bool ids_new(struct xen_ids *ids, uint32_t n)
{
	ids->n = 0;
	ids->id = calloc(n, sizeof(*ids->id));
	return ids->id != NULL;
}

struct error *xen_vcpus_new(struct xen_vcpus *vcpus, uint32_t n)
{
	vcpus->n = n;
	vcpus->now = calloc(n, sizeof(*vcpus->now));
	vcpus->seen = calloc(n, sizeof(*vcpus->seen));
	if (!vcpus->now || !vcpus->seen || !ids_new(&vcpus->online, n) ||
	    !ids_new(&vcpus->early, n) || !ids_new(&vcpus->late, n) || !ids_new(&vcpus->read, n))
		return error_no_memory();
	return NULL;
}

void xen_vcpus_free(struct xen_vcpus *vcpus)
{
	free(vcpus->now);
	free(vcpus->seen);
	free(vcpus->online.id);
	free(vcpus->early.id);
	free(vcpus->late.id);
	free(vcpus->read.id);
}

static void add(struct xen_ids *ids, uint32_t id)
{
	ids->id[ids->n++] = id;
}

static void list_online(struct xen_vcpus *vcpus)
{
	vcpus->online.n = 0;
	for (uint32_t i = 0; i < vcpus->n; i++)
		if (vcpus->seen[i].online)
			add(&vcpus->online, i);
}

int xen_vcpus_refresh(struct xen_vcpus *vcpus, struct xen_if *xi)
{
	struct xen_ids *off = &vcpus->late;
	int rc;

	off->n = 0;
	for (uint32_t i = 0; i < vcpus->n; i++)
		if (!vcpus->seen[i].online)
			add(off, i);
	if (!off->n)
		return 0;
	rc = xen_if_batch(xi, &(struct xen_batch){.states = *off}, vcpus->now);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < off->n; i++)
		vcpus->seen[off->id[i]].online = vcpus->now[off->id[i]].online;
	list_online(vcpus);
	return 0;
}

void xen_vcpus_expect(struct xen_vcpus *vcpus, const struct sample *sample, bool pause)
{
	vcpus->early.n = 0;
	for (uint32_t i = 0; i < vcpus->online.n && !pause; i++) {
		uint32_t id = vcpus->online.id[i];

		if (vcpus->seen[id].busy || sample->vcpu[id].request.again)
			add(&vcpus->early, id);
	}
}

void xen_vcpus_limit(struct xen_vcpus *vcpus, struct sample *sample, uint32_t n)
{
	struct xen_ids *read = &vcpus->read;
	uint32_t left = 0, from = 0;

	while (from < read->n && read->id[from] < vcpus->turn)
		from++;
	/* Counts from there on, and again from the first; the ids stay in ascending order. */
	for (uint32_t i = 0; i < read->n; i++) {
		const uint32_t rank = i >= from ? i - from : i + read->n - from;

		if (rank == n)
			vcpus->turn = read->id[i];
		if (rank < n)
			read->id[left++] = read->id[i];
		else
			sample->vcpu[read->id[i]].given_up = true;
	}
	read->n = left;
}

static bool must_be_read(const struct xen_vcpu *now, const struct vcpu_sample *vcpu)
{
	return now->running || !vcpu->account.held || now->cpu_ns != vcpu->account.cpu_ns ||
	       vcpu->request.again;
}

void xen_vcpus_note(struct xen_vcpus *vcpus, struct sample *sample)
{
	const uint32_t *early = vcpus->early.id, *end = early + vcpus->early.n;
	const int64_t usual_ns = vcpu_state_time(sample);

	vcpus->read.n = 0;
	vcpus->late.n = 0;
	vcpus->running = false;
	for (uint32_t i = 0; i < vcpus->online.n; i++) {
		const uint32_t id = vcpus->online.id[i];
		const struct xen_vcpu *now = &vcpus->now[id];
		struct xen_seen *seen = &vcpus->seen[id];
		struct vcpu_sample *vcpu = &sample->vcpu[id];
		const struct vcpu_load load = {now->cpu_ns, now->running, now->blocked};
		const bool has_context = early < end && *early == id;

		early += has_context;
		vcpu->online = now->online;
		vcpu->given_up = false;
		vcpu->hurried = false;
		vcpu->same = now->online && !must_be_read(now, vcpu);
		seen->noted_ns = now->cpu_ns;
		vcpu->state = vcpu_state_of(&load, vcpu, usual_ns);
		if (vcpu->same || !vcpu->online)
			continue;
		vcpus->running |= now->running;
		add(&vcpus->read, id);
		if (!has_context)
			add(&vcpus->late, id);
	}
}

bool xen_vcpus_still(const struct xen_vcpus *vcpus)
{
	for (uint32_t i = 0; i < vcpus->read.n; i++) {
		const uint32_t id = vcpus->read.id[i];

		if (vcpus->now[id].running || vcpus->now[id].cpu_ns != vcpus->seen[id].noted_ns)
			return false;
	}
	return true;
}

void xen_vcpus_done(struct xen_vcpus *vcpus, struct sample *sample)
{
	bool left = false;

	for (uint32_t i = 0; i < vcpus->online.n; i++) {
		const uint32_t id = vcpus->online.id[i];
		struct xen_seen *seen = &vcpus->seen[id];
		struct vcpu_sample *vcpu = &sample->vcpu[id];

		seen->busy = !vcpu->same;
		vcpu->ran_ns = 0;
		if (!vcpu->online) {
			*seen = (struct xen_seen){0};
			vcpu->account.held = false;
			left = true;
		} else if (!vcpu->same && !vcpu->given_up) {
			vcpu->ran_ns =
				vcpu->account.held ? seen->noted_ns - vcpu->account.cpu_ns : 0;
			vcpu->account.cpu_ns = seen->noted_ns;
			vcpu->account.held = true;
		}
	}
	if (left)
		list_online(vcpus);
}
