//! Texts in rows of the schema, for the store: whether they define what the row says.
//!
//! A row may come from a client or a program that has written it without a statement of SQL, so each new one is looked at.

use lycosa_store::{SpaceId, SqlText, Store, user};

use crate::resolve::check_default;
use crate::{Asker, Definition, Error, definition, fields_of_view, spaces_read_by};

/// The administrator: whether a text means something is no question of rights.
const ASKER: Asker<'_> = Asker { user: user::ADMIN, is_hidden: &|_| false };

/// Says why a text defines no such view or trigger.
///
/// # Errors
/// Text that is no such definition, or no SQL that is supported; another name or space than the row's; spaces that do not exist.
pub fn check_text(store: &Store, text: SqlText<'_>) -> Result<(), String> {
    match text {
        SqlText::View { text } => {
            fields_of_view(text, store, ASKER).map(drop).map_err(|error: Error| error.to_string())
        }
        SqlText::Default { text } => check_default(text).map_err(|failure| failure.message),
        SqlText::Trigger { name, space, text } => {
            let Some(Definition::CreateTrigger(trigger)) =
                definition(text).map_err(|failure| failure.message)?
            else {
                return Err("it is no CREATE TRIGGER".to_owned());
            };
            let Ok(space) = store.space(space) else { return Err(format!("there is no space {space}")) };
            if trigger.name != name {
                return Err(format!("it names the trigger '{}', and the row '{name}'", trigger.name));
            }
            if trigger.space != space.name() {
                return Err(format!(
                    "it names the space '{}', and the row '{}'",
                    trigger.space,
                    space.name()
                ));
            }
            match (space.is_view(), trigger.time) {
                (true, "instead") | (false, "before" | "after") => Ok(()),
                (true, time) => Err(format!("a view has no {} triggers", time.to_uppercase())),
                (false, _) => Err("a space that is no view has no INSTEAD OF triggers".to_owned()),
            }
        }
    }
}

/// The spaces and views that a view reads; none if its text cannot be read.
pub fn spaces_of_view(store: &Store, view: &str) -> Vec<SpaceId> {
    let text = format!("SELECT 1 FROM \"{}\"", view.replace('"', "\"\""));
    spaces_read_by(&text, store, ASKER).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::new_store;

    fn refusal(text: SqlText<'_>) -> String {
        check_text(&new_store(), text).expect_err("a refusal")
    }

    #[test]
    fn a_view_is_a_query_of_spaces_that_exist() {
        let view = |text| SqlText::View { text };
        assert_eq!(check_text(&new_store(), view("CREATE VIEW v AS SELECT \"id\" FROM \"_space\"")), Ok(()));
        assert!(refusal(view("CREATE VIEW v AS SELECT 1 FROM \"nowhere\"")).contains("nowhere"));
        assert!(refusal(view("SELECT 1")).contains("no CREATE VIEW"));
        for text in ["CREATE VIEW v AS", "", "@"] {
            assert!(check_text(&new_store(), view(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_default_value_is_a_constant_expression() {
        let default = |text| SqlText::Default { text };
        for text in ["1 + 2 * 3", "UPPER('a') || 'b'", "CAST('7' AS INTEGER)", "RANDOM()"] {
            assert_eq!(check_text(&new_store(), default(text)), Ok(()), "{text}");
        }
        for text in ["a", "(SELECT 1)", "MAX(1)", "1, 2", "1 FROM t", "?", "", "nosuch(1)"] {
            assert!(check_text(&new_store(), default(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_trigger_is_the_one_that_its_row_names() {
        let text = "CREATE TRIGGER t AFTER INSERT ON \"_collation\" FOR EACH ROW BEGIN SELECT 1; END";
        let of = |name, space, text| SqlText::Trigger { name, space, text };
        assert_eq!(check_text(&new_store(), of("T", 276, text)), Ok(()));
        assert_eq!(refusal(of("t", 276, text)), "it names the trigger 'T', and the row 't'");
        assert_eq!(refusal(of("T", 280, text)), "it names the space '_collation', and the row '_space'");
        assert_eq!(refusal(of("T", 700, text)), "there is no space 700");
        assert_eq!(refusal(of("T", 276, "SELECT 1")), "it is no CREATE TRIGGER");
        assert!(check_text(&new_store(), of("T", 276, "CREATE TRIGGER")).is_err());
        let instead = text.replace("AFTER", "INSTEAD OF");
        assert_eq!(refusal(of("T", 276, &instead)), "a space that is no view has no INSTEAD OF triggers");
    }
}
