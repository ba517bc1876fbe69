//! `watchbell demo-signer`: the program that must not run twice.

use witness::{Contact, Road, Signer, SignerSettings, sign};

use crate::args::witness::SignerArgs;
use crate::exit::{Ending, say};
use crate::serve::Stops;
use crate::server::host_name;

/// Signs until it is told to stop.
pub(crate) async fn signer(typed: &SignerArgs) -> Result<(), Ending> {
    let mut stops = Stops::new()?;
    let settings = SignerSettings {
        witness: typed.witness.clone(),
        road: if typed.http { Road::Http } else { Road::Udp },
        every: typed.every,
        hold: typed.hold.clone(),
        node: typed.node.clone().unwrap_or_else(host_name),
        token: typed.token,
    };
    let signer = Signer::new(&settings)
        .map_err(|why| Ending::wrong_input(format!("no tick can be made: {why}")))?;
    let SignerSettings { witness, hold, node, token, .. } = &settings;
    let instance = signer.instance();
    say(&format!("{node}/{instance} signs for {hold} under token {token}, seen by {witness}"));
    let tell = |contact| match contact {
        Contact::Away(why) => {
            say(&format!("the witness {witness} is away: {why}; signing goes on"));
        }
        Contact::Back => say(&format!("the witness {witness} is there again")),
    };
    tokio::select! {
        () = stops.next() => {}
        () = sign(signer, &settings, tell) => {}
    }
    Ok(())
}
