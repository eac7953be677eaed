/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The parts of `uniprof agent`: agent.c takes settings and waits;
 * agent_discovery.c finds guests; agent_store.c has their samplers, and what
 * writes to the store; agent_push.c what takes it to a receiver; agent_status.c
 * tells how it goes.
 */

#include <sys/types.h>

#include "agent/store.h"
#include "base/clock.h"
#include "cmd/cmd.h"
#include "cmd/push.h"
#include "cmd/shared/session.h"

#define PATTERNS_MAX 64
#define GUESTS_MAX   1024

/* Guests are looked for so often; less often where that takes long. */
#define AGENT_DISCOVER_NS (3 * NS_PER_S)

/* Samplers end their recordings in this time, or are killed. */
#define AGENT_END_NS (5 * NS_PER_S)

/* Bytes that a sampler writes at once, at most. */
#define AGENT_PACKET_MAX (4u << 20)

struct patterns {
	const char *at[PATTERNS_MAX];
	size_t n;
};

struct agent_args {
	struct session_options session;
	const char *store;
	double max_cpu; /* share of a CPU; 0: no bound */
	uint64_t max_disk, max_age_ns;
	struct patterns include, exclude;
	struct push_args push;
	uint64_t max_queue; /* bytes */
	uint64_t push_within_ns;
	const char *metrics; /* NULL: none */
	const char *config;  /* file of settings; NULL: none */
	char *config_text;   /* ... and its text, which holds strings above */
	bool check;	     /* nothing but the settings */
	bool status, json;   /* nothing but how a running agent does */
};

/* A guest as it was found; the discoverer writes them to its socket, a packet each. */
struct found {
	char kind[16], id[32], name[256];
};

struct guest {
	struct found found;
	char directory[STORE_GUEST_MAX];
	bool listed;
	pid_t pid;		  /* its sampler; 0: none */
	int from;		  /* its socket; -1: none */
	int segment;		  /* the file that is written; -1: none */
	uint64_t bytes;		  /* in it */
	uint64_t written, starts; /* bytes of all its segments; its samplers */
	double rate_hz;		  /* that its sampler was told */
	double lowered_hz;	  /* the rate that is left of the wanted one by max_cpu; 0: all */
	pid_t measured; /* the sampler that had taken cpu_ns when that was last measured */
	uint64_t cpu_ns;
	struct session_shared *shared; /* with its samplers, one after the other */
	char queued[QUEUE_NAME_MAX];   /* its name in the queue; "": none */
	uint64_t begun_ns, started_ns, retry_ns;
	uint64_t end_ns;   /* it is to have ended by then; 0: it is to go on */
	unsigned failures; /* in a row */
	char error[256];   /* the last; "": none */
	int64_t error_s;   /* ... unix */
};

/* The queue, and the process that empties it. */
struct pushing {
	pid_t pusher; /* 0: none */
	int to;	      /* its socket; -1: none */
	struct queue_list queue;
	size_t next; /* of the queue */
	bool more;   /* there is more than the list has */
	uint64_t listed_ns;
	char sending[QUEUE_NAME_MAX]; /* "": the pusher has nothing */
	uint64_t given_ns, retry_ns;
	unsigned failures;		      /* in a row */
	uint64_t pushed, pushed_bytes, never; /* recordings, bytes; recordings that were lost */
	uint64_t lost, told_ns; /* recordings that are not told yet, and when the last were */
	char why[800];		/* the last was lost */
	bool renew;		/* the pusher has settings that are not in force any more */
	bool recovered;		/* the queue of the last agent */
};

/* What all processes take of a CPU, where there is a bound on it. */
struct cpu_use {
	uint64_t ns, at_ns;   /* so much, when it was last measured; 0: never */
	uint64_t changed_ns;  /* when rates were last changed */
	double share, others; /* of late: of all; of anything but sampling */
	bool lowers;	      /* some rate, and that was told */
};

