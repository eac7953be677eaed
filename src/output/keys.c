/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/keys.h"

#include <string.h>

static const char *const texts[KEYS] = {
	[KEY_FUNCTION] = "function", [KEY_LINE] = "line", [KEY_FILE] = "file",
	[KEY_IMAGE] = "image",	     [KEY_VCPU] = "vcpu", [KEY_STATE] = "state",
};

static const struct {
	const char *name;
	enum key key;
} synonyms[] = {
	{"sym", KEY_FUNCTION}, {"symbol", KEY_FUNCTION}, {"func", KEY_FUNCTION},
	{"srcline", KEY_LINE}, {"srcfile", KEY_FILE},	 {"dso", KEY_IMAGE},
	{"cpu", KEY_VCPU},
};

const char *key_text(enum key key)
{
	return texts[key];
}

bool key_is_of_frame(enum key key)
{
	return key != KEY_VCPU && key != KEY_STATE;
}

bool keys_have(const struct keys *keys, enum key key)
{
	for (size_t i = 0; i < keys->n; i++)
		if (keys->at[i] == key)
			return true;
	return false;
}

bool keys_divide(const struct keys *keys)
{
	for (size_t i = 0; i < keys->n; i++)
		if (!key_is_of_frame(keys->at[i]))
			return true;
	return false;
}

static bool is(const char *name, const char *text, size_t len)
{
	return strlen(name) == len && !strncmp(name, text, len);
}

static bool find(const char *text, size_t len, enum key *key)
{
	for (int i = 0; i < KEYS; i++) {
		if (is(texts[i], text, len)) {
			*key = (enum key)i;
			return true;
		}
	}
	for (size_t i = 0; i < sizeof(synonyms) / sizeof(*synonyms); i++) {
		if (is(synonyms[i].name, text, len)) {
			*key = synonyms[i].key;
			return true;
		}
	}
	return false;
}

bool keys_parse(const char *text, struct keys *keys, const char **bad)
{
	keys->n = 0;
	for (;;) {
		size_t len = strcspn(text, ",");
		enum key key;

		*bad = text;
		if (!find(text, len, &key) || keys_have(keys, key))
			return false;
		keys->at[keys->n++] = key;
		if (!text[len])
			return true;
		text += len + 1;
	}
}
