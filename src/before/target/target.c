/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/target.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/preopen.h"
#include "base/clock.h"

#define FIRST_WANT 4096u

static bool others_new(struct vcpu_sample *vcpu)
{
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		uint8_t *buffer = malloc(OTHER_STACK_CAP);

		if (!buffer)
			return false;
		memset(buffer, 0, OTHER_STACK_CAP);
		vcpu->other[i].buffer = buffer;
		vcpu->others[i].bytes = buffer;
	}
	return true;
}

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
		if (!vcpu->buffer || !others_new(vcpu))
			goto no_memory;
		memset(vcpu->buffer, 0, stack_cap);
		vcpu->stack.bytes = vcpu->buffer;
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
		for (unsigned k = 0; k < UNWIND_OTHERS; k++)
			free(sample->vcpu[i].other[k].buffer);
	}
	free(sample->vcpu);
	free(sample);
}

unsigned vcpu_others(const struct vcpu_sample *vcpu)
{
	unsigned n = vcpu->leads_on ? UNWIND_OTHERS : 0;

	while (n && !vcpu->others[n - 1].len)
		n--;
	return n;
}

static const struct target_ops *kind_by_scheme(const char *scheme, size_t len)
{
	const struct target_ops *ops;

	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (strlen(ops->scheme) == len && !strncmp(ops->scheme, scheme, len))
			return ops;
	return NULL;
}

static struct error *no_such_way(const struct target_ops *ops, const char *via)
{
	char names[128] = "";

	for (const struct target_way *way = ops->ways; way && way->name; way++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
			 *names ? ", " : "", way->name);
	return *names ? error_new(ERR_USAGE, "--via %s: guests of kind \"%s\" are read via %s", via,
				  ops->scheme, names)
		      : error_new(ERR_USAGE,
				  "--via %s: there is no choice of ways to read guests of kind "
				  "\"%s\"",
				  via, ops->scheme);
}

static struct error *open_kind(const struct target_ops *ops, const char *name, const char *via,
			       struct target **out)
{
	if (!via)
		return ops->open(name, out);
	for (const struct target_way *way = ops->ways; way && way->name; way++)
		if (!strcmp(way->name, via))
			return ops->open_via ? ops->open_via(name, via, out) : ops->open(name, out);
	return no_such_way(ops, via);
}

static struct error *open_with_scheme(const char *spec, size_t len, const char *via,
				      struct target **out)
{
	const struct target_ops *ops = kind_by_scheme(spec, len);

	if (!ops && len == 3 && !strncmp(spec, "xen", 3))
		return error_new(ERR_DENIED,
				 "this uniprof was built without Xen's libraries (see uniprof -V)");
	if (!ops)
		return error_new(ERR_USAGE, "\"%s\": there is no kind of guest called \"%.*s\"",
				 spec, (int)len, spec);
	return open_kind(ops, spec + len + 1, via, out);
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

/* A file is meant only if it can be nothing else: a guest may have any name. */
static bool is_core(const char *path)
{
	unsigned char head[EI_NIDENT + sizeof(uint16_t)];
	struct stat file;
	uint16_t type = ET_NONE;
	int fd = !stat(path, &file) && S_ISREG(file.st_mode) ? open_to_read(path) : -1;

	if (fd < 0)
		return false;
	if (pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	    !memcmp(head, ELFMAG, SELFMAG))
		memcpy(&type, head + EI_NIDENT, sizeof(type));
	close(fd);
	return type == ET_CORE;
}

static struct error *open_bare(const char *name, const char *via, struct target **out)
{
	struct search search = {.name = name};
	const struct target_ops *ops, *only = NULL;
	struct error *err = NULL;
	size_t kinds = 0;

	if (is_core(name))
		return open_kind(&target_core, name, via, out);
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
		return open_kind(only, name, via, out);
	}
	if (search.matches == 1) {
		error_free(err);
		return open_kind(kind_by_scheme(search.scheme, strlen(search.scheme)), name, via,
				 out);
	}
	if (search.matches == 0 && err)
		return err;
	error_free(err);
	return error_new(
		ERR_GUEST,
		search.matches
			? "\"%s\" can mean %u guests; say which as KIND:NAME (see "
			  "uniprof list)"
			: "there is no guest called \"%s\"; `uniprof list` shows what there is",
		name, search.matches);
}

struct error *target_open_via(const char *spec, const char *via, struct target **out)
{
	const char *colon = strchr(spec, ':');

	if (!*spec)
		return error_new(ERR_USAGE, "the name of the guest is empty");
	return colon ? open_with_scheme(spec, (size_t)(colon - spec), via, out)
		     : open_bare(spec, via, out);
}

struct error *target_open(const char *spec, struct target **out)
{
	return target_open_via(spec, NULL, out);
}

struct error *target_check_runs(const struct target *target)
{
	if (!target->still)
		return NULL;
	return error_new(ERR_GUEST,
			 "\"%s\" holds one moment of a guest, which `uniprof stack` shows: there "
			 "is nothing to be sampled",
			 target->info.name);
}

void target_wait(struct target *target, uint64_t until_ns)
{
	if (target->ops->wait)
		target->ops->wait(target, until_ns);
	else
		clock_sleep_until(until_ns);
}

void target_close(struct target *target)
{
	if (target)
		target->ops->close(target);
}
