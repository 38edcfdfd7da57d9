//! Texts of values and names, as users write them.

/// The text of a TOML value in the form that the setting reads.
pub(super) fn toml_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(toml_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The candidate that shares most with `wanted`, if it is near enough to be a slip.
pub fn nearest(wanted: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    candidates
        .map(|candidate| (strsim::osa_distance(wanted, &candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .map(|(_, candidate)| candidate)
}
