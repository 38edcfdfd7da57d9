use std::fs;
use std::path::Path;

use lycosa_tuple::value::Value;

use super::*;
use crate::system;

/// The corpus shows a map as `{"map": [[key, value], …]}`, to keep its order.
fn restored(value: &Value) -> Value {
    if let Some(pairs) = value.get("map") {
        let pairs = pairs.as_array().unwrap().iter().map(|pair| {
            let pair = pair.as_array().unwrap();
            (restored(&pair[0]), restored(&pair[1]))
        });
        return Value::map(pairs);
    }
    match value.as_array() {
        Some(items) => Value::array(items.iter().map(restored)),
        None => value.clone(),
    }
}

#[test]
fn a_new_instance_has_the_rows_of_a_real_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files/empty/expected.json");
    let expected = Value::decode(&row(&fs::read_to_string(path).unwrap())).unwrap();
    let mut store = Store::new(Settings::default());
    let texts = ["cluster_uuid", "instance_uuid"].map(|key| expected.get(key).unwrap().as_str().unwrap());
    store.bootstrap(texts[0], texts[1]).unwrap();
    let mut rows = 0;
    for space in expected.get("system").unwrap().as_array().unwrap() {
        let field = |key| space.get(key).unwrap();
        let id = u32::try_from(field("id").as_u64().unwrap()).unwrap();
        let found = store.space(id).unwrap();
        assert_eq!(found.name(), field("name").as_str().unwrap());
        assert_eq!(found.engine().name(), field("engine").as_str().unwrap());
        assert_eq!(found.indexes().len(), field("indexes").as_array().unwrap().len(), "{}", found.name());
        if found.engine().has_tuples() {
            let expected =
                field("tuples").as_array().unwrap().iter().map(|tuple| text(&restored(tuple).encode()));
            let expected: Vec<String> = expected.collect();
            assert_eq!(all(&store, id), expected.join(" "), "{}", found.name());
            rows += expected.len();
        }
    }
    let mut written = 0;
    store.for_each_snapshot_row(&mut |_, _, _| written += 1);
    assert_eq!((rows, written), (513, 513), "a real first snapshot has 513 rows");
    assert_eq!(store.schema_version(), 78);
    assert_eq!(store.cluster_uuid().as_deref(), Some(texts[0]));
}

#[test]
fn views_show_their_spaces_to_the_admin() {
    let store = new_store();
    for (view, base) in [(281, 280), (289, 288), (277, 276), (297, 296), (305, 304), (313, 312), (286, 284)] {
        assert_eq!(all(&store, view), all(&store, base));
    }
    assert_eq!(
        walk(&store, system::VUSER, 2, IteratorType::Eq, r#"["guest"]"#),
        walk(&store, 304, 0, IteratorType::Eq, "[0]")
    );
}

#[test]
fn a_second_bootstrap_is_refused() {
    let mut store = new_store();
    assert!(store.bootstrap(CLUSTER, INSTANCE).is_err());
}
