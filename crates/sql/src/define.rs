//! Definitions of tables, views, indexes and constraints, and their DROP; steps of a transaction.
//!
//! The statement becomes a [`Definition`]; the module `lycosa.sql_definitions` writes the rows of the schema. The
//! parser has taken the expressions of checks out (`check.rs`).

use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{
    AlterTable, AlterTableOperation, CheckConstraint, ColumnDef, ColumnOption, ColumnOptionDef,
    ConstraintCharacteristics, ConstraintReferenceMatchKind, CreateIndex, CreateTable, DataType,
    DeferrableInitial, Expr, ForeignKeyConstraint, Ident, IndexColumn, ObjectType, ReferentialAction,
    RenameTableNameKind, Spanned, Statement, TableConstraint, Truncate, UnaryOperator, Value,
};
use sqlparser::keywords::Keyword;

use crate::SqlFault;
use crate::parse::{Parsed, default_texts, near, unexpected_behind, unexpected_word};
use crate::resolve::{Context, MAX_COLUMNS, NO_SUCH_FUNCTION, at_most, name, none, simple_name, unsupported};
use crate::trigger::Trigger;
use crate::value::execution;

/// `ER_SQL_SYNTAX_NEAR_TOKEN`, `ER_CREATE_SPACE`, `ER_SPACE_FIELD_IS_DUPLICATE`, `ER_NULLABLE_PRIMARY` of Tarantool 2.6.
const UNSUPPORTED: u32 = 5;
const SYNTAX_NEAR: u32 = 184;
const CREATE_SPACE: u32 = 9;
const DUPLICATE_FIELD: u32 = 149;
const NULLABLE_PRIMARY: u32 = 152;
const CANT_RESOLVE_FIELD: u32 = 176;

/// A column of a new space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// As the format of the space has it.
    pub name: String,
    /// A type of fields.
    pub ty: &'static str,
    /// NULL is allowed.
    pub nullable: bool,
    /// The expression of DEFAULT, as the format of the space has it.
    pub default: Option<String>,
    /// What becomes of a NULL: `none` where it is allowed, and `None` where the definition says nothing.
    pub on_null: Option<&'static str>,
    /// The number of its collation; 0 for none.
    pub collation: u64,
}

/// A field of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField<F> {
    /// The number of the field from 1, or its name.
    pub field: F,
    /// The name that COLLATE gives; `None`: the collation of the field.
    pub collation: Option<String>,
}

/// A kind of constraint that is a unique index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// PRIMARY KEY
    Primary,
    /// UNIQUE
    Unique,
}

/// A foreign key. Names of fields are names of columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// The name that CONSTRAINT gives.
    pub name: Option<String>,
    /// The fields of the new space.
    pub columns: Vec<String>,
    /// The space that they refer to.
    pub parent: String,
    /// The fields there; none for the fields of the primary key.
    pub parent_columns: Vec<String>,
    /// `no_action`, `restrict`, `cascade`, `set_null` or `set_default`.
    pub on_delete: &'static str,
    /// As `on_delete`.
    pub on_update: &'static str,
    /// INITIALLY DEFERRED: it is checked when the transaction ends.
    pub is_deferred: bool,
    /// `simple`, `partial` or `full`.
    pub matches: &'static str,
}

/// A check constraint: the name that CONSTRAINT gives, and the text of its expression.
pub type NewCheck = (Option<String>, String);

/// A key: the name that CONSTRAINT gives, and its fields.
pub type Key = (Option<String>, Vec<KeyField<usize>>);

