/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Pushing, beside sampling and never in its way: a process without rights is
 * given one recording of the queue after another, open to be read, and tells
 * what has become of it. The agent alone changes the queue: a recording is
 * marked before it is sent, and leaves when the receiver has answered.
 */

#include "cmd/agent.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/privilege.h"

/* Stretches between two lists of the queue, and between two sentences about losses. */
#define LIST_NS (5 * NS_PER_S)
#define TELL_NS (60 * NS_PER_S)

/* Beside the request itself: for reading the recording, which has a bound of its own. */
#define EXTRA_NS (180 * NS_PER_S)

#define NICE 10

/* The pusher's word about a recording. */
struct push_result {
	struct push_answer answer;
	uint64_t bytes; /* of the request's body */
};

/* Losses are told at once, or with others after a while. */
static void tell_losses(struct pushing *pushing, uint64_t now_ns)
{
	if (!pushing->lost || (pushing->told_ns && now_ns - pushing->told_ns < TELL_NS))
		return;
	pushing->told_ns = now_ns;
	cmd_say("push: %" PRIu64 " recording%s not delivered; the last: %s", pushing->lost,
		pushing->lost == 1 ? " is" : "s are", pushing->why);
	pushing->lost = 0;
}

static void lose(struct pushing *pushing, const char *name, const char *why)
{
	pushing->lost++;
	pushing->never++;
	snprintf(pushing->why, sizeof(pushing->why), "%s: %s", name, why);
}

/* The pusher */

