/*
** What the runtime needs of LuaJIT's inside and its public API does not give: the global state that a switch of C stacks
** has to save, the limit of a fiber's C stack, and C data of the FFI. Compiled against the private headers of the very
** LuaJIT that is linked, so that a change of its structures is a compile error here and not a crash.
*/
#define _GNU_SOURCE
#define LUA_CORE
#include <string.h>
#include "lua.h"
#include "lauxlib.h"
#include "lj_obj.h"
#include "lj_gc.h"
#include "lj_state.h"
#include "lj_ctype.h"
#include "lj_cdata.h"
#include "lj_jit.h"
#include "lj_dispatch.h"
#include "lj_trace.h"
#include "lj_err.h"
#include "lj_str.h"
#include "lj_tab.h"
#include "lj_meta.h"
#include "lj_vm.h"

/* What belongs to whoever runs, and has to be there again when it runs again. */
typedef struct lycosa_switch {
  lua_State *current;	/* The running coroutine: traces take it from the global state. */
  lua_State *ffi;	/* The coroutine that FFI callbacks return to. */
} lycosa_switch;

/* 0: may switch. 1: compiled code runs (an FFI call of a trace). 2: a hook or a finalizer runs. */
int lycosa_switch_save(lua_State *L, lycosa_switch *saved)
{
  global_State *g = G(L);
  CTState *cts = ctype_ctsG(g);
  if (tvref(g->jit_base) != NULL) return 1;
  if (g->hookmask & (HOOK_ACTIVE|HOOK_VMEVENT|HOOK_GC)) return 2;
  lj_trace_abort(g);
  saved->current = gco2th(gcref(g->cur_L));
  saved->ffi = cts ? cts->L : NULL;
  return 0;
}

void lycosa_switch_restore(lua_State *L, const lycosa_switch *saved)
{
  global_State *g = G(L);
  CTState *cts = ctype_ctsG(g);
  setgcref(g->cur_L, obj2gco(saved->current));
  if (cts) cts->L = saved->ffi;
}

/*
** The limit of a fiber's C stack.
**
** LuaJIT nests on the C stack whenever a C function calls Lua (string.gsub, table.sort, require, print, finalizers) and
** whenever a coroutine is resumed, and has no limit for either. Its C files call lycosa_vm_call and lycosa_vm_pcall
** instead of lj_vm_call and lj_vm_pcall (build.rs renames them), and the functions `resume` and `wrap` of the library
** `coroutine` are those below. All look at the stack pointer first. What calls no Lua fits into the reserve below the floor.
*/
typedef struct lycosa_floor {
  uintptr_t floor;	/* Below this address no further call of Lua begins. */
  uintptr_t last;	/* The same for handlers of errors and for finalizers. */
} lycosa_floor;

static _Thread_local lycosa_floor stack;

void lycosa_set_floor(uintptr_t floor, uintptr_t last)
{
  stack.floor = floor;
  stack.last = last;
}

static int is_stack_short(lua_State *L)
{
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (LJ_LIKELY(here >= stack.floor)) return 0;
  return here < stack.last || !(L->status == LUA_ERRERR || (G(L)->hookmask & HOOK_GC));
}

/* Instead of lj_vm_call: raises "stack overflow". */
void lycosa_vm_call(lua_State *L, TValue *base, int results)
{
  if (LJ_UNLIKELY(is_stack_short(L))) lj_err_stkov(L);
  lj_vm_call(L, base, results);
}

/*
** Finalizers share one budget in a slice (watchdog.rs). gc_call_finalizer() is the only function that calls a finalizer,
** with HOOK_GC and the object as the only argument; calls within the finalizer find `runs` set.
*/
int lycosa_finalizer_begins(lua_State *L);
void lycosa_finalizer_ends(lua_State *L);

static _Thread_local struct {
  int watched;	/* A finalizer of this thread was ended: those that follow are counted. */
  int runs;
  int deferred;	/* Finalizers left to a later collection, since lycosa_finalize() began. */
  int closing;	/* The state is closed: what is written in Lua does not run any more. */
} finalizers;

