//! Many requests at once over one connection: how fast tasks go through a tube.
//!
//! Every lane puts a task, takes one and acknowledges it, each after the answer to the one before. The more
//! lanes there are, the more requests travel in one packet.
//!
//! ```text
//! cargo run --release -p lycosa-client --example pipeline -- [user:password@]host:port [tasks] [lanes]
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use lycosa_client::{Client, ConnectOptions, PutOptions, Tube, TubeOptions, TubeType};

const PAYLOAD_SIZE: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let options: ConnectOptions = args.next().unwrap_or_else(|| "127.0.0.1:3301".to_owned()).parse()?;
    let tasks: u64 = args.next().map_or(Ok(100_000), |tasks| tasks.parse())?;
    let lanes: u64 = args.next().map_or(Ok(256), |lanes| lanes.parse())?;

    let client = Client::connect(options).await?;
    let options = TubeOptions::new().if_not_exists();
    let tube = client.queue().create_tube("example_pipeline", TubeType::Fifo, options).await?;
    // The session begins with the first take; it should not be part of the measurement.
    tube.take(Some(Duration::ZERO)).await?;

    let begin = Instant::now();
    let running: Vec<_> =
        (0..lanes).map(|lane| tokio::spawn(run(tube.clone(), tasks / lanes.max(1), lane))).collect();
    let mut cycles = 0;
    for lane in running {
        cycles += lane.await??;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{cycles} tasks in {seconds:.2} s: {:.0} put + take + ack per second", cycles as f64 / seconds);
    Ok(())
}

async fn run(tube: Tube, count: u64, lane: u64) -> lycosa_client::Result<u64> {
    let payload = format!("{lane:0PAYLOAD_SIZE$}");
    let mut done = 0;
    for _ in 0..count {
        tube.put(payload.as_str(), PutOptions::new()).await?;
        if let Some(task) = tube.take(Some(Duration::from_secs(1))).await? {
            task.ack().await?;
            done += 1;
        }
    }
    Ok(done)
}
