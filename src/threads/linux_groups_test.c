/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/linux_testing.h"

/* Control groups of process 4: its set, with those of two controllers. */
#define GROUP_SET	 (START + 0x38000)
#define CONTROLLER(i)	 (GROUP_SET + 0x40 * (1ull + (i)))
#define GROUP(i)	 (START + 0x38200 + 0x40 * (uint64_t)(i))
#define GROUP_NODE_AT(i) (START + 0x38800 + 0x40 * (uint64_t)(i))
#define GROUP_NAME(i)	 (START + 0x39000 + 0x100 * (uint64_t)(i))

/* A group whose node is below another's, or a root. */
static void put_group(struct kernel *kernel, unsigned i, uint64_t parent, const char *name)
{
	put_at(kernel, GROUP(i), GROUP_NODE, GROUP_NODE_AT(i));
	put_at(kernel, GROUP_NODE_AT(i), NODE_PARENT, parent);
	put_at(kernel, GROUP_NODE_AT(i), NODE_NAME, GROUP_NAME(i));
	memset(kernel->bytes + (GROUP_NAME(i) - START), 0, 0x100);
	memcpy(kernel->bytes + (GROUP_NAME(i) - START), name, strlen(name));
}

static void put_controller(struct kernel *kernel, unsigned i, uint64_t group)
{
	put_word(kernel, GROUP_SET + 8ull * i, CONTROLLER(i));
	put_at(kernel, CONTROLLER(i), STATE_GROUP, group);
}

/* Group 0 is the root of cgroup v2, and the controllers'; 1 and 2 are below, one in the other. */
static void put_groups(struct kernel *kernel, unsigned own)
{
	put_group(kernel, 0, 0, "");
	put_group(kernel, 1, GROUP_NODE_AT(0), "system.slice");
	put_group(kernel, 2, GROUP_NODE_AT(1), "nginx.service");
	put_controller(kernel, 0, GROUP(0));
	put_controller(kernel, 1, GROUP(0));
	put_at(kernel, GROUP_SET, SET_GROUP, GROUP(own));
	put_word(kernel, TASK(4) + layout.at[TASK_GROUPS], GROUP_SET);
}

static bool find_container(struct kernel *kernel, char container[GUEST_PATH_MAX + 1])
{
	const struct guest_threads threads = {&threads_linux, (void *)&layout};
	struct guest_thread thread = thread_of(4);

	thread.group = GROUP_SET;
	kernel->reads = 0;
	return guest_threads_container(&threads, &kernel->memory, &thread, container);
}

static void assert_container(struct kernel *kernel, const char *path)
{
	char container[GUEST_PATH_MAX + 1];

	assert_true(find_container(kernel, container));
	assert_string_equal(container, path);
}

#define CREDENTIALS (GLOBALS + 0x400)

static bool find_owner(struct kernel *kernel, const struct linux_threads *own, uint32_t *user)
{
	const struct guest_threads threads = {&threads_linux, (void *)own};
	const struct guest_thread thread = thread_of(4);

	kernel->reads = 0;
	return guest_threads_owner(&threads, &kernel->memory, &thread, user);
}

static void move_to_other_credentials(struct kernel *kernel, uint64_t va)
{
	if (va == CREDENTIALS + layout.user)
		put_word(kernel, TASK(4) + layout.at[TASK_CREDENTIALS], CREDENTIALS + 0x100);
}

static void files_of_a_thread_are_its_users(void **state)
{
	struct kernel *kernel = *state;
	struct linux_threads without = layout;
	uint32_t user = 0;

	assert_false(find_owner(kernel, &layout, &user));
	put_word(kernel, TASK(4) + layout.at[TASK_CREDENTIALS], CREDENTIALS);
	put_word(kernel, CREDENTIALS + layout.user, 1007);
	assert_true(find_owner(kernel, &layout, &user));
	assert_int_equal(user, 1007);
	/* A kernel whose types do not tell. */
	without.user = 0;
	assert_false(find_owner(kernel, &without, &user));
	/* Other credentials by the time that these are read; and another thread there. */
	kernel->runs = move_to_other_credentials;
	assert_false(find_owner(kernel, &layout, &user));
	kernel->runs = NULL;
	assert_true(find_owner(kernel, &layout, &user));
	put(kernel, 4, TASK_PID, 44);
	assert_false(find_owner(kernel, &layout, &user));
}

