//! The objects named on a command line: `KIND`, `KIND NAME…`, `KIND/NAME…`.

use super::resources::{Catalogue, ResourceType};

/// Objects of one kind: the named ones, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: ResourceType,
    /// Empty means all.
    pub(crate) names: Vec<String>,
}

/// Resolves the words against the server's kinds.
pub(crate) fn resolve(catalogue: &Catalogue, words: &[String]) -> anyhow::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for (kind, names) in parse(words)? {
        targets.extend(catalogue.find(&kind)?.into_iter().map(|resource| Target { resource, names: names.clone() }));
    }
    Ok(targets)
}

/// Kinds with their names.
fn parse(words: &[String]) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let Some((kind, names)) = words.split_first() else {
        anyhow::bail!("name a kind, for example vm, or an object, for example vm/demo");
    };
    if !words.iter().any(|word| word.contains('/')) {
        return Ok(vec![(kind.clone(), names.to_vec())]);
    }
    let each = words.iter().map(|word| match word.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind.to_owned(), vec![name.to_owned()]))
        }
        _ => anyhow::bail!("{word:?} is not KIND/NAME; use either KIND NAME… or KIND/NAME…, not both"),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_in_two_ways_that_do_not_mix() {
        let parse = |words: &str| parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let all = |kind: &str, names: &[&str]| {
            (kind.to_owned(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(parse("vm").unwrap(), [all("vm", &[])]);
        assert_eq!(parse("vm a b").unwrap(), [all("vm", &["a", "b"])]);
        assert_eq!(parse("vm/a pod/b").unwrap(), [all("vm", &["a"]), all("pod", &["b"])]);
        for wrong in ["", "vm/a b", "vm/", "/a", "vm/a/b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
