//! Extractors that answer bad input with a [`Problem`] naming the field and the fix, and the pages lists come in.

mod body;
mod page;
mod query;
mod words;

use std::{error::Error as _, fmt, marker::PhantomData};

use axum::{
    RequestExt,
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::Body as _;
use serde::{
    Deserialize, Serialize,
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
        value::MapAccessDeserializer,
    },
};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

pub use self::page::{Page, PageQuery, cursor, cursor_of_chosen, limit_within, no_cursor};
use crate::problem::Problem;

/// A JSON body. Unknown fields, wrong types and broken JSON are problems that name the place.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        require_json(request.headers())?;
        parse_json(&whole_body(request).await?).map(Json)
    }
}

/// The bytes of a JSON body, for a handler that reads them by itself, without a copy.
pub struct JsonText(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        require_json(request.headers())?;
        whole_body(request).await.map(JsonText)
    }
}

/// A JSON body that may be left out; then it is the default.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let body = whole_body(request).await?;
        if body.is_empty() { Ok(OptionalJson(T::default())) } else { parse_json(&body).map(OptionalJson) }
    }
}

/// No body, or `{}`: a route that takes none must not seem to have understood one.
pub struct NoBody;

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        match whole_body(request).await?.trim_ascii() {
            b"" | b"{}" => Ok(NoBody),
            _ => {
                let detail = "this route takes no body: send none, or {}";
                Err(Problem::new(StatusCode::BAD_REQUEST, "unexpected_body", detail))
            }
        }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// Reads a JSON object into `T`; the problem names the path of the field, or the line and column of the syntax error.
pub fn parse_json<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    if body.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_json", "the body is empty: send a JSON object"));
    }
    if !is_object(body) {
        parse_any::<IgnoredAny>(body)?;
        let detail = "the body is not an object: an object is expected, in braces";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", detail));
    }
    parse_any(body)
}

/// The same for the few bodies that are arrays. Of more than so many the rest is only seen to be JSON: a small body may have
/// millions.
pub fn parse_json_array<'de, T: Deserialize<'de>>(body: &'de [u8], at_most: usize) -> Result<Vec<T>, Problem> {
    parse_with(body, First { at_most, of: PhantomData })
}

struct First<T> {
    at_most: usize,
    of: PhantomData<T>,
}

impl<T> Clone for First<T> {
    fn clone(&self) -> Self {
        First { ..*self }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for First<T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut first = Vec::new();
        while first.len() < self.at_most
            && let Some(item) = items.next_element()?
        {
            first.push(item);
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

/// Can this be an object? serde also reads a struct from an array, in the order of its fields, which nobody means.
pub fn is_object(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'{')
}

/// The same inside a body: reads `T` from an object and from nothing else.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InBraces<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InBraces<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(InBraces(PhantomData)).map(Object)
    }
}

/// For a field that is an object or absent: `#[serde(deserialize_with = "object")]`.
pub fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(value)| value))
}

/// For a time that may be absent: `#[serde(default, deserialize_with = "utc")]`. Whatever its offset, it becomes UTC, and lies in
/// the years that can be written and stored.
pub fn utc<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OffsetDateTime>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let read = OffsetDateTime::parse(&text, &Rfc3339)
        .map_err(|_| D::Error::custom(format!("it must be {}", words::A_TIME)))?;
    let at = read.checked_to_offset(UtcOffset::UTC).filter(|at| at.year() >= 0);
    at.map(Some).ok_or_else(|| D::Error::custom("in UTC this time lies outside of the years 0000 to 9999"))
}

fn parse_any<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    parse_with(body, PhantomData)
}

fn parse_with<'de, S: DeserializeSeed<'de> + Clone>(body: &'de [u8], seed: S) -> Result<S::Value, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = seed.clone().deserialize(&mut deserializer).map_err(|cause| body::problem(body, seed, cause))?;
    deserializer.end().map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not one JSON value: {error}"))
    })?;
    Ok(value)
}

