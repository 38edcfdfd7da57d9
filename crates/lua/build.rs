//! Builds LuaJIT and the C file that needs its private headers.
//!
//! LuaJIT is built here and not by `mlua-sys` because compiled traces must look at hooks
//! (`LUAJIT_ENABLE_CHECKHOOK`): without that an endless loop could not be interrupted.
//! `LYCOSA_LUAJIT_ASSERT=1` builds LuaJIT with its internal assertions, which is slow and finds misuse.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-env-changed=LYCOSA_LUAJIT_ASSERT");
    let asserts = env::var_os("LYCOSA_LUAJIT_ASSERT").is_some_and(|value| value != "0");
    let flags = env::var("CFLAGS").unwrap_or_default();
    // SAFETY: the build script has one thread.
    unsafe { env::set_var("CFLAGS", format!("{flags} -DLUAJIT_ENABLE_CHECKHOOK")) };
    let artifacts = luajit_src::Build::new().lua52compat(false).debug(asserts).build();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let private = out.join("luajit-build").join("src");
    let mut shim = cc::Build::new();
    shim.file("src/shim.c").include(private).opt_level(2).flag("-fexceptions").warnings(true);
    if asserts {
        shim.define("LUA_USE_ASSERT", None).define("LUA_USE_APICHECK", None);
    }
    // The shim stands before LuaJIT, whose symbols it uses.
    shim.compile("lycosa_lua_shim");
    artifacts.print_cargo_metadata();
}
