//! `servers up` and `servers down`: reads the options, says what happened.

use std::{path::PathBuf, process::ExitCode, thread};

use testkit::{
    Server,
    local::{Local, Started},
};

struct Options {
    places: [Local; 3],
    wipe: bool,
}

pub(crate) fn up(words: &[&str]) -> Result<ExitCode, String> {
    let options = parse(words)?;
    if options.wipe {
        return Err("--wipe belongs to `servers down`".into());
    }
    let results: Vec<_> = thread::scope(|scope| {
        let starting: Vec<_> = options.places.iter().map(|place| scope.spawn(|| place.up())).collect();
        starting.into_iter().map(|thread| thread.join().map_err(|_| "a start panicked")).collect::<Result<_, _>>()
    })?;
    let mut code = ExitCode::SUCCESS;
    for (place, result) in options.places.iter().zip(&results) {
        let name = place.server.name();
        match result {
            Ok(Started::Now) => eprintln!("servers: {name} started on 127.0.0.1:{}", place.port),
            Ok(Started::Already) => eprintln!("servers: {name} was running on 127.0.0.1:{}", place.port),
            Err(unavailable) => {
                eprintln!("servers: {unavailable}");
                code = ExitCode::FAILURE;
            }
        }
    }
    for (place, _) in options.places.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
        println!("{}", place.export());
    }
    Ok(code)
}

pub(crate) fn down(words: &[&str]) -> Result<ExitCode, String> {
    let options = parse(words)?;
    for place in &options.places {
        let name = place.server.name();
        match place.down(options.wipe) {
            Ok(true) => println!("servers: {name} stopped"),
            Ok(false) => println!("servers: {name} was not running"),
            Err(error) => return Err(format!("{name} could not be stopped: {error}")),
        }
    }
    if options.wipe {
        println!("servers: the data is removed");
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut folder = PathBuf::from("target/servers");
    let mut ports = [6390, 5490, 9390];
    let mut wipe = false;
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let place = ["--redis-port", "--postgres-port", "--kafka-port"].iter().position(|name| name == option);
        let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
        match (*option, place) {
            ("--wipe", _) => wipe = true,
            ("--data", _) => folder = value()?.into(),
            (_, Some(place)) => {
                let value = value()?;
                ports[place] = value.parse().map_err(|_| format!("{option} is not a port: {value}"))?;
            }
            _ => return Err(format!("there is no option {option}; see `servers help`")),
        }
    }
    // The servers start in folders of their own, where a relative path would mean another place.
    let folder = std::path::absolute(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut places = Server::ALL.into_iter().zip(ports);
    let places = [(); 3].map(|()| {
        let (server, port) = places.next().expect("three servers and three ports");
        Local { server, port, folder: folder.clone() }
    });
    Ok(Options { places, wipe })
}
