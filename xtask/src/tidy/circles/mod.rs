//! Circles of imports between files of a crate.
//!
//! A file that imports another one needs it to be understood, so a circle of files is read as one file. The crates in
//! [`FREE`] have none: values stand above, their verbs in files below that no file above imports.
//!
//! An import is a `use` of the crate's own, or a path in code whose beginning is such a name, a child module, `crate`,
//! `self` or `super`. It leads to the file that holds the name: a file that only passes a name on (`pub use`) is no part
//! of the arrow. Tests (`#[cfg(test)]`, files named `tests`) do not count, since they may look from below at everything.
//!
//! Limits: a name behind a glob of the crate's own leads to the file that has the glob. Methods of a type lead nowhere, wherever
//! their `impl` stands. Modules inside a file are parts of the file, and `main.rs` beside `lib.rs` is a part of the crate's top.
//! Absent: `#[path]`.

mod tokens;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::{Fault, Source};

/// Folders of crates whose files import each other in one direction.
const FREE: [&str; 13] = [
    "crates/client",
    "crates/engine",
    "crates/expiration",
    "crates/folder",
    "crates/group",
    "crates/instance",
    "crates/iproto",
    "crates/journal",
    "crates/metrics",
    "crates/queue",
    "crates/replication",
    "crates/server",
    "crates/tls",
];

/// A module by its path from the top of the crate.
type Module = Vec<String>;
/// For each module the modules that it imports, with the imported names.
type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// Refuses circles in the crates that have none.
pub(super) fn check(sources: &[Source], faults: &mut Vec<Fault>) {
    FREE.iter().for_each(|folder| check_folder(sources, folder, faults));
}

fn check_folder(sources: &[Source], folder: &str, faults: &mut Vec<Fault>) {
    let (files, imports) = read(sources, Path::new(folder));
    if files.is_empty() {
        faults.push(Fault::new(folder, "is listed as free of circles of imports, and has no Rust file"));
    }
    for circle in components(&imports).iter().map(|component| shortest_circle(&imports, component)) {
        let arrow = |(at, from): (usize, &Module)| {
            let to = &circle[(at + 1) % circle.len()];
            format!(
                "{} imports {} ({})",
                files[from].display(),
                files[to].display(),
                join(&imports[from][to])
            )
        };
        let arrows = circle.iter().enumerate().map(arrow).collect::<Vec<_>>().join(", ");
        let advice = "move the names that both need to a file above, or the verbs to a file below";
        let place = files[&circle[0]].display().to_string();
        faults.push(Fault::new(place, format!("a circle of imports: {arrows}; {advice}")));
    }
}

/// Prints every import that stands in a circle of the crate in `folder`.
pub(super) fn list(sources: &[Source], folder: &Path) {
    let (files, imports) = read(sources, folder);
    let components = components(&imports);
    println!("{}: {} files, {} components of circles", folder.display(), files.len(), components.len());
    for component in &components {
        println!("{} files:", component.len());
        for from in component {
            println!("  {}", files[from].display());
            for (to, names) in imports[from].iter().filter(|(to, _)| component.contains(*to)) {
                println!("    imports {} ({})", files[to].display(), join(names));
            }
        }
    }
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// One name that a file imports or passes on.
struct Use<'a> {
    path: Vec<&'a str>,
    name: &'a str,
    is_public: bool,
}

/// A file: the names that it imports, and its tokens without them.
struct File<'a> {
    uses: Vec<Use<'a>>,
    tokens: Vec<&'a str>,
}

/// The files of a crate by module.
struct Crate<'a>(BTreeMap<Module, File<'a>>);

/// The files of the crate in `folder`, and its imports.
fn read(sources: &[Source], folder: &Path) -> (BTreeMap<Module, PathBuf>, Imports) {
    let top = folder.join("src");
    let inside = |source: &&Source| source.path.starts_with(&top) && source.has_extension(&["rs"]);
    let mut files = BTreeMap::new();
    let mut paths = BTreeMap::new();
    let mut tests = Vec::new();
    for source in sources.iter().filter(inside) {
        let within = source.path.strip_prefix(&top).unwrap_or(&source.path).with_extension("");
        let mut module = within.iter().map(|name| name.to_string_lossy().into_owned()).collect::<Module>();
        let is_root = [top.join("lib.rs"), top.join("main.rs")].contains(&source.path);
        if is_root || module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        let mut tokens = tokens::tokens(&source.text);
        let below = tokens::cut_tests(&mut tokens).into_iter();
        tests.extend(below.map(|name| module.iter().cloned().chain([name.to_owned()]).collect::<Module>()));
        paths.insert(module.clone(), source.path.clone());
        files.insert(module, file(&tokens));
    }
    let is_test = |module: &Module| {
        module.iter().any(|name| name == "tests") || tests.iter().any(|test| module.starts_with(test))
    };
    files.retain(|module, _| !is_test(module));
    paths.retain(|module, _| !is_test(module));
    (paths, Crate(files).imports())
}

