//! Metrics in the Prometheus text format, with client-go's names.

use std::fmt::{Display, Write as _};
use std::time::Duration;

/// Builds a metrics document.
#[derive(Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a metric; its samples must follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The samples of a histogram.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (number, bound) in histogram.bounds().enumerate() {
            count += histogram.counts[number];
            let bound = bound.to_string();
            self.sample(&bucket, &[labels, &[("le", bound.as_str())]].concat(), count);
        }
        count += histogram.counts[BUCKETS];
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
        self.sample(&format!("{name}_sum"), labels, histogram.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), labels, count);
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const BUCKETS: usize = 10;

/// Durations in buckets from ten nanoseconds, each bound ten times the previous one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Not cumulative; the last one counts what exceeds all bounds.
    counts: [u64; BUCKETS + 1],
    sum: Duration,
}

impl Histogram {
    fn bounds(&self) -> impl Iterator<Item = f64> {
        (0..BUCKETS as i32).map(|power| 10f64.powi(power - 8))
    }

    pub fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds().position(|bound| seconds <= bound).unwrap_or(BUCKETS);
        self.counts[bucket] += 1;
        self.sum += time;
    }
}

/// Metrics of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueMetrics {
    pub name: &'static str,
    pub depth: usize,
    pub adds: u64,
    pub retries: u64,
    pub panics: u64,
    /// Time items waited for a worker.
    pub waited: Histogram,
    /// Time workers spent on them.
    pub worked: Histogram,
    /// Total time that the running items have been in progress.
    pub unfinished: Duration,
    pub longest_running: Duration,
}

/// Writes the metrics of all queues of a process.
pub fn write_queues(queues: &[QueueMetrics], out: &mut Exposition) {
    type Value = fn(&QueueMetrics) -> f64;
    let plain: [(&str, &str, &str, Value); 5] = [
        ("workqueue_depth", "gauge", "Current depth of workqueue", |q| q.depth as f64),
        ("workqueue_adds_total", "counter", "Total number of adds handled by workqueue", |q| q.adds as f64),
        ("workqueue_retries_total", "counter", "Total number of retries handled by workqueue", |q| q.retries as f64),
        (
            "workqueue_unfinished_work_seconds",
            "gauge",
            "How many seconds of work are in progress and not yet in work_duration",
            |q| q.unfinished.as_secs_f64(),
        ),
        (
            "workqueue_longest_running_processor_seconds",
            "gauge",
            "How many seconds the longest running processor for workqueue has been running",
            |q| q.longest_running.as_secs_f64(),
        ),
    ];
    for (name, kind, help, value) in plain {
        out.family(name, kind, help);
        queues.iter().for_each(|queue| out.sample(name, &[("name", queue.name)], value(queue)));
    }
    type Times = fn(&QueueMetrics) -> &Histogram;
    let timed: [(&str, &str, Times); 2] = [
        ("workqueue_queue_duration_seconds", "How long an item stays in workqueue before it is taken", |q| &q.waited),
        ("workqueue_work_duration_seconds", "How long processing an item from workqueue takes", |q| &q.worked),
    ];
    for (name, help, times) in timed {
        out.family(name, "histogram", help);
        queues.iter().for_each(|queue| out.histogram(name, &[("name", queue.name)], times(queue)));
    }
    let panics = "ferrovirt_reconcile_panics_total";
    out.family(panics, "counter", "Reconciles that panicked and were retried");
    queues.iter().for_each(|queue| out.sample(panics, &[("name", queue.name)], queue.panics));
}
