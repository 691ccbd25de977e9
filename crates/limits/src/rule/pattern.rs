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

    pub fn matches(&self, key: &str) -> bool {
        match key.as_bytes().strip_prefix(self.prefix().as_bytes()) {
            Some(rest) => fits(&self.text.as_bytes()[self.literal..], rest),
            None => false,
        }
    }
}

/// Linear in practice and never worse than pattern times text: a star takes as little as it can, and only the last one
/// ever takes more.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((after_star, taken)) = retry {
            (p, t) = (after_star, taken + 1);
            retry = Some((after_star, taken + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
