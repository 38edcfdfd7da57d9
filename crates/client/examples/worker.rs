//! A worker with several tasks in hand: acknowledges what went well, gives back what did not for another try a little
//! later, and buries what fails for good. It goes on when the server restarts, and stops on Ctrl-C after the tasks in
//! hand are done.
//!
//! ```text
//! cargo run -p lycosa-client --example worker -- [user:password@]host:port [tube] [jobs]
//! ```

use std::error::Error;
use std::time::Duration;

use lycosa_client::{Client, ConnectOptions, Task, Tube, TubeOptions, TubeType};
use tokio::sync::watch;

/// How long a `take` waits at the server before it is asked again.
const WAIT: Duration = Duration::from_secs(10);

enum Failure {
    Temporary,
    Permanent,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let options: ConnectOptions = args.next().unwrap_or_else(|| "127.0.0.1:3301".to_owned()).parse()?;
    let name = args.next().unwrap_or_else(|| "example_worker".to_owned());
    let jobs: usize = args.next().map_or(Ok(4), |jobs| jobs.parse())?;

    let client = Client::connect(options).await?;
    let tube =
        client.queue().create_tube(&name, TubeType::FifoTtl, TubeOptions::new().if_not_exists()).await?;
    let (stop, stopped) = watch::channel(false);
    let workers: Vec<_> =
        (0..jobs).map(|job| tokio::spawn(work(job, tube.clone(), stopped.clone()))).collect();
    println!("{jobs} jobs wait for tasks in {name}");

    let mut status = client.watch();
    loop {
        tokio::select! {
            Some(status) = status.changed() => println!("{:?}, {} sessions lost", status.link, status.session_changes),
            signal = tokio::signal::ctrl_c() => break signal?,
        }
    }
    println!("finishing what is in hand");
    stop.send_replace(true);
    for worker in workers {
        worker.await?;
    }
    Ok(())
}

async fn work(job: usize, tube: Tube, mut stopped: watch::Receiver<bool>) {
    loop {
        // A take that is given up here gives its task back, should one have come after all.
        let taken = tokio::select! {
            taken = tube.take(Some(WAIT)) => taken,
            _ = stopped.wait_for(|&stopped| stopped) => return,
        };
        let task = match taken {
            Ok(Some(task)) => task,
            Ok(None) => continue,
            Err(error) => {
                eprintln!("job {job}: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let result = match handle(&task).await {
            Ok(()) => task.ack().await,
            Err(Failure::Temporary) => task.release(Some(Duration::from_secs(5))).await,
            Err(Failure::Permanent) => task.bury().await,
        };
        match result {
            Ok(()) => println!("job {job}: finished with task {}", task.id),
            Err(error) if error.is_not_taken() => eprintln!("job {job}: task {} took too long", task.id),
            Err(error) => eprintln!("job {job}: task {}: {error}", task.id),
        }
    }
}

/// The work itself: here, to print a text.
async fn handle(task: &Task) -> Result<(), Failure> {
    let text = task.data.as_str().ok_or(Failure::Permanent)?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    if text.is_empty() {
        return Err(Failure::Temporary);
    }
    println!("{text}");
    Ok(())
}
