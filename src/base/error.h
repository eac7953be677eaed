/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Errors are values: a kind, which is also the exit code of the program, and a
 * sentence for a person (what failed, why, what to try; no newline, no full
 * stop at its end). A function that can fail returns `struct error *`: NULL is
 * success; any other value is owned by the caller, which returns it or frees
 * it. Only the verbs print errors.
 *
 *	TRY(read_head(in, &head));
 *
 * returns from the function with the error of read_head(), if it has one. What
 * has to be given back before is for the long form: err = ...; if (err) ...
 */

/* The exit codes are part of the manual (docs/man/uniprof.1). */
enum error_kind {
	ERR_FAILED = 1, /* any error that has no number of its own */
	ERR_USAGE = 2,	/* an option or an argument that cannot be meant */
	ERR_GUEST = 3,	/* no such guest, or one that cannot be profiled */
	ERR_DENIED = 4, /* no rights, no hypervisor, or one that we cannot use */
	ERR_ENDED = 5,	/* the guest ended while it was recorded; the recording is kept */
	ERR_INPUT = 6,	/* a file that cannot be read, or has the wrong format */
	ERR_OUTPUT = 7, /* a file that cannot be written, a full disk */
};

struct error {
	enum error_kind kind;
	char text[];
};

#define MUST_CHECK	  __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

#define TRY(call)                              \
	do {                                   \
		struct error *error_ = (call); \
		if (error_)                    \
			return error_;         \
	} while (0)

/* Never returns NULL: when memory is short, a static error says so. */
struct error *error_new(enum error_kind kind, const char *format, ...) PRINTF_LIKE(2, 3) MUST_CHECK;

/* Like error_new, with ": " and the text of errno value `err` behind it. */
struct error *error_errno(enum error_kind kind, int err, const char *format, ...)
	PRINTF_LIKE(3, 4) MUST_CHECK;

/* Takes `cause` and returns an error of the same kind with "<format>: " before its text. */
struct error *error_prefix(struct error *cause, const char *format, ...)
	PRINTF_LIKE(2, 3) MUST_CHECK;

/* The error for a failed allocation; static, may be freed like any other. */
struct error *error_no_memory(void) MUST_CHECK;

/* Keeps the first of two errors: returns `first` if it is set and frees `second`, else `second`. */
struct error *error_first(struct error *first, struct error *second) MUST_CHECK;

void error_free(struct error *err);
