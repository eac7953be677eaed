/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <xenstore.h>

/* Where libxl keeps what it created a domain from (libxl__userdata_path). */
#define USERDATA "/var/lib/xen/userdata-d.%u.%s.libxl-json"

struct xen_store {
	struct xs_handle *xs;
};

struct xen_store *xen_store_open(void)
{
	struct xen_store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->xs = xs_open(XS_OPEN_READONLY);
	if (!store->xs) {
		free(store);
		return NULL;
	}
	return store;
}

void xen_store_close(struct xen_store *store)
{
	if (!store)
		return;
	xs_close(store->xs);
	free(store);
}

/* The caller frees what it gets; NULL if there is no such entry. */
static char *read_entry(struct xen_store *store, uint32_t domid, const char *entry)
{
	char path[64];
	unsigned len;

	if (!store)
		return NULL;
	snprintf(path, sizeof(path), "/local/domain/%u/%s", domid, entry);
	return xs_read(store->xs, XBT_NULL, path, &len);
}

void xen_guest_name(struct xen_store *store, uint32_t domid, char *name, size_t size)
{
	char *value = read_entry(store, domid, "name");

	snprintf(name, size, "%s", value ? value : "");
	free(value);
}

static void take_string(json_t *value, char *to, size_t size)
{
	const char *text = json_string_value(value);

	if (text && strlen(text) < size)
		strcpy(to, text);
}

void xen_guest_config(struct xen_store *store, uint32_t domid, char *type, size_t type_size,
		      char *image, size_t image_size)
{
	char path[128], *vm;
	const char *uuid;
	json_t *config;

	vm = read_entry(store, domid, "vm");
	if (!vm)
		return;
	uuid = strrchr(vm, '/');
	snprintf(path, sizeof(path), USERDATA, domid, uuid ? uuid + 1 : vm);
	free(vm);
	config = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
	if (!config)
		return;
	take_string(json_object_get(json_object_get(config, "c_info"), "type"), type, type_size);
	take_string(json_object_get(json_object_get(config, "b_info"), "kernel"), image,
		    image_size);
	json_decref(config);
}
