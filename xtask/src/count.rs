//! Counts of a step's tests and the output of failed ones, read from what its runner printed.

use std::ops::AddAssign;
use std::str::FromStr;
use std::sync::LazyLock;

use regex_lite::Regex;

/// Tests of one step, or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The runner whose closing lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Nextest,
    /// `cargo test`: one line for each binary.
    Libtest,
    Pytest,
    Node,
}

impl Runner {
    pub(crate) fn count(self, output: &str) -> Count {
        match self {
            Runner::Nextest => nextest(output),
            Runner::Libtest => libtest(output),
            Runner::Pytest => pytest(output),
            Runner::Node => node(output),
        }
    }
}

/// Lines that are repeated of a failed step.
const REPEATED: usize = 200;

impl Runner {
    /// Lines that the runner printed about failed tests, at most [`REPEATED`]; none if no test failed.
    pub(crate) fn failures(self, output: &str) -> Vec<&str> {
        let lines = output.lines().collect::<Vec<_>>();
        let told = match self {
            // The profile of nextest has the output of failed tests behind the summary.
            Runner::Nextest => from(&lines, |line| line.trim_start().starts_with("Summary [")),
            Runner::Libtest => from(&lines, |line| line == "failures:"),
            Runner::Pytest => from(&lines, |line| line.trim_matches('=').trim() == "FAILURES"),
            Runner::Node => from(&lines, |line| line.trim_start().starts_with("not ok ")),
        };
        told[..told.len().min(REPEATED)].to_vec()
    }
}

/// The lines from the first one that begins the account of failures.
fn from<'a, 'b>(lines: &'a [&'b str], begins: impl Fn(&str) -> bool) -> &'a [&'b str] {
    let first = lines.iter().position(|line| begins(line));
    &lines[first.unwrap_or(lines.len())..]
}

/// `Summary [   2.0s] 12 tests run: 10 passed (1 slow), 2 failed, 3 skipped`; timed out and flaky ones have their words.
fn nextest(output: &str) -> Count {
    let Some(line) = output.lines().rfind(|line| line.contains("tests run:") || line.contains("test run:"))
    else {
        return Count::default();
    };
    let failed = ["failed", "timed out", "exec failed"].iter().map(|word| number_before(line, word)).sum();
    Count { passed: number_before(line, "passed"), failed, skipped: number_before(line, "skipped") }
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s`
fn libtest(output: &str) -> Count {
    let mut all = Count::default();
    for line in output.lines().filter(|line| line.starts_with("test result:")) {
        all += Count {
            passed: number_before(line, "passed"),
            failed: number_before(line, "failed"),
            skipped: number_before(line, "ignored"),
        };
    }
    all
}

/// `==== 2 failed, 12 passed, 1 skipped in 3.21s ====`, with or without the rules.
fn pytest(output: &str) -> Count {
    static CLOSING: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\d+ (passed|failed|skipped|errors?)\b.* in [0-9.]+s").expect("a fixed regex")
    });
    let Some(line) = output.lines().rfind(|line| CLOSING.is_match(line)) else { return Count::default() };
    let failed = ["failed", "error", "errors"].iter().map(|word| number_before(line, word)).sum();
    Count { passed: number_before(line, "passed"), failed, skipped: number_before(line, "skipped") }
}

/// `# pass 12`, `# fail 0`, `# skipped 1`, or the same behind `ℹ`.
fn node(output: &str) -> Count {
    let number = |word: &str| {
        let mut lines = output.lines().rev().filter_map(|line| {
            let line = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))?;
            line.strip_prefix(word)?.trim().parse().ok()
        });
        lines.next().unwrap_or(0)
    };
    Count { passed: number("pass"), failed: number("fail"), skipped: number("skipped") + number("todo") }
}

/// The number that stands before a word; 0 where the word does not stand.
fn number_before(line: &str, word: &str) -> u64 {
    value_before(line, word).unwrap_or(0)
}

/// The number that stands before a word, or before words with single blanks between them.
pub(crate) fn value_before<T: FromStr>(line: &str, word: &str) -> Option<T> {
    let words = line.split([' ', ',', ';']).filter(|word| !word.is_empty());
    let words = words.collect::<Vec<_>>();
    let wanted = word.split(' ').collect::<Vec<_>>();
    let at = words.windows(wanted.len()).position(|window| window == wanted)?;
    words[at.checked_sub(1)?].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(passed: u64, failed: u64, skipped: u64) -> Count {
        Count { passed, failed, skipped }
    }

    #[test]
    fn nextest_summary_is_read() {
        let line =
            "     Summary [   0.300s] 12 tests run: 10 passed (1 slow), 1 failed, 1 timed out, 3 skipped\n";
        assert_eq!(Runner::Nextest.count(line), count(10, 2, 3));
        let line = "     Summary [   0.003s] 1 test run: 1 passed, 0 skipped\n";
        assert_eq!(Runner::Nextest.count(line), count(1, 0, 0));
        assert_eq!(Runner::Nextest.count("error: no tests to run"), count(0, 0, 0));
    }

    #[test]
    fn libtest_results_add_up() {
        let output = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s\n\
                      something else: 5 passed\n\
                      test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(Runner::Libtest.count(output), count(14, 3, 1));
    }

    #[test]
    fn pytest_closing_line_is_read_with_or_without_rules() {
        assert_eq!(
            Runner::Pytest.count("==== 1 failed, 12 passed, 2 skipped in 3.21s ====\n"),
            count(12, 1, 2)
        );
        assert_eq!(Runner::Pytest.count("7 passed in 0.50s\n"), count(7, 0, 0));
        assert_eq!(Runner::Pytest.count("1 passed, 1 error in 0.50s\n"), count(1, 1, 0));
    }

    #[test]
    fn what_failed_tests_said_is_found() {
        let output = "  PASS a\n  Summary [   0.3s] 2 tests run: 1 passed, 1 failed\n  FAIL b\n    said\n";
        let told = ["  Summary [   0.3s] 2 tests run: 1 passed, 1 failed", "  FAIL b", "    said"];
        assert_eq!(Runner::Nextest.failures(output), told);
        assert_eq!(
            Runner::Libtest.failures("test a ... ok\nfailures:\n\n---- b\n"),
            ["failures:", "", "---- b"]
        );
        assert_eq!(Runner::Pytest.failures(".F\n=== FAILURES ===\n_ b _\n"), ["=== FAILURES ===", "_ b _"]);
        assert_eq!(Runner::Node.failures("  ok 1 - a\n  not ok 2 - b\n"), ["  not ok 2 - b"]);
        assert_eq!(Runner::Node.failures("ok 1 - a\n"), [""; 0]);
    }

    #[test]
    fn an_endless_account_is_cut() {
        let output = "not ok 1 - a\n".repeat(REPEATED + 1);
        assert_eq!(Runner::Node.failures(&output).len(), REPEATED);
    }

    #[test]
    fn node_totals_are_read() {
        let output = "ok 1 - a\n# tests 4\n# pass 3\n# fail 0\n# cancelled 0\n# skipped 1\n# todo 0\n";
        assert_eq!(Runner::Node.count(output), count(3, 0, 1));
        assert_eq!(
            Runner::Node.count("ℹ tests 4\nℹ pass 4\nℹ fail 0\nℹ skipped 0\nℹ todo 0\n"),
            count(4, 0, 0)
        );
    }
}
