//! `watchbell config show`: each setting, its value, and where it comes from.

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::json;

use super::file::SettingsFile;
use super::setting::Setting;
use crate::args::OutputFormat;
use crate::exit::Ending;
use crate::table;
use crate::trigger::print;
use crate::value::escape;

/// What stands for a secret.
const MASK: &str = "********";

pub(super) fn show(
    settings: &[Setting],
    file: Option<&SettingsFile>,
    matches: &ArgMatches,
) -> Result<(), Ending> {
    let mut leaf = matches;
    while let Some((_, beneath)) = leaf.subcommand() {
        leaf = beneath;
    }
    let rows: Vec<(&Setting, Option<String>, String)> =
        settings.iter().map(|setting| row(setting, file, leaf)).collect();
    let path = file.map(|file| file.path.display().to_string());
    let told = json!({
        "file": path,
        "settings": rows.iter().map(|(setting, value, origin)| json!({
            "name": setting.name, "variable": setting.variable, "value": value, "from": origin,
        })).collect::<Vec<_>>(),
    });
    let output = match leaf.get_one::<OutputFormat>("output") {
        Some(output) => *output,
        None => OutputFormat::Table,
    };
    print(output, &told, || {
        let mut table = table::plain();
        table.set_header(["setting", "value", "from"]);
        for (setting, value, origin) in &rows {
            let value = value.as_deref().map_or_else(|| "-".to_owned(), escape);
            table.add_row([setting.name.clone(), value, escape(origin)]);
        }
        let file = path
            .map_or_else(|| "There is no file.".to_owned(), |path| format!("The file is {path}."));
        format!("{}\n{file}\n", table::finish(table, 3))
    })
}

fn row<'a>(
    setting: &'a Setting,
    file: Option<&SettingsFile>,
    leaf: &ArgMatches,
) -> (&'a Setting, Option<String>, String) {
    let raw = leaf.try_get_raw(setting.id()).ok().flatten();
    let texts: Option<Vec<String>> =
        raw.map(|raw| raw.map(|text| text.to_string_lossy().into_owned()).collect());
    let shown = |texts: Vec<String>| without_user(&texts.join(", "));
    let value =
        texts.map(|texts| if setting.is_secret(&texts) { MASK.to_owned() } else { shown(texts) });
    let of_file = file.and_then(|file| Some((&file.path, file.values.get(&setting.name)?.line)));
    let origin = match (leaf.value_source(setting.id()), of_file) {
        (Some(ValueSource::CommandLine), _) => format!("flag --{}", setting.name),
        (Some(ValueSource::EnvVariable), _) => format!("variable {}", setting.variable),
        (Some(_), Some((path, line))) => format!("{}:{line}", path.display()),
        (Some(_), None) => "default".to_owned(),
        (None, _) => "not set".to_owned(),
    };
    (setting, value, origin)
}

/// A URL that may be told: who logs in there by which password is not.
fn without_user(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{MASK}@{host}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}
