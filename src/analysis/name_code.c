/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/name_code.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"

const char *name_kind_text(enum name_kind kind)
{
	static const char *const names[NAME_KINDS] = {"kernel", "user", "guest",
						      "calls of the hypervisor", "idle"};

	return names[kind];
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The text behind `prefix`; NULL if it does not begin so. */
static const char *behind(const char *text, const char *prefix)
{
	const size_t len = strlen(prefix);

	return strncmp(text, prefix, len) ? NULL : text + len;
}

static bool is_one_word(const char *text)
{
	while (is_word(*text))
		text++;
	return !*text;
}

/* default_idle, mwait_idle_with_hints, acpi_idle_enter, psci_enter_idle_state ... */
static bool is_idle_of_something(const char *name)
{
	static const char *const owners[] = {"default_", "mwait_",    "intel_",	   "acpi_",
					     "poll_",	 "psci_",     "arch_cpu_", "do_",
					     "cpu_",	 "haltpoll_", "native_",   "xen_"};

	for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
		const char *rest = behind(name, owners[i]);

		if (rest)
			rest = behind(behind(rest, "enter_") ?: rest, "idle");
		if (rest && is_one_word(rest))
			return true;
	}
	return false;
}

static bool is_idle(const char *name)
{
	static const char *const whole[] = {
		"[idle]",	  "acpi_safe_halt",	 "native_halt",	      "native_safe_halt",
		"pv_native_halt", "pv_native_safe_halt", "cpu_startup_entry", "call_cpuidle"};
	const char *rest = behind(name, "cpuidle_");

	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		if (!strcmp(name, whole[i]))
			return true;
	return (rest && *rest && is_one_word(rest)) || is_idle_of_something(name);
}

static bool is_hypervisor(const char *name)
{
	static const char *const calls[] = {"vmcall", "vmmcall", "hvc_call"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const char *rest = behind(name, calls[i]);

		if (rest && !is_word(*rest))
			return true;
	}
	return strstr(name, "hypercall") || behind(name, "HYPERVISOR_");
}

enum name_kind name_kind_of(const char *name, bool kernel, bool user)
{
	if (is_idle(name))
		return NAME_IDLE;
	if (is_hypervisor(name))
		return NAME_HYPERVISOR;
	if (kernel)
		return NAME_KERNEL;
	return user ? NAME_USER : NAME_GUEST;
}

bool recording_is_of_process(const struct recording_info *info)
{
	return info->target && !strcmp(info->target, "process");
}

/* Behind ".func1.2". */
static const char *behind_closures(const char *text)
{
	for (;;) {
		const char *number = behind(text, ".func") ?: behind(text, ".");

		if (!number || !isdigit((unsigned char)*number))
			return text;
		for (text = number; isdigit((unsigned char)*text);)
			text++;
	}
}

/* Of Go: what is before the dot that a method's receiver, or the last name, is behind. */
static size_t package_of_go(const char *name)
{
	for (size_t i = 0; is_word(name[i]) || (name[i] && strchr("./-", name[i])); i++) {
		const char *rest = name + i + 1;

		if (name[i] != '.' || !i)
			continue;
		if (*rest == '(')
			return i;
		if (!is_word(*rest))
			continue;
		while (is_word(*rest))
			rest++;
		if (!*behind_closures(rest))
			return i;
	}
	return 0;
}

/* Of OCaml: camlStdlib__map_12. */
static size_t package_of_ocaml(const char *module)
{
	const char *end = isupper((unsigned char)*module) ? strstr(module + 1, "__") : NULL;

	for (const char *at = module; end && at < end; at++)
		if (!is_word(*at))
			return 0;
	return end ? (size_t)(end - module) : 0;
}

const char *name_package(const char *name, size_t *len)
{
	const char *first, *module;
	size_t n = 0;

	while (*name && strchr("<&* \t", *name))
		name++;
	while (is_word(name[n]) || name[n] == '$')
		n++;
	*len = n;
	if (n && name[n] == ':' && name[n + 1] == ':')
		return name;
	*len = package_of_go(name);
	if (*len)
		return name;
	module = behind(name, "caml");
	*len = module ? package_of_ocaml(module) : 0;
	if (*len)
		return module;
	*len = *name == '[' ? strcspn(name + 1, "]") : 0;
	if (*len && name[1 + *len])
		return name + 1;
	for (first = name; *first == '_';)
		first++;
	for (*len = 0; isalnum((unsigned char)first[*len]);)
		++*len;
	if (*len && first[*len] == '_')
		return first;
	*len = strlen(name);
	return name;
}

/* An image as recorded. */
struct image_range {
	uint64_t start, end;
	uint32_t number;
};

struct name_codes {
	struct pool *texts;
	struct ids *ids; /* of names, in `at` */
	struct name_code {
		uint32_t image;
		bool kernel;
	} * at;
	size_t room;
	struct ids *image_ids; /* in `images` */
	const char **images;
	size_t images_room;
	bool user; /* a kernel was met, or a process */
};

struct error *name_codes_new(struct name_codes **out)
{
	struct name_codes *codes = *out = calloc(1, sizeof(*codes));