/// What a statement defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Definition {
    /// A new space. Keys are numbers of fields from 1; the first is the primary one.
    Create {
        /// Its name.
        name: String,
        /// IF NOT EXISTS.
        is_optional: bool,
        /// Its format.
        fields: Vec<Field>,
        /// The names of the collations of its fields.
        collations: Vec<Option<String>>,
        /// Its indexes.
        keys: Vec<Key>,
        /// The field that a sequence fills.
        sequence: Option<usize>,
        /// Its foreign keys.
        foreign: Vec<ForeignKey>,
        /// Its check constraints.
        checks: Vec<NewCheck>,
        /// The name of its engine; `None` for that of the session.
        engine: Option<String>,
    },
    /// A check constraint of a space that exists.
    AddCheck {
        /// The name of the constraint.
        name: String,
        /// The name of the space.
        space: String,
        /// The text of its expression.
        text: String,
    },
    /// A check constraint that is enabled or disabled.
    SwitchCheck {
        /// Its name.
        name: String,
        /// The name of the space.
        space: String,
        /// Whether it holds from now on.
        is_enabled: bool,
    },
    /// A foreign key of a space that exists.
    AddForeignKey {
        /// The name of the space.
        space: String,
        /// The key.
        key: ForeignKey,
    },
    /// A constraint that goes.
    DropConstraint {
        /// Its name.
        name: String,
        /// The name of the space.
        space: String,
    },
    /// Another name of a space.
    Rename {
        /// Its name.
        name: String,
        /// The new one.
        to: String,
    },
    /// A new view, whose format [`crate::fields_of_view`] finds.
    CreateView {
        /// Its name.
        name: String,
        /// IF NOT EXISTS.
        is_optional: bool,
        /// The text of the statement, as the options of the space have it.
        text: String,
    },
    /// A space that loses its rows.
    Truncate {
        /// Its name.
        name: String,
    },
    /// A space that goes.
    Drop {
        /// Its name.
        name: String,
        /// IF EXISTS.
        is_optional: bool,
        /// DROP VIEW.
        is_view: bool,
    },
    /// A new index of a space.
    CreateIndex {
        /// Its name.
        name: String,
        /// The name of the space.
        space: String,
        /// IF NOT EXISTS.
        is_optional: bool,
        /// UNIQUE.
        is_unique: bool,
        /// The key that ALTER TABLE … ADD CONSTRAINT adds; `None` for CREATE INDEX.
        constraint: Option<KeyKind>,
        /// Its fields.
        columns: Vec<KeyField<String>>,
    },
    /// An index that goes.
    DropIndex {
        /// Its name.
        name: String,
        /// The name of the space.
        space: String,
        /// IF EXISTS.
        is_optional: bool,
    },
    /// A new trigger.
    CreateTrigger(Box<Trigger>),
    /// A trigger that goes.
    DropTrigger {
        /// Its name.
        name: String,
        /// IF EXISTS.
        is_optional: bool,
    },
    /// A step of a transaction: `begin`, `commit`, `rollback`; of its savepoint with this name: `savepoint`, `release`, `rollback to`.
    Transaction(&'static str, Option<String>),
}

/// The definition that a statement is; `None` for any other statement.
///
/// # Errors
/// A clause that is not supported; columns that do not fit together.
pub(crate) fn definition_of(parsed: Parsed, text: &str) -> Result<Option<Definition>, SqlFault> {
    let Parsed { statement, checks, engine, .. } = parsed;
    match statement {
        Statement::CreateTable(table) => create_of(&table, (&checks, text), engine).map(Some),
        Statement::Truncate(table) => truncation_of(&table).map(Some),
        Statement::CreateView(view) => {
            let view = crate::resolve::views::view_of(view)?;
            let text = text.trim().trim_end_matches(|end: char| end == ';' || end.is_whitespace());
            Ok(Some(Definition::CreateView {
                name: view.name,
                is_optional: view.is_optional,
                text: text.to_owned(),
            }))
        }
        Statement::AlterTable(table) => alteration_of(table, text, &checks).map(Some),
        Statement::CreateIndex(index) => create_index_of(&index).map(Some),
        Statement::Drop {
            object_type: ObjectType::Index,
            if_exists,
            names,
            cascade: false,
            restrict: false,
            purge: false,
            temporary: false,
            table: Some(space),
        } if names.len() == 1 => {
            let (name, space) = (simple_name(&names[0])?, simple_name(&space)?);
            Ok(Some(Definition::DropIndex { name, space, is_optional: if_exists }))
        }
        Statement::StartTransaction { .. } | Statement::Commit { .. } => match statement.to_string().as_str()
        {
            "START TRANSACTION" => Ok(Some(Definition::Transaction("begin", None))),
            "COMMIT" => Ok(Some(Definition::Transaction("commit", None))),
            other => Err(unsupported(other)),
        },
        Statement::Rollback { chain: false, savepoint } => Ok(Some(match savepoint {
            Some(savepoint) => Definition::Transaction("rollback to", Some(name(&savepoint)?)),
            None => Definition::Transaction("rollback", None),
        })),
        Statement::Savepoint { name: ident } => {
            Ok(Some(Definition::Transaction("savepoint", Some(name(&ident)?))))
        }
        Statement::ReleaseSavepoint { name: ident } => {
            Ok(Some(Definition::Transaction("release", Some(name(&ident)?))))
        }
        Statement::Drop {
            object_type: object_type @ (ObjectType::Table | ObjectType::View),
            if_exists,
            names,
            cascade,
            restrict,
            purge,
            temporary,
            table,
        } => {
            none(!cascade && !restrict && !purge && !temporary && table.is_none(), "a clause of DROP TABLE")?;
            match &names[..] {
                [one] => Ok(Some(Definition::Drop {
                    name: simple_name(one)?,
                    is_optional: if_exists,
                    is_view: object_type == ObjectType::View,
                })),
                _ => Err(unsupported("DROP TABLE of several")),
            }
        }
        _ => Ok(None),
    }
}

