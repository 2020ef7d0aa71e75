#include "bind/bind.h"
const luaL_Reg mg_bind_data[] = {{NULL, NULL}};