/// Refuses a body that says of itself that it is not JSON.
pub fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    require_plain(headers)?;
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let content_type = content_type.to_str().unwrap_or_default();
    if is_json(content_type) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        format!("{:?} is not understood here: send content-type: application/json", media_type(content_type)),
    ))
}

/// Refuses a body that is compressed.
pub fn require_plain(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "compressed bodies are not understood here: send it as it is, without content-encoding",
        )),
        _ => Ok(()),
    }
}

/// May a body of this content type be read as JSON?
pub fn is_json(content_type: &str) -> bool {
    let media_type = media_type(content_type);
    // curl's -d says x-www-form-urlencoded unless told otherwise; a JSON body under it is still a JSON body.
    media_type.rsplit(['/', '+']).next().is_some_and(|last| last.eq_ignore_ascii_case("json"))
        || media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The body, which is over with its last announced byte. Most bodies are one frame that came with the head, and whoever
/// also waits to hear that nothing follows is woken once more for it.
async fn whole_body(request: Request) -> Result<Bytes, Problem> {
    let mut body = request.into_limited_body();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable_body(&error))?.into_data() else { continue };
        let is_over = body.is_end_stream();
        if is_over && whole.is_empty() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
        if is_over {
            break;
        }
    }
    Ok(whole.freeze())
}

fn unreadable_body(error: &axum::Error) -> Problem {
    if error.source().is_some_and(|cause| cause.is::<LengthLimitError>()) {
        return Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "the body is larger than server.max_body allows: send less at a time, or raise it",
        );
    }
    Problem::new(StatusCode::BAD_REQUEST, "unreadable_body", "the body ended early or could not be read")
}

/// The variable parts of a path; one that is not text, or that no database can be asked for, is a problem.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let invalid = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "invalid_path", detail);
        let raw = RawPathParams::from_request_parts(parts, state).await;
        let raw = raw.map_err(|rejection| invalid(rejection.body_text()))?;
        if let Some((name, _)) = raw.iter().find(|(_, text)| text.contains('\0')) {
            return Err(invalid(format!("{name} holds a NUL character (%00): nothing is called so")).field(name));
        }
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|path| Path(path.0)).map_err(|rejection| invalid(rejection.body_text()))
    }
}

