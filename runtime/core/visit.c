/* The flag and the numbers of visits: see visit.h. */
#include "core/visit.h"
#include <math.h>

atomic_bool mg_visit_flag;
mg_visit_notes mg_visit_noted = {.loss = NAN};
