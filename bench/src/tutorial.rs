//! The queue that the article *How to build a high-performance application on Tarantool from scratch* builds: its final
//! `queue.lua` is cut out of the article's text when it is needed. Nothing of it is part of this program.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// What stands in the article before the final file.
const HEADING: &str = "**queue.lua:**";
const FENCE: &str = "```";

/// The code, from the article's Markdown or from the first file of a folder that has it.
pub(crate) fn code(path: &Path) -> Result<String> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    if !path.is_dir() {
        let text = read(path)?;
        return extract(&String::from_utf8_lossy(&text))
            .with_context(|| format!("{} has no code behind `{HEADING}`", path.display()));
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    for file in files.iter().filter(|file| file.is_file()) {
        if let Some(code) = extract(&String::from_utf8_lossy(&read(file)?)) {
            return Ok(code);
        }
    }
    None.with_context(|| format!("no file in {} has code behind `{HEADING}`", path.display()))
}

/// The block of code behind the heading.
fn extract(text: &str) -> Option<String> {
    let (_, after) = text.rsplit_once(HEADING)?;
    let (before, after) = after.split_once(FENCE)?;
    let (code, _) = after.split_once(FENCE)?;
    let (_language, code) = code.split_once('\n')?;
    before.trim().is_empty().then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTICLE: &str = "Text. **queue.lua:**\n```lua\nreturn 'draft'\n```\nFinal: **queue.lua:**\n\
                           ```\nlocal queue = {}\nreturn queue\n\n```**init.lua:**```\nbox.cfg{}\n```";

    #[test]
    fn the_last_version_counts() {
        assert_eq!(extract(ARTICLE).unwrap(), "local queue = {}\nreturn queue\n\n");
        for wrong in ["", "**queue.lua:**", "**queue.lua:** ```", "**queue.lua:** is explained ```\nx\n```"] {
            assert_eq!(extract(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn folders_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        assert!(code(folder.path()).is_err());
        fs::write(folder.path().join("0.txt"), "nothing").unwrap();
        fs::write(folder.path().join("1.txt"), ARTICLE).unwrap();
        assert!(code(folder.path()).unwrap().starts_with("local queue"));
        assert!(code(&folder.path().join("0.txt")).is_err());
        assert!(code(&folder.path().join("2.txt")).is_err());
    }
}
