//! What an event must be, also where it is only asked about.

use platform::{http_client::Reachable, secret::Secret};
use serde_json::json;
use tenancy::vault::Vault;

use super::*;
use crate::{announce::Announcer, store::tests::open};

const MOST: usize = 2000;

pub(crate) async fn intake(folder: &std::path::Path) -> Intake {
    let store = open("", folder).await;
    let catalog = Catalog::new(store.clone(), Vault::new(&Secret::new("00".repeat(32))).unwrap(), Reachable::default());
    let workers = Workers { here: None, elsewhere: Announcer::default() };
    let lease = Lease { owner: "nobody".into(), length: Duration::from_secs(60) };
    let config = Config {
        poll_interval: Duration::from_secs(1),
        batch_size: 10,
        lease: lease.length,
        max_in_flight: 10,
        max_events: 10,
        max_event: MOST,
        retention: Duration::from_secs(86_400),
        allow_networks: Vec::new(),
    };
    Intake::start(store, catalog, workers, lease, &config, None, &Tasks::new())
}

/// Who asked was told who would receive it, and who sent it was refused.
#[tokio::test]
async fn what_could_not_be_sent_in_is_refused_where_it_is_only_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let intake = intake(folder.path()).await;
    let nested = format!(r#"{{"type": "a.b", "data": {}{}}}"#, "[".repeat(DEEPEST + 1), "]".repeat(DEEPEST + 1));
    for (body, field) in [
        (json!({"type": "a b", "data": 1}).to_string(), "type"),
        (json!({"type": "a.b"}).to_string(), "data"),
        (json!({"type": "a.b", "data": 1, "topic": "x"}).to_string(), "topic"),
        (json!({"type": "a.b", "data": 1, "id": "a\r\nb"}).to_string(), "id"),
        (json!({"type": "a.b", "data": 1, "source": ""}).to_string(), "source"),
        (json!({"type": "a.b", "data": 1, "ordering_key": "a\u{0}"}).to_string(), "ordering_key"),
        (json!({"type": "a.b", "data": 1, "deliver_at": "9999-12-31T23:59:58Z"}).to_string(), "deliver_at"),
        (json!({"type": "a.b", "data": "x".repeat(MOST)}).to_string(), "data"),
        (nested, "data"),
    ] {
        let sent = intake.read_good(body.as_bytes()).unwrap_err();
        let asked = intake.read_to_explain(body.as_bytes()).map(drop).unwrap_err();
        assert_eq!(sent.wrong_field(), Some(field), "{body}");
        assert_eq!((asked.code(), asked.wrong_field()), (sent.code(), sent.wrong_field()), "{body}");
        assert_eq!(asked.detail(), sent.detail());
    }
    let ours = br#"{"type": "delivery.failed", "data": {}, "source": "tidegate"}"#;
    assert_eq!(intake.read_good(ours).unwrap_err().wrong_field(), Some("source"));
    assert!(intake.read_to_explain(ours).is_ok(), "who would be told of it?");
}

#[test]
fn an_event_that_is_too_large_is_told_what_to_do() {
    let problem = too_large("9 bytes", 8);
    assert_eq!((problem.code(), problem.wrong_field()), ("event_too_large", Some("data")));
    assert!(problem.detail().contains("dispatch.max_event allows 8: send less data"), "{}", problem.detail());
}
