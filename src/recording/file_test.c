/* SPDX-License-Identifier: BSD-3-Clause */

/* Destinations and sources of recordings: full disks, pipes, terminals, wrong paths. */

#include "recording/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

static const struct recording_info info = {.vcpus = 1};
static struct stacks *stacks;

static int set_up(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	return stacks_new(&stacks) ? -1 : 0;
}

static int tear_down(void **state)
{
	stacks_free(stacks);
	return 0;
}

static struct error *create(const char *path, struct recording_writer **writer)
{
	return recording_create(path, &info, stacks, writer);
}

static struct error *add_tick(struct recording_writer *writer, uint64_t i)
{
	struct tick_entry entry = {.state = i % VCPU_STATES};
	struct tick tick = {.time_ns = i * 1000000, .weight_ns = i, .n = 1, .entries = &entry};

	return recording_tick(writer, &tick);
}

static void test_paths_that_cannot_be_written(void **state)
{
	struct recording_writer *writer;

	assert_fails(create("", &writer), ERR_OUTPUT, "no name");
	assert_fails(create("/proc/self", &writer), ERR_OUTPUT, "it is a directory");
	assert_fails(create("/proc/self/", &writer), ERR_OUTPUT, "it is a directory");
	assert_fails(create("/proc/none/here/x", &writer), ERR_OUTPUT,
		     "is there a directory /proc/none/here?");
	assert_fails(create("/proc/version/x", &writer), ERR_OUTPUT, "Not a directory");
	assert_fails(create("/proc/self/x", &writer), ERR_OUTPUT, "cannot create /proc/self/x");
	assert_fails(create("/dev/full", &writer), ERR_OUTPUT,
		     "/dev/full: no space is left on the device");
}

static void test_paths_that_cannot_be_read(void **state)
{
	struct heard heard;

	assert_fails(hear("/proc/self", &heard), ERR_INPUT, "/proc/self: Is a directory");
	heard_free(&heard);
	assert_fails(hear("/proc/none", &heard), ERR_INPUT, "/proc/none: No such file");
	heard_free(&heard);
	assert_fails(hear("/dev/zero", &heard), ERR_INPUT, "/dev/zero is no recording");
	heard_free(&heard);
	assert_fails(hear("/dev/null", &heard), ERR_INPUT, "/dev/null is empty");
	heard_free(&heard);
}

/* A file system of 128 KiB of its own; false where we may not. In a child only. */
static bool mount_small(const char *directory)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS))
		return false;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	return mount("none", directory, "tmpfs", 0, "size=128k") == 0;
}

enum { CHILD_GOOD, CHILD_BAD, CHILD_CANNOT };

/* Fills the disk; the recording must be readable up to there. */
static int fill_disk(const char *directory)
{
	struct recording_writer *writer;
	struct error *err = NULL;
	struct heard heard;
	uint64_t ticks = 0;
	char path[64];

	if (!mount_small(directory))
		return CHILD_CANNOT;
	snprintf(path, sizeof(path), "%s/full", directory);
	if (create(path, &writer))
		return CHILD_BAD;
	while (ticks < 100000 && !(err = add_tick(writer, ticks)))
		ticks++;
	if (!err || err->kind != ERR_OUTPUT || !strstr(err->text, "no space is left"))
		return CHILD_BAD;
	error_free(err);
	/* It stays so, and closing does not tell it again. */
	err = add_tick(writer, ticks);
	if (!err || err->kind != ERR_OUTPUT)
		return CHILD_BAD;
	error_free(err);
	if (recording_close(writer, NULL))
		return CHILD_BAD;
	if (hear(path, &heard) || !heard.cut || heard.ticks < 5000 || heard.ticks > ticks)
		return CHILD_BAD;
	heard_free(&heard);
	return CHILD_GOOD;
}

