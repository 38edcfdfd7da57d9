//! What is handed out: the stripped release binary with its debug information beside it, man pages, the Debian package.
//!
//! Everything lies in `target/dist`. The package is built by plain `dpkg-deb` from the files in `packaging/`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::Program;
use crate::{steps, top};

/// Shells whose completions the package has, and where.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/lycosa"),
    ("zsh", "usr/share/zsh/vendor-completions/_lycosa"),
    ("fish", "usr/share/fish/vendor_completions.d/lycosa.fish"),
];

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The folder of everything that is made here.
fn dist() -> Result<PathBuf> {
    let folder = steps::target_folder()?.join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Builds the release, or takes `binary`, and splits it: `lycosa` without and `lycosa.debug` with the debug information. A
/// debugger finds the latter in the folder of the former.
pub(crate) fn dist_binary(binary: Option<&Path>) -> Result<PathBuf> {
    let built = match binary {
        Some(binary) => binary.to_owned(),
        None => {
            Program::cargo()
                .arguments(["build", "--release", "--locked", "--package", "lycosa", "--bin", "lycosa"])
                .run()?;
            steps::target_folder()?.join("release/lycosa")
        }
    };
    let folder = dist()?;
    let (stripped, debug) = (folder.join("lycosa"), folder.join("lycosa.debug"));
    for file in [&stripped, &debug] {
        // A file that runs cannot be written over, but it can be replaced.
        let _ = fs::remove_file(file);
    }
    Program::new("objcopy").arguments(["--only-keep-debug"]).arguments([&built, &debug]).run()?;
    Program::new("objcopy").arguments(["--strip-all"]).arguments([&built, &stripped]).run()?;
    // The link holds the name without a folder, so it is made where the file lies.
    Program::new("objcopy")
        .arguments(["--add-gnu-debuglink=lycosa.debug", "lycosa"])
        .folder(&folder)
        .run()?;
    println!("{} ({} KiB), {}", stripped.display(), size(&stripped)? / 1024, debug.display());
    Ok(stripped)
}

/// Writes the man pages; their folder.
pub(crate) fn man(binary: Option<&Path>) -> Result<PathBuf> {
    let folder = dist()?.join("man");
    let _ = fs::remove_dir_all(&folder);
    match binary {
        Some(binary) => Program::new(binary).arguments(["man"]).arguments([&folder]).run()?,
        None => {
            let run = ["run", "--quiet", "--package", "lycosa", "--bin", "lycosa", "--", "man"];
            Program::cargo().arguments(run).arguments([&folder]).run()?;
        }
    }
    println!("{}", folder.display());
    Ok(folder)
}

/// Builds the Debian package for this machine's architecture.
pub(crate) fn deb(binary: Option<&Path>) -> Result<()> {
    let stripped = dist_binary(binary)?;
    let architecture = Program::new("dpkg").arguments(["--print-architecture"]).output()?.trim().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let root = dist()?.join("deb");
    let _ = fs::remove_dir_all(&root);
    let packaging = top().join("packaging");
    put(&root, "usr/bin/lycosa", &fs::read(&stripped)?, 0o755)?;
    put(&root, "lib/systemd/system/lycosa.service", &fs::read(packaging.join("lycosa.service"))?, 0o644)?;
    put(&root, "etc/lycosa/lycosa.toml", &fs::read(packaging.join("lycosa.toml"))?, 0o640)?;
    for page in fs::read_dir(man(Some(&stripped))?)? {
        let path = page?.path();
        Program::new("gzip").arguments(["-9", "-n", "-f"]).arguments([&path]).run()?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a man page without a name")?;
        let packed = fs::read(path.with_file_name(format!("{name}.gz")))?;
        put(&root, &format!("usr/share/man/man1/{name}.gz"), &packed, 0o644)?;
    }
    for (shell, place) in COMPLETIONS {
        let script = Program::new(&stripped).arguments(["completions", shell]).output()?;
        put(&root, place, script.as_bytes(), 0o644)?;
    }
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        put(&root, &format!("usr/share/doc/lycosa/{file}"), &fs::read(top().join(file))?, 0o644)?;
    }
    let copyright = "License: MIT or Apache-2.0; see LICENSE-MIT and LICENSE-APACHE beside this file.\n";
    put(&root, "usr/share/doc/lycosa/copyright", copyright.as_bytes(), 0o644)?;
    for entry in fs::read_dir(top().join("docs"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a document without a name")?;
        put(&root, &format!("usr/share/doc/lycosa/docs/{name}"), &fs::read(&path)?, 0o644)?;
    }
    let kilobytes = kilobytes_in(&root)?;
    put(&root, "DEBIAN/control", control(version, &architecture, kilobytes).as_bytes(), 0o644)?;
    put(&root, "DEBIAN/conffiles", b"/etc/lycosa/lycosa.toml\n", 0o644)?;
    for script in SCRIPTS {
        put(&root, &format!("DEBIAN/{script}"), &fs::read(packaging.join(script))?, 0o755)?;
    }
    let package = dist()?.join(format!("lycosa_{version}_{architecture}.deb"));
    Program::new("dpkg-deb")
        .arguments(["--build", "--root-owner-group"])
        .arguments([&root, &package])
        .run()?;
    println!("{} ({} KiB)", package.display(), size(&package)? / 1024);
    Ok(())
}

fn control(version: &str, architecture: &str, kilobytes: u64) -> String {
    format!(
        "Package: lycosa\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: Lycosa maintainers <maintainers@lycosa.invalid>\n\
         Section: database\n\
         Priority: optional\n\
         Installed-Size: {kilobytes}\n\
         Depends: libc6 (>= 2.36), libgcc-s1, passwd\n\
         Description: durable task-queue server\n \
         An in-memory queue with a journal, in one binary. It speaks Tarantool's binary\n \
         protocol and has the tubes of tarantool/queue.\n"
    )
}

/// Writes a file below the package's root.
fn put(root: &Path, name: &str, content: &[u8], mode: u32) -> Result<()> {
    let path = root.join(name);
    let parent = path.parent().context("a file without a folder")?;
    fs::create_dir_all(parent)?;
    let mut folder = parent;
    // Whatever the umask is, others can read what is installed.
    while folder.starts_with(root) {
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let Some(above) = folder.parent() else { break };
        folder = above;
    }
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(&path, Permissions::from_mode(mode))?)
}

fn size(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len())
}

fn kilobytes_in(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        sum += if path.is_dir() { kilobytes_in(&path)? } else { size(&path)?.div_ceil(1024) };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_has_a_line_for_each_field_and_ends_with_one() {
        let text = control("0.1.0", "amd64", 5);
        assert!(text.contains("\nVersion: 0.1.0\nArchitecture: amd64\n") && text.ends_with(".\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with(' ') || line.contains(": ")), "{text}");
    }

    #[test]
    fn the_unit_names_what_the_package_installs() {
        let unit = fs::read_to_string(top().join("packaging/lycosa.service")).unwrap();
        for part in ["Type=notify", "/usr/bin/lycosa serve --config /etc/lycosa/lycosa.toml", "User=lycosa"] {
            assert!(unit.contains(part), "{part}");
        }
        for script in SCRIPTS {
            let mode = fs::metadata(top().join("packaging").join(script)).unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0o111, "{script} can be run");
        }
    }
}
