//! Makes a tube, puts a few tasks and takes them again, most urgent first.
//!
//! ```text
//! cargo run -p lycosa-client --example put_take -- [user:password@]host:port
//! ```

use std::error::Error;
use std::time::Duration;

use lycosa_client::{Client, ConnectOptions, PutOptions, TubeOptions, TubeType, Value};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3301".to_owned());
    let options: ConnectOptions = address.parse()?;
    println!("connecting to {}", options.address);
    let client = Client::connect(options).await?;
    let queue = client.queue();
    println!("the queue is {}", queue.state().await?);

    let options = TubeOptions::new().if_not_exists().temporary();
    let tube = queue.create_tube("example_put_take", TubeType::FifoTtl, options).await?;

    tube.put("water the plants", PutOptions::new().priority(5)).await?;
    tube.put("put out the fire", PutOptions::new().priority(0)).await?;
    let later = PutOptions::new().priority(0).delay(Duration::from_millis(300));
    let letter = Value::map([("to", Value::from("Ann")), ("pages", Value::from(2))]);
    let delayed = tube.put(letter, later).await?;
    println!("task {} is {}", delayed.id, delayed.state);

    while let Some(task) = tube.take(Some(Duration::from_secs(1))).await? {
        println!("task {} carries {:?}", task.id, task.data);
        task.ack().await?;
    }

    let statistics = tube.statistics().await?;
    println!("{} tasks are done, {} are left", statistics.tasks.done, statistics.tasks.total);
    tube.drop().await?;
    Ok(())
}
