//! Users, roles, privileges and what views show. The expectations were seen on a real server.

use super::*;
use crate::ddl::{self, FunctionSpec, Grantee, IndexSpec, PartSpec, SequenceSpec, SpaceSpec};
use crate::{Access, Object, ObjectType, system};

fn space(store: &mut Store, name: &str) -> Result<SpaceId, Error> {
    let id = ddl::create_space(store, &SpaceSpec::new(name, &[]))?;
    let parts = [PartSpec::new(0, "unsigned")];
    ddl::create_index(store, id, &IndexSpec::new("pk", &parts))?;
    Ok(id)
}

fn function(store: &mut Store, name: &str) -> Result<(), Error> {
    let spec = FunctionSpec { name, setuid: false, language: "LUA", body: "" };
    ddl::create_function(store, &spec, "2026-01-01 00:00:00", false)
}

fn id_of(store: &Store, name: &str) -> UserId {
    store.user_by_name(name).unwrap().id
}

/// The names that a view shows to a user, of objects that are not the system's.
fn seen(store: &Store, user: &str, view: SpaceId, least: u64) -> String {
    let mut names = Vec::new();
    let mut note = |tuple: &[u8]| {
        let row = crate::schema::row::Row::new(tuple);
        if row.uint(0).unwrap() >= least {
            names.push(row.text(2).unwrap());
        }
    };
    let user = id_of(store, user);
    store.select(user, view, 0, IteratorType::All, &row("[]"), 0, u64::MAX, &mut note).unwrap();
    names.join(" ")
}

fn with_users() -> Store {
    let mut store = new_store();
    commit(&mut store, |s| {
        for name in ["read", "write", "execute", "drop", "alter", "create", "inner"] {
            space(s, &format!("s_{name}"))?;
        }
        for name in ["f1", "f2"] {
            function(s, name)?;
        }
        for name in ["q1", "q2", "q3"] {
            ddl::create_sequence(s, &SequenceSpec::new(name))?;
        }
        ddl::create_role(s, "inner", false)?;
        ddl::create_role(s, "outer", false)?;
        ddl::grant(s, Grantee::Role("outer"), "execute", "role", "inner", false)?;
        ddl::grant(s, Grantee::Role("inner"), "read", "space", "s_inner", false)?;
        for name in ["plain", "a", "reads", "runs", "creates", "boss"] {
            ddl::create_user(s, name, None, false)?;
        }
        for name in ["read", "write", "execute", "drop", "alter", "create"] {
            ddl::grant(s, "a", name, "space", &format!("s_{name}"), false)?;
        }
        ddl::grant(s, "a", "execute", "function", "f1", false)?;
        ddl::grant(s, "a", "write", "sequence", "q2", false)?;
        ddl::grant(s, "a", "usage", "sequence", "q3", false)?;
        ddl::grant(s, "a", "execute", "role", "outer", false)?;
        ddl::grant(s, "reads", "read", "space", "", false)?;
        ddl::grant(s, "runs", "execute", "universe", "", false)?;
        ddl::grant(s, "creates", "create,read,write", "universe", "", false)?;
        ddl::grant(s, "boss", "execute", "role", "super", false)
    });
    store
}

