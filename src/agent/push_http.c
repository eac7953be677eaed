/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/push.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "import/protobuf.h"

const char push_feature[] = "pushes by libcurl";

/* Builds with OpenSSL, and with GnuTLS. */
static const char *const libraries[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

#define NS_PER_MS 1000000

/* Bytes of an answer: that are kept, and after which it is not read on. */
#define ANSWER_KEPT (16u << 10)
#define ANSWER_MAX  (1u << 20)

/* A receiver may ask for so much patience. */
#define AFTER_MOST_S 3600

#define HEADER_MAX (16u << 10)

struct library {
	void *handle;
	__typeof__(curl_easy_init) *init;
	__typeof__(curl_easy_setopt) *set;
	__typeof__(curl_easy_perform) *perform;
	__typeof__(curl_easy_getinfo) *info;
	__typeof__(curl_easy_cleanup) *cleanup;
	__typeof__(curl_easy_strerror) *strerror;
	__typeof__(curl_slist_append) *append;
	__typeof__(curl_slist_free_all) *free_all;
};

struct push {
	struct library curl;
	struct push_target target;
};

/* A request while it is sent. */
struct transfer {
	const struct push *push;
	const struct push_request *request;
	uint64_t given; /* bytes of the body, from its start on, that the library was given */
	uint64_t next;
	char url[4096];
	char reason[CURL_ERROR_SIZE];
	uint8_t answer[ANSWER_KEPT];
	size_t kept, came;
};

static bool take(struct library *curl)
{
	curl->init = (__typeof__(curl->init))dlsym(curl->handle, "curl_easy_init");
	curl->set = (__typeof__(curl->set))dlsym(curl->handle, "curl_easy_setopt");
	curl->perform = (__typeof__(curl->perform))dlsym(curl->handle, "curl_easy_perform");
	curl->info = (__typeof__(curl->info))dlsym(curl->handle, "curl_easy_getinfo");
	curl->cleanup = (__typeof__(curl->cleanup))dlsym(curl->handle, "curl_easy_cleanup");
	curl->strerror = (__typeof__(curl->strerror))dlsym(curl->handle, "curl_easy_strerror");
	curl->append = (__typeof__(curl->append))dlsym(curl->handle, "curl_slist_append");
	curl->free_all = (__typeof__(curl->free_all))dlsym(curl->handle, "curl_slist_free_all");
	return curl->init && curl->set && curl->perform && curl->info && curl->cleanup &&
	       curl->strerror && curl->append && curl->free_all;
}

struct error *push_open(const struct push_target *target, struct push **out)
{
	struct push *push = calloc(1, sizeof(*push));

	*out = NULL;
	if (!push)
		return error_no_memory();
	push->target = *target;
	for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries) && !push->curl.handle; i++)
		push->curl.handle = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
	if (!push->curl.handle || !take(&push->curl)) {
		push_close(push);
		return error_new(ERR_FAILED,
				 "pushing needs libcurl, which is not installed (libcurl4)");
	}
	*out = push;
	return NULL;
}

void push_close(struct push *push)
{
	if (push && push->curl.handle)
		dlclose(push->curl.handle);
	free(push);
}

static size_t read_body(char *to, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	const uint64_t left = t->request->len - t->next;
	const size_t most = size * n < left ? size * n : (size_t)left;
	const ssize_t got =
		most ? pread(t->request->body, to, most, (off_t)(t->request->at + t->next)) : 0;

	if (got < 0 || (most && !got))
		return CURL_READFUNC_ABORT;
	t->next += (uint64_t)got;
	if (t->next > t->given)
		t->given = t->next;
	return (size_t)got;
}

/* Asked for where a connection is refused in the middle, as by a proxy that wants a password: it is not begun anew. */
static int seek_body(void *ctx, curl_off_t to, int whence)
{
	struct transfer *t = ctx;

	if (whence != SEEK_SET || to || t->given)
		return CURL_SEEKFUNC_FAIL;
	t->next = 0;
	return CURL_SEEKFUNC_OK;
}

static size_t keep_answer(char *data, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	const size_t len = size * n, room = sizeof(t->answer) - t->kept;
	const size_t kept = len < room ? len : room;

	memcpy(t->answer + t->kept, data, kept);
	t->kept += kept;
	t->came += len;
	return t->came > ANSWER_MAX ? 0 : len;
}

static int is_stopped(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct transfer *t = ctx;

	return t->push->target.stop && *t->push->target.stop;
}

static bool add_header(const struct library *curl, struct curl_slist **headers, const char *name,
		       const char *value)
{
	char line[HEADER_MAX];
	struct curl_slist *more;

	if (!value)
		return true;
	/* A name alone would be removed. */
	snprintf(line, sizeof(line), "%s:%s%s", name, *value ? " " : "", value);
	more = curl->append(*headers, line);
	if (more)
		*headers = more;
	return more;
}

static struct curl_slist *headers_of(const struct push *push, const struct push_request *request)
{
	struct curl_slist *headers = NULL;
	char *authorization = NULL;
	bool good = true;

