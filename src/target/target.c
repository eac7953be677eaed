/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/target.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_WANT 4096u

struct error *sample_new(uint32_t vcpus, uint32_t stack_cap, struct sample **out)
{
	struct sample *sample = calloc(1, sizeof(*sample));

	if (!sample)
		return error_no_memory();
	sample->vcpus = vcpus;
	sample->stack_cap = stack_cap;
	sample->vcpu = calloc(vcpus, sizeof(*sample->vcpu));
	if (!sample->vcpu)
		goto no_memory;
	for (uint32_t i = 0; i < vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->want = stack_cap < FIRST_WANT ? stack_cap : FIRST_WANT;
		/* Touched now, so that no page fault happens while the guest is paused. */
		vcpu->buffer = malloc(stack_cap);
		vcpu->other_buffer = malloc(OTHER_STACK_CAP);
		if (!vcpu->buffer || !vcpu->other_buffer)
			goto no_memory;
		memset(vcpu->buffer, 0, stack_cap);
		memset(vcpu->other_buffer, 0, OTHER_STACK_CAP);
		vcpu->stack.bytes = vcpu->buffer;
		vcpu->other.bytes = vcpu->other_buffer;
	}
	*out = sample;
	return NULL;

no_memory:
	sample_free(sample);
	return error_no_memory();
}

void sample_free(struct sample *sample)
{
	if (!sample)
		return;
	for (uint32_t i = 0; sample->vcpu && i < sample->vcpus; i++) {
		free(sample->vcpu[i].buffer);
		free(sample->vcpu[i].other_buffer);
	}
	free(sample->vcpu);
	free(sample);
}

static const struct target_ops *kind_by_scheme(const char *scheme, size_t len)
{
	const struct target_ops *ops;

	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (strlen(ops->scheme) == len && !strncmp(ops->scheme, scheme, len))
			return ops;
	return NULL;
}

static struct error *open_with_scheme(const char *spec, size_t len, struct target **out)
{
	const struct target_ops *ops = kind_by_scheme(spec, len);

	if (!ops && len == 3 && !strncmp(spec, "xen", 3))
		return error_new(ERR_DENIED,
				 "this uniprof was built without Xen's libraries (see uniprof -V)");
	if (!ops)
		return error_new(ERR_USAGE, "\"%s\": there is no kind of guest called \"%.*s\"",
				 spec, (int)len, spec);
	return ops->open(spec + len + 1, out);
}

/* Who answers to a bare name. */
struct search {
	const char *name;
	unsigned matches;
	const char *scheme;
};

static void match(void *ctx, const struct target_listing *entry)
{
	struct search *search = ctx;

	if (strcmp(entry->name, search->name) && strcmp(entry->id, search->name))
		return;
	search->matches++;
	search->scheme = entry->scheme;
}

static struct error *open_bare(const char *name, struct target **out)
{
	struct search search = {.name = name};
	const struct target_ops *ops, *only = NULL;
	struct error *err = NULL;
	size_t kinds = 0;

	for (size_t i = 0; (ops = target_kind(i)); i++) {
		if (!ops->list)
			continue;
		only = ops;
		kinds++;
		err = error_first(err, ops->list(match, &search));
	}
	if (kinds == 0)
		return error_new(ERR_DENIED,
				 "this uniprof was built without any kind of guest that has names "
				 "(see uniprof -V); a recorded one is replay:FILE");
	/* With one kind only, its own error says best what is wrong. */
	if (kinds == 1) {
		error_free(err);
		return only->open(name, out);
	}
	if (search.matches == 1) {
		error_free(err);
		return kind_by_scheme(search.scheme, strlen(search.scheme))->open(name, out);
	}
	if (search.matches == 0 && err)
		return err;
	error_free(err);
	return error_new(ERR_GUEST,
			 search.matches
				 ? "\"%s\" can mean %u guests; say which as KIND:NAME (see "
				   "uniprof list)"
				 : "there is no guest called \"%s\" (%u found); see uniprof list",
			 name, search.matches);
}

struct error *target_open(const char *spec, struct target **out)
{
	const char *colon = strchr(spec, ':');

	if (!*spec)
		return error_new(ERR_USAGE, "the name of the guest is empty");
	return colon ? open_with_scheme(spec, (size_t)(colon - spec), out) : open_bare(spec, out);
}

void target_close(struct target *target)
{
	if (target)
		target->ops->close(target);
}
