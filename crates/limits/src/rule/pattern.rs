//! Which keys a rule speaks for: one, or all that fit a text with `*`.

/// `*` stands for any run of bytes, also an empty one, also across `/` and `:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    /// Bytes before the first `*`; all of them if there is none.
    literal: usize,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        Pattern { text: text.into(), literal: text.find('*').unwrap_or(text.len()) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_exact(&self) -> bool {
        self.literal == self.text.len()
    }

    /// What every key that fits begins with. The longer it is, the more the pattern says.
    pub fn prefix(&self) -> &str {
        &self.text[..self.literal]
    }

    /// Must a key that begins so be searched for more? If not, one look at the beginning is all it takes.
    pub fn is_searched(&self) -> bool {
        self.text[self.literal..].bytes().any(|byte| byte != b'*')
    }

    pub fn matches(&self, key: &str) -> bool {
        match key.strip_prefix(self.prefix()) {
            Some(rest) => fits(&self.text[self.literal..], rest),
            None => false,
        }
    }
}

/// Linear: the end is where it must be, and each piece between two stars is best found as early as it can be.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((pieces, end)) = pattern.rsplit_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_suffix(end) else { return false };
    for piece in pieces.split('*') {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}
