#include "bind/bind.h"
const luaL_Reg mg_bind_io[] = {{NULL, NULL}};
