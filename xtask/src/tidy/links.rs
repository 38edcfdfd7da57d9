//! Links in our documents: those to files and headings of the repository must lead somewhere.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::{Fault, Source};
use crate::top;

pub(super) fn check(sources: &[Source], faults: &mut Vec<Fault>) {
    let documents = sources.iter().filter(|source| source.has_extension(&["md"]));
    let headings = documents.clone().map(|source| (source.path.as_path(), anchors(&source.text)));
    let headings = headings.collect::<HashMap<_, _>>();
    for source in documents {
        for (line, target) in links(&source.text) {
            let (file, anchor) =
                target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let folder = source.path.parent().unwrap_or(Path::new(""));
            let path = if file.is_empty() { source.path.clone() } else { normal(&folder.join(file)) };
            if !top().join(&path).exists() {
                faults.push(Fault::at(&source.path, line, format!("the link `{target}` leads nowhere")));
            } else if let (Some(anchor), Some(known)) = (anchor, headings.get(path.as_path()))
                && !known.iter().any(|heading| heading == anchor)
            {
                faults.push(Fault::at(
                    &source.path,
                    line,
                    format!("`{}` has no heading `#{anchor}`", path.display()),
                ));
            }
        }
    }
}

/// Targets of links to places of the repository, with their lines; code is not looked at.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in outside_of_code(text) {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            let target = &rest[..end];
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target));
            }
        }
    }
    found
}

/// The names by which headings are linked, as the usual renderers make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = outside_of_code(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then(|| title.trim())
    });
    let anchor = |title: &str| {
        let kept = title.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Lines, counted from 1, but those between code fences.
fn outside_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((number + 1, line))
    })
}

/// The path without `.` and `..`, so that it can be compared with the paths that git lists.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_places_of_ours_are_found() {
        let text = "see [a](a.md) and [b](../b.md#part \"title\"),\n[c](https://example.com)\n```\n[d](d.md)\n```\n[e](#f)\n";
        assert_eq!(links(text), [(1, "a.md"), (1, "../b.md#part"), (6, "#f")]);
    }

    #[test]
    fn headings_have_the_usual_names() {
        let text = "# The Title\n## 2. `queue.cfg`: options\n```\n# not a heading\n```\n#nor this\n";
        assert_eq!(anchors(text), ["the-title", "2-queuecfg-options"]);
    }

    #[test]
    fn paths_are_made_comparable() {
        assert_eq!(normal(Path::new("docs/../README.md")), Path::new("README.md"));
        assert_eq!(normal(Path::new("./docs/./a.md")), Path::new("docs/a.md"));
    }
}
