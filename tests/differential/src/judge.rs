//! KubeVirt's side: the judge, a process that answers one line for each line.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clusters::Cluster;
use crate::generate::Case;
use crate::pods;
use crate::verdict::{Cause, Verdict};

/// The judge at work.
pub struct Judge {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Question<'a> {
    id: usize,
    operation: &'a str,
    object: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<&'a Value>,
    kubevirt: &'a RawValue,
    objects: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodQuestion<'a> {
    id: usize,
    pod: &'a str,
    object: &'a Value,
    kubevirt: &'a RawValue,
    objects: &'a RawValue,
    pull_secret: &'a str,
    volumes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    launcher: Option<&'a Value>,
    migration: &'a Value,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    object: Option<Value>,
    #[serde(default)]
    causes: Option<Vec<Cause>>,
    #[serde(default)]
    schema: Vec<String>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    panic: String,
}

impl Judge {
    /// Starts the judge.
    pub fn start(program: &Path) -> Result<Judge> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env("SIDECAR_SHIM_IMAGE", pods::clusters::SHIM)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let questions = child.stdin.take().context("the judge has no input")?;
        let answers = BufReader::new(child.stdout.take().context("the judge has no output")?);
        Ok(Judge { child, questions: Some(questions), answers })
    }

    /// KubeVirt's verdicts on these cases, in their order.
    pub fn ask(&mut self, cases: &[Case]) -> Result<Vec<Verdict>> {
        let question = |(id, case): (usize, &'_ Case)| {
            let Cluster { kubevirt, objects, .. } = case.cluster;
            let operation = if case.old.is_some() { "UPDATE" } else { "CREATE" };
            let (object, old) = (&case.object, case.old.as_ref());
            serde_json::to_string(&Question { id, operation, object, old, kubevirt, objects })
        };
        let answers = self.exchange(cases.iter().enumerate().map(question))?;
        let verdict = |(case, answer): (&Case, Answer)| {
            Verdict {
                object: answer.object,
                causes: answer.causes.unwrap_or_default(),
                schema: answer.schema,
                refusal: (!answer.error.is_empty()).then_some(answer.error),
                panicked: !answer.panic.is_empty(),
            }
            .without_chance(&case.object)
        };
        Ok(cases.iter().zip(answers).map(verdict).collect())
    }

    /// KubeVirt's Pods for these cases, in their order.
    pub fn pods(&mut self, cases: &[pods::Case]) -> Result<Vec<pods::Rendered>> {
        let question = |(id, case): (usize, &'_ pods::Case)| {
            let pods::Case { kind, vmi, cluster, volumes, launcher } = case;
            serde_json::to_string(&PodQuestion {
                id,
                pod: kind.name(),
                object: vmi,
                kubevirt: &cluster.kubevirt,
                objects: &cluster.objects,
                pull_secret: cluster.pull_secret,
                volumes,
                launcher: launcher.as_ref(),
                migration: &pods::ours::MOVE,
            })
        };
        let answers = self.exchange(cases.iter().enumerate().map(question))?;
        let rendered = |answer: Answer| match answer.object {
            Some(pod) => Ok(pod),
            None if answer.panic.is_empty() => Err(answer.error),
            None => Err(format!("panic: {}", answer.panic.lines().next().unwrap_or_default())),
        };
        Ok(answers.into_iter().map(rendered).collect())
    }

    /// Asks one question a line and waits for all answers.
    fn exchange(
        &mut self,
        lines: impl ExactSizeIterator<Item = serde_json::Result<String>> + Send,
    ) -> Result<Vec<Answer>> {
        let count = lines.len();
        let questions = self.questions.take().context("the judge is gone")?;
        // The judge answers while it is still being asked: whoever only wrote would fill the pipe and stop both.
        let (questions, answers) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || -> Result<ChildStdin> {
                let mut questions = BufWriter::new(questions);
                for line in lines {
                    let line = line.context("cannot write a question")?;
                    writeln!(questions, "{line}").context("cannot ask the judge")?;
                }
                questions.into_inner().map_err(|err| err.into_error()).context("cannot ask the judge")
            });
            let answers: Result<Vec<Answer>> = (0..count).map(|_| self.answer()).collect();
            (writer.join().expect("writing does not panic"), answers)
        });
        self.questions = Some(questions?);
        answers
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).context("cannot read the judge's answer")? == 0 {
            bail!("the judge ended early; see what it said above");
        }
        serde_json::from_str(&line).with_context(|| format!("the judge answered nonsense: {line}"))
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // Without questions it ends by itself; it is waited for so that nothing is left.
        self.questions = None;
        let _ = self.child.wait();
    }
}
