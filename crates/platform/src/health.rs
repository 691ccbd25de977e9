//! What this process depends on, and whether it can do its job.
//!
//! A dependency that is `required` and down makes the process not ready (503); one that is not makes it degraded (200).
//! Liveness asks nobody: a process that turns is alive, or an orchestrator would kill all of them when a database stops.
//!
//! Anyone may ask, so however many do, dependencies are asked once at a time and a few times a second; and who goes
//! away in the middle leaves no question half asked.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use serde::Serialize;
use tokio::{
    sync::{Mutex, oneshot},
    time::Instant,
};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::shutdown::Tasks;

pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
const REMEMBERED_FOR: Duration = Duration::from_millis(250);

type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;
type Need = Arc<dyn Fn() -> bool + Send + Sync>;

/// The process's dependencies. Cheap to clone.
#[derive(Clone)]
pub struct Health {
    dependencies: Arc<Vec<Dependency>>,
    found: Arc<Mutex<Option<Found>>>,
    tasks: Tasks,
}

/// What the dependencies said, in their order.
#[derive(Clone)]
struct Found {
    at: Instant,
    outcomes: Arc<[Outcome]>,
}

struct Outcome {
    took: Duration,
    error: Option<String>,
}

struct Dependency {
    name: &'static str,
    is_required: Need,
    check: Check,
}

/// Collects dependencies while the process is put together.
#[derive(Default)]
pub struct Builder(Vec<Dependency>);

impl Builder {
    /// Without it this replica cannot do its job.
    #[must_use]
    pub fn required<F>(self, name: &'static str, check: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.required_while(name, || true, check)
    }

    /// Without it this replica works with less precision or speed.
    #[must_use]
    pub fn optional<F>(self, name: &'static str, check: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.required_while(name, || false, check)
    }

    /// Required or optional, as things stand when it is asked.
    #[must_use]
    pub fn required_while<F>(
        mut self,
        name: &'static str,
        is_required: impl Fn() -> bool + Send + Sync + 'static,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let (is_required, check): (Need, Check) = (Arc::new(is_required), Arc::new(move || Box::pin(check())));
        self.0.push(Dependency { name, is_required, check });
        self
    }

    pub fn build(self, tasks: Tasks) -> Health {
        Health { dependencies: Arc::new(self.0), found: Arc::default(), tasks }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Report {
    pub status: Status,
    pub dependencies: Vec<DependencyReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = HealthStatus)]
pub enum Status {
    Ready,
    Degraded,
    NotReady,
    ShuttingDown,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct DependencyReport {
    pub name: &'static str,
    pub ok: bool,
    pub required: bool,
    pub duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Health {
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub async fn report(&self) -> Report {
        let outcomes = self.outcomes().await;
        let dependencies: Vec<DependencyReport> =
            self.dependencies.iter().zip(&*outcomes).map(|(dependency, outcome)| dependency.report(outcome)).collect();
        let status = if self.tasks.leaving().is_cancelled() {
            Status::ShuttingDown
        } else if dependencies.iter().any(|dependency| dependency.required && !dependency.ok) {
            Status::NotReady
        } else if dependencies.iter().any(|dependency| !dependency.ok) {
            Status::Degraded
        } else {
            Status::Ready
        };
        Report { status, dependencies }
    }

    async fn outcomes(&self) -> Arc<[Outcome]> {
        let mut found = Arc::clone(&self.found).lock_owned().await;
        if let Some(known) = found.as_ref().filter(|known| known.at.elapsed() < REMEMBERED_FOR) {
            return Arc::clone(&known.outcomes);
        }
        let (dependencies, (send, asked)) = (Arc::clone(&self.dependencies), oneshot::channel());
        // A task of its own: who asked may go away, and a connection in the middle of a question is of no use to others.
        self.tasks.spawn_servant("health check", async move {
            let outcomes: Arc<[Outcome]> = join_all(dependencies.iter().map(check)).await.into();
            *found = Some(Found { at: Instant::now(), outcomes: Arc::clone(&outcomes) });
            drop(send.send(outcomes));
        });
        let unanswered = || Outcome { took: Duration::ZERO, error: Some("it could not be asked".to_owned()) };
        asked.await.unwrap_or_else(|_| self.dependencies.iter().map(|_| unanswered()).collect())
    }
}

impl Dependency {
    fn report(&self, outcome: &Outcome) -> DependencyReport {
        DependencyReport {
            name: self.name,
            ok: outcome.error.is_none(),
            required: (self.is_required)(),
            duration_ms: (outcome.took.as_secs_f64() * 1e6).round() / 1e3,
            error: outcome.error.clone(),
        }
    }
}

/// `/health/live` and `/health/ready`, for every listener.
pub fn routes() -> OpenApiRouter<Health> {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(ready))
}

async fn check(dependency: &Dependency) -> Outcome {
    let started = Instant::now();
    let outcome = tokio::time::timeout(CHECK_TIMEOUT, (dependency.check)())
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {CHECK_TIMEOUT:?}")));
    Outcome { took: started.elapsed(), error: outcome.err() }
}

/// Does the process turn?
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses((status = 200, body = String)))]
async fn live() -> &'static str {
    "alive\n"
}

