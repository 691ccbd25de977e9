//! Which lines of a body are accepted together, and how large one may be that is read whole.

use super::*;

/// Numbers, each after a pause in milliseconds.
async fn chunked(pauses_ms: Vec<u64>) -> Vec<Vec<usize>> {
    let items = stream::iter(pauses_ms.into_iter().enumerate()).then(async |(number, pause_ms)| {
        if pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        number
    });
    chunks(items.boxed()).collect().await
}

#[tokio::test(start_paused = true)]
async fn lines_that_come_in_pieces_are_accepted_together() {
    assert_eq!(chunked(vec![0, 0, 1, 0]).await, [[0, 1, 2, 3]]);
    assert_eq!(chunked(vec![]).await, Vec::<Vec<usize>>::new());
}

#[tokio::test(start_paused = true)]
async fn a_slow_sender_does_not_wait_for_the_lines_that_it_has_not_sent() {
    assert_eq!(chunked(vec![0, 0, 60_000, 0, 10]).await, [vec![0, 1], vec![2, 3], vec![4]]);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_holds_only_so_many_and_the_end_of_the_body_ends_it_at_once() {
    let started = tokio::time::Instant::now();
    let chunks = chunked(vec![0; CHUNK + 1]).await;
    assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK, 1]);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// Blanks around an event stayed in memory with it, and were not counted.
#[tokio::test]
async fn a_line_is_counted_as_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let intake = crate::intake::tests::intake(folder.path()).await;
    let body = format!("{}{{}}\r\n\n{{}}\n{}", " ".repeat(30 << 10), "x".repeat(50 << 10));
    let mut lines: Vec<Item> = lines(Body::from(body), &intake, &"acme".into(), 40 << 10).collect().await;
    let problem = lines.pop().unwrap().unwrap_err();
    assert_eq!(problem.code(), "event_too_large");
    let counted = lines.into_iter().flatten().map(|(event, memory)| (event, memory.map(|memory| memory.bytes())));
    assert_eq!(counted.collect::<Vec<_>>(), [("{}".into(), Some(31 << 10)), ("{}".into(), Some(1 << 10))]);
}

/// An event of 9 MiB was allowed, and could be sent as NDJSON alone.
#[test]
fn a_body_has_room_for_the_largest_event_and_one_that_is_larger_is_told_what_to_do() {
    assert_eq!(largest_body(1 << 20), LARGEST_BODY);
    assert!(largest_body(16 << 20) >= (16 << 20) + "[]".len());
    let problem = body_too_large(LARGEST_BODY);
    assert_eq!((problem.code(), problem.wrong_field()), ("body_too_large", Some("body")));
    assert!(problem.detail().contains("8388608 bytes: send its events as NDJSON"), "{}", problem.detail());
}
