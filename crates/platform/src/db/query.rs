//! One query in two dialects, for everything that is not hot: tenants, keys, settings, lists.
//!
//! A query is a pair of `.sql` files with one name. Values and rows are small enums, so a caller writes its logic once.
//! Hot paths (claims, outcomes) talk to their database directly instead.

use std::error::Error as StdError;

use bytes::BytesMut;
use rusqlite::types::{ToSqlOutput, ValueRef};
use time::OffsetDateTime;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::{Database, Error};

/// The same query for SQLite and for PostgreSQL. Made by [`query!`](crate::query).
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// `query!("list_keys")` holds `sqlite/list_keys.sql` and `postgres/list_keys.sql` beside the calling file.
#[macro_export]
macro_rules! query {
    ($name:literal) => {
        $crate::db::Query {
            sqlite: include_str!(concat!("sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("postgres/", $name, ".sql")),
        }
    };
}

/// What goes into a query and comes out of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Bytes(Vec<u8>),
    Time(OffsetDateTime),
}

/// One query of a transaction.
pub struct Step {
    query: Query,
    values: Vec<Value>,
    must_match: bool,
}

impl Query {
    pub fn with<const N: usize>(self, values: [Value; N]) -> Step {
        Step { query: self, values: values.into(), must_match: false }
    }
}

impl Step {
    /// If it changes or returns no row, the whole transaction is undone.
    #[must_use]
    pub fn must_match(self) -> Self {
        Step { must_match: true, ..self }
    }
}

/// A row, by column name.
#[derive(Clone, Debug)]
pub struct Row(Vec<(String, Value)>);

impl Row {
    fn value(&self, column: &str) -> &Value {
        let found = self.0.iter().find(|(name, _)| name == column);
        found.map(|(_, value)| value).unwrap_or_else(|| panic!("the query returns no column {column:?}"))
    }

    pub fn text(&self, column: &str) -> String {
        self.optional_text(column).unwrap_or_default()
    }

    pub fn optional_text(&self, column: &str) -> Option<String> {
        match self.value(column) {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub fn int(&self, column: &str) -> i64 {
        self.optional_int(column).unwrap_or_default()
    }

    pub fn optional_int(&self, column: &str) -> Option<i64> {
        match self.value(column) {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    pub fn bytes(&self, column: &str) -> Vec<u8> {
        self.optional_bytes(column).unwrap_or_default()
    }

    pub fn optional_bytes(&self, column: &str) -> Option<Vec<u8>> {
        match self.value(column) {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    pub fn flag(&self, column: &str) -> bool {
        matches!(self.value(column), Value::Bool(true) | Value::Int(1..))
    }

    pub fn time(&self, column: &str) -> OffsetDateTime {
        self.optional_time(column).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// SQLite keeps times as milliseconds since 1970.
    pub fn optional_time(&self, column: &str) -> Option<OffsetDateTime> {
        match self.value(column) {
            Value::Time(time) => Some(*time),
            Value::Int(ms) => OffsetDateTime::from_unix_timestamp_nanos(i128::from(*ms) * 1_000_000).ok(),
            _ => None,
        }
    }
}

impl Database {
    /// Runs one query that changes nothing.
    pub async fn fetch(&self, step: Step) -> Result<Vec<Row>, Error> {
        match self {
            Database::Sqlite(sqlite) => sqlite.read(move |connection| run_sqlite(connection, &step)).await,
            Database::Postgres(postgres) => postgres.within(async |client| run_postgres(client, &step).await).await,
        }
    }

    /// Runs all steps in one transaction and returns their rows; `None` if a step that must match did not.
    pub async fn transact<const N: usize>(&self, steps: [Step; N]) -> Result<Option<[Vec<Row>; N]>, Error> {
        let answers = self.transact_all(steps.into()).await?;
        Ok(answers.map(|answers| answers.try_into().expect("every step has an answer")))
    }

    /// The same for any number of steps.
    pub async fn transact_all(&self, steps: Vec<Step>) -> Result<Option<Vec<Vec<Row>>>, Error> {
        match self {
            Database::Sqlite(sqlite) => {
                let outcome = sqlite.write(move |connection| {
                    let mut answers = Vec::with_capacity(steps.len());
                    for step in &steps {
                        let answer = run_sqlite(connection, step)?;
                        if step.must_match && answer.is_empty() {
                            return Err(rusqlite::Error::QueryReturnedNoRows);
                        }
                        answers.push(answer);
                    }
                    Ok(answers)
                });
                match outcome.await {
                    Err(Error::Sqlite(rusqlite::Error::QueryReturnedNoRows)) => Ok(None),
                    outcome => outcome.map(Some),
                }
            }
            Database::Postgres(postgres) => {
                postgres.within(async |client| transact_postgres(client, &steps).await).await
            }
        }
    }
}

async fn transact_postgres(
    client: &mut deadpool_postgres::Object,
    steps: &[Step],
) -> Result<Option<Vec<Vec<Row>>>, Error> {
    let transaction = client.transaction().await?;
    let mut answers = Vec::with_capacity(steps.len());
    for step in steps {
        let answer = run_postgres(&transaction, step).await?;
        if step.must_match && answer.is_empty() {
            return Ok(None);
        }
        answers.push(answer);
    }
    transaction.commit().await?;
    Ok(Some(answers))
}

fn run_sqlite(connection: &rusqlite::Connection, step: &Step) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(step.query.sqlite)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut cursor = statement.query(rusqlite::params_from_iter(&step.values))?;
    let mut rows = Vec::new();
    while let Some(row) = cursor.next()? {
        let values = names.iter().enumerate().map(|(index, name)| Ok((name.clone(), row.get_ref(index)?.into())));
        rows.push(Row(values.collect::<rusqlite::Result<_>>()?));
    }
    Ok(rows)
}

async fn run_postgres<C>(client: &C, step: &Step) -> Result<Vec<Row>, Error>
where
    C: deadpool_postgres::GenericClient + Sync,
{
    let statement = client.prepare_cached(step.query.postgres).await?;
    let values: Vec<&(dyn ToSql + Sync)> = step.values.iter().map(|value| value as _).collect();
    let rows = client.query(&statement, &values).await?;
    rows.iter().map(from_postgres).collect()
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Int(int) => ToSqlOutput::Borrowed(ValueRef::Integer(*int)),
            Value::Bool(flag) => ToSqlOutput::Borrowed(ValueRef::Integer((*flag).into())),
            Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Value::Time(time) => ToSqlOutput::from(milliseconds(*time)),
        })
    }
}

fn milliseconds(time: OffsetDateTime) -> i64 {
    time.unix_timestamp() * 1000 + i64::from(time.millisecond())
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(int) => Value::Int(int),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "no column of ours is a float; an expression's is whole"
            )]
            ValueRef::Real(real) => Value::Int(real as i64),
            ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Text(text) => text.to_sql_checked(ty, out),
            Value::Int(int) => int.to_sql_checked(ty, out),
            Value::Bool(flag) => flag.to_sql_checked(ty, out),
            Value::Bytes(bytes) => bytes.to_sql_checked(ty, out),
            Value::Time(time) => time.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true // each arm checks its own type
    }

    to_sql_checked!();
}

fn from_postgres(row: &tokio_postgres::Row) -> Result<Row, Error> {
    let columns = row.columns().iter().enumerate();
    let values = columns.map(|(index, column)| {
        let value = match *column.type_() {
            Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map(Value::Bool),
            Type::INT4 => row.try_get::<_, Option<i32>>(index)?.map(|int| Value::Int(int.into())),
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map(Value::Int),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(index)?.map(Value::Bytes),
            Type::TIMESTAMPTZ => row.try_get::<_, Option<OffsetDateTime>>(index)?.map(Value::Time),
            _ => row.try_get::<_, Option<String>>(index)?.map(Value::Text),
        };
        Ok((column.name().to_owned(), value.unwrap_or(Value::Null)))
    });
    values.collect::<Result<_, Error>>().map(Row)
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Value::Int(int)
    }
}

impl From<u32> for Value {
    fn from(int: u32) -> Self {
        Value::Int(int.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::Bytes(bytes.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}
