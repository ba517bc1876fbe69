//! `watchbell restore`.

use std::sync::Arc;

use serde::Serialize;
use store::backup::{Restored, restore as write_back};
use store::machine::{Machine, System};
use store::{StoreUrl, open_or_create};

use crate::args::backup::RestoreArgs;
use crate::backup::{BackupReport, open};
use crate::exit::Ending;
use crate::progress::Progress;
use crate::trigger::print;

/// What was restored, for programs.
#[derive(Serialize)]
struct RestoreReport {
    #[serde(flatten)]
    backup: BackupReport,
    epoch: String,
}

pub(crate) async fn restore(typed: &RestoreArgs) -> Result<(), Ending> {
    let url = StoreUrl::parse(&typed.store)?;
    if url == StoreUrl::Memory {
        return Err(Ending::wrong_input(
            "--store: what is in memory is gone when this command ends; give another store",
        ));
    }
    let mut file = open(&typed.file)?;
    // Before there is a store that nobody wanted.
    store::backup::verify(&mut file)?;
    let store = open_or_create(&url).await?;
    let machine: Arc<dyn Machine> = Arc::new(System);
    let progress = Progress::on_stderr();
    let told = |done, all| {
        if done == all || done % 1_000 == 0 {
            progress.show(format_args!("{done} of {all} entries written"));
        }
    };
    let file = open(&typed.file)?;
    let Restored { summary, epoch } = write_back(&store, &machine, file, told).await?;
    drop(progress);
    let answer = RestoreReport { backup: BackupReport::of(&typed.file, &summary), epoch };
    print(typed.output, &answer, || {
        format!(
            "{}\nRestored to {} as epoch {}. Slots since the backup are missed ones: each trigger's catch_up decides.\n",
            answer.backup.text(),
            url,
            answer.epoch
        )
    })
}
