//! `box.schema.user`, `box.schema.role` and `box.schema.func`.

use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, options, refused, values};

fn done(rig: &mut Rig, client: &mut Client, name: &str, args: &Value) {
    assert_eq!(rig.call(client, name, args), Ok(vec![]), "{name} {args}");
}

fn exists(rig: &mut Rig, client: &mut Client, what: &str, name: &str) -> bool {
    let answer = rig.call(client, &format!("box.schema.{what}.exists"), &values![name]);
    answer.expect("an answer")[0].as_bool().expect("a boolean")
}

#[track_caller]
fn assert_refused(rig: &mut Rig, client: &mut Client, name: &str, args: &Value, code: ErrorCode, text: &str) {
    assert_eq!(refused(rig.call(client, name, args)), (code, text.to_owned()), "{name} {args}");
}

#[test]
fn users_come_and_go() {
    let mut rig = Rig::new();
    let mut admin = rig.admin();
    let admin = &mut admin;
    let create = "box.schema.user.create";
    assert!(!exists(&mut rig, admin, "user", "ann"));
    done(&mut rig, admin, create, &values!["ann", options! { password: "one" }]);
    assert!(exists(&mut rig, admin, "user", "ann"));
    assert!(!exists(&mut rig, admin, "role", "ann"), "a user is no role");
    assert_refused(
        &mut rig,
        admin,
        create,
        &values!["ann"],
        ErrorCode::UserExists,
        "User 'ann' already exists",
    );
    done(&mut rig, admin, create, &values!["ann", options! { if_not_exists: true, password: "two" }]);
    rig.login("ann", "one");

    done(&mut rig, admin, "box.schema.user.passwd", &values!["ann", "three"]);
    rig.login("ann", "three");
    let mut client = rig.stranger();
    assert_eq!(refused(rig.auth(&mut client, "ann", "one")).0, ErrorCode::PasswordMismatch);

    done(&mut rig, admin, "box.schema.user.drop", &values!["ann"]);
    let missing = "User 'ann' is not found";
    for (name, args) in [
        ("box.schema.user.drop", values!["ann"]),
        ("box.schema.user.passwd", values!["ann", "four"]),
        ("box.schema.user.info", values!["ann"]),
        ("box.schema.user.grant", values!["ann", "read", "universe"]),
        ("box.schema.user.revoke", values!["ann", "read", "universe"]),
    ] {
        assert_refused(&mut rig, admin, name, &args, ErrorCode::NoSuchUser, missing);
    }
    done(&mut rig, admin, "box.schema.user.drop", &values!["ann", options! { if_exists: true }]);
}

#[test]
fn a_user_changes_its_own_password() {
    let mut rig = Rig::new();
    rig.create_user("ann", "one");
    rig.grant("ann", "execute", "universe", "");
    let mut ann = rig.login("ann", "one");
    done(&mut rig, &mut ann, "box.schema.user.passwd", &values!["two"]);
    rig.login("ann", "two");
    let refusal = refused(rig.call(&mut ann, "box.schema.user.passwd", &values!["admin", "mine"]));
    assert_eq!(refusal.0, ErrorCode::AccessDenied);
    let usage = "Usage: box.schema.user.passwd([name,] password)";
    for args in [values![], values![1], values!["ann", 2], values![Value::Nil, "x"]] {
        assert_refused(&mut rig, &mut ann, "box.schema.user.passwd", &args, ErrorCode::ProcLua, usage);
    }
    let mut guest = rig.guest();
    rig.grant("guest", "execute", "universe", "");
    let refusal = refused(rig.call(&mut guest, "box.schema.user.passwd", &values!["x"]));
    assert_eq!(refusal.0, ErrorCode::GuestUserPassword);
}