	if (!codes)
		return error_no_memory();
	TRY(pool_new(&codes->texts));
	TRY(ids_new(&codes->ids));
	return ids_new(&codes->image_ids);
}

void name_codes_free(struct name_codes *codes)
{
	if (!codes)
		return;
	pool_free(codes->texts);
	ids_free(codes->ids);
	free(codes->at);
	ids_free(codes->image_ids);
	free(codes->images);
	free(codes);
}

static int by_start(const void *left, const void *right)
{
	const struct image_range *a = left, *b = right;

	return COMPARE(a->start, b->start);
}

/* The number of a text among names or images; *kept is the text in the pool. */
static struct error *number_text(struct name_codes *codes, struct ids *ids, const char *text,
				 const char **kept, uint32_t *number)
{
	bool added;

	TRY(pool_intern(codes->texts, text, strlen(text), kept));
	return ids_get(ids, (uintptr_t)*kept, 0, number, &added);
}

/* Images of the same file name are one. */
static struct error *number_image(struct name_codes *codes, const char *path, uint32_t *number)
{
	const char *name;

	TRY(number_text(codes, codes->image_ids, basename(path), &name, number));
	TRY(ARRAY_RESERVE(&codes->images, &codes->images_room, *number + (size_t)1));
	codes->images[(*number)++] = name;
	return NULL;
}

/* Sorted by start; *n of them. */
static struct error *number_images(struct name_codes *codes, const struct recorded_images *images,
				   struct image_range **out, size_t *n)
{
	struct image_range *ranges = *out = calloc(images->n + 1, sizeof(*ranges));

	if (!ranges)
		return error_no_memory();
	for (size_t i = 0; i < images->n; i++) {
		const struct recorded_image *image = &images->at[i];

		if (!image->path || !*image->path)
			continue;
		ranges[*n] = (struct image_range){.start = image->start, .end = image->end};
		TRY(number_image(codes, image->path, &ranges[(*n)++].number));
	}
	if (*n)
		qsort(ranges, *n, sizeof(*ranges), by_start);
	return NULL;
}

/* 0 where no image is known. */
static uint32_t image_at(const struct image_range *ranges, size_t n, uint64_t addr)
{
	const size_t behind = ARRAY_UPTO(ranges, n, start, addr);

	return behind && addr < ranges[behind - 1].end ? ranges[behind - 1].number : 0;
}

static struct error *note(struct name_codes *codes, const char *function, uint32_t image,
			  bool kernel)
{
	const char *name;
	uint32_t id;

	TRY(number_text(codes, codes->ids, function, &name, &id));
	TRY(ARRAY_RESERVE_ZERO(&codes->at, &codes->room, id + (size_t)1));
	if (!codes->at[id].image)
		codes->at[id].image = image;
	codes->at[id].kernel |= kernel;
	codes->user |= kernel;
	return NULL;
}

/* Asks once for each address, of all that stacks have. */
struct error *name_codes_add(struct name_codes *codes, const struct profile *profile,
			     struct symbolizer *symbolizer)
{
	const struct stacks *stacks = profile->stacks;
	const struct frame_numbers *frames = symbolizer_frames(symbolizer);
	FREED struct image_range *ranges = NULL;
	size_t n_ranges = 0;

	TRY(number_images(codes, profile_images(profile), &ranges, &n_ranges));
	codes->user |= recording_is_of_process(&profile->info);
	TRY(symbolizer_prepare_stacks(symbolizer, stacks));
	for (uint32_t i = 0; i < frames->n; i++) {
		const struct stack_node *frame = stacks_node(stacks, frames->node[i]);
		const uint64_t addr = frame->addr - (frame->kind == FRAME_RETURN);
		const struct location *functions;
		size_t n;

		TRY(symbolizer_locate_node(symbolizer, stacks, frames->node[i], &functions, &n));
		for (size_t k = 0; k < n; k++)
			TRY(note(codes, functions[k].function, image_at(ranges, n_ranges, addr),
				 addr_is_kernels(addr)));
	}
	return NULL;
}

const char *name_codes_image(const struct name_codes *codes, uint32_t number)
{
	return number && number <= ids_count(codes->image_ids) ? codes->images[number - 1] : NULL;
}

static struct name_code code_of(const struct name_codes *codes, const char *name)
{
	const char *known = pool_find(codes->texts, name, strlen(name));
	uint32_t id;

	return known && ids_find(codes->ids, (uintptr_t)known, 0, &id) ? codes->at[id]
								       : (struct name_code){0};
}

bool name_codes_may_have(const struct name_codes *codes, enum name_kind kind)
{
	return kind == NAME_GUEST ? !codes->user
				  : codes->user || (kind != NAME_KERNEL && kind != NAME_USER);
}

uint32_t name_codes_image_of(const struct name_codes *codes, const char *name)
{
	return code_of(codes, name).image;
}

enum name_kind name_codes_kind_of(const struct name_codes *codes, const char *name)
{
	return name_kind_of(name, code_of(codes, name).kernel, codes->user);
}
