//! One file of Envoy ratelimit's configuration, read and checked. What is wrong is told with its line and the fix.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{
    Unit,
    tree::{Children, Domain, Limit, Node},
};
use crate::{engine::envoy_rate, file::Mistake, rule::Algorithm};

/// Descriptors inside descriptors; a request has no more entries than this.
const MOST_DEPTH: usize = 32;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIn {
    domain: String,
    #[serde(default)]
    descriptors: Vec<Spanned<DescriptorIn>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescriptorIn {
    key: String,
    #[serde(default)]
    value: String,
    rate_limit: Option<Spanned<RateLimitIn>>,
    #[serde(default)]
    descriptors: Vec<Spanned<DescriptorIn>>,
    #[serde(default)]
    shadow_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    /// Metrics name the request's value; ours are bounded, so it means the same as `detailed_metric`.
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    share_threshold: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimitIn {
    name: Option<String>,
    unit: Option<String>,
    requests_per_unit: Option<u32>,
    #[serde(default)]
    unlimited: bool,
    #[serde(default)]
    replaces: Vec<ReplacesIn>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplacesIn {
    name: String,
}

/// The domain that a file describes, and its name.
pub(crate) fn parse(text: &str, algorithm: Algorithm) -> Result<(Box<str>, Domain), Mistake> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: FileIn = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        Mistake::new(line, "", first_sentence(&error.to_string()))
    })?;
    if file.domain.is_empty() {
        return Err(Mistake::new(1, "domain", "a file needs the domain that Envoy sends, and it may not be empty"));
    }
    let reader = Reader { algorithm };
    let root = Place { path: file.domain.clone(), shared: Vec::new() };
    let children = reader.children(&root, &file.descriptors)?;
    let root = Node { limit: None, children };
    Ok((file.domain.into(), Domain { root }))
}

fn first_sentence(text: &str) -> String {
    text.lines().next().unwrap_or("it is not YAML").to_owned()
}

struct Reader {
    algorithm: Algorithm,
}

/// Where a descriptor stands: see [`Limit`].
struct Place {
    path: String,
    shared: Vec<Option<Arc<str>>>,
}

impl Place {
    fn below(&self, written: &DescriptorIn) -> Place {
        let DescriptorIn { key, value, share_threshold, .. } = written;
        let path = match value.as_str() {
            "" => format!("{}.{key}", self.path),
            value => format!("{}.{key}_{value}", self.path),
        };
        let mut shared = self.shared.clone();
        shared.push(share_threshold.then(|| value.as_str().into()));
        Place { path, shared }
    }
}

impl Reader {
    fn children(&self, parent: &Place, all: &[Spanned<DescriptorIn>]) -> Result<Children, Mistake> {
        let mut children = Children::default();
        for descriptor in all {
            let line = descriptor.defined.line();
            let written = &descriptor.value;
            if written.key.is_empty() {
                return Err(Mistake::new(line, "key", "a descriptor needs a key"));
            }
            let place = parent.below(written);
            if place.shared.len() > MOST_DEPTH {
                return Err(Mistake::new(line, "descriptors", format!("at most {MOST_DEPTH} levels can be nested")));
            }
            if written.share_threshold && !written.value.ends_with('*') {
                let problem = "only values that a * at the end of `value` stands for can share a limit";
                return Err(Mistake::new(line, "share_threshold", problem));
            }
            let node = self.node(&place, line, written)?;
            if !insert(&mut children, written, node) {
                let problem = format!("the descriptor {:?} is there already: join the two", place.path);
                return Err(Mistake::new(line, "key", problem));
            }
        }
        Ok(children)
    }

    fn node(&self, place: &Place, line: u64, written: &DescriptorIn) -> Result<Node, Mistake> {
        let limit = written.rate_limit.as_ref().map(|limit| self.limit(place, line, written, limit)).transpose()?;
        let children = self.children(place, &written.descriptors)?;
        Ok(Node { limit: limit.map(Arc::new), children })
    }

    fn limit(
        &self,
        place: &Place,
        line: u64,
        written: &DescriptorIn,
        limit: &Spanned<RateLimitIn>,
    ) -> Result<Limit, Mistake> {
        let (line, RateLimitIn { name, unit, requests_per_unit, unlimited, replaces }) =
            (limit.defined.line().max(line), &limit.value);
        let wrong = |field, problem: String| Err(Mistake::new(line, field, problem));
        let rate = match (unlimited, unit, requests_per_unit) {
            (true, None, None) => None,
            (true, ..) => return wrong("unlimited", "it has no unit and no requests_per_unit: take them away".into()),
            (false, None, _) => return wrong("unit", format!("a limit needs a unit: {UNITS}")),
            (false, _, None) => return wrong("requests_per_unit", "a limit needs a number of requests".into()),
            (false, Some(unit), Some(requests)) => {
                let Some(known) = Unit::parse(unit) else {
                    return wrong("unit", format!("{unit:?} is not a unit: use {UNITS}"));
                };
                match envoy_rate(self.algorithm, *requests, known) {
                    Ok(rate) => Some(rate),
                    Err(error) => return wrong("requests_per_unit", error.to_string()),
                }
            }
        };
        if let Some(own) = replaces.iter().find(|one| one.name.is_empty() || Some(&one.name) == name.as_ref()) {
            return wrong("replaces", format!("{:?} is not the name of another limit", own.name));
        }
        Ok(Limit {
            path: place.path.as_str().into(),
            name: name.as_deref().map(Into::into),
            replaces: replaces.iter().map(|one| one.name.as_str().into()).collect(),
            rate,
            is_shadow: written.shadow_mode,
            is_detailed: written.detailed_metric || written.value_to_metric,
            shared: place.shared.clone(),
            meters: OnceLock::new(),
        })
    }
}

const UNITS: &str = "second, minute, hour, day, week, month or year";

/// False if the same descriptor is there already.
fn insert(children: &mut Children, written: &DescriptorIn, node: Node) -> bool {
    let key: Box<str> = written.key.as_str().into();
    if written.value.is_empty() {
        return children.any.insert(key, node).is_none();
    }
    if let Some(beginning) = written.value.strip_suffix('*') {
        let beginnings = children.beginnings.entry(key).or_default();
        let is_new = !beginnings.iter().any(|(known, _)| **known == *beginning);
        beginnings.push((beginning.into(), node));
        return is_new;
    }
    children.valued.entry(key).or_default().insert(written.value.as_str().into(), node).is_none()
}
