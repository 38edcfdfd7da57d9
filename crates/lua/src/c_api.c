/*
** What Tarantool adds to the C API of Lua for modules in C (its header module.h): numbers of 64 bits, C data, calls whose error
** is kept. No code of the server calls these functions; the binary exports them (crates/lycosa/src/exported.list).
*/
#define LUA_CORE
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "lua.h"
#include "lauxlib.h"
#include "lj_obj.h"
#include "lj_gc.h"
#include "lj_err.h"
#include "lj_state.h"
#include "lj_ctype.h"
#include "lj_cdata.h"

void lycosa_push_int64(lua_State *L, int64_t value);
void lycosa_push_uint64(lua_State *L, uint64_t value);

/* The main coroutine of this thread, for luaT_state. */
static _Thread_local lua_State *main_state;
/* Its address is the key of the last error in the registry. */
static const char last_error;

/* A state begins to serve modules in C. */
void lycosa_open_c_api(lua_State *L)
{
  main_state = mainthread(G(L));
}

LUA_API lua_State *luaT_state(void)
{
  return main_state;
}

/* -- C data -- */

static CTState *types_of(lua_State *L)
{
  CTState *cts = ctype_ctsG(G(L));
  if (cts == NULL) luaL_error(L, "C data without the module ffi");
  cts->L = L;
  return cts;
}

/* Pushes a function of the module ffi. */
static void push_ffi(lua_State *L, const char *name)
{
  luaL_findtable(L, LUA_REGISTRYINDEX, "_LOADED", 16);
  lua_getfield(L, -1, "ffi");
  lua_getfield(L, -1, name);
  lua_replace(L, -3);
  lua_pop(L, 1);
}

LUA_API int luaL_cdef(lua_State *L, const char *text)
{
  push_ffi(L, "cdef");
  lua_pushstring(L, text);
  return lua_pcall(L, 1, 0, 0);
}

LUA_API uint32_t luaL_ctypeid(lua_State *L, const char *name)
{
  CTypeID id;
  push_ffi(L, "typeof");
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
  id = *(CTypeID *)cdataptr(cdataV(L->top-1));
  lua_pop(L, 1);
  return id;
}

LUA_API void *luaL_pushcdata(lua_State *L, uint32_t id)
{
  CTState *cts = types_of(L);
  CTSize size;
  CTInfo info = lj_ctype_info(cts, id, &size);
  GCcdata *cd;
  if (size == CTSIZE_INVALID) luaL_error(L, "C data of a type without a size (%d)", (int)id);
  lj_gc_check(L);
  cd = ctype_align(info) > CT_MEMALIGN ? lj_cdata_newv(L, id, size, ctype_align(info)) : lj_cdata_new(cts, id, size);
  setcdataV(L, L->top, cd);
  incr_top(L);
  return cdataptr(cd);
}

static TValue *value_at(lua_State *L, int index)
{
  TValue *o = index > 0 ? L->base + index - 1 : L->top + index;
  return index != 0 && index > LUA_REGISTRYINDEX && o >= L->base && o < L->top ? o : NULL;
}

LUA_API void *luaL_checkcdata(lua_State *L, int index, uint32_t *id)
{
  TValue *o = value_at(L, index);
  if (o == NULL || !tviscdata(o)) {
    luaL_error(L, "expected cdata as %d argument", index);
    return NULL;
  }
  *id = cdataV(o)->ctypeid;
  return cdataptr(cdataV(o));
}

LUA_API void luaL_setcdatagc(lua_State *L, int index)
{
  TValue *o = value_at(L, index);
  TValue *function = L->top-1;
  if (o == NULL || !tviscdata(o)) luaL_error(L, "expected cdata as %d argument", index);
  types_of(L);
  lj_cdata_setfin(L, cdataV(o), gcval(function), itype(function));
  lua_pop(L, 1);
}

LUA_API int luaL_iscallable(lua_State *L, int index)
{
  int is_callable = lua_isfunction(L, index);
  if (!is_callable && luaL_getmetafield(L, index, "__call")) {
    is_callable = lua_isfunction(L, -1);
    lua_pop(L, 1);
  }
  return is_callable;
}

/* -- Numbers of 64 bits -- */

/* Up to this size a number is one of Lua. */
#define LUA_NUMBERS 99999999999999

LUA_API void luaL_pushuint64(lua_State *L, uint64_t value)
{
  if (value <= LUA_NUMBERS) lua_pushnumber(L, (double)value);
  else lycosa_push_uint64(L, value);
}

LUA_API void luaL_pushint64(lua_State *L, int64_t value)
{
  if (value >= -LUA_NUMBERS && value <= LUA_NUMBERS) lua_pushnumber(L, (double)value);
  else lycosa_push_int64(L, value);
}

