/* SPDX-License-Identifier: BSD-3-Clause */

/* Short forms of demangled names. All work is linear in the name, for names come from files. */

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "symbol/names/display_name.h"

/* Groups in groups; of names with more the whole is shown. */
#define DEPTH_MAX 48

/* Bytes of template arguments, and what stays at either end of a first one with more. */
#define ARGUMENTS_MAX  28
#define ARGUMENTS_HEAD 14
#define ARGUMENTS_TAIL 13

#define ELLIPSIS "…"

/* Demangled names have no more. */
#define NAME_MAX_BYTES (1u << 20)

/* A name that is being shortened. */
struct name {
	const char *s;
	size_t len;
	uint32_t *close; /* [len]: where the group that begins here ends; 0: none does */
	char *out;
	size_t n;
	bool arguments; /* these are wanted, too */
};

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || (c & 0x80);
}

static bool begins(const struct name *name, size_t at, size_t end, const char *text)
{
	const size_t len = strlen(text);

	return at <= end && end - at >= len && !memcmp(name->s + at, text, len);
}

/* The length of "operator<<" and the like at `at`; 8 for those with words; 0: it is none. */
static size_t operator_at(const struct name *name, size_t at)
{
	static const char word[] = "operator";
	const char *s = name->s + at + strlen(word);

	if (!begins(name, at, name->len, word) || (at && is_word(name->s[at - 1])) || is_word(*s))
		return 0;
	if (!strncmp(s, "()", 2) || !strncmp(s, "[]", 2))
		return strlen(word) + 2;
	return strlen(word) + strspn(s, "<>=!+-*/%^&|~,");
}

/* Finds the groups; false if they are too deep. */
static bool pair_up(struct name *name)
{
	static const char openers[] = "<([{", closers[] = ">)]}";
	uint32_t open[DEPTH_MAX];
	size_t depth = 0;

	for (size_t i = 0; i < name->len; i++) {
		const char c = name->s[i];
		const char *closer = c ? strchr(closers, c) : NULL;
		const size_t operator_len = operator_at(name, i);

		if (operator_len) {
			i += operator_len - 1;
		} else if (begins(name, i, name->len, "->")) {
			i++;
		} else if (strchr(openers, c)) {
			if (depth == DEPTH_MAX)
				return false;
			open[depth++] = (uint32_t)i;
		} else if (closer) {
			const char opener = openers[closer - closers];
			size_t at = depth;

			/* A lone '<' or '>' is a comparison within another group. */
			while (at && name->s[open[at - 1]] == '<' && opener != '<')
				at--;
			if (at && name->s[open[at - 1]] == opener) {
				name->close[open[at - 1]] = (uint32_t)i;
				depth = at - 1;
			}
		}
	}
	return true;
}

static void put(struct name *name, const char *text, size_t len)
{
	memcpy(name->out + name->n, text, len);
	name->n += len;
}

static void put_range(struct name *name, size_t from, size_t to)
{
	if (to > from)
		put(name, name->s + from, to - from);
}

/* The end of " const", " volatile", " &" and " &&" behind the arguments of a function. */
static size_t skip_qualifiers(const struct name *name, size_t at, size_t end)
{
	static const char *const words[] = {" const", " volatile", " &&", " &", " noexcept"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		const size_t behind = at + strlen(words[i]);

		if (begins(name, at, end, words[i]) &&
		    (words[i][1] == '&' || !is_word(name->s[behind]))) {
			at = behind;
			i = (size_t)-1;
		}
	}
	return at;
}

/* What stands there because the library or the compiler needs it; its length. */
static size_t noise_at(const struct name *name, size_t at, size_t end)
{
	static const char *const noise[] = {"(anonymous namespace)::", "{anonymous}::", "__cxx11::",
					    "__1::", "go.shape."};
	static const char anonymous[] = "__anon_"; /* Zig's */
	const size_t close = name->close[at];

	for (size_t i = 0; i < sizeof(noise) / sizeof(*noise); i++)
		if (begins(name, at, end, noise[i]) && !(at && is_word(name->s[at - 1])))
			return strlen(noise[i]);
	if (begins(name, at, end, anonymous))
		return strlen(anonymous) + strspn(name->s + at + strlen(anonymous), "0123456789");
	/* "[abi:cxx11]", and the number of a crate. */
	if (close && (begins(name, at, end, "[abi:") ||
		      (close - at > 12 && name->s[at] == '[' &&
		       strspn(name->s + at + 1, "0123456789abcdef") == close - at - 1)))
		return close + 1 - at;
	return 0;
}