struct agent {
	struct agent_args args;
	int argc;
	char **argv;
	const volatile sig_atomic_t *stop;
	int store, notify;
	char *store_path;
	int asked;   /* socket at which is asked how it goes; -1: none */
	int hangups; /* signalfd(2) of SIGHUP; -1: that ends the agent */
	struct sampler_options
		told; /* to samplers: how to sample from now on, but for rates that are lowered */
	struct cpu_use cpu;
	uint8_t *packet; /* AGENT_PACKET_MAX */
	struct guest *guests;
	size_t n, room;
	uint64_t discovered_ns, discover_ns; /* when guests were looked for, and will be */
	uint64_t disk_bytes;		     /* of recordings, when they were last listed */
	uint64_t ended_cpu_ns;		     /* CPU time of processes that have ended */
	uint64_t begun_unix_ns;		     /* when the agent began */
	uint64_t tidied_ns, fed_ns, feed_ns, measured_ns;
	bool full;	 /* the disk, and that was told */
	bool unmeasured; /* the metrics could not be written, and that was told */

	pid_t discoverer;	    /* 0: none */
	int finds;		    /* its socket; -1: none */
	bool looks;		    /* it was asked, and has not ended its answer */
	uint64_t discoverer_cpu_ns; /* that it had taken before */
	struct found *found;
	size_t n_found, room_found;

	pid_t joiner;
	int joined; /* its output */
	struct store_segments segments;
	size_t join_first, join_n;

	struct pushing pushing;
};

/* True if the settings include a guest, and do not exclude it. */
bool agent_wants(const struct agent_args *args, const struct found *found);

/*
 * The same, its standard output being a socket of packets whose other end is *end. True in the
 * process itself; where there is none, *pid is 0 and *end -1.
 */
bool agent_start_at_socket(pid_t *pid, int *end);

/* Says what went wrong with the store, and only that until something goes right again. Takes the error. */
void agent_tell_store(struct agent *agent, struct error *err);

/* Has the discoverer look for guests, now and then. */
void agent_discover(struct agent *agent, uint64_t now_ns);

/* Takes what it has found so far; and that it has ended, which it does not by itself. */
struct error *agent_read_finds(struct agent *agent);
void agent_end_discovery(struct agent *agent);

/* Takes what was found in a whole look. */
struct error *agent_take_finds(struct agent *agent);

/* CPU time that a process has taken; 0: there is none. */
uint64_t agent_process_cpu_ns(pid_t pid);

/*
 * Tells samplers how to sample from now on. Shares of memory are taken with the
 * next minute, what else has changed at once.
 */
void agent_instruct(struct agent *agent);

/* Keeps all processes together within max_cpu, by the rates of samplers; now and then. */
void agent_fit_rates(struct agent *agent, uint64_t now_ns);

/* Takes settings that are new or have changed: guests that are still wanted are sampled on. */
void agent_choose_again(struct agent *agent, uint64_t now_ns);

/*
 * Starts the sampler of a guest that has none and is due to have one: it samples
 * as `record` does. Kills one that does not end.
 */
void agent_keep_sampler(struct agent *agent, struct guest *guest, uint64_t now_ns);

/* Appends what the sampler has written to the guest's segment. */
void agent_read_sampler(struct agent *agent, struct guest *guest);

/* Removes what is too old or too much, and has minutes of one hour joined, in a process of its own; now and then. */
void agent_tidy(struct agent *agent, uint64_t now_ns);

/* To be called when that process has ended. */
void agent_end_join(struct agent *agent, int status);

/* Passes an open file through a socket; false: that cannot be done at once. -1: nothing comes any more. */
bool agent_give(int to, int file);
int agent_receive(int from);

/* A socket in the store tells how the agent does: agent->asked. As well as can be. */
void agent_open_status(struct agent *agent);
void agent_close_status(struct agent *agent);

/* Answers one who asks there. */
void agent_tell_status(struct agent *agent);

/* Asks the agent of a store, and prints what it tells. ERR_INPUT: none runs. */
struct error *agent_ask_status(const struct agent_args *args);

/* Writes the metrics, now and then; with now_ns 0, now. */
void agent_measure(struct agent *agent, uint64_t now_ns);

/* Takes over the queue as the last agent has left it; or settings that have changed. */
struct error *agent_begin_push(struct agent *agent);
void agent_end_push(struct agent *agent);

/* Queues the segment that a guest's sampler begins, and gives it free when it has ended. */
void agent_queue_segment(struct agent *agent, struct guest *guest, int64_t now_s);
void agent_release_segment(struct agent *agent, struct guest *guest);

/* Gives the oldest of the queue to the pusher, if that has none; drops what is too much. */
void agent_push(struct agent *agent, uint64_t now_ns);

/* Takes the pusher's answer. */
void agent_read_pusher(struct agent *agent);
