/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One recording to a receiver. A process without rights and network reads it;
 * this one sends what that has made of it, and parses nothing but answers.
 */

#include "cmd/push.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/privilege.h"

#define CONNECT_NS (10 * NS_PER_S)
#define WHOLE_NS   (60 * NS_PER_S)
#define RETRY_NS   (120 * NS_PER_S)

/* Bytes of files: a token's, and certificates. */
#define TOKEN_MAX 8192
#define CA_MAX	  (4u << 20)

#define BACKOFF_MOST 8

struct push_verb {
	struct load_options load;
	struct push_args args;
	uint64_t retry_ns;
};

static const char *const paths[] = {[PUSH_OTLP] = "/v1development/profiles",
				    [PUSH_PYROSCOPE] = "/ingest",
				    [PUSH_PARCA] = "/profiles/writeraw"};

#define AT(field) offsetof(struct push_args, field)

const struct option_row push_options[] = {
	{"protocol", "NAME", 0, take_word, AT(protocol), PUSH_OTLP,
	 .text = "one of otlp, pyroscope and parca (default: by the path of URL)",
	 .more = "The paths are\n.Pa /v1development/profiles ,\n.Pa /ingest\nand\n"
		 ".Pa /profiles/writeraw ;\na URL without a path is given the protocol's.",
	 .values = "otlp pyroscope parca"},
	{"token-file", "FILE", 0, take_text, AT(token_file),
	 .text = "send the token in FILE, as a bearer of it",
	 .more = "Only over https, or to this host.", .values = OPTION_FILE},
	{"tenant", "NAME", 0, take_text, AT(tenant),
	 .text = "the tenant, for receivers that have several (X-Scope-OrgID)"},
	{"ca-file", "FILE", 0, take_text, AT(ca_file),
	 .text = "trust the certificates in FILE, and no others (default: those of this host)",
	 .values = OPTION_FILE},
	{"proxy", "URL", 0, take_text, AT(proxy),
	 .text = "send through this proxy; \"environment\": the one that https_proxy names "
		 "(default: none)"},
	{"host", "NAME", 0, take_text, AT(host),
	 .text = "name of the guest's host (default: this one's)"},
	{"connect-timeout", "T", 0, take_duration, AT(connect_ns),
	 .text = "time for finding the receiver and connecting to it (default 10s)"},
	{"send-timeout", "T", 0, take_duration, AT(whole_ns),
	 .text = "time for a request with its answer (default 60s)"},
	{0}};

static const struct option_row own_options[] = {
	{"retry-for", "T", 0, take_moment, offsetof(struct push_verb, retry_ns),
	 .text = "go on trying for so long where the receiver is not available (default 2m)"},
	{0}};

/* All rows of load.h but the first, --output: the receiver is the output. */
static const struct option_group options_of_push[] = {{load_options + 1,
						       offsetof(struct push_verb, load)},
						      {push_options,
						       offsetof(struct push_verb, args)},
						      {own_options, 0},
						      {0}};

void push_defaults(struct push_args *args)
{
	*args = (struct push_args){.connect_ns = CONNECT_NS, .whole_ns = WHOLE_NS};
}

/* Behind "http://" or "https://"; NULL: it is neither. */
static const char *authority_of(const char *url, bool *secure)
{
	*secure = !strncmp(url, "https://", 8);
	if (*secure)
		return url + 8;
	return strncmp(url, "http://", 7) ? NULL : url + 7;
}

static bool is_this_host(const char *authority)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const size_t len = strlen(names[i]);

		if (!strncmp(authority, names[i], len) && strchr(":/", authority[len]))
			return true;
	}
	return false;
}

static struct error *check_url(const struct push_args *args, const char **path)
{
	bool secure;
	const char *authority = authority_of(args->url, &secure);
	const size_t len = authority ? strcspn(authority, "/") : 0;

