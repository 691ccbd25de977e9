//! Links the unoptimised binary at a fixed address, so that an idle process stays small: four MiB of relocations are not
//! read at start, and two not written. What ships is linked as usual.
#![expect(clippy::disallowed_methods, reason = "Cargo tells a build script its target through the environment")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    if is_debug && env::var("TARGET").is_ok_and(|target| target.ends_with("-linux-gnu")) {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
