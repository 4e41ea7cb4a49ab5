//! Minimizes a failing history: leaves out everything that is not needed for the failure.

use std::time::Duration;

use crate::engine::{Options, play};
use crate::script::Script;

/// Maximum number of histories played to find a shorter one.
const ATTEMPTS: usize = 600;

/// A script with fewer faults and deeds that breaks the same invariant.
pub fn shrink(script: &Script, options: Options) -> Script {
    let quiet = Options { verbose: false, writes: false, ..options };
    let Some(wanted) = play(script, quiet).violation.map(|violation| violation.invariant) else {
        return script.clone();
    };
    let mut search = Search { options: quiet, wanted, left: ATTEMPTS };
    let mut best = script.clone();
    loop {
        let before = (best.faults.len(), best.user.len());
        search.thin(&mut best, |script| &mut script.faults);
        search.thin(&mut best, |script| &mut script.user);
        if (best.faults.len(), best.user.len()) == before || search.left == 0 {
            break;
        }
    }
    search.shorten(&mut best);
    best
}

struct Search {
    options: Options,
    wanted: &'static str,
    left: usize,
}

impl Search {
    fn fails(&mut self, script: &Script) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        play(script, self.options).violation.is_some_and(|violation| violation.invariant == self.wanted)
    }

    /// Leaves out parts of one list, halves first, then smaller ones.
    fn thin<T: Clone>(&mut self, best: &mut Script, list: impl Fn(&mut Script) -> &mut Vec<T>) {
        let mut size = list(best).len();
        while size > 0 {
            let mut at = 0;
            while at < list(best).len() {
                let mut shorter = best.clone();
                let end = (at + size).min(list(&mut shorter).len());
                list(&mut shorter).drain(at..end);
                if self.fails(&shorter) {
                    *best = shorter;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Lets the calm phase begin earlier.
    fn shorten(&mut self, best: &mut Script) {
        let last = best.user.iter().map(|(at, _)| *at).max().unwrap_or_default();
        let shorter = Script { calm: last + Duration::from_secs(30), ..best.clone() };
        if shorter.calm < best.calm && self.fails(&shorter) {
            *best = shorter;
        }
    }
}