void lycosa_watch_finalizers(void)
{
  finalizers.watched = 1;
}

/*
** Leaves the finalizer of an object to the next collection: the object is as it was before this one, so that it is found
** dead again. Its entry among the finalizers of C data was cleared a moment ago and takes no memory.
*/
static void defer_finalizer(lua_State *L, TValue *base, TValue *function)
{
  GCobj *o = gcV(base);
  finalizers.deferred = 1;
  if (tvisudata(base)) o->gch.marked &= (uint8_t)~LJ_GC_FINALIZED;
  else lj_cdata_setfin(L, gco2cd(o), gcV(function), itype(function));
}

/* Returns as lj_vm_pcall does. */
static int call_finalizer(lua_State *L, TValue *base, int results, ptrdiff_t handler)
{
  int status;
  if (LJ_UNLIKELY(finalizers.closing)) {
    TValue *function = base - 1 - LJ_FR2;
    if (tvistab(function) || (tvisfunc(function) && isluafunc(funcV(function)))) {
      L->top = function;
      return LUA_OK;
    }
  }
  if (LJ_UNLIKELY(finalizers.watched) && !lycosa_finalizer_begins(L)) {
    TValue *function = base - 1 - LJ_FR2;
    defer_finalizer(L, base, function);
    L->top = function;
    return LUA_OK;
  }
  finalizers.runs = 1;
  status = lj_vm_pcall(L, base, results, handler);
  finalizers.runs = 0;
  if (LJ_UNLIKELY(finalizers.watched)) lycosa_finalizer_ends(L);
  return status;
}

static int finalize_all(lua_State *L)
{
  global_State *g = G(L);
  lj_gc_separateudata(g, 1);
  lj_gc_finalize_cdata(L);
  lj_gc_finalize_udata(L);
  lj_gc_separateudata(g, 1);
  return 0;
}

/*
** Runs the finalizers of all objects, the reachable ones too, as lua_close() does, but within a slice of the watchdog.
** Returns whether some are left for another slice.
*/
int lycosa_finalize(lua_State *L)
{
  finalizers.deferred = 0;
  if (lua_cpcall(L, finalize_all, NULL) != 0) lua_pop(L, 1);
  return finalizers.deferred || gcref(G(L)->gc.mmudata) != NULL;
}

/* Closes the state. Nothing ends a loop any more, so of the finalizers that are left only those of native code run. */
void lycosa_close(lua_State *L)
{
  finalizers.closing = 1;
  lua_close(L);
  memset(&finalizers, 0, sizeof(finalizers));
}

/* Instead of lj_vm_pcall: returns the error as a failed call does, in place of function and arguments. */
int lycosa_vm_pcall(lua_State *L, TValue *base, int results, ptrdiff_t handler)
{
  if (LJ_UNLIKELY(is_stack_short(L))) {
    TValue *function = base - 1 - LJ_FR2;
    setstrV(L, function, lj_err_str(L, LJ_ERR_STKOV));
    L->top = function + 1;
    return LUA_ERRRUN;
  }
  if (LJ_UNLIKELY(G(L)->hookmask & HOOK_GC) && !finalizers.runs) return call_finalizer(L, base, results, handler);
  return lj_vm_pcall(L, base, results, handler);
}

/*
** The time budget of Lua code (watchdog.rs). A signal that arrives in the thread of the fibers sets a hook, which is the
** use of lua_sethook that LuaJIT provides for. A finalizer and a debug hook run with HOOK_ACTIVE, which keeps
** hooks away; without it they can be ended as well, and what called them sets the mask anew.
** Functions in C look at the flag instead (luajit.h).
**
** A debug hook that ends within its time after all returns without HOOK_ACTIVE. callhook() (lj_dispatch.c) asserts that
** it is set ("active hook flag removed") and then does nothing with it but to clear it, so this is harmless: the hook is
** taken away by then (lua_sethook below), so none is called within it. For a finalizer, lj_gc.c restores the whole mask
** from its own copy. A LuaJIT with assertions has to leave that one out.
*/
_Thread_local volatile int lycosa_late __attribute__((tls_model("initial-exec")));