	if (push->target.token && asprintf(&authorization, "Bearer %s", push->target.token) < 0)
		return NULL;
	good = add_header(&push->curl, &headers, "Content-Type", request->type) &&
	       add_header(&push->curl, &headers, "User-Agent", "uniprof/" UNIPROF_VERSION) &&
	       /* No wait for a word in between. */
	       add_header(&push->curl, &headers, "Expect", "") &&
	       add_header(&push->curl, &headers, "Content-Encoding",
			  request->packed ? "gzip" : NULL) &&
	       add_header(&push->curl, &headers, "X-Scope-OrgID", push->target.tenant) &&
	       add_header(&push->curl, &headers, "Authorization", authorization);
	free(authorization);
	if (good)
		return headers;
	push->curl.free_all(headers);
	return NULL;
}

/* A failure of an option is kept: the first counts. */
#define SET(option, value)                                     \
	do {                                                   \
		const CURLcode now = set(curl, option, value); \
		code = code ? code : now;                      \
	} while (0)

static CURLcode set_connection(const struct push *push, CURL *curl)
{
	const struct push_target *target = &push->target;
	__typeof__(curl_easy_setopt) *set = push->curl.set;
	CURLcode code = CURLE_OK;

	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_FORBID_REUSE, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	if (target->ca) {
		const struct curl_blob blob = {(void *)target->ca, strlen(target->ca), 0};

		SET(CURLOPT_CAINFO_BLOB, &blob);
	}
	if (!target->proxy || strcmp(target->proxy, "environment"))
		SET(CURLOPT_PROXY, target->proxy ?: "");
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(target->connect_ns / NS_PER_MS));
	SET(CURLOPT_TIMEOUT_MS, (long)(target->whole_ns / NS_PER_MS));
	return code;
}

static CURLcode set_request(struct transfer *t, CURL *curl, struct curl_slist *headers)
{
	__typeof__(curl_easy_setopt) *set = t->push->curl.set;
	CURLcode code = set_connection(t->push, curl);

	SET(CURLOPT_URL, t->url);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_HTTPHEADER, headers);
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->request->len);
	SET(CURLOPT_READFUNCTION, read_body);
	SET(CURLOPT_READDATA, t);
	SET(CURLOPT_SEEKFUNCTION, seek_body);
	SET(CURLOPT_SEEKDATA, t);
	SET(CURLOPT_WRITEFUNCTION, keep_answer);
	SET(CURLOPT_WRITEDATA, t);
	SET(CURLOPT_NOPROGRESS, 0L);
	SET(CURLOPT_XFERINFOFUNCTION, is_stopped);
	SET(CURLOPT_XFERINFODATA, t);
	SET(CURLOPT_ERRORBUFFER, t->reason);
	/* Since 7.87: a search for a name that lasts does not hold up whoever was stopped. */
	set(curl, CURLOPT_QUICK_EXIT, 1L);
	return code;
}

/* Certificates and the like do not get better by themselves. */
static bool is_lasting(CURLcode code)
{
	switch (code) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_URL_MALFORMAT:
	case CURLE_NOT_BUILT_IN:
	case CURLE_UNKNOWN_OPTION:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return true;
	default:
		return false;
	}
}

static void judge_failure(const struct transfer *t, CURLcode code, struct push_answer *answer)
{
	const char *reason = *t->reason ? t->reason : t->push->curl.strerror(code);

	answer->outcome = t->given == t->request->len	      ? PUSH_UNKNOWN
			  : code == CURLE_ABORTED_BY_CALLBACK ? PUSH_STOPPED
			  : is_lasting(code)		      ? PUSH_BLOCKED
							      : PUSH_LATER;
	if (answer->outcome == PUSH_UNKNOWN)
		snprintf(answer->text, sizeof(answer->text), "it was sent, but no answer came: %s",
			 reason);
	else
		snprintf(answer->text, sizeof(answer->text), "it could not be sent: %s", reason);
}

/* Bytes of a receiver's words that are told. */
#define WORDS_MAX 200

/* ExportProfilesServiceResponse and what is in it, and google.rpc.Status. */
enum { RESPONSE_PARTIAL_SUCCESS = 1 };
enum { PARTIAL_REJECTED = 1, PARTIAL_MESSAGE };
enum { STATUS_MESSAGE = 2 };

/* The first line of a text; "" if these bytes are none. */
static void take_words(struct cursor text, char out[WORDS_MAX])
{
	size_t len = 0;

	for (; text.at < text.end && len < WORDS_MAX - 1; text.at++) {
		if (*text.at == '\n' || *text.at == '\r') {
			if (len)
				break;
			continue;
		}
		if (*text.at < ' ' && *text.at != '\t') {
			len = 0;
			break;
		}
		out[len++] = (char)*text.at;
	}
	out[len] = '\0';
}