/// A type's name in SQL to that of fields.
pub(crate) fn type_of(text: &str) -> Result<&'static str, SqlFault> {
    let upper = text.to_uppercase();
    let plain = upper.split('(').next().unwrap_or_default().trim();
    Ok(match plain {
        "INT" | "INTEGER" => "integer",
        "UNSIGNED" => "unsigned",
        "TEXT" | "STRING" | "VARCHAR" => "string",
        "DOUBLE" => "double",
        "NUMBER" => "number",
        "BOOLEAN" | "BOOL" => "boolean",
        "SCALAR" => "scalar",
        "VARBINARY" => "varbinary",
        _ => return Err(SqlFault::new(SYNTAX_NEAR, format!("Syntax error at line 1 near '{text}'"))),
    })
}

/// The numbers of a key's columns.
fn key_of(columns: &[IndexColumn], fields: &[Field]) -> Result<Vec<KeyField<usize>>, SqlFault> {
    let number = |column: &IndexColumn| {
        let KeyField { field: wanted, collation } = key_field(column)?;
        let place = fields.iter().position(|field| field.name == wanted);
        let place = place
            .ok_or_else(|| SqlFault::new(CANT_RESOLVE_FIELD, format!("Can’t resolve field '{wanted}'")))?;
        Ok(KeyField { field: place + 1, collation })
    };
    columns.iter().map(number).collect()
}

/// The name of a key's field, and the name of its collation.
fn key_field(column: &IndexColumn) -> Result<KeyField<String>, SqlFault> {
    let (expr, collation) = match &column.column.expr {
        Expr::Collate { expr, collation } => (&**expr, Some(simple_name(collation)?)),
        expr => (expr, None),
    };
    match expr {
        Expr::Identifier(ident) => Ok(KeyField { field: name(ident)?, collation }),
        _ => Err(SqlFault::new(UNSUPPORTED, "Tarantool does not support functional indexes")),
    }
}

/// Refuses what no space has, and sizes that no definition needs.
fn check_clauses(table: &CreateTable) -> Result<(), SqlFault> {
    at_most(MAX_COLUMNS, "The number of columns in set list", table.columns.len())?;
    let in_keys = |constraint: &TableConstraint| match constraint {
        TableConstraint::PrimaryKey(key) => key.columns.len(),
        TableConstraint::Unique(key) => key.columns.len(),
        _ => 1,
    };
    at_most(
        MAX_COLUMNS,
        "The number of columns in keys",
        table.constraints.iter().map(in_keys).sum::<usize>(),
    )?;
    // A definition of these four alone has no further clause.
    let plain = CreateTableBuilder::new(table.name.clone())
        .columns(table.columns.clone())
        .constraints(table.constraints.clone())
        .if_not_exists(table.if_not_exists)
        .build();
    none(plain == *table, "this clause of CREATE TABLE")
}

