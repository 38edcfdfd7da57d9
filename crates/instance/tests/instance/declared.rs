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
    let signature = rig.instance.standing().signature;
    assert_eq!(declare(&mut rig, &users, &tubes), Ok(Declared::default()));
    assert_eq!(rig.instance.standing().signature, signature, "nothing is written when nothing is new");

    let mut ann = rig.login("ann", "secret");
    assert_eq!(rig.call(&mut ann, "queue.tube.mail:put", &values!["a"]), Ok(task(0, "r", "a")));
    assert_eq!(rig.call(&mut ann, "queue.tube.mail:take", &values![0]), Ok(task(0, "t", "a")));
    assert_eq!(rig.call(&mut ann, "queue.tube.mail:ack", &values![0]), Ok(task(0, "-", "a")));
    let refusal = refused(rig.call(&mut ann, "queue.tube.jobs:put", &values!["a"]));
    assert_eq!(refusal.0, ErrorCode::AccessDenied);
    let mut root = rig.login("root", "secret");
    assert_eq!(rig.call(&mut root, "queue.tube.jobs:put", &values!["a"]), Ok(task(0, "r", "a")));
}

/// Every tube, those to come included, creating and dropping tubes: and nothing by which the user would become more.
#[test]
fn every_tube_is_every_tube_and_nothing_else() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    rig.create_space(600, "secrets", options! {});
    declare(&mut rig, &[user("ops", Some("secret"), &["*"])], &[]).expect("a user");
    rig.create_tube("later", "limfifottl");
    let mut ops = rig.login("ops", "secret");
    let created = rig.call(&mut ops, "queue.create_tube", &values!["own", "utube"]);
    assert!(created.is_ok(), "{created:?}");
    for tube in ["mail", "later", "own"] {
        assert_eq!(
            rig.call(&mut ops, &format!("queue.tube.{tube}:put"), &values!["a"]),
            Ok(task(0, "r", "a"))
        );
        assert_eq!(
            rig.call(&mut ops, &format!("queue.tube.{tube}:take"), &values![0]),
            Ok(task(0, "t", "a"))
        );
        assert!(rig.call(&mut ops, "queue.statistics", &values![tube]).is_ok());
        let space = rig.instance.store().space_by_name(tube).expect("a tube is a space").id();
        assert!(rig.select(&mut ops, space, 0, &values![]).is_ok(), "as with a grant on {tube} alone");
        assert_eq!(rig.call(&mut ops, &format!("queue.tube.{tube}:ack"), &values![0]), Ok(task(0, "-", "a")));
    }
    let tubes = rig.call(&mut ops, "queue.tubes", &values![]).expect("all tubes");
    for tube in ["mail", "later", "own"] {
        assert!(tubes[0].get(tube).is_some(), "{tube} is missing: {tubes:?}");
    }
    for tube in ["own", "mail"] {
        assert_eq!(rig.call(&mut ops, &format!("queue.tube.{tube}:drop"), &values![]), Ok(vec![true.into()]));
    }
    for (function, arguments) in [
        ("box.schema.user.passwd", values!["admin", "mine"]),
        ("box.schema.user.passwd", values!["guest", ""]),
        ("box.schema.user.create", values!["other"]),
        ("box.schema.user.grant", values!["ops", "execute", "universe"]),
        ("box.schema.user.grant", values!["ops", "execute", "role", "super"]),
        ("box.schema.role.create", values!["other"]),
        ("box.schema.func.create", values!["other"]),
        ("queue.grant", values!["guest", "*"]),
        ("queue.revoke", values!["ops", "*"]),
        ("queue.tube.later:grant", values!["guest", options! { call: true }]),
        ("queue.cfg", values![options! { ttr: 5 }]),
        ("queue.create_tube", values!["secrets", "fifo", options! { if_not_exists: true }]),
        ("expiration.start", values!["x", "secrets", options! {}]),
    ] {
        let refusal = refused(rig.call(&mut ops, function, &arguments));
        assert!(refusal.0 == ErrorCode::AccessDenied, "{function}: {refusal:?}");
    }
    for space in [272, 280, 288, 296, 304, 312, 320, 600] {
        assert_eq!(refused(rig.insert(&mut ops, space, &values![1])).0, ErrorCode::AccessDenied, "{space}");
    }
    assert_eq!(refused(rig.select(&mut ops, 600, 0, &values![])).0, ErrorCode::AccessDenied);
    let eval = lycosa_iproto::request::Body::Eval { text: b"return 1", args: &[0x90] };
    assert_eq!(refused(rig.ask(&mut ops, &eval)).0, ErrorCode::AccessDenied);
}