#[test]
fn views_show_what_one_may_use_or_owns() {
    let mut store = with_users();
    let s = &mut store;
    s.begin(id_of(s, "creates"));
    space(s, "owned").unwrap();
    s.commit();
    commit(s, |s| ddl::revoke(s, "creates", "create,read,write", "universe", "", false));
    let spaces = |user| seen(s, user, system::VSPACE, 512);
    assert_eq!(spaces("guest"), "");
    assert_eq!(spaces("plain"), "");
    assert_eq!(spaces("a"), "s_read s_write s_drop s_alter s_inner");
    let all = "s_read s_write s_execute s_drop s_alter s_create s_inner owned";
    assert_eq!(spaces("reads"), all);
    assert_eq!(spaces("runs"), "");
    assert_eq!(spaces("creates"), "owned");
    assert_eq!(spaces("boss"), all);
    let indexes = |user| seen(s, user, system::VINDEX, 512).split(' ').count();
    assert_eq!((indexes("a"), indexes("boss")), (5, 8));
    let functions = |user| seen(s, user, system::VFUNC, 67);
    assert_eq!((functions("plain").as_str(), functions("a").as_str()), ("LEAST", "LEAST f1"));
    assert_eq!((functions("runs").as_str(), functions("reads").as_str()), ("LEAST f1 f2", "LEAST"));
    let sequences = |user| seen(s, user, system::VSEQUENCE, 0);
    assert_eq!((sequences("a").as_str(), sequences("runs").as_str()), ("q2", "q1 q2 q3"));
    let users = |user| seen(s, user, system::VUSER, 0);
    assert_eq!((users("guest").as_str(), users("a").as_str()), ("guest public", "public a"));
    assert!(users("boss").starts_with("guest admin public replication super inner outer"));
    commit(s, |s| ddl::grant(s, "plain", "read", "space", "_user", false));
    assert_eq!(seen(s, "plain", system::VUSER, 0), seen(s, "boss", system::VUSER, 0));
    commit(s, |s| ddl::revoke(s, "plain", "read", "space", "_user", false));
    let system_spaces = seen(s, "plain", system::VSPACE, 0);
    assert_eq!(
        system_spaces,
        "_collation _vcollation _vspace _vsequence _vindex _vfunc _vuser _vpriv _truncate"
    );
}

#[test]
fn refusals_name_what_is_missing() {
    let mut store = with_users();
    let s = &mut store;
    let a = id_of(s, "a");
    let refused = |s: &mut Store, space: SpaceId| {
        refusal(run_as(s, a, &Statement::Insert { space, tuple: &row("[1]") }))
    };
    assert_eq!(refused(s, 512), "Write access to space 's_read' is denied for user 'a'");
    assert!(run_as(s, a, &Statement::Insert { space: 513, tuple: &row("[1]") }).is_ok());
    let truncate = |s: &mut Store, space| {
        s.begin(a);
        let result = ddl::truncate(s, space);
        s.rollback();
        result
    };
    assert_eq!(refusal(truncate(s, 512)), "Write access to space 's_read' is denied for user 'a'");
    assert_eq!(truncate(s, 513), Ok(()));
    assert_eq!(s.check_access(a, Object::Function("f1"), Access::EXECUTE), Ok(()));
    assert_eq!(
        s.check_access(a, Object::Function("nobody's"), Access::EXECUTE),
        Err(Error::AccessDenied {
            access: Access::EXECUTE,
            object_type: ObjectType::Function,
            object_name: "nobody's".to_owned(),
            user: "a".to_owned()
        })
    );
    commit(s, |s| ddl::revoke(s, "a", "usage", "universe", "", false));
    assert_eq!(refused(s, 513), "Usage access to universe '' is denied for user 'a'");
    assert_eq!(s.check_access(a, Object::Universe, Access::SESSION), Ok(()));
    commit(s, |s| ddl::revoke(s, "a", "session", "universe", "", false));
    let session = refusal(s.check_access(a, Object::Universe, Access::SESSION));
    assert_eq!(session, "Session access to universe '' is denied for user 'a'");
}