/// ASC and DESC mean nothing in an index, as in Tarantool.
fn create_index_of(index: &CreateIndex) -> Result<Definition, SqlFault> {
    at_most(MAX_COLUMNS, "The number of columns in keys", index.columns.len())?;
    let column_of = |column: &IndexColumn| {
        let is_plain = column.operator_class.is_none() && column.column.with_fill.is_none();
        none(is_plain && column.column.options.nulls_first.is_none(), "an order in an index")?;
        key_field(column)
    };
    let columns = index.columns.iter().map(column_of).collect::<Result<_, _>>()?;
    let Some(own) = &index.name else { return Err(unsupported("an index without a name")) };
    // An index of these four alone has no further clause.
    let list = index.columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let unique = if index.unique { "UNIQUE " } else { "" };
    let optional = if index.if_not_exists { "IF NOT EXISTS " } else { "" };
    let plain = format!("CREATE {unique}INDEX {optional}{own} ON {}({list})", index.table_name);
    none(plain == index.to_string(), "this clause of CREATE INDEX")?;
    Ok(Definition::CreateIndex {
        name: simple_name(own)?,
        space: simple_name(&index.table_name)?,
        is_optional: index.if_not_exists,
        is_unique: index.unique,
        constraint: None,
        columns,
    })
}

/// A CREATE TABLE as its parts are taken.
#[derive(Default)]
struct NewTable<'t> {
    text: &'t str,
    /// The texts of default values in parentheses that are not taken yet, the next one last.
    defaults: Option<Vec<String>>,
    space: String,
    fields: Vec<Field>,
    collations: Vec<Option<String>>,
    primary: Option<Key>,
    unique: Vec<Key>,
    sequence: Option<usize>,
    foreign: Vec<ForeignKey>,
    /// The texts of check constraints.
    texts: &'t [String],
    checks: Vec<NewCheck>,
}