static void test_a_full_disk_leaves_a_good_recording(void **state)
{
	char directory[] = "/tmp/uniprof-test-XXXXXX";
	int status;
	pid_t pid;

	assert_non_null(mkdtemp(directory));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fill_disk(directory));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(rmdir(directory), 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == CHILD_CANNOT) {
		print_message("skipped: no right to mount a small file system\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), CHILD_GOOD);
}

static void test_files_get_plain_modes_and_are_emptied_first(void **state)
{
	char path[] = "/tmp/uniprof-test-XXXXXX";
	struct recording_end end = {.reason = (char *)"time"};
	struct recording_writer *writer;
	struct stat file;
	struct heard heard;
	mode_t mask = umask(0);
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	assert_success(create(path, &writer));
	assert_success(recording_close(writer, &end));
	assert_success(hear(path, &heard));
	assert_false(heard.cut);
	heard_free(&heard);
	assert_int_equal(unlink(path), 0);
	assert_success(create(path, &writer));
	assert_success(recording_close(writer, NULL));
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_mode, S_IFREG | 0600);
	umask(mask);
	unlink(path);
}

static void path_of(int fd, char path[32])
{
	snprintf(path, 32, "/proc/self/fd/%d", fd);
}

static void test_a_pipe_without_reader_is_told(void **state)
{
	struct recording_writer *writer;
	char path[32];
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	path_of(ends[1], path);
	assert_success(create(path, &writer));
	close(ends[0]);
	assert_success(add_tick(writer, 0));
	assert_fails(recording_flush(writer), ERR_OUTPUT, "nobody reads it");
	assert_success(recording_close(writer, NULL));
	close(ends[1]);
}

struct live {
	char path[32];
	sem_t heard;
	uint64_t ticks;
	uint64_t nap; /* so many ticks are read between two milliseconds of sleep; 0: no sleep */
	bool cut, good;
};

static struct error *count_live(void *ctx, const struct tick *tick)
{
	struct live *live = ctx;

	live->ticks++;
	sem_post(&live->heard);
	if (live->nap && live->ticks % live->nap == 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return NULL;
}

static void *read_live(void *ctx)
{
	struct live *live = ctx;
	struct recording_visitor visitor = {.ctx = live, .tick = count_live};
	struct stacks *own;
	struct error *err = stacks_new(&own);
	sigset_t alarms;

	/* They are for the writer. */
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	if (!err) {
		err = recording_read(live->path, own, &visitor, &live->cut);
		stacks_free(own);
	}
	live->good = !err;
	error_free(err);
	return NULL;
}

static bool wait_for(sem_t *what, unsigned seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	while (sem_timedwait(what, &until))
		if (errno != EINTR)
			return false;
	return true;
}

static void test_a_reader_gets_ticks_while_the_recording_grows(void **state)
{
	struct recording_end end = {.reason = (char *)"time"};
	struct live live = {.ticks = 0};
	struct recording_writer *writer;
	pthread_t thread;
	char path[32];
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	path_of(ends[0], live.path);
	path_of(ends[1], path);
	assert_int_equal(sem_init(&live.heard, 0, 0), 0);
	assert_success(create(path, &writer));
	close(ends[1]);
	assert_int_equal(pthread_create(&thread, NULL, read_live, &live), 0);
	/* Written out because it was asked for. */
	assert_success(add_tick(writer, 1));
	assert_success(recording_flush(writer));
	assert_true(wait_for(&live.heard, 60));
	/* Written out because a second has passed. */
	assert_success(add_tick(writer, 500));
	assert_success(add_tick(writer, 1001));
	assert_true(wait_for(&live.heard, 60));
	assert_true(wait_for(&live.heard, 60));
	/* Written out because there is much of it. */
	for (uint64_t i = 0; i < 20000; i++)
		assert_success(add_tick(writer, 1001 + i / 100));
	assert_true(wait_for(&live.heard, 60));
	assert_success(recording_close(writer, &end));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(live.good);
	assert_false(live.cut);
	assert_int_equal(live.ticks, 3 + 20000);
	sem_destroy(&live.heard);
	close(ends[0]);
}

static void on_alarm(int number)
{
}

/* Writes to standard output, a pipe that takes little at a time and has a slow reader. */
static void write_slowly(int flags)
{
	struct recording_end end = {.reason = (char *)"time"};
	struct live live = {.nap = 1000};
	struct recording_writer *writer;
	pthread_t thread;
	int ends[2], out;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
	assert_int_equal(fcntl(ends[1], F_SETFL, flags), 0);
	path_of(ends[0], live.path);
	assert_int_equal(sem_init(&live.heard, 0, 0), 0);
	fflush(stdout);
	out = dup(STDOUT_FILENO);
	assert_true(out >= 0 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
	assert_int_equal(pthread_create(&thread, NULL, read_live, &live), 0);
	assert_success(create("-", &writer));
	for (uint64_t i = 0; i < 100000; i++)
		assert_success(add_tick(writer, i));
	assert_success(recording_close(writer, &end));
	assert_int_equal(dup2(out, STDOUT_FILENO), STDOUT_FILENO);
	close(out);
	close(ends[1]);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(live.good);
	assert_false(live.cut);
	assert_int_equal(live.ticks, 100000);
	sem_destroy(&live.heard);
	close(ends[0]);
}

static void test_short_and_interrupted_writes_lose_nothing(void **state)
{
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm}, before;

	assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	write_slowly(0);
	write_slowly(O_NONBLOCK);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

static void test_a_terminal_is_refused(void **state)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY), out, slave;
	struct recording_writer *writer;
	struct error *err;

	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) {
		print_message("skipped: no terminals here\n");
		skip();
	}
	slave = open(ptsname(terminal), O_RDWR | O_NOCTTY);
	assert_true(slave >= 0);
	fflush(stdout);
	out = dup(STDOUT_FILENO);
	assert_int_equal(dup2(slave, STDOUT_FILENO), STDOUT_FILENO);
	err = create("-", &writer);
	assert_int_equal(dup2(out, STDOUT_FILENO), STDOUT_FILENO);
	assert_fails(err, ERR_OUTPUT, "not for a terminal");
	close(out);
	close(slave);
	close(terminal);
}

