//! Builds the lists of tasks, models and MCP servers.

use std::path::Path;

use sabir_session::agent::TaskOrigin;
use sabir_session::call::redact;
use sabir_session::{Host, ServerStatus, SessionError, TaskList};
use sabir_terminal::print::count_noun;
use sabir_terminal::task_tree::age_text;

use crate::picker::{PickedItem, PickerItem};

/// The maximum number of tasks that are listed.
const MAX_TASKS: usize = 1000;

/// Lists the tasks of a folder that can be continued, the newest first.
///
/// # Errors
/// When the folder of journals cannot be read.
pub fn list_tasks(host: &Host, folder: &Path) -> Result<Vec<PickerItem>, SessionError> {
    let folder = folder.canonicalize().unwrap_or(folder.to_owned());
    let environment = host.environment();
    let list = TaskList::read(environment, Some(&folder), &[])?;
    let now = environment.now_milliseconds();
    let own = list.tasks().iter().filter_map(|listed| {
        let summary = listed.summary.as_ref().ok()?;
        // A subtask belongs to its task, and an imported history cannot be continued.
        let is_own = !matches!(
            summary.from,
            Some(TaskOrigin::Subtask { .. } | TaskOrigin::Import { .. })
        );
        is_own.then_some((listed, summary))
    });
    let items = own.take(MAX_TASKS).map(|(listed, summary)| {
        // A prompt may hold a key that was pasted into it.
        let prompt = redact::redact_text(&summary.prompt).into_owned();
        let end = match &summary.ended {
            Some(end) => serde_json::to_value(end)
                .ok()
                .and_then(|end| Some(end.as_str()?.replace('_', " ")))
                .unwrap_or_default(),
            None => "open".to_owned(),
        };
        let age = age_text(now.saturating_sub(summary.last_at));
        PickerItem {
            label: prompt.lines().next().unwrap_or_default().to_owned(),
            note: format!("{end}, {age}"),
            preview: format!("{}, {}\n{prompt}", listed.id, summary.model),
            item: PickedItem::Task(listed.id.clone()),
        }
    });
    Ok(items.collect())
}

/// Lists the models of the catalogue, with the sizes of their contexts and their vendors' prices.
pub fn list_models(host: &Host, config: Option<&Path>) -> Vec<PickerItem> {
    let Ok(config) = host.load_config(config) else {
        return Vec::new();
    };
    let catalogue = config.model_catalogue();
    let items = catalogue.all_entries().filter_map(|entry| {
        // Open weights have no provider of their own, so no name could be completed.
        let vendor = entry.vendor.as_deref()?;
        let context = entry.context.map_or("?".to_owned(), |tokens| {
            format!("{} K", tokens.div_ceil(1000))
        });
        let prices = entry.prices.unwrap_or_default();
        let [input, output] = [prices.input, prices.output].map(|price| price_text(price.as_ref()));
        let prices = match (input, output) {
            (None, None) => "prices unknown".to_owned(),
            (input, output) => format!(
                "{} in, {} out",
                input.as_deref().unwrap_or("?"),
                output.as_deref().unwrap_or("?")
            ),
        };
        Some(PickerItem {
            label: format!("{vendor}/{}", entry.pattern),
            note: format!("{context} context, {prices}"),
            preview: "prices are per million tokens; Enter completes the name for /model"
                .to_owned(),
            item: PickedItem::Model(format!("{vendor}/{}", entry.pattern)),
        })
    });
    items.collect()
}

/// Renders a price without the zeros behind it: `$3`, `$0.25`.
fn price_text(price: Option<&impl ToString>) -> Option<String> {
    let price = price?.to_string();
    Some(match price.contains('.') {
        true => price.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => price,
    })
}

/// Lists MCP servers with their states.
pub fn list_servers(statuses: Vec<ServerStatus>) -> Vec<PickerItem> {
    let items = statuses.into_iter().map(|status| PickerItem {
        label: status.name,
        note: format!(
            "{}, {}",
            status.state,
            count_noun(status.tools.len(), "tool")
        ),
        preview: format!("{}\n{}", status.launch, status.tools.join(" ")),
        item: PickedItem::Note,
    });
    items.collect()
}
