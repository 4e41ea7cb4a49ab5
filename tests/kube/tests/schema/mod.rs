//! Whether our schema engine and kube-apiserver make the same of the same objects.
//!
//! `SCHEMA_SEED` and `SCHEMA_COUNT` (of each way to break an object) choose other cases.

pub(crate) mod objects;

mod cases;
mod differences;
mod places;
mod spoil;
mod verdict;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use libtest_mimic::Trial;

use crate::cluster::Cluster;
use crate::trial;
use verdict::{Case, Outcome};

const SEED: usize = 20_260_101;
/// How many objects are broken in each way, and how many that are broken already.
const COUNT: usize = 40;
const BROKEN: usize = 8;
/// How many requests are under way at once.
const AT_ONCE: usize = 8;
/// How many differences are spelled out.
const SHOWN: usize = 8;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("kube_apiserver_and_we_prune_default_and_refuse_alike", async |cluster| {
            let (seed, count) = (number("SCHEMA_SEED", SEED)?, number("SCHEMA_COUNT", COUNT)?);
            alike(cluster, cases::of_good_objects(cluster, seed as u64, count)).await
        }),
        trial("kube_apiserver_and_we_let_stay_what_was_as_wrong_before", async |cluster| {
            let (seed, count) = (number("SCHEMA_SEED", SEED)?, number("SCHEMA_COUNT", BROKEN)?);
            alike(cluster, cases::of_broken_objects(cluster, seed as u64, count).await?).await
        }),
    ]
}

async fn alike(cluster: &Cluster, cases: Vec<Case>) -> Result<()> {
    let judged = stream::iter(&cases)
        .map(|case| async move { anyhow::Ok((case, case.theirs(cluster).await?)) })
        .buffered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut texts = Vec::new();
    for (case, theirs) in judged {
        let outcome = match theirs.outcome {
            Outcome::Stored(_) => "stored",
            Outcome::Refused(_) => "refused",
            Outcome::Rejected(..) => "rejected",
        };
        *counts.entry(outcome).or_default() += 1;
        let differences = differences::between(case, case.ours(), theirs);
        if !differences.is_empty() {
            texts.push(differences::text(case, &differences));
        }
    }
    let total = cases.len();
    eprintln!("kube-apiserver judged {total} objects: {counts:?}");
    texts.sort_by_key(String::len);
    let shown = &texts[..texts.len().min(SHOWN)];
    ensure!(texts.is_empty(), "{} of {total} objects differ; the smallest:\n{}", texts.len(), shown.join("\n\n"));
    Ok(())
}

fn number(name: &str, otherwise: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is no number")),
        Err(_) => Ok(otherwise),
    }
}
