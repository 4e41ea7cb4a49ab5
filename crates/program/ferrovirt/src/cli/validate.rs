//! `validate`: admission of manifests without a cluster.

use std::process::ExitCode;

use admission::Admitted;
use machinery::field::{Cause, FieldError};
use virtctl::output::print;

use super::judge::{Judge, Source};
use super::manifest::{Document, to_yaml};

/// Check manifests as the API server would, without a cluster
///
/// Prints the objects as they would be stored, defaults included. What is wrong is printed on standard error, one
/// `path: message` per line. The exit code is 0 if everything is accepted, 1 if something is refused, 2 if the input
/// cannot be read, and 3 if the only objection is that this build does not support a valid field.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Only warn of fields that are valid and not supported by this build
    #[arg(long)]
    ignore_unsupported: bool,
}

/// What became of a manifest; the worst of all manifests is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Accepted,
    Unsupported,
    Refused,
}

const UNREADABLE: u8 = 2;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let input = args.source.documents().and_then(|documents| Ok((documents, args.source.judge()?)));
    let (documents, judge) = match input {
        Ok(input) => input,
        Err(error) => {
            virtctl::report(&error.into());
            return Ok(ExitCode::from(UNREADABLE));
        }
    };
    let mut worst = Verdict::Accepted;
    for (index, document) in documents.iter().enumerate() {
        worst = worst.max(validate(&args, &judge, document, index > 0)?);
    }
    Ok(match worst {
        Verdict::Accepted => ExitCode::SUCCESS,
        Verdict::Refused => ExitCode::FAILURE,
        Verdict::Unsupported => ExitCode::from(3),
    })
}

fn validate(args: &Args, judge: &Judge, document: &Document, separate: bool) -> anyhow::Result<Verdict> {
    let what = format!("{}: {} {}", document.origin, document.kind(), document.name());
    match judge.admit(&document.object) {
        None => {
            eprintln!("{what} is not one of our kinds and was not checked");
            Ok(Verdict::Accepted)
        }
        Some(Ok(Admitted { object, warnings })) => {
            warnings.iter().for_each(|warning| eprintln!("{what}: warning: {warning}"));
            print(&format!("{}{}", if separate { "---\n" } else { "" }, to_yaml(&object)?))?;
            Ok(Verdict::Accepted)
        }
        Some(Err(errors)) => {
            let verdict = sort(&errors, args.ignore_unsupported);
            match verdict {
                Verdict::Accepted => eprintln!("{what} is valid, and this build does not support all of it:"),
                Verdict::Unsupported => eprintln!("{what} is valid, but this build does not support it:"),
                Verdict::Refused => eprintln!("{what} is refused:"),
            }
            errors.iter().for_each(|error| eprintln!("{error}"));
            Ok(verdict)
        }
    }
}

fn sort(errors: &[FieldError], ignore_unsupported: bool) -> Verdict {
    match errors.iter().all(|error| error.cause == Cause::Unsupported) {
        true if ignore_unsupported => Verdict::Accepted,
        true => Verdict::Unsupported,
        false => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::field::FieldPath;

    #[test]
    fn an_object_is_only_unsupported_if_nothing_else_is_wrong() {
        let error = |cause| FieldError::new(cause, FieldPath::new("spec"), "no");
        let unsupported = [error(Cause::Unsupported), error(Cause::Unsupported)];
        assert_eq!(sort(&unsupported, false), Verdict::Unsupported);
        assert_eq!(sort(&unsupported, true), Verdict::Accepted);
        let both = [error(Cause::Unsupported), error(Cause::Required)];
        assert_eq!(sort(&both, true), Verdict::Refused);
    }
}
