//! Payloads of a type of one's own, and a worker for them: `cargo run -p lycosa-client --example letters -- host:port`
//!
//! README.md shows the middle of this file.

use std::time::Duration;

use lycosa_client::worker::{Failure, Summary};
use lycosa_client::{Client, ConnectOptions, Payload, PutOptions, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Letter {
    to: String,
}

/// Puts a letter and works on the tube's tasks until none arrives for a second.
pub async fn work(options: ConnectOptions) -> lycosa_client::Result<Summary> {
    let client = Client::connect(options).await?;
    let tube = client.queue().tube("mail");
    tube.put(Payload::of(&Letter { to: "ann".to_owned() })?, PutOptions::new()).await?;
    let worker = Worker::new(tube).jobs(4).until_empty(Duration::from_secs(1));
    worker
        .run(|job| async move {
            let letter: Letter = job.task.data.to().map_err(Failure::bury)?;
            println!("a letter to {}", letter.to);
            Ok(())
        })
        .await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> lycosa_client::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3301".to_owned());
    println!("{:?}", work(ConnectOptions::new(address)).await?);
    Ok(())
}
