/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Linux: mappings of a process. Its mm_struct has them in a maple tree, or before Linux 6.1 in a
 * list; a mapped file leads over its dentries and mounts to its path. Its control group has one, too.
 */

#include "threads/linux.h"

#include <string.h>

#include "base/array.h"
#include "base/intern.h"

/* Mappings that change while they are read are read again. */
#define MAP_TRIES 8

/* All members that are read at once lie within so many bytes. */
#define MEMBERS_SPAN 4096u

/* include/linux/mm.h: VM_READ and its like */
#define VM_READ	  1u
#define VM_WRITE  2u
#define VM_EXEC	  4u
#define VM_SHARED 0x80u
/* vm_pgoff counts these, whatever a page is. */
#define PAGE_BYTES 4096u

/*
 * include/linux/maple_tree.h: a node has 256 bytes, and is aligned to as many; the address of one
 * has its type in the bits below. Nothing else is a node that an mm_struct's tree has.
 */
#define MAPLE_NODE	 256u
#define MAPLE_LEAF	 1u
#define MAPLE_INNER	 3u
#define MAPLE_DEPTH_MAX	 8u
#define MAPLE_RESERVED	 4096u /* values below are no addresses (xa_is_internal) */
#define MAPLE_NODES_MAX	 GUEST_MAPPINGS_MAX
#define MAPLE_SLOTS_MOST (MAPLE_NODE / 8)

/* Directories and mounts of one path. */
#define PATH_LINKS_MAX 256
#define NAME_LEN_MAX   255u

/* Controllers of control groups. */
#define SET_STATES_MAX 32u

/* Members by the names that they have had. */
static const struct {
	const char *structure, *name, *former;
} members[LINUX_MAP_MEMBERS] = {
	[MAPS_MM] = {"task_struct", "mm", NULL},
	[MM_COUNT] = {"mm_struct", "map_count", NULL},
	[MM_ROOT] = {"mm_struct", "mm_mt.ma_root", "mmap"},
	[MM_HEAP] = {"mm_struct", "start_brk", NULL},
	[MM_HEAP_END] = {"mm_struct", "brk", NULL},
	[MM_STACK] = {"mm_struct", "start_stack", NULL},
	[MM_VDSO] = {"mm_struct", "context.vdso", NULL},
	[VMA_START] = {"vm_area_struct", "vm_start", NULL},
	[VMA_END] = {"vm_area_struct", "vm_end", NULL},
	[VMA_MM] = {"vm_area_struct", "vm_mm", NULL},
	[VMA_FLAGS] = {"vm_area_struct", "vm_flags", NULL},
	[VMA_OFFSET] = {"vm_area_struct", "vm_pgoff", NULL},
	[VMA_FILE] = {"vm_area_struct", "vm_file", NULL},
	[VMA_NEXT] = {"vm_area_struct", "vm_next", NULL},
	[FILE_MOUNT] = {"file", "f_path.mnt", "__f_path.mnt"},
	[FILE_DENTRY] = {"file", "f_path.dentry", "__f_path.dentry"},
	[DENTRY_PARENT] = {"dentry", "d_parent", NULL},
	[DENTRY_NAME] = {"dentry", "d_name.name", "__d_name.name"},
	[DENTRY_NAME_LEN] = {"dentry", "d_name.len", "__d_name.len"},
	[DENTRY_HASHED] = {"dentry", "d_hash.pprev", NULL},
	[MOUNT_MNT] = {"mount", "mnt", NULL},
	[MOUNT_PARENT] = {"mount", "mnt_parent", NULL},
	[MOUNT_POINT] = {"mount", "mnt_mountpoint", NULL},
	[MNT_ROOT] = {"mount", "mnt.mnt_root", NULL},
	[LEAF_PIVOTS] = {"maple_node", "mr64.pivot", NULL},
	[LEAF_SLOTS] = {"maple_node", "mr64.slot", NULL},
	[INNER_PIVOTS] = {"maple_node", "ma64.pivot", NULL},
	[INNER_SLOTS] = {"maple_node", "ma64.slot", NULL},
	[SET_GROUP] = {"css_set", "dfl_cgrp", NULL},
	[SET_STATES] = {"css_set", "subsys", NULL},
	[SET_BEHIND] = {"css_set", "refcount", NULL},
	[STATE_GROUP] = {"cgroup_subsys_state", "cgroup", NULL},
	[GROUP_NODE] = {"cgroup", "kn", NULL},
	[NODE_PARENT] = {"kernfs_node", "parent", "__parent"},
	[NODE_NAME] = {"kernfs_node", "name", NULL},
};

