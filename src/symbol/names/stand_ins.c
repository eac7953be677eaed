/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/stand_ins.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"

struct texts {
	const char *name, *file;
};

struct stand_ins {
	struct pool *pool;
	struct ids *ids; /* by the pool's pointers */
	struct texts *at;
	size_t room;
};

struct error *stand_ins_new(struct stand_ins **out)
{
	struct stand_ins *all = calloc(1, sizeof(*all));
	struct error *err;

	if (!all)
		return error_no_memory();
	err = pool_new(&all->pool);
	if (!err)
		err = ids_new(&all->ids);
	if (err)
		stand_ins_free(all);
	else
		*out = all;
	return err;
}

void stand_ins_free(struct stand_ins *all)
{
	if (!all)
		return;
	pool_free(all->pool);
	ids_free(all->ids);
	free(all->at);
	free(all);
}

struct error *stand_ins_function(struct stand_ins *all, const char *name, const char *file,
				 uint32_t *number)
{
	struct texts texts;
	bool added;
	struct error *err = pool_intern(all->pool, name, strlen(name), &texts.name);

	*number = STAND_IN_NO_FUNCTION;
	if (!err)
		err = pool_intern(all->pool, file, strlen(file), &texts.file);
	if (err)
		return err;
	if (ids_find(all->ids, (uintptr_t)texts.name, (uintptr_t)texts.file, number) ||
	    ids_count(all->ids) == STAND_IN_FUNCTIONS)
		return NULL;
	err = ARRAY_RESERVE(&all->at, &all->room, ids_count(all->ids) + (size_t)1);
	if (!err)
		err = ids_get(all->ids, (uintptr_t)texts.name, (uintptr_t)texts.file, number,
			      &added);
	if (!err)
		all->at[*number] = texts;
	return err;
}

bool stand_ins_find(const struct stand_ins *all, uint64_t addr, struct stand_in *out)
{
	const uint64_t number = (addr - STAND_IN_ADDR) / STAND_IN_LINES;

	if (!all || addr < STAND_IN_ADDR || number >= ids_count(all->ids))
		return false;
	*out = (struct stand_in){.name = all->at[number].name,
				 .file = all->at[number].file,
				 .line = (uint32_t)(addr % STAND_IN_LINES),
				 .start = addr - addr % STAND_IN_LINES};
	return true;
}
