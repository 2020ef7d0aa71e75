/* Documents: a list of answers that are ready to be sent. */
#include "server/httpd/httpd.h"
#include <string.h>

mg_status httpd_check_path(const char *path) {
    if (path[0] == '/' && !strpbrk(path, "?#")) return MG_OK;
    return mg_fail(MG_USAGE, "server: the path \"%s\" must begin with / and have no ? and no #",
                   path);
}

document *httpd_find_document(const mg_server *s, const char *path) {
    document *d = s->documents;
    while (d && strcmp(d->path, path) != 0) d = d->next;
    return d;
}

/* Accepts NULL. */
static void free_document(document *d) {
    if (!d) return;
    if (d->bytes) MHD_destroy_response(d->bytes);
    mg_free(d->path);
    mg_free(d);
}

static document *new_document(const char *path, const char *type, const void *bytes, size_t n) {
    document *d = mg_alloc_zero(sizeof *d);
    if (!d) return NULL;
    d->path = mg_strdup(path);
    d->bytes = httpd_new_answer(type, bytes, n);
    if (d->path && d->bytes) return d;
    if (d->path) mg_fail(MG_OOM, "server: out of memory for the document %s", path);
    free_document(d);
    return NULL;
}

/* Unlinks the document at the path. NULL: there is none. Locked. */
static document *unlink_document(mg_server *s, const char *path) {
    document **place = &s->documents;
    while (*place && strcmp((*place)->path, path) != 0) place = &(*place)->next;
    document *d = *place;
    if (d) *place = d->next;
    return d;
}

mg_status httpd_document(mg_server *s, const char *path, const char *type, const void *bytes,
                         size_t n) {
    MG_TRY(httpd_check_path(path));
    document *d = bytes ? new_document(path, type, bytes, n) : NULL;
    if (bytes && !d) return mg_error_code();
    if (!bytes) httpd_remove_log(s, path);
    pthread_mutex_lock(&s->lock);
    const bool has_log = httpd_find_log(s, path) != NULL;
    document *old = has_log ? NULL : unlink_document(s, path);
    if (d && !has_log) {
        d->next = s->documents;
        s->documents = d;
    }
    pthread_mutex_unlock(&s->lock);
    free_document(old);
    if (!has_log) return MG_OK;
    free_document(d);
    return mg_fail(MG_USAGE, "server: there is a log at %s: remove it before", path);
}

void httpd_free_documents(mg_server *s) {
    while (s->documents) {
        document *d = s->documents;
        s->documents = d->next;
        free_document(d);
    }
}