/* True for one that not all kernels have. */
static bool may_lack(size_t member)
{
	return member == MM_VDSO || member == VMA_NEXT || member >= LEAF_PIVOTS;
}

/* State of one reading of all mappings, or of a path. */
struct walk {
	const struct linux_maps *maps;
	const struct guest_memory *memory;
	struct guest_mapping_list *out;
	struct error *err; /* of a lack of memory */
	uint64_t mm;
	uint64_t value[MM_VDSO + 1]; /* of mm_struct's members, from MM_COUNT on */
	uint32_t nodes;		     /* that may still be read */
	/* The last file: mostly that of the next mapping, too. */
	uint64_t file;
	struct guest_mapping of_file; /* what it tells of its mappings */
	char *text;		      /* room for the only path; NULL: the list's */
};

/* Reads members of one structure at once, 8 bytes each, from `from` on, `n` of them. */
static bool get_members(const struct walk *walk, uint64_t va, enum linux_map_member from, size_t n,
			uint64_t *values)
{
	const uint32_t *at = &walk->maps->at[from];
	uint32_t first = at[0], last = at[0];
	uint8_t bytes[MEMBERS_SPAN];

	for (size_t i = 1; i < n; i++) {
		first = at[i] < first ? at[i] : first;
		last = at[i] > last ? at[i] : last;
	}
	if (last - first > sizeof(bytes) - 8 || !linux_is_pointer(va) ||
	    !guest_memory_get(walk->memory, va + first, bytes, last - first + 8))
		return false;
	for (size_t i = 0; i < n; i++)
		memcpy(&values[i], bytes + (at[i] - first), 8);
	return true;
}

/* A path that is made from its end on. */
struct path {
	char bytes[GUEST_PATH_MAX];
	size_t from; /* it begins here */
};

#define CUT "..."

/* False: it does not fit, and has begun with CUT since. */
static bool put_before(struct path *path, const char *text, size_t len)
{
	const bool fits = len <= path->from - strlen(CUT);

	if (!fits) {
		text = CUT;
		len = strlen(CUT);
	}
	path->from -= len;
	memcpy(path->bytes + path->from, text, len);
	return fits;
}

/* ... the name of a dentry; *more: whether it fits. */
static bool put_name(const struct walk *walk, const uint64_t *dentry, struct path *path, bool *more)
{
	const uint64_t name = dentry[DENTRY_NAME - DENTRY_PARENT];
	const uint32_t said = (uint32_t)dentry[DENTRY_NAME_LEN - DENTRY_PARENT];
	char bytes[1 + NAME_LEN_MAX];
	size_t len;

	bytes[0] = '/';
	if (!said || said > NAME_LEN_MAX || !(name >> 63) ||
	    !guest_memory_get(walk->memory, name, bytes + 1, said))
		return false;
	len = strnlen(bytes + 1, said);
	*more = put_before(path, bytes, 1 + len);
	return len;
}

/* Place that a path has come to: a dentry, and the mount that it is in. */
struct path_place {
	uint64_t dentry;
	uint64_t mount[MNT_ROOT - MOUNT_PARENT + 1]; /* members, from MOUNT_PARENT on */
	uint64_t mount_at;
};

static bool enter_mount(const struct walk *walk, uint64_t mount, struct path_place *at)
{
	at->mount_at = mount;
	return get_members(walk, mount, MOUNT_PARENT, MNT_ROOT - MOUNT_PARENT + 1, at->mount);
}