/// Every user may write `_truncate`: a stranger could fill the journal with long rows of it.
#[test]
fn rows_about_truncations_are_for_those_who_may_write_the_space() {
    let mut store = with_users();
    let s = &mut store;
    let (a, plain) = (id_of(s, "a"), id_of(s, "plain"));
    let insert = |s: &mut Store, user, id: SpaceId| {
        let tuple = row(&format!(r#"[{id}, 1, "long"]"#));
        run_as(s, user, &Statement::Insert { space: system::TRUNCATE, tuple: &tuple })
    };
    let delete = |s: &mut Store, user, id: SpaceId| {
        let key = row(&format!("[{id}]"));
        run_as(s, user, &Statement::Delete { space: system::TRUNCATE, index: 0, key: &key })
    };
    for (user, name) in [(plain, "plain"), (user::GUEST, "guest")] {
        let expected = format!("Write access to space 's_write' is denied for user '{name}'");
        assert_eq!(refusal(insert(s, user, 513)), expected);
        let expected = format!("Write access to space '_space' is denied for user '{name}'");
        assert_eq!(refusal(insert(s, user, system::SPACE)), expected);
    }
    // The spaces 513 and 515 are s_write and s_drop.
    insert(s, a, 513).unwrap();
    insert(s, user::ADMIN, 515).unwrap();
    let expected = "Write access to space 's_write' is denied for user 'plain'";
    assert_eq!(refusal(delete(s, plain, 513)), expected);
    delete(s, a, 513).unwrap();
    delete(s, a, 515).unwrap();
}

#[test]
fn only_owners_and_admins_define() {
    let mut store = with_users();
    let s = &mut store;
    s.begin(id_of(s, "boss"));
    assert_eq!(
        refusal(ddl::grant(s, "plain", "read", "space", "s_read", false)),
        "Grant access to space 's_read' is denied for user 'boss'"
    );
    assert_eq!(
        refusal(ddl::grant(s, "plain", "read", "universe", "", false)),
        "Grant access to universe '' is denied for user 'boss'"
    );
    ddl::drop_space(s, 512).unwrap();
    s.rollback();
    commit(s, |s| ddl::grant(s, "plain", "write", "universe", "", false));
    s.begin(id_of(s, "plain"));
    let denied = "Create access to space 'mine' is denied for user 'plain'";
    assert_eq!(refusal(ddl::create_space(s, &SpaceSpec::new("mine", &[]))), denied);
    assert!(!s.has_changes(), "a function does all of its work or none");
    let denied = "Drop access to space 's_read' is denied for user 'plain'";
    let delete = Statement::Delete { space: system::INDEX, index: 0, key: &row("[512, 0]") };
    assert_eq!(refusal(s.execute(&delete).map(drop)), denied);
    s.rollback();
    s.begin(id_of(s, "creates"));
    let own = space(s, "own").unwrap();
    ddl::rename_space(s, own, "still own").unwrap();
    ddl::grant(s, "plain", "read", "space", "still own", false).unwrap();
    ddl::drop_space(s, own).unwrap();
    s.commit();
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn users_and_roles_are_refused_as_by_the_original() {
    let mut store = new_store();
    let s = &mut store;
    s.begin(user::ADMIN);
    ddl::create_user(s, "u", None, false).unwrap();
    ddl::create_role(s, "r1", false).unwrap();
    ddl::create_role(s, "r2", false).unwrap();
    let user = |name| Grantee::User(name);
    assert_eq!(refusal(ddl::create_user(s, "u", None, false)), "User 'u' already exists");
    assert_eq!(ddl::create_user(s, "u", None, true), Ok(()));
    assert_eq!(refusal(ddl::create_user(s, "public", None, false)), "User 'public' already exists");
    assert_eq!(refusal(ddl::create_role(s, "u", false)), "Role 'u' already exists");
    assert_eq!(refusal(ddl::drop_user(s, "zz", false)), "User 'zz' is not found");
    assert_eq!(ddl::drop_user(s, "zz", true), Ok(()));
    assert_eq!(refusal(ddl::drop_role(s, "u", false)), "Role 'u' is not found");
    let system = "Failed to drop user or role 'guest': the user or the role is a system";
    assert_eq!(refusal(ddl::drop_user(s, "guest", false)), system);
    let guest = "Setting password for guest user has no effect";
    assert_eq!(refusal(ddl::set_password(s, "guest", [0; 20])), guest);
    assert_eq!(refusal(ddl::set_password(s, "public", [0; 20])), "User 'public' is not found");
    let grant = |s: &mut Store, privileges: &str, kind: &str, name: &str| {
        ddl::grant(s, user("u"), privileges, kind, name, false)
    };
    assert_eq!(refusal(ddl::grant(s, user("r1"), "read", "universe", "", false)), "User 'r1' is not found");
    assert_eq!(
        refusal(ddl::grant(s, Grantee::Role("u"), "read", "universe", "", false)),
        "Role 'u' is not found"
    );
    assert_eq!(refusal(grant(s, "fly", "universe", "")), "Unsupported universe privilege 'fly'");
    assert_eq!(refusal(grant(s, "session", "space", "_space")), "Unsupported space privilege 'session'");
    assert_eq!(refusal(grant(s, "read", "space", "nope")), "Space 'nope' does not exist");
    assert_eq!(refusal(grant(s, "read", "foo", "nope")), "Unknown object type 'foo'");
    assert_eq!(refusal(grant(s, "execute", "role", "norole")), "Role 'norole' is not found");
    grant(s, "execute", "role", "replication").unwrap();
    assert_eq!(
        refusal(grant(s, "execute", "role", "replication")),
        "User 'u' already has role 'replication'"
    );
    grant(s, "read", "space", "_space").unwrap();
    assert_eq!(
        refusal(grant(s, "read", "space", "_space")),
        "User 'u' already has read access on space '_space'"
    );
    grant(s, "read", "universe", "").unwrap();
    assert_eq!(refusal(grant(s, "read", "universe", "")), "User 'u' already has read access on universe");
    grant(s, "read,write", "space", "").unwrap();
    assert_eq!(
        refusal(grant(s, "read,write", "space", "")),
        "User 'u' already has read,write access on space ''"
    );
    let revoke = |s: &mut Store, privileges: &str, kind: &str, name: &str| {
        ddl::revoke(s, user("u"), privileges, kind, name, false)
    };
    let none = "User 'u' does not have execute access on universe ''";
    assert_eq!(refusal(revoke(s, "execute", "universe", "")), none);
    assert_eq!(ddl::revoke(s, "u", "execute", "universe", "", true), Ok(()));
    let none = "User 'u' does not have write access on space '_index'";
    assert_eq!(refusal(revoke(s, "write", "space", "_index")), none);
    assert_eq!(refusal(revoke(s, "execute", "role", "super")), "User 'u' does not have role 'super'");
    assert_eq!(revoke(s, "read,execute", "universe", ""), Ok(()));
    ddl::grant(s, "r1", "execute", "role", "r2", false).unwrap();
    let looped = "Granting role 'r1' to role 'r2' would create a loop";
    assert_eq!(refusal(ddl::grant(s, "r2", "execute", "role", "r1", false)), looped);
    let mut last = Ok(());
    for number in 0..40 {
        last = ddl::create_user(s, &format!("m{number}"), None, false);
    }
    assert_eq!(refusal(last), "A limit on the total number of users has been reached: 32");
    s.set_user(id_of(s, "u"));
    let active = "Failed to drop user or role 'u': the user is active in the current session";
    assert_eq!(refusal(ddl::drop_user(s, "u", false)), active);
    s.rollback();
    assert!(s.user_by_name("u").is_none());
}

#[test]
fn dropping_a_user_drops_what_it_owns() {
    let mut store = with_users();
    let s = &mut store;
    let creator = id_of(s, "creates");
    s.begin(creator);
    space(s, "own").unwrap();
    function(s, "own").unwrap();
    ddl::create_sequence(s, &SequenceSpec::new("own")).unwrap();
    ddl::create_user(s, "child", None, false).unwrap();
    s.commit();
    let before = s.digest();
    s.begin(user::ADMIN);
    let objects = "Failed to drop user or role 'creates': the user has objects";
    assert_eq!(refusal(ddl::drop_user(s, "creates", false)), objects);
    s.commit();
    assert_eq!(s.digest(), before);
    assert!(s.space_by_name("own").is_some());
    commit(s, |s| ddl::drop_user(s, "child", false));
    commit(s, |s| ddl::drop_user(s, "creates", false));
    assert!(s.space_by_name("own").is_none() && s.function_by_name("own").is_none());
    assert!(s.sequence_by_name("own").is_none() && s.user(creator).is_none());
}

#[test]
fn what_was_granted_ends_with_a_rollback() {
    let mut store = with_users();
    let s = &mut store;
    let (plain, boss) = (id_of(s, "plain"), id_of(s, "boss"));
    let may = |s: &Store, user| s.check_access(user, Object::Space(512), Access::READ).is_ok();
    assert!(!may(s, plain) && may(s, boss));
    s.begin(user::ADMIN);
    ddl::grant(s, "plain", "read", "space", "s_read", false).unwrap();
    ddl::revoke(s, "boss", "execute", "role", "super", false).unwrap();
    assert!(may(s, plain) && !may(s, boss));
    s.rollback();
    assert!(!may(s, plain) && may(s, boss));
}
