//! Which test used which server, and which was skipped and why.
//!
//! One line per event is appended to the file that `servers run` names, in one write, so that parallel tests and
//! processes cannot tear each other's lines. A test is named by its binary and its thread.

use std::{
    collections::BTreeSet,
    env,
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use crate::{Server, Unavailable};

/// Where `servers run` wants the lines.
pub const VARIABLE: &str = "TESTKIT_LEDGER";

/// One line per test and server, however often a property test asks.
pub(crate) fn used(server: Server) {
    static WRITTEN: Mutex<BTreeSet<(Server, String)>> = Mutex::new(BTreeSet::new());
    let test = test_name();
    if WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).insert((server, test.clone())) {
        append(&["used", server.name(), &test, ""]);
    }
}

/// Records the running test as skipped, and says so at once even while the test runner captures output.
///
/// # Panics
/// Where `CI` is `true`: there, a server that cannot be had is a failure.
pub fn skip(unavailable: &Unavailable) {
    let test = test_name();
    assert!(env::var("CI").as_deref() != Ok("true"), "{unavailable} (CI=true: a skipped test is a failed test)");
    append(&["skipped", unavailable.what, &test, &unavailable.reason]);
    say(&format!("skipped {test}: {unavailable}"));
}

/// Straight to stderr: `eprintln!` would be swallowed with the output of a passing test.
pub(crate) fn say(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}

/// What the lines of one run add up to.
#[derive(Debug, Default, PartialEq)]
pub struct Summary {
    /// Tests per server, in the order of `Server::ALL`.
    pub used: [usize; 3],
    /// Test and reason.
    pub skipped: BTreeSet<(String, String)>,
}

impl Summary {
    pub fn read(path: &Path) -> io::Result<Summary> {
        Ok(Summary::of(&std::fs::read_to_string(path)?))
    }

    pub fn of(lines: &str) -> Summary {
        let mut used: [BTreeSet<&str>; 3] = Default::default();
        let mut skipped = BTreeSet::new();
        for line in lines.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let &[event, server, test, reason] = fields.as_slice() else { continue };
            if event == "skipped" {
                skipped.insert((test.to_owned(), format!("{server} is not available: {reason}")));
            } else if let Some(place) = Server::ALL.iter().position(|known| known.name() == server) {
                used[place].insert(test);
            }
        }
        Summary { used: used.map(|tests| tests.len()), skipped }
    }
}

fn append(fields: &[&str]) {
    let Some(path) = env::var_os(VARIABLE) else { return };
    // Reasons may quote a server's log: tabs and line breaks in them must not start a new field or line.
    let clean: Vec<String> = fields.iter().map(|field| field.replace(['\t', '\n', '\r'], " ")).collect();
    let line = clean.join("\t") + "\n";
    let written =
        OpenOptions::new().append(true).create(true).open(&path).and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        say(&format!("testkit: the ledger {} cannot be written: {error}", Path::new(&path).display()));
    }
}

fn test_name() -> String {
    let binary = env::current_exe().ok();
    let stem = binary.as_deref().and_then(Path::file_stem).and_then(|stem| stem.to_str()).unwrap_or("test");
    // Cargo adds a hash to the file's name.
    let binary = stem.rsplit_once('-').map_or(stem, |(name, _)| name);
    format!("{binary}::{}", thread::current().name().unwrap_or("unnamed"))
}
