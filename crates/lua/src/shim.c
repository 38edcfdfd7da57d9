/*
** What the runtime needs of LuaJIT's inside and its public API does not give: the global state that a switch of C stacks
** has to save, and C data of the FFI. Compiled against the private headers of the very LuaJIT that is linked, so that a
** change of its structures is a compile error here and not a crash.
*/
#define LUA_CORE
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

/* The value at an index from the base (positive) or the top (negative). */
static TValue *lycosa_value(lua_State *L, int index)
{
  return index > 0 ? L->base + (index - 1) : L->top + index;
}

enum { KIND_OTHER, KIND_INT64, KIND_UINT64, KIND_POINTER, KIND_NUMBER, KIND_BOOL, KIND_STRUCT };

typedef struct lycosa_cdata {
  uint32_t type;	/* CTypeID */
  uint32_t kind;
  uint64_t bits;	/* KIND_INT64, KIND_UINT64, KIND_POINTER, KIND_BOOL */
  double number;	/* KIND_NUMBER */
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
    else if (ct->size == 4) { out->kind = KIND_NUMBER; out->number = *(float *)p; }
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
