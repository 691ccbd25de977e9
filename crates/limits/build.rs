//! Compiles the protocols of `proto/`, without a protoc.
#![expect(clippy::disallowed_methods, reason = "Cargo tells a build script its folder through the environment")]

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const FILES: [&str; 2] = ["proto/envoy/service/ratelimit/v3/rls.proto", "proto/tidegate/limits/v1/limits.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let set = protox::compile(FILES, ["proto"])?;
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("Cargo sets OUT_DIR")?);
    // What reflection tells its callers.
    fs::write(folder.join("descriptors.bin"), set.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(cfg!(feature = "bench"))
        .include_file("protocols.rs")
        .compile_fds(set)?;
    Ok(())
}