/* The field of a message that has a number and a text in it; false: it has none. */
static bool take_partial(struct cursor in, uint64_t *rejected, char words[WORDS_MAX])
{
	struct protobuf_field field;

	while (protobuf_next(&in, &field)) {
		if (field.number == PARTIAL_REJECTED && field.wire == PROTOBUF_VARINT)
			*rejected = field.value;
		else if (field.number == PARTIAL_MESSAGE && field.wire == PROTOBUF_LEN)
			take_words(field.bytes, words);
	}
	return in.at && (*rejected || *words);
}

static void judge_taken(const struct push_request *request, struct cursor body,
			struct push_answer *answer)
{
	char words[WORDS_MAX] = "";
	struct protobuf_field field;
	uint64_t rejected = 0;

	answer->outcome = PUSH_TAKEN;
	while (request->otlp && protobuf_next(&body, &field))
		if (field.number == RESPONSE_PARTIAL_SUCCESS && field.wire == PROTOBUF_LEN &&
		    take_partial(field.bytes, &rejected, words))
			answer->outcome = PUSH_PARTLY;
	answer->rejected = rejected;
	if (answer->outcome == PUSH_TAKEN)
		return;
	if (rejected)
		snprintf(answer->text, sizeof(answer->text),
			 "the receiver took only a part and rejected %" PRIu64 " profile%s%s%s",
			 rejected, rejected == 1 ? "" : "s", *words ? ": " : "", words);
	else
		snprintf(answer->text, sizeof(answer->text), "the receiver warns: %s", words);
}

/* The receiver's words about an error, as OTLP or as a text. */
static void take_reason(const struct push_request *request, struct cursor body,
			char words[WORDS_MAX])
{
	struct cursor in = body;
	struct protobuf_field field;

	*words = '\0';
	while (request->otlp && protobuf_next(&in, &field))
		if (field.number == STATUS_MESSAGE && field.wire == PROTOBUF_LEN)
			take_words(field.bytes, words);
	if (!in.at || !*words)
		take_words(body, words);
}

/* What the status of an answer means: the first row that has it. */
static const struct meaning {
	uint32_t from, to; /* statuses */
	enum push_outcome outcome;
	const char *text;
} meanings[] = {
	{0, 399, PUSH_BLOCKED, ": it leads elsewhere, which is not followed"},
	{401, 401, PUSH_BLOCKED, ": the token is missing or wrong"},
	{403, 403, PUSH_BLOCKED, ": the token is missing or wrong"},
	{404, 405, PUSH_BLOCKED, ": nothing takes profiles at this URL"},
	{407, 407, PUSH_BLOCKED, ""},
	{413, 413, PUSH_REFUSED, ": too large"},
	{429, 429, PUSH_LATER, ": too many requests"},
	{502, 504, PUSH_LATER, ": not available now"},
	{0, UINT32_MAX, PUSH_REFUSED, ""},
};

static const struct meaning *meaning_of(uint32_t status)
{
	const struct meaning *at = meanings;

	while (status < at->from || status > at->to)
		at++;
	return at;
}

static void judge_status(const struct push_request *request, uint32_t status, const void *body,
			 size_t len, struct push_answer *answer)
{
	const struct cursor in = {body, (const uint8_t *)body + len};
	const struct meaning *meaning = meaning_of(status);
	char words[WORDS_MAX];

	answer->status = status;
	if (status >= 200 && status < 300) {
		judge_taken(request, in, answer);
		return;
	}
	answer->outcome = meaning->outcome;
	take_reason(request, in, words);
	snprintf(answer->text, sizeof(answer->text), "the receiver answers %" PRIu32 "%s%s%s%s",
		 status, meaning->text, *words ? " (" : "", words, *words ? ")" : "");
}

static void judge(const struct transfer *t, CURL *curl, CURLcode code, struct push_answer *answer)
{
	long status = 0;
	curl_off_t after_s = 0;

	t->push->curl.info(curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200) {
		judge_failure(t, code, answer);
		return;
	}
	/* The status counts, even where the rest of the answer was cut off. */
	judge_status(t->request, (uint32_t)status, t->answer, t->kept, answer);
	t->push->curl.info(curl, CURLINFO_RETRY_AFTER, &after_s);
	if (after_s > 0)
		answer->after_ns =
			(uint64_t)(after_s < AFTER_MOST_S ? after_s : AFTER_MOST_S) * NS_PER_S;
}

void push_send(struct push *push, const struct push_request *request, struct push_answer *answer)
{
	struct transfer *t = calloc(1, sizeof(*t));
	struct curl_slist *headers = headers_of(push, request);
	CURL *curl = push->curl.init();
	CURLcode code = CURLE_OUT_OF_MEMORY;

	*answer = (struct push_answer){.outcome = PUSH_LATER, .text = "not enough memory"};
	if (t && headers && curl) {
		t->push = push;
		t->request = request;
		snprintf(t->url, sizeof(t->url), "%s%s%s", push->target.url,
			 *request->query ? "?" : "", request->query);
		answer->text[0] = '\0';
		code = set_request(t, curl, headers);
		if (!code)
			code = push->curl.perform(curl);
		judge(t, curl, code, answer);
	}
	if (curl)
		push->curl.cleanup(curl);
	push->curl.free_all(headers);
	free(t);
}
