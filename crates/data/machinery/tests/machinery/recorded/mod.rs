//! Reader of the tables in this directory: what Kubernetes' own code answered, printed by it and kept as text.
//!
//! A line is a case, its columns parted by ` | `; indented lines below it are further answers. Quotes keep blanks that matter.

/// A case: its columns, and the answers below it.
pub(crate) struct Case {
    pub(crate) columns: Vec<&'static str>,
    pub(crate) answers: Vec<&'static str>,
}

pub(crate) fn cases(table: &'static str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("  "), cases.last_mut()) {
            (Some(answer), Some(case)) => case.answers.push(answer),
            _ => cases.push(Case { columns: line.split(" | ").map(unquoted).collect(), answers: Vec::new() }),
        }
    }
    cases
}

fn unquoted(column: &str) -> &str {
    let column = column.trim();
    column.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(column)
}