/// A role of that name that another user has created gives nothing.
#[test]
fn the_role_of_every_tube_is_the_administrators() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    rig.create_user("ann", "secret");
    rig.grant("ann", "create,execute", "role", "");
    rig.grant("ann", "write", "space", "_user");
    rig.grant("ann", "read,write", "space", "_priv");
    let mut ann = rig.login("ann", "secret");
    let made = rig.insert(&mut ann, 304, &values![50, ann_id(&rig), "lycosa_tubes", "role", options! {}]);
    assert!(made.is_ok(), "{made:?}");
    let granted = rig.insert(&mut ann, 312, &values![ann_id(&rig), ann_id(&rig), "role", 50, 4]);
    assert!(granted.is_ok(), "{granted:?}");
    let refusal = refused(rig.call(&mut ann, "queue.tube.mail:put", &values!["a"]));
    assert_eq!(refusal.0, ErrorCode::AccessDenied);
    let error = declare(&mut rig, &[user("ops", None, &["*"])], &[]).expect_err("the name is taken");
    assert!(error.contains("rename 'lycosa_tubes'"), "{error}");
}

fn ann_id(rig: &Rig) -> u64 {
    rig.instance.store().user_by_name("ann").expect("she was created").id.into()
}

/// What an older version granted for `tubes = ["*"]` made an administrator of the user.
#[test]
fn the_former_rights_of_every_tube_are_replaced() {
    let former = "read,write,execute,create,drop,alter";
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    for name in ["ops", "dev", "boss"] {
        rig.create_user(name, "secret");
        rig.grant(name, former, "universe", "");
    }
    rig.grant("boss", "reference", "universe", "");
    let every = |name: &str| user(name, None, &["*"]);
    let declared = declare(&mut rig, &[every("ops"), every("boss")], &[]).expect("users");
    let [notice] = &declared.differences[..] else { panic!("{declared:?}") };
    assert!(notice.contains("user 'ops'") && notice.contains("an older version granted"), "{notice}");
    let mut admin = rig.admin();
    assert_eq!(rig.call(&mut admin, "queue.grant", &values!["dev", "*"]), Ok(vec![true.into()]));
    let eval = lycosa_iproto::request::Body::Eval { text: b"return 1", args: &[0x90] };
    for (name, expected) in [
        ("ops", ErrorCode::AccessDenied),
        ("dev", ErrorCode::AccessDenied),
        // An administrator has granted this user more.
        ("boss", ErrorCode::Unsupported),
    ] {
        let mut client = rig.login(name, "secret");
        assert_eq!(refused(rig.ask(&mut client, &eval)).0, expected, "{name}");
        let put = rig.call(&mut client, "queue.tube.mail:put", &values!["a"]);
        assert!(put.is_ok(), "{name}: {put:?}");
    }
    assert_eq!(
        declare(&mut rig, &[every("ops"), every("dev")], &[]),
        Ok(Declared::default()),
        "once is enough"
    );
}

#[test]
fn what_was_granted_is_taken_away_again() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "fifo");
    rig.create_tube("jobs", "fifo");
    rig.create_user("ann", "secret");
    let mut admin = rig.admin();
    for tube in ["mail", "jobs", "*"] {
        assert_eq!(rig.call(&mut admin, "queue.grant", &values!["ann", tube]), Ok(vec![false.into()]));
    }
    let mut ann = rig.login("ann", "secret");
    let mut may = |rig: &mut Rig, tube: &str| {
        rig.call(&mut ann, &format!("queue.tube.{tube}:put"), &values!["a"]).is_ok()
    };
    assert!(may(&mut rig, "mail") && may(&mut rig, "jobs"));
    for (tube, mail, jobs) in [("*", true, true), ("mail", false, true), ("jobs", false, false)] {
        assert_eq!(
            rig.call(&mut admin, "queue.revoke", &values!["ann", tube]),
            Ok(vec![true.into()]),
            "{tube}"
        );
        assert_eq!((may(&mut rig, "mail"), may(&mut rig, "jobs")), (mail, jobs), "without {tube}");
        assert_eq!(
            rig.call(&mut admin, "queue.revoke", &values!["ann", tube]),
            Ok(vec![false.into()]),
            "{tube}"
        );
    }
    let left = rig.call(&mut admin, "box.schema.user.info", &values!["ann"]).expect("grants");
    assert_eq!(
        left[0].as_array().map(<[Value]>::len),
        Some(3),
        "public, log-in and its own password: {left:?}"
    );
    assert!(rig.call(&mut admin, "queue.revoke", &values!["nobody", "*"]).is_err());
    assert!(rig.call(&mut admin, "queue.revoke", &values!["ann"]).is_err());
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
