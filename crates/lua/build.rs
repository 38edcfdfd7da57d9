//! Builds LuaJIT and the C files that need its private headers.
//!
//! LuaJIT is built here and not by `mlua-sys` because compiled traces must look at hooks
//! (`LUAJIT_ENABLE_CHECKHOOK`): without that an endless loop could not be interrupted.
//! Its C files call Lua through the shim, which knows the limit of a fiber's C stack (`lycosa_vm_call`); therefore only the
//! library is built, and not the program `luajit`. `src/luajit.h` stands before each of them.
//! Where the crate itself is not optimised, LuaJIT is built with `-O1`: two thirds of the time.
//! `LYCOSA_LUAJIT_ASSERT=1` builds LuaJIT with its internal assertions, which is slow and finds misuse.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-changed=src/c_api.c");
    println!("cargo:rerun-if-changed=src/luajit.h");
    println!("cargo:rerun-if-env-changed=LYCOSA_LUAJIT_ASSERT");
    let asserts = env::var_os("LYCOSA_LUAJIT_ASSERT").is_some_and(|value| value != "0");
    let flags = env::var("CFLAGS").unwrap_or_default();
    let level = if env::var("OPT_LEVEL").is_ok_and(|level| level == "0") { "-O1" } else { "-O2" };
    // Macros with arguments, because the assembly has the plain names. The shell of `make` takes the quotes away.
    let renamed =
        "'-Dlj_vm_call(l,b,n)=lycosa_vm_call(l,b,n)' '-Dlj_vm_pcall(l,b,n,h)=lycosa_vm_pcall(l,b,n,h)'";
    let header = env::current_dir().expect("cargo sets the folder").join("src/luajit.h");
    let compiler = cc::Build::new().warnings(false).get_compiler();
    let (path, arguments) = (compiler.path().display(), compiler.cflags_env());
    // The compiler of the library, not that of the tools which it is built with.
    let compiler = format!("{path} {} -I. -include {}", arguments.display(), header.display());
    // SAFETY: the build script has one thread.
    unsafe {
        env::set_var("STATIC_CC", compiler);
        env::set_var("CFLAGS", format!("{flags} {level} -DLUAJIT_ENABLE_CHECKHOOK {renamed}"));
        env::set_var("TARGET_T", "libluajit.a");
    }
    let artifacts = luajit_src::Build::new().lua52compat(false).debug(asserts).build();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let private = out.join("luajit-build").join("src");
    let mut shim = cc::Build::new();
    shim.file("src/shim.c")
        .file("src/c_api.c")
        .include(private)
        .opt_level(2)
        .flag("-fexceptions")
        .warnings(true);
    if asserts {
        shim.define("LUA_USE_ASSERT", None).define("LUA_USE_APICHECK", None);
    }
    // SAFETY: as above. The shim itself calls LuaJIT's own functions.
    unsafe { env::set_var("CFLAGS", flags) };
    // The shim stands before LuaJIT, whose symbols it uses.
    shim.compile("lycosa_lua_shim");
    artifacts.print_cargo_metadata();
}