	if (!len || strlen(args->url) > PUSH_URL_MAX)
		return error_new(ERR_USAGE, "\"%s\": that is no http:// or https:// URL",
				 args->url);
	if (memchr(authority, '@', len))
		return error_new(ERR_USAGE, "a password in the URL can be seen by all users of "
					    "this host: use --token-file");
	for (const char *at = authority; *at; at++)
		if (*at <= ' ' || *at > '~' || strchr("?#\\\"<>", *at))
			return error_new(ERR_USAGE, "\"%s\": no '%c' can be in the URL", args->url,
					 isprint((unsigned char)*at) ? *at : ' ');
	if (args->token_file && !secure && !is_this_host(authority))
		return error_new(ERR_USAGE,
				 "a token is not sent over http, where others can read it: https");
	*path = authority + len;
	return NULL;
}

static bool ends_so(const char *text, const char *ending)
{
	const size_t len = strlen(text), at = strlen(ending);

	return len >= at && !strcmp(text + len - at, ending);
}

static struct error *find_protocol(struct push_args *args, const char *path)
{
	const bool bare = !*path || !strcmp(path, "/");

	for (size_t i = PUSH_OTLP; i <= PUSH_PARCA && args->protocol == PUSH_BY_URL; i++)
		if (ends_so(path, paths[i]))
			args->protocol = (enum push_protocol)i;
	if (args->protocol == PUSH_BY_URL)
		return error_new(ERR_USAGE,
				 "the path of %s is none of /v1development/profiles, /ingest and "
				 "/profiles/writeraw: say --protocol",
				 args->url);
	snprintf(args->full_url, sizeof(args->full_url), "%.*s%s", (int)(path - args->url),
		 args->url, bare ? paths[args->protocol] : path);
	return NULL;
}

static struct error *read_token(struct push_args *args)
{
	size_t len;

	TRY(cmd_read_text(args->token_file, TOKEN_MAX, &args->token));
	len = strcspn(args->token, " \t\r\n");
	if (!len || args->token[len + strspn(args->token + len, " \t\r\n")])
		return error_new(ERR_INPUT, "%s: a token is one word, and nothing else",
				 args->token_file);
	args->token[len] = '\0';
	for (const char *at = args->token; *at; at++)
		if (*at < '!' || *at > '~')
			return error_new(ERR_INPUT, "%s: that is no token", args->token_file);
	return NULL;
}

struct error *push_prepare(struct push_args *args)
{
	const char *path = "";

	TRY(check_url(args, &path));
	TRY(find_protocol(args, path));
	for (const char *at = args->tenant ?: ""; *at; at++)
		if (*at <= ' ' || *at > '~')
			return error_new(ERR_USAGE, "--tenant: that is no name of a tenant");
	if (args->token_file)
		TRY(read_token(args));
	if (args->ca_file)
		TRY(cmd_read_text(args->ca_file, CA_MAX, &args->ca));
	if (!args->host && !gethostname(args->own_host, sizeof(args->own_host) - 1))
		args->host = args->own_host;
	return NULL;
}

void push_args_free(struct push_args *args)
{
	free(args->token);
	free(args->ca);
	args->token = args->ca = NULL;
}

struct push_target push_target_of(const struct push_args *args, const volatile sig_atomic_t *stop)
{
	return (struct push_target){.url = args->full_url,
				    .token = args->token,
				    .tenant = args->tenant,
				    .ca = args->ca,
				    .proxy = args->proxy,
				    .connect_ns = args->connect_ns,
				    .whole_ns = args->whole_ns,
				    .stop = stop};
}

uint64_t push_chance_ns(uint64_t below_ns)
{
	uint64_t chance = 0;

	(void)!getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
	return below_ns ? chance % below_ns : 0;
}

uint64_t push_backoff_ns(unsigned failures, uint64_t after_ns)
{
	const unsigned steps = failures < BACKOFF_MOST ? failures : BACKOFF_MOST;
	const uint64_t most_ns = NS_PER_S << steps;

	/* From half of it on: agents that failed together do not come again together. */
	return after_ns + most_ns / 2 + push_chance_ns(most_ns / 2);
}

/* Waits until it may be sent again; an error: it may not. */
static struct error *wait_again(const struct push_answer *answer, unsigned tries, uint64_t until_ns)
{
	const uint64_t now_ns = clock_now_ns();
	const uint64_t wait_ns = push_backoff_ns(tries, answer->after_ns);
	const volatile sig_atomic_t *stop = cmd_catch_signals();

