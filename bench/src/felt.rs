//! Latencies of the clients of a tube while something else happens on their server.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value as Json, json};

use crate::load::{Bound, Load, Plan, Putting, Shape};
use crate::protocol::Operation;

/// Cycles, and the latencies of their requests.
#[derive(Debug, Default)]
pub(crate) struct Felt {
    pub(crate) rounds: u64,
    pub(crate) seconds: f64,
    latencies: Vec<Histogram<u64>>,
}

impl Felt {
    /// Lets the load do cycles until the bound.
    pub(crate) fn of(load: &mut Load, bound: Bound, shape: Shape) -> Result<Self> {
        let outcome = load.run(Plan::Cycles { bound, putting: Putting::Plain }, shape)?;
        Ok(Self {
            rounds: outcome.rounds,
            seconds: outcome.elapsed.as_secs_f64(),
            latencies: outcome.latencies.to_vec(),
        })
    }

    pub(crate) fn add(&mut self, piece: Self) -> Result<()> {
        self.rounds += piece.rounds;
        self.seconds += piece.seconds;
        if self.latencies.is_empty() {
            self.latencies = piece.latencies;
            return Ok(());
        }
        for (sum, piece) in self.latencies.iter_mut().zip(&piece.latencies) {
            sum.add(piece).context("histograms of one kind are added")?;
        }
        Ok(())
    }

    /// Cycles.
    pub(crate) fn per_second(&self) -> f64 {
        self.rounds as f64 / self.seconds.max(1e-9)
    }

    /// Microseconds, of put, take and ack.
    pub(crate) fn percentile(&self, percentile: f64) -> Vec<f64> {
        self.latencies
            .iter()
            .map(|latencies| latencies.value_at_percentile(percentile) as f64 / 1e3)
            .collect()
    }

    pub(crate) fn json(&self) -> Json {
        let names = Operation::ALL.into_iter().map(|operation| operation.name().to_owned());
        let named = |percentile| {
            let values = self.percentile(percentile).into_iter().map(Json::from);
            Json::Object(names.clone().zip(values).collect())
        };
        json!({ "cycles_per_second": self.per_second(), "p50_us": named(50.0), "p99_us": named(99.0) })
    }

    /// A line for people.
    pub(crate) fn text(&self, name: &str) -> String {
        let p99 = self.percentile(99.0).into_iter().map(|us| format!("{us:.0}")).collect::<Vec<_>>();
        let per_second = self.per_second();
        format!("{name:<8} {per_second:>9.0} cycles/s, p99 of put, take, ack: {} µs", p99.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_add_up() {
        let piece = || {
            let mut latencies = Histogram::new(3).unwrap();
            latencies.record(1_000).unwrap();
            Felt { rounds: 10, seconds: 0.5, latencies: vec![latencies] }
        };
        let mut sum = Felt::default();
        sum.add(piece()).unwrap();
        sum.add(piece()).unwrap();
        assert_eq!((sum.rounds, sum.latencies[0].len()), (20, 2));
        assert!((sum.per_second() - 20.0).abs() < 1e-9);
        assert_eq!(sum.percentile(99.0).len(), 1);
    }
}