#[test]
fn grants() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    rig.create_user("ann", "secret");
    let mut admin = rig.admin();
    let admin = &mut admin;
    let (grant, revoke) = ("box.schema.user.grant", "box.schema.user.revoke");
    done(&mut rig, admin, grant, &values!["ann", "read,write", "space", "s"]);
    let again = values!["ann", "read", "space", "s"];
    let text = "User 'ann' already has read access on space 's'";
    assert_refused(&mut rig, admin, grant, &again, ErrorCode::PrivGranted, text);
    let lenient = values!["ann", "read", "space", "s", options! { if_not_exists: true }];
    done(&mut rig, admin, grant, &lenient);
    done(&mut rig, admin, grant, &values!["ann", "execute", "universe"]);
    done(&mut rig, admin, grant, &values!["ann", "replication"]);

    let info = rig.call(admin, "box.schema.user.info", &values!["ann"]).expect("grants").remove(0);
    let expected = values![
        values!["execute", "role", "public"],
        values!["execute", "role", "replication"],
        values!["read,write", "space", "s"],
        values!["execute,session,usage", "universe", ""],
        values!["alter", "user", "ann"],
    ];
    let sorted = |list: Value| {
        let mut texts: Vec<_> = list.as_array().expect("a list").iter().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    assert_eq!(sorted(info), sorted(expected));

    done(&mut rig, admin, revoke, &values!["ann", "write", "space", "s"]);
    let text = "User 'ann' does not have write access on space 's'";
    let gone = values!["ann", "write", "space", "s"];
    assert_refused(&mut rig, admin, revoke, &gone, ErrorCode::PrivNotGranted, text);
    done(&mut rig, admin, revoke, &values!["ann", "write", "space", "s", options! { if_exists: true }]);
    done(&mut rig, admin, revoke, &values!["ann", "replication"]);
    let text = "User 'ann' does not have role 'replication'";
    assert_refused(&mut rig, admin, revoke, &values!["ann", "replication"], ErrorCode::RoleNotGranted, text);
}

#[test]
fn roles() {
    let mut rig = Rig::new();
    rig.create_space(600, "s", options! {});
    rig.create_user("ann", "secret");
    let mut admin = rig.admin();
    let admin = &mut admin;
    done(&mut rig, admin, "box.schema.role.create", &values!["reader"]);
    assert!(exists(&mut rig, admin, "role", "reader") && !exists(&mut rig, admin, "user", "reader"));
    let text = "Role 'reader' already exists";
    let again = values!["reader"];
    assert_refused(&mut rig, admin, "box.schema.role.create", &again, ErrorCode::RoleExists, text);
    done(&mut rig, admin, "box.schema.role.grant", &values!["reader", "read", "space", "s"]);
    let info = rig.call(admin, "box.schema.role.info", &values!["reader"]);
    assert_eq!(info, Ok(vec![values![values!["read", "space", "s"]]]));

    done(&mut rig, admin, "box.schema.user.grant", &values!["ann", "reader"]);
    let mut ann = rig.login("ann", "secret");
    assert_eq!(rig.select(&mut ann, 600, 0, &values![]), Ok(vec![]));
    done(&mut rig, admin, "box.schema.role.revoke", &values!["reader", "read", "space", "s"]);
    assert_eq!(refused(rig.select(&mut ann, 600, 0, &values![])).0, ErrorCode::AccessDenied);

    let text = "User 'reader' is not found";
    let role = values!["reader", "read", "universe"];
    assert_refused(&mut rig, admin, "box.schema.user.grant", &role, ErrorCode::NoSuchUser, text);
    let text = "Role 'ann' is not found";
    let user = values!["ann", "read", "universe"];
    assert_refused(&mut rig, admin, "box.schema.role.grant", &user, ErrorCode::NoSuchRole, text);
    assert_refused(&mut rig, admin, "box.schema.role.info", &values!["ann"], ErrorCode::NoSuchRole, text);
    let usage = "Usage: box.schema.role.info(name)";
    assert_refused(&mut rig, admin, "box.schema.role.info", &values![], ErrorCode::ProcLua, usage);

    done(&mut rig, admin, "box.schema.role.drop", &values!["reader"]);
    let text = "Role 'reader' is not found";
    let gone = values!["reader"];
    assert_refused(&mut rig, admin, "box.schema.role.drop", &gone, ErrorCode::NoSuchRole, text);
    done(&mut rig, admin, "box.schema.role.drop", &values!["reader", options! { if_exists: true }]);
}

#[test]
fn functions() {
    let mut rig = Rig::new();
    let mut admin = rig.admin();
    let admin = &mut admin;
    let create = "box.schema.func.create";
    done(&mut rig, admin, create, &values!["f", options! { setuid: true }]);
    assert!(exists(&mut rig, admin, "func", "f"));
    let text = "Function 'f' already exists";
    assert_refused(&mut rig, admin, create, &values!["f"], ErrorCode::FunctionExists, text);
    done(&mut rig, admin, create, &values!["f", options! { if_not_exists: true }]);
    rig.create_user("ann", "secret");
    done(&mut rig, admin, "box.schema.user.grant", &values!["ann", "execute", "function", "f"]);
    let mut ann = rig.login("ann", "secret");
    let refusal = refused(rig.call(&mut ann, "f", &values![]));
    assert_eq!(refusal, (ErrorCode::NoSuchProc, "Procedure 'f' is not defined".to_owned()));
    done(&mut rig, admin, "box.schema.func.drop", &values!["f"]);
    assert_eq!(refused(rig.call(&mut ann, "f", &values![])).0, ErrorCode::AccessDenied);
    let text = "Function 'f' does not exist";
    assert_refused(&mut rig, admin, "box.schema.func.drop", &values!["f"], ErrorCode::NoSuchFunction, text);
    done(&mut rig, admin, "box.schema.func.drop", &values!["f", options! { if_exists: true }]);
}

