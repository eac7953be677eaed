/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/image_args.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/preopen.h"
#include "symbol/images/code_fixture.h"

#define ID_1  "0101010101010101010101010101010101010101"
#define ID_2  "0202020202020202020202020202020202020202"
#define SLIDE 0x7f0000000000

static const struct code_fixture file_1 = {.va = 0x1000, .len = 0x4000, .id = 1};

/* Result of loading one file for a recording that lists these images. */
struct given {
	char path[32];
	int fd;
	struct images *images;
	char *doubt;
	struct error *err;
};

static struct given give(const struct code_fixture *fixture, const char *suffix,
			 struct recorded_image *recorded, size_t n)
{
	static struct recorded_image none;
	struct profile profile = {.info.images = {.at = n ? recorded : &none, .n = n}};
	struct image_args args = {0};
	struct given given = {0};
	char text[64];

	code_file(fixture, &given.fd, given.path);
	snprintf(text, sizeof(text), "%s%s", given.path, suffix);
	assert_null(image_args_add(&args, text, true));
	given.err = load_images(&args, &profile, &given.images, &given.doubt);
	return given;
}

static void end(struct given *given)
{
	if (!given->err)
		images_free(given->images);
	error_free(given->err);
	free(given->doubt);
	/* The next file will have the same path. */
	preopen_close();
	close(given->fd);
}

static void assert_named(const struct given *given, uint64_t va, const char *name, uint64_t start)
{
	struct symbol symbol;

	assert_null(given->err);
	assert_true(images_find(given->images, va, true, &symbol));
	assert_string_equal(symbol.name, name);
	assert_int_equal(symbol.start, start);
}