/* A number of C or of Lua, or a text that begins with one; 0 if it is none. `bits` are those of either sign. */
static int integer_at(lua_State *L, int index, int is_unsigned, uint64_t *bits)
{
  TValue *o = value_at(L, index);
  *bits = 0;
  if (o == NULL) return 0;
  if (tviscdata(o)) {
    CTState *cts = types_of(L);
    GCcdata *cd = cdataV(o);
    CType *ct = ctype_raw(cts, cd->ctypeid);
    void *p = cdataptr(cd);
    if (ctype_isref(ct->info)) {
      p = *(void **)p;
      ct = ctype_rawchild(cts, ct);
    }
    while (ctype_isenum(ct->info)) ct = ctype_child(cts, ct);
    if (!ctype_isinteger(ct->info)) return 0;
    switch (ct->size | (ct->info & CTF_UNSIGNED ? 256 : 0)) {
    case 1: *bits = (uint64_t)(int64_t)*(int8_t *)p; return 1;
    case 2: *bits = (uint64_t)(int64_t)*(int16_t *)p; return 1;
    case 4: *bits = (uint64_t)(int64_t)*(int32_t *)p; return 1;
    case 256 | 1: *bits = *(uint8_t *)p; return 1;
    case 256 | 2: *bits = *(uint16_t *)p; return 1;
    case 256 | 4: *bits = *(uint32_t *)p; return 1;
    case 8: case 256 | 8: *bits = *(uint64_t *)p; return 1;
    default: return 0;
    }
  }
  if (tvisstr(o)) {
    const char *text = strVdata(o);
    char *end = (char *)text;
    errno = 0;
    *bits = is_unsigned ? strtoull(text, &end, 10) : (uint64_t)strtoll(text, &end, 10);
    if (errno == 0 && end != text) return 1;
    *bits = 0;
    return 0;
  }
  if (tvisnumber(o)) {
    double number = lua_tonumber(L, index);
    if (!(number > -9223372036854775808.0 && number < 18446744073709551616.0)) return 0;
    *bits = number < 9223372036854775808.0 ? (uint64_t)(int64_t)number : (uint64_t)number;
    return 1;
  }
  return 0;
}

LUA_API uint64_t luaL_touint64(lua_State *L, int index)
{
  uint64_t bits;
  integer_at(L, index, 1, &bits);
  return bits;
}

LUA_API int64_t luaL_toint64(lua_State *L, int index)
{
  uint64_t bits;
  integer_at(L, index, 0, &bits);
  return (int64_t)bits;
}

LUA_API uint64_t luaL_checkuint64(lua_State *L, int index)
{
  uint64_t bits;
  if (!integer_at(L, index, 1, &bits)) luaL_error(L, "expected uint64_t as %d argument", index);
  return bits;
}

LUA_API int64_t luaL_checkint64(lua_State *L, int index)
{
  uint64_t bits;
  if (!integer_at(L, index, 0, &bits)) luaL_error(L, "expected int64_t as %d argument", index);
  return (int64_t)bits;
}

/* -- Calls whose error is kept -- */

/* Takes the error from the stack. */
static int keep_error(lua_State *L)
{
  lua_pushlightuserdata(L, (void *)&last_error);
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return -1;
}

LUA_API int luaT_call(lua_State *L, int arguments, int results)
{
  return lua_pcall(L, arguments, results, 0) == 0 ? 0 : keep_error(L);
}

LUA_API int luaT_cpcall(lua_State *L, lua_CFunction function, void *data)
{
  return lua_cpcall(L, function, data) == 0 ? 0 : keep_error(L);
}

/* Raises the error of the last luaT_call or luaT_cpcall. */
LUA_API int luaT_error(lua_State *L)
{
  lua_pushlightuserdata(L, (void *)&last_error);
  lua_rawget(L, LUA_REGISTRYINDEX);
  return lua_error(L);
}

/* -- Addresses, for programs that call the C library with the module ffi -- */

/* An address of numbers, or the path of a Unix socket behind the host `unix/`: 0, or -1 with errno. */
LUA_API int lbox_socket_local_resolve(const char *host, const char *port, struct sockaddr *address, socklen_t *length)
{
  struct sockaddr_un *local = (struct sockaddr_un *)address;
  struct sockaddr_in *v4 = (struct sockaddr_in *)address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
  struct in_addr number4;
  struct in6_addr number6;
  if (strcmp(host, "unix/") == 0) {
    if (*length < sizeof(*local) || strlen(port) >= sizeof(local->sun_path)) { errno = ENOBUFS; return -1; }
    memset(local, 0, sizeof(*local));
    local->sun_family = AF_UNIX;
    memcpy(local->sun_path, port, strlen(port));
    *length = sizeof(*local);
    return 0;
  }
  if (inet_pton(AF_INET, host, &number4) == 1) {
    if (*length < sizeof(*v4)) { errno = ENOBUFS; return -1; }
    memset(v4, 0, sizeof(*v4));
    v4->sin_family = AF_INET;
    v4->sin_addr = number4;
    v4->sin_port = htons((uint16_t)atoi(port));
    *length = sizeof(*v4);
    return 0;
  }
  if (inet_pton(AF_INET6, host, &number6) == 1) {
    if (*length < sizeof(*v6)) { errno = ENOBUFS; return -1; }
    memset(v6, 0, sizeof(*v6));
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = number6;
    v6->sin6_port = htons((uint16_t)atoi(port));
    *length = sizeof(*v6);
    return 0;
  }
  errno = EINVAL;
  return -1;
}
