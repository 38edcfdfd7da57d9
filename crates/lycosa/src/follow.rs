//! `lycosa follow`: a server that joins a master as its read-only replica. A front over `lycosa serve`.

use crate::arguments::{FollowArguments, ServeArguments};
use crate::outcome::Usage;
use crate::peer::Peer;

/// What `lycosa serve` is to be given; says what will happen and what comes next.
pub(crate) fn arguments(arguments: FollowArguments) -> anyhow::Result<ServeArguments> {
    let FollowArguments { master, mut serve } = arguments;
    for (flag, _) in &serve.flags {
        if ["replication", "read-only"].contains(&flag.as_str()) {
            return Err(Usage(format!(
                "--{flag} does not go with follow, which sets it: use `lycosa serve` with --replication and --read-only"
            ))
            .into());
        }
    }
    let peer = Peer::parse("MASTER", &master)?;
    let password = peer.password(None)?;
    serve.flags.push(("replication".to_owned(), peer.uri(&password)));
    serve.flags.push(("read-only".to_owned(), "true".to_owned()));
    let flag = |name: &str, default: &str| {
        let given = serve.flags.iter().rev().find(|(flag, _)| flag == name);
        given.map_or_else(|| default.to_owned(), |(_, value)| value.clone())
    };
    let (data, listen) = (flag("data-dir", "data"), flag("listen", "127.0.0.1:3301"));
    eprintln!(
        "lycosa: following {peer} as a read-only replica: this server joins with all data, then receives every change, and \
         serves reads"
    );
    let here = if peer.is_guest() { listen } else { format!("{}@{listen}", peer.user) };
    eprintln!("lycosa: next: `lycosa compare {peer} {here}` tells whether both hold the same");
    eprintln!(
        "lycosa: `lycosa promote --data-dir {data} --shadow` tells what the first seconds as the master would do, without \
         doing it"
    );
    eprintln!(
        "lycosa: then: make {peer} read-only, and `lycosa promote --data-dir {data}` lets this server take writes; start \
         it with `lycosa serve` from then on"
    );
    Ok(serve)
}
