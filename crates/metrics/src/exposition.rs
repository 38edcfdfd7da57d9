//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use lycosa_queue::status::histogram::bound;

use crate::snapshot::Histogram;

/// Of a bound of the buckets this many are written as one: each fourth power of two has an `le`.
const BUCKET_STEP: usize = 4;

/// What a metric is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Labels of a sample: names and values.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Text that grows metric by metric.
pub(crate) struct Exposition<'a> {
    out: &'a mut String,
}

/// One metric: its samples follow its head.
pub(crate) struct Metric<'a> {
    out: &'a mut String,
    name: &'static str,
    kind: Kind,
    help: &'static str,
    has_head: bool,
}

impl<'a> Exposition<'a> {
    pub(crate) fn new(out: &'a mut String) -> Self {
        Self { out }
    }

    /// Begins a metric. Its head is written with its first sample.
    pub(crate) fn metric(&mut self, kind: Kind, name: &'static str, help: &'static str) -> Metric<'_> {
        Metric { out: self.out, name, kind, help, has_head: false }
    }

    /// A gauge with one sample.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.metric(Kind::Gauge, name, help).sample(&[], value);
    }

    /// A counter with one sample.
    pub(crate) fn counter(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.metric(Kind::Counter, name, help).sample(&[], value);
    }

    /// A histogram without labels.
    pub(crate) fn histogram(&mut self, name: &'static str, help: &'static str, histogram: &Histogram) {
        self.metric(Kind::Histogram, name, help).histogram(&[], histogram);
    }
}

impl Metric<'_> {
    fn head(&mut self) {
        if !std::mem::replace(&mut self.has_head, true) {
            let Self { name, kind, help, .. } = self;
            let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
        }
    }

    /// Writes a sample.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.head();
        self.line("", labels, None, value);
    }

    /// Writes a sample if there is a value.
    pub(crate) fn optional(&mut self, labels: Labels<'_>, value: Option<f64>) {
        value.into_iter().for_each(|value| self.sample(labels, value));
    }

    /// Writes a histogram in seconds.
    pub(crate) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        self.head();
        let mut below = 0;
        for (bucket, count) in histogram.counts().into_iter().enumerate() {
            below += count;
            if bucket.is_multiple_of(BUCKET_STEP)
                && let Some(bound) = bound(bucket)
            {
                let bound = (bound as f64 / 1e6).to_string();
                self.line("_bucket", labels, Some(&bound), below as f64);
            }
        }
        self.line("_bucket", labels, Some("+Inf"), below as f64);
        self.line("_sum", labels, None, histogram.sum as f64 / 1e6);
        self.line("_count", labels, None, below as f64);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>, value: f64) {
        let out = &mut *self.out;
        out.push_str(self.name);
        out.push_str(suffix);
        let all = labels.iter().copied().chain(le.map(|le| ("le", le)));
        let mut separator = '{';
        for (name, value) in all {
            out.push(separator);
            separator = ',';
            out.push_str(name);
            out.push_str("=\"");
            escape(value, out);
            out.push('"');
        }
        if separator == ',' {
            out.push('}');
        }
        // Integers up to 2^53 have no exponent and no fraction.
        let _ = writeln!(out, " {value}");
    }
}

fn escape(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_with_escaped_labels() {
        let mut text = String::new();
        let mut exposition = Exposition::new(&mut text);
        let mut metric = exposition.metric(Kind::Counter, "x_total", "What it is.");
        metric.optional(&[], None);
        metric.sample(&[("tube", "a\"b\\c\nd"), ("state", "ready")], 3.0);
        metric.sample(&[], 1e15);
        let expected = "# HELP x_total What it is.\n# TYPE x_total counter\n\
            x_total{tube=\"a\\\"b\\\\c\\nd\",state=\"ready\"} 3\nx_total 1000000000000000\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_metric_without_samples_leaves_no_head() {
        let mut text = String::new();
        Exposition::new(&mut text).metric(Kind::Gauge, "x", "y").optional(&[], None);
        assert_eq!(text, "");
    }
}
