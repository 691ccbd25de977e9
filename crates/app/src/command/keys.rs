//! `tidegate keys`: the same operations as `/admin/tenants/{tenant}/keys`, on the database directly.

use std::time::Duration;

use anyhow::{Context, bail};
use platform::{config::Invalid, db::Schema, shutdown::Tasks};
use tenancy::{
    Tenancy, check,
    config::Doors,
    model::ApiKey,
    scope::{self, Role},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{bring_up_to_date, connect, print, terminal::note};
use crate::{
    api,
    cli::{Keys, Tenant},
    config,
};

const ACTOR: &str = "cli";

pub(super) async fn run(command: Keys) -> anyhow::Result<()> {
    match command {
        Keys::Create { tenant, name, role, expires_in } => {
            let ttl = expires_in.map(|text| duration("--expires-in", &text, check::ttl)).transpose()?;
            let name = check::name(&name).map_err(|problem| Invalid::new("--name", problem))?;
            let tenancy = open(&tenant).await?;
            let live_keys = tenancy.store().live_keys(&tenant.tenant).await?;
            check::room(live_keys).map_err(anyhow::Error::msg)?;
            let scopes = Role::from(role).scopes();
            let made = tenancy.create_key(ACTOR, &tenant.tenant, name, &scopes, ttl).await?;
            let (api_key, key) = made.context("the tenant was deleted meanwhile")?;
            print(&format!("{}\n", key.expose()))?;
            note(&format!("{} is made; it is shown this once, so keep it now.", api_key.id));
        }
        Keys::List { tenant } => {
            let keys = all(&open(&tenant).await?, &tenant.tenant).await?;
            print(&table(&keys, OffsetDateTime::now_utc()))?;
        }
        Keys::Rotate { tenant, id, grace } => {
            let grace = duration("--grace", &grace, check::grace)?;
            let tenancy = open(&tenant).await?;
            let Some(old) = tenancy.store().key(&tenant.tenant, &id).await? else {
                bail!(unknown_key(&tenant.tenant, &id))
            };
            let Some((api_key, key)) = tenancy.rotate_key(ACTOR, &old, grace).await? else {
                bail!("key {id} is expired, revoked or replaced already: rotate the one that took its place")
            };
            print(&format!("{}\n", key.expose()))?;
            note(&format!("{} takes the place of {id}; it is shown this once, so keep it now.", api_key.id));
        }
        Keys::Revoke { tenant, id } => {
            if !open(&tenant).await?.revoke_key(ACTOR, &tenant.tenant, &id).await? {
                bail!(unknown_key(&tenant.tenant, &id));
            }
            note(&format!("{id} is revoked."));
        }
    }
    Ok(())
}

async fn open(arguments: &Tenant) -> anyhow::Result<Tenancy> {
    let config = config::database_only(&arguments.source.layers()?)?;
    let database = connect(&config).await?;
    // A new database is made ready. One that serves already is changed by `serve` and `migrate` alone.
    match database.schema(&[tenancy::MIGRATIONS]).await? {
        Schema::UpToDate => (),
        Schema::New => drop(bring_up_to_date(&database).await?),
        Schema::Behind(migration) => {
            bail!(
                "the schema lacks {migration} of this version: run `tidegate migrate` first, or the version that serves"
            )
        }
    }
    let tenancy = Tenancy::new(&Doors::Dev, database, api::ENDINGS, Tasks::new());
    let tenant = &arguments.tenant;
    if tenancy.store().tenant(tenant).await?.is_none() {
        bail!("there is no tenant {tenant:?}: create it with POST /admin/tenants, or name another with --tenant");
    }
    Ok(tenancy)
}

fn duration(flag: &str, text: &str, check: fn(Duration) -> Result<Duration, &'static str>) -> anyhow::Result<Duration> {
    let duration = platform::config::duration(text)
        .ok_or_else(|| Invalid::new(flag, format!("{text:?} is not a duration: write one such as 24h or 90d")))?;
    Ok(check(duration).map_err(|problem| Invalid::new(flag, problem))?)
}

fn unknown_key(tenant: &str, id: &str) -> String {
    format!("tenant {tenant:?} has no key {id:?}: `tidegate keys list` shows what there is")
}

async fn all(tenancy: &Tenancy, tenant: &str) -> anyhow::Result<Vec<ApiKey>> {
    let mut keys: Vec<ApiKey> = Vec::new();
    loop {
        let after = keys.last().map(|key| key.id.clone());
        let page = tenancy.store().keys(tenant, after.as_deref(), 500).await.context("the keys could not be listed")?;
        if page.is_empty() {
            return Ok(keys);
        }
        keys.extend(page);
    }
}

fn table(keys: &[ApiKey], now: OffsetDateTime) -> String {
    if keys.is_empty() {
        return "There are no keys yet: `tidegate keys create --name …` makes one.\n".to_owned();
    }
    let mut text =
        format!("{:31} {:12} {:9} {:21} {:21} {}\n", "ID", "KEY", "STATE", "LAST USED", "EXPIRES", "NAME (SCOPES)");
    for key in keys {
        let state = key.state(now);
        text.push_str(&format!(
            "{:31} {:12} {state:9} {:21} {:21} {} ({})\n",
            key.id,
            key.hint,
            moment(key.last_used_at),
            moment(key.expires_at),
            key.name,
            scope::join(&key.scopes),
        ));
    }
    text
}

fn moment(time: Option<OffsetDateTime>) -> String {
    let Some(time) = time else { return "never".to_owned() };
    time.replace_nanosecond(0).ok().and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}