/// Divides the tokens of a file into imports and the rest.
fn file<'a>(tokens: &[&'a str]) -> File<'a> {
    let mut file = File { uses: Vec::new(), tokens: Vec::new() };
    let mut at = 0;
    while at < tokens.len() {
        // `impl Trait + use<'a>` is no import.
        if tokens[at] != "use" || tokens.get(at + 1) == Some(&"<") {
            file.tokens.push(tokens[at]);
            at += 1;
            continue;
        }
        let is_public = at > 0 && matches!(tokens[at - 1], "pub" | ")");
        let length = tokens[at..].iter().position(|token| *token == ";").unwrap_or(tokens.len() - at);
        tree(&[], &tokens[at + 1..at + length], is_public, &mut file.uses);
        at += length;
    }
    file
}

/// The names of a tree of imports below `before`.
fn tree<'a>(before: &[&'a str], tokens: &[&'a str], is_public: bool, uses: &mut Vec<Use<'a>>) {
    let names = tokens.iter().take_while(|token| **token != "{" && **token != "as");
    let mut path = before.to_vec();
    path.extend(names.copied().filter(|token| tokens::is_name(token) || *token == "*"));
    if let Some(open) = tokens.iter().position(|token| *token == "{") {
        let mut depth = 0;
        let inside = &tokens[open + 1..tokens.len() - 1];
        let branches = inside.split(|token| {
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            depth == 0 && *token == ","
        });
        branches.filter(|branch| !branch.is_empty()).for_each(|branch| tree(&path, branch, is_public, uses));
        return;
    }
    if path.last() == Some(&"self") {
        path.pop();
    }
    let renamed = tokens.iter().position(|token| *token == "as").and_then(|at| tokens.get(at + 1));
    if let Some(name) = renamed.or(path.last()).copied() {
        uses.push(Use { path, name, is_public });
    }
}

impl Crate<'_> {
    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, file) in &self.0 {
            let found = imports.entry(module.clone()).or_default();
            let mut add = |path: &[&str]| {
                if let Some(to) = self.file_of(module, path).filter(|to| to != module) {
                    let is_type = |name: &&&str| name.starts_with(char::is_uppercase);
                    let name = path.iter().find(is_type).or(path.last()).copied().unwrap_or_default();
                    found.entry(to).or_default().insert(name.to_owned());
                }
            };
            // A name that is only passed on is no import.
            let is_needed = |used: &&Use<'_>| !used.is_public || file.tokens.contains(&used.name);
            file.uses.iter().filter(is_needed).for_each(|used| add(&used.path));
            paths(&file.tokens).iter().for_each(|path| add(path));
        }
        imports
    }

    fn has_child(&self, module: &Module, name: &str) -> bool {
        self.0.contains_key(&child(module, name))
    }

    /// The module whose file holds what `path` names in `module`; none if the path leads out of the crate.
    fn file_of(&self, module: &Module, path: &[&str]) -> Option<Module> {
        let (first, _) = path.split_first()?;
        let used = self.0.get(module)?.uses.iter().find(|used| used.name == *first);
        match *first {
            "crate" | "super" | "self" => Some(self.resolve(module, path, 0)),
            first if self.has_child(module, first) => Some(self.resolve(module, path, 0)),
            _ => {
                let used = used.filter(|used| used.path.first() != Some(first))?;
                let path = used.path.iter().chain(&path[1..]).copied().collect::<Vec<_>>();
                self.file_of(module, &path)
            }
        }
    }

    /// Follows `path` from `module` through children and names that are passed on, at most `MAX_DEPTH` of them.
    fn resolve(&self, module: &Module, path: &[&str], depth: usize) -> Module {
        const MAX_DEPTH: usize = 8;
        let mut module = module.clone();
        for (at, name) in path.iter().enumerate() {
            match *name {
                "crate" => module.clear(),
                "super" => drop(module.pop()),
                "self" => {}
                name if self.has_child(&module, name) => module.push(name.to_owned()),
                name => {
                    let used =
                        self.0.get(&module).and_then(|file| file.uses.iter().find(|used| used.name == name));
                    let Some(used) = used.filter(|_| depth < MAX_DEPTH) else { break };
                    let is_inside = used.path.first().is_some_and(|first| {
                        matches!(*first, "crate" | "super" | "self") || self.has_child(&module, first)
                    });
                    if !is_inside {
                        break;
                    }
                    let rest = used.path.iter().chain(&path[at + 1..]).copied().collect::<Vec<_>>();
                    return self.resolve(&module, &rest, depth + 1);
                }
            }
        }
        module
    }
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Paths of two or more names in code, without the paths in visibilities.
fn paths<'a>(tokens: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        let mut path = vec![tokens[at]];
        let mut end = at + 1;
        while tokens.get(end) == Some(&"::") && tokens.get(end + 1).is_some_and(|name| tokens::is_name(name))
        {
            path.push(tokens[end + 1]);
            end += 2;
        }
        if path.len() > 1 && tokens::is_name(path[0]) && !matches!(before, "in" | "::" | ".") {
            paths.push(path);
        }
        at = end;
    }
    paths
}

