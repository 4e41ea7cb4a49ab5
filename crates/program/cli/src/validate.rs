//! `validate`: admission of manifests without a cluster.

use std::process::ExitCode;

use admission::Judged;
use admission::unsupported::with_rules;
use machinery::field::FieldError;
use serde_json::Value;
use terminal::output::print;

use super::judge::{Judge, Source};
use super::manifest::{Document, to_yaml};

/// Check manifests as the API server would, without a cluster
///
/// Prints the objects as they would be stored, defaults included, and errors to standard error, one `path: message` per
/// line. Objects may refer to each other in any order, for example a virtual machine to its instance type. The exit code is
/// 0 if everything is accepted, 1 if something is refused, 2 if the input cannot be read, and 3 if everything is valid but
/// this build does not support all of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// Warn instead of fail for valid fields that this build does not support
    #[arg(long)]
    ignore_unsupported: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Json,
    Yaml,
}

/// Outcome for a manifest; the worst one is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Accepted,
    Unsupported,
    Refused,
}

const UNREADABLE: u8 = 2;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let input = args.source.documents().and_then(|documents| Ok((args.source.judge(&documents)?, documents)));
    let (judge, documents) = match input {
        Ok(input) => input,
        Err(error) => {
            virtctl::report(&error.into());
            return Ok(ExitCode::from(UNREADABLE));
        }
    };
    let mut printer = Printer { output: args.output, printed: false };
    let mut worst = Verdict::Accepted;
    for document in &documents {
        worst = worst.max(validate(&args, &judge, document, &mut printer)?);
    }
    Ok(match worst {
        Verdict::Accepted => ExitCode::SUCCESS,
        Verdict::Refused => ExitCode::FAILURE,
        Verdict::Unsupported => ExitCode::from(3),
    })
}

fn validate(args: &Args, judge: &Judge, document: &Document, printer: &mut Printer) -> anyhow::Result<Verdict> {
    let what = format!("{}: {} {}", document.origin, document.kind(), document.name());
    let judged = match judge.judge(&document.object) {
        None => {
            eprintln!("{what} is not one of Ferrovirt's kinds and was not checked");
            return Ok(Verdict::Accepted);
        }
        Some(Err(errors)) => {
            tell(&what, Verdict::Refused, &errors);
            return Ok(Verdict::Refused);
        }
        Some(Ok(judged)) => judged,
    };
    let verdict = verdict(&judged, args.ignore_unsupported);
    let Judged { object, mut warnings, causes, unsupported } = judged;
    if verdict == Verdict::Accepted {
        warnings.extend(unsupported.iter().map(ToString::to_string));
    }
    if verdict != Verdict::Refused {
        warnings.iter().for_each(|warning| eprintln!("{what}: warning: {warning}"));
        printer.print(&object)?;
    }
    tell(&what, verdict, &if args.ignore_unsupported { causes } else { with_rules(unsupported, causes) });
    Ok(verdict)
}

/// The outcome of an object's judgement.
fn verdict(judged: &Judged, ignore_unsupported: bool) -> Verdict {
    match (judged.causes.is_empty(), judged.unsupported.is_empty() || ignore_unsupported) {
        (true, true) => Verdict::Accepted,
        (true, false) => Verdict::Unsupported,
        (false, _) => Verdict::Refused,
    }
}

fn tell(what: &str, verdict: Verdict, errors: &[FieldError]) {
    match verdict {
        Verdict::Accepted => {}
        Verdict::Unsupported => eprintln!("{what} is valid, but this build does not support all of it:"),
        Verdict::Refused => eprintln!("{what} is refused:"),
    }
    errors.iter().for_each(|error| eprintln!("{error}"));
}

/// Prints objects so that the output can be read again.
struct Printer {
    output: Output,
    printed: bool,
}

impl Printer {
    fn print(&mut self, object: &Value) -> anyhow::Result<()> {
        let text = match self.output {
            Output::Json => format!("{object:#}\n"),
            Output::Yaml if self.printed => format!("---\n{}", to_yaml(object)?),
            Output::Yaml => to_yaml(object)?,
        };
        self.printed = true;
        Ok(print(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::field::FieldPath;

    #[test]
    fn an_object_is_only_unsupported_if_nothing_else_is_wrong() {
        let errors =
            |some: bool| some.then(|| FieldError::required(FieldPath::new("spec"), "no")).into_iter().collect();
        let verdict = |causes, unsupported, ignore| {
            let (causes, unsupported) = (errors(causes), errors(unsupported));
            verdict(&Judged { object: Value::Null, warnings: Vec::new(), causes, unsupported }, ignore)
        };
        assert_eq!(verdict(false, false, false), Verdict::Accepted);
        assert_eq!(verdict(false, true, false), Verdict::Unsupported);
        assert_eq!(verdict(false, true, true), Verdict::Accepted);
        assert_eq!(verdict(true, true, true), Verdict::Refused);
    }
}