static _Thread_local struct {
  global_State *g;
  lua_Hook hook;
} late;

/* To be called in the signal's handler. */
void lycosa_interrupt(lua_State *L, lua_Hook hook)
{
  global_State *g = G(L);
  late.g = g;
  late.hook = hook;
  lycosa_late = 1;
  g->hookmask &= (uint8_t)~HOOK_ACTIVE;
  /* Taking the hook away first makes LuaJIT build its dispatch table anew, whatever the signal has interrupted. */
  lua_sethook(L, NULL, 0, 0);
  lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

/* The slice is within its budget (again). */
void lycosa_calm(lua_State *L)
{
  lycosa_late = 0;
  lua_sethook(L, NULL, 0, 0);
}

/* The hook is about to raise an error: whoever catches it, hooks are called again. */
void lycosa_leave_hook(lua_State *L)
{
  hook_leave(G(L));
}

/* Whether a finalizer runs. */
int lycosa_in_finalizer(lua_State *L)
{
  return (G(L)->hookmask & HOOK_GC) != 0;
}

int lycosa_poll(int value)
{
  if (lycosa_late && late.hook != NULL) late.hook(gco2th(gcref(late.g->cur_L)), NULL);
  return value;
}

/* The value at an index from the base (positive) or the top (negative). */
static TValue *lycosa_value(lua_State *L, int index)
{
  return index > 0 ? L->base + (index - 1) : L->top + index;
}

/* Instead of LuaJIT's own, which only table.sort calls: a sort of many values may be ended. */
int lua_lessthan(lua_State *L, int first, int second)
{
  TValue *a = lycosa_value(L, first), *b = lycosa_value(L, second), *base;
  if (LJ_UNLIKELY(lycosa_late)) lycosa_poll(0);
  if (tvisint(a) && tvisint(b)) return intV(a) < intV(b);
  if (tvisnumber(a) && tvisnumber(b)) return numberVnum(a) < numberVnum(b);
  base = lj_meta_comp(L, a, b, 0);
  if ((uintptr_t)base <= 1) return (int)(uintptr_t)base;
  L->top = base + 2;
  lycosa_vm_call(L, base, 1 + 1);
  L->top -= 2 + LJ_FR2;
  return tvistruecond(L->top + 1 + LJ_FR2);
}

/* Instead of LuaJIT's own: sets a number that is not in the array. Only C functions may be ended here. */
TValue *lj_tab_setinth(lua_State *L, GCtab *t, int32_t key)
{
  cTValue *found;
  TValue k;
  if (LJ_UNLIKELY(lycosa_late) && tvref(G(L)->jit_base) == NULL && !isluafunc(curr_func(L))) lycosa_poll(0);
  found = lj_tab_getinth(t, key);
  if (found != NULL) return (TValue *)found;
  k.n = (lua_Number)key;
  return lj_tab_newkey(L, t, &k);
}

/* Instead of LuaJIT's own, whose time grows with the product of both lengths; compiled code calls it too. */
const char *lj_str_find(const char *s, const char *f, MSize size, MSize length)
{
  return length <= size ? (const char *)memmem(s, size, f, length) : NULL;
}

/* Whether nothing but its fiber may resume a coroutine: it is refused as a dead one. */
void lycosa_reserve_coroutine(lua_State *co, int reserved)
{
  co->status = reserved ? LUA_ERRRUN : LUA_OK;
}

/*
** lua_next that does not raise an error: -1 if the key at the top is not in the table (any more); the key stays then.
*/
int lycosa_next(lua_State *L, int index)
{
  GCtab *t = tabV(lycosa_value(L, index));
  int more = lj_tab_next(t, L->top-1, L->top-1);
  if (more > 0) incr_top(L);
  else if (more == 0) L->top--;
  return more;
}

/*
** Resumes a coroutine with the values above `first` of L. Returns the number of results, which are on L's stack, or -1
** with the error there.
*/
static int resume(lua_State *L, lua_State *co, int first)
{
  int count = lua_gettop(L) - first, status;
  if (co->cframe != NULL || co->status > LUA_YIELD || (co->status == LUA_OK && co->top == co->base)) {
    setstrV(L, L->top, lj_err_str(L, co->cframe ? LJ_ERR_CORUN : LJ_ERR_CODEAD));
    incr_top(L);
    return -1;
  }
  if (LJ_UNLIKELY(is_stack_short(L))) {
    setstrV(L, L->top, lj_err_str(L, LJ_ERR_STKOV));
    incr_top(L);
    return -1;
  }
  if (!lua_checkstack(co, count)) luaL_error(L, "too many arguments to resume");
  lua_xmove(L, co, count);
  status = lua_resume(co, count);
  setgcref(G(L)->cur_L, obj2gco(L));
  if (status == LUA_OK || status == LUA_YIELD) {
    count = lua_gettop(co);
    if (!lua_checkstack(L, count + 1)) luaL_error(L, "too many results to resume");
    lua_xmove(co, L, count);
    return count;
  }
  lua_xmove(co, L, 1);
  return -1;
}

static int coroutine_resume(lua_State *L)
{
  lua_State *co;
  int count;
  if (!(L->base < L->top && tvisthread(L->base))) lj_err_arg(L, 1, LJ_ERR_NOCORO);
  co = threadV(L->base);
  count = resume(L, co, 1);
  if (count < 0) {
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
  }
  lua_pushboolean(L, 1);
  lua_insert(L, -(count + 1));
  return count + 1;
}

static int coroutine_wrapped(lua_State *L)
{
  int count = resume(L, lua_tothread(L, lua_upvalueindex(1)), 0);
  if (count < 0) {
    if (tvisstr(L->top-1)) lj_err_callermsg(L, strVdata(L->top-1));
    lua_error(L);
  }
  return count;
}

/* With the function `create` as the upvalue. */
static int coroutine_wrap(lua_State *L)
{
  if (!(L->base < L->top && tvisfunc(L->base))) lj_err_argt(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  lua_pushcclosure(L, coroutine_wrapped, 1);
  return 1;
}

/* Puts `resume` and `wrap` with a limit into the library `coroutine`. */
void lycosa_limit_coroutines(lua_State *L)
{
  lua_getglobal(L, "coroutine");
  lua_pushcfunction(L, coroutine_resume);
  lua_setfield(L, -2, "resume");
  lua_getfield(L, -1, "create");
  lua_pushcclosure(L, coroutine_wrap, 1);
  lua_setfield(L, -2, "wrap");
  lua_pop(L, 1);
}

/* The block of a userdata that has this metatable; NULL for anything else. */
void *lycosa_userdata(lua_State *L, int index, const void *metatable)
{
  TValue *o = lycosa_value(L, index);
  if (o >= L->top || o < L->base || !tvisudata(o)) return NULL;
  if ((const void *)tabref(udataV(o)->metatable) != metatable) return NULL;
  return uddata(udataV(o));
}

/* A new userdata with this metatable, which somebody else keeps alive. */
void *lycosa_push_userdata(lua_State *L, size_t size, void *metatable)
{
  void *block = lua_newuserdata(L, size);
  GCudata *ud = udataV(L->top-1);
  GCtab *mt = (GCtab *)metatable;
  setgcref(ud->metatable, obj2gco(mt));
  lj_gc_objbarrier(L, ud, mt);
  return block;
}

/*
** What the keys of a table are: the number of its items, and if all keys are whole numbers from 1 on, the largest of them.
** Returns whether they are.
*/
static int table_keys(GCtab *t, uint32_t *count, uint32_t *largest)
{
  TValue *array = tvref(t->array);
  Node *node = noderef(t->node);
  uint32_t i, found = 0, last = 0;
  int is_array = 1;
  for (i = 0; i < t->asize; i++) {
    if (tvisnil(&array[i])) continue;
    found++;
    if (i == 0) is_array = 0;
    else last = i;
  }
  for (i = 0; i <= t->hmask; i++) {
    double key;
    if (tvisnil(&node[i].val)) continue;
    found++;
    if (!is_array) continue;
    if (!tvisnumber(&node[i].key)) {
      is_array = 0;
      continue;
    }
    key = numberVnum(&node[i].key);
    if (!(key >= 1.0 && key < 2147483647.0 && key == (double)(uint32_t)key)) is_array = 0;
    else if ((uint32_t)key > last) last = (uint32_t)key;
  }
  *count = found;
  *largest = last;
  return is_array;
}

int lycosa_table_keys(lua_State *L, int index, uint32_t *count, uint32_t *largest)
{
  return table_keys(tabV(lycosa_value(L, index)), count, largest);
}

enum { KIND_OTHER, KIND_INT64, KIND_UINT64, KIND_POINTER, KIND_NUMBER, KIND_BOOL, KIND_STRUCT, KIND_FLOAT, KIND_TYPE };

typedef struct lycosa_cdata {
  uint32_t type;	/* CTypeID */
  uint32_t kind;
  uint64_t bits;	/* KIND_INT64, KIND_UINT64, KIND_POINTER, KIND_BOOL */
  double number;	/* KIND_NUMBER, KIND_FLOAT */
  void *data;		/* KIND_STRUCT: the structure */
} lycosa_cdata;

/* 0 if the value is no C data. */
int lycosa_cdata_get(lua_State *L, int index, lycosa_cdata *out)
{
  TValue *o = lycosa_value(L, index);
  CTState *cts = ctype_ctsG(G(L));
  GCcdata *cd;
  CType *ct;
  void *p;
  if (o >= L->top || o < L->base || !tviscdata(o) || !cts) return 0;
  cd = cdataV(o);
  p = cdataptr(cd);
  out->type = cd->ctypeid;
  out->kind = KIND_OTHER;
  out->bits = 0;
  out->number = 0;
  out->data = NULL;
  /* A type as a value is an enumeration of LuaJIT's own: no number of the program. */
  if (cd->ctypeid == CTID_CTYPEID) {
    out->kind = KIND_TYPE;
    return 1;
  }
  ct = ctype_raw(cts, cd->ctypeid);
  if (ctype_isref(ct->info)) {
    p = *(void **)p;
    ct = ctype_rawchild(cts, ct);
    out->type = ctype_typeid(cts, ct);
  }
  while (ctype_isenum(ct->info)) ct = ctype_child(cts, ct);
  if (ctype_isbool(ct->info)) {
    out->kind = KIND_BOOL;
    out->bits = *(uint8_t *)p != 0;
  } else if (ctype_isinteger(ct->info)) {
    int is_unsigned = (ct->info & CTF_UNSIGNED) != 0;
    switch (ct->size) {
    case 8:
      out->kind = is_unsigned ? KIND_UINT64 : KIND_INT64;
      out->bits = *(uint64_t *)p;
      break;
    case 4:
      out->kind = KIND_INT64;
      out->bits = (uint64_t)(is_unsigned ? (int64_t)*(uint32_t *)p : (int64_t)*(int32_t *)p);
      break;
    case 2:
      out->kind = KIND_INT64;
      out->bits = (uint64_t)(is_unsigned ? (int64_t)*(uint16_t *)p : (int64_t)*(int16_t *)p);
      break;
    case 1:
      out->kind = KIND_INT64;
      out->bits = (uint64_t)(is_unsigned ? (int64_t)*(uint8_t *)p : (int64_t)*(int8_t *)p);
      break;
    default: break;
    }
  } else if (ctype_isfp(ct->info)) {
    if (ct->size == 8) { out->kind = KIND_NUMBER; out->number = *(double *)p; }
    else if (ct->size == 4) { out->kind = KIND_FLOAT; out->number = *(float *)p; }
  } else if (ctype_isptr(ct->info)) {
    out->kind = KIND_POINTER;
    out->bits = (uint64_t)(uintptr_t)*(void **)p;
  } else if (ctype_isstruct(ct->info)) {
    out->kind = KIND_STRUCT;
    out->data = p;
  }
  return 1;
}

static void *lycosa_push_scalar(lua_State *L, CTypeID id, CTSize size)
{
  GCcdata *cd;
  lj_gc_check(L);
  cd = lj_cdata_new_(L, id, size);
  setcdataV(L, L->top, cd);
  incr_top(L);
  return cdataptr(cd);
}

void lycosa_push_int64(lua_State *L, int64_t value)
{
  *(int64_t *)lycosa_push_scalar(L, CTID_INT64, 8) = value;
}

void lycosa_push_uint64(lua_State *L, uint64_t value)
{
  *(uint64_t *)lycosa_push_scalar(L, CTID_UINT64, 8) = value;
}

void lycosa_push_null(lua_State *L)
{
  *(void **)lycosa_push_scalar(L, CTID_P_VOID, CTSIZE_PTR) = NULL;
}

/* A new structure of a type that Lua has declared, `size` bytes with what follows its head; nothing is set in it. */
void *lycosa_push_struct(lua_State *L, uint32_t type, uint32_t size)
{
  CTState *cts = ctype_ctsG(G(L));
  GCcdata *cd;
  lj_gc_check(L);
  cts->L = L;
  cd = lj_cdata_newv(L, type, size, 4);
  setcdataV(L, L->top, cd);
  incr_top(L);
  return cdataptr(cd);
}

/*
** MessagePack of a value that needs nothing but itself: nil, booleans, numbers, strings, 64-bit integers, and tables of
** such values without metatables. Reads memory only: no Lua code runs, and nothing is allocated.
*/
#define ENCODE_DEPTH 16

enum { ENCODE_OTHER = -1, ENCODE_NO_ROOM = -2 };

typedef struct lycosa_encoder {
  uint8_t *to, *end;
  uint32_t ratio, safe;	/* A table with holes is a map if its last key is beyond both; never if ratio is 0. */
} lycosa_encoder;

/* Writes a first byte and `size` bytes of a number behind it, the highest first. */
static int put_head(lycosa_encoder *e, uint8_t first, uint64_t value, int size)
{
  if (e->end - e->to < 1 + size) return ENCODE_NO_ROOM;
  *e->to++ = first;
  while (size > 0) *e->to++ = (uint8_t)(value >> (8 * --size));
  return 0;
}

static int put_uint(lycosa_encoder *e, uint64_t value)
{
  if (value < 0x80) return put_head(e, (uint8_t)value, 0, 0);
  if (value <= 0xff) return put_head(e, 0xcc, value, 1);
  if (value <= 0xffff) return put_head(e, 0xcd, value, 2);
  if (value <= 0xffffffff) return put_head(e, 0xce, value, 4);
  return put_head(e, 0xcf, value, 8);
}

static int put_int(lycosa_encoder *e, int64_t value)
{
  if (value >= 0) return put_uint(e, (uint64_t)value);
  if (value >= -0x20) return put_head(e, (uint8_t)value, 0, 0);
  if (value >= INT8_MIN) return put_head(e, 0xd0, (uint64_t)value, 1);
  if (value >= INT16_MIN) return put_head(e, 0xd1, (uint64_t)value, 2);
  if (value >= INT32_MIN) return put_head(e, 0xd2, (uint64_t)value, 4);
  return put_head(e, 0xd3, (uint64_t)value, 8);
}

/* A number of Lua: an integer if it is one. */
static int put_number(lycosa_encoder *e, double value)
{
  uint64_t bits;
  if (value >= -9223372036854775808.0 && value < 9223372036854775808.0 && (double)(int64_t)value == value)
    return put_int(e, (int64_t)value);
  if (value >= 9223372036854775808.0 && value < 18446744073709551616.0) return put_uint(e, (uint64_t)value);
  memcpy(&bits, &value, sizeof(bits));
  return put_head(e, 0xcb, bits, 8);
}

static int put_str(lycosa_encoder *e, const char *bytes, MSize length)
{
  int done;
  if (length < 32) done = put_head(e, (uint8_t)(0xa0 | length), 0, 0);
  else if (length <= 0xff) done = put_head(e, 0xd9, length, 1);
  else if (length <= 0xffff) done = put_head(e, 0xda, length, 2);
  else done = put_head(e, 0xdb, length, 4);
  if (done < 0) return done;
  if ((size_t)(e->end - e->to) < length) return ENCODE_NO_ROOM;
  memcpy(e->to, bytes, length);
  e->to += length;
  return 0;
}

static int put_count(lycosa_encoder *e, uint8_t fixed, uint8_t wide, uint32_t count)
{
  if (count < 16) return put_head(e, (uint8_t)(fixed | count), 0, 0);
  if (count <= 0xffff) return put_head(e, wide, count, 2);
  return put_head(e, (uint8_t)(wide + 1), count, 4);
}

static int put_value(lycosa_encoder *e, cTValue *value, int depth);

static int put_table(lycosa_encoder *e, GCtab *t, int depth)
{
  uint32_t count, last, i;
  int done;
  /* Whose time may be over is told so elsewhere. */
  if (depth == 0 || tabref(t->metatable) != NULL || LJ_UNLIKELY(lycosa_late)) return ENCODE_OTHER;
  if (table_keys(t, &count, &last)) {
    /* Who asks for an array of a great many holes is told so elsewhere. */
    if (last > 1024 && last / 2 > count) return ENCODE_OTHER;
    if (e->ratio == 0 || last <= e->safe || (uint64_t)last <= (uint64_t)count * e->ratio) {
      if ((done = put_count(e, 0x90, 0xdc, last)) < 0) return done;
      for (i = 1; i <= last; i++) {
        cTValue *item = lj_tab_getint(t, (int32_t)i);
        if ((done = item ? put_value(e, item, depth - 1) : put_head(e, 0xc0, 0, 0)) < 0) return done;
      }
      return 0;
    }
    return ENCODE_OTHER;
  }
  if ((done = put_count(e, 0x80, 0xde, count)) < 0) return done;
  for (i = 0; i < t->asize; i++) {
    cTValue *item = arrayslot(t, i);
    if (tvisnil(item)) continue;
    if ((done = put_uint(e, i)) < 0 || (done = put_value(e, item, depth - 1)) < 0) return done;
  }
  for (i = 0; i <= t->hmask; i++) {
    Node *node = &noderef(t->node)[i];
    if (tvisnil(&node->val)) continue;
    if ((done = put_value(e, &node->key, depth - 1)) < 0 || (done = put_value(e, &node->val, depth - 1)) < 0) return done;
  }
  return 0;
}

static int put_value(lycosa_encoder *e, cTValue *value, int depth)
{
  if (tvisstr(value)) return put_str(e, strVdata(value), strV(value)->len);
  if (tvisnumber(value)) return put_number(e, numberVnum(value));
  if (tvistab(value)) return put_table(e, tabV(value), depth);
  if (tvisnil(value)) return put_head(e, 0xc0, 0, 0);
  if (tvisbool(value)) return put_head(e, boolV(value) ? 0xc3 : 0xc2, 0, 0);
  if (tviscdata(value)) {
    GCcdata *cd = cdataV(value);
    if (cd->ctypeid == CTID_INT64) return put_int(e, *(int64_t *)cdataptr(cd));
    if (cd->ctypeid == CTID_UINT64) return put_uint(e, *(uint64_t *)cdataptr(cd));
    if (cd->ctypeid == CTID_P_VOID && *(void **)cdataptr(cd) == NULL) return put_head(e, 0xc0, 0, 0);
  }
  return ENCODE_OTHER;
}

/* The number of bytes written, ENCODE_OTHER for a value that needs more than this, or ENCODE_NO_ROOM. */
ptrdiff_t lycosa_encode(lua_State *L, int index, uint8_t *to, size_t room, uint32_t ratio, uint32_t safe)
{
  lycosa_encoder e = { to, to + room, ratio, safe };
  TValue *value = lycosa_value(L, index);
  int done;
  if (value >= L->top || value < L->base) return ENCODE_OTHER;
  done = put_value(&e, value, ENCODE_DEPTH);
  return done < 0 ? done : e.to - to;
}
