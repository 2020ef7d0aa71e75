/* A transfer of libcurl with the limits that all have, unless a caller changes them: http, https
 * and files only, a time to connect, and an end for transfers that stall. Ctrl-C ends it. */
#ifndef MG_DATA_HTTP_SESSION_H
#define MG_DATA_HTTP_SESSION_H

#include "core/status.h"
#include <curl/curl.h>

typedef struct http_session {
    CURL *curl;                   /* owned */
    mg_status refused;            /* the status with which a callback ended the transfer */
    char reason[CURL_ERROR_SIZE]; /* libcurl's */
} http_session;

/* Allows these protocols only, names with commas of http, https and file; redirects lead to https,
 * not to local files or unencrypted connections. */
void http_allow(CURL *curl, const char *protocols);

/* Prepares a transfer from or to the URL, which must live until it is closed. MG_INTERNAL. */
mg_status http_open(http_session *s, const char *url);

/* Runs it. MG_IO: "VERB URL: reason"; the status with which a callback refused; MG_INTERRUPTED. */
mg_status http_run(http_session *s, const char *verb, const char *url);

void http_close(http_session *s);

#endif