	if (now_ns + wait_ns > until_ns)
		return error_new(ERR_OUTPUT, "%s (%u time%s): given up, and not pushed",
				 answer->text, tries + 1, tries ? "s" : "");
	cmd_say("%s: sent again in %.1f s%s", answer->text, (double)wait_ns / 1e9,
		answer->outcome == PUSH_UNKNOWN ? ", and may be there twice then" : "");
	while (!*stop && clock_now_ns() < now_ns + wait_ns)
		clock_sleep_until(now_ns + wait_ns);
	return *stop ? error_new(ERR_FAILED, "interrupted: %s",
				 answer->outcome == PUSH_UNKNOWN ? "it may have been taken or not"
								 : "not pushed")
		     : NULL;
}

static struct error *deliver(const struct push_verb *options, struct push *push,
			     const struct push_body *body)
{
	const uint64_t until_ns = clock_now_ns() + options->retry_ns;
	const struct push_request request = push_request_of(&options->args, body);
	struct push_answer answer;

	for (unsigned tries = 0;; tries++) {
		push_send(push, &request, &answer);
		switch (answer.outcome) {
		case PUSH_TAKEN:
			return NULL;
		case PUSH_PARTLY:
			if (answer.rejected)
				return error_new(ERR_OUTPUT, "%s", answer.text);
			cmd_say("%s", answer.text);
			return NULL;
		case PUSH_LATER:
		case PUSH_UNKNOWN:
			TRY(wait_again(&answer, tries, until_ns));
			break;
		case PUSH_STOPPED:
			return error_new(ERR_FAILED, "interrupted: not pushed");
		default:
			return error_new(ERR_OUTPUT, "%s", answer.text);
		}
	}
}

static struct error *encode_and_deliver(const struct push_verb *options)
{
	const volatile sig_atomic_t *stop = cmd_catch_signals();
	const struct push_target target = push_target_of(&options->args, stop);
	ENDED_BY(push_body_free) struct push_body body = {.file = -1};
	struct push *push = NULL;
	struct privilege got;
	struct error *err = push_open(&target, &push);

	signal(SIGPIPE, SIG_IGN);
	if (!err)
		err = push_encode(&options->args, &options->load, -1, stop, &body);
	if (!err && !body.head.samples)
		err = error_new(ERR_INPUT, "no samples are chosen: there is nothing to push");
	/* Without rights beyond those of the network: answers are what others wrote. */
	if (privilege_is_special())
		privilege_drop(SECCOMP_UNFILTERED, &got);
	if (!err)
		err = deliver(options, push, &body);
	if (!err)
		cmd_say("pushed %" PRIu64 " samples to %s, %" PRIu64 " bytes", body.head.samples,
			options->args.full_url, body.len);
	push_close(push);
	return err;
}

static struct error *push(int argc, char **argv, int *status)
{
	struct push_verb options = {.retry_ns = RETRY_NS};
	struct error *err;
	int first;

	load_defaults(&options.load);
	options.load.naming.unnamed = UNNAMED_OFFSET;
	push_defaults(&options.args);
	TRY(options_parse(&verb_push, argc, argv, &options, &first));
	if (first + 2 != argc)
		return cmd_usage_error(&verb_push, "a recording and a URL, please");
	options.load.path = argv[first];
	options.args.url = argv[first + 1];
	err = push_prepare(&options.args);
	if (!err)
		err = encode_and_deliver(&options);
	push_args_free(&options.args);
	return err;
}

const struct verb verb_push = {
	.name = "push",
	.summary = "send a recording to Pyroscope, Parca or an OpenTelemetry collector",
	.arguments = "[options] RECORDING URL",
	.about = "Sends a recording to a receiver of profiles, by HTTP.\n",
	.options = options_of_push,
	.closing = "URL:\n"
		   "  http://HOST:4318/v1development/profiles   OpenTelemetry's profiles signal\n"
		   "  http://HOST:4040/ingest                   Pyroscope\n"
		   "  http://HOST:7070/profiles/writeraw        Parca\n",
	.takes = TAKES_FILES,
	.run = push,
};