/* One step towards the root; *more: false once it has come there. */
static bool step_up(const struct walk *walk, struct path_place *at, struct path *path, bool *more)
{
	uint64_t dentry[DENTRY_HASHED - DENTRY_PARENT + 1];

	if (at->dentry == at->mount[MNT_ROOT - MOUNT_PARENT]) {
		*more = at->mount[0] != at->mount_at;
		at->dentry = at->mount[MOUNT_POINT - MOUNT_PARENT];
		return !*more || enter_mount(walk, at->mount[0], at);
	}
	if (!get_members(walk, at->dentry, DENTRY_PARENT, DENTRY_HASHED - DENTRY_PARENT + 1,
			 dentry) ||
	    !put_name(walk, dentry, path, more))
		return false;
	/* A file that is in no directory, as a memfd. */
	*more = *more && dentry[0] != at->dentry;
	at->dentry = dentry[0];
	return true;
}

/* A file that was removed is in no list of its directory's names. */
static bool is_deleted(const struct walk *walk, uint64_t at, bool *deleted)
{
	uint64_t dentry[DENTRY_HASHED - DENTRY_PARENT + 1];

	if (!get_members(walk, at, DENTRY_PARENT, DENTRY_HASHED - DENTRY_PARENT + 1, dentry))
		return false;
	*deleted = !dentry[DENTRY_HASHED - DENTRY_PARENT] && dentry[0] != at;
	return true;
}

static bool keep_text(struct walk *walk, const char *text, size_t len, const char **out)
{
	if (!walk->text) {
		walk->err = pool_intern(walk->out->paths, text, len, out);
		return !walk->err;
	}
	memcpy(walk->text, text, len);
	walk->text[len] = '\0';
	*out = walk->text;
	return true;
}

static bool find_path(struct walk *walk, uint64_t file)
{
	struct path path = {.from = sizeof(path.bytes)};
	uint64_t from[FILE_DENTRY - FILE_MOUNT + 1];
	struct path_place at;
	bool more = true;

	if (!get_members(walk, file, FILE_MOUNT, FILE_DENTRY - FILE_MOUNT + 1, from) ||
	    !enter_mount(walk, from[0] - walk->maps->at[MOUNT_MNT], &at))
		return false;
	at.dentry = walk->of_file.file = from[FILE_DENTRY - FILE_MOUNT];
	if (!is_deleted(walk, at.dentry, &walk->of_file.deleted))
		return false;
	for (unsigned i = 0; more; i++)
		if (i == PATH_LINKS_MAX || !step_up(walk, &at, &path, &more))
			return false;
	if (!keep_text(walk, path.bytes + path.from, sizeof(path.bytes) - path.from,
		       &walk->of_file.path))
		return false;
	walk->file = file;
	return true;
}

/* Names what is no file's, as /proc does. */
static bool find_name(struct walk *walk, struct guest_mapping *mapping)
{
	const uint64_t *mm = walk->value;
	const char *name = NULL;

	if (walk->maps->at[MM_VDSO] && mapping->start == mm[MM_VDSO])
		name = "[vdso]";
	else if (mapping->start < mm[MM_HEAP_END] && mapping->end > mm[MM_HEAP])
		name = "[heap]";
	else if (mapping->start <= mm[MM_STACK] && mm[MM_STACK] < mapping->end)
		name = "[stack]";
	return !name || keep_text(walk, name, strlen(name), &mapping->path);
}

/* Adds the mapping of a vm_area_struct; *next is what the list leads to. */
static bool add(struct walk *walk, uint64_t vma, uint64_t *next)
{
	struct guest_mapping_list *out = walk->out;
	uint64_t value[VMA_NEXT + 1 - VMA_START];
	struct guest_mapping mapping;
	uint64_t flags, file;

	if (out->n == GUEST_MAPPINGS_MAX ||
	    !get_members(walk, vma, VMA_START,
			 walk->maps->tree ? VMA_NEXT - VMA_START : VMA_NEXT + 1 - VMA_START, value))
		return false;
	flags = value[VMA_FLAGS - VMA_START];
	file = value[VMA_FILE - VMA_START];
	mapping = (struct guest_mapping){.start = value[0],
					 .end = value[VMA_END - VMA_START],
					 .readable = flags & VM_READ,
					 .writable = flags & VM_WRITE,
					 .executable = flags & VM_EXEC,
					 .shared = flags & VM_SHARED};
	if (value[VMA_MM - VMA_START] != walk->mm || mapping.start >= mapping.end ||
	    mapping.end >> 63 || (out->n && mapping.start < out->at[out->n - 1].end) ||
	    (file && file != walk->file && !find_path(walk, file)))
		return false;
	if (file) {
		mapping.offset = value[VMA_OFFSET - VMA_START] * PAGE_BYTES;
		mapping.path = walk->of_file.path;
		mapping.file = walk->of_file.file;
		mapping.deleted = walk->of_file.deleted;
	} else if (!find_name(walk, &mapping)) {
		return false;
	}
	walk->err = ARRAY_RESERVE(&out->at, &out->room, out->n + 1);
	if (walk->err)
		return false;
	out->at[out->n++] = mapping;
	*next = walk->maps->tree ? 0 : value[VMA_NEXT - VMA_START];
	return true;
}

