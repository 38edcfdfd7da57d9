//! Compiles jemalloc's settings (`src/allocator.c`) and links them into the binary.
//!
//! The object file is named to the linker itself: from a library it would not be taken, because jemalloc has a weak
//! definition of the same symbol.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/allocator.c");
    for object in cc::Build::new().file("src/allocator.c").warnings(true).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
