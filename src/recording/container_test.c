/* SPDX-License-Identifier: BSD-3-Clause */

/* Containers of threads: in recordings, and as people call them. */

#include "recording/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recording/testing.h"

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* What is heard of threads 1, 2 ... in these containers. */
static void assert_heard(const char *const *containers, size_t n, const char *want)
{
	struct memory_file file = memory_file_new();
	struct recording_info info = {.vcpus = 1};
	struct recording_writer *writer;
	struct stacks *stacks;
	struct heard heard;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (uint32_t i = 0; i < n; i++)
		assert_success(
			recording_thread(writer,
					 &(struct recorded_thread){.tid = i + 1,
								   .name = "a",
								   .process = "b",
								   .container = containers[i]}));
	assert_success(recording_close(writer, NULL));
	assert_success(hear(file.path, &heard));
	assert_string_equal(strchr(heard.text, '\n') + 1, want);
	heard_free(&heard);
	stacks_free(stacks);
	close(file.fd);
}

static void threads_are_in_their_containers(void **state)
{
	static const char *const containers[] = {NULL, "/", "/", "/web", NULL, "/web\n(x)"};

	assert_heard(containers, 6,
		     "thread 1 0 1 0 <a> <b>\n"
		     "thread 2 0 2 0 <a> <b> in </>\n"
		     "thread 3 0 3 0 <a> <b> in </>\n"
		     "thread 4 0 4 0 <a> <b> in </web>\n"
		     "thread 5 0 5 0 <a> <b>\n"
		     "thread 6 0 6 0 <a> <b> in </web\n(x)>\n");
}

static void a_path_is_cut_off(void **state)
{
	char path[2 * RECORDED_CONTAINER_MAX], want[RECORDED_CONTAINER_MAX + 100];
	const char *const containers[] = {path};

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	snprintf(want, sizeof(want), "thread 1 0 1 0 <a> <b> in <%.*s>\n", RECORDED_CONTAINER_MAX,
		 path);
	assert_heard(containers, 1, want);
}

static void the_id_is_that_of_the_innermost_container(void **state)
{
	static const char other[] =
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
	char id[CONTAINER_ID_ROOM], path[2 * CONTAINER_ID_ROOM + 64];

	assert_true(recorded_container_id("/system.slice/docker-" DIGITS ".scope", id));
	assert_string_equal(id, DIGITS);
	assert_true(recorded_container_id("/docker/" DIGITS "/system.slice/nginx.service", id));
	assert_string_equal(id, DIGITS);
	snprintf(path, sizeof(path), "/docker/%s/docker/" DIGITS, other);
	assert_true(recorded_container_id(path, id));
	assert_string_equal(id, DIGITS);
	assert_false(recorded_container_id("/", id));
	assert_false(recorded_container_id("", id));
	assert_false(recorded_container_id("/system.slice/nginx.service", id));
	assert_false(recorded_container_id("/docker/" DIGITS "0", id));
}

static void containers_have_the_names_that_people_know(void **state)
{
	static const struct {
		const char *path, *name;
	} known[] = {
		{"/", "/"},
		{"", "/"},
		{"/system.slice/nginx.service", "nginx.service"},
		{"/system.slice", "system.slice"},
		{"/user.slice/user-7.slice", "user-7.slice"},
		{"/a/b", "a/b"},
		{"//a///b/", "a/b"},
		{"/system.slice/docker-" DIGITS ".scope", "docker:0123456789ab"},
		{"/machine.slice/libpod-" DIGITS ".scope/container",
		 "libpod:0123456789ab/container"},
		{"/docker/" DIGITS, "0123456789ab"},
		{"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" DIGITS ".scope",
		 "cri-containerd:0123456789ab"},
		{"/docker/" DIGITS "/system.slice/nginx.service", "0123456789ab/nginx.service"},
		{"/docker/" DIGITS "/docker/" DIGITS, "0123456789ab/docker/0123456789ab"},
		/* A unit of this name that belongs to a user is another container. */
		{"/user.slice/user-7.slice/user@7.service/app.slice/dbus.service",
		 "user@7.service/dbus.service"},
		{"/system.slice/docker-" DIGITS "0.scope", "docker-" DIGITS "0.scope"},
		{"/x/docker-" DIGITS ".service", "x/docker-" DIGITS ".service"},
		{".../b/" DIGITS, "0123456789ab"},
		{"/.slice", ".slice"},
	};
	char name[CONTAINER_NAME_ROOM], path[RECORDED_CONTAINER_MAX + 1];

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		recorded_container_name(known[i].path, name);
		assert_string_equal(name, known[i].name);
	}
	for (size_t len = 0; len <= RECORDED_CONTAINER_MAX; len++) {
		memset(path, 'x', len);
		path[len] = '\0';
		recorded_container_name(path, name);
		assert_string_equal(name, len ? path : "/");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_are_in_their_containers),
		cmocka_unit_test(a_path_is_cut_off),
		cmocka_unit_test(containers_have_the_names_that_people_know),
		cmocka_unit_test(the_id_is_that_of_the_innermost_container),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