/// Can this replica do its job?
///
/// Each dependency with the time it took to answer. A lost dependency that it can work without is `degraded`, not an error.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()), responses(
    (status = 200, body = Report), (status = 503, description = "it cannot, or it is shutting down", body = Report)))]
async fn ready(State(health): State<Health>) -> Response {
    let report = health.report().await;
    let status = match report.status {
        Status::Ready | Status::Degraded => StatusCode::OK,
        Status::NotReady | Status::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = (status, Json(report)).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn with(required: Result<(), String>, optional: Result<(), String>) -> Health {
        Health::builder()
            .required("database", move || std::future::ready(required.clone()))
            .optional("redis", move || std::future::ready(optional.clone()))
            .build(Tasks::new())
    }

    #[tokio::test]
    async fn only_a_required_dependency_makes_it_unready() {
        let down = || Err("refused".to_owned());
        assert_eq!(with(Ok(()), Ok(())).report().await.status, Status::Ready);
        assert_eq!(with(Ok(()), down()).report().await.status, Status::Degraded);
        assert_eq!(with(down(), Ok(())).report().await.status, Status::NotReady);
    }

    #[tokio::test]
    async fn whether_it_is_required_is_asked_each_time() {
        let is_needed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let asked = Arc::clone(&is_needed);
        let need = move || asked.load(std::sync::atomic::Ordering::Relaxed);
        let down = || std::future::ready(Err("refused".to_owned()));
        let health = Health::builder().required_while("database", need, down).build(Tasks::new());
        assert_eq!(health.report().await.status, Status::Degraded);
        is_needed.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(health.report().await.status, Status::NotReady);
    }

    #[tokio::test]
    async fn leaving_is_not_ready_even_when_all_is_well() {
        let health = with(Ok(()), Ok(()));
        health.tasks.leave();
        assert_eq!(health.report().await.status, Status::ShuttingDown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_is_a_failure_with_a_reason() {
        let health = Health::builder().required("database", std::future::pending).build(Tasks::new());
        let report = health.report().await;
        assert_eq!(report.status, Status::NotReady);
        assert_eq!(report.dependencies[0].error.as_deref(), Some("no answer within 2s"));
    }

    /// A dependency that counts how often it is asked, and answers when it is let go.
    fn counted() -> (Health, Arc<AtomicUsize>, Arc<tokio::sync::Semaphore>) {
        let (asked, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
        let (count, may_answer) = (Arc::clone(&asked), Arc::clone(&answers));
        let check = move || {
            count.fetch_add(1, Ordering::Relaxed);
            let may_answer = Arc::clone(&may_answer);
            async move { may_answer.acquire().await.map(|permit| permit.forget()).map_err(|error| error.to_string()) }
        };
        (Health::builder().required("database", check).build(Tasks::new()), asked, answers)
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_a_dependency_is_asked_once_at_a_time_and_a_few_times_a_second() {
        let (health, asked, answers) = counted();
        answers.add_permits(2);
        let reports = join_all((0..1000).map(|_| health.report())).await;
        assert!(reports.iter().all(|report| report.status == Status::Ready));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        tokio::time::sleep(REMEMBERED_FOR).await;
        assert_eq!(health.report().await.status, Status::Ready);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_goes_on_when_who_asked_it_has_gone() {
        let (health, asked, answers) = counted();
        assert!(tokio::time::timeout(Duration::from_millis(1), health.report()).await.is_err());
        answers.add_permits(1);
        assert_eq!(health.report().await.status, Status::Ready);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_check_that_panics_is_a_failure() {
        let panics = || async { if true { panic!("on purpose") } else { Ok(()) } };
        let health = Health::builder().required("database", panics).build(Tasks::new());
        assert_eq!(health.report().await.status, Status::NotReady);
    }
}
