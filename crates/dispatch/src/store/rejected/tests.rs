//! Rejected records on both databases: how they are kept, who may have them, and whether a tenant is there to have their event.

use time::macros::datetime;

use super::*;
use crate::store::tests::{each_store, tenants_of};

#[tokio::test]
async fn a_record_comes_back_as_it_was_read_until_it_is_deleted() {
    each_store(async |store| {
        let at = datetime!(2026-11-15 10:42:02.191 UTC);
        let record = NewRejected {
            id: "rej_1".to_owned(),
            tenant: Some("acme".to_owned()),
            topic: "t".into(),
            partition: 3,
            offset: 7,
            at,
            key: None,
            value: b"{\0\xff".to_vec(),
            headers: vec![("a\"b".to_owned(), b"c\0".to_vec()), ("d".to_owned(), b"\xffe".to_vec())],
            reason: "event_too_large",
            detail: "because".to_owned(),
        };
        store.keep_rejected(&[record]).await.unwrap();
        let (kept, key, value) = store.rejected_record(Some("acme"), "rej_1").await.unwrap().unwrap();
        assert_eq!((kept.partition, kept.offset, kept.at), (3, 7, at));
        assert_eq!((key, value), (None, b"{\0\xff".to_vec()));
        let headers = [("a\"b", "c\0"), ("d", "\u{fffd}e")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(kept.named_headers().unwrap(), headers);
        assert!(store.rejected_record(Some("other"), "rej_1").await.unwrap().is_none());
        assert!(!store.delete_rejected(Some("other"), "rej_1").await.unwrap());
        assert!(store.delete_rejected(None, "rej_1").await.unwrap());
        assert!(!store.delete_rejected(Some("acme"), "rej_1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_tenant_is_there_from_when_it_was_made_until_it_is_deleted() {
    each_store(async |store| {
        assert!(store.has_tenant("default").await.unwrap() && store.has_tenant("acme").await.unwrap());
        assert!(!store.has_tenant("ghost").await.unwrap());
        assert!(tenants_of(&store).delete_tenant("dev", "acme", Vec::new()).await.unwrap());
        assert!(!store.has_tenant("acme").await.unwrap());
    })
    .await;
}
