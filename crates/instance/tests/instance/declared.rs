//! Users and tubes of the configuration.

use lycosa_instance::{Declared, DeclaredTube, DeclaredUser};
use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::value::Value;

use crate::rig::{Rig, options, refused, task, values};

fn tube(name: &str, kind: &str, options: Value) -> DeclaredTube {
    DeclaredTube { name: name.to_owned(), kind: kind.to_owned(), options }
}

fn user(name: &str, password: Option<&str>, tubes: &[&str]) -> DeclaredUser {
    DeclaredUser {
        name: name.to_owned(),
        password: password.map(str::to_owned),
        roles: Vec::new(),
        tubes: tubes.iter().map(|&tube| tube.to_owned()).collect(),
    }
}

fn declare(rig: &mut Rig, users: &[DeclaredUser], tubes: &[DeclaredTube]) -> Result<Declared, String> {
    let declared = rig.instance.declare(users, tubes, rig.now).map_err(|error| error.message);
    rig.sync_journal();
    declared
}

#[test]
fn what_is_missing_is_made_once() {
    let mut rig = Rig::new();
    let users = [user("ann", Some("secret"), &["mail"]), user("root", Some("secret"), &["*"])];
    let tubes = [tube("mail", "fifottl", options! { ttr: 5 }), tube("jobs", "fifo", options! {})];
    let declared = declare(&mut rig, &users, &tubes).expect("users and tubes");
    assert_eq!(declared.users, ["ann", "root"]);
    assert_eq!(declared.tubes, ["mail", "jobs"]);
    let signature = rig.instance.status().signature;
    assert_eq!(declare(&mut rig, &users, &tubes), Ok(Declared::default()));
    assert_eq!(rig.instance.status().signature, signature, "nothing is written when nothing is new");

    let mut ann = rig.login("ann", "secret");
    assert_eq!(rig.call(&mut ann, "queue.tube.mail:put", &values!["a"]), Ok(task(0, "r", "a")));
    assert_eq!(rig.call(&mut ann, "queue.tube.mail:take", &values![0]), Ok(task(0, "t", "a")));
    assert_eq!(rig.call(&mut ann, "queue.tube.mail:ack", &values![0]), Ok(task(0, "-", "a")));
    let refusal = refused(rig.call(&mut ann, "queue.tube.jobs:put", &values!["a"]));
    assert_eq!(refusal.0, ErrorCode::AccessDenied);
    let mut root = rig.login("root", "secret");
    assert_eq!(rig.call(&mut root, "queue.tube.jobs:put", &values!["a"]), Ok(task(0, "r", "a")));
}

#[test]
fn a_declaration_changes_passwords_and_adds_rights() {
    let mut rig = Rig::new();
    declare(&mut rig, &[user("ann", Some("one"), &[])], &[]).expect("a user");
    rig.login("ann", "one");
    let mut changed = user("ann", Some("two"), &[]);
    changed.roles.push("super".to_owned());
    assert_eq!(declare(&mut rig, &[changed], &[]), Ok(Declared::default()));
    let mut ann = rig.login("ann", "two");
    assert!(rig.select(&mut ann, 304, 0, &values![]).is_ok());
    assert_eq!(declare(&mut rig, &[user("ann", None, &[])], &[]), Ok(Declared::default()));
    rig.login("ann", "two");
}

#[test]
fn a_tube_that_is_there_stays_as_it_is() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    let refusal = declare(&mut rig, &[], &[tube("mail", "utube", options! {})]).expect_err("another type");
    assert!(
        refusal.starts_with("tube 'mail' of the configuration: it exists with the type fifo"),
        "{refusal}"
    );
    let declared = declare(&mut rig, &[], &[tube("mail", "fifo", options! {})]);
    assert_eq!(declared, Ok(Declared::default()));
    let mut client = rig.guest();
    let statistics = rig.call(&mut client, "queue.statistics", &values!["mail"]);
    assert!(statistics.is_ok());
}

#[test]
fn an_error_says_which_declaration_it_is_about() {
    let mut rig = Rig::new();
    let wrong = tube("mail", "lifo", options! {});
    let error = declare(&mut rig, &[user("ann", None, &[])], &[wrong]).expect_err("no such type");
    assert_eq!(error, "tube 'mail' of the configuration: Unknown tube type lifo");
    assert!(rig.instance.store().user_by_name("ann").is_none(), "users come after tubes");

    let error = declare(&mut rig, &[user("ann", None, &["none"])], &[]).expect_err("no such tube");
    assert!(error.starts_with("user 'ann' of the configuration: tube 'none' does not exist"), "{error}");
    let mut nobody = user("ann", None, &[]);
    nobody.roles.push("nobody".to_owned());
    let error = declare(&mut rig, &[nobody], &[]).expect_err("no such role");
    assert_eq!(error, "user 'ann' of the configuration: Role 'nobody' is not found");
}