int agent_receive(int from)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	char byte;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	const struct cmsghdr *head;
	ssize_t got;
	int fd;

	while ((got = recvmsg(from, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

static void push_segment(struct push *push, const struct push_args *args, int segment,
			 struct push_result *result)
{
	struct load_options load;
	struct push_request request;
	struct push_body body;
	struct error *err;

	load_defaults(&load);
	load.naming.unnamed = UNNAMED_OFFSET;
	load.filter.progress = NULL;
	err = push_encode(args, &load, segment, NULL, &body);
	*result = (struct push_result){.answer.outcome = err ? PUSH_REFUSED : PUSH_TAKEN};
	if (err)
		snprintf(result->answer.text, sizeof(result->answer.text), "%s", err->text);
	request = push_request_of(args, &body);
	if (!err && body.head.samples)
		push_send(push, &request, &result->answer);
	result->bytes = body.head.samples ? body.len : 0;
	push_body_free(&body);
	error_free(err);
}

/* Runs in a process of its own: root's rights are there to read the token, and for nothing else. */
static void serve(const struct agent *agent)
{
	struct push_args args = agent->args.push;
	struct error *err = push_prepare(&args);
	const struct push_target target = push_target_of(&args, agent->stop);
	struct push_result result;
	struct push *push = NULL;
	struct privilege got;
	int segment;

	setpriority(PRIO_PROCESS, 0, NICE);
	privilege_drop(SECCOMP_UNFILTERED, &got);
	/* Giving up root has taken this away. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (!err)
		err = push_open(&target, &push);
	while ((segment = agent_receive(STDOUT_FILENO)) >= 0) {
		if (err) {
			result = (struct push_result){.answer.outcome = PUSH_BLOCKED};
			snprintf(result.answer.text, sizeof(result.answer.text), "%s", err->text);
		} else {
			push_segment(push, &args, segment, &result);
		}
		close(segment);
		(void)!send(STDOUT_FILENO, &result, sizeof(result), MSG_NOSIGNAL);
	}
	_exit(0);
}

/* The agent */

struct error *agent_begin_push(struct agent *agent)
{
	struct pushing *pushing = &agent->pushing;
	size_t again = 0;
	struct error *err;

	pushing->renew = true;
	pushing->retry_ns = 0;
	if (!agent->args.push.url || pushing->recovered)
		return NULL;
	pushing->recovered = true;
	err = queue_recover(agent->store, &again);
	if (again)
		cmd_say("push: %zu recording%s sent when the last agent ended, without an answer: "
			"sent again, and may be there twice",
			again, again == 1 ? " was" : "s were");
	pushing->more = true;
	return err;
}

void agent_end_push(struct agent *agent)
{
	owned_close(&agent->pushing.to);
	tell_losses(&agent->pushing, UINT64_MAX);
	free(agent->pushing.queue.at);
}

void agent_queue_segment(struct agent *agent, struct guest *guest, int64_t now_s)
{
	if (agent->args.push.url && guest->segment >= 0)
		agent_tell_store(agent, queue_begin(agent->store, guest->directory, now_s,
						    guest->segment, guest->queued));
}

/* Minutes end at the same moment on all hosts: unless others wait already, it is sent later. */
static void spread(struct agent *agent)
{
	struct pushing *pushing = &agent->pushing;
	const uint64_t then_ns = clock_now_ns() + push_chance_ns(agent->args.push_within_ns);

	if (!pushing->more && !*pushing->sending && pushing->next >= pushing->queue.n &&
	    then_ns > pushing->retry_ns)
		pushing->retry_ns = then_ns;
}

void agent_release_segment(struct agent *agent, struct guest *guest)
{
	if (!*guest->queued)
		return;
	spread(agent);
	agent_tell_store(agent, queue_move(agent->store, guest->queued, QUEUE_OPEN, QUEUE_READY));
	*guest->queued = '\0';
	agent->pushing.more = true;
}

/* Lists the queue anew, and drops the oldest while it is too large. */
static void list_queue(struct agent *agent, uint64_t now_ns)
{
	struct pushing *pushing = &agent->pushing;
	uint64_t bytes;

	if (!pushing->more || (pushing->listed_ns && now_ns - pushing->listed_ns < LIST_NS))
		return;
	pushing->listed_ns = now_ns;
	pushing->more = false;
	pushing->next = 0;
	free(pushing->queue.at);
	agent_tell_store(agent, queue_list(agent->store, &pushing->queue));
	bytes = pushing->queue.bytes;
	while (pushing->next < pushing->queue.n && bytes > agent->args.max_queue) {
		const struct queued *oldest = &pushing->queue.at[pushing->next++];

		queue_remove(agent->store, oldest->name, QUEUE_READY);
		lose(pushing, oldest->name, "dropped, as the queue is full (--max-queue)");
		bytes -= oldest->bytes;
	}
}

/* Another one is started for the next recording, and reads the token's file anew. */
static void stop_pusher(struct pushing *pushing)
{
	if (pushing->pusher > 0)
		kill(pushing->pusher, SIGKILL);
	close(pushing->to);
	pushing->to = -1;
}

bool agent_give(int to, int file)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec data = {(char[]){0}, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &file, sizeof(file));
	return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* It was not delivered: waits until it may be sent again. */
static void fail(struct pushing *pushing, const struct push_answer *answer)
{
	pushing->retry_ns = clock_now_ns() + push_backoff_ns(pushing->failures, answer->after_ns);
	if (answer->outcome == PUSH_UNKNOWN)
		cmd_say("push: %s: %s; sent again, and may be there twice then", pushing->sending,
			answer->text);
	else if (!pushing->failures)
		cmd_say("push: %s: %s; kept, and tried again", pushing->sending, answer->text);
	pushing->failures++;
	/* It is the oldest still. */
	pushing->more = true;
	pushing->listed_ns = 0;
}

static void end_sending(struct agent *agent, const struct push_result *result)
{
	struct pushing *pushing = &agent->pushing;
	const struct push_answer *answer = &result->answer;

	if (answer->outcome <= PUSH_REFUSED) {
		queue_remove(agent->store, pushing->sending, QUEUE_SENDING);
		if (pushing->failures)
			cmd_say("push: the receiver answers again");
		pushing->failures = 0;
	} else {
		agent_tell_store(agent, queue_move(agent->store, pushing->sending, QUEUE_SENDING,
						   QUEUE_READY));
		fail(pushing, answer);
	}
	if (answer->outcome == PUSH_REFUSED || answer->rejected)
		lose(pushing, pushing->sending, answer->text);
	else if (answer->outcome == PUSH_PARTLY)
		cmd_say("push: %s: %s", pushing->sending, answer->text);
	if (answer->outcome <= PUSH_PARTLY) {
		pushing->pushed++;
		pushing->pushed_bytes += result->bytes;
	}
	*pushing->sending = '\0';
	if (answer->outcome == PUSH_BLOCKED)
		stop_pusher(pushing);
}

void agent_read_pusher(struct agent *agent)
{
	struct pushing *pushing = &agent->pushing;
	struct push_result result = {.answer.outcome = PUSH_UNKNOWN,
				     .answer.text = "the process that sent it has ended"};
	const ssize_t got = recv(pushing->to, &result, sizeof(result), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* It talks to others: nothing that it tells is trusted. */
	result.answer.text[sizeof(result.answer.text) - 1] = '\0';
	if (got > 0 && (got != (ssize_t)sizeof(result) || !*pushing->sending ||
			result.answer.outcome >= PUSH_OUTCOMES))
		result =
			(struct push_result){.answer.outcome = PUSH_UNKNOWN,
					     .answer.text = "the process that sent it is confused"};
	if (*pushing->sending)
		end_sending(agent, &result);
	if (got <= 0 && pushing->to >= 0)
		stop_pusher(pushing);
}

static void begin_sending(struct agent *agent, uint64_t now_ns)
{
	struct pushing *pushing = &agent->pushing;
	const char *name = pushing->queue.at[pushing->next++].name;
	struct error *err = queue_move(agent->store, name, QUEUE_READY, QUEUE_SENDING);
	const int segment = err ? -1 : queue_open(agent->store, name, QUEUE_SENDING);

	agent_tell_store(agent, err);
	if (segment < 0)
		return;
	snprintf(pushing->sending, sizeof(pushing->sending), "%s", name);
	pushing->given_ns = now_ns;
	if (!agent_give(pushing->to, segment)) {
		const struct push_result none = {.answer.outcome = PUSH_LATER,
						 .answer.text = "the process that sends has ended"};

		end_sending(agent, &none);
	}
	close(segment);
}

void agent_push(struct agent *agent, uint64_t now_ns)
{
	struct pushing *pushing = &agent->pushing;
	const struct push_args *args = &agent->args.push;

	if (args->url) {
		tell_losses(pushing, now_ns);
		list_queue(agent, now_ns);
	}
	if (*pushing->sending) {
		if (now_ns - pushing->given_ns > args->whole_ns + EXTRA_NS && pushing->pusher > 0)
			kill(pushing->pusher, SIGKILL);
		return;
	}
	if (pushing->renew && pushing->to >= 0)
		stop_pusher(pushing);
	pushing->renew = false;
	if (!args->url || now_ns < pushing->retry_ns || pushing->next >= pushing->queue.n)
		return;
	if (pushing->to < 0 && !pushing->pusher &&
	    agent_start_at_socket(&pushing->pusher, &pushing->to))
		serve(agent);
	if (pushing->to >= 0)
		begin_sending(agent, now_ns);
}
