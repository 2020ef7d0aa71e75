/* The version of the library and of the program. */
#ifndef MG_CORE_VERSION_H
#define MG_CORE_VERSION_H

#define MG_VERSION "0.1.0"

#endif
