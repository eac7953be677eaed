/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/recording_places.h"

#include <stdlib.h>
#include <string.h>

#include "recording/encode.h"

struct written_text {
	const char *text; /* NULL: free */
	uint64_t number;
};

void written_free(struct written *written)
{
	free(written->at);
}

static struct written_text *slot_of(struct written_text *list, size_t room, const char *text)
{
	uint64_t hash = (uintptr_t)text * 0x9e3779b97f4a7c15ull;
	size_t at = (hash ^ hash >> 32) & (room - 1);

	while (list[at].text && list[at].text != text)
		at = (at + 1) & (room - 1);
	return &list[at];
}

static struct error *grow(struct written *written)
{
	size_t room = written->room ? 2 * written->room : 1024;
	struct written_text *list = calloc(room, sizeof(*list));

	if (!list)
		return error_no_memory();
	for (size_t i = 0; i < written->room; i++)
		if (written->at[i].text)
			*slot_of(list, room, written->at[i].text) = written->at[i];
	free(written->at);
	written->at = list;
	written->room = room;
	return NULL;
}

/* Its number, 0 for none; the text is written if it is new. */
static struct error *number_of(struct written *written, const char *text, uint64_t *number,
			       struct bytes *out)
{
	struct written_text *slot;
	struct error *err = NULL;

	*number = 0;
	if (!text)
		return NULL;
	if (2 * written->n >= written->room)
		err = grow(written);
	if (err)
		return err;
	slot = slot_of(written->at, written->room, text);
	if (!slot->text) {
		err = encode_text(text, out);
		if (err)
			return err;
		*slot = (struct written_text){text, ++written->n};
	}
	*number = slot->number;
	return NULL;
}

struct error *encode_places(struct written *written, uint64_t addr, uint8_t kind,
			    const struct source_frame *frames, size_t n, struct bytes *out)
{
	uint64_t numbers[2 + 3 * SOURCE_DEPTH] = {addr, kind};
	struct error *err = NULL;

	for (size_t i = 0; i < n && !err; i++) {
		uint64_t *at = &numbers[2 + 3 * i];

		err = number_of(written, frames[i].function, &at[0], out);
		if (!err)
			err = number_of(written, frames[i].file, &at[1], out);
		at[2] = frames[i].line;
	}
	return err ? err : encode_numbers(RECORD_PLACES, numbers, 2 + 3 * n, out);
}

struct error *decode_text(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	size_t len = (size_t)(in.end - in.at);
	char *text;

	if (len > NAME_MAX_LEN || memchr(in.at, 0, len))
		return decode_damaged(decoder, offset, "a text that cannot be one");
	if (decoder->texts == decoder->texts_room) {
		size_t room = 2 * decoder->texts_room + 256;
		char **list = reallocarray(decoder->text, room, sizeof(*list));

		if (!list)
			return error_no_memory();
		decoder->text = list;
		decoder->texts_room = room;
	}
	text = strndup((const char *)in.at, len);
	if (!text)
		return error_no_memory();
	decoder->text[decoder->texts++] = text;
	return NULL;
}

static bool get_text(const struct decoder *decoder, struct cursor *in, const char **text)
{
	uint64_t number;

	if (!get_varint(in, &number) || number > decoder->texts)
		return false;
	*text = number ? decoder->text[number - 1] : NULL;
	return true;
}

struct error *decode_places(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct source_frame frames[SOURCE_DEPTH];
	uint64_t addr, kind, line;
	size_t n = 0;

	if (!get_varint(&in, &addr) || !get_varint(&in, &kind) || kind > FRAME_RETURN)
		return decode_damaged(decoder, offset, "places that cannot be");
	for (; in.at < in.end; n++) {
		if (n == SOURCE_DEPTH || !get_text(decoder, &in, &frames[n].function) ||
		    !get_text(decoder, &in, &frames[n].file) || !get_varint(&in, &line) ||
		    line > UINT32_MAX)
			return decode_damaged(decoder, offset, "places that cannot be");
		frames[n].line = (uint32_t)line;
	}
	if (!n || !visitor->places)
		return NULL;
	return visitor->places(visitor->ctx, addr, (uint8_t)kind, frames, n);
}
