/* A module in C for c_module.lua. The declarations are those of lua.h and of Tarantool's module.h, as far as they are used. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct lua_State lua_State;
typedef int (*lua_CFunction)(lua_State *);
typedef struct { const char *name; lua_CFunction func; } luaL_Reg;
typedef struct { char *p; int lvl; lua_State *L; char buffer[8192]; } luaL_Buffer;
#define LUA_GLOBALSINDEX (-10002)
#define LUA_UPVALUE(i) (LUA_GLOBALSINDEX - (i))

extern void luaL_register(lua_State *, const char *, const luaL_Reg *);
extern int luaL_error(lua_State *, const char *, ...);
extern const char *luaL_checklstring(lua_State *, int, size_t *);
extern double luaL_checknumber(lua_State *, int);
extern void luaL_checktype(lua_State *, int, int);
extern int luaL_newmetatable(lua_State *, const char *);
extern void *luaL_checkudata(lua_State *, int, const char *);
extern void luaL_buffinit(lua_State *, luaL_Buffer *);
extern void luaL_addlstring(luaL_Buffer *, const char *, size_t);
extern void luaL_addvalue(luaL_Buffer *);
extern void luaL_pushresult(luaL_Buffer *);
extern int luaL_ref(lua_State *, int);
extern void luaL_unref(lua_State *, int, int);
extern void *lua_newuserdata(lua_State *, size_t);
extern int lua_gettop(lua_State *);
extern void lua_settop(lua_State *, int);
extern void lua_pushvalue(lua_State *, int);
extern void lua_pushnumber(lua_State *, double);
extern void lua_pushinteger(lua_State *, ptrdiff_t);
extern void lua_pushboolean(lua_State *, int);
extern void lua_pushlstring(lua_State *, const char *, size_t);
extern void lua_pushnil(lua_State *);
extern void lua_pushcclosure(lua_State *, lua_CFunction, int);
extern const char *lua_pushfstring(lua_State *, const char *, ...);
extern void lua_createtable(lua_State *, int, int);
extern void lua_rawseti(lua_State *, int, int);
extern void lua_rawgeti(lua_State *, int, int);
extern void lua_setfield(lua_State *, int, const char *);
extern int lua_setmetatable(lua_State *, int);
extern int lua_next(lua_State *, int);
extern void lua_call(lua_State *, int, int);
extern int lua_pcall(lua_State *, int, int, int);
extern double lua_tonumber(lua_State *, int);
extern const char *lua_tolstring(lua_State *, int, size_t *);
extern lua_State *lua_newthread(lua_State *);
extern void lua_xmove(lua_State *, lua_State *, int);
extern int lua_resume(lua_State *, int);
extern int lua_yield(lua_State *, int);
extern int lua_error(lua_State *);

extern void luaL_pushuint64(lua_State *, uint64_t);
extern void luaL_pushint64(lua_State *, int64_t);
extern uint64_t luaL_checkuint64(lua_State *, int);
extern int64_t luaL_checkint64(lua_State *, int);
extern uint64_t luaL_touint64(lua_State *, int);
extern int64_t luaL_toint64(lua_State *, int);
extern uint32_t luaL_ctypeid(lua_State *, const char *);
extern int luaL_cdef(lua_State *, const char *);
extern void *luaL_pushcdata(lua_State *, uint32_t);
extern void *luaL_checkcdata(lua_State *, int, uint32_t *);
extern void luaL_setcdatagc(lua_State *, int);
extern int luaL_iscallable(lua_State *, int);
extern int luaT_call(lua_State *, int, int);
extern int luaT_error(lua_State *);
extern lua_State *luaT_state(void);

static int freed;

/* Calls a function with each number up to the second argument, and joins the results. */
static int collect(lua_State *L)
{
  luaL_Buffer joined;
  int i, count = (int)luaL_checknumber(L, 2);
  luaL_buffinit(L, &joined);
  for (i = 1; i <= count; i++) {
    lua_pushvalue(L, 1);
    lua_pushinteger(L, i);
    lua_call(L, 1, 1);
    luaL_addvalue(&joined);
    luaL_addlstring(&joined, ";", 1);
  }
  luaL_pushresult(&joined);
  return 1;
}

static int fail(lua_State *L)
{
  return luaL_error(L, "refused: %s (%d)", luaL_checklstring(L, 1, NULL), 7);
}

static int raise(lua_State *L)
{
  lua_settop(L, 1);
  return lua_error(L);
}

/* A protected call, whose error is returned. */
static int attempt(lua_State *L)
{
  int status = lua_pcall(L, lua_gettop(L) - 1, 1, 0);
  lua_pushinteger(L, status);
  return 2;
}

static int sum(lua_State *L)
{
  double total = 0;
  luaL_checktype(L, 1, 5);
  lua_pushnil(L);
  while (lua_next(L, 1) != 0) {
    total += lua_tonumber(L, -1);
    lua_settop(L, -2);
  }
  lua_pushnumber(L, total);
  return 1;
}

