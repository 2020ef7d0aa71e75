/* TF_CONFIG, TensorFlow's description of a cluster, in JSON:
 *
 *     {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:2222"]},
 *      "task": {"type": "worker", "index": 0}}
 *
 * Ranks are numbered in the order of ROLES, so rank 0 is the chief, or the first worker where there
 * is no chief. Its entry is the address of the hub; the ports of all others are not used. */
#include "world/launch_source.h"
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "master" is an older name of the chief. */
static const char *const ROLES[] = {"chief", "master", "worker", "ps", "evaluator"};
enum { N_ROLES = sizeof ROLES / sizeof *ROLES };

static const char WHO[] = "TF_CONFIG";

static json_t *parse(json_error_t *error) {
    const char *text = mg_launch_variable(WHO);
    return text ? json_loads(text, JSON_REJECT_DUPLICATES, error) : NULL;
}

/* Platforms set TF_CONFIG without a cluster, or with an empty one, for a process that is alone. A
 * text that is no JSON counts: it is an error, not a reason to run alone. */
bool mg_launch_is_tf_config(const char **why) {
    json_error_t error;
    if (!mg_launch_variable(WHO)) return false;
    json_t *config = parse(&error);
    const json_t *cluster = json_object_get(config, "cluster");
    const bool alone = json_is_object(config) &&
                       (!cluster || (json_is_object(cluster) && json_object_size(cluster) == 0));
    json_decref(config);
    if (alone) *why = "TF_CONFIG names no cluster";
    return !alone;
}

/* The index of this process among those of its role. */
static mg_status read_index(const json_t *task, int *index) {
    const json_t *value = json_object_get(task, "index");
    const char *text = json_string_value(value); /* some platforms write it as a string */
    char *end = NULL;
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (!value) number = 0;
    if (text && *text >= '0' && *text <= '9') number = strtol(text, &end, 10);
    if (number < 0 || number > INT_MAX || (end && *end))
        return mg_fail(MG_USAGE, "TF_CONFIG: task.index must be a whole number from 0 on");
    *index = (int)number;
    return MG_OK;
}

/* The entries of a role, *n of them; 0 if the cluster has no such role. */
static mg_status read_role(const json_t *cluster, const char *role, const json_t **entries,
                           int *n) {
    *entries = json_object_get(cluster, role);
    *n = (int)json_array_size(*entries);
    if (*entries && !json_is_array(*entries))
        return mg_fail(MG_USAGE,
                       "TF_CONFIG: cluster.%s must be a list of addresses: [\"host:port\"]", role);
    for (int i = 0; i < *n; i++)
        if (!json_is_string(json_array_get(*entries, (size_t)i)))
            return mg_fail(MG_USAGE, "TF_CONFIG: cluster.%s[%d] must be a text \"host:port\"", role,
                           i);
    return MG_OK;
}

static mg_status check_roles(json_t *cluster) {
    const char *role;
    json_t *entries;
    json_object_foreach(cluster, role, entries) {
        bool known = false;
        for (int i = 0; i < N_ROLES; i++) known |= strcmp(role, ROLES[i]) == 0;
        if (!known)
            return mg_fail(MG_USAGE, "TF_CONFIG: cluster has an unknown role \"%s\"%s", role,
                           mg_name_hint(role, ROLES, N_ROLES, "role"));
    }
    return MG_OK;
}

/* Numbers all entries, and finds this process's. */
static mg_status find_place(json_t *cluster, const char *role, int index, mg_launch *l) {
    const json_t *entries;
    int n, place = -1;
    l->size = 0;
    for (int i = 0; i < N_ROLES; i++) {
        MG_TRY(read_role(cluster, ROLES[i], &entries, &n));
        const bool mine = strcmp(role, ROLES[i]) == 0;
        if (mine && index >= n)
            return mg_fail(MG_USAGE,
                           "TF_CONFIG: the task is %s number %d, but cluster.%s has %d %s", role,
                           index, role, n, n == 1 ? "entry" : "entries");
        if (mine) place = l->size + index;
        if (n > 0 && l->size == 0) {
            if (i >= 3)
                return mg_fail(MG_USAGE, "TF_CONFIG: cluster has neither a chief nor a worker");
            char who[64];
            snprintf(who, sizeof who, "TF_CONFIG: cluster.%s[0]", ROLES[i]);
            const json_t *first = json_array_get(entries, 0);
            MG_TRY(mg_launch_address(json_string_value(first), who, l));
        }
        l->size += n;
    }
    l->rank = place;
    return MG_OK;
}

static mg_status read_config(json_t *config, mg_launch *l) {
    json_t *cluster = json_object_get(config, "cluster");
    const json_t *task = json_object_get(config, "task");
    const char *role = json_string_value(json_object_get(task, "type"));
    int index = 0;
    if (!json_is_object(cluster))
        return mg_fail(MG_USAGE,
                       "TF_CONFIG: \"cluster\" must be an object with lists of addresses, "
                       "as {\"worker\": [\"host:port\"]}");
    if (!role)
        return mg_fail(MG_USAGE, "TF_CONFIG: \"task\" must tell this process's place, as "
                                 "{\"type\": \"worker\", \"index\": 0}");
    MG_TRY(check_roles(cluster));
    MG_TRY(read_index(task, &index));
    bool known = false;
    for (int i = 0; i < N_ROLES; i++) known |= strcmp(role, ROLES[i]) == 0;
    if (!known)
        return mg_fail(MG_USAGE, "TF_CONFIG: task.type \"%s\" is unknown%s", role,
                       mg_name_hint(role, ROLES, N_ROLES, "role"));
    MG_TRY(find_place(cluster, role, index, l));
    snprintf(l->role, sizeof l->role, "%s", strcmp(role, "master") == 0 ? "chief" : role);
    snprintf(l->seen, sizeof l->seen, "TF_CONFIG: %s %d, rank %d of %d", role, index, l->rank,
             l->size);
    return MG_OK;
}

mg_status mg_launch_tf_config(mg_launch *l) {
    json_error_t error = {.line = 0};
    if (!mg_launch_variable(WHO)) return mg_fail(MG_USAGE, "TF_CONFIG is not set");
    json_t *config = parse(&error);
    if (!config)
        return mg_fail(MG_USAGE, "TF_CONFIG: the JSON is damaged at line %d, column %d: %s",
                       error.line, error.column, error.text);
    const mg_status status = read_config(config, l);
    json_decref(config);
    return status;
}
