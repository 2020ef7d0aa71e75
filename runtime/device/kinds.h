/* The kinds of devices, and the names of devices.
 *
 * A kind is built in (ref, null) or a plug-in `mgpu-<kind>.so` that exports mg_device_plugin. All
 * properties of a kind are in its mg_device_api: no code lists kinds by name. A plug-in is loaded
 * when one of its devices is needed, or when all kinds are compared; start-up loads none. */
#ifndef MG_DEVICE_KINDS_H
#define MG_DEVICE_KINDS_H

#include "device/device.h"

enum { MG_MAX_KINDS = 32 };

typedef struct mg_device_kind_entry {
    char name[MG_KIND_NAME];
    const mg_device_api *api; /* NULL: its plug-in is not there or does not load */
} mg_device_kind_entry;

/* A device's name taken apart: "/device:GPU:1/2" is kind "cuda", ordinal 1, logical 2. */
typedef struct mg_device_name {
    char kind[MG_KIND_NAME];
    int ordinal, logical;
} mg_device_name;

/* The interface of a kind, loading its plug-in. NULL, with a message that says why: it is not
 * available. */
const mg_device_api *mg_device_kind(const char *kind);
/* Writes the kind that `name` names, which may be an alias: "gpu" is the GPU kind of the highest
 * rank. MG_USAGE for an unknown kind, with a message that starts with `what` and the kind's name,
 * suggests the nearest and lists all. */
mg_status mg_device_kind_resolve(const char *name, const char *what, char kind[MG_KIND_NAME]);
/* All kinds, by falling rank; those that are not available come first. Loads every plug-in.
 * Returns their number. */
int mg_device_kinds(mg_device_kind_entry list[MG_MAX_KINDS]);
/* Whether `name` is a kind or an alias. Loads nothing. */
bool mg_device_is_kind(const char *name);
/* Takes a device's name apart: "cpu", "cpu:1", "gpu:0", "/device:GPU:0", "cuda:0/1". Kinds may be
 * spelled in capitals. MG_USAGE says what is wrong; the plug-in is loaded only for an alias or a
 * logical device. */
mg_status mg_device_name_parse(const char *text, mg_device_name *name);
/* The inverse: "cuda:0/1"; a logical device 0 is not written. */
void mg_device_name_write(const mg_device_name *name, char text[MG_DEVICE_NAME]);

#endif