#[test]
fn wrong_arguments_change_nothing() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    let mut admin = rig.admin();
    let signature = rig.instance.standing().signature;
    let cases = [
        ("user.create", values![], ErrorCode::ProcLua, "Usage: box.schema.user.create("),
        ("user.create", values![1], ErrorCode::ProcLua, "Usage: box.schema.user.create("),
        (
            "user.create",
            values!["bob", 1],
            ErrorCode::IllegalParams,
            "Illegal parameters, options should be a table",
        ),
        (
            "user.create",
            values!["bob", options! { secret: "x" }],
            ErrorCode::IllegalParams,
            "Illegal parameters, unexpected option 'secret'",
        ),
        (
            "user.create",
            values!["bob", options! { password: 1 }],
            ErrorCode::IllegalParams,
            "Illegal parameters, options parameter 'password' should be of type string",
        ),
        (
            "user.create",
            values!["bob", options! { if_not_exists: 1 }],
            ErrorCode::IllegalParams,
            "Illegal parameters, options parameter 'if_not_exists' should be of type boolean",
        ),
        ("user.drop", values!["guest"], ErrorCode::DropUser, "Failed to drop user or role 'guest'"),
        ("user.exists", values![], ErrorCode::ProcLua, "Usage: box.schema.user.exists(name)"),
        ("user.info", values![1], ErrorCode::ProcLua, "Usage: box.schema.user.info([name])"),
        ("user.grant", values!["ann"], ErrorCode::ProcLua, "Usage: box.schema.user.grant("),
        ("user.grant", values!["ann", "read", 5], ErrorCode::ProcLua, "Usage: box.schema.user.grant("),
        ("user.grant", values!["ann", "nobody"], ErrorCode::NoSuchRole, "Role 'nobody' is not found"),
        ("user.grant", values!["ann", "read", "planet"], ErrorCode::UnknownSchemaObject, ""),
        ("user.grant", values!["ann", "fly", "universe"], ErrorCode::UnsupportedPriv, ""),
        (
            "user.grant",
            values!["ann", "read", "space", "none"],
            ErrorCode::NoSuchSpace,
            "Space 'none' does not exist",
        ),
        ("role.create", values![Value::Nil], ErrorCode::ProcLua, "Usage: box.schema.role.create("),
        ("func.create", values!["f", options! { language: "COBOL" }], ErrorCode::FunctionLanguage, ""),
    ];
    for (name, args, code, text) in cases {
        let refusal = refused(rig.call(&mut admin, &format!("box.schema.{name}"), &args));
        assert_eq!(refusal.0, code, "{name} {args}: {}", refusal.1);
        assert!(refusal.1.starts_with(text), "{name} {args}: {}", refusal.1);
    }
    assert_eq!(rig.instance.standing().signature, signature);
    let empty = values!["bob", values![]];
    done(&mut rig, &mut admin, "box.schema.user.create", &empty);
}

#[test]
fn privileges_of_the_caller_count() {
    let mut rig = Rig::new();
    rig.create_user("ann", "secret");
    rig.grant("ann", "execute", "universe", "");
    let mut ann = rig.login("ann", "secret");
    for (name, args) in [
        ("user.create", values!["bob"]),
        ("role.create", values!["bob"]),
        ("func.create", values!["f"]),
        ("user.drop", values!["ann2", options! {}]),
        ("user.grant", values!["ann", "read", "universe"]),
    ] {
        let refusal = refused(rig.call(&mut ann, &format!("box.schema.{name}"), &args));
        let expected = if name == "user.drop" { ErrorCode::NoSuchUser } else { ErrorCode::AccessDenied };
        assert_eq!(refusal.0, expected, "{name}: {}", refusal.1);
    }
    let mut admin = rig.admin();
    assert!(!exists(&mut rig, &mut admin, "user", "bob"));
}