impl NewTable<'_> {
    fn refused(&self, reason: &str) -> SqlFault {
        SqlFault::new(CREATE_SPACE, format!("Failed to create space '{}': {reason}", self.space))
    }

    fn take_column(&mut self, column: &ColumnDef) -> Result<(), SqlFault> {
        let ColumnDef { name: ident, data_type, options } = column;
        if *data_type == DataType::Unspecified {
            return Err(unexpected_behind(self.text, ident.span.end));
        }
        let ty = type_of(&data_type.to_string())?;
        let own = name(ident)?;
        let mut field = Field { name: own, ty, nullable: true, default: None, on_null: None, collation: 0 };
        if self.fields.iter().any(|known| known.name == field.name) {
            let message = format!("Space field '{}' is duplicate", field.name);
            return Err(SqlFault::new(DUPLICATE_FIELD, message));
        }
        self.collations.push(None);
        for option in options {
            self.take_option(option, &mut field)?;
        }
        self.fields.push(field);
        Ok(())
    }

    /// Takes what stands behind a column's type.
    fn take_option(&mut self, option: &ColumnOptionDef, field: &mut Field) -> Result<(), SqlFault> {
        let constraint = option.name.as_ref().map(name).transpose()?;
        let number = self.fields.len() + 1;
        if let (Some(own), ColumnOption::Null | ColumnOption::Default(_) | ColumnOption::Collation(_)) =
            (&option.name, &option.option)
        {
            return Err(unexpected_behind(self.text, own.span.end));
        }
        match &option.option {
            ColumnOption::ForeignKey(key) => {
                let columns = vec![field.name.clone()];
                self.foreign.push(ForeignKey { name: constraint, columns, ..foreign_key_of(key)? });
                return Ok(());
            }
            ColumnOption::Check(check) => {
                self.checks.push((constraint, text_of(check, self.texts)?));
                return Ok(());
            }
            ColumnOption::Default(value) => {
                let default = default_of(value, self.text, || {
                    self.refused(&format!("default value of column '{}' is not constant", field.name))
                })?;
                let written = matches!(value, Expr::Nested(_)).then(|| self.next_default()).flatten();
                field.default = Some(written.unwrap_or(default));
                return Ok(());
            }
            ColumnOption::Null => return self.take_null("none", field),
            ColumnOption::NotNull => return self.take_null("abort", field),
            // It stands behind NULL or NOT NULL, as the parser has checked.
            ColumnOption::OnConflict(word) => {
                let action = action_on_null(*word)?;
                if action != "abort" && field.on_null == Some("abort") {
                    field.on_null = None;
                }
                return if action == "abort" { Ok(()) } else { self.take_null(action, field) };
            }
            ColumnOption::Collation(_) if !matches!(field.ty, "string" | "scalar" | "any") => {
                return Err(self.refused("collation is reasonable only for string, scalar and any fields"));
            }
            ColumnOption::Collation(own) => {
                let own = simple_name(own)?;
                if let Some(collation) = self.collations.last_mut() {
                    *collation = Some(own);
                }
                return Ok(());
            }
            _ => {}
        }
        match option.option.to_string().to_uppercase().as_str() {
            "PRIMARY KEY" => {
                self.take_primary((constraint, vec![of_field(number)]))?;
                match field.on_null {
                    None => self.take_null("abort", field)?,
                    Some("abort") => {}
                    Some(_) => return Err(self.nullable_primary()),
                }
            }
            "UNIQUE" => self.unique.push((constraint, vec![of_field(number)])),
            "AUTOINCREMENT" => self.sequence = Some(number),
            other => return Err(unsupported(other)),
        }
        Ok(())
    }

    fn nullable_primary(&self) -> SqlFault {
        let text = format!("Primary index of space '{}' can not contain nullable parts", self.space);
        SqlFault::new(NULLABLE_PRIMARY, text)
    }

    /// The text of the next default value in parentheses.
    fn next_default(&mut self) -> Option<String> {
        let text = self.text;
        let texts = self.defaults.get_or_insert_with(|| {
            let mut texts = default_texts(text);
            texts.reverse();
            texts
        });
        texts.pop()
    }

    /// Takes what becomes of a NULL, which a column says once.
    fn take_null(&self, action: &'static str, field: &mut Field) -> Result<(), SqlFault> {
        if let Some(known) = field.on_null.filter(|known| *known != action) {
            return Err(execution(&format!(
                "NULL declaration for column '{}' of table '{}' has been already set to '{known}'",
                field.name, self.space
            )));
        }
        (field.on_null, field.nullable) = (Some(action), action == "none");
        Ok(())
    }

    fn take_primary(&mut self, key: Key) -> Result<(), SqlFault> {
        if self.primary.is_some() {
            return Err(self.refused("primary key has been already declared"));
        }
        self.primary = Some(key);
        Ok(())
    }

    /// Takes a constraint that stands behind the columns.
    fn take_constraint(&mut self, constraint: &TableConstraint) -> Result<(), SqlFault> {
        let (constraint_name, columns, is_primary) = match constraint {
            TableConstraint::ForeignKey(key) => {
                self.foreign.push(foreign_key_of(key)?);
                return Ok(());
            }
            TableConstraint::Check(check) => {
                let own = check.name.as_ref().map(name).transpose()?;
                self.checks.push((own, text_of(check, self.texts)?));
                return Ok(());
            }
            TableConstraint::PrimaryKey(key) => (&key.name, &key.columns, true),
            TableConstraint::Unique(key) => (&key.name, &key.columns, false),
            other => return Err(unsupported(&other.to_string())),
        };
        let names = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let word = if is_primary { "PRIMARY KEY" } else { "UNIQUE" };
        let own = constraint_name.as_ref().map_or(String::new(), |own| format!("CONSTRAINT {own} "));
        let plain: String = format!("{own}{word}({names})").split_whitespace().collect();
        let text: String = constraint.to_string().split_whitespace().collect();
        none(text == plain, "such a constraint")?;
        let key = (constraint_name.as_ref().map(name).transpose()?, key_of(columns, &self.fields)?);
        if is_primary {
            return self.take_primary(key);
        }
        self.unique.push(key);
        Ok(())
    }

    /// The definition, once all parts are taken.
    fn defined(mut self, is_optional: bool, engine: Option<String>) -> Result<Definition, SqlFault> {
        let Some(primary) = self.primary.take() else { return Err(self.refused("PRIMARY KEY missing")) };
        for part in &primary.1 {
            let field = &mut self.fields[part.field - 1];
            if field.on_null.is_some_and(|action| action != "abort") {
                return Err(self.nullable_primary());
            }
            field.nullable = false;
        }
        if let Some(number) = self.sequence
            && (primary.1 != [of_field(number)] || self.fields[number - 1].ty != "integer")
        {
            return Err(self.refused("AUTOINCREMENT is only allowed on an INTEGER PRIMARY KEY"));
        }
        let NewTable { space: name, fields, collations, unique, sequence, foreign, checks, .. } = self;
        let keys = std::iter::once(primary).chain(unique).collect();
        Ok(Definition::Create {
            name,
            is_optional,
            fields,
            collations,
            keys,
            sequence,
            foreign,
            checks,
            engine,
        })
    }
}

