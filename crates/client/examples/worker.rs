//! A worker with several tasks in hand: acknowledges what went well, gives back what did not for another try a little
//! later, and buries what fails for good. It goes on when the server restarts, and stops on Ctrl-C after the tasks in
//! hand are done; a second Ctrl-C gives them back.
//!
//! ```text
//! cargo run -p lycosa-client --example worker -- [user:password@]host:port [tube] [jobs]
//! ```

use std::error::Error;
use std::time::Duration;

use lycosa_client::worker::{Event, Failure, Job};
use lycosa_client::{Client, ConnectOptions, TubeOptions, TubeType, Worker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let options: ConnectOptions = args.next().unwrap_or_else(|| "127.0.0.1:3301".to_owned()).parse()?;
    let name = args.next().unwrap_or_else(|| "example_worker".to_owned());
    let jobs = args.next().map_or(Ok(4), |jobs| jobs.parse())?;

    let client = Client::connect(options).await?;
    let tube =
        client.queue().create_tube(&name, TubeType::FifoTtl, TubeOptions::new().if_not_exists()).await?;
    let worker = Worker::new(tube).jobs(jobs).timeout(Duration::from_secs(60)).on_event(report);
    let stop = worker.stop_handle();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            println!("finishing what is in hand");
            stop.finish();
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.abort();
            }
        }
    });
    println!("{jobs} jobs wait for tasks in {name}");
    let summary = worker.run(handle).await?;
    println!("{summary:?}");
    Ok(())
}

fn report(event: &Event<'_>) {
    match event {
        Event::Settled { job, settled, .. } => println!("task {}: {settled:?}", job.task.id),
        Event::Trouble { error } => eprintln!("{error}"),
        other => eprintln!("{other:?}"),
    }
}

/// The work itself: here, to print a text.
async fn handle(job: Job) -> Result<(), Failure> {
    let text = job.task.data.as_str().ok_or_else(|| Failure::bury("the payload is not text"))?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    if text.is_empty() {
        return Err(Failure::retry("the text is empty"));
    }
    println!("{text}");
    Ok(())
}
