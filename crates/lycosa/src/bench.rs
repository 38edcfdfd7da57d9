//! `lycosa bench`: the benchmark of `bench/`, on this binary or on a running server.

use std::time::Duration;

use anyhow::Context;
use lycosa_bench::Arguments;

use crate::arguments::ClientArguments;
use crate::outcome::Outcome;
use crate::session::Session;

/// Time to wait for a connection before anything is measured.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    if let Some(target) = arguments.target() {
        // Whether the server can be reached and lets us in is said as by every other command.
        let client = ClientArguments {
            address: target.address.to_owned(),
            tls_ca: target.tls_ca.map(Into::into),
            tls_certificate: target.tls_identity.map(|(certificate, _)| certificate.into()),
            tls_key: target.tls_identity.map(|(_, key)| key.into()),
            tls_server_name: target.tls_server_name.map(str::to_owned),
            user: target.user.map(str::to_owned),
            password_file: target.password_file.map(Into::into),
            request_timeout: PATIENCE,
            json: false,
        };
        drop(Session::open(&client)?);
    }
    let server = std::env::current_exe().context("cannot find this program, to run it as the server")?;
    lycosa_bench::run(arguments, Some(&server))?;
    Ok(Outcome::Done)
}