fn create_of(
    table: &CreateTable,
    (texts, text): (&[String], &str),
    engine: Option<String>,
) -> Result<Definition, SqlFault> {
    check_clauses(table)?;
    if let [part] = &table.name.0[..]
        && let Some(own) = part.as_ident().filter(|own| own.quote_style == Some('\''))
    {
        return Err(near(1, own));
    }
    let mut made = NewTable { text, texts, space: simple_name(&table.name)?, ..NewTable::default() };
    table.columns.iter().try_for_each(|column| made.take_column(column))?;
    table.constraints.iter().try_for_each(|constraint| made.take_constraint(constraint))?;
    made.defined(table.if_not_exists, engine)
}

/// The text of a check constraint, whose number stands in its place.
fn text_of(check: &CheckConstraint, texts: &[String]) -> Result<String, SqlFault> {
    none(check.enforced.is_none(), "ENFORCED")?;
    let number = check.expr.to_string().parse().ok();
    let text = number.and_then(|number: usize| texts.get(number));
    text.cloned().ok_or_else(|| unsupported("such a CHECK"))
}

/// A foreign key, as it stands behind the columns of a table.
fn foreign_key_of(key: &ForeignKeyConstraint) -> Result<ForeignKey, SqlFault> {
    let ForeignKeyConstraint {
        name: own,
        index_name,
        columns,
        foreign_table,
        referred_columns,
        on_delete,
        on_update,
        match_kind,
        characteristics,
    } = key;
    none(index_name.is_none(), "an index of a foreign key")?;
    let names = |columns: &[Ident]| columns.iter().map(name).collect::<Result<Vec<_>, _>>();
    let is_deferred = match characteristics {
        None => false,
        Some(ConstraintCharacteristics { deferrable, initially, enforced }) => {
            none(enforced.is_none(), "ENFORCED")?;
            let is_deferred = *initially == Some(DeferrableInitial::Deferred);
            none(!is_deferred || *deferrable != Some(false), "NOT DEFERRABLE INITIALLY DEFERRED")?;
            is_deferred
        }
    };
    Ok(ForeignKey {
        name: own.as_ref().map(name).transpose()?,
        columns: names(columns)?,
        parent: simple_name(foreign_table)?,
        parent_columns: names(referred_columns)?,
        on_delete: action_of(*on_delete),
        on_update: action_of(*on_update),
        is_deferred,
        matches: match match_kind {
            None | Some(ConstraintReferenceMatchKind::Simple) => "simple",
            Some(ConstraintReferenceMatchKind::Partial) => "partial",
            Some(ConstraintReferenceMatchKind::Full) => "full",
        },
    })
}

fn action_of(action: Option<ReferentialAction>) -> &'static str {
    match action {
        None | Some(ReferentialAction::NoAction) => "no_action",
        Some(ReferentialAction::Restrict) => "restrict",
        Some(ReferentialAction::Cascade) => "cascade",
        Some(ReferentialAction::SetNull) => "set_null",
        Some(ReferentialAction::SetDefault) => "set_default",
    }
}