static void put_types(struct name *name, size_t from, size_t to);

/* Keeps both ends of what was put since `mark`. */
static void cut_middle(struct name *name, size_t mark)
{
	const size_t len = name->n - mark;
	char *text = name->out + mark;
	size_t head = ARGUMENTS_HEAD, tail = len - ARGUMENTS_TAIL;

	if (len <= ARGUMENTS_MAX + strlen(ELLIPSIS))
		return;
	while (head && ((unsigned char)text[head] & 0xc0) == 0x80)
		head--;
	while (tail < len && ((unsigned char)text[tail] & 0xc0) == 0x80)
		tail++;
	memcpy(text + head, ELLIPSIS, strlen(ELLIPSIS));
	memmove(text + head + strlen(ELLIPSIS), text + tail, len - tail);
	name->n = mark + head + strlen(ELLIPSIS) + len - tail;
}

/* Leaves out arguments behind `kept`, the first of which begin at `mark`, if they are too long. */
static void cut_arguments(struct name *name, size_t mark, size_t kept)
{
	const bool more = name->n > kept;

	if (name->n - mark <= ARGUMENTS_MAX)
		return;
	name->n = kept;
	cut_middle(name, mark);
	if (more)
		put(name, ", " ELLIPSIS, strlen(", " ELLIPSIS));
}

/* "basic_string<char>", which was put from `word` on, is "string". */
static void put_usual_name(struct name *name, size_t word, size_t arguments)
{
	static const char basic[] = "basic_";
	const size_t skip = strlen(basic), len = name->n - arguments;
	char *text = name->out;
	size_t to = word;

	if (arguments - word <= skip || memcmp(text + word, basic, skip))
		return;
	if (len == 9 && !memcmp(text + arguments, "<wchar_t>", len))
		text[to++] = 'w';
	else if (len != 6 || memcmp(text + arguments, "<char>", len))
		return;
	memmove(text + to, text + word + skip, arguments - word - skip);
	name->n = to + arguments - word - skip;
}

/* Puts a group, its types by their last names, and not those that nobody writes. */
static void put_group(struct name *name, size_t open)
{
	static const char *const defaults[] = {"std::allocator<",      "std::char_traits<",
					       "std::less<",	       "std::hash<",
					       "std::default_delete<", "std::equal_to<"};
	const size_t close = name->close[open], mark = name->n + 1;
	size_t word = name->n, from = open + 1, kept = 0;

	while (word && is_word(name->out[word - 1]))
		word--;
	put_range(name, open, open + 1);
	for (size_t i = open + 1; i <= close; i++) {
		bool known = false;

		if (i < close && name->close[i])
			i = name->close[i];
		else if (begins(name, i, close, "->"))
			i++;
		if (i < close && name->s[i] != ',')
			continue;
		while (from < i && name->s[from] == ' ')
			from++;
		for (size_t k = 0; k < sizeof(defaults) / sizeof(*defaults); k++)
			known |= name->n > mark && begins(name, from, i, defaults[k]);
		if (!known && name->n > mark)
			put(name, ", ", name->s[from - 1] == ' ' ? 2 : 1);
		if (!known)
			put_types(name, from, i);
		if (!kept || name->n - mark <= ARGUMENTS_MAX)
			kept = name->n;
		from = i + 1;
	}
	while (name->n > mark && name->out[name->n - 1] == ' ')
		name->n--;
	if (kept > name->n)
		kept = name->n;
	cut_arguments(name, mark, kept);
	put_range(name, close, close + 1);
	put_usual_name(name, word, mark - 1);
}

/* Puts "{lambda(int)#1}" without its arguments. */
static void put_braces(struct name *name, size_t open)
{
	const size_t close = name->close[open];

	for (size_t i = open; i <= close; i++) {
		if (name->s[i] == '(' && name->close[i])
			i = name->close[i];
		else
			put_range(name, i, i + 1);
	}
}

