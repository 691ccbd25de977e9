//! A call of one message, without the machinery of streams: most requests are one whole message in one frame, and so is
//! every answer. What is anything else goes to tonic as it came.

use axum::body::HttpBody;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use prost::{
    Message,
    bytes::{BufMut, Bytes, BytesMut},
};
use tonic::{
    Status,
    body::Body,
    codegen::{
        StdError,
        http::{HeaderMap, HeaderValue, Request, Response, header},
    },
    metadata::GRPC_CONTENT_TYPE,
};

use super::LONGEST_MESSAGE;

/// What was found in a request.
pub(super) enum Asked<M> {
    Message(HeaderMap, M),
    /// For tonic.
    Other(Request<Body>),
}

/// Reads a request.
pub(super) async fn read<M, B>(request: Request<B>) -> Asked<M>
where
    M: Message + Default,
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    let (parts, mut body) = request.into_parts();
    let first = body.frame().await;
    // Some clients end with a frame of its own that holds nothing.
    let second = if first.is_some() && !body.is_end_stream() { body.frame().await } else { None };
    let is_last = |frame| data(frame).is_some_and(Bytes::is_empty) && body.is_end_stream();
    let is_over = second.as_ref().is_none_or(is_last);
    if is_over
        && !parts.headers.contains_key("grpc-encoding")
        && let Some(message) = first.as_ref().and_then(data).and_then(decode)
    {
        return Asked::Message(parts.headers, message);
    }
    let frames = stream::iter(first.into_iter().chain(second)).chain(BodyStream::new(body));
    Asked::Other(Request::from_parts(parts, Body::new(StreamBody::new(frames))))
}

fn data<E>(frame: &Result<Frame<Bytes>, E>) -> Option<&Bytes> {
    frame.as_ref().ok()?.data_ref()
}

/// A message that is whole, not compressed and not too long; whatever is wrong is for tonic to say.
fn decode<M: Message + Default>(frame: &Bytes) -> Option<M> {
    let (&[is_compressed, ref length @ ..], message) = frame.split_first_chunk::<5>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let is_plain = is_compressed == 0 && length == message.len() && length <= LONGEST_MESSAGE;
    is_plain.then(|| M::decode(message).ok())?
}

/// The answer as tonic sends it: the message, then its status as trailers.
pub(super) fn respond(answer: Result<impl Message, Status>) -> Response<Body> {
    let message = match answer {
        Ok(message) => encode(&message),
        Err(status) => return status.into_http(),
    };
    let trailers = HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
    let frames = [Ok::<_, Status>(Frame::data(message)), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
    response
}

fn encode(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    // There is room for it.
    message.encode(&mut bytes).unwrap_or_default();
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    use super::*;
    use crate::grpc::proto::tidegate::limits::v1::CheckRequest;

    /// A body that knows when it is over, as those of HTTP/2 do.
    struct Frames(VecDeque<Bytes>);

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    fn request(frames: &[&[u8]]) -> Request<Frames> {
        Request::new(Frames(frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect()))
    }

    #[tokio::test]
    async fn one_whole_message_is_read_and_anything_else_is_left_as_it_came() {
        let message = CheckRequest { key: "user".to_owned(), ..CheckRequest::default() };
        let whole = encode(&message);
        let (start, end) = whole.split_at(7);
        let (compressed, longer) = ([&[1], &whole[1..]].concat(), [&*whole, b"x"].concat());
        for (frames, is_read) in [
            (vec![&*whole], true),
            (vec![&*whole, b""], true),
            (vec![start, end], false),
            (vec![&*whole, &*whole], false),
            (vec![&*whole, b"", b"x"], false),
            (vec![&*compressed], false),
            (vec![&*longer], false),
            (vec![&whole[..4]], false),
            (vec![b"\0\0\0\0\x03\xff\xff\xff"], false),
            (vec![], false),
        ] {
            match read::<CheckRequest, _>(request(&frames)).await {
                Asked::Message(_, read) => assert_eq!((read, is_read), (message.clone(), true), "{frames:?}"),
                Asked::Other(request) => {
                    let left = request.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!((&*left, is_read), (&*frames.concat(), false), "{frames:?}");
                }
            }
        }
        let mut gzip = request(&[&whole]);
        gzip.headers_mut().insert("grpc-encoding", HeaderValue::from_static("gzip"));
        assert!(matches!(read::<CheckRequest, _>(gzip).await, Asked::Other(_)));
    }
}