/// ALTER TABLE: another name, a key, a foreign key or a check constraint more, or a constraint less.
fn alteration_of(table: AlterTable, text: &str, texts: &[String]) -> Result<Definition, SqlFault> {
    let AlterTable {
        name: space,
        if_exists,
        only,
        operations,
        location,
        on_cluster,
        table_type,
        end_token: _,
    } = table;
    let is_plain = !if_exists && !only && location.is_none() && on_cluster.is_none() && table_type.is_none();
    none(is_plain, "this clause of ALTER TABLE")?;
    let space = simple_name(&space)?;
    match <[_; 1]>::try_from(operations) {
        Ok([AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(to) }]) => {
            Ok(Definition::Rename { name: space, to: simple_name(&to)? })
        }
        Ok(
            [
                AlterTableOperation::AddConstraint {
                    constraint: TableConstraint::ForeignKey(key),
                    not_valid: false,
                },
            ],
        ) => Ok(Definition::AddForeignKey { space, key: foreign_key_of(&key)? }),
        Ok(
            [
                AlterTableOperation::AddConstraint {
                    constraint: TableConstraint::Check(check),
                    not_valid: false,
                },
            ],
        ) => match &check.name {
            Some(own) => Ok(Definition::AddCheck { name: name(own)?, space, text: text_of(&check, texts)? }),
            None => Err(SqlFault::new(SYNTAX_NEAR, "Syntax error at line 1 near 'CHECK'")),
        },
        Ok(
            [
                AlterTableOperation::AddConstraint {
                    constraint: TableConstraint::Unique(key),
                    not_valid: false,
                },
            ],
        ) => added_key(key.name.as_ref(), space, &key.columns, KeyKind::Unique, text),
        Ok(
            [
                AlterTableOperation::AddConstraint {
                    constraint: TableConstraint::PrimaryKey(key),
                    not_valid: false,
                },
            ],
        ) => added_key(key.name.as_ref(), space, &key.columns, KeyKind::Primary, text),
        Ok([AlterTableOperation::DropConstraint { if_exists: false, name: own, drop_behavior: None }]) => {
            Ok(Definition::DropConstraint { name: name(&own)?, space })
        }
        _ => Err(unsupported("this form of ALTER TABLE")),
    }
}

/// ALTER TABLE … ADD CONSTRAINT of a key: a unique index.
fn added_key(
    own: Option<&Ident>,
    space: String,
    columns: &[IndexColumn],
    kind: KeyKind,
    text: &str,
) -> Result<Definition, SqlFault> {
    at_most(MAX_COLUMNS, "The number of columns in keys", columns.len())?;
    let Some(own) = own else {
        return Err(unexpected_word(text, if kind == KeyKind::Primary { "PRIMARY" } else { "UNIQUE" }));
    };
    let name = name(own)?;
    let columns = columns.iter().map(key_field).collect::<Result<_, _>>()?;
    Ok(Definition::CreateIndex {
        name,
        space,
        is_optional: false,
        is_unique: true,
        constraint: Some(kind),
        columns,
    })
}

/// A field of a key without COLLATE.
fn of_field(field: usize) -> KeyField<usize> {
    KeyField { field, collation: None }
}

/// The expression of a DEFAULT: a literal, or an expression without columns in parentheses. Rows keep the text, so that a Tarantool
/// can read them.
fn default_of(value: &Expr, text: &str, not_constant: impl FnOnce() -> SqlFault) -> Result<String, SqlFault> {
    let mut inner = value;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    let (literal, shown) = match inner {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => (&**expr, inner),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => (&**expr, &**expr),
        other => (other, other),
    };
    match literal {
        Expr::Value(literal) if !matches!(literal.value, Value::Placeholder(_)) => Ok(shown.to_string()),
        _ if matches!(value, Expr::Nested(_)) => match Context::constant(inner.clone()) {
            Ok(true) => Ok(inner.to_string()),
            Err(failure) if failure.code == NO_SUCH_FUNCTION => Err(failure),
            Ok(false) | Err(_) => Err(not_constant()),
        },
        _ => Err(unexpected_behind(text, value.span().start)),
    }
}

/// What becomes of a NULL, by the word behind ON CONFLICT.
fn action_on_null(word: Keyword) -> Result<&'static str, SqlFault> {
    Ok(match word {
        Keyword::ROLLBACK => "rollback",
        Keyword::ABORT => "abort",
        Keyword::FAIL => "fail",
        Keyword::IGNORE => "ignore",
        Keyword::REPLACE => "replace",
        _ => return Err(unsupported("such an ON CONFLICT")),
    })
}

/// TRUNCATE TABLE of one table.
fn truncation_of(table: &Truncate) -> Result<Definition, SqlFault> {
    match &table.table_names[..] {
        [target] if format!("TRUNCATE TABLE {}", target.name) == table.to_string() => {
            Ok(Definition::Truncate { name: simple_name(&target.name)? })
        }
        _ => Err(unsupported("such a TRUNCATE")),
    }
}