/* Adds what an entry of a leaf has, which must be all of its range. */
static bool add_entry(struct walk *walk, uint64_t entry, uint64_t from, uint64_t last)
{
	const struct guest_mapping *added;
	uint64_t unused;

	if (entry < MAPLE_RESERVED)
		return true;
	if (!add(walk, entry, &unused))
		return false;
	added = &walk->out->at[walk->out->n - 1];
	return added->start == from && added->end - 1 == last;
}

/* A node of the tree: pivots, each the last address of a slot, and one slot more than those. */
struct maple_node {
	uint64_t words[MAPLE_SLOTS_MOST];
	size_t pivots, slots; /* begin at these words */
	size_t n;	      /* pivots */
	bool leaf;
};

static bool read_node(const struct walk *walk, uint64_t node, struct maple_node *out)
{
	const unsigned type = node >> 3 & 15;
	const uint32_t *at = &walk->maps->at[type == MAPLE_LEAF ? LEAF_PIVOTS : INNER_PIVOTS];

	node &= ~(uint64_t)(MAPLE_NODE - 1);
	out->leaf = type == MAPLE_LEAF;
	out->pivots = at[0] / 8;
	out->slots = at[1] / 8;
	out->n = out->slots - out->pivots;
	return (out->leaf || type == MAPLE_INNER) && linux_is_pointer(node) &&
	       guest_memory_get(walk->memory, node, out->words, sizeof(out->words));
}

/* The last address of a slot, in a node whose own is `last`: no more slots are in use behind the one that ends there. */
static uint64_t slot_end(const struct maple_node *node, size_t i, uint64_t last)
{
	const uint64_t pivot = i < node->n ? node->words[node->pivots + i] : last;

	return pivot || !i ? pivot : last;
}

/* Walks the node that has `from` to `last`, in the order of its slots. */
static bool walk_node(struct walk *walk, uint64_t node, uint64_t from, uint64_t last,
		      unsigned depth)
{
	struct maple_node at;

	if (depth == MAPLE_DEPTH_MAX || !walk->nodes || !read_node(walk, node, &at))
		return false;
	walk->nodes--;
	for (size_t i = 0; i <= at.n; i++) {
		const uint64_t slot = at.words[at.slots + i], to = slot_end(&at, i, last);

		if (to < from || to > last ||
		    !(at.leaf ? add_entry(walk, slot, from, to)
			      : walk_node(walk, slot, from, to, depth + 1)))
			return false;
		if (to == last)
			break;
		from = to + 1;
	}
	return true;
}

/* A tree without a node is empty: it cannot have the lowest address alone. */
static bool walk_tree(struct walk *walk)
{
	const uint64_t root = walk->value[MM_ROOT];

	walk->nodes = MAPLE_NODES_MAX;
	return !root || walk_node(walk, root, 0, UINT64_MAX, 0);
}

static bool walk_list(struct walk *walk)
{
	uint64_t vma = walk->value[MM_ROOT];

	while (vma)
		if (!add(walk, vma, &vma))
			return false;
	return true;
}

static bool get_mm(const struct walk *walk, uint64_t *value)
{
	const size_t n = walk->maps->at[MM_VDSO] ? MM_VDSO - MM_COUNT + 1 : MM_VDSO - MM_COUNT;

	return get_members(walk, walk->mm, MM_COUNT, n, value + MM_COUNT);
}