/* Puts types, of each path the last name alone. */
static void put_types(struct name *name, size_t from, size_t to)
{
	size_t path = name->n;

	for (size_t i = from; i < to; i++) {
		const size_t noise = noise_at(name, i, to);

		if (noise) {
			i += noise - 1;
		} else if (name->close[i] && name->close[i] < to) {
			if (name->s[i] == '{')
				put_braces(name, i);
			else
				put_group(name, i);
			i = name->close[i];
			if (!begins(name, i + 1, to, "::"))
				path = name->n;
		} else if (begins(name, i, to, "::") && i + 2 < to && is_word(name->s[i + 2])) {
			name->n = path;
			i++;
		} else {
			put_range(name, i, i + 1);
			if (!is_word(name->s[i]) && name->s[i] != ':')
				path = name->n;
		}
	}
}

/* Puts "<A as B>" by its types, "<A>::f" as "A::f"; of "x::<impl A for B>" not the path. */
static void put_implementation(struct name *name, size_t open)
{
	const size_t close = name->close[open];
	const bool impl = begins(name, open, close, "<impl ");
	bool as = impl;

	for (size_t i = open + 1; i < close && !as; i++) {
		if (name->close[i])
			i = name->close[i];
		else
			as = begins(name, i, close, " as ");
	}
	if (impl)
		name->n = 0;
	if (as)
		put(name, "<", 1);
	put_types(name, open + 1, close);
	if (as)
		put(name, ">", 1);
}

/* Puts the path of a function. */
static void put_path(struct name *name, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		const size_t noise = noise_at(name, i, to), close = name->close[i];
		const size_t operator_len = operator_at(name, i);
		const size_t behind = close ? skip_qualifiers(name, close + 1, to) : 0;

		if (noise) {
			i += noise - 1;
		} else if (operator_len && name->n > 3 && name->out[name->n - 3] == '}' &&
			   begins(name, i, to, "operator()") && i + 10 == to) {
			name->n -= 2; /* "{lambda#1}::" says it */
			return;
		} else if (operator_len) {
			put_range(name, i, i + operator_len);
			i += operator_len - 1;
		} else if (!close || close >= to) {
			put_range(name, i, i + 1);
		} else if (name->s[i] == '(' && begins(name, behind, to, "::")) {
			i = behind - 1; /* the arguments of the function around it */
		} else if (name->s[i] == '{') {
			put_braces(name, i);
			i = close;
		} else if (name->s[i] == '<' && begins(name, close + 1, to, "::") &&
			   (i == from || begins(name, i, to, "<impl "))) {
			put_implementation(name, i);
			i = close;
		} else {
			put_group(name, i);
			i = close;
		}
	}
}

/* Where a function's own name begins and its arguments do; false if it has none. */
static bool find_function(const struct name *name, size_t end, size_t *from, size_t *arguments)
{
	bool operator_seen = false;

	*from = 0;
	for (size_t i = 0; i < end; i++) {
		const size_t operator_len = operator_at(name, i);

		if (operator_len) {
			operator_seen = true;
			i += operator_len - 1;
		} else if (name->close[i]) {
			*arguments = i;
			if (name->s[i] == '(' && name->close[i] + 1u == end)
				return i && name->s[i - 1] != ' ' &&
				       !begins(name, *from, end, "(*");
			i = name->close[i];
		} else if (name->s[i] == ' ' && !operator_seen) {
			if (skip_qualifiers(name, i, end) > i)
				i = skip_qualifiers(name, i, end) - 1;
			else
				*from = i + 1;
		}
	}
	return false;
}

/* The end of a name before its version ("@@GLIBC_2.14"); "@plt" is no version. */
static size_t before_version(const struct name *name)
{
	const char *at = strchr(name->s, '@');

	if (!at || at == name->s || !(at[1] == '@' || isupper((unsigned char)at[1])))
		return name->len;
	return (size_t)(at - name->s);
}

/* Puts what the compiler has added: " [clone .cold]" is ".cold". */
static void put_clones(struct name *name, size_t at, size_t end)
{
	static const char clone[] = " [clone ";

	while (begins(name, at, end, clone)) {
		const size_t close = name->close[at + 1];

		if (!close)
			return;
		if (!begins(name, at + strlen(clone), close, ".llvm."))
			put_range(name, at + strlen(clone), close);
		at = close + 1;
	}
}

/* "std::rt::main::h0123456789abcdef" ends before the hash. */
static size_t before_hash(const struct name *name, size_t end)
{
	static const size_t len = sizeof("::h0123456789abcdef") - 1;
	const char *hash = end > len ? name->s + end - len : "";

	if (strncmp(hash, "::h", 3) || strspn(hash + 3, "0123456789abcdef") < 16)
		return end;
	return end - len;
}

