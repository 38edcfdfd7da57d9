/*
** Stands before every C file of LuaJIT (build.rs): what the library gets from the shim without a change of its sources.
**
** Functions in C look at no hook. Those that may run long for a short input are the pattern matching of strings, `table.sort`
** without a comparison of its own, `table.insert` at a place far below the first, and the search for a fixed string.
*/
#ifndef __ASSEMBLER__
#include "lj_def.h"

/* Set by the watchdog's signal while the running slice is over its time budget; each thread has its own. */
extern _Thread_local volatile int lycosa_late __attribute__((tls_model("initial-exec")));
/* Raises the watchdog's error if the slice is really over its budget; returns `value` otherwise. */
extern int lycosa_poll(int value);

/* Pattern matching compares its depth with this limit at every step, the parser does at every level. */
#undef LJ_MAX_XLEVEL
#define LJ_MAX_XLEVEL (__builtin_expect(!lycosa_late, 1) ? 200 : lycosa_poll(200))

/* The shim has other definitions of these, which are strong and therefore taken by everyone. */
struct GCtab;
union TValue;
extern __attribute__((weak)) union TValue *lj_tab_setinth(lua_State *L, struct GCtab *t, int32_t key);
extern __attribute__((weak)) int lua_lessthan(lua_State *L, int first, int second);
extern __attribute__((weak)) const char *lj_str_find(const char *s, const char *f, unsigned int size, unsigned int length);
#endif