static void a_file_goes_where_the_recording_had_it(void **state)
{
	struct recorded_image recorded[] = {
		{"kernel", ID_2, 0x100000, 0x200000, 0, true, false},
		{"old/path", ID_1, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
		{"old/path", ID_1, 0x5001000, 0x5005000, 0x5000000, true, false},
	};
	struct given given = give(&file_1, "", recorded, 3);

	assert_named(&given, SLIDE + 0x1234, "f2", SLIDE + 0x1200);
	assert_named(&given, 0x5001000, "f0", 0x5001000);
	assert_int_equal(images_count(given.images), 2);
	assert_null(given.doubt);
	end(&given);
}

static void a_file_goes_where_its_build_id_was_seen(void **state)
{
	struct recorded_image recorded[] = {
		{NULL, ID_1, SLIDE + 0x5000, SLIDE + 0x5024, 0, true, false},
	};
	struct given given = give(&file_1, "", recorded, 1);

	assert_named(&given, SLIDE + 0x1234, "f2", SLIDE + 0x1200);
	assert_null(given.doubt);
	end(&given);
}

static void another_build_is_refused(void **state)
{
	struct code_fixture other = {.va = 0x1000, .len = 0x4000, .id = 2};
	struct recorded_image recorded[] = {
		{"app.elf", ID_1, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
		{NULL, ID_1, 0x5000, 0x5024, 0, true, false},
	};
	struct given given = give(&other, "", recorded, 1);

	assert_non_null(given.err);
	assert_int_equal(given.err->kind, ERR_INPUT);
	assert_non_null(strstr(given.err->text, ID_1));
	assert_non_null(strstr(given.err->text, ID_2));
	assert_non_null(strstr(given.err->text, "app.elf"));
	end(&given);
	given = give(&other, "", recorded + 1, 1);
	assert_non_null(given.err);
	assert_non_null(strstr(given.err->text, ID_1));
	end(&given);
	/* Unless the user insists. */
	given = give(&other, "@0x200000", recorded, 1);
	assert_named(&given, 0x200010, "f0", 0x200000);
	end(&given);
}

static void what_cannot_be_known_is_said(void **state)
{
	struct code_fixture elsewhere = {.va = 0x90000000, .len = 0x4000, .id = 2};
	struct code_fixture nameless = {.va = 0x1000, .len = 0x4000};
	struct recorded_image recorded[] = {
		{"app.elf", ID_1, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
		{"noid.elf", NULL, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
	};
	struct given given = give(&elsewhere, "", recorded, 1);

	assert_named(&given, 0x90000100, "f1", 0x90000100);
	assert_non_null(given.doubt);
	end(&given);
	given = give(&nameless, "", recorded, 1);
	assert_named(&given, 0x1100, "f1", 0x1100);
	assert_non_null(given.doubt);
	end(&given);
	/* The one file of the recording has no build id either. */
	given = give(&nameless, "", recorded + 1, 1);
	assert_named(&given, SLIDE + 0x1100, "f1", SLIDE + 0x1100);
	end(&given);
	given = give(&nameless, "", NULL, 0);
	assert_named(&given, 0x1100, "f1", 0x1100);
	assert_null(given.doubt);
	end(&given);
}

/* A recording that was cut off has no names, but tells where they are. */
static void without_names_the_recorded_files_serve(void **state)
{
	struct recorded_image recorded = {NULL,	 ID_1, SLIDE + 0x1000, SLIDE + 0x5000,
					  SLIDE, true, false};
	struct profile profile = {.info.images = {.at = &recorded, .n = 1}};
	const struct image_args none = {0};
	struct given given = {0};

	code_file(&file_1, &given.fd, given.path);
	/* Readers keep no descriptors but those that were opened ahead. */
	assert_null(preopen_input(given.path));
	recorded.path = given.path;
	assert_null(load_images(&none, &profile, &given.images, &given.doubt));
	assert_named(&given, SLIDE + 0x1234, "f2", SLIDE + 0x1200);
	images_free(given.images);
	/* The file is another one by now. */
	recorded.build_id = (char *)ID_2;
	assert_null(load_images(&none, &profile, &given.images, &given.doubt));
	assert_int_equal(images_count(given.images), 0);
	images_free(given.images);
	recorded.path = (char *)"/nowhere";
	assert_null(load_images(&none, &profile, &given.images, &given.doubt));
	assert_int_equal(images_count(given.images), 0);
	end(&given);
}

/* A directory with a copy of the first file as /app, and its names for a recording. */
static void load_copies_of(struct recorded_image *recorded, size_t n, struct given *given)
{
	struct profile profile = {.n_names = 1, .info.images = {.at = recorded, .n = n}};
	char dir[] = "/tmp/uniprof-root-XXXXXX", path[32], command[128];
	const struct image_args none = {0};
	int fd;

	assert_non_null(mkdtemp(dir));
	code_file(&file_1, &fd, path);
	snprintf(command, sizeof(command), "cp %s %s/app && chmod 644 %s/app", path, dir, dir);
	assert_int_equal(system(command), 0);
	close(fd);
	assert_null(sysroot_preopen(dir));
	*given = (struct given){.fd = -1};
	given->err = load_images(&none, &profile, &given->images, &given->doubt);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

static void copies_of_the_guests_files_go_where_the_recording_had_them(void **state)
{
	struct recorded_image recorded[] = {
		{"/app", ID_1, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
		{"/app", ID_1, 0x5001000, 0x5005000, 0x5000000, true, false},
		{"/none", ID_2, 0x7001000, 0x7005000, 0x7000000, true, false},
	};
	struct given given;

	load_copies_of(recorded, 3, &given);
	assert_named(&given, SLIDE + 0x1234, "f2", SLIDE + 0x1200);
	assert_named(&given, 0x5001234, "f2", 0x5001200);
	assert_int_equal(images_count(given.images), 2);
	assert_int_equal(images_files(given.images), 1);
	assert_string_equal(images_file(given.images, 0)->path, "/app");
	assert_null(given.doubt);
	end(&given);
}

static void copies_that_are_not_what_ran_name_nothing(void **state)
{
	struct recorded_image recorded[] = {
		{"/app", ID_2, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
		{"/app", NULL, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
		{"/../app", ID_2, SLIDE + 0x1000, SLIDE + 0x5000, SLIDE, true, false},
	};
	struct given given;

	load_copies_of(recorded, 3, &given);
	assert_null(given.err);
	assert_int_equal(images_count(given.images), 0);
	end(&given);
}

/* Recordings of earlier versions name one file, which was where it was linked. */
static void older_recordings_are_read_as_ever(void **state)
{
	struct profile profile = {0};
	const struct image_args none = {0};
	struct given given = {0};

	code_file(&file_1, &given.fd, given.path);
	/* Readers keep no descriptors but those that were opened ahead. */
	assert_null(preopen_input(given.path));
	profile.info.image = given.path;
	profile.info.build_id = (char *)ID_1;
	assert_null(load_images(&none, &profile, &given.images, &given.doubt));
	assert_named(&given, 0x1234, "f2", 0x1200);
	images_free(given.images);
	profile.info.build_id = (char *)ID_2;
	assert_null(load_images(&none, &profile, &given.images, &given.doubt));
	assert_int_equal(images_count(given.images), 0);
	end(&given);
}

static void wrong_addresses_are_refused(void **state)
{
	struct image_args args = {0};
	const char *wrong[] = {"x@0x", "x@0xg", "x@0x-1", "x@0x 1", "x@0x10000000000000000"};
	struct error *err;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		err = image_args_add(&args, wrong[i], true);
		assert_non_null(err);
		assert_int_equal(err->kind, ERR_USAGE);
		error_free(err);
	}
	assert_int_equal(args.n, 0);
	for (size_t i = 0; i < IMAGE_ARGS_MAX; i++)
		assert_null(image_args_add(&args, "x@0x1000", true));
	err = image_args_add(&args, "x@0x1000", true);
	assert_non_null(err);
	error_free(err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_goes_where_the_recording_had_it),
		cmocka_unit_test(a_file_goes_where_its_build_id_was_seen),
		cmocka_unit_test(another_build_is_refused),
		cmocka_unit_test(what_cannot_be_known_is_said),
		cmocka_unit_test(without_names_the_recorded_files_serve),
		cmocka_unit_test(copies_of_the_guests_files_go_where_the_recording_had_them),
		cmocka_unit_test(copies_that_are_not_what_ran_name_nothing),
		cmocka_unit_test(older_recordings_are_read_as_ever),
		cmocka_unit_test(wrong_addresses_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
