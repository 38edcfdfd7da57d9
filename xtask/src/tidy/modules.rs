//! Arrows between modules of one crate, where they go one way: a module that is not to know another imports nothing of it.

use super::{Fault, Source};

/// A folder, and what code in it must not name. Documentation may.
const ONE_WAY: [(&str, &[&str]); 1] =
    [("crates/instance/src/shard/", &["crate::front", "crate::Instance", "super::front", "crate::{"])];

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    let Some((folder, forbidden)) = ONE_WAY.iter().find(|(folder, _)| source.path.starts_with(folder)) else {
        return;
    };
    for (number, line) in source.text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        if let Some(named) = forbidden.iter().find(|named| code.contains(**named)) {
            faults.push(Fault::at(
                &source.path,
                number + 1,
                format!("`{named}` is not for `{folder}`, which must not know its callers"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        let mut faults = Vec::new();
        check(&Source { path: path.into(), text: text.to_owned() }, &mut faults);
        faults.len()
    }

    #[test]
    fn a_shard_imports_nothing_of_its_front() {
        let text = "//! See [`Instance`](crate::Instance).\nuse crate::front::replies::Replies;\nuse crate::shard::Shard;\n";
        assert_eq!(faults("crates/instance/src/shard/data.rs", text), 1);
        assert_eq!(faults("crates/instance/src/shard/data.rs", "use crate::{Instance, Lsn};\n"), 1);
        assert_eq!(faults("crates/instance/src/front/call.rs", text), 0);
    }
}