/* Reads all once. True: they were the thread's, and had not changed when they had been read. */
static bool read_once(const struct linux_threads *own, struct walk *walk,
		      const struct guest_thread *thread)
{
	const uint64_t at = thread->at + own->maps.at[MAPS_MM];
	uint64_t after[MM_VDSO + 1], mm;
	struct guest_thread now;

	walk->out->n = 0;
	walk->file = 0;
	if (!guest_memory_get(walk->memory, at, &walk->mm, 8) ||
	    !linux_read_again(own, walk->memory, thread, &now))
		return false;
	if (!walk->mm || now.kernel)
		return true;
	return get_mm(walk, walk->value) && (own->maps.tree ? walk_tree(walk) : walk_list(walk)) &&
	       walk->out->n == (uint32_t)walk->value[MM_COUNT] && get_mm(walk, after) &&
	       after[MM_ROOT] == walk->value[MM_ROOT] &&
	       (uint32_t)after[MM_COUNT] == (uint32_t)walk->value[MM_COUNT] &&
	       guest_memory_get(walk->memory, at, &mm, 8) && mm == walk->mm &&
	       linux_read_again(own, walk->memory, thread, &now);
}

struct error *linux_maps_read(const void *state, const struct guest_memory *memory,
			      const struct guest_thread *thread, struct guest_mapping_list *out)
{
	const struct linux_threads *own = state;
	struct walk walk = {.maps = &own->maps, .memory = memory, .out = out};

	if (!own->maps.known) {
		out->trouble = "the types of the guest's Linux do not tell where mappings are";
		return NULL;
	}
	for (unsigned i = 0; i < MAP_TRIES && !walk.err && !budget_over(memory->budget); i++)
		if (read_once(own, &walk, thread))
			return NULL;
	out->n = 0;
	out->trouble = "the process ended or changed its mappings all the time while they were "
		       "read, or they lead nowhere";
	return walk.err;
}

/* Adds the mapping that holds `va` alone. */
static bool find_in_list(struct walk *walk, uint64_t va)
{
	uint64_t vma = walk->value[MM_ROOT];

	for (uint32_t i = 0; vma && i < GUEST_MAPPINGS_MAX; i++) {
		uint64_t range[VMA_END - VMA_START + 1];

		if (!get_members(walk, vma, VMA_START, VMA_END - VMA_START + 1, range))
			return false;
		if (va < range[1])
			return va >= range[0] && add(walk, vma, &vma);
		if (!guest_memory_get(walk->memory, vma + walk->maps->at[VMA_NEXT], &vma, 8))
			return false;
	}
	return false;
}

static bool find_in_tree(struct walk *walk, uint64_t va)
{
	uint64_t node = walk->value[MM_ROOT], from = 0, last = UINT64_MAX;
	struct maple_node at;

	for (unsigned depth = 0; depth < MAPLE_DEPTH_MAX; depth++) {
		size_t i = 0;

		if (!read_node(walk, node, &at))
			return false;
		while (i < at.n && slot_end(&at, i, last) < va)
			from = slot_end(&at, i++, last) + 1;
		last = slot_end(&at, i, last);
		if (va < from || va > last)
			return false;
		node = at.words[at.slots + i];
		if (at.leaf)
			return add_entry(walk, node, from, last);
	}
	return false;
}

bool linux_maps_place(const void *state, const struct guest_memory *memory,
		      const struct guest_thread *thread, uint64_t va, struct guest_place *out)
{
	const struct linux_threads *own = state;
	struct guest_mapping_list list = {.at = &out->mapping, .room = 1};
	struct walk walk = {.maps = &own->maps, .memory = memory, .out = &list, .text = out->path};
	struct guest_thread now;

	return own->maps.known && own->saved.entered &&
	       linux_get_pointer(memory, thread->at + own->maps.at[MAPS_MM], &walk.mm) &&
	       linux_get_pointer(memory, walk.mm + own->saved.pgd, &out->tables) &&
	       get_mm(&walk, walk.value) &&
	       (own->maps.tree ? find_in_tree(&walk, va) : find_in_list(&walk, va)) && list.n &&
	       linux_read_again(own, memory, thread, &now) && !now.kernel;
}

