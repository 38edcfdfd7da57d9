//! The packages: the stripped release binary with its debug information beside it, man pages, the Debian package.
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

/// The holder of the rights, in Debian's form.
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2026 the Lycosa authors
License: MIT or Apache-2.0
 See LICENSE-MIT and LICENSE-APACHE beside this file.
";

/// What lintian need not say: others must not read the configuration.
const OVERRIDES: &str = "lycosa: non-standard-file-perm 0640 != 0644 [etc/lycosa/lycosa.toml]\n";

/// The package's list of changes, which Debian wants.
fn changelog_of(version: &str) -> String {
    format!(
        "lycosa ({version}) unstable; urgency=medium\n\n  * Version {version}.\n\n \
         -- Lycosa maintainers <maintainers@lycosa.invalid>  Thu, 01 Jan 2026 00:00:00 +0000\n"
    )
}

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
    put(&root, "usr/share/doc/lycosa/copyright", COPYRIGHT.as_bytes(), 0o644)?;
    put(&root, "usr/share/lintian/overrides/lycosa", OVERRIDES.as_bytes(), 0o644)?;
    let changelog = root.join("usr/share/doc/lycosa/changelog");
    put(&root, "usr/share/doc/lycosa/changelog", changelog_of(version).as_bytes(), 0o644)?;
    Program::new("gzip").arguments(["-9", "-n", "-f"]).arguments([&changelog]).run()?;
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
         Depends: libc6 (>= 2.36), libgcc-s1, init-system-helpers (>= 1.54), passwd\n\
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
    // Under any umask other users can read the installed files.
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

    /// Runs a script of the package with programs that only write down how they were called. Returns the calls.
    fn calls_of(script: &str, arguments: &[&str], was_enabled: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("calls");
        let programs = [
            "getent",
            "useradd",
            "userdel",
            "mkdir",
            "chown",
            "chmod",
            "rm",
            "rmdir",
            "systemctl",
            "deb-systemd-invoke",
        ];
        let note = format!("#!/bin/sh\necho \"${{0##*/}} $*\" >> '{}'\n", log.display());
        let helper = format!("{note}[ \"$2\" != was-enabled ] || exit {}\n", u8::from(!was_enabled));
        let all =
            programs.map(|program| (program, &note)).into_iter().chain([("deb-systemd-helper", &helper)]);
        for (program, text) in all {
            let path = folder.path().join(program);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        let status = std::process::Command::new("/bin/sh")
            .arg(top().join("packaging").join(script))
            .args(arguments)
            .env("PATH", folder.path())
            .status()
            .unwrap();
        assert!(status.success(), "{script} {arguments:?}: {status}");
        fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_upgrade_leaves_a_unit_disabled_and_files_as_their_administrator_wants_them() {
        let has = |calls: &[String], part: &str| calls.iter().any(|call| call.contains(part));
        let first = calls_of("postinst", &["configure", ""], true);
        assert!(has(&first, "deb-systemd-helper enable lycosa.service"), "{first:?}");
        assert!(has(&first, "chmod 700 /var/lib/lycosa"), "{first:?}");
        let upgrade = calls_of("postinst", &["configure", "0.0.1"], true);
        assert!(has(&upgrade, "deb-systemd-helper enable lycosa.service"), "{upgrade:?}");
        assert!(!has(&upgrade, "chmod") && !has(&upgrade, "chown"), "{upgrade:?}");
        let disabled = calls_of("postinst", &["configure", "0.0.1"], false);
        assert!(!has(&disabled, "enable lycosa.service"), "{disabled:?}");
        assert!(has(&disabled, "deb-systemd-helper update-state lycosa.service"), "{disabled:?}");
        for script in SCRIPTS {
            let text = fs::read_to_string(top().join("packaging").join(script)).unwrap();
            let starts = ["enable", "disable", "start", "restart", "stop"];
            let is_forced =
                |line: &str| starts.iter().any(|verb| line.contains(&format!("systemctl {verb}")));
            assert!(!text.lines().any(is_forced), "{script} asks deb-systemd-helper and deb-systemd-invoke");
        }
        assert!(!has(&calls_of("postrm", &["remove"], true), "rm "), "only a purge removes data");
        assert!(has(&calls_of("postrm", &["purge"], true), "rm -rf /var/lib/lycosa"));
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