/// The sets of modules that reach each other, in the order of their first modules.
fn components(imports: &Imports) -> Vec<BTreeSet<Module>> {
    let reached = imports.keys().map(|from| (from, reach(imports, from))).collect::<BTreeMap<_, _>>();
    let mut components = Vec::<BTreeSet<Module>>::new();
    for (from, to) in &reached {
        if to.contains(*from) && !components.iter().any(|component| component.contains(*from)) {
            let is_mutual = |module: &&Module| reached.get(*module).is_some_and(|back| back.contains(*from));
            components.push(to.iter().filter(is_mutual).cloned().collect());
        }
    }
    components
}

/// The modules that `from` imports, directly or not.
fn reach(imports: &Imports, from: &Module) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for to in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    reached
}

/// The shortest way from a module of `component` back to it.
fn shortest_circle(imports: &Imports, component: &BTreeSet<Module>) -> Vec<Module> {
    let circles = component.iter().filter_map(|start| {
        let mut ways = VecDeque::from([vec![start]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for to in imports.get(way[way.len() - 1])?.keys() {
                if to == start {
                    return Some(way.into_iter().cloned().collect::<Vec<_>>());
                }
                if seen.insert(to) {
                    ways.push_back(way.iter().copied().chain([to]).collect());
                }
            }
        }
        None
    });
    circles.min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = "crates/made-up";

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        let source = |(path, text): &(&str, &str)| Source {
            path: Path::new(FOLDER).join("src").join(path),
            text: (*text).to_owned(),
        };
        files.iter().map(source).collect()
    }

    /// Imports as `from > to (names)`.
    fn imports_of(files: &[(&str, &str)]) -> Vec<String> {
        let (_, imports) = read(&sources(files), Path::new(FOLDER));
        let arrow = |from: &Module, to: &Module, names| {
            format!("{} > {} ({})", from.join("/"), to.join("/"), join(names))
        };
        imports
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |(to, names)| arrow(from, to, names)))
            .collect()
    }

    #[test]
    fn uses_and_paths_are_imports() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub(crate) use crate::c::passed_on;"),
            ("a.rs", "//! Not `crate::c::C`.\nuse std::fmt; use super::{b::{self, B as Bee}, c}; struct A;"),
            ("b/mod.rs", "mod inner; fn f() -> crate::A { inner::g(\"crate::c::C\"); fmt::x() }"),
            (
                "b/inner.rs",
                "pub(in crate::c) fn g() { super::super::passed_on() } fn h() -> impl A + use<> {}",
            ),
            ("c.rs", "pub fn passed_on() { x.b::<b::B>() }"),
        ];
        assert_eq!(
            imports_of(&files),
            ["a > b (B, b)", "a > c (c)", "b > a (A)", "b > b/inner (g)", "b/inner > c (passed_on)"]
        );
    }

    #[test]
    fn aliases_lead_to_their_files() {
        let files = [
            ("main.rs", "mod a; mod b; use b::B; fn main() { B::new() }"),
            ("a.rs", "use crate::b; use b::inner; fn f() { inner::g(); b::inner::h() }"),
            ("b.rs", "pub mod inner; pub use inner::B;"),
            ("b/inner.rs", "pub struct B;"),
        ];
        assert_eq!(imports_of(&files), [" > b/inner (B)", "a > b (b)", "a > b/inner (g, h, inner)"]);
    }

    #[test]
    fn tests_look_at_everything() {
        let files = [
            ("lib.rs", "#[cfg(test)] mod fakes; mod a;"),
            ("a.rs", "mod tests; #[cfg(test)] mod checks { use crate::fakes::Fake; }"),
            ("a/tests.rs", "use crate::a::A;"),
            ("fakes.rs", "use crate::a::A;"),
            ("fakes/more.rs", "use crate::a::A;"),
        ];
        assert_eq!(imports_of(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_found_by_its_shortest_way() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
            ("a.rs", "use crate::b::B; use crate::e::E;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A; use crate::d::D;"),
            ("d.rs", "use crate::c::{more, C};"),
            ("e.rs", ""),
        ];
        let sources = sources(&files);
        let (_, imports) = read(&sources, Path::new(FOLDER));
        let components = components(&imports);
        assert_eq!(components.len(), 1);
        assert_eq!(components[0].iter().map(|module| module.concat()).collect::<String>(), "abcd");
        let mut faults = Vec::new();
        check_folder(&sources, FOLDER, &mut faults);
        let faults =
            faults.iter().map(|fault| format!("{}: {}", fault.place, fault.what)).collect::<Vec<_>>();
        assert_eq!(
            faults,
            [
                "crates/made-up/src/c.rs: a circle of imports: crates/made-up/src/c.rs imports crates/made-up/src/d.rs (D), \
              crates/made-up/src/d.rs imports crates/made-up/src/c.rs (C, more); move the names that both need to a file \
              above, or the verbs to a file below"
            ]
        );
    }

    #[test]
    fn a_listed_crate_has_files() {
        let mut faults = Vec::new();
        check_folder(&[], FOLDER, &mut faults);
        assert_eq!(faults.len(), 1);
    }
}
