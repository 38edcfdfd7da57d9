//! Compiles jemalloc's settings (`src/allocator.c`) and links them into the binary, and exports the C API of Lua from it
//! (`src/exported.list`), which modules in C are linked against when a program loads them.
//!
//! The object file is named to the linker itself: from a library it would not be taken, because jemalloc has a weak
//! definition of the same symbol.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/allocator.c");
    println!("cargo:rerun-if-changed=src/exported.list");
    let exported = env::current_dir().expect("cargo sets the folder").join("src/exported.list");
    println!("cargo:rustc-link-arg-bins=-Wl,--dynamic-list={}", exported.display());
    for object in cc::Build::new().file("src/allocator.c").warnings(true).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
