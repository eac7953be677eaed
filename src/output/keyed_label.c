/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/keyed_label.h"

#include <stdlib.h>
#include <string.h>

/* What is not known has a name, too: there are few enough columns to look for it. */
#define UNKNOWN "[unknown]"

void labeller_free(struct labeller *labeller)
{
	free(labeller->text);
	labeller->text = NULL;
}

static struct error *join(struct labeller *l, const char *text)
{
	size_t len = strlen(text);

	if (l->len + len + 2 > l->room) {
		size_t room = 2 * (l->len + len + 2);
		char *grown = realloc(l->text, room);

		if (!grown)
			return error_no_memory();
		l->text = grown;
		l->room = room;
	}
	memcpy(l->text + l->len, text, len);
	l->len += len;
	return NULL;
}

/* The next column. */
static struct error *append(struct labeller *l, const char *text)
{
	struct error *err = l->len ? join(l, "\t") : NULL;

	return err ? err : join(l, text);
}

/* As the images tell that were loaded, or else those that the recording tells of. */
static struct error *image_of(const struct labeller *l, const struct stack_node *frame,
			      const char **name)
{
	const struct recorded_images *recorded = profile_images(l->profile);
	uint64_t va = frame->addr - (frame->kind == FRAME_RETURN && frame->addr);
	const struct image *image = l->images ? images_at(l->images, va) : NULL;
	const char *path = image && image->file->path ? image->file->path : NULL;

	for (size_t i = 0; i < recorded->n && !path; i++)
		if (va >= recorded->at[i].start && va < recorded->at[i].end)
			path = recorded->at[i].path;
	return namer_intern(l->namer, path ? path : UNKNOWN, name);
}

/* Where no line is known, at least the function is. */
static struct error *put_line(struct labeller *l, const struct location *function)
{
	char number[16];
	struct error *err;

	snprintf(number, sizeof(number), ":%u", function->line);
	err = append(l, function->file ? function->file : function->function);
	return err || !function->file ? err : join(l, number);
}

static struct error *put_key(struct labeller *l, enum key key, const struct stack_node *frame,
			     const struct location *function)
{
	struct error *err = NULL;
	const char *text = NULL;
	char number[16];

	switch (key) {
	case KEY_FUNCTION:
		text = function->function;
		break;
	case KEY_LINE:
		return put_line(l, function);
	case KEY_FILE:
		text = function->file;
		break;
	case KEY_IMAGE:
		err = image_of(l, frame, &text);
		break;
	case KEY_VCPU:
		snprintf(number, sizeof(number), "%u", l->vcpu);
		text = number;
		break;
	case KEY_STATE:
		text = vcpu_state_text((enum vcpu_state)l->state);
		break;
	case KEYS:
		break;
	}
	return err ? err : append(l, text ? text : UNKNOWN);
}

static struct error *put_keys(struct labeller *l, const struct stack_node *frame,
			      const struct location *function, const char **name)
{
	struct error *err = NULL;

	l->len = 0;
	for (size_t i = 0; i < l->keys->n && !err; i++)
		err = put_key(l, l->keys->at[i], frame, function);
	return err ? err : pool_intern(l->pool, l->text, l->len, name);
}

struct error *label_of_function(struct labeller *l, const struct stack_node *frame,
				const struct location *function, const char **name)
{
	return put_keys(l, frame, function, name);
}

struct error *label_of_sample(struct labeller *l, const char **name)
{
	return put_keys(l, NULL, NULL, name);
}
