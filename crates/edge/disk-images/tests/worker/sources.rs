//! Servers: what they ask for, how they break, and what is said about it.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use disk_images::{Event, Http, Source, reasons};

use crate::harness::{Claim, MIB, Tests, converted, disk, http};
use crate::server::{Answer, Server};

pub(crate) const TESTS: Tests = &[
    ("a_broken_connection_is_taken_up_where_it_broke", a_broken_connection_is_taken_up_where_it_broke),
    ("a_server_without_ranges_sends_again", a_server_without_ranges_sends_again),
    ("content_that_changes_meanwhile_is_refused", content_that_changes_meanwhile_is_refused),
    ("refusals_have_the_words_of_cdi", refusals_have_the_words_of_cdi),
    ("secrets_go_to_the_server_and_not_where_it_redirects", secrets_go_to_the_server_and_not_where_it_redirects),
    ("tls_needs_the_right_authority", tls_needs_the_right_authority),
    ("checksums_are_checked", checksums_are_checked),
    ("an_upload_comes_from_a_descriptor", an_upload_comes_from_a_descriptor),
    ("progress_is_told", progress_is_told),
    (
        "a_disk_that_does_not_fit_is_refused_in_the_words_of_cdi",
        a_disk_that_does_not_fit_is_refused_in_the_words_of_cdi,
    ),
];

fn a_broken_connection_is_taken_up_where_it_broke() {
    let raw = disk(4 * MIB);
    let content = raw.clone();
    let server = Server::start(move |asked| {
        let answer = Answer::of(content.clone()).with("ETag", "\"one\"").ranged(asked);
        Answer { breaks_after: Some(1_500_000), ..answer }
    });
    let claim = Claim::directory();
    claim.import(http(server.url("/disk")), 8 * MIB).done();
    claim.assert_holds(&raw, "resumed");
    let ranges: Vec<_> = server.asked().iter().map(|asked| asked.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert!(ranges[0].is_none() && ranges[1..].iter().all(Option::is_some), "{ranges:?}");
    assert_eq!(server.asked()[1].header("if-range"), Some("\"one\""));
}

fn a_server_without_ranges_sends_again() {
    let raw = disk(2 * MIB);
    let (content, calls) = (raw.clone(), AtomicUsize::new(0));
    let server = Server::start(move |_| {
        let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
        Answer { breaks_after: first.then_some(1_000_000), ..Answer::of(content.clone()) }
    });
    let claim = Claim::directory();
    claim.import(http(server.url("/disk")), 4 * MIB).done();
    claim.assert_holds(&raw, "sent again");
}

fn content_that_changes_meanwhile_is_refused() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let answer = Answer::of(disk(2 * MIB)).with("ETag", format!("\"{call}\""));
        Answer { breaks_after: Some(1_000_000), ..answer }
    });
    let claim = Claim::directory();
    let message = claim.import(http(server.url("/disk")), 4 * MIB).failed().message.clone();
    assert!(message.contains("the content changed while it was transferred"), "{message}");
    assert!(!claim.disk().exists());
}

fn refusals_have_the_words_of_cdi() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/endless" => Answer::status(302).with("Location", "/endless"),
        _ => Answer::status(404),
    });
    let claim = Claim::directory();
    let outcome = claim.import(http(server.url("/none")), MIB);
    assert_eq!(outcome.failed().reason, reasons::CONNECT);
    assert_eq!(
        outcome.failed().message,
        "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found"
    );
    let nobody = claim.import(http("http://127.0.0.1:1/disk".to_owned()), MIB).failed().message.clone();
    assert!(
        nobody.starts_with(
            "Unable to connect to http data source: HTTP request errored: Get \"http://127.0.0.1:1/disk\": "
        )
    );
    let endless = claim.import(http(server.url("/endless")), MIB).failed().message.clone();
    assert!(endless.contains("redirects more than"), "{endless}");
    for url in ["ftp://example.com/x", "file:///etc/shadow", "nonsense", "http://"] {
        assert_eq!(claim.import(http(url.to_owned()), MIB).failed().reason, reasons::BAD_JOB, "{url}");
    }
    let link = claim.import(http("http://169.254.169.254/latest".to_owned()), MIB).failed().message.clone();
    assert!(link.contains("no address that can be used"), "{link}");
}

fn secrets_go_to_the_server_and_not_where_it_redirects() {
    let other = Server::start(|_| Answer::of(disk(MIB)));
    let elsewhere = other.url("/content");
    let server = Server::start(move |asked| match asked.path.as_str() {
        "/here" => Answer::status(301).with("Location", "/there?x=1"),
        "/there?x=1" => Answer::status(307).with("Location", elsewhere.clone()),
        _ => Answer::status(500),
    });
    let source = Source::Http(Http {
        url: server.url("/here"),
        headers: vec!["X-Secret: 42".to_owned()],
        username: Some("user".to_owned()),
        password: Some("pass".to_owned()),
        ..Http::default()
    });
    Claim::directory().import(source, 2 * MIB).done();
    for asked in server.asked() {
        assert_eq!(asked.header("authorization"), Some("Basic dXNlcjpwYXNz"));
        assert_eq!(asked.header("x-secret"), Some("42"));
    }
    for asked in other.asked() {
        assert!(asked.header("authorization").is_none() && asked.header("x-secret").is_none(), "{asked:?}");
    }
    assert_eq!((server.asked().len(), other.asked().len()), (2, 1));
}

