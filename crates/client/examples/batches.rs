//! The same tasks one by one and in batches: what a batch saves.
//!
//! Each lane puts a batch of tasks, takes as many and acknowledges them, and the next batch when that is done. With a
//! batch of 1 these are `put`, `take` and `ack`.
//!
//! ```text
//! cargo run --release -p lycosa-client --example batches -- [user:password@]host:port [tasks] [lanes] [batch]
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use lycosa_client::{Client, ConnectOptions, PutOptions, Tube, TubeOptions, TubeType};

const PAYLOAD_SIZE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let options: ConnectOptions = args.next().unwrap_or_else(|| "127.0.0.1:3301".to_owned()).parse()?;
    let tasks: u64 = args.next().map_or(Ok(200_000), |tasks| tasks.parse())?;
    let lanes: u64 = args.next().map_or(Ok(16), |lanes| lanes.parse())?;
    let batch: u32 = args.next().map_or(Ok(100), |batch| batch.parse())?;

    let client = Client::connect(options).await?;
    let options = TubeOptions::new().if_not_exists();
    let tube = client.queue().create_tube("example_batches", TubeType::Fifo, options).await?;
    // The session begins with the first take; it should not be part of the measurement.
    tube.take(Some(Duration::ZERO)).await?;

    for batch in [1, batch.max(1)] {
        let rounds = tasks / lanes.max(1) / u64::from(batch);
        let begin = Instant::now();
        let running: Vec<_> = (0..lanes).map(|_| tokio::spawn(run(tube.clone(), rounds, batch))).collect();
        let mut cycles = 0;
        for lane in running {
            cycles += lane.await??;
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "batches of {batch}: {cycles} tasks in {seconds:.2} s, {:.0} a second",
            cycles as f64 / seconds
        );
    }
    Ok(())
}

async fn run(tube: Tube, rounds: u64, batch: u32) -> lycosa_client::Result<u64> {
    let payload = "x".repeat(PAYLOAD_SIZE);
    let mut done = 0;
    for _ in 0..rounds {
        if batch == 1 {
            tube.put(payload.as_str(), PutOptions::new()).await?;
            if let Some(task) = tube.take(Some(PATIENCE)).await? {
                task.ack().await?;
                done += 1;
            }
            continue;
        }
        let payloads = std::iter::repeat_n(payload.as_str(), batch as usize);
        tube.put_many(payloads, PutOptions::new()).await?;
        let tasks = tube.take_many(batch, Some(PATIENCE)).await?;
        tube.ack_many(tasks.iter().map(|task| task.id)).await?;
        done += tasks.len() as u64;
    }
    Ok(done)
}
