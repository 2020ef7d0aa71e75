/* MGPU_LOG=topic,topic: one line to the log sink for each event of a topic.
 *
 * Topics: dispatch, fallback, kernels, plan, warning. The sink is stderr until mg_log_set_sink().
 */
#ifndef MG_CORE_LOG_H
#define MG_CORE_LOG_H

#include <stdbool.h>

/* Whether the topic is logged: for events whose text is costly to make. */
bool mg_log_on(const char *topic);
void mg_log(const char *topic, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Lines go to `sink` with `context`; NULL restores stderr. Before other threads run. */
void mg_log_set_sink(void (*sink)(const char *line, void *context), void *context);

#endif