/// Query parameters; one that is unknown, ill-typed or no text is a problem that says which.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        query::require_text(parts.uri.query().unwrap_or_default())?;
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|query| Query(query.0))
            .map_err(|rejection| query::problem(&rejection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "mostly its reading is tested")]
    struct Body {
        name: String,
        tags: Vec<u8>,
    }

    fn problem(body: &str) -> serde_json::Value {
        serde_json::to_value(parse_json::<Body>(body.as_bytes()).unwrap_err()).unwrap()
    }

    #[test]
    fn a_wrong_type_names_its_path() {
        let problem = problem(r#"{"name":"a","tags":[1,"x"]}"#);
        assert_eq!(problem["field"], "tags[1]");
        assert_eq!(
            problem["detail"],
            "invalid type: string \"x\", expected a whole number, not negative and not a huge one"
        );
        assert_eq!(problem["status"], 422);
    }

    #[test]
    fn a_missing_field_is_named_with_its_place() {
        assert_eq!(problem(r#"{"tags":[]}"#)["field"], "name");
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only what it lacks is tested")]
        struct Bodies {
            all: Vec<Body>,
        }
        let inner = parse_json::<Bodies>(br#"{"all":[{"name":"a"}]}"#).unwrap_err();
        assert_eq!(serde_json::to_value(inner).unwrap()["field"], "all[0].tags");
    }

    #[test]
    fn an_unknown_field_is_named() {
        let problem = problem(r#"{"name":"a","tags":[],"nmae":1}"#);
        assert_eq!(problem["field"], "nmae");
    }

    #[test]
    fn times_become_utc_and_stay_within_its_years() {
        #[derive(Debug, Deserialize)]
        struct Timed {
            #[serde(default, deserialize_with = "utc")]
            at: Option<OffsetDateTime>,
        }

        let read = |at: &str| parse_json::<Timed>(format!(r#"{{"at":"{at}"}}"#).as_bytes());
        let at = read("2026-11-16T05:00:00+05:00").unwrap().at.unwrap();
        assert_eq!((at.offset(), at.hour()), (UtcOffset::UTC, 0));
        assert!(read("9999-12-31T23:59:59Z").is_ok() && read("0000-01-01T00:00:00Z").is_ok());
        assert!(parse_json::<Timed>(br#"{"at":null}"#).unwrap().at.is_none());
        for outside in ["9999-12-31T23:59:59-00:01", "9999-12-31T01:00:00-23:59", "0000-01-01T00:00:00+00:01"] {
            let problem = serde_json::to_value(read(outside).unwrap_err()).unwrap();
            assert_eq!((&problem["status"], &problem["field"]), (&422.into(), &"at".into()), "{problem}");
            assert!(problem["detail"].as_str().unwrap().ends_with("years 0000 to 9999"), "{problem}");
        }
    }

    #[test]
    fn broken_and_trailing_json_are_bad_requests() {
        for body in ["", "{", "nope", r#"{"name":"a","tags":[]} {}"#, "\u{0}"] {
            assert_eq!(problem(body)["code"], "invalid_json", "{body}");
        }
    }

    #[test]
    fn only_an_object_is_read_as_one_and_no_type_of_ours_is_named() {
        for body in [r#"["a",[1]]"#, "[]", " \n[]", "7", "null", r#""text""#] {
            let problem = problem(body);
            assert_eq!((&problem["status"], &problem["code"]), (&422.into(), &"invalid_field".into()), "{body}");
            assert!(problem["detail"].as_str().unwrap().contains("not an object"), "{problem}");
        }
        assert_eq!(problem("[1,")["code"], "invalid_json");
        let inner = parse_json_array::<Body>(br#"["text"]"#, 9).unwrap_err();
        let inner = serde_json::to_value(inner).unwrap();
        assert_eq!(inner["detail"], "invalid type: string \"text\", expected an object");
    }

    #[test]
    fn objects_inside_a_body_are_objects_and_their_mistakes_have_a_path() {
        let read = |body: &'static str| parse_json_array::<Object<Body>>(body.as_bytes(), 9);
        assert_eq!(read(r#"[{"name":"a","tags":[1]}]"#).unwrap()[0].0.name, "a");
        let problem = |body| serde_json::to_value(read(body).err().unwrap()).unwrap();
        let array = problem(r#"[{"name":"a","tags":[1]},["a",[1]]]"#);
        assert_eq!((&array["status"], &array["field"]), (&422.into(), &"[1]".into()), "{array}");
        assert_eq!(array["detail"], "invalid type: array, expected an object");
        assert_eq!(problem(r#"[{"name":"a","tags":[1,"x"]}]"#)["field"], "[0].tags[1]");
        assert_eq!(problem(r#"[{"nmae":"a"}]"#)["field"], "[0].nmae");
    }

    /// Four million zeros in 8 MiB took a hundred of memory before anybody counted them.
    #[test]
    fn of_a_long_array_only_the_first_are_kept_and_all_of_it_is_json() {
        assert_eq!(parse_json_array::<u8>(b"[1,2,3,\"x\"]", 3).unwrap(), [1, 2, 3]);
        assert_eq!(parse_json_array::<u8>(b"[1,2]", 2).unwrap(), [1, 2]);
        for broken in ["[1,2,nope]", "[1,2,3", "[1,2,3] 4", "[1,2,,3]"] {
            let problem = serde_json::to_value(parse_json_array::<u8>(broken.as_bytes(), 2).unwrap_err()).unwrap();
            assert_eq!(problem["code"], "invalid_json", "{broken}");
        }
        let wrong = serde_json::to_value(parse_json_array::<u8>(b"[1,\"x\",3]", 2).unwrap_err()).unwrap();
        assert_eq!(wrong["field"], "[1]", "{wrong}");
    }
}
