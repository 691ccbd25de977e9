//! Which lines of a body are accepted together.

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