static void a_container_is_the_path_of_a_control_group(void **state)
{
	put_groups(*state, 2);
	assert_container(*state, "/system.slice/nginx.service");
	put_groups(*state, 0);
	assert_container(*state, "/");
}

static void a_container_of_cgroup_v1_is_that_of_a_controller(void **state)
{
	struct kernel *kernel = *state;

	put_groups(kernel, 0);
	/* The root of a hierarchy of its own says nothing. */
	put_group(kernel, 3, 0, "");
	put_group(kernel, 4, 0, "");
	put_group(kernel, 5, GROUP_NODE_AT(4), "docker");
	put_controller(kernel, 0, GROUP(3));
	put_controller(kernel, 1, GROUP(5));
	assert_container(kernel, "/docker");
	/* cgroup v2 comes first. */
	put_at(kernel, GROUP_SET, SET_GROUP, GROUP(2));
	assert_container(kernel, "/system.slice/nginx.service");
}

static void move_away(struct kernel *kernel, uint64_t va)
{
	if (va >= GROUP_NAME(0))
		put_word(kernel, TASK(4) + layout.at[TASK_GROUPS], GROUP_SET + 0x1000);
}

static void end_task(struct kernel *kernel, uint64_t va)
{
	if (va >= GROUP_NAME(0))
		put(kernel, 4, TASK_PID, 99);
}

static void a_container_that_the_thread_has_left_is_not_told(void **state)
{
	struct kernel *kernel = *state;
	char container[GUEST_PATH_MAX + 1];

	put_groups(kernel, 2);
	kernel->runs = move_away;
	assert_false(find_container(kernel, container));
	put_groups(kernel, 2);
	kernel->runs = end_task;
	assert_false(find_container(kernel, container));
}

static void wild_groups_are_no_container(void **state)
{
	static const uint64_t bad[] = {0, 1, 0x1000, START + 4, START + SIZE, UINT64_MAX - 7};
	struct kernel *kernel = *state;
	char container[GUEST_PATH_MAX + 1];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		put_groups(kernel, 2);
		put_at(kernel, GROUP_SET, SET_GROUP, bad[i]);
		assert_false(find_container(kernel, container));
		put_groups(kernel, 2);
		put_at(kernel, GROUP(2), GROUP_NODE, bad[i]);
		assert_false(find_container(kernel, container));
		put_groups(kernel, 2);
		put_at(kernel, GROUP_NODE_AT(2), NODE_NAME, bad[i]);
		assert_false(find_container(kernel, container));
	}
	/* A name of no bytes, and one that memory ends in. */
	put_groups(kernel, 2);
	put_group(kernel, 2, GROUP_NODE_AT(1), "");
	assert_false(find_container(kernel, container));
	put_at(kernel, GROUP_NODE_AT(2), NODE_NAME, START + SIZE - 8);
	memset(kernel->bytes + SIZE - 8, 'x', 8);
	assert_false(find_container(kernel, container));
}

static void a_container_without_a_root_is_cut(void **state)
{
	struct kernel *kernel = *state;
	char container[GUEST_PATH_MAX + 1];

	put_groups(kernel, 2);
	put_at(kernel, GROUP_NODE_AT(1), NODE_PARENT, GROUP_NODE_AT(2));
	assert_true(find_container(kernel, container));
	assert_true(strlen(container) <= GUEST_PATH_MAX);
	assert_memory_equal(container, ".../", 4);
	assert_true(kernel->reads < 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(files_of_a_thread_are_its_users),
		TEST(a_container_is_the_path_of_a_control_group),
		TEST(a_container_of_cgroup_v1_is_that_of_a_controller),
		TEST(a_container_that_the_thread_has_left_is_not_told),
		TEST(wild_groups_are_no_container),
		TEST(a_container_without_a_root_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
