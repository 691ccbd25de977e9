//! Serves the receiver's connections: the HTTP library reads requests and gives decent answers; for the others the
//! socket is taken from it.

use std::{
    convert::Infallible,
    future, net,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Response, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{Answer, Here, Request, State, Verdict, script, signature};

/// Tests that send more than this test something else.
const LONGEST_BODY: usize = 64 << 20;

pub(super) fn run(listener: net::TcpListener, state: Arc<State>, ended: oneshot::Receiver<()>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can start");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a listener can be set to non-blocking");
        let listener = TcpListener::from_std(listener).expect("the runtime takes a listener");
        let accepting = async {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    let number = state.connections.fetch_add(1, Ordering::AcqRel);
                    tokio::spawn(connection(stream, number, Arc::clone(&state)));
                }
            }
        };
        tokio::select! {
            () = accepting => (),
            _ = ended => (),
        }
    });
}

async fn connection(stream: TcpStream, number: u64, state: Arc<State>) {
    let (is_silent, idle) = {
        let rules = state.rules();
        (rules.is_silent, rules.idle)
    };
    if is_silent {
        // Held open, unread, until the receiver ends.
        let _held = stream;
        return future::pending().await;
    }
    drop(stream.set_nodelay(true));
    let (take_over, mut taken_over) = mpsc::channel(1);
    let (idle_since, watching) = watch::channel(None);
    let service = service_fn(|request| {
        let (answer, idle_since) = (serve(request, number, Arc::clone(&state), take_over.clone()), &idle_since);
        Box::pin(async move {
            idle_since.send_replace(None);
            let answer = answer.await;
            idle_since.send_replace(Some(Instant::now()));
            answer
        })
    });
    let mut serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error is the other side's, and shows there.
        _ = &mut serving => (),
        Some(answer) = taken_over.recv() => {
            // The other side may be gone in the middle of any of these answers.
            drop(script::play(&answer, serving.into_parts().io.into_inner()).await);
        }
        () = idle_for(idle, watching) => (),
    }
}

/// Returns when a connection has been idle for this long after an answer. A new one may take its time.
async fn idle_for(idle: Option<Duration>, mut since: watch::Receiver<Option<Instant>>) {
    let Some(idle) = idle else { return future::pending().await };
    loop {
        let answered = *since.borrow_and_update();
        let rest = answered.map_or(Duration::MAX, |at| idle.saturating_sub(at.elapsed()));
        if timeout(rest, since.changed()).await.is_err() {
            return;
        }
    }
}

async fn serve(
    request: http::Request<Incoming>,
    connection: u64,
    state: Arc<State>,
    take_over: mpsc::Sender<Answer>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (at, at_wall) = (Instant::now(), SystemTime::now());
    let _here = Here::new(&state);
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LONGEST_BODY).collect().await else {
        return Ok(response(StatusCode::PAYLOAD_TOO_LARGE.as_u16()));
    };
    let body = body.to_bytes();
    let path = head.uri.path().to_owned();
    let id = head.headers.get("webhook-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let (verdict, delay, answer) = {
        let mut rules = state.rules();
        let now_s = at_wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let verdict = signature::verify(&rules.secrets, &head.headers, &body, now_s);
        let (delay, answer) = rules.decide(&path, id.as_deref());
        (verdict, delay, answer)
    };
    let is_accepted = matches!(verdict, Verdict::Valid | Verdict::NotAsked);
    let query = head.uri.query().map(str::to_owned);
    let (method, headers) = (head.method, head.headers);
    state.record.add(Request { at, at_wall, method, path, query, headers, body, verdict, connection });
    sleep(delay).await;
    if !is_accepted {
        return Ok(response(StatusCode::UNAUTHORIZED.as_u16()));
    }
    match answer {
        Answer::Status(status) => Ok(response(status)),
        Answer::Full { status, headers, body } => {
            let mut full = response(status);
            for (name, value) in headers {
                full.headers_mut().append(name, value.parse().expect("a test gives headers that can be sent"));
            }
            *full.body_mut() = Full::new(body.into());
            Ok(full)
        }
        Answer::RetryAfter { status, value } => {
            let mut busy = response(status);
            busy.headers_mut().insert(RETRY_AFTER, value.parse().expect("a test gives a value that can be sent"));
            Ok(busy)
        }
        other => {
            take_over.send(other).await.ok();
            future::pending().await
        }
    }
}

fn response(status: u16) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(status).expect("a test gives a status that exists");
    let text = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
