//! For tests that run random histories through the rules and through Redis: a runtime, a connection, a manual clock.

use std::future::Future;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config as Cases, TestCaseError, TestRunner};

use crate::redis::{Config, Redis};
use crate::{Backend, Clock, Holder, Key, fallback};

pub(crate) struct Rig {
    runtime: tokio::runtime::Runtime,
    pub(crate) redis: Redis,
    pub(crate) clock: Clock,
}

impl Rig {
    pub(crate) fn new(server: &testkit::redis::Shared) -> Rig {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let clock = Clock::manual(0);
        let config = Config { prefix: server.prefix().to_owned(), ..Config::new(server.url()) };
        let backend = {
            let _guard = runtime.enter();
            Backend::redis_with(config, fallback::Config::default(), clock.clone()).unwrap()
        };
        Rig { runtime, redis: backend.shared.unwrap(), clock }
    }

    /// Waits for one operation of Redis, which must succeed.
    pub(crate) fn ask<T>(&self, operation: impl Future<Output = Result<T, crate::Error>>) -> T {
        self.runtime.block_on(operation).unwrap()
    }

    /// A key that nobody used before.
    pub(crate) fn fresh_key() -> Key {
        Key::new(Holder::random().to_string()).unwrap()
    }

    /// Runs `cases` histories; the first that fails is made as short as it can be and printed.
    pub(crate) fn histories<S: Strategy>(
        cases: u32,
        strategy: &S,
        run: impl Fn(S::Value) -> Result<(), TestCaseError>,
    ) {
        let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(cases) });
        if let Err(failure) = runner.run(strategy, run) {
            panic!("{failure}");
        }
    }
}
