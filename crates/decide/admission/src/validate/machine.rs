//! The machine type.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceSpec;
use machinery::field::Path;

use super::findings::{Findings, given};

pub(super) fn check(
    found: &mut Findings,
    domain: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let Some(type_) = spec.domain.machine.as_ref().and_then(|machine| given(&machine.type_)) else { return };
    let patterns = config.emulated_machines(spec.architecture.as_deref().unwrap_or_default());
    if !patterns.iter().any(|pattern| matches_glob(pattern, type_)) {
        let detail = format_args!("machine type is not supported (allowed values: {})", patterns.join(", "));
        found.invalid(&domain.child("machine.type"), type_, detail);
    }
}

/// Shell patterns: `*` matches any characters, `?` one character, `[a-z]` one of a range; `\` escapes the next
/// character.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars();
    let mut characters = text.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            // Several stars are equivalent to one.
            let rest = rest.as_str().trim_start_matches('*');
            rest.is_empty()
                || text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches_glob(rest, &text[at..]))
        }
        Some('[') => {
            let Some((class, rest)) = rest.as_str().split_once(']') else { return false };
            characters.next().is_some_and(|met| in_class(class, met)) && matches_glob(rest, characters.as_str())
        }
        Some(wanted) => {
            let wanted = if wanted == '\\' { rest.next() } else { Some(wanted).filter(|wanted| *wanted != '?') };
            let met = characters.next();
            met.is_some_and(|met| wanted.is_none_or(|wanted| wanted == met))
                && matches_glob(rest.as_str(), characters.as_str())
        }
    }
}

fn in_class(class: &str, met: char) -> bool {
    let (class, negated) = class.strip_prefix('^').map_or((class, false), |class| (class, true));
    let mut members: Vec<char> = class.chars().collect();
    let mut found = false;
    while let Some(low) = (!members.is_empty()).then(|| members.remove(0)) {
        let range = members.first() == Some(&'-') && members.len() > 1;
        let high = if range { members.drain(..2).next_back().unwrap_or(low) } else { low };
        found |= (low..=high).contains(&met);
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::matches_glob;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (pattern, text, matches) in [
            ("q35*", "q35", true),
            ("q35*", "q35-8.2", true),
            ("q35*", "pc-q35", false),
            ("pc-q35-?.?", "pc-q35-8.2", true),
            ("pc-q35-?.?", "pc-q35-10.0", false),
            ("*-q[13-5]5*", "pc-q35-8.2", true),
            ("q[^3]5", "q35", false),
            ("q[^4]5", "q35", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("**a**b", "xaxxb", true),
            ("q[3", "q3", false),
            ("", "", true),
            ("", "q35", false),
            ("?", "ü", true),
        ] {
            assert_eq!(matches_glob(pattern, text), matches, "{pattern} {text}");
        }
    }
}
