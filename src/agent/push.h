/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * One request to a receiver of profiles, by HTTP: sent once, and its answer
 * judged. The caller decides whether and when it is sent again. A build without
 * libcurl (which is loaded when it is needed) has none.
 *
 * Certificates are checked. No proxy is taken from the environment unless
 * asked, redirections are not followed, and each request has a connection of
 * its own: a library that repeats a request on its own would send twice.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* A receiver. Strings belong to the caller. */
struct push_target {
	const char *url;
	const char *token;  /* sent as "Authorization: Bearer TOKEN"; NULL: none */
	const char *tenant; /* sent as "X-Scope-OrgID: TENANT"; NULL: none */
	const char *ca;	    /* certificates that are trusted, PEM; NULL: those of the host */
	const char *proxy;  /* "environment": as the environment says; NULL: none */
	uint64_t connect_ns, whole_ns;	   /* time limits */
	const volatile sig_atomic_t *stop; /* a request ends within a second when it is set */
};

struct push_request {
	const char *query; /* behind the URL's '?'; "": none */
	const char *type;  /* of the content */
	bool packed;	   /* by gzip, which the receiver is told */
	bool otlp;	   /* answers are messages of OTLP's */
	int body;	   /* a file */
	uint64_t at, len;  /* in it, bytes */
};

enum push_outcome {
	PUSH_TAKEN,
	PUSH_PARTLY,  /* taken, but not all of it, or with a warning: not to be sent again */
	PUSH_REFUSED, /* never to be sent again as it is */
	PUSH_LATER,   /* not taken; may be sent again */
	PUSH_BLOCKED, /* not taken, whatever it is: wrong URL, token, certificate */
	PUSH_UNKNOWN, /* sent whole, without an answer: may have been taken or not */
	PUSH_STOPPED, /* not taken: `stop` was set */
	PUSH_OUTCOMES
};

struct push_answer {
	enum push_outcome outcome;
	uint32_t status;   /* of HTTP; 0: there was no answer */
	uint64_t rejected; /* profiles, of PUSH_PARTLY */
	uint64_t after_ns; /* the receiver wants nothing earlier; 0: it does not say */
	char text[512];	   /* a sentence about all but PUSH_TAKEN; the receiver's words are in it */
};

struct push;

/* ERR_FAILED: there is no library. */
struct error *push_open(const struct push_target *target, struct push **out);

void push_send(struct push *push, const struct push_request *request, struct push_answer *answer);
void push_close(struct push *push);

/* For `uniprof -V`: "pushes by libcurl", ... */
extern const char push_feature[];
