//! Who might want a type, found without asking everyone: what names it is one look-up away, and only what is written with
//! a `*` is asked, as far as its first word fits.

use std::collections::{HashMap, HashSet};

use crate::delivery::{EventType, Matcher, event_type::Glob};

/// Where something is kept by the globs it is written with.
#[derive(PartialEq, Eq, Hash)]
enum Place {
    /// All of its globs are types, this one among them.
    Type(Box<str>),
    /// One of its globs begins with this word.
    Word(Box<str>),
    /// One of its globs takes any first word.
    Anywhere,
}

/// Things with globs, each found once by every type that it may take.
pub(super) struct Routes<T> {
    places: HashMap<Place, Vec<T>>,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Routes { places: HashMap::new() }
    }
}

impl<T: Clone> Routes<T> {
    pub(super) fn add(&mut self, matcher: &Matcher, thing: &T) {
        for place in places(matcher) {
            self.places.entry(place).or_default().push(thing.clone());
        }
    }

    /// Takes out what was added with this matcher.
    pub(super) fn remove(&mut self, matcher: &Matcher, is_it: impl Fn(&T) -> bool) {
        for place in places(matcher) {
            if let Some(kept) = self.places.get_mut(&place) {
                kept.retain(|thing| !is_it(thing));
                if kept.is_empty() {
                    self.places.remove(&place);
                }
            }
        }
    }

    /// Everything that takes this type, and some that does not.
    pub(super) fn candidates(&self, event_type: &EventType) -> impl Iterator<Item = &T> {
        let event_type = event_type.as_str();
        let word = event_type.split('.').next().unwrap_or(event_type);
        let places = [Place::Type(event_type.into()), Place::Word(word.into()), Place::Anywhere];
        places.into_iter().filter_map(|place| self.places.get(&place)).flatten()
    }
}

fn places(matcher: &Matcher) -> HashSet<Place> {
    let globs = matcher.globs();
    if globs.iter().all(Glob::is_exact) {
        return globs.iter().map(|glob| Place::Type(glob.as_str().into())).collect();
    }
    let words: Option<HashSet<Place>> =
        globs.iter().map(|glob| glob.first_word().map(|word| Place::Word(word.into()))).collect();
    words.unwrap_or_else(|| HashSet::from([Place::Anywhere]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop::sample::select(vec!["a", "b", "c", "*", "**"]), 1..4)
            .prop_map(|segments| segments.join("."))
    }

    fn event_type() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|words| words.join("."))
    }

    proptest! {
        #[test]
        fn whoever_takes_a_type_is_found_once_until_it_is_removed(
            matchers in proptest::collection::vec(proptest::collection::vec(glob(), 1..4), 1..20),
            event_type in event_type(),
        ) {
            let event_type = EventType::parse("type", &event_type).unwrap();
            let matchers: Vec<Matcher> =
                matchers.iter().map(|globs| Matcher::parse("event_types", globs).unwrap()).collect();
            let mut routes = Routes::default();
            for (number, matcher) in matchers.iter().enumerate() {
                routes.add(matcher, &number);
            }
            let wanting = |range: std::ops::Range<usize>| -> Vec<usize> {
                range.filter(|number| matchers[*number].matches(&event_type)).collect()
            };
            let found = |routes: &Routes<usize>| -> Vec<usize> {
                let candidates = routes.candidates(&event_type).copied();
                let mut found: Vec<usize> =
                    candidates.filter(|number| matchers[*number].matches(&event_type)).collect();
                found.sort_unstable();
                found
            };
            prop_assert_eq!(found(&routes), wanting(0..matchers.len()));
            let half = matchers.len() / 2;
            for (number, matcher) in matchers.iter().enumerate().take(half) {
                routes.remove(matcher, |known| *known == number);
            }
            prop_assert_eq!(found(&routes), wanting(half..matchers.len()));
            for (number, matcher) in matchers.iter().enumerate().skip(half) {
                routes.remove(matcher, |known| *known == number);
            }
            prop_assert!(routes.places.is_empty());
        }
    }
}