fn tls_needs_the_right_authority() {
    let authority = test_support::Authority::new();
    let server = Server::start_tls(crate::registries::tls(&authority), |_| Answer::of(disk(MIB)));
    let claim = Claim::directory();
    let source = |ca_pem: Option<String>| Source::Http(Http { url: server.url("/disk"), ca_pem, ..Http::default() });
    let unknown = claim.import(source(None), 2 * MIB).failed().clone();
    assert_eq!(unknown.reason, reasons::CONNECT);
    assert!(unknown.message.contains("tls: "), "{}", unknown.message);
    let other = test_support::Authority::new();
    assert_eq!(claim.import(source(Some(other.pem().to_owned())), 2 * MIB).failed().reason, reasons::CONNECT);
    claim.import(source(Some(authority.pem().to_owned())), 2 * MIB).done();
    claim.assert_holds(&disk(MIB), "over TLS");
    let nonsense = claim.import(source(Some("no PEM".to_owned())), 2 * MIB).failed().message.clone();
    assert!(nonsense.contains("the CA certificate is no PEM"), "{nonsense}");
}

fn checksums_are_checked() {
    let image = crate::harness::packed("gzip", &converted(&disk(MIB), "qcow2", &[]));
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("image");
    std::fs::write(&file, &image).unwrap();
    let server = Server::start(move |_| Answer::of(image.clone()));
    for algorithm in ["md5", "sha1", "sha256", "sha512"] {
        let sum = crate::harness::run(&format!("{algorithm}sum"), &[crate::harness::text(&file)]);
        let sum = String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned();
        let source = |sum: &str| {
            let checksum = Some(format!("{algorithm}:{sum}"));
            Source::Http(Http { url: server.url("/"), checksum, ..Http::default() })
        };
        let claim = Claim::directory();
        claim.import(source(&sum), 2 * MIB).done();
        claim.assert_holds(&disk(MIB), algorithm);
        let wrong = format!("{}0", &sum[..sum.len() - 1]).replace("00", "10");
        let wrong = if wrong == sum { format!("{}1", &sum[..sum.len() - 1]) } else { wrong };
        let outcome = claim.import(source(&wrong), 2 * MIB);
        assert!(outcome.failed().message.contains(&format!("checksum mismatch: expected {algorithm}:{wrong}")));
        assert!(!claim.disk().exists(), "nothing bad is left");
    }
}

fn an_upload_comes_from_a_descriptor() {
    for image in [disk(3 * MIB), converted(&disk(3 * MIB), "qcow2", &[])] {
        let (read, mut write) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || write.write_all(&image));
        let claim = Claim::directory();
        let job = claim.job(Source::Upload {}, 4 * MIB);
        claim.run(&job, Some(read.into())).done();
        claim.assert_holds(&disk(3 * MIB), "uploaded");
        writer.join().unwrap().unwrap();
    }
    let claim = Claim::directory();
    assert_eq!(claim.import(Source::Upload {}, MIB).failed().reason, reasons::BAD_JOB);
}

fn progress_is_told() {
    let content = Arc::new(disk(2 * MIB));
    let server = Server::start(move |asked| {
        // Slowly: in parts, with a pause before each.
        std::thread::sleep(Duration::from_millis(600));
        let answer = Answer::of(content.to_vec()).ranged(asked);
        Answer { breaks_after: Some(500_000), ..answer }
    });
    let outcome = Claim::directory().import(http(server.url("/")), 4 * MIB);
    outcome.done();
    let told: Vec<f64> =
        outcome.events.iter().filter_map(|e| if let Event::Progress(n) = e { Some(*n) } else { None }).collect();
    assert!(told.len() >= 2 && told.is_sorted() && told.iter().all(|n| (0.0..=100.0).contains(n)), "{told:?}");
    assert!(outcome.events.contains(&Event::Stage("transfer".to_owned())));
}

fn a_disk_that_does_not_fit_is_refused_in_the_words_of_cdi() {
    let raw = disk(8 * MIB);
    let fit = format!("larger than the reported available storage {}. A larger PVC is required", 4 * MIB);
    let formats = ["qcow2", "vmdk", "vdi", "vhdx"].map(|format| converted(&raw, format, &[]));
    for image in [raw.clone()].into_iter().chain(formats) {
        let server = Server::start(move |_| Answer::of(image.clone()));
        for claim in [Claim::directory(), Claim::file(4 * MIB)] {
            let failure = claim.import(http(server.url("/")), 4 * MIB).failed().clone();
            assert_eq!(failure.reason, reasons::TOO_LARGE, "{failure:?}");
            let expected = format!(
                "Unable to process data: Unable to convert source data to target format: virtual image size {} is {fit}",
                8 * MIB
            );
            assert_eq!(failure.message, expected);
        }
    }
    let gz = crate::harness::packed("gzip", &raw);
    let server = Server::start(move |_| Answer::of(gz.clone()));
    let failure = Claim::directory().import(http(server.url("/")), 4 * MIB).failed().clone();
    assert!(failure.reason == reasons::TOO_LARGE && failure.message.contains(&fit), "{failure:?}");
}
