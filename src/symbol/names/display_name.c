/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/display_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/intern.h"
#include "base/owned.h"

size_t utf8_decode(const unsigned char *s, size_t left, uint32_t *c)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = s[0] < 0x80	     ? 1
		     : (s[0] & 0xe0) == 0xc0 ? 2
		     : (s[0] & 0xf0) == 0xe0 ? 3
		     : (s[0] & 0xf8) == 0xf0 ? 4
					     : 0;

	if (!len || len > left)
		return 0;
	*c = len == 1 ? s[0] : s[0] & (0x7f >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (s[i] & 0x3f);
	}
	if (*c < smallest[len] || *c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff))
		return 0;
	return len;
}

static bool harmful(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c <= 0x9f) ||	    /* C0, DEL, C1 */
	       c == 0x061c || c == 0x200e || c == 0x200f || /* direction marks */
	       (c >= 0x2028 && c <= 0x202e) ||		    /* separators, embeddings, overrides */
	       (c >= 0x2066 && c <= 0x2069) ||		    /* isolates */
	       c == 0xfeff || (c & 0xfffe) == 0xfffe;	    /* byte order mark, no characters */
}

static bool is_blank(uint32_t c)
{
	return c == 0x20 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	       c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Most names are visible ASCII: they need no second check. */
static bool plain(const unsigned char *s, size_t len)
{
	unsigned char odd = 0;

	for (size_t i = 0; i < len; i++)
		odd |= s[i] <= 0x20 || s[i] >= 0x7f;
	return len && !odd;
}

size_t sanitize_name(const char *name, size_t len, char *out)
{
	const unsigned char *s = (const unsigned char *)name;
	size_t n = 0;

	if (plain(s, len)) {
		memcpy(out, name, len);
		out[len] = '\0';
		return len;
	}

	while (len) {
		uint32_t c = 0;
		size_t step = utf8_decode(s, len, &c);

		if (step && is_blank(c)) {
			if (n)
				out[n++] = ' ';
		} else if (!step || harmful(c)) {
			memcpy(out + n, "\xef\xbf\xbd", 3);
			n += 3;
			step = step ? step : 1;
		} else {
			memcpy(out + n, s, step);
			n += step;
		}
		s += step;
		len -= step;
	}
	while (n && out[n - 1] == ' ')
		n--;
	if (!n)
		out[n++] = '-';
	out[n] = '\0';
	return n;
}

size_t sanitize_cut(const char *text, size_t max)
{
	size_t len = strnlen(text, max + 1);

	if (len <= max)
		return len;
	for (len = max; len && ((unsigned char)text[len] & 0xc0) == 0x80; len--)
		;
	return len;
}

char *sanitize_new(const char *name)
{
	size_t len = strlen(name);
	char *out = malloc(SANITIZE_ROOM(len));

	if (out)
		sanitize_name(name, len, out);
	return out;
}

void sanitize_print(const char *text, FILE *out)
{
	FREED char *clean = *text ? sanitize_new(text) : NULL;

	if (clean)
		fputs(clean, out);
}

/* A string that was cleaned before, found by its pointer: the caller's own or the pool's. */
struct known {
	const char *text;  /* cleaned; the pool's, as the next one */
	const char *plain; /* demangled; NULL: nobody has asked yet */
};

struct display_names {
	struct pool *pool;
	char *scratch; /* for cleaning */
	size_t scratch_room;
	struct row_ids ids;  /* of strings by pointer */
	struct known *known; /* a text that is NULL: not cleaned yet */
};

struct error *display_names_new(struct display_names **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? pool_new(&(*out)->pool) : error_no_memory();
}

void display_names_free(struct display_names *names)
{
	if (!names)
		return;
	pool_free(names->pool);
	ids_free(names->ids.ids);
	free(names->scratch);
	free(names->known);
	free(names);
}

struct error *display_names_text(struct display_names *names, const char *text, const char **out)
{
	size_t len = strlen(text);

	TRY(ARRAY_RESERVE(&names->scratch, &names->scratch_room, SANITIZE_ROOM(len)));
	len = sanitize_name(text, len, names->scratch);
	return pool_intern(names->pool, names->scratch, len, out);
}

/* Finds or adds a lasting string, with its cleaned text; *out is valid until the next call. */
static struct error *find(struct display_names *names, const char *from, struct known **out)
{
	uint32_t id;

	TRY(ROW_IDS_GET(&names->ids, (uintptr_t)from, 0, &names->known, &id));
	*out = &names->known[id];
	return (*out)->text ? NULL : display_names_text(names, from, &(*out)->text);
}

struct error *display_names_lasting(struct display_names *names, const char *text, const char **out)
{
	struct known *known;

	TRY(find(names, text, &known));
	*out = known->text;
	return NULL;
}

/* `text` is a string of the pool: each name is demangled once, wherever it came from. */
static struct error *demangled(struct display_names *names, const char *text, const char **out)
{
	FREED char *plain = NULL;
	struct known *known;

	TRY(find(names, text, &known));
	if (!known->plain) {
		known->plain = text;
		plain = demangle(text);
		if (plain)
			TRY(display_names_text(names, plain, &known->plain));
	}
	*out = known->plain;
	return NULL;
}

struct error *display_names_function(struct display_names *names, const char *name,
				     const char **cleaned, const char **plain)
{
	struct known *known;

	TRY(find(names, name, &known));
	*cleaned = known->text;
	*plain = known->plain;
	if (*plain)
		return NULL;
	TRY(demangled(names, *cleaned, plain));
	TRY(find(names, name, &known));
	known->plain = *plain;
	return NULL;
}

/* Forms of a name, each longer than the one before. */
enum { FORM_SHORT, FORM_ARGUMENTS, FORM_FULL };

struct short_name {
	const char *full, *text; /* the pool's */
	unsigned form;
};

struct short_names {
	struct pool *pool;
	struct row_ids ids; /* of full names by pointer */
	struct short_name *at;
	bool unique; /* no two texts are equal */
};

struct error *short_names_new(struct short_names **out)
{
	struct short_names *names = calloc(1, sizeof(*names));
	struct error *err = names ? pool_new(&names->pool) : error_no_memory();

	*out = err ? NULL : names;
	if (err)
		short_names_free(names);
	return err;
}

void short_names_free(struct short_names *names)
{
	if (!names)
		return;
	pool_free(names->pool);
	ids_free(names->ids.ids);
	free(names->at);
	free(names);
}

static struct error *set_form(struct short_names *names, struct short_name *name, unsigned form)
{
	FREED char *text =
		form == FORM_FULL ? NULL : name_shorten(name->full, form == FORM_ARGUMENTS);

	name->form = form;
	name->text = name->full;
	return text ? pool_intern(names->pool, text, strlen(text), &name->text) : NULL;
}

static struct error *find_short(struct short_names *names, const char *text, size_t len,
				uint32_t *id)
{
	const char *full;

	TRY(pool_intern(names->pool, text, len, &full));
	TRY(ROW_IDS_GET(&names->ids, (uintptr_t)full, 0, &names->at, id));
	if (names->at[*id].full)
		return NULL;
	names->at[*id].full = full;
	names->unique = false;
	return set_form(names, &names->at[*id], FORM_SHORT);
}

struct error *short_names_add(struct short_names *names, const char *full, size_t len)
{
	uint32_t id;

	return names ? find_short(names, full, len, &id) : NULL;
}

/* Equal texts are the same pointer. */
static int by_text(const void *left, const void *right)
{
	const struct short_name *a = *(struct short_name *const *)left;
	const struct short_name *b = *(struct short_name *const *)right;

	return COMPARE(a->text, b->text);
}

/* Gives names with the same text a longer one. */
static struct error *part(struct short_names *names, struct short_name **sorted, size_t n)
{
	size_t end;

	qsort(sorted, n, sizeof(*sorted), by_text);
	for (size_t i = 0; i < n; i = end) {
		for (end = i + 1; end < n && !by_text(&sorted[i], &sorted[end]); end++)
			;
		for (size_t k = i; k < end && end - i > 1; k++)
			if (sorted[k]->form < FORM_FULL)
				TRY(set_form(names, sorted[k], sorted[k]->form + 1));
	}
	return NULL;
}

static struct error *disambiguate(struct short_names *names)
{
	const size_t n = row_ids_count(&names->ids);
	FREED struct short_name **sorted = calloc(n + 1, sizeof(*sorted));

	if (!sorted)
		return error_no_memory();
	for (size_t i = 0; i < n; i++)
		sorted[i] = &names->at[i];
	for (unsigned form = FORM_SHORT; form < FORM_FULL; form++)
		TRY(part(names, sorted, n));
	names->unique = true;
	return NULL;
}

const char *short_names_get(struct short_names *names, const char *full, size_t *len)
{
	struct error *err;
	uint32_t id;

	if (!names)
		return full;
	err = find_short(names, full, *len, &id);
	if (!err && !names->unique)
		err = disambiguate(names);
	if (err) {
		error_free(err);
		return full;
	}
	*len = strlen(names->at[id].text);
	return names->at[id].text;
}

#define PREFIX "caml"

/* The compiler's naming schemes, told by the separator between modules. */
enum scheme { BY_UNDERSCORES, BY_DOT, BY_DOLLAR };

/* A dollar that begins no escape is a separator: then all of them are. */
static enum scheme scheme_of(const char *name)
{
	if (strchr(name, '.'))
		return BY_DOT;
	if (strstr(name, "$$"))
		return BY_DOLLAR;
	if (strstr(name, "__"))
		return BY_UNDERSCORES;
	for (const char *at = name; (at = strchr(at, '$')); at++)
		if (hex_byte(at + 1) < 0 || isalnum((unsigned char)hex_byte(at + 1)))
			return BY_DOLLAR;
	return BY_UNDERSCORES;
}

/* Takes one character of the source from `*in`. */
static char take(enum scheme scheme, const char **in)
{
	const char *at = *in;
	size_t escape = scheme == BY_DOLLAR ? 2 : 1;
	int byte;

	if (scheme == BY_UNDERSCORES && at[0] == '_' && at[1] == '_' && at[2]) {
		*in += 2;
		return '.';
	}
	byte = at[0] == '$' && (escape == 1 || at[1] == '$') ? hex_byte(at + escape) : -1;
	if (byte > 0) {
		*in += escape + 2;
		return (char)byte;
	}
	*in += 1;
	return scheme == BY_DOLLAR && at[0] == '$' ? '.' : at[0];
}

/*
 * OCaml's ocamlopt: "camlMain__f_12" (up to 5.0, and
 * 5.1.1 to 5.2), "camlMain.f_12" (5.3 and later on Linux), "camlMain$f_12"
 * (5.4 elsewhere): "Main.f_12". Characters of operators are "$2b" in the file,
 * "$$2b" in the last of the three. The number that keeps functions of one name
 * apart stays, as in perf.
 */
static char *demangle_ocaml(const char *name)
{
	enum scheme scheme;
	char *plain;
	size_t n = 0;

	if (strncmp(name, PREFIX, strlen(PREFIX)) || name[4] < 'A' || name[4] > 'Z')
		return NULL;
	name += strlen(PREFIX);
	plain = malloc(strlen(name) + 1);
	if (!plain)
		return NULL;
	scheme = scheme_of(name);
	while (*name)
		plain[n++] = take(scheme, &name);
	plain[n] = '\0';
	return plain;
}

/* "_Zname@@VERSION": the version behind the name is not part of it, and is kept. */
static char *demangle_versioned(const char *name, const char *at)
{
	FREED char *front = strndup(name, (size_t)(at - name));
	FREED char *plain = front ? demangle_by_library(front) : NULL;
	char *both;

	return plain && asprintf(&both, "%s%s", plain, at) >= 0 ? both : NULL;
}

char *demangle(const char *name)
{
	const char *at;

	if (name[0] == 'c')
		return demangle_ocaml(name);
	if (name[0] != '_')
		return NULL;
	at = strchr(name, '@');
	return at ? demangle_versioned(name, at) : demangle_by_library(name);
}