static int count_up(lua_State *L)
{
  double next = lua_tonumber(L, LUA_UPVALUE(1)) + 1;
  lua_pushnumber(L, next);
  lua_pushvalue(L, -1);
  lua_settop(L, -1);
  extern void lua_replace(lua_State *, int);
  lua_replace(L, LUA_UPVALUE(1));
  return 1;
}

static int counter(lua_State *L)
{
  lua_pushnumber(L, luaL_checknumber(L, 1));
  lua_pushcclosure(L, count_up, 1);
  return 1;
}

static int box_new(lua_State *L)
{
  *(double *)lua_newuserdata(L, sizeof(double)) = luaL_checknumber(L, 1);
  luaL_newmetatable(L, "c_module.box");
  lua_setmetatable(L, -2);
  return 1;
}

static int box_get(lua_State *L)
{
  lua_pushnumber(L, *(double *)luaL_checkudata(L, 1, "c_module.box"));
  return 1;
}

static int box_gc(lua_State *L)
{
  (void)L;
  freed++;
  return 0;
}

static int freed_boxes(lua_State *L)
{
  lua_pushinteger(L, freed);
  return 1;
}

/* Runs a function in a coroutine of its own until it ends; returns what it yields, in a table. */
static int drive(lua_State *L)
{
  int count = 0, status;
  lua_State *co;
  lua_createtable(L, 0, 0);
  co = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, co, 1);
  while ((status = lua_resume(co, 0)) == 1) {
    lua_xmove(co, L, 1);
    lua_rawseti(L, 2, ++count);
    lua_settop(co, 0);
  }
  if (status != 0) {
    lua_xmove(co, L, 1);
    return lua_error(L);
  }
  lua_settop(L, 2);
  return 1;
}

static int pause(lua_State *L)
{
  return lua_yield(L, lua_gettop(L));
}

static int kept(lua_State *L)
{
  int reference;
  lua_settop(L, 1);
  reference = luaL_ref(L, -10000);
  lua_rawgeti(L, -10000, reference);
  luaL_unref(L, -10000, reference);
  return 1;
}

static int wide(lua_State *L)
{
  luaL_pushuint64(L, luaL_checkuint64(L, 1) + 1);
  luaL_pushint64(L, luaL_checkint64(L, 2) - 1);
  luaL_pushuint64(L, luaL_touint64(L, 1));
  luaL_pushint64(L, luaL_toint64(L, 2));
  return 4;
}

static int to_wide(lua_State *L)
{
  luaL_pushuint64(L, luaL_touint64(L, 1));
  luaL_pushint64(L, luaL_toint64(L, 1));
  return 2;
}

static int point(lua_State *L)
{
  uint32_t id = luaL_ctypeid(L, "struct c_module_point"), found = 0;
  double *made = luaL_pushcdata(L, id);
  made[0] = luaL_checknumber(L, 1);
  made[1] = luaL_checknumber(L, 2);
  lua_pushboolean(L, luaL_checkcdata(L, -1, &found) == made && found == id);
  lua_pushvalue(L, 3);
  luaL_setcdatagc(L, -3);
  return 2;
}

static int point_x(lua_State *L)
{
  uint32_t id;
  lua_pushnumber(L, *(double *)luaL_checkcdata(L, 1, &id));
  return 1;
}

static int define(lua_State *L)
{
  lua_pushinteger(L, luaL_cdef(L, luaL_checklstring(L, 1, NULL)));
  return 1;
}

static int callable(lua_State *L)
{
  lua_pushboolean(L, luaL_iscallable(L, 1));
  return 1;
}

/* Calls a function by luaT_call and raises its error again. */
static int relay(lua_State *L)
{
  if (luaT_call(L, lua_gettop(L) - 1, -1) != 0) return luaT_error(L);
  return lua_gettop(L);
}

static int has_state(lua_State *L)
{
  lua_pushboolean(L, luaT_state() != NULL);
  return 1;
}

static const luaL_Reg functions[] = {
  {"collect", collect}, {"fail", fail}, {"raise", raise}, {"attempt", attempt}, {"sum", sum}, {"counter", counter},
  {"box", box_new}, {"get", box_get}, {"freed", freed_boxes}, {"drive", drive}, {"pause", pause}, {"kept", kept}, {"wide", wide},
  {"to_wide", to_wide}, {"point", point}, {"point_x", point_x}, {"define", define}, {"callable", callable}, {"relay", relay},
  {"has_state", has_state}, {NULL, NULL},
};

int luaopen_c_module(lua_State *L)
{
  luaL_newmetatable(L, "c_module.box");
  lua_pushcclosure(L, box_gc, 0);
  lua_setfield(L, -2, "__gc");
  lua_settop(L, -2);
  lua_createtable(L, 0, 0);
  luaL_register(L, NULL, functions);
  lua_pushfstring(L, "%s of %d", "version", 1);
  lua_setfield(L, -2, "version");
  return 1;
}

/* The module `c_module.part` of the same file. */
int luaopen_c_module_part(lua_State *L)
{
  lua_pushlstring(L, "a part", 6);
  return 1;
}
