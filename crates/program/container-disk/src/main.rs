use std::process::ExitCode;

fn main() -> ExitCode {
    container_disk::main(std::env::args_os())
}
