//! Reads the test runner's output as it streams by and adds up its results.

/// Test runners print one result line per binary; a line that never ends is not kept for ever.
const LONGEST_LINE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    line: Vec<u8>,
}

impl Tally {
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.count(&without_colours(&String::from_utf8_lossy(&line)));
            } else if self.line.len() < LONGEST_LINE {
                self.line.push(byte);
            }
        }
    }

    /// `test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.28s`
    fn count(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for part in counts.split("; ") {
            let Some((number, word)) = part.split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => (),
            }
        }
    }
}

/// Terminals are coloured by sequences from ESC to a letter.
fn without_colours(line: &str) -> String {
    let mut is_escape = false;
    line.chars()
        .filter(|&letter| {
            let was_escape = is_escape;
            is_escape = letter == '\u{1b}' || (is_escape && !letter.is_ascii_alphabetic());
            !was_escape && !is_escape
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up_however_they_are_cut_and_coloured() {
        let mut tally = Tally::default();
        tally.read(b"running 3 tests\n.F.\ntest result: \x1b[31mFAILED\x1b[0m. 2 passed; 1 fai");
        tally.read(b"led; 0 ignored; 0 measured; 9 filtered out; finished in 0.28s\n\n");
        tally.read(b"test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured\nno test result: ok. 1 passed\n");
        assert_eq!((tally.passed, tally.failed, tally.ignored), (42, 1, 2));
    }
}
