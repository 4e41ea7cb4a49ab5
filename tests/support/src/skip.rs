//! Tests that cannot run on a machine.

/// Whether a test that cannot run here is a failure: in CI nobody reads what was skipped.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Says that a test cannot run here, and why. With `CI=true` the test fails instead.
///
/// For what root has on a machine that `tools/setup.sh test` has set up. What CI cannot be expected to have, such as
/// hardware virtualization or KubeVirt's data, is not for this: there a test checks what happens without it.
#[track_caller]
pub fn skip(reason: &str) {
    if let Err(refusal) = try_skip(reason) {
        panic!("{refusal}");
    }
}

/// The same for callers that return their errors.
pub fn try_skip(reason: &str) -> Result<(), String> {
    skip_unless(in_ci(), reason)
}

fn skip_unless(in_ci: bool, reason: &str) -> Result<(), String> {
    if in_ci {
        return Err(format!("cannot run here, and with CI=true nothing is skipped: {reason}"));
    }
    eprintln!("SKIPPED: {reason}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::skip_unless;

    #[test]
    fn in_ci_nothing_is_skipped() {
        assert!(skip_unless(false, "runc is not installed").is_ok());
        let refusal = skip_unless(true, "runc is not installed").unwrap_err();
        assert!(refusal.ends_with("nothing is skipped: runc is not installed"), "{refusal}");
    }
}
