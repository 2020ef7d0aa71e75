/* What launch.c and the readers of single launchers share. */
#ifndef MG_WORLD_LAUNCH_SOURCE_H
#define MG_WORLD_LAUNCH_SOURCE_H

#include "world/launch.h"

/* The value of a variable, or NULL if it is unset or empty. */
const char *mg_launch_variable(const char *name);
/* Reads a whole number from a variable. MG_USAGE: it is unset, no number, or outside of least to
 * most; the message names the variable, its value and what to do. */
mg_status mg_launch_number(const char *name, int least, int most, int *number);
/* Splits "host:port" or "[IPv6]:port" into address and port. MG_USAGE, with a message that begins
 * with `who`. */
mg_status mg_launch_address(const char *text, const char *who, mg_launch *l);
/* Sets l->address. MG_USAGE if it is too long. */
mg_status mg_launch_host(const char *host, const char *who, mg_launch *l);
/* Sets l->token, cut to its size. */
void mg_launch_token(mg_launch *l, const char *token);

/* launch_srun.c: whether this process is a task of a step, and its place. */
bool mg_launch_is_srun(const char **why);
mg_status mg_launch_srun(mg_launch *l);
/* launch_tf_config.c: whether TF_CONFIG names a cluster, and this process's place in it. */
bool mg_launch_is_tf_config(const char **why);
mg_status mg_launch_tf_config(mg_launch *l);

#endif