static void test_standard_input_is_read(void **state)
{
	struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct heard heard;
	struct error *err;
	int in = dup(STDIN_FILENO);

	assert_success(create(file.path, &writer));
	assert_success(add_tick(writer, 7));
	assert_success(recording_close(writer, NULL));
	assert_int_equal(lseek(file.fd, 0, SEEK_SET), 0);
	assert_int_equal(dup2(file.fd, STDIN_FILENO), STDIN_FILENO);
	err = hear("-", &heard);
	if (in >= 0)
		dup2(in, STDIN_FILENO);
	else
		close(STDIN_FILENO);
	assert_success(err);
	assert_int_equal(heard.ticks, 1);
	heard_free(&heard);
	close(in);
	close(file.fd);
}

#define SENT_BYTES 100000

struct receiver {
	int fd;
	size_t len;
	uint8_t data[SENT_BYTES];
};

static void *receive_all(void *ctx)
{
	struct receiver *receiver = ctx;
	ssize_t got;

	while ((got = recv(receiver->fd, receiver->data + receiver->len,
			   sizeof(receiver->data) - receiver->len, 0)) > 0)
		receiver->len += (size_t)got;
	return NULL;
}

static void test_a_socket_whose_packets_must_be_small_gets_all(void **state)
{
	static struct receiver receiver;
	static uint8_t data[SENT_BYTES];
	struct recording_file file = {.name = (char *)"socket"};
	const int least = 1;
	pthread_t thread;
	int ends[2];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 24);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
	assert_int_equal(send(ends[1], data, sizeof(data), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EMSGSIZE);
	receiver.fd = ends[0];
	file.fd = ends[1];
	assert_int_equal(pthread_create(&thread, NULL, receive_all, &receiver), 0);
	assert_success(recording_file_write(&file, data, sizeof(data)));
	close(ends[1]);
	pthread_join(thread, NULL);
	close(ends[0]);
	assert_int_equal(receiver.len, sizeof(data));
	assert_memory_equal(receiver.data, data, sizeof(data));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths_that_cannot_be_written),
		cmocka_unit_test(test_paths_that_cannot_be_read),
		cmocka_unit_test(test_a_full_disk_leaves_a_good_recording),
		cmocka_unit_test(test_files_get_plain_modes_and_are_emptied_first),
		cmocka_unit_test(test_a_pipe_without_reader_is_told),
		cmocka_unit_test(test_a_reader_gets_ticks_while_the_recording_grows),
		cmocka_unit_test(test_short_and_interrupted_writes_lose_nothing),
		cmocka_unit_test(test_a_socket_whose_packets_must_be_small_gets_all),
		cmocka_unit_test(test_a_terminal_is_refused),
		cmocka_unit_test(test_standard_input_is_read),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