static bool shorten_path(struct name *name)
{
	static const char thunk[] = "thunk to ";
	const char *clone = strstr(name->s, " [clone "), *to = strstr(name->s, thunk);
	const size_t version = before_version(name);
	const size_t front =
		clone && clone < name->s + version ? (size_t)(clone - name->s) : version;
	size_t end = front, from = 0, arguments = 0;

	while (end && name->s[end - 1] != ')') {
		size_t at = end - 1;

		while (at && name->s[at] != ' ')
			at--;
		if (!at || skip_qualifiers(name, at, end) != end)
			break;
		end = at;
	}
	if (!find_function(name, end, &from, &arguments)) {
		if (from)
			return false; /* text with blanks between its words */
		from = 0;
		end = arguments = before_hash(name, front);
	}
	if (to && (size_t)(to - name->s) < from)
		put(name, thunk, strlen(thunk));
	put_path(name, from, arguments);
	if (name->arguments && arguments < end)
		put_group(name, arguments);
	put_clones(name, front, version);
	return name->n > 0;
}

/* Modules around others that nobody says. */
static size_t skip_library(const struct name *name)
{
	static const char *const outer[] = {"Stdlib.", "Stdlib__", "Dune.exe.", "Dune__exe__"};

	for (size_t i = 0; i < sizeof(outer) / sizeof(*outer); i++)
		if (begins(name, 0, name->len, outer[i]) &&
		    isupper((unsigned char)name->s[strlen(outer[i])]))
			return strlen(outer[i]);
	return 0;
}

/* OCaml: "Stdlib__List.map_487" is List.map. */
static bool shorten_ocaml(struct name *name)
{
	const char *s = name->s;
	size_t end = name->len;

	while (end && isdigit((unsigned char)s[end - 1]))
		end--;
	if (!isupper((unsigned char)*s) || !strchr(s, '.') || end == name->len || end < 2 ||
	    s[end - 1] != '_' || strpbrk(s, " :<@/"))
		return false;
	for (size_t i = skip_library(name); i < end - 1; i++) {
		const bool module = begins(name, i, end, "__") && isupper((unsigned char)s[i + 2]);

		put(name, module ? "." : s + i, 1);
		i += module;
	}
	return true;
}

/* Go: "github.com/a/b%2ev2.(*T).Run[go.shape.int]" is b.v2.(*T).Run[int]. */
static bool shorten_go(struct name *name)
{
	const char *s = name->s;
	const size_t front = strcspn(s, "([{");
	size_t from = 0;

	for (size_t i = 0; i < front; i++)
		if (s[i] == '/')
			from = i + 1;
	if (!isalpha((unsigned char)*s) || !strncmp(s, "type.", 5) ||
	    strcspn(s, " :;<@+\\") < front || !strchr(s + from, '.') ||
	    !(from || strstr(s, ".(*") || strstr(s, "[go.shape.")))
		return false;
	for (size_t i = from; i < name->len; i++) {
		if (s[i] == '[' && name->close[i]) {
			put_group(name, i);
			i = name->close[i];
		} else if (begins(name, i, name->len, "%2e")) {
			put(name, ".", 1);
			i += 2;
		} else {
			put_range(name, i, i + 1);
		}
	}
	return true;
}

static bool shorten(struct name *name)
{
	const char *s = name->s;

	if (*s == '[' || name->len > NAME_MAX_BYTES || !pair_up(name))
		return false;
	if (shorten_ocaml(name) || shorten_go(name))
		return true;
	name->n = 0;
	if (strstr(s, "::") || strchr(s, '(') || strstr(s, " [clone ") || strstr(s, "__anon_") ||
	    before_version(name) < name->len)
		return shorten_path(name);
	return false;
}

char *name_shorten(const char *full, bool arguments)
{
	const size_t len = strlen(full);
	FREED uint32_t *ends = calloc(len + 1, sizeof(*ends));
	/* A group can grow by an ellipsis, and has two characters of its own. */
	FREED char *out = malloc(4 * len + 16);
	struct name name = {
		.s = full, .len = len, .close = ends, .out = out, .arguments = arguments};

	if (!ends || !out || !shorten(&name) || !name.n)
		return NULL;
	name.out[name.n] = '\0';
	out = NULL;
	return name.out;
}
