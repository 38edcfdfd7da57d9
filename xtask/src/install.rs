//! Programs that the tests need beside Rust: a real Tarantool, valgrind, Chromium, tmux, Prometheus, Python and JavaScript clients. Each
//! is left alone where it is already there and right. Client packages go under `.test-env/`, which git does not see.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::Program;
use crate::top;

/// Debian's packages, each with a program of the same name, and the argument that asks that program for its version.
const PACKAGES: [(&str, &str); 7] = [
    // Its package starts an example instance where there is a service manager; the tests start their own.
    ("tarantool", "-v"),
    ("strace", "-V"),
    ("faketime", "--version"),
    ("valgrind", "--version"),
    // Chromium without a window: a third of the packages behind it, and a seventh less work for each test.
    ("chromium-headless-shell", "--version"),
    // Runs `lycosa top` as a terminal does.
    ("tmux", "-V"),
    // With promtool, which reads metrics as Prometheus does.
    ("prometheus", "--version"),
];

/// Installs missing programs.
pub(crate) fn all() -> Result<()> {
    debian_packages()?;
    python_clients()?;
    javascript_clients()
}

/// The Python in which the clients are installed.
pub(crate) fn python() -> PathBuf {
    environment().join("venv/bin/python")
}

/// The folder in which Node finds the clients.
pub(crate) fn node_modules() -> PathBuf {
    environment().join("node/node_modules")
}

fn environment() -> PathBuf {
    top().join(".test-env")
}

/// Installs the packages whose programs do not run, all at once: each call of apt-get reads its lists anew.
fn debian_packages() -> Result<()> {
    let fails = |&(name, version): &(&'static str, &str)| !Program::new(name).arguments([version]).succeeds();
    let missing = PACKAGES.iter().copied().filter(fails).map(|(name, _)| name).collect::<Vec<_>>();
    if missing.is_empty() {
        println!("Debian's packages: there");
        return Ok(());
    }
    println!("Debian's packages: installing {}", missing.join(", "));
    let install = [&["install", "--yes", "--no-install-recommends"], &missing[..]].concat();
    if apt_get(&install).is_err() {
        // The lists of packages may be old or missing.
        apt_get(&["update"])?;
        apt_get(&install)?;
    }
    match PACKAGES.iter().copied().find(fails) {
        Some((name, version)) => {
            bail!("the package {name} was installed, but `{name} {version}` does not run")
        }
        None => Ok(()),
    }
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let is_root = Program::new("id").arguments(["-u"]).output().is_ok_and(|id| id.trim() == "0");
    let program = if is_root {
        Program::new("apt-get")
    } else {
        Program::new("sudo").arguments(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"])
    };
    program.variable("DEBIAN_FRONTEND", "noninteractive").arguments(arguments).run()
}

fn python_clients() -> Result<()> {
    let wanted = top().join("tests/python/requirements.txt");
    let venv = environment().join("venv");
    let stamp = venv.join("installed.txt");
    if is_same(&wanted, &stamp)
        && Program::new(python()).arguments(["-c", "import asynctnt, carbon, tarantool, whisper"]).succeeds()
    {
        println!("python clients: there");
        return python_package();
    }
    println!("python clients: installing into {}", venv.display());
    fs::create_dir_all(environment())?;
    Program::new("python3").arguments(["-m", "venv", "--clear"]).arguments([&venv]).run()?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    Program::new(python()).arguments(pip).arguments([&wanted]).run()?;
    mark(&wanted, &stamp)?;
    python_package()
}

/// Installs the package of this repository as its users do, every time: that takes a second, and what the tests import is
/// what stands in the folder.
fn python_package() -> Result<()> {
    let package = top().join("python");
    println!("python package lycosa: installing from {}", package.display());
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    // What it builds on and is built with is pinned in the requirements and there already.
    let offline = ["--no-index", "--no-build-isolation", "--force-reinstall", "--no-deps"];
    Program::new(python()).arguments(pip).arguments(offline).arguments([&package]).run()
}

fn javascript_clients() -> Result<()> {
    let wanted = top().join("tests/js/package-lock.json");
    let folder = environment().join("node");
    let stamp = folder.join("installed.json");
    if is_same(&wanted, &stamp) && node_modules().join("playwright-core").exists() {
        println!("javascript clients: there");
        return Ok(());
    }
    println!("javascript clients: installing into {}", folder.display());
    fs::create_dir_all(&folder)?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(top().join("tests/js").join(file), folder.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    Program::new("npm").arguments(["ci", "--no-audit", "--no-fund"]).folder(&folder).run()?;
    mark(&wanted, &stamp)
}

/// Whether the packages installed last are the wanted ones.
fn is_same(wanted: &Path, stamp: &Path) -> bool {
    matches!((fs::read(wanted), fs::read(stamp)), (Ok(wanted), Ok(stamp)) if wanted == stamp)
}

fn mark(wanted: &Path, stamp: &Path) -> Result<()> {
    fs::copy(wanted, stamp).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(())
}
