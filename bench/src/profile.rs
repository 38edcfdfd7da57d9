//! Profiles that `valgrind --tool=callgrind` writes: instructions by function and by crate.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::{Context, Result, ensure};

/// Instructions, each counted where it stands: a caller does not have those of what it calls. Code that the compiler
/// has put into another function counts for the crate from which it comes, and for the function in which it is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) total: u64,
    pub(crate) by_function: HashMap<String, u64>,
    pub(crate) by_crate: HashMap<String, u64>,
}

impl Profile {
    /// Reads the text of a profile whose only events are instructions.
    pub(crate) fn read(text: &str) -> Result<Self> {
        ensure!(text.starts_with("# callgrind format"), "this is not a profile of callgrind");
        let mut profile = Self::default();
        let (mut objects, mut files, mut functions) = (Names::default(), Names::default(), Names::default());
        let (mut object, mut file, mut function) = ("", "", "");
        let mut is_of_callee = false;
        let mut said = 0;
        for line in text.lines() {
            if let Some(total) = line.strip_prefix("totals: ") {
                said = total.trim().parse().context("the total of the profile is not a number")?;
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                let Some(cost) = cost_of(line) else { continue };
                // The line after `calls` says what the callee cost, which stands there once more.
                if !std::mem::take(&mut is_of_callee) {
                    profile.total += cost;
                    add(&mut profile.by_function, function, cost);
                    add(&mut profile.by_crate, crate_of(file, object), cost);
                }
                continue;
            };
            match key {
                "ob" => object = objects.resolve(value)?,
                "fl" | "fi" | "fe" => file = files.resolve(value)?,
                "fn" => function = functions.resolve(value)?,
                // A line that names a called function may introduce its name.
                "cob" => drop(objects.resolve(value)?),
                "cfi" | "cfl" => drop(files.resolve(value)?),
                "cfn" => drop(functions.resolve(value)?),
                "calls" => is_of_callee = true,
                _ => {}
            }
        }
        let found = profile.total;
        ensure!(
            found == said,
            "the profile says that it has {said} instructions, but {found} are found in it"
        );
        Ok(profile)
    }

    /// The surplus over `other`.
    pub(crate) fn beyond(&self, other: &Self) -> Self {
        let beyond = |ours: &HashMap<String, u64>, theirs: &HashMap<String, u64>| {
            let less = |(name, &count): (&String, &u64)| {
                (name.clone(), count.saturating_sub(theirs.get(name).copied().unwrap_or_default()))
            };
            ours.iter().map(less).collect()
        };
        Self {
            total: self.total.saturating_sub(other.total),
            by_function: beyond(&self.by_function, &other.by_function),
            by_crate: beyond(&self.by_crate, &other.by_crate),
        }
    }
}

/// Instructions by name, the most first.
pub(crate) fn sorted(counts: &HashMap<String, u64>) -> Vec<(&str, u64)> {
    let mut sorted = counts.iter().map(|(name, &count)| (name.as_str(), count)).collect::<Vec<_>>();
    sorted.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    sorted
}

fn add(counts: &mut HashMap<String, u64>, name: &str, cost: u64) {
    match counts.get_mut(name) {
        Some(count) => *count += cost,
        None => drop(counts.insert(name.to_owned(), cost)),
    }
}

/// The cost in a line `<line number> <cost>`, where the number may be relative; `None` for any other line.
fn cost_of(line: &str) -> Option<u64> {
    let (position, cost) = line.split_once(' ')?;
    position.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')).then_some(())?;
    cost.trim().parse().ok()
}

/// Names that are written out once, `(1) main`, and then only numbered, `(1)`.
#[derive(Debug, Default)]
struct Names<'a> {
    known: HashMap<&'a str, &'a str>,
}

impl<'a> Names<'a> {
    fn resolve(&mut self, text: &'a str) -> Result<&'a str> {
        let Some((number, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
            return Ok(text);
        };
        match (self.known.entry(number), name.trim_start()) {
            (Entry::Occupied(known), "") => Ok(known.get()),
            (Entry::Vacant(_), "") => None.with_context(|| format!("the name ({number}) is not known")),
            (entry, name) => Ok(*entry.insert_entry(name).get()),
        }
    }
}

/// The crate of a source file, or failing that the library or program in which the code is.
fn crate_of<'a>(file: &'a str, object: &'a str) -> &'a str {
    if file.contains("/library/") && file.contains("rustc") {
        return "std";
    }
    if let Some((_, after)) = file.split_once("crates/")
        && let Some((name, _)) = after.split_once('/')
    {
        return name;
    }
    // `…/registry/src/<registry>/<name>-<version>/…`
    if let Some((_, after)) = file.split_once("/registry/src/")
        && let Some(package) = after.split('/').nth(1)
    {
        return package.rsplit_once('-').map_or(package, |(name, _)| name);
    }
    object.rsplit('/').next().unwrap_or(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# callgrind format
version: 1
cmd:  lycosa serve --listen 127.0.0.1:1
events: Ir
summary: 1000

ob=(1) /usr/bin/lycosa
fl=(1) crates/store/src/arena.rs
fn=(1) lycosa_store::arena::insert
70 2
+3 5
fi=(2) /rustc/0123/library/core/src/ptr.rs
* 10
fe=(1)
cob=(2) /usr/lib/libc.so.6
cfi=(3) ./string/memcpy.S
cfn=(2) memcpy
calls=1 -34
-5 68

ob=(2)
fl=(3)
fn=(2)
1 68

ob=(1)
fl=(4) /x/registry/src/index.crates.io-0123/tokio-util-1.0.0/src/lib.rs
fn=(3) tokio::run
4 7

totals: 92
";

    #[test]
    fn costs_are_counted_once() {
        let profile = Profile::read(TEXT).unwrap();
        assert_eq!(profile.total, 2 + 5 + 10 + 68 + 7);
        assert_eq!(
            sorted(&profile.by_function),
            [("memcpy", 68), ("lycosa_store::arena::insert", 17), ("tokio::run", 7)]
        );
        assert_eq!(
            sorted(&profile.by_crate),
            [("libc.so.6", 68), ("std", 10), ("store", 7), ("tokio-util", 7)]
        );
    }

    #[test]
    fn profiles_are_subtracted() {
        let before = Profile::read(TEXT).unwrap();
        let after =
            Profile::read(&TEXT.replace("1 68\n", "1 168\n").replace("totals: 92", "totals: 192")).unwrap();
        let beyond = after.beyond(&before);
        assert_eq!(beyond.total, 100);
        assert_eq!(sorted(&beyond.by_function)[0], ("memcpy", 100));
        assert_eq!(beyond.by_crate["store"], 0);
    }

    #[test]
    fn what_is_no_profile() {
        assert!(Profile::read("").is_err());
        assert!(Profile::read(&TEXT.replace("totals: 92", "totals: 93")).is_err());
        assert!(Profile::read("# callgrind format\nfn=(7)\n").is_err());
    }
}
