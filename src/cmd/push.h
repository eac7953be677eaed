/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Shared by `uniprof push` and `uniprof agent --push`: whom to send to, and the bodies of requests. */

#include "agent/push.h"
#include "cmd/shared/load.h"

#define PUSH_URL_MAX 1024

enum push_protocol { PUSH_BY_URL, PUSH_OTLP, PUSH_PYROSCOPE, PUSH_PARCA };

struct push_args {
	const char *url; /* as given; NULL: nothing is pushed */
	const char *token_file, *ca_file, *tenant, *proxy;
	const char *host; /* the name that receivers are told; NULL: that of this host */
	enum push_protocol protocol;
	uint64_t connect_ns, whole_ns;

	/* Filled in by push_prepare. */
	char full_url[PUSH_URL_MAX + 64], own_host[65];
	char *token, *ca;
};

/* Rows of struct push_args, all but its URL. */
extern const struct option_row push_options[];

void push_defaults(struct push_args *args);

/*
 * Checks the URL, tells the protocol by it, and reads the files of token and
 * certificates: with the rights that the user has. ERR_USAGE, ERR_INPUT.
 */
struct error *push_prepare(struct push_args *args);
void push_args_free(struct push_args *args);

/* The receiver; it uses the strings of `args`. */
struct push_target push_target_of(const struct push_args *args, const volatile sig_atomic_t *stop);

/* The head of a body's file: the process that has read a recording tells it to the one that sends. */
struct push_head {
	uint64_t samples;  /* 0: there is nothing to send */
	char query[2048];  /* of the URL */
	char failure[256]; /* "": none */
	int32_t kind;	   /* enum error_kind, if there is one */
};

struct push_body {
	struct push_head head;
	int file; /* -1: none */
	uint64_t len;
};

/*
 * Reads a recording in a process of its own, which gives up its rights first
 * and has no network, and makes the body of a request of it. `segment` is an
 * open recording of the store, read with bounded time and memory; -1: it is
 * what `load` names. `stop` may be NULL.
 */
struct error *push_encode(const struct push_args *args, const struct load_options *load,
			  int segment, const volatile sig_atomic_t *stop, struct push_body *body);
void push_body_free(struct push_body *body);

/* The request that sends a body. */
struct push_request push_request_of(const struct push_args *args, const struct push_body *body);

/* The wait after so many failures in a row: twice as long each time, by chance up to half less, so that not all come at once. */
uint64_t push_backoff_ns(unsigned failures, uint64_t after_ns);

/* A number of ns below `below_ns`, by chance. */
uint64_t push_chance_ns(uint64_t below_ns);