/* Puts the path of a control group in its hierarchy, whose root has no parent: that path is empty. */
static bool put_group(const struct walk *walk, uint64_t group, struct path *path)
{
	const uint32_t *at = walk->maps->at;
	uint64_t node, of[NODE_NAME - NODE_PARENT + 1];
	char name[1 + NAME_LEN_MAX] = "/";

	if (!linux_get_pointer(walk->memory, group + at[GROUP_NODE], &node))
		return false;
	for (unsigned i = 0; i < PATH_LINKS_MAX; i++) {
		size_t len, got;

		if (!get_members(walk, node, NODE_PARENT, NODE_NAME - NODE_PARENT + 1, of))
			return false;
		if (!of[0])
			return true;
		got = guest_memory_read(walk->memory, of[NODE_NAME - NODE_PARENT], name + 1,
					NAME_LEN_MAX);
		len = strnlen(name + 1, got);
		if (!len || (len == got && got < NAME_LEN_MAX))
			return false;
		if (!put_before(path, name, 1 + len))
			return true;
		node = of[0];
	}
	return false;
}

/*
 * Puts the path of a task's group: that of cgroup v2 or, where that is the root, the first of a
 * controller's that is not, as of cgroup v1. Those of v2 are the same for all controllers.
 */
static bool put_container(const struct walk *walk, uint64_t set, struct path *path)
{
	const uint32_t *at = walk->maps->at;
	const uint32_t behind = at[SET_BEHIND] - at[SET_STATES];
	uint64_t unified, group, state;

	if (!linux_get_pointer(walk->memory, set + at[SET_GROUP], &unified) ||
	    !put_group(walk, unified, path))
		return false;
	for (uint32_t i = 0; i < behind && path->from == sizeof(path->bytes); i += 8)
		if (linux_get_pointer(walk->memory, set + at[SET_STATES] + i, &state) &&
		    linux_get_pointer(walk->memory, state + at[STATE_GROUP], &group) &&
		    group != unified && !put_group(walk, group, path))
			return false;
	return true;
}

/* A task that is the same one, in the same groups, after the path was read had it before. */
bool linux_maps_container(const void *state, const struct guest_memory *memory,
			  const struct guest_thread *thread, char container[GUEST_PATH_MAX + 1])
{
	const struct linux_threads *own = state;
	const struct walk walk = {.maps = &own->maps, .memory = memory};
	struct path path = {.from = sizeof(path.bytes)};
	struct guest_thread now;
	size_t len;

	if (!own->maps.groups || !linux_is_pointer(thread->group) ||
	    !put_container(&walk, thread->group, &path) ||
	    !linux_read_again(own, memory, thread, &now) || now.group != thread->group)
		return false;
	len = sizeof(path.bytes) - path.from;
	memcpy(container, path.bytes + path.from, len);
	if (!len)
		container[len++] = '/';
	container[len] = '\0';
	return true;
}

/* All slots and pivots, of which there is one less, are in the node. */
static bool is_node(const uint32_t *pivots)
{
	return pivots[0] % 8 == 0 && pivots[1] % 8 == 0 && pivots[0] < pivots[1] &&
	       2 * pivots[1] - pivots[0] + 8 <= MAPLE_NODE;
}

void linux_maps_find(const struct btf *btf, struct linux_maps *maps)
{
	maps->known = maps->groups = true;
	for (size_t i = 0; i < LINUX_MAP_MEMBERS; i++) {
		const char *structure = members[i].structure, *former = members[i].former;
		const bool found = (btf_offset(btf, structure, members[i].name, &maps->at[i]) ||
				    (former && btf_offset(btf, structure, former, &maps->at[i]))) &&
				   maps->at[i] < LINUX_TASK_MAX;

		if (!found)
			maps->at[i] = 0;
		maps->known &= found || may_lack(i);
		maps->groups &= found || i < SET_GROUP;
	}
	maps->groups &= maps->at[SET_BEHIND] - maps->at[SET_STATES] <= SET_STATES_MAX * 8;
	maps->tree = is_node(&maps->at[LEAF_PIVOTS]) && is_node(&maps->at[INNER_PIVOTS]);
	maps->known &= maps->tree || maps->at[VMA_NEXT];
}
